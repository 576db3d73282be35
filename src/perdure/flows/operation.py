"""Operations: the effects that a flow has open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.kernel.effects import Effect
from perdure.kernel.problem import Hook, ProblemKind
from perdure.kernel.receipt import Receipt

AGAIN: Final = Receipt("error")
"""What a step hears whose outcome was unknown, when a person says: run it again."""

SLEEP: Final = "sleep"
"""The work of a timer that the author knows as a sleep: it can be woken."""


class Operation(msgspec.Struct, eq=False):
    """An effect that the flow has open: who waits for its receipt, and what there is to do for it."""

    id: bytes
    effect: Effect
    future: asyncio.Future[Any] | None
    fire: Callable[[], None] | None = None
    work: object = None
    settle: bool = False  # an unknown outcome waits for a person...
    returns: Any = None  # ...whose answer has this type...
    kind: ProblemKind = "step"  # ...and is told as a problem of this kind...
    hooks: tuple[Hook, ...] = ()  # ...to these
