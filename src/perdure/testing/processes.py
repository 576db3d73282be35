"""Processes in a world: what performs their calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.app.effects import step_handler
from perdure.errors import CallerError
from perdure.ports.executor import Handler


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
