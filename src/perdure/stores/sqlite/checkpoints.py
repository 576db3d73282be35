"""Checkpoints beside the commits: how pages of the log get into the file.

SQLite by itself makes a checkpoint within the commit that finds the log long, and that commit waits for every page of
it: 60 ms where each page is another one. Here a thread with a connection of its own copies them while commits go on.
What came meanwhile is little, and is copied by the connection that commits, between two commits: only a log of which
everything is in the file begins anew, and while somebody always adds to it, it would grow for ever.

A checkpoint that fails loses nothing: the log has it all, and the next one tries again.
"""

import os
from contextlib import suppress
from typing import Final

import apsw

from .connection import WAL_PAGES, connect
from .writer import Writer

PASSES: Final = 2
"""The second copies what came during the first, and leaves a few pages."""


class Checkpoints:
    """Of a file in WAL mode, whenever its log has grown by so many pages. `connection` is the one that commits; it may
    do so on any thread, one at a time."""

    def __init__(self, path: str, connection: apsw.Connection, pages: int = WAL_PAGES) -> None:
        self._path = path
        self._pages = pages
        self._copier: Writer | None = None
        self._second: apsw.Connection | None = None
        self._copying = False
        self._copied = False
        self._begin_at = pages
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
        if self._copying:
            return apsw.SQLITE_OK
        copied, self._copied = self._copied, False
        if pages < self._begin_at - self._pages:  # it has begun anew
            self._begin_at = self._pages
        if pages < self._begin_at:
            return apsw.SQLITE_OK
        if copied:
            self._finish(connection, pages)
        else:
            if self._copier is None:
                self._copier = Writer(f"perdure checkpoints of {os.path.basename(self._path)}")
            self._copying = True
            self._copier.run(self._copy)
        return apsw.SQLITE_OK

    def _copy(self) -> None:
        with suppress(apsw.Error):
            if self._second is None:
                self._second, _ = connect(self._path, create=False)
            for _ in range(PASSES):
                self._second.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._copied, self._copying = True, False

    def _finish(self, connection: apsw.Connection, pages: int) -> None:
        whole = False
        with suppress(apsw.Error):
            pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            whole = copied == pages
        # Somebody who reads an older state keeps the log from beginning anew. Try when as much has come again.
        self._begin_at = self._pages if whole else pages + self._pages
