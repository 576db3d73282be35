"""The journal in one SQLite file: one engine writes it, other processes read it and post into its inbox."""

from .queries import SqliteQueries
from .store import SqliteStore
from .upgrade import upgrade

__all__ = ["SqliteQueries", "SqliteStore", "upgrade"]
