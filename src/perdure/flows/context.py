"""The context: the durable operations that a flow's body may ask for.

Each operation claims a location in the current scope, opens effects through the machine and waits for their
receipts. It is ordinary async code; what makes it durable is that every wait ends only with a recorded event.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, Unpack, get_args, overload

from perdure.codec import decode, encode, to_plain
from perdure.codec.returns import takes_context
from perdure.errors import (
    BadCall,
    ChildFailed,
    OperationFailed,
    ReceiveTimeout,
    RollBack,
)
from perdure.kernel.effects import Child
from perdure.kernel.events import Address
from perdure.kernel.moment import TIME_MAX, at_of, when
from perdure.kernel.receipt import Receipt
from perdure.kernel.rows import RESPONSE
from perdure.kernel.tags import TagValue, kept, objection
from perdure.kernel.task import TASK

from . import iterations, messages, parallel
from . import scope as scopes
from .author import (
    Break,
    Continue,
    Duration,
    Failed,
    FailureKind,
    Ok,
    StepFunction,
    limited,
    nanoseconds,
    seconds,
)
from .change import Pinned, Removed, pinned
from .failures import at, kind_of
from .receiving import Message, receive
from .said import AWAITED, Awaited
from .scope import dice, text
from .steps import Step
from .tasks import Answered, ask
from .undo import roll_back

if TYPE_CHECKING:
    from perdure.tasks.model import TaskFields

    from .machine import FlowMachine

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


def running_context() -> Context | None:
    """The context of the flow whose code runs now, or None outside of flows."""
    scope = scopes.current.get(None)
    return None if scope is None else Context(scope.machine)


def _tags(tags: Any) -> dict[str, str]:
    if tags is None:
        return {}
    if not isinstance(tags, Mapping) or not all(
        isinstance(name, str) and isinstance(value, TagValue) for name, value in tags.items()
    ):
        raise BadCall(f"tags are texts, numbers, bools or times by name, found {tags!r}")
    found = {}
    for name, value in tags.items():
        if isinstance(value, str):
            text(name + value, "a tag")
        elif against := objection("a", value):
            raise BadCall(against)
        found[name] = value if isinstance(value, str) else kept(value)
    return found


RemovedKind = Literal[
    "step", "sleep", "receive", "child", "join", "race", "map", "loop", "attempt", "checkpoint", "version", "message"
]
REMOVED: Final = get_args(RemovedKind)[:-1]  # a message is another word for a receive
KINDS: Final = get_args(FailureKind)
CAUGHT: Final[frozenset[FailureKind]] = frozenset(KINDS) - {"rollback"}


class Context:
    """What a flow's body works with. Its first parameter, by convention named `ctx`."""

    __slots__ = ("_machine", "step")

    def __init__(self, machine: FlowMachine) -> None:
        self._machine = machine
        self.step = Step(machine)

    # ---- who and when --------------------------------------------------------------------------------------

    @property
    def instance(self) -> str:
        """The name of this instance: `workflow/key`."""
        return self._machine.address

    @property
    def key(self) -> str:
        return self._machine.key

    @property
    def started_by(self) -> str | None:
        """The id of the actor who started this instance, `engine.start(..., by="ann")`; None: no actor was named."""
        return self._machine.started_by

    def now(self) -> datetime:
        """Recorded time, in UTC."""
        return when(self._machine.moment.at)

    @property
    def random(self) -> random.Random:
        """Recorded dice: equal on replay. Each scope has its own: a pruned loop does not shift the others."""
        return dice(self._machine.moment)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    # ---- changed code --------------------------------------------------------------------------------------

    def version(self, name: str, latest: int) -> Pinned:
        """Which version of the code runs here: pinned when an instance first comes by, in each iteration of a loop.

        1 for an instance that ran past this place before it was written.
        """
        if not isinstance(latest, int) or isinstance(latest, bool) or latest < 1:  # type: ignore[redundant-expr]
            raise BadCall(f"ctx.version({name!r}, {latest!r}): versions are numbers from 1")
        return pinned(self._machine, scopes.current.get().claim_version(name), latest)

    async def removed(self, name: str, kind: RemovedKind) -> None:
        """Stands for an operation that the code no longer has. `name` is its name; of a receive, its names joined by +.

        An instance that has begun the operation waits for its end as it did then; any other does nothing.
        """
        kind = "receive" if kind == "message" else kind
        if kind not in REMOVED:
            raise BadCall(f"ctx.removed({name!r}, {kind!r}): a kind is one of {', '.join(REMOVED)}")
        if kind == "receive":
            name = f"receive:{name}" if name else "receive"
        scope = scopes.current.get()
        location = scope.claim_version(name) if kind == "version" else scope.claim(name)
        await Removed(self._machine, location).pass_by()

    # ---- failures as data ----------------------------------------------------------------------------------

    @overload
    async def attempt(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        catch: Collection[str] = ...,
        **kwargs: Any,
    ) -> Ok[T] | Failed: ...

    @overload
    async def attempt(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        catch: Collection[str] = ...,
        **kwargs: Any,
    ) -> Ok[T] | Failed: ...

    async def attempt(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        catch: Collection[str] = CAUGHT,
        **kwargs: Any,
    ) -> Ok[Any] | Failed:
        """A step whose failure is an answer: `Ok(value)`, or `Failed(kind, error)` once its retries are used up.

        A function whose first parameter is `ctx` is a block: part of the flow, with operations of its own. `catch`
        says which kinds become `Failed`; the others are raised, and so is whatever is no failure of an operation.
        """
        if isinstance(catch, str):
            catch = (catch,)
        if not isinstance(catch, Collection) or not all(isinstance(kind, str) and kind in KINDS for kind in catch):  # type: ignore[redundant-expr]
            raise BadCall(f"ctx.attempt({name!r}): catch={catch!r} must be among {', '.join(KINDS)}")
        try:
            if not isinstance(function, StepFunction) and takes_context(function):
                return Ok(await self._block(name, function, args, kwargs))
            return Ok(await self.step(name, function, *args, **kwargs))
        except (OperationFailed, RollBack) as error:
            kind = kind_of(error)
            if kind not in catch:
                raise
            return Failed(kind, error)

    async def _block(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        machine, scope = self._machine, scopes.current.get()
        location = machine.claim(name)
        machine.note("attempt", location)
        token = scopes.current.set(scope.block(location))
        try:
            return await function(self, *args, **kwargs)
        finally:
            with suppress(ValueError):  # closed by the garbage collector, in whatever context that runs
                scopes.current.reset(token)

    @asynccontextmanager
    async def checkpoint(self, name: str) -> AsyncIterator[None]:
        """A block that can be taken back: `RollBack(to=name)` inside undoes what was done since, and is raised here."""
        machine, scope = self._machine, scopes.current.get()
        location = machine.claim(name)
        machine.note("checkpoint", location)
        machine.undos.checkpoints[name] = None
        mark = machine.undos.mark
        try:
            yield
        except RollBack as error:
            if error.to == name:
                error.reached = True
                await roll_back(machine, mark, scope.path)
            raise

    # ---- time and messages ---------------------------------------------------------------------------------

    async def sleep(self, name: str, delay: Duration) -> None:
        """Wait durably. `delay` is seconds or a timedelta, from the first time that this line was reached."""
        await self._timer(name, self._machine.moment.at + nanoseconds(delay))

    async def sleep_until(self, name: str, when: datetime) -> None:
        """Wait until a time, which must have a time zone. A past one returns at once."""
        if not isinstance(when, datetime) or when.tzinfo is None:  # type: ignore[redundant-expr]
            raise BadCall(f"sleep_until({name!r}): {when} has no time zone; use datetime(..., tzinfo=UTC)")
        await self._timer(name, at_of(when))

    async def _timer(self, name: str, due: int) -> None:
        machine = self._machine
        location = machine.claim(name)
        if due > machine.moment.at:
            await machine.sleep(location, min(due, TIME_MAX))
        else:
            machine.note("sleep", location)

    async def receive(
        self, *names: str, timeout: Duration | None = None, type: Any = None, ack: bool = False
    ) -> Message[Any]:
        """The oldest message with one of these names (no names: any), or `ReceiveTimeout`.

        `type` converts the body; without it the body is plain data. `ack`: the message is the flow's only when it
        calls `message.complete(response)`; until then the next receive of the same task gets it again, and so does
        any other once that task has ended.
        """
        location, received = await receive(self._machine, names, 1, timeout, type, ack)
        if not received:
            raise at(location, ReceiveTimeout(names))
        return received[0]

    async def receive_many(
        self, *names: str, limit: int, timeout: Duration | None = None, type: Any = None, ack: bool = False
    ) -> list[Message[Any]]:
        """Up to `limit` messages with one of these names, as soon as there is one; none after the timeout."""
        if not isinstance(limit, int) or limit < 1:  # type: ignore[redundant-expr]
            raise BadCall(f"ctx.receive_many(limit={limit!r}): one message is the least to wait for")
        _, received = await receive(self._machine, names, limit, timeout, type, ack)
        return received

    def send(self, instance: str, name: str, body: object = None) -> Awaited:
        """Send a message to another instance, named as `workflow/key`; recorded once, with what this flow does next."""
        workflow, slash, key = text(instance, "an instance").partition("/")
        if not (workflow and slash and key):
            raise BadCall(f"ctx.send(instance, name): an instance is named workflow/key, found {instance!r}")
        value = limited(encode(to_plain(body)), f"message {name!r}")
        messages.send(self._machine, Address(workflow, key), text(name, "a message's name"), value)
        return AWAITED

    def publish(self, name: str, value: object) -> Awaited:
        """Make a value readable from outside: `await handle.read(name)`, `handle.watch(name)`."""
        if isinstance(name, str) and (name == TASK or name.startswith(RESPONSE)):  # type: ignore[redundant-expr]
            raise BadCall(f"a published name cannot be {TASK} or begin with {RESPONSE}: what stands there is perdure's")
        published = text(name, "a published name"), limited(encode(to_plain(value)), f"published value {name!r}")
        self._machine.saying().published.append(published)
        return AWAITED

    def tag(self, name: str, value: TagValue | None) -> Awaited:
        """Give this instance a tag, or another value of one, by which lists find it; None removes it.

        A tag is a text, a number, a bool or a time: lists compare numbers and times with `<` and `>`.
        """
        against = objection(name, value)
        if against:
            raise BadCall(f"ctx.tag(name, value): {against}")
        self._machine.saying().tags.append((name, None if value is None else kept(value)))
        return AWAITED

    # ---- other instances -----------------------------------------------------------------------------------

    async def child(
        self,
        workflow: Any,
        *args: Any,
        key: str | None = None,
        detach: bool = False,
        reuse: Literal["failed", "always"] | None = None,
        tags: Mapping[str, TagValue] | None = None,
        delay: Duration | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run another workflow and wait for its result; `ChildFailed` if it does not complete.

        A workflow that is passed itself runs in its own version if that is registered, else in the newest, which is
        also what a name means. The child is cancelled with its parent. `detach=True`: it outlives the parent, and the
        answer is its key, as soon as it is recorded as started. `reuse`, `tags` and `delay`: as for `engine.start`. A
        parent that is started again uses the keys of its children again: each has a new generation, too.
        """
        machine = self._machine
        if reuse not in (None, "failed", "always"):
            raise BadCall(f'reuse={reuse!r}: a used key is started again if it "failed", or "always"')
        if delay is not None and not seconds(delay) >= 0:
            raise BadCall(f"delay={delay!r}: a child is delayed by no time or more")
        if not isinstance(workflow, str):
            if not hasattr(workflow, "encode_input"):
                raise BadCall(f"ctx.child(workflow, ...): {workflow!r} is not a workflow")
            name, version, value = workflow.name, workflow.version, workflow.encode_input(args, kwargs)
        elif args:
            if hasattr(args[0], "encode_input"):
                raise BadCall(
                    f"ctx.child({workflow!r}, {args[0].name}, ...): the workflow comes first, and no name before"
                )
            raise BadCall(f"child {workflow!r} is known here by its name only: pass keyword arguments, or the workflow")
        else:
            name, version, value = workflow, "", limited(encode(to_plain(kwargs)), f"the input of {workflow}")
        location = machine.claim(name)
        child_key = f"{machine.family}/{location}" if key is None else text(key, "a key")
        due = 0 if delay is None else min(TIME_MAX, machine.moment.at + nanoseconds(delay))
        child = Child(location, name, child_key, value, detach, version, reuse or "", _tags(tags), due)
        receipt: Receipt = await machine.answer(machine.open(child))
        if receipt.status != "ok":
            refused = receipt.error is not None and receipt.error.type == "ChildRefused"
            status = "refused" if refused else "failed" if receipt.status == "error" else receipt.status
            raise at(location, ChildFailed(name, child_key, status, receipt.error))
        if receipt.value is None:
            return None
        if detach or isinstance(workflow, str):
            return decode(receipt.value)
        return workflow.decode_result(receipt.value)

    @overload
    async def task(self, name: str, *, answer: type[T], **fields: Unpack[TaskFields]) -> Answered[T]: ...

    @overload
    async def task(self, name: str, *, answer: Any = None, **fields: Unpack[TaskFields]) -> Answered[Any]: ...

    async def task(self, name: str, *, answer: Any = None, **fields: Unpack[TaskFields]) -> Answered[Any]:
        """Ask people for something, and wait for the answer. `TaskExpired` and `TaskCancelled` if none comes.

        `answer` is the type of the answer, or a JSON Schema: it is the form; None: the task is done or not. Who may do
        it: `roles` and `users`, but no actor of `exclude`; `assignee` has it from the start; `managers` are roles that
        may change and cancel it. `due` is a date for lists, `expire` ends the task: a time, or a duration from now.
        """
        return await ask(self._machine, name, answer, fields)

    # ---- parallel ------------------------------------------------------------------------------------------

    async def join(self, name: str, branches: Mapping[str, Callable[..., Awaitable[Any]]]) -> dict[str, Any]:
        """Run all branches; all settle. Results by branch, or `JoinFailed` with the errors by branch."""
        return await parallel.join(self, name, branches)

    async def race(self, name: str, branches: Mapping[str, Callable[..., Awaitable[Any]]]) -> tuple[str, Any]:
        """Run all branches; the first to complete wins, the others are cut at once. None: `RaceFailed`."""
        return await parallel.race(self, name, branches)

    async def map(
        self,
        name: str,
        function: Callable[[S], Awaitable[T]] | Callable[[Context, S], Awaitable[T]],
        items: Iterable[S],
        *,
        concurrency: int | None = None,
    ) -> list[T]:
        """Run `function(item)` for each item, at most `concurrency` at once. Results in order: see `join`.

        A function whose first parameter is `ctx` is called with the context and the item.
        """
        return await parallel.map_items(self, name, function, items, concurrency=concurrency)

    # ---- loops ---------------------------------------------------------------------------------------------

    async def loop(
        self,
        name: str,
        body: Callable[..., Awaitable[Continue[Any] | Break[T] | None]],
        state: Any = None,
        *,
        keep: int = 20,
        prune_every: int = 20,
    ) -> T:
        """Run `body(ctx, state)` until it returns `Break(value)`; `Continue(state)` goes on with another state.

        Nothing goes on too. Of a body that takes a state that is a `FlowWarning`: its state stays what it was.

        Iterations before the last `keep` are forgotten every `prune_every` iterations, so a loop of any
        length is rebuilt from the last few. What one iteration leaves to the next is its state alone: plain
        data, converted by the annotation of the body's parameter.
        """
        return await iterations.loop(self, name, body, state, keep=keep, prune_every=prune_every)
