"""Entries as the journal has them, what the entries of one name lead to, and whether the database is sound."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from perdure.access.model import allowed
from perdure.codec import to_plain
from perdure.errors import CallerError
from perdure.kernel.placement import SHARDS_MAX
from perdure.kernel.status import TERMINAL
from perdure.ports.seen import Line
from perdure.views.doctor import examine, versions
from perdure.views.journal import page
from perdure.views.look import ShownEntry, shown_entry
from perdure.views.reasons import rules_in_force, words_for
from perdure.views.where import Term

from ..calling import Calling, id_of, unknown
from ..problems import HttpProblem
from .instances import InstanceList, ListQuery, Nothing, list_page, where_of

LINES_MAX: Final = 500


class JournalEntry(ShownEntry, frozen=True, kw_only=True):
    """`entry` is the number in the journal, `number` that among the entries of the instance `id`."""

    entry: str
    id: str


def _entry(id: str, line: Line) -> JournalEntry:
    return JournalEntry(**asdict(shown_entry(line)), entry=str(line.seq), id=id)


class JournalQuery(msgspec.Struct, frozen=True):
    """Entries of one shard after a number, at most `limit`."""

    shard: int = 0
    after: int = 0
    limit: int = 100


class JournalAnswer(msgspec.Struct, frozen=True):
    """`next` is the `after` of the next page; null: the journal ends here."""

    shard: int
    items: list[JournalEntry]
    next: str | None


async def journal(calling: Calling, given: JournalQuery) -> JournalAnswer:
    """Entries of instances that the login does not see are left out."""
    if not 0 <= given.shard < SHARDS_MAX:
        raise HttpProblem(422, "bad-request", f"shard is 0 to {SHARDS_MAX - 1}, found {given.shard}", where="/shard")
    if not 0 <= given.after < 2**63:
        text = f"after is the number of an entry, or 0, found {given.after}"
        raise HttpProblem(422, "bad-request", text, where="/after")
    _check_limit(given.limit, "limit")

    def visible(workflow: str) -> bool:
        sees = calling.sees(workflow) if workflow else calling.sees_all
        if sees:
            calling.subjects.add(workflow or "*")
        return sees

    found = await page(calling.client.queries, given.shard, given.after, given.limit, visible)
    items = [_entry(each.id, each.line) for each in found.lines]
    return JournalAnswer(given.shard, items, str(found.next) if found.next else None)


def _check_limit(limit: int, name: str) -> None:
    if not 1 <= limit <= LINES_MAX:
        raise HttpProblem(422, "bad-request", f"{name} is 1 to {LINES_MAX}, found {limit}", where=f"/{name}")


class DoctorAnswer(msgspec.Struct, frozen=True):
    """`ok`: there are no problems. `database` has the facts of the database, the engine and the workflows."""

    ok: bool
    versions: dict[str, str]
    database: dict[str, Any]
    problems: list[str]


async def doctor(calling: Calling, given: Nothing) -> DoctorAnswer:
    """All of the database, so that a login sees all workflows or is refused. Where it lies is for admins."""
    calling.check_all("the whole database")
    facts, problems = await examine(calling.client.queries)
    admin = allowed(calling.login, "admin").yes
    return DoctorAnswer(not problems, versions(), facts if admin else {}, problems)


# ---- what events make ----------------------------------------------------------------------------------------


async def living(calling: Calling, given: ListQuery) -> InstanceList:
    """The instances that events made and that have not ended, by the manifest in force."""
    names = tuple((await rules_in_force(calling.client.queries)).versions)
    only = Term("workflow", ":", names or ("",)), Term("status", ":", tuple(TERMINAL), negated=True)
    return await list_page(calling, given, (*where_of(given), *only))


class StateQuery(msgspec.Struct, frozen=True):
    """`at`: the number of an entry of the journal; 0: as it is now."""

    id: str
    at: int = 0


class StateAnswer(msgspec.Struct, frozen=True):
    """`entry`: the state is that of this entry of the journal, or, if null, that of now."""

    id: str
    version: str
    status: str
    entry: str | None
    state: Any


async def state(calling: Calling, given: StateQuery) -> StateAnswer:
    """The state is not stored: its code makes it from its events."""
    if not 0 <= given.at < 2**63:
        raise HttpProblem(422, "bad-request", f"at is the number of an entry, or 0, found {given.at}", where="/at")
    head = await calling.find(given.id)
    policy, _ = await words_for(calling.client.queries, head.workflow, False)
    if policy.created != "message":
        raise unknown(f"instance {given.id[:80]!r} that events make")
    if given.at > await calling.client.queries.height():
        raise unknown(f"entry {given.at}")
    try:
        found = to_plain(await calling.client.state(head.workflow, head.key, at=given.at or None))
    except CallerError as error:
        raise HttpProblem(409, "code-not-here", f"the state of {id_of(head)} is not known here: {error}") from None
    if found is None:
        raise unknown(f"state of {id_of(head)} at entry {given.at}" if given.at else f"state of {id_of(head)}")
    return StateAnswer(id_of(head), head.version, head.status, str(given.at) if given.at else None, found)


class TailQuery(msgspec.Struct, frozen=True):
    id: str
    lines: int = 10


class TailAnswer(msgspec.Struct, frozen=True):
    id: str
    entries: list[JournalEntry]


async def tail(calling: Calling, given: TailQuery) -> TailAnswer:
    """The last entries of the last generation."""
    _check_limit(given.lines, "lines")
    head = await calling.find(given.id)
    lines = await calling.cut(head, lambda whole: whole.lines[-given.lines :])
    return TailAnswer(id_of(head), [_entry(id_of(head), line) for line in lines])
