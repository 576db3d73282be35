"""A fleet: processes that share the shards of a database. Here is what one of them does about it.

    _tick     renew the lease, see who else lives; give up what is more than a fair share, take what is free
    _expire   no renewal came through in time: stop everything before another engine may begin

The database's clock says when a lease has expired; this process gives up by its own monotonic clock, after two thirds
of that time, counted from before it asked. What it still writes after that is refused by the epoch.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.errors import LeaseLost, PerdureError, StoreError
from perdure.kernel.batch import InboxRow
from perdure.kernel.events import Address, Ref
from perdure.ports.leases import Leases, LeaseStanding

from .log import log
from .shard import Shard

RENEWALS: Final = 4
"""How often a lease is renewed while it lasts."""

REDEFINED: Final = "definitions"
"""The hint that the database has other definitions."""

TELL_SECONDS: Final = 0.005
"""How long hints about ends are gathered. Each costs the server a lock that all share who give one."""


class Fleet:
    """The shards of this process. `make` gives one that is not open yet."""

    def __init__(self, leases: Leases, owner: str, make: Callable[[int], Shard]) -> None:
        self._leases = leases
        self._owner = owner
        self._make = make
        self._shards: dict[int, Shard] = {}
        self._opening: dict[Shard, asyncio.Future[None]] = {}  # those that have nothing to run yet
        self._renewed = time.monotonic()
        self._closing = False
        self._telling = False
        self._task: asyncio.Task[None] | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._handing_over: set[asyncio.Task[None]] = set()
        self.past: Counter[str] = Counter()  # counts of shards that this process had
        self.moved: Callable[[], None] = lambda: None  # called when a shard is gone from here
        self.redefined: Callable[[], None] = lambda: None  # called when another process has put a definition

    @property
    def shards(self) -> list[Shard]:
        """In the order of their numbers."""
        return [shard for _, shard in sorted(self._shards.items())]

    def shard_of(self, ref: Ref) -> Shard | None:
        """The shard of an instance, if it runs here."""
        return self._shards.get(self._leases.shard_of(ref))

    def posted(self, rows: Sequence[InboxRow]) -> None:
        """Events for other shards are in the inbox: those that run here look at once, others are told."""
        for number in {self._leases.shard_of(row.instance or Address(row.workflow, row.key)) for row in rows}:
            shard = self._shards.get(number)
            if shard is not None:
                shard.look()
            else:
                self._leases.hint(f"shard {number}")

    def hint_others(self) -> None:
        """Something ended here, or was published, that other processes may wait for: they are told, in groups."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        self._telling = False
        self._leases.hint("ended")

    def hint_redefined(self) -> None:
        """A definition was put or activated here: other processes run new instances on it, too."""
        self._leases.hint(REDEFINED)

    def hinted(self, word: str) -> None:
        """Another process says that something came."""
        if word == REDEFINED:
            self.redefined()
            return
        kind, _, number = word.partition(" ")
        shard = self._shards.get(int(number)) if kind == "shard" and number.isdigit() else None
        if shard is not None:
            shard.look()

    # ---- coming and going ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take a fair share of what is free. Raises what the database raises: nothing runs unless it answers."""
        await self._leases.renew(self._owner, {})  # it connects: that may take longer than a lease lasts
        await self._tick()
        self._task = asyncio.create_task(self._renew_for_ever(), name="perdure lease")
        try:
            if self._opening:
                await asyncio.wait(self._opening.values())
        except BaseException:
            self._task.cancel()
            raise

    async def close(self, drain: float, hurry: asyncio.Event) -> None:
        """Give every shard back in good order."""
        self._closing = True
        if self._handing_over:
            await asyncio.wait(self._handing_over)
        await asyncio.gather(*(self._give_back(shard, drain, hurry) for shard in self.shards))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._watchdog is not None:
            self._watchdog.cancel()
        try:
            async with asyncio.timeout(self._leases.lease):
                await self._leases.leave(self._owner)
        except (StoreError, TimeoutError) as error:
            log.warning("this engine could not take its leave: %s; its shards are free when its lease expires", error)

    def sweep(self) -> None:
        """Shards that stopped by themselves, because another owner took over, are none of ours any more."""
        for shard in self.shards:
            if shard.closed:
                self._forget(shard)

    def _forget(self, shard: Shard) -> None:
        self.past.update(shard.counts + shard.kernel.counts)
        del self._shards[shard.number]
        self._is_open(shard)
        if not self._closing:
            self.moved()

    def _is_open(self, shard: Shard) -> None:
        """Or it never will be."""
        opened = self._opening.pop(shard, None)
        if opened is not None:
            opened.set_result(None)

    # ---- leases --------------------------------------------------------------------------------------------------

    async def _renew_for_ever(self) -> None:
        pause = self._leases.lease / RENEWALS
        while True:
            begun = self._renewed + pause * random.uniform(0.9, 1.1)  # processes that began together need not stay so
            await asyncio.sleep(max(pause / 10, begun - time.monotonic()))
            try:
                async with asyncio.timeout(self._leases.lease):  # `wait_for` of Python 3.11 may swallow a cancel
                    await self._tick()
            except (PerdureError, TimeoutError) as error:
                log.warning("the lease could not be renewed: %s", str(error) or "no answer")

    async def _tick(self) -> None:
        asked = time.monotonic()
        had = [shard for shard in self.shards if shard.epoch]
        standing = await self._leases.renew(self._owner, {shard.number: shard.epoch for shard in self.shards})
        self._renewed = asked
        self._watch()
        for shard in had:
            if shard.number not in standing.held and self._shards.get(shard.number) is shard:
                shard.fall(LeaseLost(f"shard {shard.number} has another owner now; nothing more is written here"))
        if not self._closing:
            self._share(standing)

    def _share(self, standing: LeaseStanding) -> None:
        fair = math.ceil(self._leases.shards / max(1, standing.engines))
        for shard in self.shards[fair:]:
            self._hand_over(shard)
        wanted = fair - len(self._shards)
        if wanted > 0:
            free = [number for number in standing.free if number not in self._shards]
            random.shuffle(free)  # two that come at once rarely want the same one
            for number in free[:wanted]:
                self._take(number)

    def _take(self, number: int) -> None:
        """It comes when it comes: no lease waits for it to be renewed."""
        shard = self._shards[number] = self._make(number)
        self._opening[shard] = asyncio.get_running_loop().create_future()
        shard.open(lambda error: self._opened(shard, error))

    def _opened(self, shard: Shard, error: Exception | None) -> None:
        self._is_open(shard)
        if error is not None:
            log.info("shard %s could not be taken: %s", shard.number, error)
            if self._shards.get(shard.number) is shard:
                self._forget(shard)
                shard.release()

    def _hand_over(self, shard: Shard) -> None:
        if not shard.takes:
            return
        task = asyncio.create_task(self._give_back(shard, self._leases.lease / 2, asyncio.Event()))
        self._handing_over.add(task)
        task.add_done_callback(self._handing_over.discard)

    async def _give_back(self, shard: Shard, drain: float, hurry: asyncio.Event) -> None:
        if shard in self._opening:
            shard.release()
        elif not shard.closed:
            await stop(shard, drain, hurry)
        if self._shards.get(shard.number) is shard:
            self._forget(shard)

    # ---- the watchdog --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        left = self._renewed + self._leases.lease * 2 / 3 - time.monotonic()
        self._watchdog = asyncio.get_running_loop().call_later(max(0.0, left), self._expire)

    def _expire(self) -> None:
        if time.monotonic() < self._renewed + self._leases.lease * 2 / 3:
            self._watch()
            return
        for shard in self.shards:
            shard.fall(LeaseLost(f"the lease of shard {shard.number} was not renewed in time: another may own it now"))


async def stop(shard: Shard, drain: float, hurry: asyncio.Event) -> None:
    """Let running steps end, cut the rest, and give the lease back."""
    loop = asyncio.get_running_loop()
    idle: asyncio.Future[None] = loop.create_future()
    shard.drain(lambda: None if idle.done() else idle.set_result(None))
    await drained(idle, drain, hurry)
    shard.park()
    parked: asyncio.Future[None] = loop.create_future()
    shard.when_settled(lambda: None if parked.done() else parked.set_result(None))
    await asyncio.wait([parked], timeout=10)  # a store that does not answer: the rest is found as after a crash
    shard.release()


async def drained(waited_for: asyncio.Future[None], drain: float, hurry: asyncio.Event) -> None:
    """Wait for something, for as long as a drain may take."""
    hurried = asyncio.ensure_future(hurry.wait())
    either: list[asyncio.Future[Any]] = [waited_for, hurried]
    await asyncio.wait(either, timeout=drain, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    waited_for.cancel()
