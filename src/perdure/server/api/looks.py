"""What is looked at beside one instance's own documents: its past, its picture, the code, traces, queues."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
from typing import Any, Literal, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from perdure.codec.jsonschema import schema_of
from perdure.codec.parameters import form_of
from perdure.definitions.load import register_of
from perdure.errors import PerdureError, UnknownEntry, UnknownVersion
from perdure.runtime.bulk import handle_of
from perdure.verbs.read import TraceAnswer, TraceParams, trace
from perdure.views.find import readings
from perdure.views.instance_at import PastInstance, instance_at
from perdure.views.reasons import words_for
from perdure.views.trace import TraceNode

from ..calling import Calling, id_of
from ..problems import HttpProblem
from ..reading import no_such
from .instances import state_by_messages


class AtQuery(msgspec.Struct, frozen=True):
    """`limit`: the last so many operations; 0: all."""

    id: str
    entry: int
    limit: int = 0


async def at(calling: Calling, given: AtQuery) -> PastInstance:
    head = await calling.find(given.id)
    found = await calling.cut(
        head,
        lambda whole: instance_at(
            id_of(head), whole.lines, whole.past, whole.operations, given.entry, max(0, given.limit)
        ),
    )
    calling.rows = len(found.operations)
    policy, _ = await words_for(calling.client.queries, head.workflow, False)
    return replace(found, state=await state_by_messages(calling, head, policy, int(found.seq)))


class DrawingQuery(msgspec.Struct, frozen=True):
    """`at`: the number of an entry; 0: as it is now. `until`: the same, by the number of the journal.

    `format`: the answer has its `text` instead of the picture.
    """

    id: str
    at: int = 0
    until: int = 0
    format: Literal["", "svg", "mermaid", "json"] = ""
    direction: Literal["LR", "TB"] = "LR"


class Drawing(msgspec.Struct, frozen=True):
    """`picture` has nodes, frames and edges at their places. With a `format` it is null, and `text` has it."""

    picture: Any
    text: str | UnsetType = UNSET


async def drawing(calling: Calling, given: DrawingQuery) -> Drawing:
    head = await calling.find(given.id)
    seq = given.until or None
    if given.at:
        lines = await calling.cut(head, lambda whole: whole.page(given.at - 1, 0, 1))
        if not lines or lines[0].number != given.at:
            raise UnknownEntry(f"{id_of(head)} has no entry {given.at}")
        seq = lines[0].seq
    try:
        text = await handle_of(calling.client, head).draw(given.format or "json", given.direction, at=seq)
    except PerdureError as error:
        reason = str(error).removeprefix(f"{id_of(head)} cannot be drawn here: ")
        raise HttpProblem(409, "code-not-here", f"{id_of(head)} cannot be drawn here: {reason}") from None
    return Drawing(None, text) if given.format else Drawing(json.loads(text))


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


async def code_of(calling: Calling, name: str, version: str) -> Any:
    await calling.check_workflow(name)
    known = {row.name for row in await calling.client.queries.workflows()}
    found = await calling.client.code(name, version)
    if found is None and name not in known:
        raise await calling.no_workflow(name)
    register = None if found is not None or not version else await register_of(calling.client.queries, name)
    if register is not None and register.find(version.partition("+")[0]) is None:
        versions = [each.version for each in register.versions]
        raise UnknownVersion(no_such(f"version of {name}", version, versions))
    if found is None:
        text = f"this server has no code of {f'{name} {version[:80]}'.strip()}: serve the module that has it"
        raise HttpProblem(409, "code-not-here", text)
    return found


async def source(calling: Calling, given: VersionQuery) -> SourceAnswer:
    code = await code_of(calling, given.name, given.version)
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
    if hasattr(code, "export"):
        return SourceAnswer(name, version, code.export("yaml"), "application/yaml")
    if hasattr(code, "as_batch"):
        text = json.dumps(code.as_batch(), indent=2, ensure_ascii=False, default=str)
        return SourceAnswer(name, version, text, "application/json")
    raise HttpProblem(409, "code-not-here", f"{name} is no code that can be shown")


async def workflow_drawing(calling: Calling, given: VersionQuery) -> Drawing:
    code = await code_of(calling, given.name, given.version)
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
    """By the parameters that an engine registered, so that the code need not be here; where it is, it tells more."""
    await calling.check_workflow(given.name)
    code = await calling.client.code(given.name, given.version)
    for row in await calling.client.queries.workflows():
        if row.name == given.name and given.version in (row.version, row.version.partition("+")[0]):
            return FormAnswer(row.name, row.version, _typed(form_of(row.parameters), code))
    code = await code_of(calling, given.name, given.version)
    return FormAnswer(given.name, str(code.version), _typed(form_of(code.parameters), code))


def _typed(schema: dict[str, Any], code: Any) -> dict[str, Any]:
    """The form with the schemas of the annotations of a function, or that of a definition which has one."""
    if own := getattr(code, "input_schema", None):
        return dict(own)
    hints = {} if getattr(code, "function", None) is None else _hints(code.function)
    fields: dict[str, Any] = {}
    defs: dict[str, Any] = {}
    for name, each in schema.get("properties", {}).items():
        known = _schema(hints.get(name))
        defs |= {} if known is None else known.pop("$defs", {})
        fields[name] = each if known is None else {"title": name, **_but_type(each), **known}
    return {**schema, **({"properties": fields} if fields else {}), **({"$defs": defs} if defs else {})}


def _but_type(field: dict[str, Any]) -> dict[str, Any]:
    """Its default: the text of a type says less than a schema."""
    return {name: value for name, value in field.items() if name == "default"}


def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception:  # an annotation names what is imported for type checkers only
        return {}


def _schema(hint: Any) -> dict[str, Any] | None:
    try:
        return None if hint is None or hint is Any else schema_of(hint)
    except PerdureError:
        return None


class ExportFormat(VersionQuery, frozen=True):
    format: Literal["yaml", "json", "python"] = "yaml"


class ExportedDefinition(msgspec.Struct, frozen=True):
    """A definition that is data, as a text that `put` takes, or as Python that gives the same."""

    name: str
    version: str
    format: str
    text: str


async def export_definition(calling: Calling, given: ExportFormat) -> ExportedDefinition:
    code = await code_of(calling, given.name, given.version)
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
    calling.check_all("traces")
    calling.subjects.add("*")
    return await unsaid(calling, await trace(calling.client, given))


async def unsaid(calling: Calling, answer: TraceAnswer) -> TraceAnswer:
    """Errors repeat recorded values: their texts are for logins that see all of them."""
    if answer.traces is None or (calling.shows_values and not calling.settings.redact):
        return answer
    for id in {id for each in answer.traces for id in _ids(each)} if calling.settings.redact else ():
        heads = [await calling.client.queries.head(each) for each in await readings(calling.client.queries, id)]
        calling.found |= {head.id for head in heads if head is not None}
    return TraceAnswer([_without_texts(each) for each in answer.traces])


def _ids(node: TraceNode) -> set[str]:
    return {node.id}.union(*map(_ids, node.led_to))


def _without_texts(node: TraceNode) -> TraceNode:
    status, outcome = node.status.partition(": ")[0], node.outcome.partition(": ")[0]
    return replace(node, status=status, outcome=outcome, led_to=[_without_texts(each) for each in node.led_to])
