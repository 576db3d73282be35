"""What an evaluation may spend, and how it ends when the budget is spent.

A size is charged before the value is made, so no input can make an evaluation use more memory or time than its
budget. Nodes are charged by the size of the expression, and by the body of a loop for each turn: an evaluation pays
for both branches of a choice, and counting costs nothing per node.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec

At: TypeAlias = int | tuple[str | int, ...]  # where a node stands: an offset in a text, or a path in a tree

BITS_MAX: Final = 1024  # of a whole number
DEPTH_MAX: Final = 100  # of containers in a value that an expression makes
ITEM: Final = 8  # bytes that an element costs in a list
ENTRY: Final = 64  # bytes that an entry costs in an object, or a short text in a list
SCAN: Final = 10  # reading 2**10 characters costs as much as a node


class Budget(msgspec.Struct, frozen=True):
    depth: int  # levels of one expression
    size: int  # nodes of one expression
    nodes: int  # evaluated by one meter
    bytes: int  # made by one evaluation


PROCESS: Final = Budget(depth=64, size=4096, nodes=100_000, bytes=1024 * 1024)
PLAYBOOK: Final = Budget(depth=100, size=100_000, nodes=100_000, bytes=1024 * 1024)


class Failure(Exception):
    """An evaluation cannot go on. `Expression.evaluate` makes an `ExpressionError` of it."""

    def __init__(self, reason: str, code: str = "value") -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.operands: tuple[Any, ...] = ()
        self.at: At | None = None


class Meter:
    """What is left of a budget. Several evaluations may share the nodes of one meter; each has the bytes for itself."""

    __slots__ = ("budget", "bytes", "nodes")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.nodes = budget.nodes
        self.bytes = budget.bytes

    def spend(self, nodes: int) -> None:
        self.nodes -= nodes
        if self.nodes < 0:
            raise Failure(f"it takes more than {self.budget.nodes:,} steps", "budget")

    def make(self, size: int) -> None:
        self.bytes -= size
        if self.bytes < 0:
            raise Failure(f"it makes more than {self.budget.bytes:,} bytes", "budget")


class Run(Meter):
    """One evaluation: the meter, and all that an expression can see."""

    __slots__ = ("draws", "entropy", "location", "now", "roots", "slots")

    def __init__(  # noqa: PLR0917  # made for every evaluation, and keywords cost time
        self, meter: Meter, roots: Mapping[str, Any], slots: int, now: datetime | None, entropy: bytes, location: str
    ) -> None:
        self.budget = meter.budget
        self.nodes = meter.nodes
        self.bytes = meter.budget.bytes
        self.roots = roots
        self.slots: list[Any] = [None] * slots
        self.now = now
        self.entropy = entropy
        self.location = location
        self.draws = 0

    def draw(self) -> int:
        """The next 128 bits of recorded dice: derived from entropy and location, so a replay draws the same."""
        self.draws += 1
        drawn = blake2b(f"{self.draws}/{self.location}".encode(), key=self.entropy[:64], digest_size=16)
        return int.from_bytes(drawn.digest(), "big")
