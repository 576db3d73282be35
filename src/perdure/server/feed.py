"""The feed: which instances moved, in the order of the journal. One reader for all streams, and none while idle.

A position is the last entry of each shard. It is the id of a stream's events: a stream that was cut goes on from there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from contextlib import aclosing, suppress
from itertools import islice
from typing import Final, NamedTuple

from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.entry import changes_tags
from perdure.kernel.placement import NUMBERS
from perdure.runtime.client import Client

RING: Final = 4096
PAGE: Final = 500
CATCH_UP_MAX: Final = 10_000
"""A stream that is further behind reads its pages again instead."""

Position = dict[int, int]


class Moved(NamedTuple):
    """One entry of an instance. `head` is as it was when the feed read it; `n` counts what the feed has told.

    `tagged`: the entry changed the tags of the instance.
    """

    n: int
    seq: int
    instance: int
    at: int
    tagged: bool
    head: HeadRow | None = None

    @classmethod
    def by(cls, row: JournalRow) -> Moved:
        return cls(0, row.seq, row.instance, row.at, changes_tags(row.body))


def pack(position: Position) -> str:
    return ".".join(f"{shard:x}-{seq % NUMBERS:x}" for shard, seq in sorted(position.items()))


def unpack(text: str) -> Position | None:
    """The position of an event id; None: it is none of ours."""
    found: Position = {}
    try:
        for part in filter(None, text.split(".")):
            shard, number = (int(each, 16) for each in part.split("-"))
            found[shard] = shard * NUMBERS + number
    except ValueError:
        return None
    return found


class Feed:
    """`told`: the events since the last entries that streams have already put into bytes, by whom they are for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ring: deque[Moved] = deque(maxlen=RING)
        self.told: dict[Hashable, bytes] = {}
        self._watchers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self.position: Position = {}
        self.n = 0
        self.failed = False

    async def join(self) -> asyncio.Event:
        """An event that is set when something has moved. Leave when you are done."""
        woken = asyncio.Event()
        self._watchers.add(woken)
        if self._task is None or self._task.done():
            self._begun, self.failed = asyncio.Event(), False
            self._task = asyncio.ensure_future(self._follow(self._begun))
        try:
            await self._begun.wait()
        except BaseException:
            self.leave(woken)
            raise
        return woken

    def leave(self, woken: asyncio.Event) -> None:
        self._watchers.discard(woken)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    def wake(self) -> None:
        for woken in self._watchers:
            woken.set()

    def since(self, n: int) -> list[Moved] | None:
        """What moved after the n-th; None: too much has moved."""
        if n == self.n:
            return []
        if not self._ring or self._ring[0].n > n + 1:
            return None
        return list(islice(reversed(self._ring), self.n - n))[::-1]

    async def missed(self, after: Position) -> tuple[list[Moved], Position, int] | None:
        """What moved between a position and now, and where now is; None: too much, or a position of elsewhere."""
        now, n = dict(self.position), self.n
        found: list[Moved] = []
        if any(seq > now.get(shard, shard * NUMBERS) for shard, seq in after.items()):
            return None
        for shard, last in now.items():
            place = after.get(shard, shard * NUMBERS)
            while place < last:
                rows = [row for row in await self._rows(place) if row.seq <= last]
                if not rows or len(found) + len(rows) > CATCH_UP_MAX:
                    return None
                found += map(Moved.by, rows)
                place = rows[-1].seq
        return await self._headed(found), now, n

    async def _follow(self, begun: asyncio.Event) -> None:
        """`begun` is of this task alone: one that ends late does not say that the next one knows where it is."""
        try:
            self.position = await self._client.queries.heights()
            begun.set()
            async with aclosing(self._client.changes()) as changes:
                async for _ in changes:
                    await self._read()
        except asyncio.CancelledError:
            raise
        except Exception:
            self.failed = True
        finally:
            begun.set()
            for woken in self._watchers:
                woken.set()

    async def _read(self) -> None:
        """All that came since the last look."""
        heights = await self._client.queries.heights()
        for shard in sorted(heights):
            while (place := self.position.get(shard, shard * NUMBERS)) < heights[shard]:
                rows = [row for row in await self._rows(place) if row.seq < (shard + 1) * NUMBERS]
                if not rows:
                    break
                moved = await self._headed(list(map(Moved.by, rows)))
                for each in moved:
                    self.n += 1
                    self._ring.append(each._replace(n=self.n))
                self.told.clear()
                self.position[shard] = rows[-1].seq
                for woken in self._watchers:
                    woken.set()
                await asyncio.sleep(0)

    async def _rows(self, after: int) -> list[JournalRow]:
        return await self._client.queries.journal(after, PAGE)

    async def _headed(self, moved: list[Moved]) -> list[Moved]:
        heads = await self._client.queries.heads_of(list({each.instance for each in moved}))
        return [each._replace(head=heads.get(each.instance)) for each in moved]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
