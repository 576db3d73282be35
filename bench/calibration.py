"""A fixed piece of plain Python: what a processor second is worth on this machine, at this moment.

Processor time is not the same in every minute: neighbours share caches and cores, and clocks go up and down. A cost in
units of this is. It does the kind of thing that an engine does (calls, attributes, dictionaries, small objects, bytes),
in some hundred kilobytes, and nothing of perdure's.
"""

from __future__ import annotations

import hashlib
import time
from typing import Final

ITEMS: Final = 2_000
TRIES: Final = 4


class Item:
    __slots__ = ("body", "name", "number")

    def __init__(self, number: int, name: str, body: bytes) -> None:
        self.number = number
        self.name = name
        self.body = body

    def weight(self) -> int:
        return self.number + len(self.body)


def unit() -> float:
    """Seconds of processor time for one item, some 2 µs: of a few tries the quickest, as the others were disturbed."""
    return min(_once() for _ in range(TRIES))


def _once() -> float:
    began = time.thread_time()
    items: dict[str, Item] = {}
    for n in range(ITEMS):
        name = f"item/{n * 7919 % ITEMS}"
        items[name] = Item(n, name, hashlib.blake2b(name.encode(), digest_size=16).digest())
    total = 0
    for name, item in sorted(items.items()):
        total += item.weight() if item.name == name else 0
    assert total == sum(range(ITEMS)) + 16 * ITEMS, "the calibration does its work"
    return (time.thread_time() - began) / ITEMS
