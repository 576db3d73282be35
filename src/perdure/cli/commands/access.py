"""`perdure access …`: logins, keys, grants and the audit, for those who can write the database: they are admins."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urljoin

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from perdure.access.model import KEY, WORKFLOW, Grant, Person
from perdure.codec import to_plain
from perdure.kernel.asked import Actor
from perdure.runtime.client import Client

from ..console import Console, define
from ..exits import Exit, Stopped
from ..text import table
from .serve import LISTEN

MINUTES = 10
SECONDS = 10.0
RULE = "'ROLE [WORKFLOW,WORKFLOW] [no-values]', repeatable."
EXITS = {"not-found": Exit.NOT_FOUND, "last-admin": Exit.CONFLICT}


@define("access link")
@click.option("--actor", metavar="NAME", help="Who logs in, with what NAME was granted.  [default: you, as admin]")
@click.option("--url", default=f"http://{LISTEN}", show_default=True, help="The address of the server.")
def link(console: Console, actor: str | None, url: str) -> None:
    """The link works once, for ten minutes. Yours logs in an admin: who can write the database is admin."""
    from perdure.server.accesses import read_access
    from perdure.server.auth.tokens import digest_of

    if console.server is not None:
        made = console.request("access link", actor=actor or "")
        whole = urljoin(console.server, made.path)
        console.answer({"login": whole}, whole)
        return
    token, name = token_urlsafe(32), actor or getpass.getuser()
    expires = datetime.now(UTC) + timedelta(minutes=MINUTES)
    body = {"digest": digest_of(token), "actor": name, "expires_at": expires, "admin": actor is None}

    async def make(client: Client) -> bool:
        await _change(client, "link add", body)
        return actor is None or actor in (await read_access(client.queries)).people

    if not console.ask(make):
        console.note(f"{name} was granted nothing yet: {console.command('access', 'grant', name, '--grant', 'viewer')}")
    whole = f"{url.rstrip('/')}/login#{token}"
    console.answer({"login": whole}, whole)


@define("access key")
@click.argument("actor")
@click.option("--grant", "grants", multiple=True, metavar="RULE", help=RULE)
@click.option("--role", "roles", multiple=True, help="A role of tasks; repeatable.")
@click.option("--executor", default="", metavar="NAME", help="A key that answers the effects of this executor alone.")
@click.option("--days", type=float, default=90.0, show_default=True, help="After so many days the key ends.")
def key(  # noqa: PLR0917
    console: Console, actor: str, grants: tuple[str, ...], roles: tuple[str, ...], executor: str, days: float
) -> None:
    """The key is shown this once; the database keeps its SHA-256."""
    from perdure.server.api.access import KeyParams, made_key

    given = KeyParams(actor, _grants(grants), list(roles), days, executor)
    if console.server is not None:
        made = console.request("key add", **asdict(given))
    else:
        kept, made = made_key(given, getpass.getuser())
        _act(console, "key add", to_plain(kept))
    console.answer(to_builtins(made), made.key)


@define("access keys")
def keys(console: Console) -> None:
    from perdure.server.accesses import read_access
    from perdure.server.api.access import listed_key

    if console.server is not None:
        listed = console.request("key ls").items
    else:
        found = console.ask(lambda client: read_access(client.queries))
        listed = [listed_key(each) for each in found.keys.values()]
    rows = [[each.id, each.actor, _rights(each.grants, each.roles) or each.executor, _state(each)] for each in listed]
    console.answer({"keys": to_builtins(listed)}, table(rows) if rows else "")


@define("access revoke")
@click.argument("key")
def revoke(console: Console, key: str) -> None:
    """KEY is the id of a key. All servers refuse it within seconds."""
    id = key.removeprefix("pdk_").partition("_")[0]
    if console.server is not None:
        console.request("key revoke", id=id)
    else:
        _act(console, "key revoke", {"id": id})
    console.answer({"revoked": id}, f"revoked {id}")


@define("access grant")
@click.argument("actor")
@click.option("--grant", "grants", multiple=True, metavar="RULE", help=RULE)
@click.option("--role", "roles", multiple=True, help="A role of tasks; repeatable.")
def grant(console: Console, actor: str, grants: tuple[str, ...], roles: tuple[str, ...]) -> None:
    """What is given replaces what the actor had; without --grant and --role all is taken away."""
    person = Person(tuple(_grants(grants)), roles)
    if console.server is not None:
        console.request("grant by name", actor=actor, grants=person.grants, roles=person.roles)
    else:
        _act(console, "grant", to_plain({"actor": actor, "person": person}))
    console.answer(
        {"actor": actor, **to_builtins(person)}, f"{actor}: {_rights(person.grants, person.roles) or 'nothing'}"
    )


@define("access grants")
def grants(console: Console) -> None:
    from perdure.server.accesses import read_access

    if console.server is not None:
        people = console.request("grants").people
    else:
        people = console.ask(lambda client: read_access(client.queries)).people
    rows = [[name, _rights(person.grants, person.roles)] for name, person in sorted(people.items())]
    console.answer({"people": to_builtins(people)}, table(rows) if rows else "")


@define("access audit")
@click.option("-n", "count", type=click.IntRange(1), default=20, show_default=True, help="The last so many entries.")
def audit(console: Console, count: int) -> None:
    """Logins, keys, grants, shared bookmarks, exports and refused writes."""
    from perdure.server.api.access import read_audit

    if console.server is not None:
        found = console.request("audit").items[::-1][-count:]
    else:
        found = console.ask(lambda client: read_audit(client.queries))[-count:]
    rows = [[f"{each.at:%Y-%m-%d %H:%M:%S}", each.by, each.what, _details(each.details)] for each in found]
    console.answer({"entries": to_builtins(found)}, table(rows) if rows else "")


def _act(console: Console, verb: str, body: Any) -> None:
    console.act(lambda client: _change(client, verb, body), makes=False)


async def _change(client: Client, verb: str, body: Any) -> Any:
    """A change of access, recorded in the name of the user of this terminal."""
    from perdure.server.accesses import begin

    by = Actor(getpass.getuser())
    await begin(client, by)
    answer = await client.handle(WORKFLOW, KEY).ask(verb, body, timeout=SECONDS, by=by)
    if "refused" in answer:
        raise Stopped(answer["text"], EXITS.get(answer["refused"], Exit.USAGE), kind=answer["refused"])
    return answer["ok"]


def _grants(texts: tuple[str, ...]) -> list[Grant]:
    from perdure.server.auth.claims import read_grant

    return [read_grant(text) for text in texts]


def _rights(grants: Any, roles: Any) -> str:
    """Grants as they are given, and roles of tasks."""
    found = [
        " ".join([each.role, ",".join(each.workflows), *([] if each.values else ["no-values"])]) for each in grants
    ]
    return "; ".join([*found, *(f"role {each}" for each in roles)])


def _state(key: Any) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    return "" if key.expires_at is None else f"until {key.expires_at:%Y-%m-%d}"


def _details(details: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in details.items()) if isinstance(details, dict) else ""
