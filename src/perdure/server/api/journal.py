"""Entries as the journal has them, what the entries of one name lead to, and whether the database is sound."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.access.model import allowed
from perdure.codec import to_plain
from perdure.errors import CallerError
from perdure.kernel.placement import SHARDS_MAX
from perdure.kernel.status import TERMINAL
from perdure.runtime.history import list_place
from perdure.views.doctor import examine, versions
from perdure.views.journal import JournalEntry, JournalLine, JournalPage, entry_of, page
from perdure.views.journal import tail as last
from perdure.views.reasons import rules_in_force, words_for
from perdure.views.where import Term

from ..calling import Calling, id_of, unknown
from ..problems import HttpProblem
from .instances import InstanceList, ListQuery, Nothing, list_page, where_of

LINES_MAX: Final = 500


class JournalQuery(msgspec.Struct, frozen=True):
    """Entries of one shard after a number, at most `limit`. `last`: the last so many of all shards instead."""

    shard: int = 0
    after: int = 0
    limit: int = 100
    last: int = 0


class JournalAnswer(msgspec.Struct, frozen=True):
    """`next` is the `after` of the next page; null: the journal ends here. `head`: the last entry of all shards."""

    shard: int
    items: list[JournalEntry]
    next: str | None
    head: str


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

    queries = calling.client.queries
    if given.last:
        _check_limit(given.last, "last")
        found = JournalPage(await last(queries, given.last, visible), 0)
    else:
        found = await page(queries, given.shard, given.after, given.limit, visible)
    items = [*map(entry_of, found.lines)]
    head = str(await queries.height())
    return JournalAnswer(given.shard, items, str(found.next) if found.next else None, head)


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


class LivingQuery(ListQuery, frozen=True):
    """`before`: the list goes on after the instance of this number."""

    before: int = 0


async def living(calling: Calling, given: LivingQuery) -> InstanceList:
    """The instances that events made and that have not ended, by the manifest in force."""
    queries = calling.client.queries
    names = tuple((await rules_in_force(queries)).versions)
    only = Term("workflow", ":", names or ("",)), Term("status", ":", tuple(TERMINAL), negated=True)
    place = await list_place(queries, given.before, given.order == "-changed")
    return await list_page(calling, given, (*where_of(given), *only), place)


class StateQuery(msgspec.Struct, frozen=True):
    """`at`: the number of an entry of the journal; 0: as it is now."""

    id: str
    at: int = 0


class StateAnswer(msgspec.Struct, frozen=True):
    """`entry`: the state is that of this entry of the journal, or, if null, that of now. `head`: the journal's last
    entry. `goes_to`: the version in force, if the instance is not migrated to it yet.
    """

    id: str
    version: str
    status: str
    entry: str | None
    state: Any
    head: str
    goes_to: str | UnsetType = UNSET


async def state(calling: Calling, given: StateQuery) -> StateAnswer:
    """The state is not stored: its code makes it from its events."""
    if not 0 <= given.at < 2**63:
        raise HttpProblem(422, "bad-request", f"at is the number of an entry, or 0, found {given.at}", where="/at")
    head = await calling.find(given.id)
    policy, _ = await words_for(calling.client.queries, head.workflow, False)
    if policy.created != "message":
        raise unknown(f"instance {given.id[:80]!r} that events make")
    height = await calling.client.queries.height()
    if given.at > height:
        raise unknown(f"entry {given.at}")
    try:
        found = to_plain(await calling.client.state(head.workflow, head.key, at=given.at or None))
    except CallerError as error:
        raise HttpProblem(409, "code-not-here", f"the state of {id_of(head)} is not known here: {error}") from None
    if found is None:
        raise unknown(f"state of {id_of(head)} at entry {given.at}" if given.at else f"state of {id_of(head)}")
    force = await rules_in_force(calling.client.queries)
    outdated = not given.at and head.status not in TERMINAL and force.outdated(head.workflow, head.version)
    goes_to = force.versions[head.workflow] if outdated else UNSET
    entry = str(given.at) if given.at else None
    return StateAnswer(id_of(head), head.version, head.status, entry, found, str(height), goes_to)


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
    return TailAnswer(id_of(head), [entry_of(JournalLine(id_of(head), line)) for line in lines])
