"""What an author writes: `@flow`, `@step`, `Backoff`, and the answers of a loop's body. Nothing runs here."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from math import inf, isnan, nan
from types import CodeType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from weakref import WeakValueDictionary

import msgspec

from perdure.codec import Signature, decode, encode
from perdure.errors import BadCall, FlowWarning, NotAFlow, TooLarge
from perdure.kernel.backoff import Backoff as Backoff  # noqa: PLC0414  # this module gives it to authors
from perdure.kernel.decision import Decision
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import OURS, Effect, attempt_of
from perdure.kernel.limits import VALUE_MAX, Limits
from perdure.kernel.loops import Break as Break  # noqa: PLC0414
from perdure.kernel.loops import Continue as Continue  # noqa: PLC0414
from perdure.kernel.machine import Machine
from perdure.kernel.policy import Policy
from perdure.kernel.problem import Hook
from perdure.kernel.receipt import Failure
from perdure.kernel.routing import Subscription

from .forms import messages_of
from .scope import text

if TYPE_CHECKING:
    from .machine import FlowMachine
    from .names import Names
    from .source import Finding

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Q = ParamSpec("Q")
Owner = TypeVar("Owner")

Duration = timedelta | float | int
FailureKind = Literal["fatal", "timeout", "exhausted", "unknown", "child", "join", "race", "rollback"]


RETRIES_MAX = 1_000_000

OPTIONS: Final = object()
"""What a decorator gets in place of a function when it is called with its options alone."""


class StepOptions(msgspec.Struct, frozen=True):
    """How a step is executed. `retry_if` is asked with the recorded failure and must be pure.

    `once`: after a crash it is not known whether the step took effect, and it is not run again. With `unknown="stuck"`
    the instance then stops for a person to answer; with "raise" the flow itself gets `OutcomeUnknown`. `ephemeral`: for
    cheap, repeatable work; it begins without waiting for a commit, and its result is durable with the next one. `undo`
    is called with the step's result, as a step of its own, when what the flow has done is rolled back. `on_error` hears
    of each failure of the step and of its undo. `resources` are what a step of a queue asks of a cluster, by name.
    """

    retries: int = 3
    backoff: Backoff = Backoff()
    timeout: Duration | None = None
    retry_on_timeout: bool = False
    retry_if: Callable[[Failure], bool] | None = None
    executor: str | None = None  # None: inline for `async def`, a thread for `def`
    once: bool = False
    unknown: Literal["stuck", "raise"] = "stuck"
    ephemeral: bool = False
    undo: Callable[..., Any] | None = None
    on_error: Hook | None = None
    resources: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.retries, int) or isinstance(self.retries, bool) or self.retries < 0:  # type: ignore[redundant-expr]
            raise BadCall(f"retries={self.retries!r}: a step is retried 0 times or more")
        if self.timeout is not None and not seconds(self.timeout) > 0:
            raise BadCall(f"timeout={self.timeout!r}: a step needs more than no time")
        if self.retries > RETRIES_MAX:
            raise BadCall(f"retries={self.retries!r}: {RETRIES_MAX:,} are the most")
        if not isinstance(self.backoff, Backoff):
            raise BadCall(f"backoff={self.backoff!r} must be a perdure.Backoff")
        for name in ("retry_if", "undo", "on_error"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise BadCall(f"{name}={getattr(self, name)!r} must be a function")
        for name in ("retry_on_timeout", "once", "ephemeral"):
            if not isinstance(getattr(self, name), bool):
                raise BadCall(f"{name}={getattr(self, name)!r} must be True or False")
        if self.executor is not None:
            text(self.executor, "an executor")
        if self.resources is not None:
            _check_resources(self.resources, self.executor)
        if self.once and self.ephemeral:
            raise BadCall("a step is once=True or ephemeral=True: what may be repeated at will cannot run once only")
        if self.unknown not in ("stuck", "raise"):
            raise BadCall(f'unknown={self.unknown!r}: a step whose outcome is unknown is "stuck" or does "raise"')


def _check_resources(resources: Any, executor: str | None) -> None:
    amounts = resources.items() if isinstance(resources, Mapping) else [(None, None)]
    if not all(isinstance(name, str) and name and _is_amount(amount) for name, amount in amounts):
        raise BadCall(f'resources={resources!r}: resources are amounts by name, 0 or more, like {{"GPU": 1}}')
    if executor is None or executor in OURS:
        raise BadCall(f"resources={resources!r} are asked of a cluster: give the step the queue too, executor=NAME")


def _is_amount(amount: Any) -> bool:
    return isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < inf


DEFAULT = StepOptions()


class Options(TypedDict, total=False):
    """The options of a step, as keyword arguments."""

    retries: int
    backoff: Backoff
    timeout: Duration | None
    retry_on_timeout: bool
    retry_if: Callable[[Failure], bool] | None
    executor: str | None
    once: bool
    unknown: Literal["stuck", "raise"]
    ephemeral: bool
    undo: Callable[..., Any] | None
    on_error: Hook | None
    resources: Mapping[str, float] | None


def with_options(base: StepOptions, options: Options) -> StepOptions:
    """The base with some options changed."""
    unknown = set(options) - set(StepOptions.__struct_fields__)
    if unknown:
        known = ", ".join(StepOptions.__struct_fields__)
        raise BadCall(f"a step has no option {', '.join(sorted(unknown))}; there are: {known}")
    return StepOptions(**{**msgspec.structs.asdict(base), **options})


class StepFunction(Generic[P, R]):
    """A function with step options. Called in a flow it is a durable step; elsewhere the plain function."""

    def __init__(self, function: Callable[P, R], options: StepOptions) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        from .context import running_context

        context = running_context()
        if context is None:
            return self.function(*args, **kwargs)
        return context.step(self.__name__, self, *args, **kwargs)  # type: ignore[return-value]

    __name__: str

    @property
    def brought(self) -> Callable[P, R]:
        """The function itself: workers and effects call it, without a flow."""
        return self.function

    @overload
    def __get__(self, owner: None, kind: type, /) -> StepFunction[P, R]: ...

    @overload
    def __get__(self: StepFunction[Concatenate[Owner, Q], R], owner: Owner, kind: type, /) -> StepFunction[Q, R]: ...

    def __get__(self, owner: Any, kind: type, /) -> Any:
        """A step that is a method: bound, it keeps its options."""
        return self if owner is None else StepFunction(self.function.__get__(owner, kind), self.options)


@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...


@overload
def step(**options: Unpack[Options]) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...


def step(function: Callable[P, R] | None = None, /, **options: Unpack[Options]) -> Any:
    """Give a function step options. Inside a flow, calling it is `ctx.step(name, function, ...)`."""
    if function is not None:
        if not callable(function):
            raise BadCall(f"@perdure.step stands before a function, or takes options by name; found {function!r}")
        return _registered(StepFunction(function, DEFAULT))
    chosen = with_options(DEFAULT, options)
    return lambda wrapped: _registered(StepFunction(wrapped, chosen))


STEPS: Final[WeakValueDictionary[tuple[str, str], StepFunction[Any, Any]]] = WeakValueDictionary()
"""What `@perdure.step` has made in this process, by module and qualified name."""


def _registered(made: StepFunction[P, R]) -> StepFunction[P, R]:
    module, name = getattr(made, "__module__", None), getattr(made, "__qualname__", None)
    if module and name:  # a partial has no name
        STEPS[module, name] = made
    return made


class Ok(msgspec.Struct, Generic[T], frozen=True):
    """An attempt succeeded."""

    value: T = None  # type: ignore[assignment]


class Failed(msgspec.Struct, frozen=True):
    """An attempt failed, for good: its retries are used up. `error` is what would have been raised."""

    kind: FailureKind
    error: Exception


class Flow(Generic[P, R]):
    """A durable async function: a workflow of the flow dialect. Made by `@flow`."""

    policy = Policy("flow")
    subscriptions: tuple[Subscription, ...] = ()

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        name: str,
        version: str,
        *,
        strict: bool,
        strict_names: bool,
        cleanup: float,
        on_error: Hook | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.version = version
        self.strict = strict
        self.strict_names = strict_names
        self.cleanup = cleanup
        self.on_error = on_error
        self.limits = Limits(bytes=2 * VALUE_MAX)
        self.signature = Signature.of(function, skip_first=True)
        self.parameters = self.signature.parameters()
        self.loops = _names_loop(function.__code__)
        """Whether instances keep a log: only `ctx.loop` needs one. Found out at the latest when a loop begins."""
        self._warned = False
        self._warnings: dict[str | tuple[str, type[Warning], int], int] = {}  # for Python's own register

    def message_schemas(self) -> dict[str, list[dict[str, Any]]]:
        """The messages that its code receives, by name, with the schemas of their types."""
        return messages_of(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
        """Plain call, for unit tests of the body with a context of the caller's own."""
        try:
            return self.function(*args, **kwargs)
        except TypeError as error:  # of the call: nothing of the body has run
            raise TypeError(f"{error}; an instance is started with engine.start({self.name}, ...)") from None

    def __repr__(self) -> str:
        return f"<flow {self.name} {self.version}>"

    # ---- what the kernel needs (perdure.kernel.machine.Workflow) -------------------------------------------

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        from .machine import FlowMachine

        return FlowMachine(self, address, snapshot)

    def unread(self, machine: Machine) -> list[tuple[str, Any]]:
        """The messages that were not received yet, for people."""
        kept = cast("FlowMachine", machine).mailbox.kept()
        return [(mail.message.name, decode(mail.message.body)) for mail in kept]

    def refuse_answer(self, machine: Machine, location: str, answer: Any) -> None:
        from .unsettled import refuse_answer

        refuse_answer(cast("FlowMachine", machine), location, answer)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        if not same_operations(recorded, current) or recorded.withdraw != current.withdraw:
            return True
        if not recorded.send and not current.send:
            return False
        return [(send.to, send.name) for send in recorded.send] != [(send.to, send.name) for send in current.send]

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        from .advice import explain

        return explain(cast("FlowMachine", machine), difference)

    # ---- what an engine needs that takes it up, and `perdure check` ----------------------------------------

    @property
    def modules(self) -> tuple[str, ...]:
        """Where the functions are that its steps may call on a queue."""
        return (self.function.__module__,)

    @functools.cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What stands in its source that a replay would not repeat. Looked for when everything it names exists."""
        from .source import findings

        return findings(self.function)

    @functools.cached_property
    def names(self) -> Names:
        """Which operations its source has, for the advice that a divergence gives."""
        from .names import Names

        return Names(self.function)

    def warn(self, function: Callable[..., Any], text: str) -> None:
        """A `FlowWarning` at the line of a function. Once, unless warnings are errors."""
        code = getattr(function, "__code__", self.function.__code__)
        where = code.co_filename, code.co_firstlineno
        warnings.warn_explicit(f"flow {self.name}: {text}", FlowWarning, *where, registry=self._warnings)

    def registered(self) -> None:
        """Warn of the findings, once; a strict flow with findings is refused."""
        if self.findings and not self._warned:
            from .source import tell

            tell(self)
            self._warned = True

    # ---- what callers need (perdure.app) -------------------------------------------------------------------

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return limited(encode(self.signature.bind(args, kwargs)), f"the input of {self.name}")

    def encode_plain_input(self, value: Any) -> bytes:
        """Input that comes as JSON: an object is keyword arguments, an array positional ones."""
        return limited(encode(self.signature.bind_plain(value)), f"the input of {self.name}")

    def decode_result(self, value: bytes) -> R:
        return self.signature.result_from_plain(decode(value))  # type: ignore[no-any-return]


def _names_loop(code: CodeType) -> bool:
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return "loop" in code.co_names or any(_names_loop(inner) for inner in nested)


def same_operations(recorded: Decision, current: Decision) -> bool:
    """A flow's operations are its order of kinds, names and attempts; options like a timeout may change."""
    return (
        len(recorded.open) == len(current.open)
        and (recorded.outcome is None) == (current.outcome is None)
        and recorded.noted == current.noted
        and all(map(_same_operation, recorded.open, current.open))
    )


