"""What the annotations of step functions and loop bodies say, found once per function and cheaply for lambdas."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

_hints: dict[object, Any] = {}


def returns_of(function: Callable[..., Any]) -> Any:
    """The annotation of a function's result, or None when it has none."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    annotations = getattr(function, "__annotations__", None)
    if not annotations:
        return None
    found = annotations.get("return")
    if not isinstance(found, str):
        return None if found is Any or found is object else found
    return _resolved(function).get("return")


def state_annotation_of(body: Callable[..., Any]) -> tuple[Any, bool]:
    """The annotation of the second parameter of a loop's body, and whether it has one: `body(ctx)` is stateless."""
    parameters = list(inspect.signature(body).parameters.values())
    if len(parameters) < 2:
        return None, False
    found = parameters[1].annotation
    if found is inspect.Parameter.empty:
        return None, True
    return (_resolved(body).get(parameters[1].name) if isinstance(found, str) else found), True


def _resolved(function: Any) -> dict[str, Any]:
    """Annotations written as text. A name that cannot be found (a local class) counts as no annotation."""
    code = getattr(function, "__code__", function)
    if code not in _hints:
        try:
            _hints[code] = typing.get_type_hints(function)
        except (NameError, TypeError, AttributeError):
            _hints[code] = {}
    found: dict[str, Any] = _hints[code]
    return found
