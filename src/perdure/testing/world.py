"""The world of a test: a whole engine in memory, on a clock that the test moves. No server, no network, no sleeps.

    def test_an_order_is_shipped_after_its_week(world):
        world.script("charge", returns="c-1")
        handle = world.start(order, "o-17", 4200, key="o-17")

        world.advance(timedelta(days=7))

        assert handle.result() == "shipped"

It is the real engine: shard, kernel and a memory store, and the real client on top. Only time is not real, and
everything runs on the thread of the test: when a call returns, all that needs no time has happened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, Self, TypeVar, Unpack, overload

from perdure.cells.author import Cell, Datum, Effect
from perdure.cells.bound_manifest import Catalog, Definition
from perdure.codec import decode, encode, to_plain
from perdure.errors import CallerError, NotAnswered, NotYet
from perdure.executors import info
from perdure.kernel.asked import Actor
from perdure.kernel.decision import Outcome
from perdure.kernel.events import Address, Event, Ref
from perdure.kernel.mailbox import Accepted, Refused
from perdure.kernel.moment import when
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.rows import response_name
from perdure.kernel.status import TERMINAL, Status
from perdure.kernel.tags import TagValue
from perdure.ports.frame import Frame
from perdure.ports.seen import Line, Summary, Waiting
from perdure.ports.store import Queries
from perdure.runtime.arguments import Asking, Said, start_due, unknown
from perdure.runtime.client import Client, Reuse
from perdure.runtime.connection import refusal
from perdure.runtime.connections import look
from perdure.runtime.handle import Handle
from perdure.runtime.history import Reader
from perdure.runtime.migration import Migration
from perdure.runtime.policies import Policies
from perdure.runtime.startable import Startable
from perdure.runtime.state import Stateful
from perdure.runtime.streams import Streams
from perdure.runtime.virtual_clock import SECOND
from perdure.stores.memory import MemoryStore
from perdure.views.export import write

from .cells import NO_ANSWER, OpenEffect, answer_open, find_open, open_effects, send_frame, state_of
from .disks import at_once
from .faults import Faults
from .steps import Run, Script
from .tasks import WorldTasks
from .user_simulation import UserSimulation

if TYPE_CHECKING:
    from perdure.worlds.snapshots import Taken

R = TypeVar("R")

_UNSET: Any = object()

PATIENCE: Final = 60 * SECOND
"""How long who asks waits for the answer where faults may delay it."""

DONE_BEFORE: Final = ("ended", "not-stuck")
"""How a request is refused that was recorded before, and is made again because its answer was lost."""


class World:
    """See the module. `workflows` run in it from the start; others are taken up when they are first started.

    Cells, or a manifest of them, are workflows too. Effects whose handler is among `handlers` are performed; the others
    stay open until the test answers them with `receipt`.
    `now`: what its clock shows at first. `cache=0` evicts every instance after every entry, so that all of them live
    by replay alone. `seed` decides the dice: `ctx.random`, `ctx.uuid`, `ctx.entropy`.
    """

    def __init__(
        self,
        *workflows: Any,
        handlers: Iterable[Any] = (),
        now: datetime | None = None,
        cache: int = 4096,
        seed: int = 0,
    ) -> None:
        simulation = UserSimulation(*workflows, seed=seed, faults=Faults(cache=cache), handlers=handlers)
        simulation.hooks = True
        if now is not None:
            if now.tzinfo is None:
                raise CallerError(f"now={now!r} must be a time with a time zone: datetime(..., tzinfo=UTC)")
            simulation.clock.jump(round(now.timestamp() * SECOND) - simulation.clock.now())
        self._begin(simulation)

    @classmethod
    def _on(cls, simulation: UserSimulation) -> Self:
        """A world on a simulation with faults, or on a file."""
        world = cls.__new__(cls)
        world._begin(simulation)
        world._connection.patience = PATIENCE
        return world

    def _begin(self, simulation: UserSimulation) -> None:
        self._simulation = simulation
        self._connection = WorldConnection(self._simulation)
        self._client = Client(self._connection, self._simulation.workflows, Catalog.read)
        self.tasks = WorldTasks(self._connection)
        """What people are asked for: the verbs of `engine.tasks`, without `await`."""
        self._started = 0
        self._acquaint()
        self._simulation.rest()

    def _acquaint(self) -> None:
        """Workflows that name others find them here."""
        for workflow in self._simulation.workflows:
            if hasattr(workflow, "find"):
                workflow.find = self._simulation.workflows.newest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take everything apart, steps that still wait for something included."""
        self._simulation.close()

    # ---- workflows and their instances -----------------------------------------------------------------

    def register(self, *workflows: Any, handlers: Iterable[Any] = ()) -> None:
        """Run these workflows too. One whose name and version are known takes the place of the one before."""
        self._simulation.register(workflows, handlers)
        self._acquaint()
        self._simulation.rest()

    @overload
    def start(
        self,
        workflow: Startable[R],
        *args: Any,
        key: str | None = ...,
        tags: dict[str, str] | None = ...,
        reuse: Reuse | None = ...,
        at: datetime | None = ...,
        delay: float | timedelta | None = ...,
        parent: WorldHandle[Any] | str | None = ...,
        by: Actor | str | None = ...,
        **kwargs: Any,
    ) -> WorldHandle[R]: ...

    @overload
    def start(
        self,
        workflow: str,
        *args: Any,
        key: str | None = ...,
        tags: dict[str, str] | None = ...,
        reuse: Reuse | None = ...,
        at: datetime | None = ...,
        delay: float | timedelta | None = ...,
        parent: WorldHandle[Any] | str | None = ...,
        by: Actor | str | None = ...,
        **kwargs: Any,
    ) -> WorldHandle[Any]: ...

    def start(
        self,
        workflow: Startable[Any] | str,
        *args: Any,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        reuse: Reuse | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        parent: WorldHandle[Any] | str | None = None,
        by: Actor | str | None = None,
        **kwargs: Any,
    ) -> WorldHandle[Any]:
        """Start an instance, as `engine.start` does. Without a key it gets a number."""
        name, version = str(getattr(workflow, "name", workflow)), getattr(workflow, "version", "")
        known = self._simulation.workflows.exactly(name, version)
        if known is None and hasattr(workflow, "machine"):
            self.register(workflow)
        elif not isinstance(workflow, str) and known is not None and known is not workflow:
            raise CallerError(
                f"another workflow named {known.name!r} runs in this world; world.register(...) puts one in its place"
            )
        if key is None:
            self._started += 1
            key = str(self._started)
        if delay is not None and at is None:
            start_due(None, delay)  # it refuses what is no delay
            at, delay = self.now + _duration(delay), None
        start = self._client.start(
            workflow,
            *args,
            key=key,
            tags=tags,
            reuse=reuse,
            at=at,
            delay=delay,
            parent=parent.id if isinstance(parent, WorldHandle) else parent,
            by=by,
            **kwargs,
        )
        return WorldHandle(self._connection, at_once(start))

    def instances(self, **filters: Any) -> list[Summary]:
        """What exists, the last start first; the filters are those of `engine.instances`."""
        return at_once(self._client.instances(**filters))

    @overload
    def handle(self, workflow: Startable[R], key: str) -> WorldHandle[R]: ...

    @overload
    def handle(self, workflow: str | Cell, key: str = "") -> WorldHandle[Any]: ...

    def handle(self, workflow: Startable[Any] | Cell | str, key: str = "") -> WorldHandle[Any]:
        """An instance that exists already: a child, say, or a cell."""
        if isinstance(workflow, Cell):
            return WorldHandle(self._connection, self._client.handle(self._definition(workflow), key))
        return WorldHandle(self._connection, self._client.handle(workflow, key))

    def migrate(
        self,
        name: str,
        *,
        to: str,
        keys: Iterable[str] | None = None,
        map: Mapping[str, str] | None = None,
        dry_run: bool = False,
        **said: Unpack[Said],
    ) -> Migration:
        """Let instances of a process go on under another version that was given to the world."""
        asked = self._client.processes.migrate(name, to=to, keys=keys, map=map, dry_run=dry_run, **said)
        return at_once(asked)

    def send_to(
        self,
        name: str,
        body: object = None,
        *,
        reference: str,
        parts: Mapping[str, str] | None = None,
        id: str | None = None,
        by: Actor | str | None = None,
    ) -> None:
        """Send a message to the one live instance with this reference, as `engine.send_to` does."""
        id = id or self._connection.message_id()
        at_once(self._client.send_to(name, body, reference=reference, parts=parts, id=id, by=by))

    # ---- cells -----------------------------------------------------------------------------------------

    def send(self, event: Any, *, key: str | None = None, id: str | None = None, correlation: str = "") -> None:
        """Send a domain event to the cells that hear of it, as `engine.send` does."""
        id = id or self._connection.message_id()
        at_once(self._client.send(event, key=key, id=id, correlation=correlation))

    def send_json(self, name: str, data: Any, *, id: str | None = None, correlation: str = "") -> None:
        """The same for an event that comes as JSON data, by its name."""
        id = id or self._connection.message_id()
        at_once(self._client.send_json(name, data, id=id, correlation=correlation))

    def state(self, cell: Cell | Stateful | str, key: object = "", *, at: int | None = None) -> Any:
        """The state of a cell, as its reducer would get it; None: there is no cell.

        It is rebuilt from the journal: a reducer that decides otherwise by now is a `Divergence`. Of a process it is
        the business state, now or as of an entry of the journal (`at`).
        """
        known = None if isinstance(cell, Cell) else self._simulation.workflows.newest(_name_of(cell))
        if known is not None and not isinstance(known, Definition):
            return at_once(self._client.state(known.name, str(key), at=at))
        return state_of(self._simulation, self._definition(cell).name, key)

    def pull_effects(self) -> list[OpenEffect]:
        """The effects that wait for an answer: those of cells without a handler, those answered outside, and waits of
        all other workflows for a message. Each is there until it is answered; the oldest instance comes first."""
        return open_effects(self._simulation)

    def receipt(
        self,
        effect: OpenEffect | Effect | Datum | str,
        *,
        ok: Any = _UNSET,
        error: BaseException | str | None = None,
        status: Literal["timeout", "cancelled", "unknown"] | None = None,
        payload: bytes | object | None = None,
    ) -> None:
        """Answer an open effect, known by what `pull_effects` gave, by its intent, or by an effect equal to it.

        One of: `ok`, the receipt that its handler would return, checked by its schema; `error`, what went wrong;
        `status`, that there was no answer; `payload`, unchecked bytes, as an executor outside may send them, or plain
        data, unchecked too.
        A wait for a message takes `ok` alone: that is the body of the message.
        """
        if sum((ok is not _UNSET, error is not None, status is not None, payload is not None)) != 1:
            raise CallerError("world.receipt(effect, ...) takes one of ok=, error=, status= and payload=")
        found = find_open(open_effects(self._simulation), effect)
        if found.bound is None:
            if ok is _UNSET or not found.effect or ", " in found.effect:
                raise CallerError(f"{found!r} takes ok= if it waits for a message of one name; else: handle.send(...)")
            handle = self._client.handle(found.cell, found.key)
            at_once(handle.send(found.effect, ok, intent=found.intent, id=self._connection.message_id()))
            return
        if ok is not _UNSET:
            payload = found.bound.receipt.encode(ok)
        if payload is not None:
            answer = Receipt("ok", payload if isinstance(payload, bytes) else encode(to_plain(payload)))
        elif error is not None:
            answer = info.error(error if isinstance(error, BaseException) else RuntimeError(error))
        elif status in NO_ANSWER:
            answer = Receipt(status, error=Failure(status.capitalize(), NO_ANSWER[status], retry=False))
        else:
            raise CallerError(f"status is one of {', '.join(map(repr, NO_ANSWER))}, found {status!r}")
        answer_open(self._simulation, found, answer)

    def frame(self, effect: OpenEffect | Effect | Datum | str, value: Any) -> None:
        """Send a frame of an open effect, as its handler would with `perdure.emit(value)`. Checked by its schema."""
        send_frame(self._simulation, find_open(open_effects(self._simulation), effect), value)

    def _definition(self, cell: Cell | Stateful | str) -> Definition:
        cells = self._simulation.cells.cells if self._simulation.cells is not None else []
        name = _name_of(cell)
        found = next((each for each in cells if name in (each.cell.name, each.name)), None)
        if found is None:
            raise CallerError(unknown("cell", str(name), [each.cell.name for each in cells], "world.register(...) it"))
        return found

    # ---- time ------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return when(self._simulation.clock.now())

    def advance(self, duration: timedelta | float) -> None:
        """Let time pass, seconds or a timedelta, and everything that is due in it happen."""
        by = _duration(duration)
        if by < timedelta(0):
            raise CallerError(f"world.advance({duration!r}): time does not go back")
        self._simulation.pass_until(self._simulation.clock.steady + nanoseconds(by))

    def run(self) -> None:
        """Let as much time pass as it takes until nothing moves by itself: all have ended, or wait for messages."""
        self._simulation.pass_until(None)

    def crash(self) -> None:
        """The process dies, with all that runs in it; the next one begins from what is durable."""
        owner = self._simulation.owner
        assert owner is not None, "a process that dies is replaced at once"
        owner.crash("of a kill")
        self._simulation.rest()

    def snapshot(self) -> Taken:
        """A snapshot of the whole world as it is now. Its `hash` follows from its content alone."""
        from perdure.worlds.snapshots import Snapshots

        async def take() -> Taken:
            with self._simulation.disk.queries() as queries:
                connection = WorldConnection(self._simulation, queries)
                return await Snapshots(Client(connection, self._simulation.workflows, Catalog.read)).take()

        return asyncio.run(take())

    # ---- steps -----------------------------------------------------------------------------------------

    def script(
        self,
        step: str,
        does: Callable[..., Any] | Sequence[Any] | None = None,
        *,
        returns: Any = _UNSET,
        raises: BaseException | None = None,
    ) -> None:
        """What a step does instead of its function, from now on; known by its name, or by its whole location.

        `returns` and `raises`: the same at each call. `does`: a function, called with the step's arguments; or a list
        with one answer for each call, in which exceptions are raised and other values returned.
        """
        if sum((does is not None, returns is not _UNSET, raises is not None)) != 1:
            raise CallerError(f"world.script({step!r}, ...) takes a function or a list, or returns=..., or raises=...")
        if raises is not None:
            self._simulation.scripts[step] = Script(step, lambda *args, **kwargs: _raise(raises))
        elif does is None:
            self._simulation.scripts[step] = Script(step, lambda *args, **kwargs: returns)
        else:
            self._simulation.scripts[step] = Script(step, does)

    def runs(self, step: str = "") -> list[Run]:
        """Every run of a step, known by its name or its location, so far; without a name: of all steps."""
        return [run for run in self._simulation.runs if step in ("", run.name, run.location)]


