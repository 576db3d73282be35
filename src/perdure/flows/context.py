"""The context: the durable operations that a flow's body may ask for.

Each operation claims a location in the current scope, opens effects through the machine and waits for their
receipts. It is ordinary async code; what makes it durable is that every wait ends only with a recorded event.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeVar, Unpack, get_args, overload

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.errors import (
    BadCall,
    ChildFailed,
    JoinFailed,
    OperationFailed,
    OutcomeUnknown,
    RaceFailed,
    ReceiveTimeout,
    RollBack,
    StepFailed,
    StepTimeout,
)
from perdure.kernel.effects import Call, Child, Timer, Wait
from perdure.kernel.events import Address
from perdure.kernel.moment import TIME_MAX, at_of, when
from perdure.kernel.problem import Hook, ProblemKind
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.rows import RESPONSE
from perdure.kernel.tags import objection
from perdure.ports.executor import Work

from . import copies
from . import scope as scopes
from .author import (
    DEFAULT,
    Break,
    Continue,
    Duration,
    Failed,
    FailureKind,
    Ok,
    Options,
    StepFunction,
    StepOptions,
    limited,
    nanoseconds,
    seconds,
    with_options,
)
from .change import Removed, pinned
from .loop import TURNS_MAX, FlowTask
from .operation import AGAIN
from .relive import at
from .returns import importable, is_async, returns_of, state_annotation_of, takes_argument, takes_context
from .scope import text
from .undo import Done, roll_back

if TYPE_CHECKING:
    from .machine import FlowMachine
    from .mailbox import Mail

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


def running_context() -> Context | None:
    """The context of the flow whose code runs now, or None outside of flows."""
    scope = scopes.current.get(None)
    return None if scope is None else Context(scope.machine)


@dataclass(frozen=True, slots=True)
class Received(Generic[T]):
    """A message as a flow receives it."""

    name: str
    body: T
    id: str = ""
    sender: str = ""
    _complete: Callable[[bytes | None], None] | None = field(default=None, compare=False, repr=False)

    def complete(self, response: object = None) -> None:
        """Say that the message is dealt with, once. `response` goes to whoever asked with `handle.ask`.

        Recorded with what the flow does next. A message that was received with `ack=True` comes again without this.
        """
        value = limited(encode(to_plain(response)), f"the response to {self.name!r}")
        if self._complete is None:
            raise BadCall(f"message {self.name!r} was not received by a flow: nobody can complete it")
        self._complete(value)


def _received(machine: FlowMachine, mail: Mail, location: str, kind: Any) -> Received[Any]:
    message = mail.message
    body = from_plain(decode(message.body), kind)
    return Received(
        message.name, body, message.id, message.sender, lambda value: machine.complete(mail, location, value)
    )


class Step:
    """`await ctx.step(name, function, ...)`, and `ctx.step.options(retries=0)(name, function, ...)`."""

    __slots__ = ("_changes", "_machine")

    def __init__(self, machine: FlowMachine, changes: Options | None = None) -> None:
        self._machine = machine
        self._changes = changes

    def options(self, **options: Unpack[Options]) -> Step:
        """The same operation with other options; those of `@perdure.step` hold where none is given here."""
        changes: Options = {**(self._changes or {}), **options}
        with_options(DEFAULT, changes)  # what is wrong is said here, not where the step is called
        return Step(self._machine, changes)

    @overload
    def __call__(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def __call__(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    def __call__(self, name: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not (isinstance(name, str) and callable(function)):  # type: ignore[redundant-expr]
            hint = (
                "; write the function and its arguments apart, without a call" if inspect.iscoroutine(function) else ""
            )
            raise BadCall(f"ctx.step(name, function, *arguments): found ctx.step({name!r}, {function!r}){hint}")
        options = DEFAULT
        if isinstance(function, StepFunction):
            options = function.options
            function = function.function
        if self._changes is not None:
            options = with_options(options, self._changes)
        return _step(self._machine, name, function, args, kwargs, options)


def undoing(machine: FlowMachine, done: Done) -> Awaitable[Any]:
    """The undo of a completed step: a step of its own."""
    function: Any = done.undo
    options = DEFAULT
    if isinstance(function, StepFunction):
        options = function.options
        function = function.function
    return _step(machine, done.location, function, (done.value,), {}, options, done)


async def _step(  # noqa: PLR0917  # called at every step
    machine: FlowMachine,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions,
    undoes: Done | None = None,
) -> Any:
    location = machine.claim(name)
    executor = options.executor or ("inline" if is_async(function) else "thread")
    returns = returns_of(function)
    params = _parameters(function, args, kwargs, executor, options.resources) if executor not in HERE else None
    work = None
    timeout = None if options.timeout is None else nanoseconds(options.timeout)
    errors: tuple[Failure, ...] = ()
    attempt = 1
    while True:
        # A crash uses up an attempt; one crash is always survived, but by a step that may run once only.
        allowed = 1 if options.once else max(2, options.retries + 2 - attempt)
        life = 0 if machine.lives is None else machine.lives.of(location)
        call = Call(location, attempt, executor, timeout, allowed, params, options.ephemeral, life)
        if params is None:
            work = Work(function, *copies.for_step(args, kwargs), returns)
        operation = machine.open(call, work) if machine.loop.ahead is None else machine.ask(call, work)
        assert operation.future is not None
        if options.once and options.unknown == "stuck":
            operation.settle, operation.returns = True, returns
            operation.kind, operation.hooks = _kind(undoes), _hooks(machine, options, undoes)
        try:
            receipt: Receipt = await operation.future
        except asyncio.CancelledError:
            machine.withdraw(operation)
            raise
        if receipt.status == "ok":
            value = decode(receipt.value) if receipt.value is not None else None
            if returns is not None:
                value = from_plain(value, returns)
            if options.undo is not None:
                machine.undos.add(location, options.undo, value, options.on_error)
            return value
        if receipt is AGAIN:
            attempt += 1
            continue
        error = receipt.error or Failure(receipt.status, "")
        errors = (*errors, error)
        kind, hooks = _kind(undoes), _hooks(machine, options, undoes)
        if attempt > options.retries or not _again(receipt, error, options):
            machine.report(hooks, kind, location, attempt, error)
            if error.type == "RollBack" and not error.retry:
                raise at(location, RollBack(error.message, **(error.data or {})))
            raise at(location, _failure(receipt)(name, attempt, errors))
        delay = options.backoff.seconds(attempt, Context(machine).random.random)
        due = min(TIME_MAX, machine.moment.at + nanoseconds(delay))
        machine.report(hooks, kind, location, attempt, error, options.retries + 1 - attempt, due)
        if delay > 0:
            await machine.answer(machine.open(Timer(f"{location}/backoff#{attempt}", due)))
        attempt += 1


def _again(receipt: Receipt, error: Failure, options: StepOptions) -> bool:
    match receipt.status:
        case "timeout":
            return options.retry_on_timeout
        case "unknown" | "cancelled":
            return False
        case _:
            return error.retry and (options.retry_if is None or bool(options.retry_if(error)))


def _failure(receipt: Receipt) -> type[StepFailed]:
    if receipt.status == "timeout":
        return StepTimeout
    return OutcomeUnknown if receipt.status == "unknown" else StepFailed


def _kind(undoes: Done | None) -> ProblemKind:
    return "step" if undoes is None else "undo"


def _hooks(machine: FlowMachine, options: StepOptions, undoes: Done | None) -> tuple[Hook, ...]:
    """Who hears of a failure of a step: its own hook, that of the step that it undoes, that of the flow. Each once."""
    hooks: list[Hook] = []
    for hook in (options.on_error, undoes.on_error if undoes is not None else None, machine.flow.on_error):
        if hook is not None and all(hook is not other for other in hooks):
            hooks.append(hook)
    return tuple(hooks)


SAME_STATE: Final = (
    ": the next iteration has the same state; write return Continue(state), or return Break(value) to end"
)

HERE: Final = frozenset({"inline", "thread"})
"""Executors whose calls stay in this process. Others get the name of a function and recorded arguments."""


def _parameters(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    executor: str,
    resources: Mapping[str, float] | None = None,
) -> bytes:
    """What a call that leaves the process carries: the function's name, and its arguments as plain data."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or not name or "<" in name:
        raise BadCall(f"a step in another process needs a function that can be imported, not {function!r}")
    if executor != "process":  # a worker has its own __main__
        module = importable(module)
    plain = {"call": f"{module}:{name}", "args": to_plain(list(args)), "kwargs": to_plain(kwargs)}
    if resources:
        plain["resources"] = dict(resources)
    return limited(encode(plain), f"the arguments of {name}")


