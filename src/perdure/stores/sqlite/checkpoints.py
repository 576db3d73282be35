"""Checkpoints beside the commits: how pages of the log get into the file.

SQLite by itself makes a checkpoint within the commit that finds the log long, and that commit waits for every page of
it: 60 ms where each page is another one. Here a thread with a connection of its own copies them while commits go on.
What came meanwhile is little; for that, commits wait. Only a log of which everything is in the file, and of which
nobody reads an older state, begins anew, and while somebody always adds to it or reads it, it would grow for ever. So
commits wait for readers as well, but not for long (`PATIENCE_SECONDS`): who reads for minutes makes the log longer.

A checkpoint that fails loses nothing: the log has it all, and the next one tries again.

The same thread makes room in the log (`room.py`).
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import apsw

from perdure.errors import PerdureError

from .connection import WAL_PAGES, connect
from .room import Room
from .writer import Writer

PASSES: Final = 2
"""Beside the commits. The second copies what came during the first, and leaves a few pages."""

PATIENCE_SECONDS: Final = 0.2
"""How long commits wait for readers of an older state, whenever the log has grown by so many pages again."""


class Checkpoints:
    """Of a file in WAL mode, whenever its log has grown by so many pages. `connection` is the one that commits; it may
    do so on any thread, one at a time."""

    def __init__(self, path: str, connection: apsw.Connection, pages: int = WAL_PAGES) -> None:
        self._path = path
        self._pages = pages
        self._begin_at = pages
        self._copier: Writer | None = None
        self._second: apsw.Connection | None = None
        self._busy = False  # the thread has work
        self._room = Room(path, connection.pragma("page_size"), pages)
        connection.set_wal_hook(self._committed)

    def close(self) -> None:
        """Wait for the pages that are being copied. Before the connection that commits is closed: the last one to go
        takes the log with it."""
        if self._copier is not None:
            self._copier.stop()
        if self._second is not None:
            self._second.close()

    def _committed(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """After each commit: the log has so many pages now."""
        if pages < self._pages:
            self._begin_at = self._pages
        if pages >= self._begin_at and not self._busy:
            self._begin_at = pages + self._pages
            self._begin(self._copy)
        elif pages >= self._room.wanted_at and not self._busy:
            self._begin(self._room.make)
        return apsw.SQLITE_OK

    def _begin(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # no thread can be had; the commit that asks for it is durable all the same
            if self._copier is None:
                self._copier = Writer(f"perdure checkpoints of {os.path.basename(self._path)}")
            self._busy = True
            self._copier.run(partial(self._do, work))

    def _do(self, work: Callable[[], None]) -> None:
        with suppress(apsw.Error, PerdureError, OSError):
            work()
        self._busy = False

    def _copy(self) -> None:
        if self._second is None:
            self._second, patience = connect(self._path, create=False)
            patience.seconds = PATIENCE_SECONDS
        for _ in range(PASSES):
            self._second.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._second.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
