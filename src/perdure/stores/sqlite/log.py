"""Whether the write-ahead log is damaged, or only torn at its end.

After a crash SQLite takes the frames of the log up to the first whose checksum does not fit, and drops the rest without
a word: it looks like the tail of a commit that was cut. But checksums go on from frame to frame, and a commit begins
only after the one before it was flushed. So a frame that goes on from the end of a commit, behind the place where
checksums end, proves that an acknowledged commit is dropped. That is damage.

What cannot be seen: damage in the very last commit of the log. It looks exactly like a commit that was cut.
"""

import struct
from itertools import pairwise
from typing import Final, NamedTuple

import apsw

from perdure.errors import FileDamaged

HEADER_BYTES: Final = 32
FRAME_BYTES: Final = 24
MAGIC: Final = 0x377F0682  # its last bit: whether checksums are of big-endian words
MASK: Final = 0xFFFFFFFF

Sums = tuple[int, int]


class LogFrame(NamedTuple):
    """A page of the database in the log. `commit`: it is the last one of its commit."""

    commit: bool
    salts: bytes
    sums: Sums
    summed: bytes


def check(connection: apsw.Connection, path: str) -> None:
    """Raise if commits are lost in the log. The connection has read something: it knows which frames SQLite takes."""
    place = damage(connection, path)
    if place is not None:
        raise FileDamaged(
            f"{path}-wal is damaged in frame {place}: commits behind it were acknowledged, and SQLite would drop "
            f"them. Nothing was changed. Restore a backup, or go on without them: perdure db recover {path}"
        )


def damage(connection: apsw.Connection, path: str) -> int | None:
    """The number of the damaged frame, from 1; 0: the log's header. None: no commit is lost."""
    taken, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    if taken < 0:  # the file has no log yet
        return None
    try:
        with open(f"{path}-wal", "rb") as file:  # SQLite has no locks on this file that a close could drop
            header = file.read(HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                return None
            sound = _is_sound(header)
            page_bytes = int.from_bytes(header[8:12], "big") if sound else connection.pragma("page_size")
            before = max(taken - 1, 0) * (FRAME_BYTES + page_bytes)
            file.seek(HEADER_BYTES + before)
            frames = _frames(file.read(), page_bytes)
            place = _lost(frames, header, taken) if sound else (0 if _follows_a_commit(frames, None, "=") else None)
            file.seek(0)
            return place if file.read(HEADER_BYTES) == header else None  # else another process began the log again
    except FileNotFoundError:
        return None


def _lost(frames: list[LogFrame], header: bytes, taken: int) -> int | None:
    order, salts = _order(header), header[16:24]
    sums = _pair(header[24:32])
    if taken:
        sums = frames.pop(0).sums
    whole = 0  # frames of a commit that is under way, or was cut
    for frame in frames:
        if frame.salts != salts or _sum(frame.summed, sums, order) != frame.sums:
            break
        sums = frame.sums
        whole += 1
    behind = frames[whole:]
    if not behind:
        return None
    # Of the damaged frame, salts or checksum may be what is damaged: the next one goes on from what they should be.
    damaged = behind[0]._replace(salts=salts)
    as_it_should_be = damaged._replace(sums=_sum(damaged.summed, sums, order))
    follows = _follows_a_commit([damaged, *behind[1:]], salts, order) or _follows_a_commit(
        [as_it_should_be, *behind[1:2]], salts, order
    )
    return taken + whole + 1 if follows else None


def _follows_a_commit(frames: list[LogFrame], salts: bytes | None, order: str) -> bool:
    """Whether a frame was written after the end of a commit. `salts` name one round of the log; None: of any round."""
    for one, next in pairwise(frames):
        if (
            one.commit
            and one.salts == next.salts
            and (salts is None or one.salts == salts)
            and _sum(next.summed, one.sums, order) == next.sums
        ):
            return True
    return False


def _frames(data: bytes, page_bytes: int) -> list[LogFrame]:
    size = FRAME_BYTES + page_bytes
    found = []
    for begin in range(0, len(data) - size + 1, size):
        frame = data[begin : begin + size]
        commit = frame[4:8] != bytes(4)
        found.append(LogFrame(commit, frame[8:16], _pair(frame[16:24]), frame[:8] + frame[FRAME_BYTES:]))
    return found


def _is_sound(header: bytes) -> bool:
    magic = int.from_bytes(header[:4], "big")
    return magic | 1 == MAGIC | 1 and _sum(header[:24], (0, 0), _order(header)) == _pair(header[24:32])


def _order(header: bytes) -> str:
    return ">" if header[3] & 1 else "<"


def _pair(data: bytes) -> Sums:
    first, second = struct.unpack(">2I", data)
    return first, second


def _sum(data: bytes, sums: Sums, order: str) -> Sums:
    """SQLite's checksum of words, which goes on from that of the frame before."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & MASK
        second = (second + other + first) & MASK
    return first, second
