"""The journal in one SQLite file: one engine writes it, other processes read it and post into its inbox."""

from .queries import SqliteQueries
from .recover import recover
from .store import SqliteStore
from .upgrade import upgrade

__all__ = ["SqliteQueries", "SqliteStore", "recover", "upgrade"]