class WorldHandle(Generic[R]):
    """One instance in a world. Its methods are those of `perdure.Handle`, without `await`."""

    def __init__(self, connection: WorldConnection, handle: Handle[R]) -> None:
        self._connection = connection
        self._handle = handle

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def workflow(self) -> str:
        return self._handle.workflow

    @property
    def key(self) -> str:
        return self._handle.key

    @property
    def status(self) -> Status:
        return at_once(self._handle.status())

    def result(self) -> R:
        """Its result, or the error that it ended with. `NotYet` if it has not ended: that says what it waits for."""
        return at_once(self._handle.result())

    def send(self, name: str, body: object = None, *, intent: str = "", **said: Unpack[Said]) -> None:
        said["id"] = said.get("id") or self._connection.message_id()
        at_once(self._handle.send(name, body, intent=intent, **said))

    def ask(self, name: str, body: object = None, **said: Unpack[Said]) -> Any:
        """Send a message and take its response; `NotYet` if there is none by now: ask again, with the same `id`."""
        id = said["id"] = said.get("id") or self._connection.message_id()
        self.send(name, body, **said)
        instance = at_once(self._handle.summary()).id
        response = at_once(self._connection.response(instance, response_name(id)))
        if response is not None:
            return decode(response)
        if self.status in TERMINAL:
            raise NotAnswered(f"{self._handle.address} has ended without an answer to {name!r}")
        raise NotYet(f"{self._handle.address} has not answered {name!r}", at_once(self._connection.reason(instance)))

    def cancel(self, reason: str = "", undo: bool = False, **said: Unpack[Asking]) -> None:
        at_once(self._handle.cancel(reason, undo, **said))

    def wake(self, location: str = "", **said: Unpack[Said]) -> None:
        at_once(self._handle.wake(location, **said))

    def retry(self, **said: Unpack[Said]) -> None:
        at_once(self._handle.retry(**said))

    def rewind(self, to: str, *, force: bool = False, dry_run: bool = False, **said: Unpack[Said]) -> list[str]:
        return at_once(self._handle.rewind(to, force=force, dry_run=dry_run, **said))

    def tag(self, name: str, value: TagValue | None, **said: Unpack[Said]) -> None:
        at_once(self._handle.tag(name, value, **said))

    def fork(
        self, at: str, edit: Mapping[str, Any] | None = None, *, key: str | None = None, **said: Unpack[Said]
    ) -> WorldHandle[R]:
        return WorldHandle(self._connection, at_once(self._handle.fork(at, edit, key=key, **said)))

    def settle(self, location: str, value: object = None, *, error: str | None = None, **said: Unpack[Said]) -> None:
        at_once(self._handle.settle(location, value, error=error, **said))

    def read(self, name: str) -> Any:
        return at_once(self._handle.read(name))

    def draw(
        self,
        format: Literal["svg", "mermaid", "json"] = "svg",
        direction: Literal["LR", "TB"] = "LR",
        *,
        at: int | None = None,
    ) -> str:
        return at_once(self._handle.draw(format, direction, at=at))

    def state(self) -> Any:
        return at_once(self._handle.state())

    def error(self) -> Any:
        return at_once(self._handle.error())

    def summary(self) -> Summary:
        return at_once(self._handle.summary())

    def progress(self) -> list[Frame]:
        return at_once(self._handle.progress())

    def history(self) -> list[Line]:
        return at_once(self._handle.history())

    def waiting(self) -> list[Waiting]:
        return at_once(self._handle.waiting())

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the history to a file that `perdure.testing.replay` reads, as `perdure export` does."""
        head = at_once(self._connection.queries.head(at_once(self._handle.summary()).id))
        assert head is not None
        write(path, head, at_once(self._connection.queries.history(head.id)))


class WorldConnection:
    """The way into a world (`perdure.runtime.connection.Connection`). The world goes on until an event is answered.

    `forgiving`: a refusal may answer a request that was made again after its first answer was lost. It is not raised.
    """

    loop = None  # a world needs none
    patience = 0
    forgiving = False

    def __init__(self, simulation: UserSimulation, queries: Queries | None = None) -> None:
        self._simulation = simulation
        self.queries: Queries = queries or MemoryStore(simulation.database)

    async def put(self, to: Ref, event: Event, *, new: bool = False) -> int:
        request = self._simulation.request(to, event, type(event).__name__.lower())
        self._simulation.rest()
        while request.settled is None:  # faults were asked for: its caller asks again after a while
            self._simulation.pass_until(self._simulation.next_at())
        if isinstance(request.settled, Refused) and not (self.forgiving and request.settled.code in DONE_BEFORE):
            raise refusal(request.settled)
        if not isinstance(request.settled, Accepted):
            return 0
        if request.settled.reply is not None and request.settled.reply.refused:
            raise CallerError(request.settled.reply.refused)
        return request.settled.instance

    async def policy(self, workflow: str) -> Policy:
        return await Policies().of(self.queries, workflow)

    async def response(self, instance: int, name: str) -> bytes | None:
        """The published response to a message; None: there is none, and patience does not help."""
        until = self._simulation.clock.steady + self.patience
        while (found := await self.queries.published(instance, name)) is None:
            when = self._simulation.next_at()
            if when is None or when > until:
                return None
            self._simulation.pass_until(when)
        return found

    async def outcome(self, address: Address, instance: int, timeout: float | None) -> Outcome:
        found = await look(self.queries, address, instance)
        if found is None:
            raise NotYet(f"{address} has not ended", await self.reason(instance))
        return found

    async def reason(self, instance: int) -> str:
        """What an instance waits for, and what a test can do about it."""
        reader = Reader()
        reader.read(await self.queries.history(instance))
        now = when(self._simulation.clock.now())
        return "; ".join(_reason(open, now) for open in reader.waiting())

    def now_at(self) -> int:
        return self._simulation.clock.now()

    def message_id(self) -> str:
        return f"message {len(self._simulation.requests) + 1}"

    def progress(self, instance: int) -> list[Frame]:
        return [frame for process in self._simulation.processes for frame in process.shard.progress(instance)]

    def in_force(self) -> str:
        return ""

    def entropy(self) -> bytes:
        return self._simulation.clock.entropy(16)

    async def reached(self, seq: int) -> None:
        height = await self.queries.height()
        if height < seq:
            raise CallerError(f"in a world nothing happens while you wait: its journal ends with entry {height}")

    async def changes(self, instance: int, name: str = "") -> AsyncGenerator[None, None]:
        yield  # what needs no time has happened
        raise CallerError("in a world nothing changes while you wait: look, advance(...), and look again")

    @property
    def streams(self) -> Streams:
        raise CallerError("in a world nothing runs while you listen: handle.waiting() has the newest progress")


def _reason(open: Waiting, now: datetime) -> str:
    """One thing that an instance has open, in words."""
    since = f"since {open.since:%Y-%m-%d %H:%M:%S}"
    due = "" if open.due is None else f"world.advance({_written(open.due - now)})"
    match open.kind:
        case "wait":
            names = " or ".join(map(repr, open.what.split(", "))) if open.what else "of any name"
            first = repr(open.what.split(", ")[0]) if open.what else "name"
            limit = f", until {open.due:%Y-%m-%d %H:%M:%S} at most" if open.due is not None else ""
            return f"it waits for a message {names} {since}{limit}: handle.send({first}, ...){due and ', or ' + due}"
        case "timer":
            return f"it sleeps at {open.location} until {open.due:%Y-%m-%d %H:%M:%S}: {due}"
        case "task":
            return f"it waits for the task {open.location} {since}: world.tasks.complete(...)"
        case "child":
            workflow, _, key = open.what.partition("/")
            return f"it waits for its child {open.what} {since}: world.handle({workflow!r}, {key!r}) is its handle"
        case "effect":
            asked = f"it waits for the answer to {open.what} at {open.location} {since}"
            return f"{asked}: world.receipt(...), or world.advance(...) if a handler sleeps"
        case _:
            step = f"it runs the step {open.location} {since}, which has not returned"
            return f"{step}: world.advance(...) if it sleeps, or world.script(...) in its place"


def _written(duration: timedelta) -> str:
    """As it is written in Python, rounded up: a test that lets it pass has let it pass."""
    seconds = ceil(duration.total_seconds())
    days, rest = divmod(seconds, 24 * 3600)
    given = [f"days={days}"] if days else []
    given += [f"seconds={rest}"] if rest or not days else []
    return f"timedelta({', '.join(given)})"


def nanoseconds(duration: timedelta | float) -> int:
    return round(_duration(duration) / timedelta(microseconds=1)) * 1000


def _duration(given: timedelta | float) -> timedelta:
    if isinstance(given, timedelta):
        return given
    try:
        return timedelta(seconds=given)
    except (TypeError, ValueError, OverflowError):
        raise CallerError(f"a duration is a timedelta or a number of seconds, found {given!r}") from None


def _raise(error: BaseException) -> Never:
    raise error


def _name_of(workflow: Cell | Stateful | str) -> str:
    return workflow if isinstance(workflow, str) else workflow.name
