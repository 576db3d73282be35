"""Processes in a world: what performs their calls, and what a test does without `await`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from perdure.app.effects import step_handler
from perdure.errors import CallerError
from perdure.ports.executor import Handler

from .disks import at_once


def performers(given: Iterable[Any]) -> dict[str, Handler]:
    """By effect: the handlers that were given, and those that perform the calls of processes."""
    from perdure.processes.transports import handlers

    listed = list(given)
    found: list[Any] = [each for each in listed if hasattr(each, "effect")]
    return {each.effect: each for each in [*handlers(listed, _no_request, step_handler), *found]}


async def _no_request(request: Any, call: Any) -> Any:
    raise CallerError(
        f"a world makes no requests, and here {request.url} is asked for: world.script(step, returns=...)"
    )


class AtOnce:
    """An object whose coroutines are run when they are called: `world.tasks.complete(...)`."""

    def __init__(self, target: Any, message_id: Callable[[], str]) -> None:
        self._target = target
        self._message_id = message_id

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = getattr(self._target, name)
        if not inspect.iscoroutinefunction(found):
            return found  # type: ignore[no-any-return]

        takes_id = "id" in inspect.signature(found).parameters

        @wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            if takes_id and kwargs.get("id") is None:
                kwargs["id"] = self._message_id()
            return at_once(found(*args, **kwargs))

        return call
