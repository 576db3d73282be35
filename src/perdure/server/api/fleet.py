"""What runs: workflows, the engine, the journal, and the table of verbs itself."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from perdure.access.model import Who, allowed
from perdure.definitions.load import register_of
from perdure.definitions.model import Registered
from perdure.kernel.batch import Standing
from perdure.kernel.moment import when
from perdure.kernel.placement import NUMBERS
from perdure.kernel.policy import decode_policy
from perdure.kernel.status import TERMINAL
from perdure.ports.store import Filter, Owner, ShardRow, place_of
from perdure.verbs.act import ForkParams, PauseParams, SendParams, StartParams
from perdure.verbs.read import ExportParams, ListParams, TraceAnswer, TraceParams, WhyAnswer, ls
from perdure.verbs.table import VERBS
from perdure.views.lists import BUILT_IN
from perdure.views.look import ShownInstance

from ..calling import Calling, id_of, needed
from ..problems import HttpProblem
from ..reading import no_such, to_struct
from .acting import check_start, to_fork, to_pause
from .bulk import OF_VERBS
from .instances import Nothing, parents_of, private
from .looks import unsaid


class OldestInstance(msgspec.Struct, frozen=True):
    id: str
    started_at: datetime


class WorkflowVersion(msgspec.Struct, frozen=True):
    """`here`: an engine has its code. `oldest` is its oldest live instance. Of a definition that is data: whether new
    instances run on it (`active`), who registered it when, and the `digest` of its bytes.
    """

    version: str
    counts: dict[str, int]
    here: bool
    oldest: OldestInstance | UnsetType | None = UNSET
    active: bool | UnsetType = UNSET
    put_at: datetime | UnsetType = UNSET
    put_by: str | UnsetType = UNSET
    digest: str | UnsetType = UNSET


class WorkflowItem(msgspec.Struct, frozen=True):
    name: str
    noun: str
    versions: list[WorkflowVersion]
    counts: dict[str, int]
    can_start: str


class WorkflowList(msgspec.Struct, frozen=True):
    items: list[WorkflowItem]


class WorkflowsQuery(msgspec.Struct, frozen=True):
    """`oldest`: tell the oldest live instance of each version, too, and which version is active."""

    oldest: bool = False


async def workflows(calling: Calling, given: WorkflowsQuery) -> WorkflowList:
    found = [each for each in await _workflows(calling) if not each.name.startswith(BUILT_IN)]
    return WorkflowList([await _with_oldest(calling, each) for each in found] if given.oldest else found)


async def _with_oldest(calling: Calling, item: WorkflowItem) -> WorkflowItem:
    item = await _registered(calling, item)
    versions = [replace(each, oldest=await _oldest(calling, item.name, each)) for each in item.versions]
    return replace(item, versions=versions)


async def _oldest(calling: Calling, name: str, of: WorkflowVersion) -> OldestInstance | None:
    live = [status for status in of.counts if status not in TERMINAL]
    wanted = [Filter(workflow=name, version=of.version, status=each, oldest=True, limit=1) for each in live]
    heads = [head for each in wanted for head in await calling.client.queries.heads(each)]
    first = min(heads, key=place_of, default=None)
    return None if first is None else OldestInstance(id_of(first), when(first.started_at))


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
        raise await calling.no_workflow(given.name)
    rows = [row for row in await calling.client.queries.workflows() if row.name == given.name]
    parameters = _parameters(rows[-1].parameters) if rows else None
    item = await _with_oldest(calling, found[0])
    return WorkflowDetail(item.name, item.noun, item.versions, item.counts, item.can_start, parameters=parameters)


class VersionName(msgspec.Struct, frozen=True):
    name: str
    version: str


async def version(calling: Calling, given: VersionName) -> WorkflowVersion:
    found = (await workflow(calling, WorkflowName(given.name))).versions
    for each in found:
        if given.version in (each.version, each.version.partition("+")[0]):
            return each
    known = [each.version for each in found]
    raise HttpProblem(404, "unknown-version", no_such(f"version of {given.name}", given.version, known))


async def _registered(calling: Calling, item: WorkflowItem) -> WorkflowItem:
    register = await register_of(calling.client.queries, item.name)
    if register is None:
        return item
    known = {each.version: each for each in register.versions}
    unread = known.keys() - {each.version.partition("+")[0] for each in item.versions}
    listed = [*item.versions, *(WorkflowVersion(each, {}, False) for each in known if each in unread)]
    versions = [
        each if (row := known.get(each.version.partition("+")[0])) is None else _told(each, row, register.active)
        for each in listed
    ]
    return replace(item, versions=versions)


def _told(version: WorkflowVersion, row: Registered, active: str) -> WorkflowVersion:
    is_active = row.version == active
    return replace(version, active=is_active, put_at=when(row.at), put_by=row.by, digest=row.digest)


def _parameters(data: bytes) -> Any:
    from perdure.codec import decode

    return decode(data) if data else None


class EngineItem(msgspec.Struct, frozen=True):
    """An engine that lives, and how many shards it has.

    `commit_p50_seconds`, `commit_p95_seconds`: how long half, and 95 of 100, of its last commits took at most; null: it
    has made none. `undelivered` events are in the inbox of its shards, the oldest for `inbox_lag_seconds`. `workflows`
    are the versions that it runs.
    """

    name: str
    pid: int
    host: str
    since: datetime
    shards: int
    commit_p50_seconds: float | None
    commit_p95_seconds: float | None
    undelivered: int
    inbox_lag_seconds: float
    workflows: dict[str, list[str]]


class ShardItem(msgspec.Struct, frozen=True):
    """A shard, the engine that has it (null: none), and the number of times that it was taken.

    `lease_until`: when another engine may take it, unless the lease is renewed; null: it lasts as long as the process.
    `entries`: how many its journal has.
    """

    shard: int
    engine: str | None
    epoch: str
    lease_until: datetime | None
    entries: str
    undelivered: int


class UnservedVersion(msgspec.Struct, frozen=True):
    """A version that has `live` instances, and that no engine runs."""

    workflow: str
    version: str
    live: int


class FleetAnswer(msgspec.Struct, frozen=True):
    """`engine` is who runs on the database now; `entries` the last entry of each shard.

    `oldest_undelivered`: since when the first of the `undelivered` events is on its way. `unserved`: code that no
    engine has; a shard that no engine has is one whose `engine` is null.
    """

    engine: Owner | None
    entries: dict[str, str]
    facts: dict[str, str]
    engines: list[EngineItem]
    undelivered: int
    shards: list[ShardItem]
    oldest_undelivered: datetime | None
    unserved: list[UnservedVersion]


async def fleet(calling: Calling, given: Nothing) -> FleetAnswer:
    queries = calling.client.queries
    heights = await queries.heights()
    facts = await queries.facts() if allowed(calling.login, "admin").yes else {}
    owner, shards = await queries.owner(), await queries.shards()
    run = [each for each in await queries.served() if calling.sees(each[1]) and not each[1].startswith(BUILT_IN)]
    oldest = min((row.oldest for row in shards if row.oldest), default=0)
    return FleetAnswer(
        owner,
        {str(shard): str(seq) for shard, seq in heights.items()},
        facts,
        _engines(shards, run),
        sum(row.undelivered for row in shards),
        [_shard(each, heights.get(each.shard, 0)) for each in shards],
        when(oldest) if oldest else None,
        _unserved(await queries.counts(), run, calling.sees),
    )


def _engines(shards: list[ShardRow], run: list[tuple[str, str, str]]) -> list[EngineItem]:
    """The engines that live, by name; the first shard of each tells since when."""
    found: dict[tuple[str, int, str], list[ShardRow]] = {}
    for each in shards:
        if each.owner is not None:
            found.setdefault((each.owner.name, each.owner.pid, each.owner.host), []).append(each)
    return [_engine(engine, found[engine], run) for engine in sorted(found)]


def _engine(engine: tuple[str, int, str], mine: list[ShardRow], run: list[tuple[str, str, str]]) -> EngineItem:
    since = min(row.owner.since for row in mine if row.owner is not None)
    oldest = min((row.oldest for row in mine if row.oldest), default=0)
    workflows: dict[str, list[str]] = {}
    for _, workflow, version in [each for each in run if each[0] == engine[0]]:
        workflows.setdefault(workflow, []).append(version)
    return EngineItem(
        *engine,
        datetime.fromtimestamp(since, UTC),
        len(mine),
        mine[0].figures.p50,
        mine[0].figures.p95,
        sum(row.undelivered for row in mine),
        max(0.0, time.time() - oldest / 1e9) if oldest else 0.0,
        workflows,
    )


def _shard(row: ShardRow, height: int) -> ShardItem:
    until = datetime.fromtimestamp(row.expires, UTC) if row.expires else None
    engine = None if row.owner is None else row.owner.name
    return ShardItem(row.shard, engine, str(row.epoch), until, str(height % NUMBERS), row.undelivered)


def _unserved(
    counts: dict[Standing, int], run: list[tuple[str, str, str]], sees: Callable[[str], bool]
) -> list[UnservedVersion]:
    served = {(workflow, version) for _, workflow, version in run}
    live: Counter[tuple[str, str]] = Counter()
    for (workflow, version, status), count in counts.items():
        if status not in TERMINAL and sees(workflow) and not workflow.startswith(BUILT_IN):
            live[workflow, version] += count
    return [UnservedVersion(*of, n) for of, n in sorted(live.items()) if n > 0 and of not in served]


class VerbItem(msgspec.Struct, frozen=True):
    """`why` says why a verb is not `allowed`; empty: it is, for some subjects at least."""

    name: str
    method: str
    path: str
    help: str
    who: Who
    read: bool
    allowed: bool
    why: str


class VerbList(msgspec.Struct, frozen=True):
    items: list[VerbItem]


async def verbs(calling: Calling, given: Nothing) -> VerbList:
    from ..routes import ROUTES

    found = []
    for route in ROUTES:
        read = route.repeat == "read"
        why = _against(calling, route.who, read=read)
        found.append(VerbItem(route.name, route.method, route.path, route.help, route.who, read, not why, why))
    await asyncio.sleep(0)
    return VerbList(found)


def _against(calling: Calling, who: Who, *, read: bool) -> str:
    """Why a login may not use a verb at all; empty: it may, for some subjects."""
    verdict = allowed(calling.login, who, read=read, executor=calling.login.executor)
    if not verdict.yes:
        return "it is for keys of executors" if who == "executor" else f"it needs {needed(verdict.needs or who)}"
    return "" if read or not calling.settings.read_only else "this server is read-only"


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
        raise HttpProblem(404, "unknown-verb", no_such("verb", given.verb, known))
    params = to_struct(row.params, given.params)
    if given.verb in OF_VERBS:
        answered = await OF_VERBS[given.verb](calling, params)
        return answered[1] if isinstance(answered, tuple) else answered
    named = {name: await calling.find_named(getattr(params, name)) for name in NAMED if getattr(params, name, None)}
    params = replace(params, **named)
    if isinstance(params, StartParams):
        await check_start(calling, params)
    elif isinstance(params, ForkParams):
        assert calling.head is not None, "it was just found"
        params = to_fork(calling, params, calling.head)
    elif isinstance(params, PauseParams):
        params = to_pause(calling, params)
    elif isinstance(params, SendParams) and params.message is None:
        params = replace(params, message=calling.event or None)
    elif isinstance(params, TraceParams):
        calling.check_all("traces")
        calling.subjects.add("*")
    elif isinstance(params, ExportParams):
        if not calling.shows_values or calling.settings.redact:
            text = "a history as a file has every recorded value: your grant, or this server, does not show all of them"
            raise HttpProblem(403, "forbidden", text, expected="values")
        assert calling.head is not None, "it was just found"
        calling.accesses.note("export", calling.login.actor, id=id_of(calling.head))
    if isinstance(params, ListParams):
        listed = await ls(calling.client, params, calling.sees)
        return listed if calling.sees_all else replace(listed, note=UNSET)
    answer = await row.function(calling.client, params)
    match answer:
        case WhyAnswer():
            return private(calling, answer)
        case ShownInstance():
            path = await parents_of(calling, calling.head) if calling.head is not None else []
            return replace(answer, parent=path[-1] if path else None)
        case TraceAnswer():
            return await unsaid(calling, answer)
        case _:
            return answer
