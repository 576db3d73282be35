"""Many journals in one PostgreSQL database: engines lease its shards, everybody reads and posts."""

from .database import PostgresDatabase
from .queries import PostgresQueries
from .store import PostgresStore

__all__ = ["PostgresDatabase", "PostgresQueries", "PostgresStore"]
