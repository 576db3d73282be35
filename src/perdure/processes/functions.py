"""What an author adds in Python: functions of expressions, and transports that perform calls to services."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import update_wrapper
from typing import Any, Final

import msgspec

from perdure.errors import BadCall

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_VERSION: Final = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}")
_SERVICE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")


class UserFunction:
    """A pure function that expressions may call by its full name: `fn.shop.discount(x)`."""

    def __init__(self, function: Callable[..., Any], name: str, version: str) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name
        self.version = version

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def function(name: str, version: str = "1.0.0") -> Callable[[Callable[..., Any]], UserFunction]:
    """Make a function known to expressions: `@function("shop.discount")`. It is pure, and returns plain data."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # type: ignore[redundant-expr]
        raise BadCall(f"@function({name!r:.80}): a function has a module and a name in lower case: shop.discount")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):  # type: ignore[redundant-expr]
        raise BadCall(f"@function({name!r}, version={version!r:.80}): a version is MAJOR.MINOR.PATCH")

    def decorate(target: Callable[..., Any]) -> UserFunction:
        if not inspect.isfunction(target) or inspect.iscoroutinefunction(target):
            raise BadCall(f"@function({name!r}) stands before a plain def: it computes, and waits for nothing")
        return UserFunction(target, name, version)

    return decorate


class Request(msgspec.Struct, frozen=True):
    """A call that a transport performs."""

    command: str
    payload: Any
    idempotency_key: str
    attempt: int
    deadline: datetime | None
    instance: str


class TransportError(Exception):
    """A call failed. `code` is what expressions see as `error.code`; with `retry=False` there is no further attempt."""

    def __init__(self, code: str, message: str = "", retry: bool = True, data: Any = None) -> None:
        super().__init__(message or code)
        self.code = code
        self.retry = retry
        self.data = {"code": code, "data": data}


Perform = Callable[[Request], Awaitable[Any]]


class Transport:
    """A function that performs every call to `service(name, command)`."""

    dialect = "process"  # handlers of other dialects are given to the same engine

    def __init__(self, perform: Perform, name: str) -> None:
        update_wrapper(self, perform)
        self.perform = perform
        self.name = name

    def __call__(self, request: Request) -> Awaitable[Any]:
        return self.perform(request)


def transport(name: str) -> Callable[[Perform], Transport]:
    """Make an `async def f(request)` the transport of a service. Give it to `perdure.open(handlers=[...])`."""
    if not isinstance(name, str) or not _SERVICE.fullmatch(name):  # type: ignore[redundant-expr]
        raise BadCall(f"@transport({name!r:.80}): the name of a service is letters, digits, _ . and -")

    def decorate(perform: Perform) -> Transport:
        if not inspect.iscoroutinefunction(perform):
            raise BadCall(f"@transport({name!r}) stands before an async def with one parameter, the request")
        return Transport(perform, name)

    return decorate
