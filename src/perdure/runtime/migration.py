"""Live instances of a definition, and how they go over to another version of it: each by one entry, if it fits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from perdure.errors import CallerError, DoesNotFit, EngineClosed, PerdureError, VersionConflict
from perdure.kernel.asked import Asked
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address, Migrated
from perdure.kernel.machine import Successor
from perdure.kernel.moment import Moment
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.status import TERMINAL, Status, ended
from perdure.ports.store import Filter, Queries, place_of

from .connection import Connection
from .state import record_now

PAGE: Final = 200
OPEN: Final = tuple(status for status in Status if status not in TERMINAL)

TRIES_MAX: Final = 5
"""How often an instance is looked at that goes on between the look and the entry."""

TAKEN_UP_SECONDS: Final = 5.0


class LeftAlone(msgspec.Struct, frozen=True):
    """An instance that stays on its version, and why."""

    id: str
    why: str


class Migration(msgspec.Struct, frozen=True):
    """`migrated` names the instances that go on under the version, or would; `left` has those that do not fit."""

    name: str
    version: str
    migrated: list[str]
    left: list[LeftAlone]


async def live_heads(queries: Queries, name: str, statuses: Sequence[str] = OPEN) -> AsyncIterator[HeadRow]:
    """Each live instance of a workflow once. Those that have ended are not read at all."""
    told: set[int] = set()
    for status in statuses:
        before = None
        while heads := await queries.heads(Filter(workflow=name, status=status, before=before, limit=PAGE)):
            before = place_of(heads[-1])
            for head in heads:
                if head.status not in TERMINAL and head.id not in told:
                    told.add(head.id)
                    yield head


class Migrating:
    """Instances of one name on their way to one version. `code` gives the definition of a name and a version."""

    def __init__(
        self,
        connection: Connection,
        code: Callable[[str, str], Awaitable[Any]],
        to: Successor,
        renamed: Mapping[str, str],
        asked: Asked,
    ) -> None:
        self._connection = connection
        self._code = code
        self._to = to
        self._renamed = dict(renamed)
        self._asked = asked

    async def move(self, address: Address, *, dry_run: bool) -> str:
        """Why an instance stays on its version; empty: it goes on under the other one, or would."""
        for _ in range(TRIES_MAX):
            entry, why = await self._look(address)
            if why or dry_run or not entry:
                return why
            asked = msgspec.structs.replace(self._asked, if_entry=entry)
            try:
                await self._connection.put(address, Migrated(self._to.version, "", self._renamed, asked))
            except VersionConflict:
                continue
            except EngineClosed:
                raise
            except CallerError as error:
                return str(error)
            if await self._went_over(address):
                return ""
        return "it goes on all the time: ask again"

    async def _look(self, address: Address) -> tuple[int, str]:
        """The last entry of an instance, 0 if it is there already; and why it does not fit as it is then."""
        record = await record_now(self._connection.queries, address)
        assert record is not None, "it has a head"
        instance = fold(address, record.snapshot, record.rows)
        if instance.ended:
            return 0, f"it {ended(instance.status)}"
        if instance.definition == self._to.version:
            return 0, ""
        if instance.halted:
            return 0, "it stopped at an event, and migrates after that: retry or cancel it first"
        workflow = await self._code(address.workflow, instance.definition)
        if workflow is None:
            return 0, f"its version {instance.definition} cannot be read here"
        moment = Moment(time.time_ns(), instance.seed, instance.version + 1)
        try:
            machine = rebuild(instance, workflow)
            made, _ = self._to.take_over(str(address), machine, self._renamed, moment)
            machine.dispose()
            made.dispose()
        except DoesNotFit as error:
            return 0, str(error)
        except PerdureError as error:
            return 0, f"{type(error).__name__}: {error}"
        return instance.version, ""

    async def _went_over(self, address: Address) -> bool:
        """Whether the entry was written, or waits for an engine. False: the instance had another last entry by then."""
        queries = self._connection.queries
        head = await queries.head(address)
        assert head is not None, "it has a head"
        if head.version == self._to.version or await queries.owner() is None:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(TAKEN_UP_SECONDS):
                while waits := bool(await queries.undelivered(address)):  # noqa: ASYNC110  # it is in the database
                    await asyncio.sleep(0.02)
        head = await queries.head(address)
        return waits or (head is not None and head.version == self._to.version)
