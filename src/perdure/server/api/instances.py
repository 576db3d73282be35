"""Instances over HTTP: lists, one instance, and all that is known of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from perdure.access.model import allowed
from perdure.codec import decode, to_plain
from perdure.errors import InstanceCancelled, InstanceFailed, InstanceStuck, PerdureError, ResultTimeout
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Event, Started, asked_of
from perdure.kernel.location import is_sleep
from perdure.kernel.moment import when
from perdure.kernel.policy import Policy
from perdure.kernel.rows import told_tags
from perdure.kernel.status import FINAL, TERMINAL, Status
from perdure.ports.seen import Line, Reason
from perdure.ports.store import Filter, ListOrder, ListPlace, change_of, place_of
from perdure.runtime.bulk import handle_of
from perdure.runtime.history import aside, summary, value_of
from perdure.verbs.read import DiffParams, WhyAnswer, diff
from perdure.views.lists import PAGE_MAX, Visible, page, without_built_in
from perdure.views.look import (
    ListedInstance,
    ShownEntry,
    ShownInstance,
    ShownWait,
    look,
    shown_entry,
    shown_wait,
)
from perdure.views.operations import CompactRow, Operation
from perdure.views.raw import RawEntry, raw_entries
from perdure.views.reasons import reasons, see, with_schemas, words_for
from perdure.views.where import Where, from_pairs, joined, parse, to_text

from ..calling import Calling, id_of, needed, unknown
from ..feed import pack
from ..problems import HttpProblem
from ..readers import FoldedHistory

ORDERS: Final = get_args(ListOrder)
WAIT_MAX: Final = 60.0
CHILDREN_MAX: Final = 200


class ListedHead(ListedInstance, frozen=True, kw_only=True):
    """A row of a list. `instance` is its number, `reason` what it waits for, or its error."""

    instance: str
    root: str
    ended_at: datetime | None
    reason: str


class InstanceList(msgspec.Struct, frozen=True):
    """`at` is the position of the journal: a stream that begins with `last=AT` tells all that came since."""

    items: list[ListedHead]
    next: str | None
    previous: str | None
    looked: int
    partial: bool
    at: str


class ListQuery(msgspec.Struct, frozen=True):
    """`q` is a filter as text; `filters` are the same as query parameters. `cursor` is that of a page before."""

    q: str = ""
    limit: int = 50
    cursor: str = ""
    order: ListOrder = "-started"
    filters: dict[str, list[str]] = {}


def listed(head: HeadRow, parent: str | None = None) -> ListedHead:
    return ListedHead(
        id=id_of(head),
        workflow=head.workflow,
        key=head.key,
        generation=head.generation,
        version=head.version,
        status=head.status,
        started_at=when(head.started_at),
        changed_at=when(head.changed_at),
        parent=parent,
        tags=told_tags(head),
        instance=str(head.id),
        root=str(head.root),
        ended_at=when(head.ended_at) if head.ended_at else None,
        reason=head.reason,
    )


def where_of(given: ListQuery) -> Where:
    return joined([*parse(given.q), *from_pairs(given.filters)])


async def listed_page(calling: Calling, heads: Sequence[HeadRow]) -> list[ListedHead]:
    """Each with its parent, if the reader may see that. All parents are read at once."""
    parents = list({head.parent for head in heads if head.parent})
    above = await calling.client.queries.heads_of(parents) if parents else {}
    seen = {id: id_of(head) for id, head in above.items() if calling.sees(head.workflow)}
    return [listed(head, seen.get(head.parent)) for head in heads]


async def ls(calling: Calling, given: ListQuery) -> InstanceList:
    return await list_page(calling, given, where_of(given))


async def list_page(calling: Calling, given: ListQuery, where: Where, after: ListPlace | None = None) -> InstanceList:
    """The page of a list that shows what fits `where`. `after`: where it begins, without a cursor."""
    if not 1 <= given.limit <= PAGE_MAX:
        raise HttpProblem(422, "bad-request", f"limit is 1 to {PAGE_MAX}, found {given.limit}", where="/limit")
    use = hashlib.blake2b(f"{given.order} {to_text(where)}".encode(), digest_size=8).digest()
    back, place = _place(calling, use, given.cursor) if given.cursor else (False, after)
    at = pack(await calling.client.queries.heights())
    oldest = (given.order == "started") != back
    by_change = given.order == "-changed"
    visible = shows(calling, where)
    found = await page(calling.client.queries, where, visible, given.limit, place, oldest=oldest, by_change=by_change)
    at_of = change_of if by_change else place_of
    heads = found.heads[::-1] if back else found.heads

    def cursor(backwards: bool, at: ListPlace | None) -> str | None:
        body = use + msgspec.msgpack.encode((backwards, at))
        return None if at is None else calling.accesses.signer.sign("cursor", body)

    edge = None if place is None else (place[0], place[1] + (1 if oldest else -1))  # the row at the place is not lost
    first, last = (at_of(heads[0]), at_of(heads[-1])) if heads else (edge, edge)
    previous = cursor(True, found.next if back else first if given.cursor else None)
    next = cursor(False, last if back else found.next)
    return InstanceList(await listed_page(calling, heads), next, previous, found.seen, found.partial, at)


def _place(calling: Calling, use: bytes, cursor: str) -> tuple[bool, ListPlace | None]:
    """Where a cursor goes on, and whether backwards."""
    body = calling.accesses.signer.read("cursor", cursor)
    if body is None or body[:8] != use:
        text = "this cursor is of another list, or of another server; begin again without it"
        raise HttpProblem(422, "bad-cursor", text, where="/cursor")
    back, (started, id) = msgspec.msgpack.decode(body[8:])
    return back, (started, id)


def shows(calling: Calling, where: Where) -> Visible:
    return without_built_in(where, calling.sees)


class Nothing(msgspec.Struct, frozen=True):
    """A verb without parameters."""


class Id(msgspec.Struct, frozen=True):
    id: str


class InstanceDetail(ShownInstance, frozen=True, kw_only=True):
    """`may` has each verb with an empty text if it is possible now, else why not.

    `path`: its parents, the root first. `trace`: of the event that started it, if it had one.
    """

    instance: str
    root: str
    ended_at: datetime | None
    reason: str
    input: Any
    noun: str
    may: dict[str, str]
    path: list[str]
    trace: str


async def show(calling: Calling, given: Id) -> InstanceDetail:
    head = await calling.find(given.id)
    now, first = await calling.cut(head, lambda whole: (whole.now(), whole.first))
    found = await look(calling.client.queries, head, now, calling.client.code)
    policy, _ = await words_for(calling.client.queries, head.workflow, False)
    about = summary(head)
    path = await parents_of(calling, head)
    found = msgspec.structs.replace(found, parent=path[-1] if path else None)
    if found.state is UNSET:
        found = msgspec.structs.replace(found, state=await state_by_messages(calling, head, policy))
    return InstanceDetail(
        **{field: getattr(found, field) for field in ShownInstance.__struct_fields__},
        instance=str(head.id),
        root=str(head.root),
        ended_at=about.ended_at,
        reason=about.reason,
        input=_input(first),
        noun=policy.noun,
        may=_may(calling, head, found, policy),
        path=path,
        trace=_trace(first),
    )


PATH_MAX: Final = 32


async def parents_of(calling: Calling, head: HeadRow) -> list[str]:
    """Parents that the reader may see, the root first."""
    found: list[str] = []
    while head.parent and len(found) < PATH_MAX:
        above = await calling.client.queries.head(head.parent)
        if above is None or not calling.sees(above.workflow):
            break
        found.append(id_of(above))
        head = above
    return found[::-1]


async def state_by_messages(calling: Calling, head: HeadRow, policy: Policy, at: int | None = None) -> Any:
    """The state of an instance that messages make, now or at an entry of the journal.

    UNSET: something else made it, or its code is not here.
    """
    if policy.created != "message":
        return UNSET
    try:
        return to_plain(await calling.client.state(head.workflow, head.key, at=at))
    except PerdureError:
        return UNSET


def _input(first: Event | None) -> Any:
    return value_of(first.input) if isinstance(first, Started) and first.input else None


def _trace(first: Event | None) -> str:
    """The number of the trace that a start belonged to."""
    asked = None if first is None else asked_of(first)
    parts = asked.trace.split("-") if asked is not None else []
    return parts[1] if len(parts) == 4 else ""


def _may(calling: Calling, head: HeadRow, found: ShownInstance, policy: Policy) -> dict[str, str]:
    """The verbs that are possible now, and why the others are not."""
    verdict = allowed(calling.login, "operator", head.workflow, read=False)
    against = "" if verdict.yes else f"needs {needed(verdict.needs)}"
    if calling.settings.read_only:
        against = "this server is read-only"
    ended = f"the instance has {head.status}" if head.status in TERMINAL else ""
    stuck, failed = head.status == Status.STUCK, head.status == Status.FAILED
    sleeps = any(each.kind == "timer" and is_sleep(each.location) for each in found.waiting)
    unknown_outcome = found.error is not None and found.error.type == "OutcomeUnknown"
    now = {
        "send": ended or policy.refuses("send"),
        "ask": ended or policy.refuses("send"),
        "cancel": ended or policy.refuses("cancel"),
        "wake": ended or policy.refuses("wake") or ("" if sleeps and not stuck else "it does not sleep"),
        "retry": "" if stuck else (policy.refuses("retry") if failed else "it is neither stuck nor failed"),
        "settle": "" if stuck and unknown_outcome else "no outcome is unknown",
        "rewind": ended if head.status in FINAL else policy.refuses("rewind"),
        "fork": policy.refuses("fork"),
        "tag": ended,
    }
    now |= {verb: ended or ("" if not stuck else "it is stuck") for verb in policy.verbs}
    return {verb: against or why for verb, why in now.items()}


async def why(calling: Calling, given: Id) -> WhyAnswer:
    head = await calling.find(given.id)
    told = await calling.cut(head, FoldedHistory.now)
    seen, words = await see(
        calling.client.queries, head, datetime.now(UTC), calling.settings.database, told, code=calling.client.code
    )
    found = await aside(len(told.lines), reasons, seen, words)
    return private(calling, WhyAnswer(id_of(head), seen.state.status.value, found))


def private(calling: Calling, answer: WhyAnswer) -> WhyAnswer:
    """Sentences with recorded values are for logins that see all of them; how a child is doing, for who sees it."""
    found = [each if _is_seen(calling, each) else _without_child(each) for each in answer.reasons]
    if not calling.shows_values or calling.settings.redact:
        found = [_without_values(each) for each in found]
    return msgspec.structs.replace(answer, reasons=found)


def _is_seen(calling: Calling, reason: Reason) -> bool:
    if reason.kind != "child" or reason.waiting is None:
        return True
    name = reason.waiting.what
    return any(calling.sees(name[:n]) for n, letter in enumerate(name) if letter == "/")


def _without_child(reason: Reason) -> Reason:
    """The name of a child is recorded with its parent; how it is doing is not."""
    return msgspec.structs.replace(reason, text=f"{reason.text.rpartition(', which ')[0]}.", todo=())


def _without_values(reason: Reason) -> Reason:
    """Sentences end where a recorded value would follow; commands that repeat the input are left out."""
    text = reason.text.partition(", with the result")[0].partition(": ")[0]
    todo = tuple(each for each in reason.todo if "--input" not in each.command)
    return msgspec.structs.replace(reason, text=text, todo=todo)


class WaitingAnswer(msgspec.Struct, frozen=True):
    id: str
    waiting: list[ShownWait]


async def waiting(calling: Calling, given: Id) -> WaitingAnswer:
    head = await calling.find(given.id)
    found = await with_schemas(calling.client.code, head, await calling.cut(head, lambda whole: whole.reader.waiting()))
    return WaitingAnswer(id_of(head), [shown_wait(each) for each in found])


class ChildrenAnswer(msgspec.Struct, frozen=True):
    """`partial`: there are more; the list of instances with this `parent` pages through all."""

    id: str
    items: list[ListedHead]
    partial: bool = False


async def children(calling: Calling, given: Id) -> ChildrenAnswer:
    head = await calling.find(given.id)
    heads = await calling.client.queries.heads(Filter(parent=head.id, limit=CHILDREN_MAX))
    seen = [listed(each, id_of(head)) for each in heads if calling.sees(each.workflow)]
    return ChildrenAnswer(id_of(head), seen, len(heads) == CHILDREN_MAX)


class HistoryQuery(msgspec.Struct, frozen=True):
    """Entries after a number, at most `limit`; `before` gives the last ones before a number instead.

    `find`: those whose event, location, status, error or opened operations have this text. `form`: in words; `raw`, as
    entries are kept; or `compact`, a row an operation with the entries that belong to it.
    """

    id: str
    form: Literal["words", "compact", "raw"] = "words"
    after: int = 0
    before: int = 0
    limit: int = 500
    find: str = ""


class HistoryPage(msgspec.Struct, frozen=True):
    """`entries`: how many there are. `history`, `raw` or `operations` has the page, by its form.

    `asked` has, by the number of an entry, who asked for it and why.
    """

    id: str
    history: list[ShownEntry]
    entries: int
    asked: dict[str, Any]
    raw: list[RawEntry] | UnsetType = UNSET
    operations: list[CompactRow] | UnsetType = UNSET


async def history(calling: Calling, given: HistoryQuery) -> HistoryPage:
    if not 1 <= given.limit <= 5000:
        raise HttpProblem(422, "bad-request", f"limit is 1 to 5000, found {given.limit}", where="/limit")
    if given.form == "raw" and calling.settings.redact:
        raise HttpProblem(403, "forbidden", "this server hides fields of values; the bytes of an entry have them all")
    head = await calling.find(given.id)
    answer, seqs, patterns = await calling.cut(head, lambda whole: _history_page(id_of(head), whole, given))
    if given.form == "raw":
        raw = await _raw(calling, head, seqs, patterns, None if given.find else len(seqs))
        answer = msgspec.structs.replace(answer, raw=raw)
    calling.rows = given.limit
    return answer


def _history_page(id: str, whole: FoldedHistory, given: HistoryQuery) -> tuple[HistoryPage, list[int], list[str]]:
    """The page, the places of its entries in the journal, and the patterns of locations."""
    after, before, limit = given.after, given.before, given.limit
    if given.form == "compact":
        found = whole.operations.compact(after, before, limit)
        return HistoryPage(id, [], whole.last, {}, operations=found), [], []
    if given.find:
        lines = [line for line in whole.lines if given.find.lower() in _said(line)]
        lines = [line for line in lines if (line.number < before if before else line.number > after)]
        lines = lines[-limit:] if before else lines[:limit]
    else:
        lines = whole.page(after, before, limit)
    entries = [] if given.form == "raw" else [shown_entry(line) for line in lines]
    answer = HistoryPage(id, entries, whole.last, whole.asked_for(lines))
    return answer, [line.seq for line in lines], whole.reader.state.patterns.texts() if whole.lines else []


async def _raw(
    calling: Calling, head: HeadRow, seqs: list[int], patterns: list[str], limit: int | None
) -> list[RawEntry]:
    if not seqs:
        return []
    wanted = set(seqs)
    rows = await calling.client.queries.history(head.id, seqs[0] - 1, limit)
    return await aside(len(rows), raw_entries, [row for row in rows if row.seq in wanted], patterns)


def _said(line: Line) -> str:
    error = line.error.type if line.error is not None else ""
    return " ".join((line.event, line.location, line.status, error, line.outcome, *line.opened)).lower()


class OperationsQuery(msgspec.Struct, frozen=True):
    """`limit`: the last so many; 0: all."""

    id: str
    limit: int = 0


class OperationsAnswer(msgspec.Struct, frozen=True):
    """`total`: how many there are."""

    id: str
    operations: list[Operation]
    total: int


async def operations_of(calling: Calling, given: OperationsQuery) -> OperationsAnswer:
    head = await calling.find(given.id)
    found, total = await calling.cut(
        head, lambda whole: (whole.operations.upto(limit=max(0, given.limit)), whole.operations.count())
    )
    calling.rows = len(found)
    return OperationsAnswer(id_of(head), found, total)


class ResultQuery(msgspec.Struct, frozen=True):
    id: str
    wait: float = 0.0


class ResultAnswer(msgspec.Struct, frozen=True):
    """`code` is `still-open` where there is no result yet."""

    id: str
    status: str
    result: Any = None
    error: Any = None
    code: Literal["still-open"] | UnsetType = UNSET


async def result(calling: Calling, given: ResultQuery) -> Any:
    head = await calling.find(given.id)
    handle = handle_of(calling.client, head)
    try:
        value = await handle.result(timeout=min(max(given.wait, 0.001), WAIT_MAX))
    except ResultTimeout:
        now = await calling.client.queries.head(head.id)
        return 202, ResultAnswer(id_of(head), head.status if now is None else now.status, code="still-open")
    except InstanceFailed as error:
        return ResultAnswer(id_of(head), "failed", error=_error(error.error, str(error)))
    except InstanceCancelled as error:
        return ResultAnswer(id_of(head), "cancelled", error={"type": "cancelled", "message": error.reason})
    except InstanceStuck as error:
        return ResultAnswer(id_of(head), "stuck", error=_error(error.error, str(error)))
    return ResultAnswer(id_of(head), "completed", value)


def _error(failure: Any, text: str) -> dict[str, str]:
    return {"type": getattr(failure, "type", ""), "message": text}


class NameQuery(msgspec.Struct, frozen=True):
    id: str
    name: str


class PublishedAnswer(msgspec.Struct, frozen=True):
    id: str
    name: str
    value: Any


async def published(calling: Calling, given: NameQuery) -> PublishedAnswer:
    head = await calling.find(given.id)
    data = None if given.name.startswith("&") else await calling.client.queries.published(head.id, given.name)
    if data is None:
        raise unknown(f"published value {given.name[:80]!r}")
    return PublishedAnswer(id_of(head), given.name, decode(data))


async def compare(calling: Calling, given: DiffParams) -> Any:
    one, other = await calling.find(given.a), await calling.find(given.b)
    return await diff(calling.client, DiffParams(id_of(one), id_of(other)))
