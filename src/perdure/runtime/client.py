"""What callers hold: a client, of an engine in this process or of a database that another one serves, and handles.

Both speak through a `Door`: the local one offers events to the shard, the remote one posts them into the inbox table.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Protocol, TypeVar, overload, runtime_checkable

from perdure.codec import decode, digest, encode, to_plain
from perdure.errors import (
    AskTimeout,
    CallerError,
    InstanceCancelled,
    InstanceEnded,
    InstanceFailed,
    InstanceStuck,
    KeyInUse,
    NotAnswered,
    NotStuck,
    ReceiptRefused,
    StillRunning,
    TooLarge,
    UnknownInstance,
    UnknownIntent,
    UnknownLocation,
    UnknownVersion,
    UnknownWorkflow,
)
from perdure.kernel.decision import Outcome
from perdure.kernel.effects import due_of
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    Parent,
    Received,
    Ref,
    Retried,
    Rewound,
    Settled,
    Started,
    Woken,
)
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.location import is_sleep
from perdure.kernel.machine import Machine, Workflow
from perdure.kernel.mailbox import Refused
from perdure.kernel.manifest import DEFINITIONS, MANIFEST, WORLD, decode_manifest
from perdure.kernel.moment import when
from perdure.kernel.outside import KIND, outside_of
from perdure.kernel.past import Behind, Point, still_running
from perdure.kernel.receipt import Failure, Receipt, Signature
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rows import Record, response_name
from perdure.kernel.status import TERMINAL, Status, ended
from perdure.kernel.workflows import Workflows
from perdure.ports.frame import Frame
from perdure.ports.outside import NOTHING, Ending, OpenEffect, answer
from perdure.ports.store import Filter, Queries

from .history import Line, Reader, Summary, Waiting, read_history, summary
from .judged import judged
from .streams import Streams

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
AFTER_THE_END = '; start another instance, or this key again with reuse="always"'
NEAR_MAX = 3  # so many locations are proposed
MADE_BY_EVENTS = "the first event that is routed to it makes it: client.send(event), or `perdure cells send`"
NEVER_BACK = "its state is what its events made of it; it does not go back"
TEXT_MAX = 4096  # of names, ids, reasons and locations: what stands in rows beside the values

Reuse = Literal["failed", "always"]


class Startable(Protocol[R_co]):
    """What a dialect's definition gives to callers."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes: ...

    def encode_plain_input(self, value: Any) -> bytes: ...

    def decode_result(self, value: bytes) -> R_co: ...


@runtime_checkable
class Keyed(Protocol):
    """A cell: its instances are made by events that are routed to them. `workflow` names what the kernel runs."""

    @property
    def workflow(self) -> str: ...

    def definition(self) -> Any: ...


@runtime_checkable
class Stateful(Workflow, Protocol):
    """A workflow whose state is a value, which callers may read."""

    def read_state(self, machine: Machine) -> Any: ...


class Door(Protocol):
    """How events get to an engine and outcomes come back. Refusals are raised as typed errors."""

    @property
    def queries(self) -> Queries: ...

    async def put(self, to: Ref, event: Event, *, new: bool = False) -> int:
        """Deliver an event durably; the answer is the id of the instance, or 0 when that is not known yet.

        `new`: the name was made up for this event.
        """
        ...

    async def outcome(self, address: Address, instance: int, timeout: float | None) -> Outcome: ...

    async def reached(self, seq: int) -> None:
        """Wait until the journal has this entry."""
        ...

    def changes(self, instance: int) -> AsyncGenerator[None, None]:
        """Yields at once, and again whenever the instance may have published something or ended."""
        ...

    @property
    def streams(self) -> Streams:
        """Raises `NotInThisProcess` where frames are not seen."""
        ...

    def progress(self, instance: int) -> list[Frame]:
        """The newest progress of each running step; nothing where frames are not seen."""
        ...

    def in_force(self) -> str:
        """The hash of the manifest in force, where that is known without asking the database; else empty."""
        ...

    def entropy(self) -> bytes: ...


class Catalog(Protocol):
    """The events that a world of cells takes, by the manifest with this hash."""

    @property
    def hash(self) -> str: ...

    def encode(self, event: Any, key: str | None = None) -> tuple[str, bytes]: ...

    def encode_json(self, name: str, data: Any) -> tuple[str, bytes]: ...


