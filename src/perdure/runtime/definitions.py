"""`engine.processes`: definitions that are data, as callers see them. They are kept in `perdure.definition/<name>`."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, Unpack

from perdure.codec import decode, digest
from perdure.definitions import load
from perdure.definitions.machine import DEFINITIONS
from perdure.definitions.model import (
    ACTIVATE,
    PUT,
    WORKFLOW,
    Register,
    Registered,
    Rule,
    activate_body,
    address,
    first_input,
    put_body,
    put_id,
)
from perdure.errors import BadCall, CallerError, DefinitionConflict, UnknownInstance, UnknownVersion, UnknownWorkflow
from perdure.expressions.functions import described
from perdure.kernel.asked import Actor, Asked
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address, Started
from perdure.kernel.location import unnumbered
from perdure.kernel.machine import Successor
from perdure.kernel.policy import decode_policy
from perdure.kernel.workflows import Workflows
from perdure.ports.dialect import Stored
from perdure.ports.store import Filter, Queries, place_of

from .arguments import Said, asked, checked_text, unknown
from .connection import Connection
from .handle import Handle
from .migration import LeftAlone, Migrating, Migration, live_heads

By = Actor | str | None
Code = Callable[[str, str], Awaitable[Any]]

TAKEN_UP_SECONDS: Final = 5.0


class Storable(Protocol):
    """A workflow whose definition is data."""

    @property
    def stored(self) -> Stored: ...


def is_same(one: Any, other: Any) -> bool:
    """Whether two workflows are one. Where a definition is data, its bytes decide."""
    stored = getattr(one, "stored", None)
    return one is other or (stored is not None and stored == getattr(other, "stored", None))


class Definitions:
    """The definitions of one dialect. `added` hears of one that this engine is to run, `judge` raises what is wrong."""

    def __init__(
        self,
        connection: Connection,
        dialect: str,
        added: Callable[[Stored, Register], None] | None = None,
        judge: Callable[[Storable], None] | None = None,
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self._added = added
        self._judge = judge
        self.make_schema: Callable[[], dict[str, Any]] | None = None
        """Makes the JSON Schema of a definition: `app` knows the dialects."""
        self.code: Code = _no_code
        """Gives the definition of a name and a version as a workflow; None: it cannot be read."""

    def through(self, connection: Connection) -> Definitions:
        """The same, asked by another connection."""
        found = Definitions(connection, self._dialect, self._added, self._judge)
        found.make_schema, found.code = self.make_schema, self.code
        return found

    async def put(self, workflow: Storable, *, activate: bool = False, by: By = None) -> str:
        """Keep a definition, and run it from now on. The same bytes again write nothing. The answer is its version.

        Other bytes under a version that is kept are a `DefinitionConflict`. `activate`: new instances run on it. Else
        they run on the highest version, unless a person activated another.
        """
        if not hasattr(type(workflow), "stored"):
            raise BadCall(f"put takes a {self._dialect}, found {workflow!r:.80}; load it first")
        given = workflow.stored
        if given.dialect != self._dialect:
            raise BadCall(f"put takes a {self._dialect}, and {given.name} is a {given.dialect}")
        if self._judge is not None:
            self._judge(workflow)
        register = await keep(self._connection, given, activate=activate, by=by)
        if self._added is not None:
            self._added(given, register)
        else:
            await self._taken_up(given.name)
        return given.version

    async def _taken_up(self, name: str) -> None:
        """Wait until an engine knows a new name: a start that follows must not hear that it is unknown."""
        queries = self._connection.queries
        with suppress(TimeoutError):
            async with asyncio.timeout(TAKEN_UP_SECONDS):
                while True:
                    if any(row.name == name for row in await queries.workflows()):
                        return
                    await asyncio.sleep(0.02)

    async def activate(self, name: str, version: str, *, by: By = None) -> None:
        """Make a version the one that new instances run on."""
        stored = await self.get(name, version)
        handle = _handle(self._connection, name)
        answer = await handle.ask(ACTIVATE, decode(activate_body(version)), by=by)
        if answer.get("refused"):
            raise UnknownVersion(f"{name} has no version {version!r}")
        if self._added is not None:
            self._added(stored, await self._register(name))

    async def migrate(
        self,
        name: str,
        *,
        to: str,
        keys: Iterable[str] | None = None,
        map: Mapping[str, str] | None = None,
        dry_run: bool = False,
        **said: Unpack[Said],
    ) -> Migration:
        """Let live instances go on under another version, each by one entry; what does not fit is told and left alone.

        All that an instance stands at must be in that version, of the same kind: at the same location, or at the one
        that `map` names, `{old: new}`. `keys`: of these instances; None: of all that live. `dry_run` only tells.
        """
        workflow = await self.code(name, to) or await self.get(name, to)
        if not isinstance(workflow, Successor):
            raise CallerError(f"{name} is no process: its instances migrate to no version that is named")
        for old, new in (map or {}).items():
            checked_text(old, "a location"), checked_text(new, "a location")
        queries, found = self._connection.queries, Migration(name, workflow.version, [], [])
        if keys is None:
            heads = [each async for each in live_heads(queries, name) if each.version != workflow.version]
        else:
            named = [keys] if isinstance(keys, str) else keys
            heads = [await self._head(Address(name, key)) for key in named]
        await self._check_map(name, map or {}, {each.version for each in heads} - {workflow.version})
        moving = Migrating(self._connection, self.code, workflow, map or {}, asked(said) or Asked())
        for head in heads:
            address = Address(name, head.key)
            why = await moving.move(address, dry_run=dry_run)
            if why:
                found.left.append(LeftAlone(str(address), why))
            else:
                found.migrated.append(str(address))
        return found

    async def _check_map(self, name: str, map: Mapping[str, str], versions: Collection[str]) -> None:
        """At each old location of a map a step stands, or stands below it, in one of the versions that are left."""
        found = [await self.code(name, version) for version in versions] if map else []
        if not found or None in found:
            return
        known = {location for each in found for location in each.locations()}
        for old in map:
            place = unnumbered(old)
            if not any(each == place or each.startswith(f"{place}/") for each in known):
                raise BadCall(unknown("step", old, known, "the left side of a map is where a step stands now"))

    async def _head(self, address: Address) -> HeadRow:
        head = await self._connection.queries.head(address)
        if head is None:
            raise UnknownInstance(f"there is no instance {address}; `perdure ls` lists what exists")
        return head

    async def list(self) -> list[tuple[str, Register]]:
        """The names, each with its versions and the active one."""
        found = await registers(self._connection.queries)
        return [(name, register) for name, register in found if register.dialect == self._dialect]

    async def versions(self, name: str) -> tuple[Registered, ...]:
        """In the order of their registration: who registered which when."""
        return (await self._register(name)).versions

    async def get(self, name: str, version: str = "") -> Stored:
        """A version of a definition, by default the active one."""
        register = await self._register(name)
        found = await load.stored(self._connection.queries, name, version)
        if found is None:
            known = [each.version for each in register.versions]
            raise UnknownVersion(unknown(f"version of {name}", version, known, "put it there first"))
        return found

    async def schema(self) -> dict[str, Any]:
        """The JSON Schema of a definition."""
        if self.make_schema is None:
            raise CallerError(f"the definition of a {self._dialect} has no JSON Schema here")
        return self.make_schema()

    async def functions(self) -> builtins.list[dict[str, str]]:
        """The functions that expressions may call, those of users aside: name, what each gives and does."""
        return [{"name": name, "gives": gives, "text": text} for name, gives, text in described()]

    async def _register(self, name: str) -> Register:
        register = await load.register_of(self._connection.queries, name)
        if register is None or register.dialect != self._dialect:
            rows = [row for row in await self._connection.queries.workflows() if row.name == name]
            if rows:
                noun = decode_policy(rows[-1].policy).noun
                raise UnknownWorkflow(f"{name} is a {noun}: this takes the name of a {self._dialect}")
            names = [each for each, _ in await self.list()]
            raise UnknownWorkflow(unknown(self._dialect, name, names, "put it there first"))
        return register


async def _no_code(name: str, version: str) -> Any:
    return None


async def keep(connection: Connection, given: Stored, *, activate: bool = False, by: By = None) -> Register:
    """Put a definition into the journal, unless it is there already."""
    register = await load.register_of(connection.queries, given.name)
    before = None if register is None else await load.stored(connection.queries, given.name, given.version)
    new = load.is_new(register, before, given, decode)
    if register is not None and not new and (not activate or register.active == given.version):
        return register
    if register is None:
        rule: Rule = "last" if given.rule == "last" else "highest"
        started = Started(WORKFLOW, given.name, first_input(given.dialect, rule), connection.entropy())
        await connection.put(address(given.name), started)
    id = put_id(given.version, digest(given.definition), activate=activate)
    if activate:
        id += f" {connection.entropy().hex()}"  # a version may be activated again
    body = decode(put_body(given.version, given.definition, activate=activate))
    answer = await _handle(connection, given.name).ask(PUT, body, id=id, by=by)
    if answer.get("refused") == "conflict":
        raise DefinitionConflict(given.name, given.version, f"it is stored as {answer['digest']}", "")
    if answer.get("refused"):
        raise CallerError(f"{given.name} {given.version} was refused: {answer}")
    found = await load.register_of(connection.queries, given.name)
    assert found is not None, "it was just written"
    return found


def _handle(connection: Connection, name: str) -> Handle[Any]:
    return Handle(connection, address(name), DEFINITIONS, None, Workflows([DEFINITIONS]))


async def registers(queries: Queries) -> list[tuple[str, Register]]:
    """The registers of all names, by their names."""
    found: list[tuple[str, Register]] = []
    before = None
    while heads := await queries.heads(Filter(WORKFLOW, before=before)):
        for head in heads:
            register = await load.register_of(queries, head.key)
            if register is not None:
                found.append((head.key, register))
        before = place_of(heads[-1])
    return sorted(found, key=lambda each: each[0])


def activate(known: Workflows[Any], name: str, register: Register) -> None:
    """New instances of a name run on its active version, if it is known here."""
    active = register.active
    if active and known.exactly(name, active) is not None:
        known.activate(name, active)
