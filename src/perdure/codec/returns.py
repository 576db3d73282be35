"""What the signatures of the functions that authors write say. Cheap: it is asked at every step."""

import functools
import inspect
import sys
import typing
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import FunctionType, NoneType
from typing import Any

_hints: dict[int, tuple[object, dict[str, Any]]] = {}  # by the id of code, which is kept so that no other gets its id
_AWAITED = (Awaitable, Coroutine)


def returns_of(function: Callable[..., Any]) -> Any:
    """The annotation of a function's result, or None when it has none."""
    if type(function) is FunctionType:
        found: Any = function.__annotations__.get("return")
    else:
        function = _underlying(function)
        found = getattr(function, "__annotations__", {}).get("return")
    if type(found) is str:
        found = _resolved(function).get("return")
    if type(found) is type:  # the common case
        return None if found is object or found is NoneType else found
    if found is None or found is Any:
        return None
    if typing.get_origin(found) in _AWAITED:  # a plain function that gives an awaitable
        return typing.get_args(found)[-1]
    return found


def _underlying(function: Any) -> Any:
    """What bears the annotations of something that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if hasattr(function, "__code__") or isinstance(function, type):
        return function
    return type(function).__call__  # an object that can be called


def takes_context(function: Any) -> bool:
    """Whether a function is a block of the flow itself: its first parameter is the flow's context."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    return first is not None and first.name == "ctx"


def is_async(function: Any) -> bool:
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:  # the common case
        return True
    if inspect.isfunction(function):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def importable(module: str) -> str:
    """The name that a module has elsewhere: a script that runs is the module that its file would be."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    spec: Any = getattr(main, "__spec__", None)
    if spec is not None:  # python -m
        return str(spec.name)
    return Path(getattr(main, "__file__", None) or module).stem


def state_annotation_of(body: Callable[..., Any]) -> tuple[Any, bool]:
    """The annotation of the second parameter of a loop's body, and whether it has one: without, no state."""
    parameters = list(inspect.signature(body).parameters.values())
    if len(parameters) < 2:
        return None, False
    found = parameters[1].annotation
    if found is inspect.Parameter.empty:
        return None, True
    return (_resolved(body).get(parameters[1].name) if isinstance(found, str) else found), True


def takes_argument(function: Callable[..., Any]) -> bool:
    """Whether a function cannot be called without an argument. A parameter with a default wants none."""
    if inspect.isfunction(function) and not hasattr(function, "__wrapped__"):
        return function.__code__.co_argcount > len(function.__defaults__ or ())
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def _resolved(function: Any) -> dict[str, Any]:
    """Annotations written as text. A name that cannot be found (a local class) counts as no annotation."""
    code = getattr(function, "__code__", function)
    known = _hints.get(id(code))
    if known is None:
        try:
            known = code, typing.get_type_hints(function)
        except (NameError, TypeError, AttributeError):
            known = code, {}
        _hints[id(code)] = known
    return known[1]
