"""What `asyncio.as_completed` needs to be deterministic.

It puts what it is given into a set before it makes tasks of it, and coroutines have hashes that differ from
process to process. So the tasks would be numbered, and would begin, in an order that no replay repeats. Here
they get the numbers and the turns of their places in the list that the author wrote.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence, ValuesView
from types import FrameType
from typing import Any, Final

from perdure.errors import BadCall

_MAKERS: Final = {"ensure_future", "_ensure_future", "<setcomp>"}
_ITERATOR: Final[Any] = getattr(asyncio.tasks, "_AsCompletedIterator", None)  # Python 3.13
_CODE: Final = (asyncio.as_completed if _ITERATOR is None else _ITERATOR.__init__).__code__


class Places:
    """The coroutines of one call of `as_completed` and their places. `first` numbers the first task."""

    def __init__(self, given: Any, number_tasks: Callable[[int], int]) -> None:
        if not isinstance(given, Sequence | ValuesView):
            for item in given:
                if asyncio.iscoroutine(item):
                    item.close()
            raise BadCall(
                "asyncio.as_completed needs a list of coroutines here: in a set or a generator they have "
                "no order that a replay could repeat"
            )
        self.given = given
        coroutines = [item for item in given if asyncio.iscoroutine(item)]
        self._places = {id(item): place for place, item in enumerate(coroutines)}
        self.count = len(self._places)
        self.first = number_tasks(self.count)

    def of(self, coro: Any) -> int | None:
        return self._places.get(id(coro))


def given_to_as_completed() -> Any:
    """What the call of `as_completed` that asks for a task right now was given; None: another caller asks."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in _MAKERS:
        frame = frame.f_back
    if frame is None or frame.f_code is not _CODE:
        return None
    names = frame.f_locals
    return names["fs"] if "fs" in names else names["aws"]
