"""Server-sent events: what moved, for the channels that a login watches.

An event's id is the position after it. A stream that was cut resumes there; one that is too far behind gets `gap`, and
its reader reads its pages again.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from perdure.access.model import Login, sees, sees_values
from perdure.kernel.batch import HeadRow
from perdure.kernel.moment import when
from perdure.kernel.placement import NUMBERS
from perdure.kernel.status import TERMINAL
from perdure.runtime.client import Client
from perdure.tasks.model import WORKFLOW as TASK
from perdure.tasks.rights import may_see
from perdure.tasks.row import info_of
from perdure.views.lists import resolved as resolved_terms
from perdure.views.where import TAG, Where, fits, parse

from .api.bulk import own_bulk
from .api.tasks import seen_by
from .feed import Feed, Moved, Position, pack, unpack
from .frames import FrameChannel, frame_document
from .problems import HttpProblem
from .rendering import to_bytes

BEAT_SECONDS: Final = 15.0
RECHECK_SECONDS: Final = 2.5
"""With what a server knows of access for 2 seconds, a right that is revoked anywhere ends a stream within 5."""
EARLY_SECONDS: Final = 0.01
"""A timer of a loop may ring by so much too early."""

WAITING_MAX: Final = 256
CHANNELS_MAX: Final = 100
KINDS: Final = ("instance", "list", "tasks", "fleet", "bulk", "frames")
_NEXT: Final = re.compile(f",(?={'|'.join(KINDS)})")
PERSONAL: Final = frozenset({"tasks", "frames"})
"""Channels that tell two readers with the same grants different things."""

MOVING: Final = frozenset({"status", "version", "waits_for", "error_type", "error_at", "queue", "changed", "ended"})
"""Fields by which an instance enters or leaves a list while it lives."""


class Channel(NamedTuple):
    kind: str
    argument: str
    instance: int = 0
    workflow: str = ""
    where: Where = ()
    key: str = ""

    def concerns(self, head: HeadRow, tagged: bool) -> bool:
        """Whether an entry of an instance, which has changed its tags or not, can be an event of this channel, for any
        reader. What an instance has no longer is no reason to leave it out: it may leave the list.
        """
        match self.kind:
            case "tasks":
                return head.workflow == TASK
            case "instance" | "bulk" | "frames":
                return head.id == self.instance
            case "list":
                moving = {
                    term for term in self.where if term.field in MOVING or (tagged and term.field.startswith(TAG))
                }
                return fits(tuple(term for term in self.where if term not in moving), head)
            case _:
                return True


def read_channels(texts: Iterable[str]) -> list[tuple[str, str]]:
    """A filter may have commas: the next channel begins with a word of its own."""
    found = []
    for text in [each for several in texts for each in _NEXT.split(several)]:
        kind, _, argument = text.partition(":")
        if (
            kind not in KINDS
            or (kind in ("instance", "bulk", "frames") and not argument)
            or (kind == "tasks" and argument != "mine")
        ):
            channels = "instance:ID, list:FILTER, tasks:mine, frames:ID, bulk:ID, fleet"
            raise HttpProblem(422, "bad-request", f"there is no channel {text[:80]!r} (there are: {channels})")
        found.append((kind, argument))
    if not found:
        raise HttpProblem(422, "bad-request", "a stream needs a channel: ?channels=fleet")
    found = [*dict.fromkeys(found)]
    if len(found) > CHANNELS_MAX:
        text = f"a stream has at most {CHANNELS_MAX} channels, found {len(found)}: open another one"
        raise HttpProblem(422, "bad-request", text)
    return found


class Stream:
    """One reader. `again` tells whether the login still holds: None ends the stream.

    `titles`: titles of tasks are told, which may have recorded values in them.
    """

    def __init__(  # noqa: PLR0917
        self,
        feed: Feed,
        client: Client,
        login: Login,
        channels: list[Channel],
        again: Callable[[], Awaitable[Login | None]],
        stopping: asyncio.Event,
        notice: Callable[[], str] = str,
        titles: bool = True,
    ) -> None:
        self._feed, self._client, self._login, self._channels = feed, client, login, channels
        self._again, self._stopping, self._notice, self._titles = again, stopping, notice, titles
        self._frames: dict[Channel, FrameChannel] = {}
        self._is_alike = not any(channel.kind in PERSONAL for channel in channels)

    async def events(self, last: str | None) -> AsyncIterator[bytes]:
        woken = await self._feed.join()
        try:
            position, n = dict(self._feed.position), self._feed.n
            yield f"retry: {random.randint(500, 2500)}\n\n".encode()
            if last is not None:
                known = unpack(last)
                missed = None if known is None else await self._feed.missed(known)
                if missed is None or known is None:
                    yield event("gap", {}, pack(position))
                else:
                    moved, now, n = missed
                    position = {shard: known.get(shard, shard * NUMBERS) for shard in now}
                    async for each in self._told(moved, position):
                        yield each
                    position = now
            notice = self._notice()
            yield event("live", {"notice": notice} if notice else {}, pack(position))  # pages do not blink
            if notice:
                yield event("notice", {"text": notice})
            for channel in self._channels:
                if channel.kind == "frames":
                    self._frames[channel] = FrameChannel(self._client, channel.workflow, channel.key, woken.set)
                    self._frames[channel].open()
            async for each in self._live(woken, position, n):
                yield each
        finally:
            self._feed.leave(woken)
            for frames in self._frames.values():
                await frames.close()

    async def _live(self, woken: asyncio.Event, position: Position, n: int) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        notice = self._notice()
        beat, check = loop.time() + BEAT_SECONDS, loop.time() + RECHECK_SECONDS
        timer = loop.call_at(min(beat, check), woken.set)  # one for many events: a timeout for each costs as much as it
        try:
            while not self._stopping.is_set() and not self._feed.failed:
                await woken.wait()
                woken.clear()
                now = loop.time() + EARLY_SECONDS
                if now >= check:
                    check = now + RECHECK_SECONDS
                    again = await self._again()
                    if again is None or any(self._lost(again, channel) for channel in self._channels):
                        break
                    self._login = again
                if notice != self._notice():
                    notice = self._notice()
                    yield event("notice", {"text": notice})
                if now >= beat:
                    beat = now + BEAT_SECONDS
                    yield b": still here\n\n"
                if now >= timer.when():
                    timer = loop.call_at(min(beat, check), woken.set)
                for channel, frames in self._frames.items():
                    shows = sees_values(self._login, channel.workflow) and self._titles
                    for frame in frames.take():
                        yield event("frame", frame_document(frame, shows))
                since, n, reached = n, self._feed.n, dict(self._feed.position)
                if told := await self._news(since, n, position, reached):
                    yield told
                position = reached
        finally:
            timer.cancel()
        yield event("bye", {"retry": random.randint(500, 5000)})

    async def _news(self, since: int, n: int, position: Position, reached: Position) -> bytes:
        """The events between two entries that the feed told, each with its position.

        Readers of the same channels with the same grants get the same bytes: for a thousand of them they are made once.
        """
        readers = (since, n, tuple(self._channels), self._login.grants)
        if self._is_alike and (told := self._feed.told.get(readers)) is not None:
            return told
        moved = self._feed.since(since)
        if moved is not None:
            moved = [each for each in moved if self._concerns(each)]
        if moved is None or len(moved) > WAITING_MAX:
            told = event("gap", {}, pack(reached))
        else:
            told = b"".join([each async for each in self._told(moved, position)])
        if self._is_alike:
            self._feed.told[readers] = told
        return told

    def _concerns(self, moved: Moved) -> bool:
        return moved.head is not None and any(channel.concerns(moved.head, moved.tagged) for channel in self._channels)

    def _lost(self, now: Login, channel: Channel) -> bool:
        return may_watch(self._login, channel) and not may_watch(now, channel)

    async def _told(self, moved: list[Moved], position: Position) -> AsyncIterator[bytes]:
        """The events of what moved. A head is told once, with the last of its entries.

        The last event of an entry has its position, those before it the one of the entry before: a stream that is cut
        between them goes on with that entry, and loses none of its events.
        """
        last = {each.instance: each.seq for each in moved}
        tagged = {each.instance for each in moved if each.tagged}
        for each in moved:
            before = pack(position)
            position[each.seq // NUMBERS] = each.seq
            told: list[tuple[str, Any]] = []
            each = each._replace(tagged=each.instance in tagged)  # noqa: PLW2901
            if each.head is not None:
                newest = last[each.instance] == each.seq
                for channel in self._channels:
                    told += await self._of(channel, each, each.head, newest)
            for name, data in told[:-1]:
                yield event(name, data, before)
            for name, data in told[-1:]:
                yield event(name, data, pack(position))

    async def _of(self, channel: Channel, moved: Moved, head: HeadRow, newest: bool) -> list[tuple[str, Any]]:
        if channel.kind == "tasks":
            return await self._task(head) if newest and head.workflow == TASK else []
        if channel.kind == "bulk":
            return [("head", document(head))] if newest and channel.instance == head.id else []
        if not sees(self._login, head.workflow):
            return []
        match channel.kind:
            case "instance" if channel.instance == head.id:
                entry = ("entry", {"id": f"{head.workflow}/{head.key}", "seq": str(moved.seq), "at": when(moved.at)})
                return [entry, ("head", document(head))] if newest else [entry]
            case "list" if newest and channel.concerns(head, moved.tagged):
                fit = fits(channel.where, head)
                return [("head", {**document(head), "filter": channel.argument, "fits": fit})]
            case "frames" if newest and channel.instance == head.id:
                if head.status not in TERMINAL and channel in self._frames:
                    self._frames[channel].open()  # it may have ended before: a retry goes on
            case "fleet" if newest:
                return [("count", {"workflow": head.workflow, "status": head.status})]
        return []

    async def _task(self, head: HeadRow) -> list[tuple[str, Any]]:
        row = await self._client.queries.task(head.id)
        if row is None:
            return []
        info = info_of(row)
        if not may_see(info.standing, self._login.actor):
            return []
        info = seen_by(self._login, info)
        title = info.title if self._titles else info.name
        return [("task", {"id": info.id, "status": info.status, "title": title, "assignee": info.assignee})]


def may_watch(login: Login, channel: Channel) -> bool:
    """Whether a login sees what a channel is about; of a list, any workflow."""
    return channel.kind == "tasks" or sees(login, channel.workflow)


def document(head: HeadRow) -> dict[str, Any]:
    """A head as the events of streams have it."""
    return {
        "id": f"{head.workflow}/{head.key}",
        "instance": str(head.id),
        "workflow": head.workflow,
        "status": head.status,
        "changed_at": when(head.changed_at),
        "reason": head.reason,
    }


def event(name: str, data: Any, id: str = "") -> bytes:
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + to_bytes(data) + b"\n\n"


async def resolved(client: Client, login: Login, wanted: list[tuple[str, str]], find: Any) -> list[Channel]:
    """Channels whose subjects the login may see."""
    found = []
    for kind, argument in wanted:
        if kind == "instance":
            head = await find(argument)
            found.append(Channel(kind, argument, head.id, head.workflow))
        elif kind == "frames":
            head = await find(argument)
            client.handle(head.workflow, head.key).stream()  # raises where frames are not seen
            found.append(Channel(kind, argument, head.id, head.workflow, key=head.key))
        elif kind == "bulk":
            found.append(Channel(kind, argument, (await own_bulk(client, login, argument)).id))
        elif kind == "list":
            where = await resolved_terms(client.queries, parse(argument), lambda workflow: sees(login, workflow))
            found.append(Channel(kind, argument, where=where))
        else:
            found.append(Channel(kind, argument))
    return found
