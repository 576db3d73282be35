"""What runs: workflows, the engine, the journal, and the table of verbs itself."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from perdure.access.model import Who, allowed
from perdure.kernel.policy import decode_policy
from perdure.ports.store import Owner
from perdure.verbs.act import StartParams
from perdure.verbs.read import ExportParams, ListAnswer, TraceParams, WhyAnswer
from perdure.verbs.table import VERBS

from ..calling import Calling, unknown
from ..problems import HttpProblem
from ..reading import to_struct
from ..reading import unknown as unknown_name
from .acting import check_start
from .bulk import OF_VERBS
from .instances import Nothing, private


class WorkflowVersion(msgspec.Struct, frozen=True):
    version: str
    counts: dict[str, int]
    here: bool


class WorkflowItem(msgspec.Struct, frozen=True):
    name: str
    noun: str
    versions: list[WorkflowVersion]
    counts: dict[str, int]
    can_start: str


class WorkflowList(msgspec.Struct, frozen=True):
    items: list[WorkflowItem]


async def workflows(calling: Calling, given: Nothing) -> WorkflowList:
    return WorkflowList([each for each in await _workflows(calling) if not each.name.startswith("perdure.")])


async def _workflows(calling: Calling) -> list[WorkflowItem]:
    queries = calling.client.queries
    rows, counts = await queries.workflows(), await queries.counts()
    names = {row.name for row in rows} | {workflow for workflow, _, _ in counts}
    found = []
    for name in sorted(names):
        if not calling.sees(name):
            continue
        mine = [row for row in rows if row.name == name]
        versions = list(dict.fromkeys([*(row.version for row in mine), *(v for w, v, _ in counts if w == name)]))
        by_version = [
            WorkflowVersion(
                version,
                {status: n for (w, v, status), n in counts.items() if n and w == name and v == version},
                any(row.version == version for row in mine),
            )
            for version in versions
        ]
        policy = decode_policy(mine[-1].policy if mine else "")
        verdict = allowed(calling.login, "operator", name, read=False)
        against = policy.refuses("start") if verdict.yes else f"needs the role {verdict.needs}"
        total: dict[str, int] = {}
        for each in by_version:
            for status, n in each.counts.items():
                total[status] = total.get(status, 0) + n
        found.append(WorkflowItem(name, policy.noun, by_version, total, against))
    return found


class WorkflowName(msgspec.Struct, frozen=True):
    name: str


class WorkflowDetail(WorkflowItem, frozen=True, kw_only=True):
    """`parameters` are what a start takes, as the engine registered them."""

    parameters: Any


async def workflow(calling: Calling, given: WorkflowName) -> WorkflowDetail:
    found = [each for each in await _workflows(calling) if each.name == given.name]
    if not found:
        raise unknown(f"workflow {given.name[:80]!r}")
    rows = [row for row in await calling.client.queries.workflows() if row.name == given.name]
    parameters = _parameters(rows[-1].parameters) if rows else None
    item = found[0]
    return WorkflowDetail(item.name, item.noun, item.versions, item.counts, item.can_start, parameters=parameters)


def _parameters(data: bytes) -> Any:
    from perdure.codec import decode

    return decode(data) if data else None


class EngineItem(msgspec.Struct, frozen=True):
    """An engine that lives, and how many shards it has."""

    name: str
    pid: int
    host: str
    since: datetime
    shards: int


class FleetAnswer(msgspec.Struct, frozen=True):
    """`engine` is who runs on the database now; `entries` the last entry of each shard."""

    engine: Owner | None
    entries: dict[str, str]
    facts: dict[str, str]
    engines: list[EngineItem]
    undelivered: int


async def fleet(calling: Calling, given: Nothing) -> FleetAnswer:
    queries = calling.client.queries
    heights = await queries.heights()
    facts = await queries.facts() if allowed(calling.login, "admin").yes else {}
    owner = await queries.owner()
    engines = [
        EngineItem(each.name, each.pid, each.host, datetime.fromtimestamp(each.since, UTC), shards)
        for each, shards in await queries.owners()
    ]
    waiting = len(await queries.undelivered())
    return FleetAnswer(owner, {str(shard): str(seq) for shard, seq in heights.items()}, facts, engines, waiting)


class VerbItem(msgspec.Struct, frozen=True):
    name: str
    method: str
    path: str
    help: str
    who: Who
    read: bool
    allowed: bool


class VerbList(msgspec.Struct, frozen=True):
    items: list[VerbItem]


async def verbs(calling: Calling, given: Nothing) -> VerbList:
    from ..routes import ROUTES

    found = []
    for route in ROUTES:
        may = allowed(calling.login, route.who, read=route.read).yes and (route.read or not calling.settings.read_only)
        found.append(VerbItem(route.name, route.method, route.path, route.help, route.who, route.read, may))
    await asyncio.sleep(0)
    return VerbList(found)


NAMED: Final = ("id", "a", "b", "parent")
"""Parameters of verbs that name an instance."""


class AskedVerb(msgspec.Struct, frozen=True):
    """`params` are those of the verb in `perdure.verbs`. The answer is the document of `--json`."""

    verb: str
    params: dict[str, Any] = {}


async def ask_verb(calling: Calling, given: AskedVerb) -> Any:
    """A verb of the command line. The instances that it names are found as the login sees them."""
    row = VERBS.get(given.verb)
    if row is None or row.changes == calling.read:
        known = [name for name, each in VERBS.items() if each.changes != calling.read]
        raise HttpProblem(404, "unknown-verb", unknown_name("verb", given.verb, known))
    params = to_struct(row.params, given.params)
    if given.verb in OF_VERBS:
        answered = await OF_VERBS[given.verb](calling, params)
        return answered[1] if isinstance(answered, tuple) else answered
    named = {name: await calling.find_named(getattr(params, name)) for name in NAMED if getattr(params, name, None)}
    params = replace(params, **named)
    if isinstance(params, StartParams):
        check_start(calling, params)
    elif isinstance(params, TraceParams):
        if not allowed(calling.login, "admin").yes:
            raise HttpProblem(403, "forbidden", "a trace goes through all workflows: it needs the role admin")
        calling.subjects.add("*")
    elif isinstance(params, ExportParams):
        if not calling.shows_values or calling.settings.redact:
            text = "a history as a file has every recorded value: your grant, or this server, does not show all of them"
            raise HttpProblem(403, "forbidden", text, expected="values")
        calling.accesses.note("export", calling.login.actor, id=params.id)
    answer = await row.function(calling.client, params)
    match answer:
        case ListAnswer():
            seen = [each for each in answer.instances if calling.sees(each.workflow)]
            return replace(answer, instances=seen, note=answer.note if calling.sees_all else UNSET)
        case WhyAnswer():
            return private(calling, answer)
        case _:
            return answer