class Client:
    """Starts instances and finds them again. See `perdure.open` and `perdure.connect`.

    `catalog` reads the definitions of a world of cells.
    """

    def __init__(
        self, door: Door, workflows: Workflows[Startable[Any]], catalog: Callable[[bytes], Catalog] | None = None
    ) -> None:
        self._door = door
        self._workflows = workflows
        self._read_catalog = catalog
        self._catalog: tuple[bytes, Catalog] | None = None

    @property
    def queries(self) -> Queries:
        """What can be asked of the database beyond its instances: who runs on it, whether it is whole."""
        return self._door.queries

    @overload
    async def start(
        self,
        workflow: Startable[R],
        *args: Any,
        key: str | None = ...,
        tags: Mapping[str, str] | None = ...,
        reuse: Reuse | None = ...,
        at: datetime | None = ...,
        delay: float | timedelta | None = ...,
        parent: Handle[Any] | None = ...,
        **kwargs: Any,
    ) -> Handle[R]: ...

    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        key: str | None = ...,
        tags: Mapping[str, str] | None = ...,
        reuse: Reuse | None = ...,
        at: datetime | None = ...,
        delay: float | timedelta | None = ...,
        parent: Handle[Any] | None = ...,
        **kwargs: Any,
    ) -> Handle[Any]: ...

    async def start(
        self,
        workflow: Startable[Any] | str,
        *args: Any,
        key: str | None = None,
        tags: Mapping[str, str] | None = None,
        reuse: Reuse | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        parent: Handle[Any] | None = None,
        **kwargs: Any,
    ) -> Handle[Any]:
        """Start an instance; acknowledged when durable.

        A workflow that is passed itself starts in its own version, which must be registered (`UnknownVersion`); a name
        means the newest version. Same key and same input: the existing instance, whatever its version. Same key, other
        input: `KeyInUse`. `reuse="failed"` (or "always") starts again under a key whose instance has failed or was
        cancelled (or has ended in any way). `at` or `delay`: it exists at once and begins its work then;
        `handle.wake()` begins it at once. `parent` is recorded for people, who find it in `perdure show` and
        `ls --parent`: the parent neither waits nor cancels.
        """
        found = self._known(workflow) or await self._find(workflow)
        if "/" in found.name:
            await _refuse_cell(self._door.queries, found.name, MADE_BY_EVENTS)
        due = _due(at, delay) if at is not None or delay is not None else 0
        if parent is not None and not isinstance(parent, Handle):
            raise CallerError(f"parent={parent!r}: a parent is given by its handle")
        origin = None if parent is None else Parent(await parent._id(), b"", detached=True)
        version = "" if isinstance(workflow, str) else workflow.version
        return await self._start(found, version, found.encode_input(args, kwargs), key, tags, reuse, due, origin)

    async def start_plain(
        self,
        workflow: Startable[Any] | str,
        value: Any,
        *,
        key: str | None = None,
        tags: Mapping[str, str] | None = None,
        reuse: Reuse | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> Handle[Any]:
        """Start with input that came as JSON: an object is keyword arguments, an array positional ones."""
        found = self._known(workflow) or await self._find(workflow)
        if "/" in found.name:
            await _refuse_cell(self._door.queries, found.name, MADE_BY_EVENTS)
        due = _due(at, delay) if at is not None or delay is not None else 0
        version = "" if isinstance(workflow, str) else workflow.version
        return await self._start(found, version, found.encode_plain_input(value), key, tags, reuse, due, None)

    async def _start(  # noqa: PLR0917
        self,
        workflow: Startable[Any],
        version: str,
        value: bytes,
        key: str | None,
        tags: Mapping[str, str] | None,
        reuse: Reuse | None,
        due: int,
        parent: Parent | None,
    ) -> Handle[Any]:
        if reuse not in (None, "failed", "always"):
            raise CallerError(f'reuse={reuse!r}: a used key is started again if it "failed", or "always"')
        address = Address(workflow.name, _checked_key(key))
        seed = self._door.entropy()
        given = _checked_tags(tags)
        event = Started(workflow.name, address.key, value, seed, version, parent, given, reuse or "", due=due)
        instance = await self._door.put(address, event, new=key is None)
        return Handle(self._door, address, workflow, instance, self._workflows)

    @overload
    def handle(self, workflow: Startable[R], key: str) -> Handle[R]: ...

    @overload
    def handle(self, workflow: Keyed | str, key: str) -> Handle[Any]: ...

    def handle(self, workflow: Startable[Any] | Keyed | str, key: str) -> Handle[Any]:
        """The handle of an instance that was started before, by anybody. A cell without keys has the key ""."""
        if not isinstance(workflow, str) and isinstance(workflow, Keyed):
            workflow = workflow.workflow
        found = self._known(workflow) or (Named(workflow) if isinstance(workflow, str) else workflow)
        name = _checked_text(found.name, "the name of a workflow")
        if not isinstance(key, str):
            raise CallerError(f"a handle needs the key of an instance, found {key!r}")
        if key or "/" not in name:  # the only cell of a definition without keys has the empty one
            key = _checked_key(key)
        return Handle(self._door, Address(name, key), found, None, self._workflows)

    async def state(
        self, cell: Keyed | str, key: str = "", *, at: int | None = None, at_least: int | None = None
    ) -> Any:
        """The state of a cell, as the object that its reducer takes; None: there is no such cell.

        It is that of now, or as of an entry of the journal (`at`). `at_least` waits until the journal has that entry.
        The code of the cell is needed: `perdure.connect(url, workflows=[...])`.
        """
        if not isinstance(cell, Keyed | str):
            raise CallerError(f"{cell!r} is not a cell; did you forget @perdure.cell?")
        name = _checked_text(cell if isinstance(cell, str) else cell.workflow, "the name of a cell")
        address = Address(name, key and _checked_key(key))
        if at_least is not None:
            await self._door.reached(_checked_entry(at_least, "at_least"))
        if at is None:
            return await self._state(await self._door.queries.record(address))
        height = await self._door.queries.height()
        if _checked_entry(at, "at") > height:
            raise CallerError(f"at={at}: the journal ends with entry {height}; at_least={at} waits for it")
        return await self._state(await self._record_at(address, at))

    async def _record_at(self, address: Address, at: int) -> Record | None:
        """What was known of an instance when the journal ended with an entry: of the generation that there was."""
        before = at + 1  # the id of an instance is that of its first entry
        heads = await self._door.queries.heads(Filter(address.workflow, key=address.key, before=before, limit=1))
        if not heads:
            return None
        record = await self._door.queries.record(heads[0].id)
        if record is None or record.snapshot is None or record.snapshot.seq > at:
            rows = await self._door.queries.history(heads[0].id)
            if not rows or rows[0].seq != heads[0].id:
                text = f"at={at}: this database was restored, and has nothing from then of {address}"
                raise CallerError(f"{text}; ask the one that it was restored from")
            record = Record(heads[0], None, tuple(rows))
        return Record(heads[0], record.snapshot, tuple([row for row in record.rows if row.seq <= at]))

    async def _state(self, record: Record | None) -> Any:
        if record is None or (not record.rows and record.snapshot is None):
            return None
        head = record.head
        instance = fold(Address(head.workflow, head.key), record.snapshot, record.rows)
        if instance.ended:
            return None
        workflow = self._workflows.exactly(head.workflow, instance.definition)
        if workflow is None:
            known = ", ".join(self._workflows.versions(head.workflow)) or "none"
            raise UnknownVersion(
                f"the state of {instance.address} can be read with its code, version {instance.definition}; "
                f"here is {known}: register it, workflows=[...]"
            )
        if not isinstance(workflow, Stateful):
            raise CallerError(f"{instance.address} is not a cell: it has a history, and no state to read")
        machine = rebuild(instance, workflow)
        try:
            return workflow.read_state(machine)
        finally:
            machine.dispose()

    async def instances(
        self,
        *,
        workflow: Startable[Any] | Keyed | str = "",
        status: str = "",
        tags: Mapping[str, str] | None = None,
        parent: int = 0,
        before: int = 0,
        limit: int = 100,
    ) -> list[Summary]:
        """What exists, newest first: of a workflow in all its versions, with all of these tags, if any; children of
        `parent`, if given.

        `before` is the id of the last one of the page before.
        """
        if isinstance(workflow, Keyed):
            workflow = workflow.workflow
        name: Any = workflow if isinstance(workflow, str) else getattr(workflow, "name", workflow)
        if name:
            _checked_text(name, "the name of a workflow")
        if status and status not in list(Status):
            raise CallerError(unknown("status", status, list(map(str, Status)), "leave it out to see all"))
        wanted = Filter(name, status, parent, _checked_tags(tags), before, limit)
        rows = await self._door.queries.heads(wanted)
        return [summary(row) for row in rows]

    async def send(self, event: Any, *, key: str | None = None, id: str | None = None, correlation: str = "") -> None:
        """Send a domain event to the cells that subscribe to it; durable when this returns.

        The same `id` twice is taken once; of another event it is refused, where that can be known (not in another
        process). `correlation` is passed on to all that the event leads to. `key` is checked: the key is in the event.
        """
        catalog = await self._world()
        name, body = catalog.encode(event, key)
        await self._send(catalog, name, body, id, correlation)

    async def send_json(self, name: str, data: Any, *, id: str | None = None, correlation: str = "") -> None:
        """Send a domain event that came as JSON, by its name."""
        catalog = await self._world()
        await self._send(catalog, *catalog.encode_json(name, data), id, correlation)

    async def _send(self, catalog: Catalog, name: str, body: bytes, id: str | None, correlation: str) -> None:
        if id is not None:
            _checked_text(id, "the id of an event")
        if correlation:
            _checked_text(correlation, "a correlation")
        _limited(body, f"event {name!r}")
        message = Message(name, body, id or "", catalog.hash, correlation)
        await self._door.put(WORLD, message)

    async def _world(self) -> Catalog:
        """What the world of this database takes, by the manifest in force now."""
        if self._catalog is not None and self._catalog[1].hash == self._door.in_force():
            return self._catalog[1]
        head = await self._door.queries.head(WORLD)
        data = None if head is None else await self._door.queries.published(head.id, DEFINITIONS)
        if data is None or self._read_catalog is None:
            raise CallerError("this database has no cells: open it with perdure.open(url, workflows=[a cell])")
        if self._catalog is None or self._catalog[0] != data:
            self._catalog = data, self._read_catalog(data)
        return self._catalog[1]

    async def open_effects(self, executor: str | None = None, *, after: str = "", limit: int = 100) -> list[OpenEffect]:
        """What waits for executors outside, or for one of them, in the order of the intents.

        `after` is the intent of the last one of the page before.
        """
        name = "" if executor is None else _checked_text(executor, "the name of an executor")
        rows = await self._door.queries.outside(name, _intent(after) if after else b"", limit)
        found: dict[int, Instance | None] = {}
        effects = []
        for row in rows:
            if row.instance not in found:
                found[row.instance] = await self._folded(row.instance)
            instance = found[row.instance]
            if instance is not None and row.intent in instance.open:  # else it was answered since
                effects.append(_open_effect(instance, instance.open[row.intent]))
        return effects

    async def _folded(self, instance: int) -> Instance | None:
        record = await self._door.queries.record(instance)
        if record is None:
            return None
        return fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows)

    async def answer(
        self,
        intent: str | OpenEffect,
        *,
        executor: str,
        ok: Any = NOTHING,
        error: str | None = None,
        status: Ending | None = None,
        cost: Any = None,
        signature: Signature | None = None,
        wait: float | timedelta | None = None,
    ) -> None:
        """Answer an effect that waits for an executor outside: ok=value, error=text, or another status.

        `executor` is who answers, `cost` plain data for whoever reads the receipt, `signature` of `perdure.sign`:
        needed where the engine has keys of this executor. Durable when this returns. A receipt that is not admitted
        changes nothing, is recorded in the history of the world, and raises `ReceiptRefused`. An engine in another
        process judges when it takes the receipt: who wants to hear that says how many seconds to `wait` for it, and
        gets an `AskTimeout` if it takes longer. An intent that is not open, because it was answered before, is
        `UnknownIntent`.
        """
        name = _checked_text(executor, "the name of an executor")
        if error is not None:
            _checked_text(error, "an error")
        receipt = answer(name, ok=ok, error=error, status=status, cost=cost, signature=signature)
        for part, what in ((receipt.value, "a receipt"), (receipt.by and receipt.by.cost, "a cost")):
            _limited(part or b"", what)
        id = _intent(intent if isinstance(intent, str) else intent.intent)
        row = await self._door.queries.work(id)
        if row is None or not row.kind.startswith(KIND):
            raise UnknownIntent(id.hex())
        seconds = _seconds(wait)
        since = 0 if seconds is None else await self._door.queries.height()
        if await self._door.put(row.instance, Received(id, receipt)) == 0:  # answered since, by somebody else
            raise UnknownIntent(id.hex())
        if seconds is not None:
            try:
                async with asyncio.timeout(seconds):
                    queries, changes = self._door.queries, self._door.changes(row.instance)
                    await judged(queries, changes, instance=row.instance, intent=id, executor=name, since=since)
            except TimeoutError:
                text = f"no engine has taken the receipt for {id.hex()} within {seconds} s"
                raise AskTimeout(f"{text}; it is recorded, and one will") from None

    def _known(self, workflow: Startable[Any] | str) -> Startable[Any] | None:
        if isinstance(workflow, str):
            return self._workflows.newest(workflow)
        if hasattr(workflow, "encode_input"):
            return self._workflows.exactly(workflow.name, workflow.version)
        if isinstance(workflow, Keyed):  # asked last, because to ask a protocol is slow
            raise CallerError(f"{workflow!r} is a cell: {MADE_BY_EVENTS}")
        raise CallerError(f"{workflow!r} is not a workflow; did you forget @perdure.flow?")

    async def _find(self, workflow: Startable[Any] | str) -> Startable[Any]:
        """A workflow that this client does not have: the engine of the database may."""
        name = workflow if isinstance(workflow, str) else workflow.name
        rows = Workflows(await self._door.queries.workflows())
        row = rows.newest(name)
        if row is None or (self._workflows and name not in self._workflows):
            names = {*rows.names(), *self._workflows.names()}
            raise UnknownWorkflow(unknown("workflow", name, names, "register it: perdure.open(url, workflows=[...])"))
        return Named(name, row.defaults) if isinstance(workflow, str) else workflow


