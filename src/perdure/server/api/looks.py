"""What is looked at beside one instance's own documents: its past, its picture, the code, traces, queues."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from perdure.codec import decode
from perdure.codec.parameters import form_of
from perdure.errors import PerdureError
from perdure.kernel.moment import when
from perdure.verbs.read import TraceAnswer, TraceParams, trace
from perdure.views.instance_at import PastInstance, instance_at

from ..calling import Calling, id_of, unknown
from ..problems import HttpProblem
from .instances import Nothing, state_by_messages


class AtQuery(msgspec.Struct, frozen=True):
    id: str
    entry: int


async def at(calling: Calling, given: AtQuery) -> PastInstance:
    head = await calling.find(given.id)
    found = await instance_at(calling.client.queries, head, given.entry)
    return replace(found, state=await state_by_messages(calling, head, int(found.seq)))


class DrawingQuery(msgspec.Struct, frozen=True):
    """`at`: the number of an entry; 0: as it is now."""

    id: str
    at: int = 0


class Drawing(msgspec.Struct, frozen=True):
    """`picture` has nodes, frames and edges at their places."""

    picture: Any


async def drawing(calling: Calling, given: DrawingQuery) -> Drawing:
    head = await calling.find(given.id)
    seq = None
    if given.at:
        seq = int((await instance_at(calling.client.queries, head, given.at)).seq)
    try:
        text = await calling.client.handle(head.workflow, head.key).draw("json", at=seq)
    except PerdureError as error:
        raise HttpProblem(409, "code-not-here", f"{id_of(head)} cannot be drawn here: {error}") from None
    return Drawing(json.loads(text))


class VersionQuery(msgspec.Struct, frozen=True):
    """`version`: that one; empty: the active one."""

    name: str
    version: str = ""


class SourceAnswer(msgspec.Struct, frozen=True):
    """`media` says what the text is; `file` and `line` where it stands, if that is known."""

    name: str
    version: str
    text: str
    media: str
    file: str = ""
    line: int = 0


async def _code(calling: Calling, given: VersionQuery) -> Any:
    calling.check(given.name, f"workflow {given.name[:80]!r}")
    known = {row.name for row in await calling.client.queries.workflows()}
    found = await calling.client.code(given.name, given.version)
    if found is None and given.name not in known:
        raise unknown(f"workflow {given.name[:80]!r}")
    if found is None:
        text = f"this server has no code of {given.name} {given.version}: serve the module that has it"
        raise HttpProblem(409, "code-not-here", text)
    return found


async def source(calling: Calling, given: VersionQuery) -> SourceAnswer:
    code = await _code(calling, given)
    return await asyncio.to_thread(_source, given.name, code)


def _source(name: str, code: Any) -> SourceAnswer:
    version = str(code.version)
    function = getattr(code, "function", None)
    if function is not None:
        try:
            lines, line = inspect.getsourcelines(inspect.unwrap(function))
        except (OSError, TypeError):
            raise HttpProblem(409, "code-not-here", f"the source of {name} is not on this machine") from None
        file = inspect.getsourcefile(function) or ""
        return SourceAnswer(name, version, "".join(lines), "text/x-python", file.rpartition("/")[2], line)
    if hasattr(code, "source"):
        return SourceAnswer(name, version, code.source(), "text/x-python")
    stored = getattr(code, "stored", None)
    data = code.as_batch() if hasattr(code, "as_batch") else None if stored is None else decode(stored.definition)
    if data is not None:
        text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
        return SourceAnswer(name, version, text, "application/json")
    raise HttpProblem(409, "code-not-here", f"{name} is no code that can be shown")


async def workflow_drawing(calling: Calling, given: VersionQuery) -> Drawing:
    code = await _code(calling, given)
    if not hasattr(code, "draw"):
        noun = code.policy.noun
        raise HttpProblem(409, "code-not-here", f"{given.name} is a {noun}: its code is its picture")
    return Drawing(json.loads(await asyncio.to_thread(code.draw, "json")))


class FormAnswer(msgspec.Struct, frozen=True):
    """`schema`: the JSON Schema of the input of a start; empty: anything is taken."""

    name: str
    version: str
    schema: dict[str, Any]


async def form(calling: Calling, given: VersionQuery) -> FormAnswer:
    """By the parameters that an engine registered, so that the code need not be here."""
    calling.check(given.name, f"workflow {given.name[:80]!r}")
    for row in await calling.client.queries.workflows():
        if row.name == given.name and given.version in (row.version, row.version.partition("+")[0]):
            return FormAnswer(row.name, row.version, form_of(row.parameters))
    code = await _code(calling, given)
    return FormAnswer(given.name, str(code.version), form_of(code.parameters))


class ExportFormat(VersionQuery, frozen=True):
    format: Literal["yaml", "json", "python"] = "yaml"


class ExportedDefinition(msgspec.Struct, frozen=True):
    """A definition that is data, as a text that `put` takes, or as Python that gives the same."""

    name: str
    version: str
    format: str
    text: str


async def export_definition(calling: Calling, given: ExportFormat) -> ExportedDefinition:
    code = await _code(calling, given)
    if not hasattr(code, "export"):
        text = f"{given.name} is a {code.policy.noun}: its definition is code, which /source shows"
        raise HttpProblem(409, "code-not-here", text)
    try:
        text = await asyncio.to_thread(code.export, given.format)
    except ValueError as error:
        raise HttpProblem(422, "bad-request", str(error), where="/format") from None
    return ExportedDefinition(given.name, str(code.version), given.format, text)


class TwoVersions(msgspec.Struct, frozen=True):
    """Two versions; empty: the active one."""

    name: str
    a: str = ""
    b: str = ""


class VersionDiff(msgspec.Struct, frozen=True):
    """`diff` are the lines of a unified diff of the two sources; none: they are the same."""

    name: str
    a: str
    b: str
    diff: list[str]


async def compare_versions(calling: Calling, given: TwoVersions) -> VersionDiff:
    a, b = [await source(calling, VersionQuery(given.name, version)) for version in (given.a, given.b)]
    lines = await asyncio.to_thread(
        lambda: [*difflib.unified_diff(a.text.splitlines(), b.text.splitlines(), a.version, b.version, lineterm="")]
    )
    return VersionDiff(given.name, a.version, b.version, lines)


async def traced(calling: Calling, given: TraceParams) -> TraceAnswer:
    """An event goes through all cells of a world, so that a login sees all of them or nothing."""
    calling.subjects.add("*")
    return await trace(calling.client, given)


class ShownJob(msgspec.Struct, frozen=True):
    instance: str
    function: str
    delivery: int
    since: datetime
    worker: str
    claimed_at: datetime | None
    note: str


class ShownQueue(msgspec.Struct, frozen=True):
    """`depth` counts open jobs, `taken` those that a worker has."""

    name: str
    depth: int
    taken: int
    oldest: datetime | None
    jobs: list[ShownJob]


class QueueList(msgspec.Struct, frozen=True):
    items: list[ShownQueue]


async def queues(calling: Calling, given: Nothing) -> QueueList:
    queries = calling.client.queries
    by_queue: dict[str, list[ShownJob]] = {}
    for job in await queries.jobs():
        head = await queries.head(job.instance)
        if head is None or not calling.sees(head.workflow):
            continue
        claimed = when(job.claimed) if job.claimed else None
        shown = ShownJob(id_of(head), job.function, job.delivery, when(job.at), job.worker, claimed, job.note)
        by_queue.setdefault(job.queue, []).append(shown)
    found = []
    for name, jobs in sorted(by_queue.items()):
        taken = sum([bool(job.worker) for job in jobs])
        found.append(ShownQueue(name, len(jobs), taken, min([job.since for job in jobs]), jobs[:200]))
    return QueueList(found)