def _same_operation(then: Effect, now: Effect) -> bool:
    return type(then) is type(now) and then.location == now.location and attempt_of(then) == attempt_of(now)


FlowFunction = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]


@overload
def flow(function: FlowFunction[P, R], /) -> Flow[P, R]: ...


@overload
def flow(
    *,
    name: str | None = ...,
    version: str = ...,
    strict: bool = ...,
    strict_names: bool = ...,
    cleanup: Duration = ...,
    on_error: Hook | None = ...,
) -> Callable[[FlowFunction[P, R]], Flow[P, R]]: ...


def flow(
    function: Any = OPTIONS,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    strict: bool = False,
    strict_names: bool = False,
    cleanup: Duration = 60,
    on_error: Hook | None = None,
) -> Any:
    """Make an `async def f(ctx, ...)` durable.

    name: what the journal calls it (default: the function's name). version: text, recorded with each
    instance, which runs on that version as long as it is registered; numbers in it count as numbers. strict: an
    engine refuses the flow if its source has what a replay would not repeat (default: it warns). strict_names:
    refuse the same name twice in one scope. cleanup: how long `finally` blocks may run after a cancel. on_error:
    hears of each failure of the flow, of its steps and of its undos.
    """
    if on_error is not None and not callable(on_error):
        raise BadCall(f"on_error={on_error!r} must be a function")

    def define(function: Any) -> Flow[Any, Any]:
        _check(function)
        called = function.__name__ if name is None else text(name, "the name of a flow")
        if "/" in called:
            raise BadCall(f"the name of a flow has no slash, found {called!r}: an instance is named workflow/key")
        _warn_of_options(function, called)
        return Flow(
            function,
            called,
            text(_as_text(version), "the version of a flow"),
            strict=strict,
            strict_names=strict_names,
            cleanup=seconds(cleanup),
            on_error=on_error,
        )

    return define if function is OPTIONS else define(function)


