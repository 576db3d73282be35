"""A database file that appears under its name when it is complete: who is killed meanwhile leaves no half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from perdure.errors import CannotOpen, NotEmpty

ENDING = ".part"


@contextmanager
def appearing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Gives the path to write to. The database there is closed when this is left, and only then gets its name."""
    name = os.fspath(path)
    if os.path.exists(name):
        raise NotEmpty(f"there is a file {name} already; name a path where nothing is")
    part = name + ENDING
    try:
        _remove(part)  # of a process that was killed
    except (OSError, ValueError) as error:  # a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise CannotOpen(f"{name[:80]} cannot be made: {reason}; name another path") from None
    try:
        yield part
        os.replace(part, name)
    finally:
        _remove(part)


def _remove(path: str) -> None:
    for ending in ("", "-wal", "-shm", "-lease"):
        with suppress(FileNotFoundError):
            os.remove(path + ending)
