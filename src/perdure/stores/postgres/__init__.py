"""Many journals in one PostgreSQL database: engines lease its shards, everybody reads and posts."""

from importlib.util import find_spec

from perdure.errors import NotInstalled

if find_spec("asyncpg") is None:
    raise NotInstalled("a PostgreSQL database", "postgres")

from .database import PostgresDatabase
from .queries import PostgresQueries
from .store import PostgresStore
from .upgrade import new_script, upgrade, upgrade_script

__all__ = [
    "PostgresDatabase",
    "PostgresQueries",
    "PostgresStore",
    "new_script",
    "upgrade",
    "upgrade_script",
]
