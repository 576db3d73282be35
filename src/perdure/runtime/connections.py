"""The connections to an engine: `LocalConnection` in the process that runs it, `RemoteConnection` in every other."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final, Protocol

import msgspec

from perdure.definitions.model import REGISTER
from perdure.errors import (
    CallerError,
    EngineClosed,
    Fenced,
    InstanceForgotten,
    InstanceStuck,
    NotInThisProcess,
    ResultTimeout,
    UnknownInstance,
)
from perdure.kernel.apply import input_hash
from perdure.kernel.batch import InboxRow
from perdure.kernel.decision import Outcome, Stuck
from perdure.kernel.events import Address, Event, Ref, Started, asked_of
from perdure.kernel.mailbox import Accepted, Answer, Refused
from perdure.kernel.policy import Policy
from perdure.kernel.problem import Report
from perdure.kernel.retention import FORGOTTEN
from perdure.kernel.rows import decode_outcome, inbox_row
from perdure.kernel.rules import RULER
from perdure.kernel.status import TERMINAL, Status
from perdure.ports.frame import Frame, FrameRelay
from perdure.ports.store import Queries

from .connection import Connection, refusal
from .history import read_history
from .log import log
from .policies import Policies
from .shard import Shard
from .streams import RelayedStreams, Streams

MOVED_SECONDS: Final = 1.0
"""How long to wait for an instance of another process before asking again whether it has come here."""

BY_INBOX_MAX: Final = 10_000
"""Of so many instances a process knows that it sent them something by the inbox."""


class FleetFace(Protocol):
    """What a connection wants to know of the shards of its process.

    `moved` is called when one of them is gone, `redefined` when another process has put a definition.
    """

    moved: Callable[[], None]
    redefined: Callable[[], None]

    def shard_of(self, ref: Ref) -> Shard | None: ...

    def posted(self, rows: Sequence[InboxRow]) -> None: ...

    def hint_others(self) -> None: ...

    def hint_redefined(self) -> None: ...

    def sweep(self) -> None: ...


class LocalConnection:
    """Offers events to the shard of this process, and hears of each end. `failed`: who calls hooks."""

    def __init__(self, queries: Queries, failed: Callable[[Report], None]) -> None:
        self.loop = asyncio._get_running_loop()
        self._queries = queries
        self.failed = failed
        self.streams = Streams()
        self._shard_of: Callable[[Ref], Shard | None] = _nowhere
        self._waiters: dict[Address, list[tuple[int, asyncio.Future[Outcome | None]]]] = {}
        self._watchers: dict[int, dict[str, list[asyncio.Event]]] = {}  # by instance, and by what they wait for
        self._readers: list[asyncio.Event] = []  # of those who wait for the next commit, whatever it has
        self._fallen: Exception | None = None
        self._policies = Policies()
        self.when_redefined: Callable[[], None] = lambda: None

    @property
    def queries(self) -> Queries:
        if isinstance(self._fallen, EngineClosed):
            raise fresh(self._fallen)
        return self._queries

    def lead_to(self, shard_of: Callable[[Ref], Shard | None]) -> None:
        """`shard_of`: the shard of an instance, if it runs here."""
        self._shard_of = shard_of

    async def put(self, to: Ref, event: Event, *, new: bool = False) -> int:
        if self._fallen is not None:
            raise fresh(self._fallen)
        shard = self._shard_of(to)
        assert shard is not None, "a connection opens on a shard"
        return await self._offer(shard, to, event, new)

    async def _offer(self, shard: Shard, to: Ref, event: Event, new: bool) -> int:
        try:
            msgspec.msgpack.encode(event)
        except Exception as error:  # what cannot be recorded must not get into a batch with the events of others
            raise CallerError(f"this {type(event).__name__} event cannot be recorded: {error}") from None
        heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def hear(answer: Answer | Exception) -> None:
            if heard.done():
                return
            if isinstance(answer, Exception):
                heard.set_exception(fresh(answer))
            else:
                heard.set_result(answer)

        shard.offer(to, event, hear, new=new)
        answer = await heard
        if isinstance(answer, Refused):
            raise refusal(answer)
        if not isinstance(answer, Accepted):
            return 0
        if answer.reply is not None and answer.reply.refused:
            raise CallerError(answer.reply.refused)
        return answer.instance

    async def outcome(self, address: Address, instance: int, timeout: float | None) -> Outcome:
        if timeout is not None:
            try:
                async with asyncio.timeout(timeout):
                    return await self.outcome(address, instance, None)
            except TimeoutError:
                raise ResultTimeout(f"{address} had not ended after {timeout} s; it goes on") from None
        while (outcome := await self._look_or_wait(address, instance)) is None:
            pass
        return outcome

    async def _look_or_wait(self, address: Address, instance: int) -> Outcome | None:
        """The outcome, or None when it is time to look again. Who waits is known before the look: no end is missed."""
        waiter: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(address, [])
        waiters.append((instance, waiter))
        try:
            shard = self._shard_of(instance or address)
            if shard is None or not shard.lives(instance):
                outcome = await look(self.queries, address, instance)
                if outcome is not None:
                    return outcome
            if self._fallen is not None:
                raise fresh(self._fallen)
            if shard is not None and shard.unreadable:
                await self._raise_if_unreadable(shard, address, instance)
            return await waiter
        finally:
            waiters.remove((instance, waiter))
            if not waiters and self._waiters.get(address) is waiters:
                del self._waiters[address]

    async def _raise_if_unreadable(self, shard: Shard, address: Address, instance: int) -> None:
        head = await self.queries.head(instance or address)
        for ref in (address, instance if head is None else head.id):
            if ref in shard.unreadable:
                raise fresh(shard.unreadable[ref])

    async def changes(self, instance: int, name: str = "") -> AsyncGenerator[None, None]:
        changed = asyncio.Event()
        names = self._watchers.setdefault(instance, {}) if instance else {name: self._readers}
        watchers = names.setdefault(name, [])
        watchers.append(changed)
        try:
            while self._fallen is None:
                yield
                await changed.wait()
                changed.clear()
            raise fresh(self._fallen)
        finally:
            watchers.remove(changed)
            if not watchers and names.get(name) is watchers:
                del names[name]
            if not names and self._watchers.get(instance) is names:
                del self._watchers[instance]

    async def reached(self, seq: int) -> None:
        await reached(self, seq)

    def committed(self, seq: int) -> None:
        for grown in self._readers:
            grown.set()

    def _tell_watchers(self, instance: int) -> None:
        for watchers in self._watchers.get(instance, {}).values():
            for changed in watchers:
                changed.set()

    def entropy(self) -> bytes:
        return os.urandom(16)

    async def policy(self, workflow: str) -> Policy:
        return await self._policies.of(self.queries, workflow)

    def in_force(self) -> str:
        shard = self._shard_of(RULER)
        return "" if shard is None else shard.kernel.router.rules.hash

    def published(self, instance: int, name: str) -> None:
        names = self._watchers.get(instance, {})
        for changed in (*names.get(name, ()), *names.get("", ())):
            changed.set()
        if name == REGISTER:
            self.redefined()

    def redefined(self) -> None:
        """The versions of a definition may be others now."""
        self.when_redefined()

    def ended(self, instance: int, address: Address, outcome: Outcome) -> None:
        if self._watchers:
            self._tell_watchers(instance)
        for wanted, waiter in self._waiters.get(address, ()):
            if wanted in (0, instance) and not waiter.done():
                waiter.set_result(outcome)

    def stuck(self, instance: int, address: Address, stuck: Stuck) -> None:
        log.warning("%s is stuck: %s", address, stuck.error)
        self._tell_watchers(instance)
        for wanted, waiter in self._waiters.get(address, ()):
            if wanted in (0, instance) and not waiter.done():
                waiter.set_exception(InstanceStuck(str(address), stuck.error, stuck.location))

    def framed(self, instance: int, frame: Frame) -> None:
        self.streams.put(instance, frame)

    def progress(self, instance: int) -> list[Frame]:
        shard = self._shard_of(instance)
        return [] if shard is None else shard.progress(instance)

    def posted(self, rows: Sequence[InboxRow]) -> None:
        pass  # all instances are on the one shard

    def reloaded(self) -> None:
        self._look_again(None)

    def fallen(self, error: Exception) -> None:
        self._fallen = error
        self._look_again(error)

    def _look_again(self, error: Exception | None) -> None:
        """All who wait for anything; those who wait for an end hear of the error, if there is one."""
        self.committed(0)
        for instance in self._watchers:
            self._tell_watchers(instance)
        for waiters in self._waiters.values():
            for _, waiter in waiters:
                if waiter.done():
                    continue
                if error is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(fresh(error))

    def close(self) -> None:
        self.fallen(EngineClosed("the engine was closed; what it had acknowledged goes on at the next open"))


class FleetConnection(LocalConnection):
    """The connection of a process that runs some of the shards: what lives on another one goes through the database."""

    def __init__(
        self, queries: Queries, failed: Callable[[Report], None], fleet: FleetFace, relay: FrameRelay | None = None
    ) -> None:
        super().__init__(queries, failed)
        if relay is not None:
            self.streams = RelayedStreams(relay, self.progress)
        self._fleet = fleet
        self._remote = RemoteConnection(queries)
        self._by_inbox: dict[Ref, None] = {}  # who was sent something that way, the last ones
        self.lead_to(fleet.shard_of)
        fleet.moved = self.reloaded
        fleet.redefined = self.redefined

    async def put(self, to: Ref, event: Event, *, new: bool = False) -> int:
        if self._fallen is not None:
            raise fresh(self._fallen)
        shard = self._shard_of(to)
        if shard is not None and shard.takes and to not in self._by_inbox:  # nothing overtakes what waits there
            try:
                return await self._offer(shard, to, event, new)
            except (Fenced, EngineClosed):  # it has just gone elsewhere, and nothing of this was recorded
                pass
            except UnknownInstance:  # or its start is on its way, from another shard
                pass
        self._by_inbox[to] = None
        if len(self._by_inbox) > BY_INBOX_MAX:
            del self._by_inbox[next(iter(self._by_inbox))]
        return await self._remote.put(to, event, new=new)

    async def outcome(self, address: Address, instance: int, timeout: float | None) -> Outcome:
        if timeout is not None:
            return await super().outcome(address, instance, timeout)
        while True:
            if self._shard_of(instance or address) is not None:
                outcome = await self._look_or_wait(address, instance)
                if outcome is not None:
                    return outcome
            elif self._fallen is not None:
                raise fresh(self._fallen)
            else:
                with suppress(ResultTimeout):
                    return await self._remote.outcome(address, instance, MOVED_SECONDS)

    async def changes(self, instance: int, name: str = "") -> AsyncGenerator[None, None]:
        while True:  # a shard may go to another process, and come back
            here = self._runs_here(instance)
            mine = super().changes(instance, name) if here else self._remote.changes(instance, name)
            async with aclosing(mine) as changes:
                async for change in changes:
                    if here is not self._runs_here(instance):
                        break
                    yield change

    def _runs_here(self, instance: int) -> bool:
        return instance != 0 and self._shard_of(instance) is not None

    async def reached(self, seq: int) -> None:
        await self._remote.reached(seq)

    def posted(self, rows: Sequence[InboxRow]) -> None:
        self._fleet.posted(rows)

    def ended(self, instance: int, address: Address, outcome: Outcome) -> None:
        super().ended(instance, address, outcome)
        self._fleet.hint_others()

    def stuck(self, instance: int, address: Address, stuck: Stuck) -> None:
        super().stuck(instance, address, stuck)
        self._fleet.hint_others()

    def published(self, instance: int, name: str) -> None:
        super().published(instance, name)
        self._fleet.hint_others()
        if name == REGISTER:
            self._fleet.hint_redefined()

    def fallen(self, error: Exception) -> None:
        if isinstance(error, EngineClosed):
            super().fallen(error)
        else:
            self._fleet.sweep()  # one shard of several: callers that wait for its instances look where it is now


class RemoteConnection:
    """Posts events into the inbox table, and looks for outcomes whenever the database has changed."""

    def __init__(self, queries: Queries, relay: FrameRelay | None = None) -> None:
        self.loop = asyncio._get_running_loop()
        self.queries = queries
        self._policies = Policies()
        self._streams = None if relay is None else RelayedStreams(relay)

    async def policy(self, workflow: str) -> Policy:
        return await self._policies.of(self.queries, workflow)

    async def _check_entry(self, to: Ref, entry: int) -> None:
        """An engine refuses another last entry, and its caller would not hear that: so it is checked here, too."""
        head = await self.queries.head(to)
        if head is not None:
            reader, _ = await read_history(self.queries, head.id)
            if reader.state.version != entry:
                text = f"the last entry of {reader.state.address} is {reader.state.version}, not {entry}"
                raise refusal(Refused("version-conflict", text))

    async def put(self, to: Ref, event: Event, *, new: bool = False) -> int:
        said = asked_of(event)
        if said is not None and said.if_entry is not None:
            await self._check_entry(to, said.if_entry)
        start = input_hash(event.input) if isinstance(event, Started) else None
        reuse = event.reuse if isinstance(event, Started) else ""
        row = inbox_row(os.urandom(16), to, event, time.time_ns())
        posted = await self.queries.post(row, start=start, reuse=reuse)
        if posted.refused:
            raise refusal(Refused(posted.refused, posted.reason))  # type: ignore[arg-type]
        return 0 if isinstance(to, Address) else to

    async def changes(self, instance: int, name: str = "") -> AsyncGenerator[None, None]:
        while True:
            seen = await self.queries.changed()
            yield
            while await self.queries.changed() == seen:
                await self.queries.change(seen)

    async def reached(self, seq: int) -> None:
        await reached(self, seq)

    async def outcome(self, address: Address, instance: int, timeout: float | None) -> Outcome:
        try:
            async with asyncio.timeout(timeout), aclosing(self.changes(instance)) as changes:
                async for _ in changes:
                    outcome = await look(self.queries, address, instance)
                    if outcome is not None:
                        return outcome
        except TimeoutError:
            raise ResultTimeout(f"{address} had not ended after {timeout} s; it goes on if an engine runs") from None
        raise AssertionError("changes end by an error only")

    @property
    def streams(self) -> Streams:
        if self._streams is not None:
            return self._streams
        raise NotInThisProcess(
            "frames are seen in the process of the engine only, and this client is in another one; "
            "let the instance publish what others shall see (ctx.publish), and read it with handle.read(...)"
        )

    def progress(self, instance: int) -> list[Frame]:
        return []

    def in_force(self) -> str:
        return ""

    def entropy(self) -> bytes:
        return os.urandom(16)


def fresh(error: Exception) -> Exception:
    """The same error for one more caller: an object that is raised again keeps the tracebacks of all before."""
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    again.__cause__ = error.__cause__
    return again


def _nowhere(ref: Ref) -> Shard | None:
    return None


async def reached(connection: Connection, seq: int) -> None:
    async with aclosing(connection.changes(0)) as changes:
        async for _ in changes:
            if await connection.queries.height() >= seq:
                return


async def look(queries: Queries, address: Address, instance: int) -> Outcome | None:
    """How an instance ended, or None while it goes on. One that is stuck does not go on by itself: that is raised."""
    head = await queries.head(instance or address)
    if head is None:
        return None
    if head.reason == FORGOTTEN:
        raise InstanceForgotten(str(address), head.status)
    if head.status in TERMINAL and head.outcome is not None:
        return decode_outcome(head.outcome)
    if head.status == Status.STUCK:
        history, _ = await read_history(queries, head.id)
        stuck = history.state.stuck
        if stuck is not None:
            raise InstanceStuck(str(address), stuck.error, stuck.location)
    return None
