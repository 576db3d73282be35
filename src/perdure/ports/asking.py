"""How a running call asks its instance for something, and is answered when that is durable (foundations B11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

Ask = Callable[[str, str, bytes], Awaitable[bytes]]
"""Called with the id of the request, its name and its body; gives the value of the answer."""

current: ContextVar[Ask] = ContextVar("perdure_ask")
"""Set by an executor around a call that may ask."""
