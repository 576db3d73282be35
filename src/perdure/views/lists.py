"""Lists and counts of instances, newest first: of a filter, and of what the reader may see.

A list asks the narrowest indexes and judges each head. It reads within a budget: a list that no index narrows is
answered in part, with the place to go on from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Final

import msgspec

from perdure.errors import BadFilter, TooBroad
from perdure.kernel.batch import HeadRow
from perdure.kernel.moment import at_of, when
from perdure.kernel.policy import decode_policy
from perdure.kernel.rules import RULER
from perdure.kernel.status import Status
from perdure.kernel.workflows import OWN
from perdure.ports.store import CHANGE_ORDERED, Filter, ListPlace, Queries, change_of, place_of

from .find import readings
from .where import BRANCHES_MAX, DIALECT, FAMILY, NUMBERED, Term, Where, filters, fits, with_statuses, with_workflows

SECONDS_MAX: Final = 0.25
LOOKED_MAX: Final = 100_000
COUNT_MAX: Final = 10_000
PAGE_MAX: Final = 500
READ_MAX: Final = 250
"""Heads that are judged at once: the loop does nothing else meanwhile."""

SPARE: Final = 10
"""Heads beyond a page: one tells that there is more, and some may be built-in ones, which no list shows."""

FEW: Final = 10
"""Where fewer than one in so many heads fit, another index is looked for."""

COUNTED: Final = frozenset({"workflow", "version", "status"})
NANOSECONDS: Final = 1_000_000_000

Placed = Callable[[HeadRow], ListPlace]

Visible = Callable[[str], bool]
"""Whether a reader may see the instances of a workflow."""

BUILT_IN: Final = (OWN, RULER.workflow)


def without_built_in(where: Where, sees: Visible) -> Visible:
    """Built-in instances are listed only for those who ask for them. A list asks for each head: few workflows, many
    heads."""
    wanted = any(value.startswith(BUILT_IN) for term in where if term.field == "workflow" for value in term.values)
    return cache(lambda workflow: sees(workflow) and (wanted or not workflow.startswith(BUILT_IN)))


class InstancePage(msgspec.Struct, frozen=True):
    """`next`: the place to go on from. `partial`: the budget was spent before the page was full.

    `looked`: how many heads were read; `seen`: how many of those that the reader may see were judged.
    """

    heads: list[HeadRow]
    next: ListPlace | None
    looked: int
    partial: bool
    seen: int


async def resolved(queries: Queries, where: Where, visible: Visible) -> Where:
    """Terms that heads can be judged by: dialects are the workflows that engines registered of them, names of instances
    are numbers. What an index can answer is said as well."""
    where = with_statuses(where)
    where = tuple([await _numbered(queries, term, visible) if term.field in FAMILY else term for term in where])
    if not any(term.field == DIALECT for term in where):
        return where
    rows = [row for row in await queries.workflows() if not row.name.startswith(OWN)]
    return with_workflows(where, {row.name: decode_policy(row.policy).noun for row in rows})


async def _numbered(queries: Queries, term: Term, visible: Visible) -> Term:
    """The last generation of each name; an instance that the reader does not see has no children."""
    values: list[str] = []
    for value in term.values:
        if number := NUMBERED.match(value):
            values.append(number[1])
            continue
        heads = [await queries.head(each) for each in await readings(queries, value) if visible(each.workflow)]
        values += [str(head.id) for head in heads if head is not None]
    return term._replace(values=tuple(values))


async def page(
    queries: Queries,
    where: Where,
    visible: Visible,
    limit: int,
    before: ListPlace | None = None,
    *,
    oldest: bool = False,
    by_change: bool = False,
) -> InstancePage:
    """Newest first, or, with `oldest`, the other way round: `before` is the place to go on from.

    `by_change`: in the order of the last changes; for the statuses that have it.
    """
    where = await resolved(queries, where, visible)
    if by_change:
        check_order(where)
    place = change_of if by_change else place_of
    found: dict[int, HeadRow] = {}  # one that changes meanwhile may be in two lists
    began, looked, seen, size, narrowed = time.monotonic(), 0, 0, limit + SPARE, False
    lists = [_List(filter, before) for filter in filters(where, limit, by_change)]
    while True:
        heads, before = await _read_on(queries, lists, size, oldest, place)
        looked += len(heads)
        for head in heads:
            if not visible(head.workflow):
                continue
            seen += 1
            if fits(where, head) and head.id not in found:
                if len(found) == limit:
                    return InstancePage([*found.values()], place([*found.values()][-1]), looked, False, seen)
                found[head.id] = head
        if before is None:
            return InstancePage([*found.values()], None, looked, False, seen)
        if looked >= LOOKED_MAX or time.monotonic() - began > SECONDS_MAX:
            return InstancePage([*found.values()], before, looked, True, seen)
        if not narrowed and FEW * len(found) < looked:
            where, narrowed = await _narrowed(queries, where, visible), True
            lists = [_List(filter, before) for filter in filters(where, limit, by_change)]
        size = min(2 * size, READ_MAX)


async def _narrowed(queries: Queries, where: Where, visible: Visible) -> Where:
    """The same terms, and what the counters know: the workflows and statuses of what can fit. An index finds few of
    them, though no term names them: of `-workflow:probe*`, or where the reader sees few workflows."""
    counts = await queries.counts()
    fitting = [standing for standing, number in counts.items() if number and visible(standing[0])]
    judged = tuple(term for term in where if term.field in COUNTED)
    fitting = [standing for standing in fitting if fits(judged, _standing(*standing))]
    workflows, statuses = {workflow for workflow, _, _ in fitting}, {status for _, _, status in fitting}
    if len(workflows) > BRANCHES_MAX or len(fitting) == len(counts):
        return where
    more = Term("workflow", ":", tuple(sorted(workflows))), Term("status", ":", tuple(sorted(statuses)))
    return (*more, *(term for term in where if term.field not in ("workflow", "status")))


class _List(msgspec.Struct):
    """What was read of a filter: up to a place, or to its end; and the heads of it that were not judged yet."""

    filter: Filter
    place: ListPlace | None
    heads: list[HeadRow] = []
    ended: bool = False


async def _read_on(
    queries: Queries, lists: list[_List], limit: int, oldest: bool, place: Placed
) -> tuple[list[HeadRow], ListPlace | None]:
    """The next heads of all lists in one order, and up to which place they are known; None: to the end."""
    for each in lists:
        if not each.heads and not each.ended:
            asked = msgspec.structs.replace(each.filter, limit=limit, before=each.place, oldest=oldest)
            found = await queries.page(asked)
            each.heads, each.place, each.ended = found.heads, found.next, found.next is None
    places = [each.place for each in lists if each.place is not None]
    cut = (min if oldest else max)(places, default=None)
    known: list[HeadRow] = []
    for each in lists:
        count = (
            len(each.heads)
            if cut is None or len(lists) == 1
            else sum((place(head) <= cut) if oldest else (place(head) >= cut) for head in each.heads)
        )
        known += each.heads[:count]
        each.heads = each.heads[count:]
    return sorted(known, key=place, reverse=not oldest), cut


def check_order(where: Where) -> None:
    """Refuse the order of the last changes, unless the terms leave no status that does not have it."""
    named = [term for term in where if term.field == "status" and term.plain]
    if not any(set(term.values) <= set(CHANGE_ORDERED) for term in named):
        text = f"the order -changed is that of one status, or several, of {', '.join(CHANGE_ORDERED)}"
        raise BadFilter(text, "/order")


async def select(queries: Queries, where: Where, visible: Visible, most: int) -> list[HeadRow]:
    """All that a list has, to its end. Raises `TooBroad` if that is more than `most`."""
    found: list[HeadRow] = []
    before = None
    while True:
        part = await page(queries, where, visible, PAGE_MAX, before)
        found += part.heads
        before = part.next
        if len(found) > most:
            raise TooBroad(most)
        if before is None:
            return found


class Count(msgspec.Struct, frozen=True):
    """`count` is exact, unless `more`: then there are at least so many."""

    count: int
    more: bool = False


async def count(queries: Queries, where: Where, visible: Visible) -> Count:
    """From the counters where they know enough; else by reading, up to `COUNT_MAX` or the end of a page's budget."""
    where = await resolved(queries, where, visible)
    if all(term.field in COUNTED for term in where):
        total = 0
        for (workflow, version, status), number in (await queries.counts()).items():
            if visible(workflow) and fits(where, _standing(workflow, version, status)):
                total += number
        return Count(total)
    found, before = 0, None
    while found < COUNT_MAX:
        part = await page(queries, where, visible, PAGE_MAX, before)
        found += len(part.heads)
        before = part.next
        if before is None:
            return Count(found)
        if part.partial:
            return Count(found, more=True)
    return Count(COUNT_MAX, more=True)


