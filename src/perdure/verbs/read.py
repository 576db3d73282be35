"""Verbs that only read: what each takes, what it answers, and the function."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import UnclearRequest
from perdure.ports.seen import Reason
from perdure.runtime.arguments import unknown
from perdure.runtime.client import Client
from perdure.runtime.history import read_history
from perdure.views import export as exports
from perdure.views.compare import ShownDifference, Story, differences
from perdure.views.find import find, find_started
from perdure.views.look import ListedInstance, ShownEntry, ShownInstance, listed_instance, look, shown_entry
from perdure.views.reasons import RECORDED, reasons, see, words_for
from perdure.views.trace import TraceNode, Tracer


class ListParams(msgspec.Struct, frozen=True):
    """Only instances to which all that is given applies. `before` goes on from the page before: its `next_before`."""

    workflow: str = ""
    status: str = ""
    tags: dict[str, str] = {}
    parent: str | None = None
    before: int = 0
    limit: int = 20
    reference: str = ""


class ListAnswer(msgspec.Struct, frozen=True):
    instances: list[ListedInstance]
    next_before: int | None
    note: str | UnsetType = UNSET


async def ls(client: Client, given: ListParams) -> ListAnswer:
    origin = 0 if given.parent is None else (await find_started(client, given.parent))[1].id
    found = await client.instances(
        workflow=given.workflow,
        status=given.status,
        tags=given.tags,
        reference=given.reference,
        parent=origin,
        before=given.before,
        limit=given.limit + 1,
    )
    note: str | UnsetType = UNSET
    if not found and given.workflow:
        names = {name for name, *_ in await client.queries.workflows()}
        if given.workflow not in names:
            note = unknown("workflow", given.workflow, names, "names are exact")
    shown = found[: given.limit]
    next_before = shown[-1].id if len(found) > given.limit else None
    return ListAnswer([listed_instance(each) for each in shown], next_before, note)


class ShowParams(msgspec.Struct, frozen=True):
    id: str


async def show(client: Client, given: ShowParams) -> ShownInstance:
    _, head = await find_started(client, given.id)
    return await look(client.queries, head)


class HistoryParams(msgspec.Struct, frozen=True):
    id: str
    values: bool = True


class HistoryAnswer(msgspec.Struct, frozen=True):
    id: str
    history: list[ShownEntry]


async def history(client: Client, given: HistoryParams) -> HistoryAnswer:
    address, head = await find_started(client, given.id)
    _, lines = await read_history(client.queries, head.id)
    return HistoryAnswer(str(address), [shown_entry(line, given.values) for line in lines])


class WhyParams(msgspec.Struct, frozen=True):
    """`database` is what the caller calls the database."""

    id: str
    database: str = "this database"


class WhyAnswer(msgspec.Struct, frozen=True):
    id: str
    status: str
    reasons: list[Reason]


async def why(client: Client, given: WhyParams) -> WhyAnswer:
    address, head = await find(client, given.id)
    if head is None:
        return WhyAnswer(str(address), "recorded", [RECORDED])
    seen, words = await see(client.queries, head, datetime.now(UTC), given.database)
    return WhyAnswer(seen.id, seen.state.status.value, reasons(seen, words))


class DiffParams(msgspec.Struct, frozen=True):
    a: str
    b: str


class DiffSide(msgspec.Struct, frozen=True):
    id: str
    status: str
    entries: int


class DiffAnswer(msgspec.Struct, frozen=True):
    a: DiffSide
    b: DiffSide
    same: bool
    differences: list[ShownDifference]


async def diff(client: Client, given: DiffParams) -> DiffAnswer:
    one, other = await _story(client, given.a), await _story(client, given.b)
    if one.state.address.workflow != other.state.address.workflow:
        text = f"{one.name} and {other.name} are instances of two workflows: they have no place in common"
        raise UnclearRequest(text)
    _, words = await words_for(client.queries, one.state.address.workflow, one.state.made)
    found = [each.shown() for each in differences(one, other, words)]
    return DiffAnswer(_side(one), _side(other), not found, found)


async def _story(client: Client, id: str) -> Story:
    address, head = await find_started(client, id)
    return Story(address, await client.queries.history(head.id))


def _side(story: Story) -> DiffSide:
    return DiffSide(story.name, story.state.status.value, story.state.version)


class TraceParams(msgspec.Struct, frozen=True):
    """`event` is the id or the correlation of an event from outside, or the number of an entry of the journal."""

    event: str


class TraceAnswer(msgspec.Struct, frozen=True):
    """None: the database has no ruler, so that nothing comes from outside."""

    traces: list[TraceNode] | None


async def trace(client: Client, given: TraceParams) -> TraceAnswer:
    tracer = await Tracer.of(client.queries)
    if tracer is None:
        return TraceAnswer(None)
    found = await tracer.by_text(given.event)
    by_number = given.event.isdecimal() and not found
    return TraceAnswer(await tracer.by_entry(int(given.event)) if by_number else found)


class ExportParams(msgspec.Struct, frozen=True):
    id: str


class ExportAnswer(msgspec.Struct, frozen=True):
    """`text` is the content of the file."""

    id: str
    entries: int
    text: str


async def export(client: Client, given: ExportParams) -> ExportAnswer:
    address, head = await find_started(client, given.id)
    rows = await client.queries.history(head.id)
    return ExportAnswer(str(address), len(rows), exports.text_of(head, rows))
