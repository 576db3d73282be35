"""Instances of a list by workflow, version, status and reason: how many of each, since when, and an example.

What is stuck by error and location, and what is waited for, are groups. Heads are read within the budget of a list: of
a longer one the newest are grouped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from perdure.kernel.batch import HeadRow
from perdure.kernel.moment import when
from perdure.ports.store import Queries

from .lists import LOOKED_MAX, PAGE_MAX, SECONDS_MAX, page
from .where import Where

GROUPS_MAX: Final = 200


class InstanceGroup(msgspec.Struct, frozen=True):
    """`oldest` is the last change of the one that changed first; `example` the head of the newest."""

    count: int
    oldest: datetime
    example: HeadRow


class Grouped(msgspec.Struct, frozen=True):
    """The largest groups first, of the instances `seen`. `partial`: there are more of them, or more groups."""

    groups: list[InstanceGroup]
    seen: int
    partial: bool


async def grouped(queries: Queries, where: Where, visible: Callable[[str], bool]) -> Grouped:
    found: dict[tuple[str, str, str, str], InstanceGroup] = {}
    began, before, looked, seen, partial = time.monotonic(), None, 0, 0, False
    while True:
        part = await page(queries, where, visible, PAGE_MAX, before)
        looked += part.looked
        seen += part.seen
        for head in part.heads:
            key = head.workflow, head.version, head.status, head.reason
            known = found.get(key)
            changed = when(head.changed_at)
            found[key] = (
                InstanceGroup(1, changed, head)
                if known is None
                else InstanceGroup(known.count + 1, min(known.oldest, changed), known.example)
            )
        before = part.next
        if before is None:
            break
        if looked >= LOOKED_MAX or time.monotonic() - began > SECONDS_MAX:
            partial = True
            break
    groups = sorted(found.values(), key=lambda each: -each.count)
    return Grouped(groups[:GROUPS_MAX], seen, partial or len(groups) > GROUPS_MAX)
