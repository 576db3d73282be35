"""Tools: functions that runs may use, each call judged by the gate and recorded once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, overload

from perdure.codec import Signature
from perdure.codec.converters.records import hints_of
from perdure.codec.jsonschema import schema_of
from perdure.errors import BadCall
from perdure.kernel.backoff import Backoff

RETRIES_MAX: Final = 1_000_000


class Tool:
    """A function with the options of a tool. Made by `@tool`; called, it is the plain function.

    `writes`: it changes something; nodes that are `read_only` may not use it. The other options are those of steps.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        writes: bool = False,
        once: bool = False,
        retries: int = 3,
        backoff: Backoff | None = None,
        timeout: float | timedelta | None = None,
        executor: str | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name: str = name or function.__name__
        self.description = inspect.cleandoc(function.__doc__ or "")
        self.writes = writes
        self.once = once
        self.retries = retries
        self.backoff = backoff or Backoff()
        self.timeout = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        self.executor = executor or ("inline" if inspect.iscoroutinefunction(function) else "thread")
        if not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:  # type: ignore[redundant-expr]
            raise BadCall(
                f"the tool {self.name}: retries is a whole number from 0 to {RETRIES_MAX:,}, found {retries!r}"
            )
        if self.timeout is not None and not self.timeout > 0:
            raise BadCall(f"the tool {self.name}: timeout is more than no time, found {timeout!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @property
    def brought(self) -> Callable[..., Any]:
        """The function that a worker of a queue calls."""
        return self.function

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are recorded, defaults included; `NotConvertible` if they do not fit."""
        return Signature.of(self.function).bind_plain(dict(arguments))

    def arguments(self, plain: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, converted by the annotations."""
        return Signature.of(self.function).call_args(plain)

    @functools.cached_property
    def returns(self) -> Any:
        return hints_of(self.function, None).get("return")

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The parameters as JSON Schema: what a model is told."""
        hints = hints_of(self.function, None)
        properties: dict[str, Any] = {}
        needed: list[str] = []
        for name, parameter in inspect.signature(self.function).parameters.items():
            found = dict(schema_of(hints[name])) if name in hints and hints[name] is not Any else {}
            found.pop("$schema", None)
            properties[name] = found
            if parameter.default is parameter.empty:
                needed.append(name)
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = ...,
    writes: bool = ...,
    once: bool = ...,
    retries: int = ...,
    backoff: Backoff | None = ...,
    timeout: float | timedelta | None = ...,
    executor: str | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    writes: bool = False,
    once: bool = False,
    retries: int = 3,
    backoff: Backoff | None = None,
    timeout: float | timedelta | None = None,
    executor: str | None = None,
) -> Any:
    """Make a function a tool. Its annotations are its schema, its docstring is what agents read."""
    if function is not None and not callable(function):
        raise BadCall(f"@tool stands before a function, or takes options by name; found {function!r:.80}")
    options: dict[str, Any] = {"name": name, "writes": writes, "once": once, "retries": retries}
    options |= {"backoff": backoff, "timeout": timeout, "executor": executor}
    return functools.partial(Tool, **options) if function is None else Tool(function, **options)
