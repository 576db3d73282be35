"""Bringing a file up to date without an engine. An engine does the same whenever it opens one."""

from perdure.ports.store import Lease

from . import schema
from .store import SqliteStore


def upgrade(path: str) -> tuple[int, int]:
    """Make a file, or bring it to the newest schema: the version it had (0: it was not there), and the one it has."""
    store = SqliteStore(path)
    answers: list[Lease | Exception] = []
    try:
        before = schema.version_of(store._connection)
        store.acquire("perdure db upgrade", answers.append)
        if isinstance(answers[0], Exception):
            raise answers[0]
        store.release()
    finally:
        store.close()
    return before, schema.VERSION