def _tags(tags: Any) -> dict[str, str]:
    if tags is None:
        return {}
    if not isinstance(tags, Mapping) or not all(isinstance(each, str) for pair in tags.items() for each in pair):
        raise BadCall(f"tags are texts by name, found {tags!r}")
    for name, value in tags.items():
        text(name + value, "a tag")
    return dict(tags)


RemovedKind = Literal[
    "step", "sleep", "receive", "child", "join", "race", "map", "loop", "attempt", "checkpoint", "version"
]
REMOVED: Final = get_args(RemovedKind)
KINDS: Final = get_args(FailureKind)
CAUGHT: Final[frozenset[FailureKind]] = frozenset(KINDS) - {"rollback"}


def kind_of(error: Exception) -> FailureKind:
    match error:
        case RollBack():
            return "rollback"
        case OutcomeUnknown():
            return "unknown"
        case StepTimeout() | ReceiveTimeout():
            return "timeout"
        case JoinFailed():
            return "join"
        case RaceFailed():
            return "race"
        case ChildFailed():
            return "child"
        case StepFailed(error=Failure(retry=False)):
            return "fatal"
        case _:
            return "exhausted"


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

    def now(self) -> datetime:
        """Recorded time, in UTC."""
        return when(self._machine.moment.at)

    @property
    def random(self) -> random.Random:
        """Recorded dice: equal on replay. Each scope has its own: a pruned loop does not shift the others."""
        moment, scope = self._machine.moment, scopes.current.get()
        if scope.dice is None or scope.dice_entry != moment.number:
            scope.dice = random.Random(moment.entropy() + scope.path.encode())
            scope.dice_entry = moment.number
        return scope.dice

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    # ---- changed code --------------------------------------------------------------------------------------

    def version(self, name: str, latest: int) -> int:
        """Which version of the code runs here: pinned when an instance first comes by, in each iteration of a loop.

        1 for an instance that ran past this place before it was written.
        """
        if not isinstance(latest, int) or latest < 1:  # type: ignore[redundant-expr]
            raise BadCall(f"ctx.version({name!r}, {latest!r}): versions are numbers from 1")
        return pinned(self._machine, scopes.current.get().claim_version(name), latest)

    async def removed(self, name: str, kind: RemovedKind) -> None:
        """Stands for an operation that the code no longer has. `name` is its name; of a receive, its names joined by +.

        An instance that has begun the operation waits for its end as it did then; any other does nothing.
        """
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
    ) -> Received[Any]:
        """The oldest message with one of these names (no names: any), or `ReceiveTimeout`.

        `type` converts the body; without it the body is plain data. `ack`: the message is the flow's only when it
        calls `message.complete(response)`; until then the next receive of the same task gets it again, and so does
        any other once that task has ended.
        """
        location, received = await self._receive(names, 1, timeout, type, ack)
        if not received:
            raise at(location, ReceiveTimeout(names))
        return received[0]

    async def receive_many(
        self, *names: str, limit: int, timeout: Duration | None = None, type: Any = None, ack: bool = False
    ) -> list[Received[Any]]:
        """Up to `limit` messages with one of these names, as soon as there is one; none after the timeout."""
        if not isinstance(limit, int) or limit < 1:  # type: ignore[redundant-expr]
            raise BadCall(f"ctx.receive_many(limit={limit!r}): one message is the least to wait for")
        _, received = await self._receive(names, limit, timeout, type, ack)
        return received

    async def _receive(
        self, names: tuple[str, ...], limit: int, timeout: Duration | None, kind: Any, ack: bool
    ) -> tuple[str, list[Received[Any]]]:
        machine = self._machine
        for name in names:
            text(name, "the name of a message")
        location = machine.claim("receive:" + "+".join(names) if names else "receive")
        mails = machine.take_mail(names, limit)
        if mails:
            machine.note("receive", location)
        else:
            due = None if timeout is None else min(TIME_MAX, machine.moment.at + nanoseconds(timeout))
            mail = await self._next_mail(Wait(location, names, due))
            mails = [] if mail is None else [mail]
        try:
            received = [_received(machine, mail, location, kind) for mail in mails]
        except BaseException:
            machine.put_back(mails)  # it is no message of this type: another receive may take it
            raise
        for mail in mails:
            machine.took(mail, location, ack)
        return location, received

    async def _next_mail(self, wait: Wait) -> Mail | None:
        """The next message that comes; None when its time is over."""
        machine = self._machine
        operation = machine.open(wait)
        assert operation.future is not None
        try:
            answer = await operation.future
        except asyncio.CancelledError:
            machine.withdraw(operation)
            if operation.future.done() and not operation.future.cancelled():
                answer = operation.future.result()
                if not isinstance(answer, Receipt):
                    machine.hand_over(answer)  # its message came in this very moment: it must not be lost
            raise
        return None if isinstance(answer, Receipt) else answer

    def send(self, instance: str, name: str, body: object = None) -> None:
        """Send a message to another instance, named as `workflow/key`; recorded once, with what this flow does next."""
        workflow, slash, key = text(instance, "an instance").partition("/")
        if not (workflow and slash and key):
            raise BadCall(f"ctx.send(instance, name): an instance is named workflow/key, found {instance!r}")
        value = limited(encode(to_plain(body)), f"message {name!r}")
        self._machine.send(Address(workflow, key), text(name, "a message's name"), value)

    def publish(self, name: str, value: object) -> None:
        """Make a value readable from outside: `await handle.read(name)`, `handle.watch(name)`."""
        if isinstance(name, str) and name.startswith(RESPONSE):  # type: ignore[redundant-expr]
            raise BadCall(f"a published name cannot begin with {RESPONSE}: responses to messages stand there")
        self._machine.publish(
            text(name, "a published name"), limited(encode(to_plain(value)), f"published value {name!r}")
        )

    def tag(self, name: str, value: str | None) -> None:
        """Give this instance a tag, or another value of one, by which lists find it; None removes it."""
        against = objection(name, value)
        if against:
            raise BadCall(f"ctx.tag(name, value): {against}")
        self._machine.tag(name, value)

    # ---- other instances -----------------------------------------------------------------------------------

    async def child(
        self,
        workflow: Any,
        *args: Any,
        key: str | None = None,
        detach: bool = False,
        reuse: Literal["failed", "always"] | None = None,
        tags: Mapping[str, str] | None = None,
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

    # ---- parallel ------------------------------------------------------------------------------------------

    async def join(self, name: str, branches: Mapping[str, Callable[..., Awaitable[Any]]]) -> dict[str, Any]:
        """Run all branches; all settle. Results by branch, or `JoinFailed` with the errors by branch."""
        tasks = self._branches(name, branches, "join")
        await self._settled(tasks.values())
        errors = {branch: error for branch, task in tasks.items() if (error := _error(task)) is not None}
        if errors:
            raise _joined(name, errors)
        return {branch: task.result() for branch, task in tasks.items()}

    async def race(self, name: str, branches: Mapping[str, Callable[..., Awaitable[Any]]]) -> tuple[str, Any]:
        """Run all branches; the first to complete wins, the others are cut at once. None: `RaceFailed`."""
        tasks = self._branches(name, branches, "race")
        names = {task: branch for branch, task in tasks.items()}
        finished = _Finished(tasks.values())
        errors: dict[str, Exception] = {}
        try:
            while not finished.all:
                for task in await finished.next():
                    error = _error(task)
                    if error is None:
                        return names[task], task.result()
                    if isinstance(error, RollBack):
                        raise error
                    errors[names[task]] = error
        finally:
            self._machine.cut(tasks.values())
        raise RaceFailed(name, errors)

    async def map(
        self,
        name: str,
        function: Callable[[S], Awaitable[T]],
        items: Iterable[S],
        *,
        concurrency: int | None = None,
    ) -> list[T]:
        """Run `function(item)` for each item, at most `concurrency` at once. Results in order: see `join`."""
        if not callable(function):
            raise BadCall(f"ctx.map({name!r}, function, items): found {function!r}")
        if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):  # type: ignore[redundant-expr]
            raise BadCall(f"ctx.map({name!r}): concurrency={concurrency!r} must be at least 1")
        machine, scope, values = self._machine, scopes.current.get(), list(items)
        location = machine.claim(name)
        machine.note("map", location)
        slots = asyncio.Semaphore(concurrency or len(values) or 1)

        async def run(item: S) -> T:
            async with slots:
                return await function(item)

        tasks = [
            machine.loop.spawn(run(item), scope.item(location, number), copy_context(), f"{name}/{number}")
            for number, item in enumerate(values)
        ]
        await self._settled(tasks)
        errors = {str(number): error for number, task in enumerate(tasks) if (error := _error(task)) is not None}
        if errors:
            raise _joined(name, errors)
        return [task.result() for task in tasks]

    def _branches(self, name: str, branches: Mapping[str, Any], verb: str) -> dict[str, FlowTask]:
        if not (isinstance(branches, Mapping) and all(map(callable, branches.values()))):  # type: ignore[redundant-expr]
            raise BadCall(
                f"ctx.{verb}({name!r}, {{branch: async function}}): found {branches!r}; "
                "a call becomes a function with lambda: before it"
            )
        machine, scope = self._machine, scopes.current.get()
        location = machine.claim(name)
        machine.note(verb, location)
        inside = {branch: scope.branch(location, branch) for branch in branches}  # a bad name starts nothing
        return {
            branch: machine.loop.spawn(_called(function, self), inside[branch], copy_context(), f"{name}/{branch}")
            for branch, function in branches.items()
        }

    async def _settled(self, tasks: Collection[FlowTask]) -> None:
        """Wait until all have ended; if that is cancelled, cut what still runs."""
        finished = _Finished(tasks)
        try:
            while not finished.all:
                await finished.next()
        except asyncio.CancelledError:
            self._machine.cut(tasks)
            raise

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
        if not callable(body):
            raise BadCall(f"ctx.loop({name!r}, body): found {body!r}")
        if not all(isinstance(each, int) and each >= 1 for each in (keep, prune_every)):  # type: ignore[redundant-expr]
            raise BadCall(f"ctx.loop({name!r}): keep={keep!r} and prune_every={prune_every!r} must be at least 1")
        machine, scope = self._machine, scopes.current.get()
        location = machine.claim(name)
        machine.note("loop", location)
        annotation, takes_state = state_annotation_of(body)
        mark = await machine.resume_loop(location)
        number, value = (mark.number, mark.state) if mark is not None else (0, _state_bytes(name, state))
        entry = turns = 0
        told = False
        while True:
            if entry != machine.moment.number:
                entry, turns = machine.moment.number, 0
            turns += 1
            if turns > TURNS_MAX:
                raise BadCall(f"loop {name!r} ran {TURNS_MAX:,} iterations without waiting for anything: it spins")
            machine.mark(location, number, value)
            token = scopes.current.set(scope.iteration(location, number))
            try:
                arguments = (self, from_plain(decode(value), annotation)) if takes_state else (self,)
                answer = await body(*arguments)
            finally:
                with suppress(ValueError):  # closed by the garbage collector, in whatever context that runs
                    scopes.current.reset(token)
            if isinstance(answer, Break):
                machine.prune(location, keep, number)
                return answer.value
            if answer is not None and not isinstance(answer, Continue):
                raise BadCall(f"the body of loop {name!r} returned {answer!r}; return Continue, Break or nothing")
            if answer is not None:
                value = _state_bytes(name, answer.state)
            elif takes_state and not told:
                told = True
                machine.flow.warn(body, f"the body of loop {name!r} returned nothing{SAME_STATE}")
            number += 1
            if number % prune_every == 0:
                machine.prune(location, keep, number - 1)


