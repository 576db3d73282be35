"""Verbs that only read: what each takes, what it answers, and the function."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import TwoWorkflows
from perdure.kernel.batch import HeadRow
from perdure.ports.seen import Reason, Summary
from perdure.ports.store import ListOrder, change_of, place_of
from perdure.runtime.arguments import TagInput, tag_from_json, unknown
from perdure.runtime.client import Client
from perdure.runtime.history import aside, read_history, summary
from perdure.views import export as exports
from perdure.views.compare import ShownDifference, Story, differences
from perdure.views.find import find, find_started
from perdure.views.lists import page, without_built_in
from perdure.views.look import ListedInstance, ShownEntry, ShownInstance, listed_instance, look, shown_entry
from perdure.views.reasons import RECORDED, reasons, see, words_for
from perdure.views.trace import TraceNode, Tracer
from perdure.views.where import from_pairs, joined, parse


class ListParams(msgspec.Struct, frozen=True):
    """Only instances to which all that is given applies. `before` goes on from the page before: its `next_before`.

    `where` is a filter as text, as lists of the server have it; what else is given narrows it.
    """

    workflow: str = ""
    status: str = ""
    tags: dict[str, TagInput] = {}
    parent: str | None = None
    before: int = 0
    limit: int = 20
    reference: str = ""
    order: ListOrder = "-started"
    where: str = ""


class ListAnswer(msgspec.Struct, frozen=True):
    instances: list[ListedInstance]
    next_before: int | None
    note: str | UnsetType = UNSET


async def ls(client: Client, given: ListParams, sees: Callable[[str], bool] = lambda workflow: True) -> ListAnswer:
    """A page of what the asker sees: what it does not see leaves no gap."""
    if given.where:
        return await _filtered(client, given, sees)
    origin = 0 if given.parent is None else (await find_started(client, given.parent))[1].id
    found: list[Summary] = []
    before, rows = given.before, given.limit + 1
    while len(found) <= given.limit and rows:
        part = await client.instances(
            workflow=given.workflow,
            status=given.status,
            tags={name: tag_from_json(value) for name, value in given.tags.items()},
            reference=given.reference,
            parent=origin,
            before=before,
            limit=rows,
            order=given.order,
        )
        found += [each for each in part if sees(each.workflow)]
        before, rows = (part[-1].id, rows) if len(part) == rows else (before, 0)
    note: str | UnsetType = UNSET
    if not found and given.workflow:
        names = {name for name, *_ in await client.queries.workflows()}
        if given.workflow not in names:
            note = unknown("workflow", given.workflow, names, "names are exact")
    shown = found[: given.limit]
    next_before = shown[-1].id if len(found) > given.limit else None
    return ListAnswer([listed_instance(each) for each in shown], next_before, note)


async def _filtered(client: Client, given: ListParams, sees: Callable[[str], bool]) -> ListAnswer:
    fixed = {"workflow": given.workflow, "status": given.status, "tag.reference": given.reference}
    fixed |= {f"tag.{name}": str(tag_from_json(value)) for name, value in given.tags.items()}
    if given.parent is not None:
        fixed["parent"] = str((await find_started(client, given.parent))[1].id)
    given_too = from_pairs({name: [value] for name, value in fixed.items() if value})
    where = joined([*parse(given.where), *given_too])
    visible = without_built_in(where, sees)
    last = await client.queries.head(given.before) if given.before else None
    by_change, oldest = given.order == "-changed", given.order == "started"
    found: list[HeadRow] = []
    before = None if last is None else (change_of if by_change else place_of)(last)
    while True:
        wanted = given.limit - len(found)
        part = await page(client.queries, where, visible, wanted, before, oldest=oldest, by_change=by_change)
        found, before = found + part.heads, part.next
        if before is None or len(found) >= given.limit:
            next_before = found[-1].id if before is not None else None
            return ListAnswer([listed_instance(summary(each)) for each in found], next_before)


class ShowParams(msgspec.Struct, frozen=True):
    id: str


async def show(client: Client, given: ShowParams) -> ShownInstance:
    _, head = await find_started(client, given.id)
    return await look(client.queries, head, code=client.code)


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
    seen, words = await see(client.queries, head, datetime.now(UTC), given.database, code=client.code)
    return WhyAnswer(seen.id, seen.state.status.value, await aside(len(seen.lines), reasons, seen, words))


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
        raise TwoWorkflows(text)
    _, words = await words_for(client.queries, one.state.address.workflow, one.state.made)
    pairs = await aside(one.state.version + other.state.version, lambda: [*differences(one, other, words)])
    found = [each.shown() for each in pairs]
    return DiffAnswer(_side(one), _side(other), not found, found)


async def _story(client: Client, id: str) -> Story:
    address, head = await find_started(client, id)
    rows = await client.queries.history(head.id)
    return await aside(len(rows), Story, address, rows)


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
    return ExportAnswer(str(address), len(rows), await aside(len(rows), exports.text_of, head, rows))
