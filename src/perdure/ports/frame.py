"""Frames: what a step says while it runs. They are seen live or not at all, except those that its instance takes."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

Kind = Literal["progress", "chunk"]


class Frame(msgspec.Struct, frozen=True):
    """Live news of a running step: how far it is (`progress`), or a piece of its output (`chunk`).

    `instance` and `location` name the step, `ordinal` counts the frames of an attempt from 1. A frame of kind
    `progress` has `done`, `total` and `note`; one of kind `chunk` has `chunk`, which is plain data.
    """

    instance: str
    location: str
    attempt: int
    ordinal: int
    kind: Kind
    done: float = 0
    total: float | None = None
    note: str = ""
    chunk: Any = None
    number: int = 0  # of a chunk that its instance takes as an event: counts those from 1


FramedByWorker = Callable[[int, bytes, int, Frame], None]
"""Hears a frame of a call that is with a worker: its instance, its intent, which claim of the job it is, the frame."""


class FrameRelay(Protocol):
    """Frames from process to process, for instances that a process watches. Some may be lost."""

    def listen(self, heard: Callable[[int, Frame], None], asked: Callable[[int], None]) -> None:
        """`heard`: a frame of an instance that this process watches. `asked`: another process begins to watch one."""
        ...

    def watch(self, instance: int) -> None:
        """Ask all others for the frames of an instance. That holds for a while: say it again every `again` seconds."""
        ...

    @property
    def again(self) -> float: ...

    def tell(self, instance: int, frame: Frame) -> None:
        """A frame of this process. It is sent if another process watches the instance."""
        ...
