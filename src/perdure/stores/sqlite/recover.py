"""Going on without a damaged log: the log is kept aside, and the database goes on from the best state that is whole.

There are two: the file with the log up to the damage, and the file alone. A checkpoint may have copied pages from
behind the damage into the file; then the first one is a mixture, and the second one may be whole.
"""

import os
import shutil
import time
from typing import NamedTuple
from urllib.parse import quote

import apsw

from perdure.errors import CannotOpen, EngineRunning, FileDamaged

from . import files, log, reads, schema
from .check import check_rows
from .connection import connect, open_error
from .lease import FileLock


class Recovered(NamedTuple):
    path: str
    frame: int  # the first one that is damaged; 0: the log's header
    kept: str  # the damaged log
    with_log: bool  # what it had before the damage is taken
    entry: int  # the last one there is now
    problems: list[str]  # damage elsewhere


class _State(NamedTuple):
    problems: list[str]
    entry: int


def recover(path: str) -> Recovered | None:
    """None: the log is whole, and nothing was changed."""
    path = os.path.realpath(path)
    if not os.path.exists(path):
        raise CannotOpen(f"there is no database {path}")
    lock = FileLock(path)
    if not lock.take():
        raise EngineRunning(f"an engine runs on {path}; stop it first")
    try:
        connection, _ = connect(path, create=True, damaged=True)
        try:
            return _recover(path, connection)
        finally:
            connection.close()
    except apsw.Error as error:
        raise open_error(path, error) from error
    finally:
        lock.free()


def _recover(path: str, connection: apsw.Connection) -> Recovered | None:
    frame = log.damage(connection, path)
    if frame is None:
        return None
    kept = f"{path}-wal-damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    files.make(kept, like=path)
    shutil.copyfile(f"{path}-wal", kept)
    with_log, alone = _state(connection), _state_alone(path)
    best = min(
        (state for state in (with_log, alone) if state is not None),
        key=lambda state: (-state.entry, len(state.problems)),
        default=None,
    )
    if best is None:
        raise FileDamaged(
            f"{path} is not whole, neither with its log up to frame {frame} nor without it; nothing was changed: "
            f"restore a backup. {kept} is a copy of the log"
        )
    if best is with_log:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    else:
        connection.close()
        os.unlink(f"{path}-wal")
    return Recovered(path, frame, kept, best is with_log, best.entry, best.problems)


def _state(connection: apsw.Connection) -> _State | None:
    """What this connection sees. None: pages are damaged."""
    try:
        if [text for (text,) in connection.execute("PRAGMA integrity_check")] != ["ok"]:
            return None
        current = schema.version_of(connection) == schema.VERSION
        return _State(check_rows(connection) if current else [], reads.height(connection))
    except apsw.Error:
        return None


def _state_alone(path: str) -> _State | None:
    """Without the log: a file that cannot change has none."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags)
    try:
        return _state(connection)
    finally:
        connection.close()
