"""Steps of a flow: calls with retries, and the undo of a step, which is a step of its own."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack, overload

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.codec.returns import importable, is_async, returns_of
from perdure.errors import BadCall, OutcomeUnknown, RollBack, StepFailed, StepTimeout
from perdure.kernel.effects import Call, Timer
from perdure.kernel.moment import TIME_MAX
from perdure.kernel.problem import Hook, ProblemKind
from perdure.kernel.receipt import Failure, Receipt
from perdure.ports.executor import Work

from . import copies
from .author import DEFAULT, Options, StepFunction, StepOptions, limited, nanoseconds, with_options
from .failures import at
from .operation import AGAIN
from .scope import dice
from .undo import Done

if TYPE_CHECKING:
    from .machine import FlowMachine

P = ParamSpec("P")
T = TypeVar("T")

HERE: Final = frozenset({"inline", "thread"})
"""Executors whose calls stay in this process. Others get the name of a function and recorded arguments."""


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
    if executor in HERE:
        function = _called_here(name, function, kwargs, executor)
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
        delay = options.backoff.seconds(attempt, dice(machine.moment).random)
        due = min(TIME_MAX, machine.moment.at + nanoseconds(delay))
        machine.report(hooks, kind, location, attempt, error, options.retries + 1 - attempt, due)
        if delay > 0:
            await machine.answer(machine.open(Timer(f"{location}/backoff#{attempt}", due)))
        attempt += 1


def _called_here(
    name: str, function: Callable[..., Any], kwargs: Mapping[str, Any], executor: str
) -> Callable[..., Any]:
    """The function as an executor of this process calls it."""
    if kwargs and (given := misplaced(function, kwargs)):
        function = _refusing(name, function, given)
    if executor == "inline" and not is_async(function):
        function = functools.partial(_on_the_loop, function)
    return function


def misplaced(function: Callable[..., Any], names: Iterable[str]) -> list[str]:
    """Options of steps among the arguments of a function that does not take them."""
    given = [name for name in names if name in StepOptions.__struct_fields__]
    if not given:
        return []
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return []
    return [name for name in given if name not in parameters]


def where_options_go(name: object, function: str, given: list[str]) -> str:
    options = ", ".join([f"{each}=..." for each in given])
    return f"write ctx.step.options({options})({name!r}, {function}, ...) or @perdure.step({options})"


def _refusing(name: str, function: Callable[..., Any], given: list[str]) -> Callable[..., Any]:
    """In place of a function that was given options of the step: the step fails, and is not tried again."""
    called = getattr(function, "__name__", repr(function))

    def refuse(*_: Any, **__: Any) -> None:
        text = f"{called}() got an unexpected keyword argument {given[0]!r}, which is an option of the step: "
        error = TypeError(text + where_options_go(name, called, given))
        error.retry = False  # type: ignore[attr-defined]  # no attempt would go better
        raise error

    return refuse


async def _on_the_loop(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A plain function that its author wants to be called on the engine's loop."""
    value = function(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value


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
