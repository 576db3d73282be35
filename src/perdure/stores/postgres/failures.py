"""What errors of PostgreSQL and of the network mean: whose fault, whether to try again, and what to tell."""

import asyncio
from typing import Final

import asyncpg

from perdure.errors import CannotOpen, StoreError, StoreFailed

FAILURES: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)
"""Everything that a question to the server can end with."""

LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)
"""The connection is gone, or cannot be used any more. What was asked may have been done."""

BUSY: Final = (
    asyncpg.TooManyConnectionsError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
"""The server could not now, and did nothing."""


def is_lost(error: BaseException) -> bool:
    closed = isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError)  # "connection is closed"
    return isinstance(error, LOST) or closed


def may_pass(error: BaseException) -> bool:
    """Whether the same question may be answered later."""
    return is_lost(error) or isinstance(error, BUSY)


def open_error(where: str, error: BaseException) -> StoreError:
    """Why a database cannot be opened."""
    match error:
        case asyncpg.InvalidPasswordError():
            text = f"the server refuses the password or the user ({error}); check both"
        case asyncpg.InvalidAuthorizationSpecificationError():
            text = f"the server does not let this user in ({error}); check the user, and pg_hba.conf of the server"
        case asyncpg.InvalidCatalogNameError():
            text = f"{error}; create it first: createdb"
        case asyncpg.TooManyConnectionsError():
            text = f"the server takes no more connections ({error}); close some, or raise its max_connections"
        case asyncpg.CannotConnectNowError():
            text = f"the server is starting or stopping ({error}); try again"
        case asyncpg.InsufficientPrivilegeError():
            return CannotOpen(
                f"{where}: {error}; grant this user the right, or let `perdure db upgrade` be run by one that has it"
            )
        case asyncpg.PostgresError():
            text = str(error)
        case asyncio.TimeoutError():
            text = "the server did not answer in time; check host and port"
        case OSError():
            text = f"nobody answers there ({plain(error)}); check host and port, and that the server runs"
        case ValueError():  # also asyncpg's own for a bad URL
            text = f"{error}; a URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        case _:
            text = str(error) or type(error).__name__
    return CannotOpen(f"{where} cannot be opened: {text}")


def failure(where: str, error: BaseException) -> StoreFailed:
    """Why a question was not answered; after a lost connection that was waited for in vain, too."""
    match error:
        case asyncpg.IntegrityConstraintViolationError():
            text = f"{error}; nothing was written: this is an error in perdure, please report it"
        case asyncpg.InsufficientPrivilegeError():
            text = f"{error}; nothing was written: grant this user the right"
        case asyncpg.DiskFullError() | asyncpg.InsufficientResourcesError():
            text = f"the server has no room left ({error}); nothing was written: free some, then go on"
        case asyncpg.ReadOnlySQLTransactionError():
            text = f"{error}; nothing was written: this server is a replica, name the primary"
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError() | asyncpg.InvalidSchemaNameError():
            text = f"{error}; the schema is not what it was when it was opened: perdure db upgrade"
        case asyncpg.PostgresError() if not is_lost(error):
            text = f"{error}; nothing was written"
        case ValueError():  # of asyncpg, for a value that it cannot send
            text = f"{error}; nothing was written: this is an error in perdure, please report it"
        case _:
            text = f"the connection was lost ({plain(error)}); whether this was written is not known"
    return StoreFailed(f"{where}: {text}")


def plain(error: BaseException) -> str:
    return str(error) or type(error).__name__
