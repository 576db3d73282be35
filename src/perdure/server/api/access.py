"""Access over HTTP: keys, grants, login links, the audit, and who asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Any, Final

import msgspec

from perdure.access.model import KEY, WORKFLOW, ApiKey, Grant, Person, covers
from perdure.codec import decode
from perdure.errors import PerdureError, UnclearRequest
from perdure.kernel.asked import Actor, is_name
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Address, Message, asked_of
from perdure.kernel.location import Patterns
from perdure.kernel.moment import when
from perdure.ports.store import Queries

from ..accesses import LINK_MINUTES
from ..auth.tokens import digest_of, new_key
from ..calling import Calling
from ..problems import HttpProblem
from .instances import Nothing

AUDIT_MAX: Final = 1000
PATTERN_MAX: Final = 200
PATTERNS_MAX: Final = 200


class WhoAmI(msgspec.Struct, frozen=True):
    id: str
    roles: list[str]
    grants: list[Grant]
    via: str
    database: str
    read_only: bool


async def whoami(calling: Calling, given: Nothing) -> WhoAmI:
    login = calling.login
    via = login.via.partition(":")[0]
    grants, settings = list(login.grants), calling.settings
    return WhoAmI(login.actor.id, list(login.actor.roles), grants, via, settings.database, settings.read_only)


class ListedKey(msgspec.Struct, frozen=True):
    """A key without its digest."""

    id: str
    actor: str
    grants: list[Grant]
    roles: list[str]
    made_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    executor: str


class KeyList(msgspec.Struct, frozen=True):
    items: list[ListedKey]


async def keys(calling: Calling, given: Nothing) -> KeyList:
    found = (await calling.accesses.state(fresh=True)).keys.values()
    return KeyList([listed_key(key) for key in found])


def listed_key(key: ApiKey) -> ListedKey:
    return ListedKey(
        key.id,
        key.actor,
        list(key.grants),
        list(key.roles),
        key.made_by,
        key.created_at,
        key.expires_at,
        key.revoked_at,
        key.used_at,
        key.executor,
    )


class KeyParams(msgspec.Struct, frozen=True):
    """`days`: after so many the key ends. An executor key answers the effects of that executor, and has no grants."""

    actor: str
    grants: list[Grant] = []
    roles: list[str] = []
    days: float | None = 90
    executor: str = ""


class MadeKey(msgspec.Struct, frozen=True):
    """`key` is shown this once."""

    id: str
    key: str
    expires_at: datetime | None


async def add_key(calling: Calling, given: KeyParams) -> Any:
    if not covers(calling.login.grants, given.grants):
        raise HttpProblem(403, "forbidden", "a key has never more rights than its maker", expected="your own grants")
    key, made = made_key(given, calling.login.actor.id, calling.event)
    await calling.accesses.ask("key add", key, calling.login.actor)
    return 201, made


def made_key(given: KeyParams, maker: str, event: str = "") -> tuple[ApiKey, MadeKey]:
    """A key as it is kept, and as it is shown once."""
    check_names(given.actor, given.grants, given.roles)
    if bool(given.grants or given.roles) == bool(given.executor):
        raise UnclearRequest("a key has grants or roles, or it is the key of an executor")
    if given.days is not None and not 0 < given.days <= 3660:
        raise UnclearRequest(f"days is more than 0 and at most 3660, found {given.days}")
    now = datetime.now(UTC)
    expires = None if given.days is None else now + timedelta(days=given.days)
    id, whole, digest = new_key(event)
    grants, roles = tuple(given.grants), tuple(given.roles)
    key = ApiKey(id, digest, given.actor, grants, roles, maker, now, expires, executor=given.executor)
    return key, MadeKey(id, whole, expires)


def check_names(actor: str, grants: list[Grant], roles: list[str]) -> None:
    """What is kept for years is checked before: an actor and roles as journals take them, patterns of a sane length."""
    Actor(actor, roles)
    patterns = [pattern for grant in grants for pattern in grant.workflows]
    if any(not grant.workflows for grant in grants):
        raise UnclearRequest("a grant names workflows by a pattern at least: `*` means all")
    if any(not is_name(pattern) or len(pattern) > PATTERN_MAX for pattern in patterns) or len(patterns) > PATTERNS_MAX:
        text = f"grants have at most {PATTERNS_MAX} patterns of workflows, each of 1 to {PATTERN_MAX} characters"
        raise UnclearRequest(text)


class KeyId(msgspec.Struct, frozen=True):
    id: str


class Done(msgspec.Struct, frozen=True):
    ok: bool = True


async def revoke_key(calling: Calling, given: KeyId) -> Done:
    await calling.accesses.ask("key revoke", {"id": given.id}, calling.login.actor)
    return Done()


class GrantList(msgspec.Struct, frozen=True):
    people: dict[str, Person]


async def grants(calling: Calling, given: Nothing) -> GrantList:
    return GrantList((await calling.accesses.state(fresh=True)).people)


class GrantParams(msgspec.Struct, frozen=True):
    """What an actor has from now on; nothing: all is taken away."""

    actor: str
    grants: list[Grant] = []
    roles: list[str] = []


async def put_grants(calling: Calling, given: GrantParams) -> GrantList:
    check_names(given.actor, given.grants, given.roles)
    if not covers(calling.login.grants, given.grants):
        raise HttpProblem(403, "forbidden", "no one grants more than their own rights", expected="your own grants")
    person = Person(tuple(given.grants), tuple(given.roles))
    await calling.accesses.ask("grant", {"actor": given.actor, "person": person}, calling.login.actor)
    return await grants(calling, Nothing())


class LinkParams(msgspec.Struct, frozen=True):
    actor: str = ""


class MadeLink(msgspec.Struct, frozen=True):
    """`path` is below the address of the server; it works once."""

    path: str
    expires_at: datetime


async def link(calling: Calling, given: LinkParams) -> Any:
    """A login with what the actor was granted, so that it ends with the grant. The owner, who has all rights without
    one, passes them on to a login of its own.
    """
    maker = calling.login
    token, actor = token_urlsafe(32), given.actor or maker.actor.id
    check_names(actor, [], [])
    admin = actor == maker.actor.id and maker.owner
    expires = datetime.now(UTC) + timedelta(minutes=LINK_MINUTES)
    body = {"digest": digest_of(token), "actor": actor, "expires_at": expires, "admin": admin}
    await calling.accesses.ask("link add", body, maker.actor)
    return 201, MadeLink(f"{calling.request.root}/login#{token}", expires)


class AuditEntry(msgspec.Struct, frozen=True):
    number: int
    at: datetime
    by: str
    what: str
    details: Any


class Audit(msgspec.Struct, frozen=True):
    items: list[AuditEntry]


async def audit(calling: Calling, given: Nothing) -> Audit:
    """The last entries of `perdure.access/main`, the newest first. Digests are left out."""
    return Audit((await read_audit(calling.client.queries))[-AUDIT_MAX:][::-1])


async def read_audit(queries: Queries) -> list[AuditEntry]:
    head = await queries.head(Address(WORKFLOW, KEY))
    rows = [] if head is None else await queries.history(head.id)
    patterns, found = Patterns(), []
    for row in rows:
        entry = decode_entry(row.seq, row.instance, row.at, row.body, patterns)
        if isinstance(entry.event, Message):
            asked = asked_of(entry.event)
            by = asked.by.id if asked is not None and asked.by is not None else ""
            details = _readable(entry.event.body)
            what = details.pop("what", entry.event.name) if isinstance(details, dict) else entry.event.name
            for _, answer in entry.decision.respond:
                if isinstance(details, dict) and "refused" in (said := decode(answer)):
                    details["refused"] = said["text"]
            found.append(AuditEntry(entry.number, when(entry.at), by, what, details))
    return found


def _readable(body: bytes) -> Any:
    try:
        value = decode(body)
    except PerdureError:
        return None
    return {name: each for name, each in value.items() if name != "digest"} if isinstance(value, dict) else value
