"""Room in the log: zeros behind its end, written and flushed before commits need the place.

A flush of a file that grows also writes where its new blocks are. A flush of blocks that exist writes them alone. So a
log is slow until it has been round once. A thread makes room ahead of the commits. A log of a few pages gets none.

SQLite reads zeros as the end of the log. They are appended (`O_APPEND`): the system finds the end of the file and
writes there in one step, and SQLite names the place of each frame. So zeros never come over a frame, without a lock.
"""

import os
from typing import Final

from .log import FRAME_BYTES, HEADER_BYTES

BEGIN_PAGES: Final = 128
FIRST_BYTES: Final = 1024 * 1024
MORE_BYTES: Final = 4 * FIRST_BYTES
NEVER: Final = 1 << 62


class Room:
    """Of a log that begins again after `pages`. `wanted_at`: the length in pages at which the next room is made."""

    def __init__(self, path: str, page_bytes: int, pages: int) -> None:
        self._log = f"{path}-wal"
        self._frame = FRAME_BYTES + page_bytes
        self._end = HEADER_BYTES + pages * self._frame
        self.wanted_at = BEGIN_PAGES

    def make(self) -> None:
        """A failure costs speed alone: no more room is made, and the log grows by itself."""
        size = FIRST_BYTES if self.wanted_at == BEGIN_PAGES else MORE_BYTES
        self.wanted_at = NEVER
        end = self._append(size)
        if end < self._end:
            self.wanted_at = (end - size // 2) // self._frame

    def _append(self, size: int) -> int:
        """Where the log ends then."""
        file = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            missing = self._end - os.fstat(file).st_size
            if missing > 0:
                os.write(file, bytes(min(size, missing)))
                os.fsync(file)
            return os.fstat(file).st_size
        finally:
            os.close(file)
