"""Definitions that are data: restored from the database before anything runs, and kept there when an engine opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from perdure.codec import decode
from perdure.definitions import load
from perdure.definitions.model import Register
from perdure.errors import PerdureError
from perdure.kernel.machine import Workflow
from perdure.kernel.workflows import Workflows
from perdure.ports.dialect import Gathered, Opening, Stored
from perdure.ports.store import Queries
from perdure.runtime.definitions import Storable, activate, registers
from perdure.runtime.log import log

from .dialects import dialect_of
from .effects import Effects


async def restored(queries: Queries, known: Workflows[Any], gathered: list[Gathered]) -> None:
    """Every version that the database keeps is known from now on, whether its code is here or not.

    A definition that was given with other bytes than the stored ones of its version is a conflict, before anything
    runs. A dialect of which nothing was given is added to `gathered`.
    """
    for name, register in await registers(queries):
        for version in register.versions:
            stored = await load.stored(queries, name, version.version)
            assert stored is not None, "a register names what is published"
            given = _given(gathered, name, version.version)
            if given is not None:
                load.is_new(register, stored, given, decode)
            elif (workflow := restored_one(stored, gathered)) is not None:
                known.replace(workflow)
        activate(known, name, register)


def _given(gathered: Sequence[Gathered], name: str, version: str) -> Stored | None:
    each = [one for some in gathered for one in some.definitions if (one.name, one.version) == (name, version)]
    return each[0] if each else None


def restored_one(stored: Stored, gathered: list[Gathered]) -> Workflow | None:
    dialect = dialect_of(stored.dialect)
    if dialect is None:
        log.warning("the definition %s %s is of a dialect that is not installed", stored.name, stored.version)
        return None
    restore = next(
        (each.restore for each in gathered if each.restore is not None and each.dialect == dialect.name), None
    )
    if restore is None:
        gathered.append(dialect.gather([]))
        restore = gathered[-1].restore
    assert restore is not None, "a dialect whose definitions are data restores them"
    try:
        return restore(stored)
    except PerdureError as error:
        log.warning("%s %s cannot run here: %s", stored.name, stored.version, error)
        return None


class Restorer:
    """Makes workflows of definitions that come while an engine runs. Each may be the first of its dialect."""

    def __init__(self, gathered: list[Gathered], effects: Effects) -> None:
        self._gathered = gathered
        self._effects = effects

    def __call__(self, given: Stored) -> Workflow | None:
        before = len(self._gathered)
        found = restored_one(given, self._gathered)
        self._effects.extend(self._gathered[before:])
        return found

    def judge(self, given: Storable) -> None:
        """Raise what is wrong with a definition, before it is kept."""
        dialect, found = given.stored.dialect, self(given.stored)
        check = next((each.check for each in self._gathered if each.dialect == dialect and each.check), None)
        if found is not None and check is not None:
            check(Opening((), self._effects.given, strict=True, unavailable=lambda *_: None, put=cast(Workflow, given)))


class DefinitionLoader:
    """Definitions that other engines put while this one runs: each is read when an instance needs it."""

    def __init__(self, queries: Queries, known: Workflows[Any], restore: Callable[[Stored], Workflow | None]) -> None:
        self._queries = queries
        self._known = known
        self._restore = restore
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def load(self, name: str, version: str, found: Callable[[Workflow | None], None]) -> None:
        """Called inside a turn, where the loop of flows is the one that runs."""
        self._loop.call_soon(self._begin, name, version, found)

    def _begin(self, name: str, version: str, found: Callable[[Workflow | None], None]) -> None:
        task = self._loop.create_task(self._load(name, version, found))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, name: str, version: str, found: Callable[[Workflow | None], None]) -> None:
        stored = await load.stored(self._queries, name, version.partition("+")[0])
        workflow = None if stored is None else self._restore(stored)
        if workflow is not None:
            self._known.replace(workflow)
        found(workflow)


class DefinitionFollower:
    """Reads what other processes put or activate while this engine runs; `added` hears of it."""

    def __init__(self, queries: Queries, known: Workflows[Any], added: Callable[[Stored, Register], None]) -> None:
        self._queries = queries
        self._known = known
        self._added = added
        self._tried: set[tuple[str, str]] = set()  # versions that cannot run here are read once
        self._changed = asyncio.Event()
        self.overtaken = False  # this process has put a definition since the register was read

    def look(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Until it is cancelled. A look that fails is made up for by the next one, and by `DefinitionLoader`."""
        while await self._changed.wait():
            self._changed.clear()
            try:
                for name, _ in await registers(self._queries):
                    await self._follow(name)
            except PerdureError as error:
                log.warning("definitions of other engines could not be read: %s", error)

    async def _follow(self, name: str) -> None:
        while True:
            self.overtaken = False
            register = await load.register_of(self._queries, name)
            if register is None:
                return
            versions = {each.version for each in register.versions if self._is_new(name, each.version)}
            active = register.active
            if self._known.actives.get(name) != active and self._known.exactly(name, active) is not None:
                versions.add(active)
            found = [await load.stored(self._queries, name, each) for each in versions]
            if not self.overtaken:
                break
        for each in found:
            if each is not None:
                self._tried.add((name, each.version))
                self._added(each, register)

    def _is_new(self, name: str, version: str) -> bool:
        return self._known.exactly(name, version) is None and (name, version) not in self._tried


async def stored_one(queries: Queries, name: str, version: str = "") -> Workflow | None:
    """The workflow of a definition that the database has: of a version, with or without its hash, or the active one."""
    found = await load.stored(queries, name, version.partition("+")[0])
    workflow = None if found is None else restored_one(found, [])
    return None if workflow is None or ("+" in version and workflow.version != version) else workflow
