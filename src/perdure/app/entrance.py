"""What `perdure.open` and `perdure.connect` give before they are entered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, ParamSpec, TypeVar

from perdure.errors import NotEntered

C = TypeVar("C")
P = ParamSpec("P")


class Entrance(Generic[C]):
    """What `perdure.open` and `perdure.connect` give: to be entered with `async with`. Any other use says so."""

    def __init__(self, call: str, inside: AbstractAsyncContextManager[C]) -> None:
        self._call = call
        self._inside = inside

    async def __aenter__(self) -> C:
        return await self._inside.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inside.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # a type checker refuses these uses by itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # what Python itself asks for
                raise AttributeError(name)
            self._refuse(f"has no {name}: it was not entered")

        def __enter__(self) -> NoReturn:
            self._refuse("was entered with a plain `with`")

        def __exit__(self, *error: object) -> None: ...

        def __await__(self) -> NoReturn:
            self._refuse("was awaited")

    def _refuse(self, found: str) -> NoReturn:
        raise NotEntered(
            f"{self._call}(...) {found}; write `async with {self._call}(...) as engine:`, or in a script without an "
            "event loop perdure.run(workflow, ...)"
        )


def entrance(function: Callable[P, AbstractAsyncContextManager[C]]) -> Callable[P, Entrance[C]]:
    @functools.wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Entrance[C]:
        return Entrance(f"perdure.{function.__name__}", function(*args, **kwargs))

    return opening
