"""One instance, as callers hold it: its result, its messages, its values, its past, and what is done to it.

It speaks through a `Connection` (`connection.py`), and reads what is durable.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Final, Generic, Literal, TypeVar, Unpack

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.errors import (
    AskTimeout,
    CallerError,
    InstanceCancelled,
    InstanceEnded,
    InstanceFailed,
    InstanceForgotten,
    InstanceStuck,
    KeyInUse,
    NotAnswered,
    NotStuck,
    ResultTimeout,
    TooLarge,
    UnknownInstance,
    UnknownLocation,
)
from perdure.kernel.decision import Outcome
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Address, CancelAsked, Message, Ref, Retried, Rewound, Settled, Started, Tagged, Woken
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.location import Patterns, is_sleep
from perdure.kernel.past import Behind, Point
from perdure.kernel.policy import Verb
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.refusals import rewind_refusal
from perdure.kernel.retention import FORGOTTEN
from perdure.kernel.rows import StoredInstance, response_name
from perdure.kernel.status import TERMINAL, Status, ended
from perdure.kernel.tags import TagValue
from perdure.kernel.workflows import Workflows
from perdure.ports.frame import Frame
from perdure.ports.seen import Line, Summary, Waiting
from perdure.ports.store import Queries

from .arguments import Asking, Said, asked, checked_key, checked_tag, checked_text, limited, seconds_of, unknown
from .connection import AFTER_THE_END, Connection, Speaker, refusal
from .history import Reader, read_history, summary
from .open_effects import intent_id
from .policies import refuse_by_policy
from .startable import Named, Startable
from .state import check_answer, draw_instance, read_state, version_in
from .streams import Streams

R = TypeVar("R")
NEAR_MAX: Final = 3  # so many locations are proposed


Restored = Callable[[Queries, str, str], Awaitable[Any]]
"""The workflow of a name and a version whose definition the database has; None: it has none."""


class Handle(Speaker, Generic[R]):
    """One instance, seen from outside. All methods are awaitable, and none of them holds anything back from others."""

    def __init__(
        self,
        connection: Connection,
        address: Address,
        workflow: Startable[Any],
        instance: int | None,
        workflows: Workflows[Startable[Any]],
        *,
        restored: Restored | None = None,
    ) -> None:
        super().__init__(connection)
        self._workflow = workflow
        self._workflows = workflows
        self._restored = restored
        self._instance = instance  # None: find it by name; 0: it is on its way to an engine
        self.address = address

    @property
    def workflow(self) -> str:
        return self.address.workflow

    @property
    def key(self) -> str:
        return self.address.key

    @property
    def id(self) -> str:
        """`workflow/key` as a text, for `engine.handle(id)`, a database or a URL."""
        return str(self.address)

    def __repr__(self) -> str:
        return f"<handle {self.address}>"

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait for the end. Raises `InstanceFailed`, `InstanceCancelled`, `InstanceStuck`, or `ResultTimeout`."""
        if self._instance is None:
            await self._look()
        seconds = seconds_of(timeout)
        outcome = await self._connection.outcome(self.address, self._instance or 0, seconds)
        match outcome.status:
            case Status.COMPLETED:
                return await self._decoded(outcome.value)
            case Status.CANCELLED:
                reason = outcome.error.message if outcome.error is not None else ""
                raise InstanceCancelled(str(self.address), reason)
            case _:
                raise _with_recorded(InstanceFailed(str(self.address), outcome.error), outcome.error)

    async def _decoded(self, value: bytes | None) -> R:
        if value is None:
            return None  # type: ignore[return-value]
        workflow = self._workflow
        if self._workflows.several(workflow.name):  # a caller that has the key need not know the version
            workflow = self._workflows.of(workflow.name, (await self.summary()).version) or workflow
        return workflow.decode_result(value)  # type: ignore[no-any-return]

    async def status(self) -> Status:
        head = await self._connection.queries.head(await self._id())
        assert head is not None
        return Status(head.status)

    async def until(self, status: str, timeout: float | timedelta | None = None) -> None:
        """Wait until the instance has this status, such as "waiting": it waits for a message, a time or a child.

        Raises `InstanceStuck` or `InstanceEnded` if it cannot get there by itself, `ResultTimeout` when time is up.
        """
        if status not in list(Status):
            raise CallerError(unknown("status", status, list(map(str, Status)), "name one of these"))
        seconds = seconds_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                await self._until(Status(status))
        except TimeoutError:
            raise ResultTimeout(f"{self.address} was not {status} after {seconds} s; it goes on") from None

    async def _until(self, status: Status) -> None:
        instance = await self._id_soon()
        async with aclosing(self._connection.changes(0)) as changes:
            async for _ in changes:
                head = await self._connection.queries.head(instance)
                assert head is not None
                if head.status == status:
                    return
                if head.status in TERMINAL:
                    raise InstanceEnded(f"{self.address} {ended(Status(head.status))} and will not be {status}")
                if head.status == Status.STUCK:
                    await self._raise_stuck()

    async def _raise_stuck(self) -> None:
        stuck = (await self._read()).state.stuck
        if stuck is not None:
            raise InstanceStuck(str(self.address), stuck.error, stuck.location)

    async def send(self, name: str, body: object = None, *, intent: str = "", **said: Unpack[Said]) -> None:
        """Send a message; durable when this returns. The same `id` twice is delivered once.

        `by` is who asks, `reason` why; both are recorded. `if_entry`: `VersionConflict` if the last entry is another.
        `intent` binds the message to one open wait (`handle.waiting()`): if that is over, the message does nothing.
        """
        await self._refuse("send")
        plain = to_plain(body)
        value = limited(encode(plain), f"message {name!r}")
        if hasattr(self._workflow, "refuse_message") or (isinstance(self._workflow, Named) and self._restored):
            await self._judge(name, plain)
        id = said.pop("id", None)
        if id is not None:
            checked_text(id, "the id of a message")
        name = checked_text(name, "the name of a message")
        bound = intent_id(intent) if intent else b""
        message = Message(name, value, id or os.urandom(16).hex(), asked=asked(said), intent=bound)
        await self._connection.put(self._to(), message)

    async def _judge(self, name: str, body: Any) -> None:
        """Refuse a message before it is recorded, where the definition that its instance runs on is at hand."""
        queries, workflow = self._connection.queries, self.address.workflow
        head = await queries.head(self._to())
        version = "" if head is None else head.version
        known: Any = self._workflows.exactly(workflow, version) or self._workflow
        if known.version != version and "+" in version and self._restored is not None:  # a definition that is data
            known = await self._restored(queries, workflow, version)
        if known is not None and known.version == version and hasattr(known, "refuse_message"):
            known.refuse_message(name, body)

    async def ask(
        self, name: str, body: object = None, timeout: float | timedelta | None = None, **said: Unpack[Said]
    ) -> Any:
        """Send a message and wait for its response: what the flow passes to `message.complete(response)`.

        The message is durable like any other. Who asks again with the same `id` hears the same response. Raises
        `AskTimeout`, or `NotAnswered` when the instance ended without an answer.
        """
        seconds = seconds_of(timeout)
        id = said.get("id")
        if id is None:
            id = said["id"] = os.urandom(16).hex()
        else:
            name_of_response = response_name(checked_text(id, "the id of a message"))
            known = await self._connection.queries.published(await self._id_soon(), name_of_response)
            if known is not None:
                return decode(known)
        await self.send(name, body, **said)
        if seconds is None:
            return await self._response(name, id)
        try:
            async with asyncio.timeout(seconds):
                return await self._response(name, id)
        except TimeoutError:
            raise AskTimeout(
                f"{self.address} had not answered {name!r} after {seconds} s; it may yet: ask again with id={id!r}"
            ) from None

    async def _response(self, name: str, id: str) -> Any:
        async with aclosing(self._values(response_name(id), until_stuck=True)) as values:
            async for value in values:
                return decode(value)
        raise NotAnswered(f"{self.address} has ended without an answer to {name!r}; nobody completed the message")

    async def watch(self, name: str) -> AsyncGenerator[Any, None]:
        """The value published under a name, and every new one, until the instance has ended.

        A slow reader finds the newest value, not each that there was.
        """
        async with aclosing(self._values(name)) as values:
            async for value in values:
                yield decode(value)

    async def _values(self, name: str, until_stuck: bool = False) -> AsyncGenerator[bytes, None]:
        queries, seen = self._connection.queries, None
        instance = await self._id_soon()
        async with aclosing(self._connection.changes(instance, name)) as changes:
            async for _ in changes:
                head = await queries.head(instance)  # before the value: what is published last is not missed
                value = await queries.published(instance, name)
                if value is not None and value != seen:
                    seen = value
                    yield value
                if head is not None and head.status in TERMINAL:
                    return
                if until_stuck and head is not None and head.status == Status.STUCK:
                    await self._raise_stuck()

    async def wake(self, location: str = "", **said: Unpack[Said]) -> None:
        """End a sleep early: the one at a location, or all that the instance is in. Recorded."""
        await self._refuse("wake")
        reader = await self._read()
        if reader.state.ended:
            raise InstanceEnded(f"{self.address} {ended(reader.state.status)} and takes no more events{AFTER_THE_END}")
        sleeps = [open.location for open in reader.waiting() if open.kind == "timer" and is_sleep(open.location)]
        if not sleeps or (location and location not in sleeps):
            where = f" at {location!r}" if location else ""
            known = (
                f", but at {', '.join(sleeps)}; name one, or none to wake all"
                if sleeps
                else "; there is nothing to wake"
            )
            raise UnknownLocation(f"{self.address} does not sleep{where}{known}")
        await self._connection.put(self._to(), Woken(location, asked(said)))

    async def tag(self, name: str, value: TagValue | None, **said: Unpack[Said]) -> None:
        """Give the instance a tag, or another value of one; None removes it. Recorded, and listed when this returns.

        An instance that has ended keeps the tags that it has: `InstanceEnded`.
        """
        await self.tags({name: value}, **said)

    async def tags(self, given: Mapping[str, TagValue | None], **said: Unpack[Said]) -> None:
        """The same for several tags, as one entry."""
        await self._refuse("cancel")
        tags = {name: checked_tag(name, value) for name, value in given.items()}
        await self._connection.put(self._to(), Tagged(tags, asked(said)))

    async def cancel(self, reason: str = "", undo: bool = False, **said: Unpack[Asking]) -> None:
        """Ask the instance to stop. Acknowledged when recorded; from then on it can only end cancelled.

        `undo`: completed steps that have an `undo` are undone, the last one first.
        """
        await self._refuse("cancel")
        text = checked_text(reason or " ", "a reason").strip()
        await self._connection.put(self._to(), CancelAsked(text, undo=undo, asked=asked(said)))

    async def retry(self, **said: Unpack[Said]) -> None:
        """Try again, after whatever was wrong has been put right.

        A stuck instance goes on where it stopped. One that has failed does again what failed, in all branches, and what
        was undone; all else stays done.
        """
        head = await self._connection.queries.head(self._to())
        if head is None or head.status != Status.FAILED:
            await self._connection.put(self._to(), Retried(asked(said)))
        else:
            await self._refuse("retry")
            event = (await self._behind()).retry() or (await self._behind(whole=True)).retry()
            assert event is not None, "the whole past has all that was done"
            await self._rewind(event, said)

    async def rewind(self, to: str, *, force: bool = False, dry_run: bool = False, **said: Unpack[Said]) -> list[str]:
        """Go back to the operation at a location: it and all that came after it did not happen, and are done again.

        What came before is kept: answers, messages, sleeps, versions. Raises `StillRunning` while a step runs that
        would be dropped; `force` cancels it. Values that were published stay readable. Gives the locations that are
        dropped; `dry_run` does nothing else, and is refused as the rewind itself would be.
        """
        await self._refuse("rewind")
        behind = await self._behind()
        if behind.point_of(checked_text(to, "a location")) is None:
            behind = await self._behind(whole=True)
        point = self._point(behind, to)
        event = behind.rewind(to, point, force)
        against = rewind_refusal(behind.instance, event)
        if against is not None:  # an engine in another process would refuse it, and its caller would not hear that
            raise refusal(against)
        if not dry_run:
            await self._rewind(event, said)
        return behind.dropped(point)

    async def fork(
        self, at: str, edit: Mapping[str, Any] | None = None, *, key: str | None = None, **said: Unpack[Said]
    ) -> Handle[R]:
        """Start another instance that has the same behind it, up to the operation at a location, and goes on there.

        `edit` has other values for steps that were answered before, by location. If it has one for the operation at
        `at` itself, that is not done again: the fork goes on after it. This instance goes on as it was. The same fork
        under its `key` again is the same instance; another instance of that key is `KeyInUse`.
        """
        address, event, made = await self._fork(at, edit or {}, key, said)
        instance = await self._connection.put(address, event, new=key is None) if made is None else made
        return Handle(self._connection, address, self._workflow, instance, self._workflows)

    async def _fork(
        self, at: str, edit: Mapping[str, Any], key: str | None, said: Said
    ) -> tuple[Address, Started, int | None]:
        """The name and the start of a fork, and its number if this very fork was made before. Raises its refusals."""
        await self._refuse("fork")
        behind = await self._behind(whole=True)
        point = self._point(behind, at)
        if edit and at in edit:
            point = behind.answer_at(at) or point
        if behind.cancelled(point):
            raise CallerError(f"{self.address} was cancelled before {at!r}: a fork there would be cancelled too")
        answered, values = behind.answered(point), dict(edit)
        for location in values.keys() - answered:
            names = ", ".join(sorted(answered)) or "nothing"
            raise UnknownLocation(f"{self.address} had no answer at {location!r} before {at!r}; it had: {names}")
        address = Address(self.workflow, checked_key(key))
        seed, state = self._connection.entropy(), behind.instance
        forked = _bounded(
            behind.fork(address.key, at, point, {each: encode(to_plain(values[each])) for each in values})
        )
        event = Started(
            self.workflow,
            address.key,
            behind.input,
            seed,
            state.definition,
            tags=state.tags,
            forked=forked,
            asked=asked(said),
        )
        head = None if key is None else await self._connection.queries.head(address)
        if head is not None and await self._first_event_forked(head.id) != forked:
            raise KeyInUse(f"{address} exists already; a fork needs a key of its own")
        return address, event, None if head is None else head.id

    async def _first_event_forked(self, instance: int) -> Rewound | None:
        """What an instance was forked with; None: it is no fork, or its history was removed."""
        rows = await self._connection.queries.history(instance, limit=1)
        events = [decode_entry(row.seq, row.instance, row.at, row.body, Patterns()).event for row in rows]
        return next((event.forked for event in events if isinstance(event, Started)), None)

    def _point(self, behind: Behind, location: str) -> Point:
        point = behind.point_of(checked_text(location, "a location"))
        if point is None:
            known = sorted(behind.locations())
            near = [each for each in known if each.endswith(f"/{location}")][:NEAR_MAX]
            near = near or difflib.get_close_matches(location[:200], known, n=1)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else "`perdure history` shows where it did"
            raise UnknownLocation(f"{self.address} did nothing at {location!r}; {meant}")
        return point

    async def _rewind(self, event: Rewound, said: Said) -> None:
        last = await self._connection.queries.head(self.address)
        if last is not None and last.id != await self._id():
            raise CallerError(f"{self.address} was started again since: only the last one can go back")
        await self._connection.put(self._to(), _bounded(msgspec.structs.replace(event, asked=asked(said))))

    async def _behind(self, *, whole: bool = False) -> Behind:
        """From the last snapshot on, or from the beginning."""
        instance = await self._id()
        record = None if whole else await self._connection.queries.record(instance)
        if record is not None and record.head.reason == FORGOTTEN:
            raise InstanceForgotten(str(self.address), record.head.status)
        if record is None or record.snapshot is None:
            return Behind(self.address, await self._connection.queries.history(instance))
        return Behind(self.address, record.rows, record.snapshot)

    async def settle(
        self, location: str, value: object = None, *, error: str | None = None, **said: Unpack[Said]
    ) -> None:
        """Answer for a step whose outcome is unknown, and at which the instance is stuck: its value, or its error.

        `retry()` instead says: it had no effect, run it again.
        """
        if error is not None and value is not None:
            raise CallerError("settle takes the value of a step, or its error, not both")
        plain = to_plain(value)
        await self._check_settle(location, plain, ok=error is None)
        receipt = Receipt("ok", limited(encode(plain), f"the value for {location!r}"))
        if error is not None:
            receipt = Receipt("error", error=Failure("Settled", checked_text(error, "an error"), retry=False))
        await self._connection.put(self._to(), Settled(checked_text(location, "a location"), receipt, asked(said)))

    async def _check_settle(self, location: str, answer: Any, *, ok: bool) -> None:
        """Raise why an answer is refused."""
        state = (await self._read()).state
        stuck = state.stuck
        if stuck is None:
            raise NotStuck(f"{self.address} is {state.status}, not stuck: there is nothing to answer for")
        if stuck.kept:
            raise UnknownLocation(f"{self.address} is not stuck at {location!r}: its code stopped; retry or cancel it")
        if stuck.location != location:
            raise UnknownLocation(f"{self.address} is not stuck at {location!r} but at {stuck.location!r}; settle that")
        if ok:
            check_answer(self._workflows, await self._connection.queries.record(await self._id()), location, answer)

    async def read(self, name: str) -> Any:
        """The last value that the instance published under a name, or None."""
        value = await self._connection.queries.published(await self._id(), name)
        return None if value is None else decode(value)

    async def state(self) -> Any:
        """The state of an instance whose state is a value, rebuilt from its journal; None once it has ended.

        The code of its workflow is needed: `perdure.connect(url, workflows=[...])`.
        """
        return read_state(self._workflows, await self._connection.queries.record(await self._id()))

    async def draw(
        self,
        format: Literal["svg", "mermaid", "json"] = "svg",
        direction: Literal["LR", "TB"] = "LR",
        *,
        at: int | None = None,
    ) -> str:
        """The instance as a picture, with what became of each part.

        The code of its workflow is needed, or its definition in the database.
        `at` is an entry of the journal: the picture is that of then, and nothing in it stands elsewhere.
        """
        id = await self._id()
        rows = [row for row in await self._connection.queries.history(id) if at is None or row.seq <= at]
        head = await self._connection.queries.head(id)
        assert head is not None, "it has a history"
        if not rows:
            raise CallerError(f"at={at}: {self.address} begins after that entry")
        known, record = self._workflows, StoredInstance(head, None, tuple(rows))
        version = version_in(record)
        if self._restored is not None and known.exactly(head.workflow, version) is None:
            stored = await self._restored(self._connection.queries, head.workflow, version)
            known = known if stored is None else Workflows([stored])
        return draw_instance(known, record, format, direction)

    async def history(self) -> list[Line]:
        """Every entry so far, in words."""
        _, lines = await read_history(self._connection.queries, await self._id())
        return lines

    async def waiting(self) -> list[Waiting]:
        """What the instance has open now, with the newest progress of its steps if they run in this process."""
        reader = await self._read()
        return reader.waiting(self._connection.progress(await self._id()))

    async def progress(self) -> list[Frame]:
        """The newest progress of each step that runs now in this process; the others are not seen."""
        return self._connection.progress(await self._id())

    def stream(self) -> AsyncGenerator[Frame]:
        """The frames of the instance, live: from the first `async for` on, each once and in order.

        First comes the newest progress of steps that run already. The stream ends when the instance ends or is stuck,
        or when the engine is closed: `result()` says which. Who takes frames slowly loses some, and never holds up a
        step: progress that was not taken is replaced by newer progress of the same step, and of more than 1000 frames
        that wait the oldest are dropped. Raises `NotInThisProcess` where the engine of a SQLite
        file runs in another process.
        """
        return self._stream(self._connection.streams)

    async def _stream(self, streams: Streams) -> AsyncGenerator[Frame]:
        instance = await self._id()
        stream = streams.open(instance, self._connection.progress(instance))
        end = asyncio.ensure_future(self._connection.outcome(self.address, instance, None))

        def ended(end: asyncio.Future[Outcome]) -> None:
            if not end.cancelled():
                end.exception()  # for `result()` to raise
            asyncio.get_running_loop().call_later(streams.linger_seconds, stream.end)

        end.add_done_callback(ended)
        try:
            while (frame := await stream.take()) is not None:
                yield frame
        finally:
            end.cancel()
            streams.close(instance, stream)

    async def summary(self) -> Summary:
        head = await self._connection.queries.head(await self._id())
        assert head is not None
        return summary(head)

    async def error(self) -> object:
        """Why the instance is stuck or how it failed; None when neither."""
        state = (await self._read()).state
        if state.stuck is not None:
            return state.stuck.error
        return state.outcome.error if state.outcome is not None else None

    async def _read(self) -> Reader:
        reader, _ = await read_history(self._connection.queries, await self._id())
        return reader

    async def _id_soon(self) -> int:
        """The id, also of what is on its way to an engine."""
        if self._instance is None:
            await self._look()
        if self._instance == 0:
            async with aclosing(self._connection.changes(0)) as changes:
                async for _ in changes:
                    head = await self._connection.queries.head(self.address)
                    if head is not None:
                        break
        return await self._id()

    async def _refuse(self, verb: Verb) -> None:
        """The kernel refuses it too; but a client in another process would not hear that."""
        await refuse_by_policy(self._connection, self._workflows, self.workflow, verb)

    def _to(self) -> Ref:
        return self._instance or self.address

    async def _id(self) -> int:
        if not self._instance:
            await self._look()
        if not self._instance:
            raise UnknownInstance(f"{self.address} is recorded, but no engine has taken it up yet")
        return self._instance

    async def _look(self) -> None:
        """Find the id; 0: it is on its way to an engine."""
        queries = self._connection.queries
        head = await queries.head(self.address)
        if head is None and self._instance is None:
            if await queries.undelivered(self.address):
                self._instance = 0
                return
            head = await queries.head(self.address)  # an engine may have taken it up between the two looks
            if head is None:
                raise UnknownInstance(f"there is no instance {self.address}; `perdure ls` lists what exists")
        if head is not None:
            self._instance = head.id


def _bounded(event: Rewound) -> Rewound:
    if len(event.past) > VALUE_MAX:
        raise TooLarge("what the instance has behind it", len(event.past), VALUE_MAX)
    return event


def _with_recorded(error: InstanceFailed, failure: Failure | None) -> InstanceFailed:
    """The error with the recorded tracebacks as notes: where in the author's code it went wrong."""
    for recorded in [] if failure is None else [failure, *failure.causes[-1:]]:
        if recorded.traceback:
            error.add_note(f"recorded:\n{recorded.traceback.rstrip()}")
    return error