class Named:
    """A workflow that is known here by its name only: its code, and so its types, are in another process."""

    version = ""  # the newest

    def __init__(self, name: str, defaults: bytes | None = None) -> None:
        self.name = name
        self._defaults = defaults

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if args:
            raise CallerError(
                f"{self.name!r} is known here by its name only: pass keyword arguments, or the workflow itself"
            )
        defaults = decode(self._defaults) if self._defaults else {}
        return _limited(encode({**defaults, **to_plain(kwargs)}), f"the input of {self.name}")

    def encode_plain_input(self, value: Any) -> bytes:
        if not isinstance(value, dict):
            raise CallerError(f"the input of {self.name!r} must be a JSON object of its parameters, found {value!r}")
        return self.encode_input((), value)

    def decode_result(self, value: bytes) -> Any:
        return decode(value)


class Handle(Generic[R]):
    """One instance, seen from outside. All methods are awaitable, and none of them holds anything back from others."""

    def __init__(
        self,
        door: Door,
        address: Address,
        workflow: Startable[Any],
        instance: int | None,
        workflows: Workflows[Startable[Any]],
    ) -> None:
        self._door = door
        self._workflow = workflow
        self._workflows = workflows
        self._instance = instance  # None: find it by name; 0: it is on its way to an engine
        self.address = address

    @property
    def workflow(self) -> str:
        return self.address.workflow

    @property
    def key(self) -> str:
        return self.address.key

    def __repr__(self) -> str:
        return f"<handle {self.address}>"

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait for the end. Raises `InstanceFailed`, `InstanceCancelled`, `InstanceStuck`, or `ResultTimeout`."""
        if self._instance is None:
            await self._id()
        seconds = _seconds(timeout)
        outcome = await self._door.outcome(self.address, self._instance or 0, seconds)
        match outcome.status:
            case Status.COMPLETED:
                return await self._decoded(outcome.value)
            case Status.CANCELLED:
                reason = outcome.error.message if outcome.error is not None else ""
                raise InstanceCancelled(str(self.address), reason)
            case _:
                raise _with_recorded(InstanceFailed(str(self.address), outcome.error), outcome.error)

    async def _decoded(self, value: bytes | None) -> R:
        if value is None:
            return None  # type: ignore[return-value]
        workflow = self._workflow
        if self._workflows.several(workflow.name):  # whoever has the key need not know the version
            workflow = self._workflows.of(workflow.name, (await self.summary()).version) or workflow
        return workflow.decode_result(value)  # type: ignore[no-any-return]

    async def status(self) -> Status:
        head = await self._door.queries.head(await self._id())
        assert head is not None
        return Status(head.status)

    async def send(self, name: str, body: object = None, *, id: str | None = None) -> None:
        """Send a message; durable when this returns. The same `id` twice is delivered once."""
        if "/" in self.address.workflow and self.address != WORLD:
            await self._refuse_cell("its events are routed to it: client.send(event), or `perdure cells send`")
        value = _limited(encode(to_plain(body)), f"message {name!r}")
        if id is not None:
            _checked_text(id, "the id of a message")
        message = Message(_checked_text(name, "the name of a message"), value, id or os.urandom(16).hex())
        await self._door.put(self._to(), message)

    async def ask(
        self, name: str, body: object = None, timeout: float | timedelta | None = None, *, id: str | None = None
    ) -> Any:
        """Send a message and wait for its response: what the flow passes to `message.complete(response)`.

        The message is durable like any other. Who asks again with the same `id` hears the same response. Raises
        `AskTimeout`, or `NotAnswered` when the instance ended without an answer.
        """
        seconds = _seconds(timeout)
        if id is None:
            id = os.urandom(16).hex()
        else:
            name_of_response = response_name(_checked_text(id, "the id of a message"))
            known = await self._door.queries.published(await self._id_soon(), name_of_response)
            if known is not None:
                return decode(known)
        await self.send(name, body, id=id)
        try:
            async with asyncio.timeout(seconds):
                return await self._response(name, id)
        except TimeoutError:
            raise AskTimeout(
                f"{self.address} had not answered {name!r} after {seconds} s; it may yet: ask again with id={id!r}"
            ) from None

    async def _response(self, name: str, id: str) -> Any:
        async with aclosing(self._values(response_name(id), until_stuck=True)) as values:
            async for value in values:
                return decode(value)
        raise NotAnswered(f"{self.address} has ended without an answer to {name!r}; nobody completed the message")

    async def watch(self, name: str) -> AsyncGenerator[Any, None]:
        """The value published under a name, and every new one, until the instance has ended.

        Whoever looks away for a while finds the newest value, not each that there was.
        """
        async with aclosing(self._values(name)) as values:
            async for value in values:
                yield decode(value)

    async def _values(self, name: str, until_stuck: bool = False) -> AsyncGenerator[bytes, None]:
        queries, seen = self._door.queries, None
        instance = await self._id_soon()
        async with aclosing(self._door.changes(instance)) as changes:
            async for _ in changes:
                head = await queries.head(instance)  # before the value: what is published last is not missed
                value = await queries.published(instance, name)
                if value is not None and value != seen:
                    seen = value
                    yield value
                if head is not None and head.status in TERMINAL:
                    return
                if until_stuck and head is not None and head.status == Status.STUCK:
                    stuck = (await self._read()).state.stuck
                    if stuck is not None:
                        raise InstanceStuck(str(self.address), stuck.error, stuck.location)

    async def wake(self, location: str = "") -> None:
        """End a sleep early: the one at a location, or all that the instance is in. Recorded."""
        await self._refuse_cell("what it asked for is answered when it is due, and not before")
        reader = await self._read()
        if reader.state.ended:
            raise InstanceEnded(f"{self.address} {ended(reader.state.status)} and takes no more events{AFTER_THE_END}")
        sleeps = [open.location for open in reader.waiting() if open.kind == "timer" and is_sleep(open.location)]
        if not sleeps or (location and location not in sleeps):
            where = f" at {location!r}" if location else ""
            known = (
                f", but at {', '.join(sleeps)}; name one, or none to wake all"
                if sleeps
                else "; there is nothing to wake"
            )
            raise UnknownLocation(f"{self.address} does not sleep{where}{known}")
        await self._door.put(self._to(), Woken(location))

    async def cancel(self, reason: str = "", undo: bool = False) -> None:
        """Ask the instance to stop. Acknowledged when recorded; from then on it can only end cancelled.

        `undo`: completed steps that have an `undo` are undone, the last one first.
        """
        _refuse_world(self.workflow)
        await self._door.put(self._to(), CancelAsked(_checked_text(reason or " ", "a reason").strip(), undo=undo))

    async def retry(self) -> None:
        """Try again, after whatever was wrong has been put right.

        A stuck instance goes on where it stopped. One that has failed does again what failed, in all branches, and what
        was undone; all else stays done.
        """
        head = await self._door.queries.head(self._to())
        if head is None or head.status != Status.FAILED:
            await self._door.put(self._to(), Retried())
        else:
            await self._refuse_cell("one that has failed is made anew by the next event that is routed to it")
            event = (await self._behind()).retry() or (await self._behind(whole=True)).retry()
            assert event is not None, "the whole past has all that was done"
            await self._rewind(event)

    async def rewind(self, to: str, *, force: bool = False) -> None:
        """Go back to the operation at a location: it and all that came after it did not happen, and are done anew.

        What came before is kept: answers, messages, sleeps, versions. Raises `StillRunning` while a step runs that
        would be dropped; `force` cancels it. Values that were published stay readable.
        """
        await self._refuse_cell(NEVER_BACK)
        behind = await self._behind()
        if behind.point_of(_checked_text(to, "a location")) is None:
            behind = await self._behind(whole=True)
        event = behind.rewind(to, self._point(behind, to), force)
        running = still_running(behind.instance, event)
        if running is not None:  # an engine in another process would refuse it, and nobody would hear that
            raise refusal(running)
        await self._rewind(event)

    async def fork(self, at: str, edit: Mapping[str, Any] | None = None, *, key: str | None = None) -> Handle[R]:
        """Start another instance that has the same behind it, up to the operation at a location, and goes on there.

        `edit` has other values for steps that were answered before, by location. This instance goes on as it was.
        """
        await self._refuse_cell(NEVER_BACK)
        behind = await self._behind(whole=True)
        point = self._point(behind, at)
        if behind.cancelled(point):
            raise CallerError(f"{self.address} was cancelled before {at!r}: a fork there would be cancelled too")
        answered, values = behind.answered(point), dict(edit or {})
        for location in values.keys() - answered:
            names = ", ".join(sorted(answered)) or "nothing"
            raise UnknownLocation(f"{self.address} had no answer at {location!r} before {at!r}; it had: {names}")
        address = Address(self.workflow, _checked_key(key))
        if key is not None and await self._door.queries.head(address) is not None:
            raise KeyInUse(f"{address} exists already; a fork needs a key of its own")
        seed, state = self._door.entropy(), behind.instance
        forked = _bounded(
            behind.fork(address.key, at, point, {each: encode(to_plain(values[each])) for each in values})
        )
        event = Started(
            self.workflow, address.key, behind.input, seed, state.definition, tags=state.tags, forked=forked
        )
        instance = await self._door.put(address, event, new=key is None)
        return Handle(self._door, address, self._workflow, instance, self._workflows)

    def _point(self, behind: Behind, location: str) -> Point:
        point = behind.point_of(_checked_text(location, "a location"))
        if point is None:
            known = sorted(behind.locations())
            near = [each for each in known if each.endswith(f"/{location}")][:NEAR_MAX]
            near = near or difflib.get_close_matches(location, known, n=1)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else "`perdure history` shows where it did"
            raise UnknownLocation(f"{self.address} did nothing at {location!r}; {meant}")
        return point

    async def _rewind(self, event: Rewound) -> None:
        last = await self._door.queries.head(self.address)
        if last is not None and last.id != await self._id():
            raise CallerError(f"{self.address} was started again since: only the last one can go back")
        await self._door.put(self._to(), _bounded(event))

    async def _behind(self, *, whole: bool = False) -> Behind:
        """From the last snapshot on, or from the beginning."""
        instance = await self._id()
        record = None if whole else await self._door.queries.record(instance)
        if record is None or record.snapshot is None:
            return Behind(self.address, await self._door.queries.history(instance))
        return Behind(self.address, record.rows, record.snapshot)

    async def settle(self, location: str, value: object = None, *, error: str | None = None) -> None:
        """Answer for a step whose outcome is unknown, and at which the instance is stuck: its value, or its error.

        `retry()` instead says: it had no effect, run it again.
        """
        if error is not None and value is not None:
            raise CallerError("settle takes the value of a step, or its error, not both")
        stuck = (await self._read()).state.stuck
        if stuck is None:
            raise NotStuck(f"{self.address} is {await self.status()}, not stuck: there is nothing to answer for")
        if stuck.kept:
            raise UnknownLocation(f"{self.address} is not stuck at {location!r}: its code stopped; retry or cancel it")
        if stuck.location != location:
            raise UnknownLocation(f"{self.address} is not stuck at {location!r} but at {stuck.location!r}; settle that")
        receipt = Receipt("ok", _limited(encode(to_plain(value)), f"the value for {location!r}"))
        if error is not None:
            receipt = Receipt("error", error=Failure("Settled", _checked_text(error, "an error"), retry=False))
        await self._door.put(self._to(), Settled(_checked_text(location, "a location"), receipt))

    async def read(self, name: str) -> Any:
        """The last value that the instance published under a name, or None."""
        value = await self._door.queries.published(await self._id(), name)
        return None if value is None else decode(value)

    async def history(self) -> list[Line]:
        """Every entry so far, in words."""
        _, lines = await read_history(self._door.queries, await self._id())
        return lines

    async def waiting(self) -> list[Waiting]:
        """What the instance has open now, with the newest progress of its steps if they run in this process."""
        reader = await self._read()
        return reader.waiting(self._door.progress(await self._id()))

    async def progress(self) -> list[Frame]:
        """The newest progress of each step that runs now in this process; the others are not seen."""
        return self._door.progress(await self._id())

    def stream(self) -> AsyncGenerator[Frame]:
        """The frames of the instance, live: from the first `async for` on, each once and in order.

        First comes the newest progress of steps that run already. The stream ends when the instance ends or is stuck,
        or when the engine is closed: `result()` says which. Who takes frames slowly loses some, and never holds up a
        step: progress that was not taken is replaced by newer progress of the same step, and of more than 1000 frames
        that wait the oldest are dropped. Raises `NotInThisProcess` where the engine runs in another process.
        """
        return self._stream(self._door.streams)

    async def _stream(self, streams: Streams) -> AsyncGenerator[Frame]:
        instance = await self._id()
        stream = streams.open(instance, self._door.progress(instance))
        end = asyncio.ensure_future(self._door.outcome(self.address, instance, None))

        def ended(end: asyncio.Future[Outcome]) -> None:
            if not end.cancelled():
                end.exception()  # for `result()` to raise
            stream.end()

        end.add_done_callback(ended)
        try:
            while (frame := await stream.take()) is not None:
                yield frame
        finally:
            end.cancel()
            streams.close(instance, stream)

    async def summary(self) -> Summary:
        head = await self._door.queries.head(await self._id())
        assert head is not None
        return summary(head)

    async def error(self) -> object:
        """Why the instance is stuck or how it failed; None when neither."""
        state = (await self._read()).state
        if state.stuck is not None:
            return state.stuck.error
        return state.outcome.error if state.outcome is not None else None

    async def _read(self) -> Reader:
        reader, _ = await read_history(self._door.queries, await self._id())
        return reader

    async def _id_soon(self) -> int:
        """The id, also of what is on its way to an engine."""
        if self._instance == 0:
            async with aclosing(self._door.changes(0)) as changes:
                async for _ in changes:
                    head = await self._door.queries.head(self.address)
                    if head is not None:
                        break
        return await self._id()

    async def _refuse_cell(self, advice: str) -> None:
        await _refuse_cell(self._door.queries, self.workflow, advice)

    def _to(self) -> Ref:
        return self._instance or self.address

    async def _id(self) -> int:
        if not self._instance:
            head = await self._door.queries.head(self.address)
            if head is None:
                if self._instance == 0:
                    raise UnknownInstance(f"{self.address} is recorded, but no engine has taken it up yet")
                raise UnknownInstance(f"there is no instance {self.address}; `perdure ls` lists what exists")
            self._instance = head.id
        return self._instance


def _refuse_world(workflow: str) -> None:
    if workflow == WORLD.workflow:
        raise CallerError(f"{WORLD} is the world of this database: it takes the events of cells, and lasts as long")


async def _refuse_cell(queries: Queries, workflow: str, advice: str) -> None:
    """For what is done with other instances only. The name of a cell has a namespace.

    The kernel refuses it too, whoever sent it; but to a client in another process nobody would say so.
    """
    if "/" not in workflow:
        return
    _refuse_world(workflow)
    world = await queries.head(WORLD)
    data = None if world is None else await queries.published(world.id, MANIFEST)
    if workflow in decode_manifest(data).versions:
        raise CallerError(f"{workflow} is a cell: {advice}")


def _bounded(event: Rewound) -> Rewound:
    if len(event.past) > VALUE_MAX:
        raise TooLarge("what the instance has behind it", len(event.past), VALUE_MAX)
    return event


def _with_recorded(error: InstanceFailed, failure: Failure | None) -> InstanceFailed:
    """The error with the recorded tracebacks as notes: where in the author's code it went wrong."""
    for recorded in [] if failure is None else [failure, *failure.causes[-1:]]:
        if recorded.traceback:
            error.add_note(f"recorded:\n{recorded.traceback.rstrip()}")
    return error


