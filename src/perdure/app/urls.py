"""URLs: which database one names, and its store. Stores are built here and in `fleets.py`."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from perdure.errors import CannotOpen
from perdure.ports.store import Store


def open_store(url: str | os.PathLike[str], loop: asyncio.AbstractEventLoop) -> Store:
    path = path_of(url)
    if path == ":memory:":
        from perdure.stores.memory import MemoryStore

        return MemoryStore()
    from perdure.stores.sqlite import SqliteStore

    return SqliteStore(path, call_soon_threadsafe=loop.call_soon_threadsafe)


def connect_store(url: str | os.PathLike[str]) -> Any:
    path = path_of(url)
    if path == ":memory:":
        raise CannotOpen("a :memory: database lives in one process; nobody else can connect to it")
    from perdure.stores.sqlite import SqliteStore

    return SqliteStore.open_client(path)


def is_server(url: str | os.PathLike[str]) -> bool:
    return str(url).startswith(("postgresql://", "postgres://"))


def path_of(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url)
    scheme, found, rest = text.partition("://")
    if not found:
        return text
    if scheme == "sqlite":
        return rest.removeprefix("/") or ":memory:"  # as elsewhere: sqlite:///relative, sqlite:////absolute
    raise CannotOpen(
        f"{scheme}:// databases are not supported by this version; use a path, sqlite:///path or postgresql://..."
    )
