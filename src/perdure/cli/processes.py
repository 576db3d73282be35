"""What the verbs of processes share: a definition by its name, and where it is put."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from perdure.app import connect, run_async
from perdure.app.definitions import load_process, restored_one
from perdure.app.engine import open as open_engine
from perdure.errors import CallerError, CannotOpen
from perdure.runtime.client import Client

from .console import Console
from .exits import Stopped
from .load import load

T = TypeVar("T")


def acting(console: Console, verb: Callable[[Client], Awaitable[T]]) -> T:
    """Do it through the engine that runs, or through one of our own where none does."""

    async def main() -> T:
        with suppress(CannotOpen):  # an engine makes the database when it opens it the first time
            async with connect(console.db) as client:
                if await client.queries.owner() is not None:
                    return await verb(client)
        async with open_engine(console.db) as engine:
            return await verb(engine)

    return run_async(main)  # type: ignore[no-any-return]


def given(target: str) -> Any:
    """A process from a file, or from a module."""
    if target.endswith((".yaml", ".yml", ".json")):
        process: Any = load_process(target)
    else:
        process, _ = load(target)
    if not hasattr(process, "stored"):
        raise Stopped(f"{target} is no process: its definition is code, not data")
    return process


async def kept(client: Client, name: str, version: str) -> Any:
    """A process that the database has."""
    stored = await client.processes.get(name, version)
    process = restored_one(stored, [])
    if process is None:
        raise CallerError(f"{name} {stored.version} cannot be read here: functions of its expressions are missing")
    return process
