"""How many instances there are, over HTTP: of a filter, by status, over a day, and by reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from perdure.kernel.batch import HeadRow
from perdure.kernel.status import Status
from perdure.ports.seen import error_of
from perdure.views.groups import grouped
from perdure.views.lists import Facet, Rates, count, facets, rates
from perdure.views.look import ShownError, shown_error

from ..calling import Calling, id_of
from ..readers import FoldedHistory
from .instances import ListQuery, Nothing, shows, where_of


class CountAnswer(msgspec.Struct, frozen=True):
    count: int | str


async def count_instances(calling: Calling, given: ListQuery) -> CountAnswer:
    where = where_of(given)
    found = await count(calling.client.queries, where, shows(calling, where))
    return CountAnswer(f"{found.count}+" if found.more else found.count)


class FacetsAnswer(msgspec.Struct, frozen=True):
    items: list[Facet]


async def count_by(calling: Calling, given: Nothing) -> FacetsAnswer:
    return FacetsAnswer(await facets(calling.client.queries, shows(calling, ())))


async def rates_of(calling: Calling, given: Nothing) -> Rates:
    return await rates(calling.client.queries, shows(calling, ()), datetime.now(UTC))


class GroupItem(msgspec.Struct, frozen=True):
    """`error` and `location` are those of the reason of stuck and failed ones; `message` is that of the example."""

    workflow: str
    version: str
    status: str
    reason: str
    count: int
    oldest: datetime
    example: str
    location: str = ""
    error: ShownError | None = None


class GroupsAnswer(msgspec.Struct, frozen=True):
    """The largest groups first. `partial`: there are more instances, or more groups, than were read."""

    items: list[GroupItem]
    looked: int
    partial: bool


MESSAGES_MAX: Final = 20
"""So many groups tell the error of their example: each costs a fold of its history."""


async def groups(calling: Calling, given: ListQuery) -> GroupsAnswer:
    where = where_of(given)
    found = await grouped(calling.client.queries, where, shows(calling, where))
    items = []
    for number, each in enumerate(found.groups):
        head = each.example
        bad = head.status in (Status.STUCK, Status.FAILED)
        error = await _error_of(calling, head) if bad and number < MESSAGES_MAX else None
        items.append(
            GroupItem(
                workflow=head.workflow,
                version=head.version,
                status=head.status,
                reason=head.reason,
                count=each.count,
                oldest=each.oldest,
                example=id_of(head),
                location=head.reason.partition(" at ")[2] if bad else "",
                error=error,
            )
        )
    return GroupsAnswer(items, found.seen, found.partial)


async def _error_of(calling: Calling, head: HeadRow) -> ShownError | None:
    """The error of an instance as it is now, without its traceback, and without values that the reader may not see."""
    error = await calling.histories.cut(calling.client.queries, head, _last_error)
    if error is None:
        return None
    calling.found.add(head.id)
    seen = calling.values(head.workflow)
    return ShownError(error.type, error.message if seen else "", error.data if seen else None)


def _last_error(whole: FoldedHistory) -> ShownError | None:
    return shown_error(error_of(whole.reader.state)) if whole.lines else None
