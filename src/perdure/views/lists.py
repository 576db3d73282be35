"""Lists and counts of instances, newest first: of a filter, and of what the reader may see.

A list asks the narrowest indexes and judges each head. It reads within a budget: a list that no index narrows is
answered in part, with the place to go on from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from perdure.errors import TooBroad
from perdure.kernel.batch import HeadRow
from perdure.kernel.moment import at_of, when
from perdure.kernel.policy import decode_policy
from perdure.kernel.status import Status
from perdure.kernel.workflows import OWN
from perdure.ports.store import ListPlace, Queries, place_of

from .where import DIALECT, Term, Where, filters, fits, with_workflows

SECONDS_MAX: Final = 0.25
LOOKED_MAX: Final = 100_000
COUNT_MAX: Final = 10_000
PAGE_MAX: Final = 500
NANOSECONDS: Final = 1_000_000_000

Visible = Callable[[str], bool]
"""Whether a reader may see the instances of a workflow."""


class InstancePage(msgspec.Struct, frozen=True):
    """`next`: the place to go on from. `partial`: the budget was spent before the page was full."""

    heads: list[HeadRow]
    next: ListPlace | None
    looked: int
    partial: bool


async def resolved(queries: Queries, where: Where) -> Where:
    """Terms that heads can be judged by: dialects are the workflows that engines registered of them."""
    if not any(term.field == DIALECT for term in where):
        return where
    rows = [row for row in await queries.workflows() if not row.name.startswith(OWN)]
    return with_workflows(where, {row.name: decode_policy(row.policy).noun for row in rows})


async def page(
    queries: Queries,
    where: Where,
    visible: Visible,
    limit: int,
    before: ListPlace | None = None,
    *,
    oldest: bool = False,
) -> InstancePage:
    """Newest first, or, with `oldest`, the other way round: `before` is the place to go on from."""
    where = await resolved(queries, where)
    found: list[HeadRow] = []
    began, looked = time.monotonic(), 0
    while True:
        heads, place, cut = await _merged(queries, where, limit + 1, before, oldest)
        looked += len(heads)
        for head in heads:
            if visible(head.workflow) and fits(where, head):
                if len(found) == limit:
                    return InstancePage(found, place_of(found[-1]), looked, False)
                found.append(head)
        if place is None:
            return InstancePage(found, None, looked, False)
        if cut or looked >= LOOKED_MAX or time.monotonic() - began > SECONDS_MAX:
            return InstancePage(found, place, looked, True)
        before = place


async def _merged(
    queries: Queries, where: Where, limit: int, before: ListPlace | None, oldest: bool
) -> tuple[list[HeadRow], ListPlace | None, bool]:
    """The next heads of all filters in one order. Beyond the place where one list was cut, nothing is known yet."""
    heads: dict[int, HeadRow] = {}
    places: list[ListPlace] = []
    partial = False
    for filter in filters(where, limit):
        found = await queries.page(msgspec.structs.replace(filter, before=before, oldest=oldest))
        heads |= {head.id: head for head in found.heads}
        partial = partial or found.partial
        if found.next is not None:
            places.append(found.next)
    ordered = sorted(heads.values(), key=place_of, reverse=not oldest)
    if not places:
        return ordered, None, partial
    cut = min(places) if oldest else max(places)
    known = [head for head in ordered if (place_of(head) <= cut if oldest else place_of(head) >= cut)]
    return known, cut, partial


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
    """From the counters where they know enough; else by reading, up to `COUNT_MAX`."""
    where = await resolved(queries, where)
    if all(term.field in ("workflow", "version", "status") for term in where):
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


class Rates(msgspec.Struct, frozen=True):
    """How many instances started, ended and failed in each stretch of `seconds`, the last one being now.

    `partial`: the budget was spent, so that the first stretches have too few.
    """

    seconds: int
    starts: list[int]
    ends: list[int]
    failures: list[int]
    partial: bool


async def rates(queries: Queries, visible: Visible, now: datetime, seconds: int = 600, stretches: int = 144) -> Rates:
    """Of the instances that started since; ends of older ones are not counted."""
    since = at_of(now) - seconds * stretches * NANOSECONDS
    starts, ends, failures = [0] * stretches, [0] * stretches, [0] * stretches
    where = (Term("started", ">", (when(since).isoformat(),)),)
    began, before, looked = time.monotonic(), None, 0
    while looked < LOOKED_MAX and time.monotonic() - began < SECONDS_MAX:
        found = await page(queries, where, visible, PAGE_MAX, before)
        looked += found.looked
        for head in found.heads:
            _count(starts, head.started_at - since, seconds)
            if head.ended_at:
                _count(ends, head.ended_at - since, seconds)
                if head.status == Status.FAILED:
                    _count(failures, head.ended_at - since, seconds)
        before = found.next
        if before is None:
            return Rates(seconds, starts, ends, failures, False)
    return Rates(seconds, starts, ends, failures, True)


def _count(stretches: list[int], after: int, seconds: int) -> None:
    if after >= 0:
        stretches[min(len(stretches) - 1, after // (seconds * NANOSECONDS))] += 1


def _standing(workflow: str, version: str, status: str) -> HeadRow:
    return HeadRow(0, workflow, "", 0, version, status, 0, 0, 0, b"", "{}", None, 0, 0, "")