class Facet(msgspec.Struct, frozen=True):
    workflow: str
    version: str
    status: str
    count: int


async def facets(queries: Queries, visible: Visible) -> list[Facet]:
    """How many instances there are by workflow, version and status."""
    counts = await queries.counts()
    return [Facet(*standing, number) for standing, number in sorted(counts.items()) if number and visible(standing[0])]


class WorkflowRates(msgspec.Struct):
    """Of one workflow: starts in each hour of a day, and how many ended in it."""

    starts: list[int]
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class Rates(msgspec.Struct, frozen=True):
    """How many instances started, ended and failed in each stretch of `seconds`, the last one being now.

    The stretches reach back a day, or only six hours or one where nothing started or ended before. `by` has each
    workflow that started or ended one within the day. `partial`: the budget was spent, so that the first stretches have
    too few.
    """

    seconds: int
    starts: list[int]
    ends: list[int]
    failures: list[int]
    partial: bool
    by: dict[str, WorkflowRates] = {}


HOUR: Final = 3600
SCALES: Final = (25, 150, 600)
"""Seconds of a stretch. Of 144 stretches that is an hour, six hours, a day."""


async def rates(
    queries: Queries, visible: Visible, now: datetime, scales: tuple[int, ...] = SCALES, stretches: int = 144
) -> Rates:
    """Instances that started since the begin of the longest scale, then older ones that ended since."""
    until, length = at_of(now), scales[-1] * stretches
    since = until - length * NANOSECONDS
    starts: list[int] = []
    ends: list[int] = []
    failures: list[int] = []
    by: dict[str, WorkflowRates] = {}

    def answer(partial: bool) -> Rates:
        first = min([*starts, *ends], default=until)
        seconds = next(each for each in scales if each == scales[-1] or first >= until - each * stretches * NANOSECONDS)
        began, ended, failed = (_counted(times, until, seconds, stretches) for times in (starts, ends, failures))
        return Rates(seconds, began, ended, failed, partial, by)

    text = when(since).isoformat()
    began, looked = time.monotonic(), 0
    for where in ((Term("started", ">", (text,)),), (Term("ended", ">", (text,)), Term("started", "<", (text,)))):
        before = None
        while True:
            if looked >= LOOKED_MAX or time.monotonic() - began > SECONDS_MAX:
                return answer(partial=True)
            found = await page(queries, where, visible, PAGE_MAX, before)
            looked += found.looked
            for head in found.heads:
                mine = by.setdefault(head.workflow, WorkflowRates([0] * max(1, length // HOUR)))
                if head.started_at >= since:
                    starts.append(head.started_at)
                    mine.starts[min(len(mine.starts) - 1, (head.started_at - since) // (HOUR * NANOSECONDS))] += 1
                if head.ended_at:
                    ends.append(head.ended_at)
                    setattr(mine, head.status, getattr(mine, head.status) + 1)
                    if head.status == Status.FAILED:
                        failures.append(head.ended_at)
            before = found.next
            if before is None:
                break
    return answer(partial=False)


def _counted(times: list[int], until: int, seconds: int, stretches: int) -> list[int]:
    found = [0] * stretches
    for at in times:
        back = max(0, until - at) // (seconds * NANOSECONDS)
        if back < stretches:
            found[-1 - back] += 1
    return found


def _standing(workflow: str, version: str, status: str) -> HeadRow:
    return HeadRow(0, workflow, "", 0, version, status, 0, 0, 0, b"", "{}", None, 0, 0, "")
