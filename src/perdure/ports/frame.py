"""Frames: what a step says while it runs. They are seen live or not at all, except those that its instance takes."""

from collections.abc import Callable
from typing import Any, Literal

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
