"""What an engine asks of Python's garbage collector: to come less often.

An engine keeps many objects that live long and makes no cycles (`FlowMachine.dispose` takes apart what it made), so
that reference counts free nearly everything. Looked at after every 700 new objects, as Python does by default, the
living would cost more than the work that is done with them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NEW_OBJECTS: Final = 10_000
"""New objects between two collections. Garbage of the steps themselves waits a little longer."""

_before: Final[list[int]] = []  # the thresholds that open engines found; only the last to close puts one back


@contextmanager
def seldom() -> Iterator[None]:
    """While any engine is open. A process with a higher threshold of its own, or none, keeps it."""
    found, *others = gc.get_threshold()
    _before.append(found)
    if 0 < found < NEW_OBJECTS:
        gc.set_threshold(NEW_OBJECTS, *others)
    try:
        yield
    finally:
        now, *others = gc.get_threshold()
        if len(_before) == 1 and now == NEW_OBJECTS:
            gc.set_threshold(_before[0], *others)
        _before.pop()


class Paused:
    """Within a batch: what it makes is needed until it is durable, so that there is nothing to find."""

    __slots__ = ("_collecting",)

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._collecting:
            gc.enable()
