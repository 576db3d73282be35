"""One instance as it is now, and lists of instances. Field names are a promise to scripts: they stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from perdure.app.definitions import stored_one
from perdure.errors import PerdureError
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.moment import when
from perdure.kernel.receipt import Failure
from perdure.kernel.retention import FORGOTTEN
from perdure.kernel.workflows import Workflows
from perdure.ports.seen import Line, Summary, Waiting, error_of, result_of
from perdure.ports.store import Queries
from perdure.runtime.history import HistoryNow, aside, read_now, summary, undelivered, value_of
from perdure.runtime.retention import Keeping
from perdure.runtime.state import Receives, read_state, read_unread, record_now

from .reasons import FindCode, with_jobs, with_schemas, words_for

REPLAYED_MAX: Final = 1000
"""Entries that are replayed for a mailbox. Of a longer history it tells only what is on its way."""


class ShownError(msgspec.Struct, frozen=True):
    type: str
    message: str
    data: Any = None
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class ShownWait(msgspec.Struct, frozen=True):
    """Something that is open."""

    kind: str
    location: str
    since: datetime
    due: datetime | None
    attempt: int
    delivery: int
    held: bool
    what: str
    worker: str | None = None  # of a step in a queue: who has it, and since when
    claimed_at: datetime | None = None
    schema: dict[str, Any] | UnsetType = UNSET  # JSON Schema of the message that it waits for, where that is known


class ShownMessage(msgspec.Struct, frozen=True):
    """A message that was not received yet, or an event on its way, which no engine has `recorded` yet."""

    event: str
    name: str
    at: datetime
    body: Any
    recorded: bool


class ListedInstance(msgspec.Struct, frozen=True):
    id: str
    workflow: str
    key: str
    generation: int
    version: str
    status: str
    started_at: datetime
    changed_at: datetime
    parent: str | None
    tags: dict[str, Any]


class ShownInstance(ListedInstance, frozen=True):
    entries: int
    waiting: list[ShownWait]
    published: dict[str, Any]
    result: Any
    error: ShownError | None
    stuck_at: str | None
    parts: list[dict[str, Any]] | UnsetType = UNSET  # of an instance that has such: the nodes of a graph
    state: Any | UnsetType = UNSET  # of an instance whose definition the database has
    kept_until: datetime | UnsetType = UNSET  # of one that has ended: when retention may remove it
    forgotten: bool | UnsetType = UNSET  # retention has removed its history and its result
    mailbox: list[ShownMessage] = []  # of messages that were received by none, those whose workflow's code is here


class ShownEntry(msgspec.Struct, frozen=True):
    """`value` is left out where it is not wanted, `by` and `reason` where they are not known."""

    number: int
    at: datetime
    event: str
    location: str
    status: str
    value: Any | UnsetType
    error: ShownError | None
    opened: tuple[str, ...]
    announced: tuple[str, ...]
    outcome: str
    by: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


async def look(
    queries: Queries, head: HeadRow, history: HistoryNow | None = None, code: FindCode | None = None
) -> ShownInstance:
    """`history`: what came so far, if the caller has it. `code`: who finds the code of a workflow."""
    state, lines, open, kept = history or await read_now(queries, head.id)
    _, words = await words_for(queries, head.workflow, state.made)
    waiting = await with_schemas(code, head, await with_jobs(queries, state, open))
    parts = await aside(len(lines), words.table, lines)
    listed = msgspec.structs.asdict(listed_instance(summary(head), await parent_of(queries, head)))
    return ShownInstance(
        **{**listed, "status": state.status.value},
        entries=state.version,
        waiting=[shown_wait(each) for each in waiting],
        published=told(state.published),
        result=result_of(state),
        error=shown_error(error_of(state)),
        stuck_at=state.stuck.location if state.stuck is not None else None,
        parts=UNSET if parts is None else parts,
        state=UNSET if head.reason == FORGOTTEN else await _state(queries, head, code),
        kept_until=await _kept_until(queries, head),
        forgotten=True if head.reason == FORGOTTEN else UNSET,
        mailbox=[
            *(await _unread(queries, head, lines, code) if kept else []),
            *(_message(line) for line in undelivered(await queries.undelivered(state.address))),
        ],
    )


async def _unread(queries: Queries, head: HeadRow, lines: Sequence[Line], code: FindCode | None) -> list[ShownMessage]:
    """The recorded messages that the instance has not received: its code is delivered its history again."""
    workflow = None if code is None else await code(head.workflow, head.version)
    if not isinstance(workflow, Receives):
        return []
    record = await queries.record(head.id)
    if record is None or len(record.rows) > REPLAYED_MAX:
        return []
    try:
        unread = await aside(len(record.rows), read_unread, workflow, record)
    except PerdureError:  # its code is another now
        return []
    came = [line for line in lines if line.event == "message"]
    found = []
    for message in reversed(unread):
        while came and (came[-1].location, came[-1].value) != message:
            came.pop()
        found += [_message(came.pop())] if came else []
    return found[::-1]


def _message(line: Line) -> ShownMessage:
    return ShownMessage(line.event, line.location, line.at, line.value, line.number > 0)


async def _kept_until(queries: Queries, head: HeadRow) -> datetime | UnsetType:
    if not head.ended_at or head.parent or head.reason == FORGOTTEN:
        return UNSET  # a child goes with its family
    until = Keeping(await queries.workflows()).until(head)
    return UNSET if until is None else when(until)


async def _state(queries: Queries, head: HeadRow, code: FindCode | None) -> Any:
    workflow = await (
        stored_one(queries, head.workflow, head.version) if code is None else code(head.workflow, head.version)
    )
    if workflow is None or not getattr(workflow, "keeps_state", False):
        return UNSET
    record = await record_now(queries, head.id)
    return await aside(0 if record is None else len(record.rows), read_state, cast(Any, Workflows([workflow])), record)


async def parent_of(queries: Queries, head: HeadRow) -> Address | None:
    parent = await queries.head(head.parent) if head.parent else None
    return Address(parent.workflow, parent.key) if parent is not None else None


def listed_instance(head: Summary, parent: Address | None = None) -> ListedInstance:
    return ListedInstance(
        id=f"{head.workflow}/{head.key}",
        workflow=head.workflow,
        key=head.key,
        generation=head.generation,
        version=head.version,
        status=head.status,
        started_at=head.started_at,
        changed_at=head.changed_at,
        parent=None if parent is None else str(parent),
        tags=head.tags,
    )


def shown_wait(open: Waiting) -> ShownWait:
    job = open.job
    return ShownWait(
        kind="step" if open.kind == "call" else open.kind,
        location=open.location,
        since=open.since,
        due=open.due,
        attempt=open.attempt,
        delivery=open.delivery,
        held=open.held,
        what=open.what,
        worker=job.worker or None if job is not None else None,
        claimed_at=when(job.claimed) if job is not None and job.claimed else None,
        schema=UNSET if open.schema is None else open.schema,
    )


def shown_error(error: Failure | None) -> ShownError | None:
    return None if error is None else ShownError(error.type, error.message, error.data, error.traceback)


def told(published: Mapping[str, bytes]) -> dict[str, Any]:
    """What is published now. A null takes a value back: a reader of the name gets null, too, where nothing was."""
    found = {name: value_of(value) for name, value in published.items()}
    return {name: value for name, value in found.items() if value is not None}


def shown_entry(line: Line, values: bool = True) -> ShownEntry:
    return ShownEntry(
        number=line.number,
        at=line.at,
        event=line.event,
        location=line.location,
        status=line.status,
        value=line.value if values else UNSET,
        error=shown_error(line.error),
        opened=line.opened,
        announced=line.announced,
        outcome=line.outcome,
        by=line.by or UNSET,
        reason=line.reason or UNSET,
    )