class _Finished:
    """Tasks in the order in which they ended, a few at a time."""

    def __init__(self, tasks: Iterable[FlowTask]) -> None:
        self._left = 0
        self._fresh: list[FlowTask] = []
        self._wake: asyncio.Future[None] | None = None
        for task in tasks:
            self._left += 1
            task.add_done_callback(self._done)

    @property
    def all(self) -> bool:
        return self._left == 0 and not self._fresh

    async def next(self) -> list[FlowTask]:
        if not self._fresh:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        fresh, self._fresh = self._fresh, []
        return fresh

    def _done(self, task: Any) -> None:
        self._left -= 1
        self._fresh.append(task)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _joined(name: str, errors: dict[str, Exception]) -> Exception:
    """What a join raises. A branch that asks for a rollback asks for all."""
    return next((error for error in errors.values() if isinstance(error, RollBack)), JoinFailed(name, errors))


def _error(task: FlowTask) -> Exception | None:
    if task.cancelled():
        return BadCall("the branch was cancelled from inside")
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error


async def _called(function: Callable[..., Any], context: Context) -> Any:
    """A branch is `async def branch()` or `async def branch(ctx)`, or whatever else gives an awaitable."""
    awaitable = function(context) if takes_argument(function) else function()
    if not inspect.isawaitable(awaitable):
        raise BadCall(f"a branch must be async: {function!r} returned {awaitable!r}")
    return await awaitable


def _state_bytes(name: str, state: object) -> bytes:
    return limited(encode(to_plain(state)), f"the state of loop {name!r}")