def refusal(refused: Refused) -> CallerError:
    """The typed error of a refusal."""
    kinds: dict[str, type[CallerError]] = {
        "unknown-workflow": UnknownWorkflow,
        "unknown-version": UnknownVersion,
        "unknown-instance": UnknownInstance,
        "key-in-use": KeyInUse,
        "ended": InstanceEnded,
        "not-stuck": NotStuck,
        "running": StillRunning,
    }
    advice = {
        "key-in-use": '; use another key, or reuse="failed" if it failed, reuse="always" if it has ended in any way',
        "running": "; wait for it, or drop it with force=True",
        "not-stuck": "; a retry is for what is stuck or has failed: rewind goes back, fork goes on in another one",
        "unknown-instance": "; `perdure ls` lists what exists",
        "unknown-version": "; register it too, or start the workflow by its name: that takes the newest",
        "ended": "" if refused.reason.endswith("fork it") else AFTER_THE_END,
    }
    if refused.code in ("no-identity", "not-outside", "wrong-executor", "bad-signature"):
        return ReceiptRefused(refused.code, refused.reason)
    return kinds.get(refused.code, CallerError)(refused.reason + advice.get(refused.code, ""))


def _intent(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except (ValueError, TypeError):
        raise CallerError(
            f"an intent is named by hex digits, as open_effects() shows them, found {text!a:.80}"
        ) from None


def _open_effect(instance: Instance, intent: Intent) -> OpenEffect:
    outside = outside_of(intent.effect)
    assert outside is not None, "its row says that it is for somebody outside"
    due = due_of(intent.effect)
    return OpenEffect(
        intent=intent.id.hex(),
        effect=outside.effect,
        executor=outside.executor,
        params=outside.params,
        params_hash=digest(encode(outside.params)),
        workflow=instance.address.workflow,
        key=instance.address.key,
        entry=outside.entry,
        issuer=outside.issuer,
        idempotency_key=outside.key or instance.identity.idempotency_key(intent.effect.location),
        due=None if due is None else when(due),
    )


def _checked_entry(seq: int, what: str) -> int:
    if type(seq) is not int or seq < 0:
        raise CallerError(f"{what}={seq!r}: an entry of the journal is a number from 0")
    return seq


def _limited(value: bytes, what: str) -> bytes:
    if len(value) > VALUE_MAX:
        raise TooLarge(what, len(value), VALUE_MAX)
    return value


def unknown(kind: str, name: str, names: Collection[str], advice: str) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"no {kind} is named {name!r}{meant} (there are: {', '.join(sorted(names)) or 'none'}); {advice}"


def _due(at: datetime | None, delay: float | timedelta | None) -> int:
    """When a delayed start is due, in nanoseconds."""
    if at is not None and delay is not None:
        raise CallerError("a start is delayed with `at` or with `delay`, not with both")
    if at is not None:
        if not isinstance(at, datetime) or at.tzinfo is None:  # type: ignore[redundant-expr]
            raise CallerError(f"at={at!r} must be a time with a time zone: datetime(..., tzinfo=UTC)")
        seconds = at.timestamp()
    else:
        try:
            wait = delay.total_seconds() if isinstance(delay, timedelta) else float(delay or 0)
        except (TypeError, ValueError):
            raise CallerError(f"delay={delay!r}: a delay is a number of seconds or a timedelta") from None
        if not wait >= 0:
            raise CallerError(f"delay={delay!r}: a start is delayed by no time or more")
        seconds = time.time() + wait
    if not 0 <= seconds < 9.2e9:
        raise CallerError(f"a start can be delayed until the year 2261, found {at or delay}")
    return round(seconds * 1e9)


def _seconds(timeout: float | timedelta | None) -> float | None:
    if timeout is None or isinstance(timeout, timedelta):
        return None if timeout is None else timeout.total_seconds()
    if not isinstance(timeout, int | float):
        raise CallerError(f"a timeout is a number of seconds or a timedelta, found {timeout!r}")
    return timeout


def _checked_key(key: str | None) -> str:
    if key is None:
        return os.urandom(16).hex()
    usable = isinstance(key, str) and 0 < len(key) <= 512 and "\x00" not in key  # type: ignore[redundant-expr]
    if not usable:
        raise CallerError(f"a key is a text of 1 to 512 characters, found {key!r:.80}")
    return _checked_text(key, "a key")


def _checked_text(value: str, what: str) -> str:
    """The text, if it is one that can be recorded. What gets past here is encoded where nobody could refuse it."""
    try:
        if isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.encode():  # type: ignore[redundant-expr]
            return value
    except UnicodeEncodeError:
        pass
    raise CallerError(f"{what} is a text of valid Unicode with 1 to {TEXT_MAX:,} characters, found {value!a:.80}")


def _checked_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    if not tags:
        return {}
    if not isinstance(tags, Mapping):
        raise CallerError(f"tags are texts by name, found {tags!r}")
    found = dict(tags)
    for name, value in found.items():
        if not (isinstance(name, str) and isinstance(value, str)):  # type: ignore[redundant-expr]
            raise CallerError(f"tags are texts by name, found {name!r}: {value!r}")
        _checked_text(name + value, "a tag")
    return found