def _as_text(version: Any) -> Any:
    """A version. A number means its text."""
    return str(version) if type(version) is int else version


def _check(function: Any) -> None:
    code = getattr(function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else _caller()
    if isinstance(function, StepFunction):
        raise NotAFlow(f"the step {function.__name__!r}", where)
    if not isinstance(code, CodeType) or not inspect.iscoroutinefunction(function):  # a `partial` has no code
        kind = "a generator" if inspect.isasyncgenfunction(function) else "a plain function"
        named = isinstance(code, CodeType)
        raise NotAFlow(f"{kind} {function.__name__!r}" if named else f"{type(function).__name__} {function!r}", where)
    if code.co_argcount == 0 and not code.co_flags & inspect.CO_VARARGS:
        raise NotAFlow(f"`async def {function.__name__}()` without a parameter for the context", where)


def _caller() -> str:
    """Where the decorator is used, as file:line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


OPTIONS_OF_START = frozenset({"key", "tags", "reuse", "at", "delay", "parent", "by"})


def _warn_of_options(function: Any, name: str) -> None:
    """Warn of parameters that no keyword argument of a start reaches."""
    code = function.__code__
    parameters = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    for parameter in [each for each in parameters if each in OPTIONS_OF_START]:
        text = (
            f"flow {name} has a parameter {parameter!r}, which is also an option of engine.start: "
            f"start(..., {parameter}=...) sets the option; rename the parameter, or pass it by position"
        )
        warnings.warn_explicit(text, FlowWarning, code.co_filename, code.co_firstlineno, module=function.__module__)


def seconds(duration: Duration) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    try:
        found = float(duration)
    except (TypeError, ValueError):
        found = nan
    if isnan(found):
        raise BadCall(f"a duration is a number of seconds or a timedelta, found {duration!r}")
    return found


def nanoseconds(duration: Duration) -> int:
    """Never more than a row can hold: a longer wait would take two centuries."""
    return round(min(max(seconds(duration), -9e9), 9e9) * 1e9)


def limited(value: bytes, what: str) -> bytes:
    if len(value) > VALUE_MAX:
        raise TooLarge(what, len(value), VALUE_MAX)
    return value
