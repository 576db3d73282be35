"""What a delivery says without waiting for an answer: messages, published values, tags, notes, reports."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from perdure.kernel.decision import Send
from perdure.kernel.problem import Report


class Said:
    """What one delivery says without waiting for an answer. Most say nothing."""

    __slots__ = ("answers", "noted", "published", "reports", "responded", "sent", "tags")

    def __init__(self) -> None:
        self.sent: list[Send] = []
        self.published: list[tuple[str, bytes]] = []
        self.tags: list[tuple[str, str | None]] = []
        self.noted: list[str] = []
        self.responded: list[tuple[str, bytes]] = []
        self.reports: list[Report] = []
        self.answers: list[tuple[bytes, str, bytes]] = []


class Awaited:
    """The answer of an operation that waits for nothing: it may be awaited, like all others, and need not be."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


AWAITED: Final = Awaited()
