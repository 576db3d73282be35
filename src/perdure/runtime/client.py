"""What callers hold: a client, of an engine in this process or of a database that another one serves.

It speaks through a `Connection` (`connection.py`), and gives out handles (`handle.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, cast, overload

import msgspec

from perdure.errors import (
    AskTimeout,
    CallerError,
    UnknownIntent,
    UnknownWorkflow,
    WorkflowUnavailable,
)
from perdure.kernel.asked import Actor
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address, Parent, ReceiptArrived, Started
from perdure.kernel.outside import KIND
from perdure.kernel.receipt import ReceiptSignature
from perdure.kernel.rows import StoredInstance
from perdure.kernel.status import Status
from perdure.kernel.tags import TagValue
from perdure.kernel.workflows import OWN, Workflows
from perdure.ports.dialect import Catalog
from perdure.ports.outside import NOTHING, Ending, OpenEffect, answer
from perdure.ports.seen import Summary
from perdure.ports.store import Filter, ListOrder, Queries, change_of, place_of

from .arguments import (
    Between,
    asked,
    checked_entry,
    checked_key,
    checked_route_key,
    checked_tags,
    checked_text,
    is_by_change,
    limited,
    no_workflow,
    reference_tags,
    seconds_of,
    span_of,
    start_due,
    unknown,
)
from .connection import Connection, Speaker
from .definitions import Definitions, is_same
from .domain_events import DomainEvents
from .handle import Handle
from .history import list_place, summary
from .open_effects import intent_id, open_effects
from .policies import refuse_by_policy, takes_empty_key
from .receipt_taken import wait_until_taken
from .references import live_one
from .startable import Named, Startable
from .state import Keyed, Stateful, is_known, read_state, record_at, record_now, version_in
from .tasks import Tasks

R = TypeVar("R")

Reuse = Literal["failed", "always"]


class Client(Speaker):
    """Starts instances and finds them again. See `perdure.open` and `perdure.connect`.

    `catalog` reads what the ruler takes from outside, `restore` one definition of the database: a version, or the
    active one.
    """

    def __init__(
        self,
        connection: Connection,
        workflows: Workflows[Startable[Any]],
        catalog: Callable[[bytes | None], Catalog] | None = None,
        restore: Callable[[Queries, str, str], Awaitable[Any]] | None = None,
    ) -> None:
        super().__init__(connection)
        self._workflows = workflows
        self.read_catalog = catalog
        self._domain_events = DomainEvents(catalog)
        self._restore = restore
        self._definitions: dict[tuple[str, str], Any] = {}
        self.processes = Definitions(connection, "process")
        """Definitions of processes: put, activate, list."""
        self.playbooks = Definitions(connection, "playbook")
        """Definitions of playbooks, as `processes`."""
        self.processes.code = self.playbooks.code = self.code
        self.tasks = Tasks(connection)
        """What people are asked for, by all workflows of this database."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which this client must be used: `asyncio.run_coroutine_threadsafe(..., engine.loop)`."""
        return self._any_loop.loop

    @property
    def queries(self) -> Queries:
        """What can be asked of the database beyond its instances: who runs on it, whether it is whole."""
        return self._connection.queries

    def changes(self) -> AsyncGenerator[None, None]:
        """Yields at once, and again whenever something was recorded."""
        return self._connection.changes(0)

    @overload
    async def start(
        self,
        workflow: Startable[R],
        *args: Any,
        key: str | None = ...,
        tags: Mapping[str, TagValue] | None = ...,
        reuse: Reuse | None = ...,
        at: datetime | None = ...,
        delay: float | timedelta | None = ...,
        parent: Handle[Any] | str | None = ...,
        by: Actor | str | None = ...,
        **kwargs: Any,
    ) -> Handle[R]: ...

    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        key: str | None = ...,
        tags: Mapping[str, TagValue] | None = ...,
        reuse: Reuse | None = ...,
        at: datetime | None = ...,
        delay: float | timedelta | None = ...,
        parent: Handle[Any] | str | None = ...,
        by: Actor | str | None = ...,
        **kwargs: Any,
    ) -> Handle[Any]: ...

    async def start(
        self,
        workflow: Startable[Any] | str,
        *args: Any,
        key: str | None = None,
        tags: Mapping[str, TagValue] | None = None,
        reuse: Reuse | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        parent: Handle[Any] | str | None = None,
        by: Actor | str | None = None,
        **kwargs: Any,
    ) -> Handle[Any]:
        """Start an instance; acknowledged when durable.

        A workflow that is passed itself starts in its own version, which must be registered (`UnknownVersion`); a name
        means the newest version. Same key and same input: the existing instance, whatever its version. Same key, other
        input: `KeyInUse`. `reuse="failed"` (or "always") starts again under a key whose instance has failed or was
        cancelled (or has ended in any way). `at` or `delay`: it exists at once and begins its work then;
        `handle.wake()` begins it at once. `parent` is recorded for people, who find it in `perdure show` and
        `ls --parent`: the parent neither waits nor cancels. `by` is who asks: a flow knows it as `ctx.started_by`.
        """
        found = self._known(workflow) or await self._find(workflow)
        await refuse_by_policy(self._connection, self._workflows, found.name, "start")
        await self._refuse_start(found)
        due = start_due(at, delay) if at is not None or delay is not None else 0
        parent = self.handle(parent) if isinstance(parent, str) else parent
        if parent is not None and not isinstance(parent, Handle):
            raise CallerError(f"parent={parent!r}: a parent is given by its handle, or by the id of that")
        origin = None if parent is None else Parent(await parent._id(), b"", detached=True)
        root = 0 if parent is None else (await parent.summary()).root
        version = "" if isinstance(workflow, str) else workflow.version
        value = found.encode_input(args, kwargs)
        return await self._start(found, version, value, key, tags, reuse, due, origin, root, by)

    async def start_plain(
        self,
        workflow: Startable[Any] | str,
        value: Any,
        *,
        key: str | None = None,
        tags: Mapping[str, TagValue] | None = None,
        reuse: Reuse | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        by: Actor | str | None = None,
    ) -> Handle[Any]:
        """Start with input that came as JSON: an object is keyword arguments, an array positional ones."""
        found = self._known(workflow) or await self._find(workflow)
        await refuse_by_policy(self._connection, self._workflows, found.name, "start")
        await self._refuse_start(found)
        due = start_due(at, delay) if at is not None or delay is not None else 0
        version = "" if isinstance(workflow, str) else workflow.version
        return await self._start(found, version, found.encode_plain_input(value), key, tags, reuse, due, None, by=by)

    async def _refuse_start(self, workflow: Startable[Any]) -> None:
        """For an engine, which knows what an instance would miss."""

    async def _start(  # noqa: PLR0917
        self,
        workflow: Startable[Any],
        version: str,
        value: bytes,
        key: str | None,
        tags: Mapping[str, TagValue] | None,
        reuse: Reuse | None,
        due: int,
        parent: Parent | None,
        root: int = 0,
        by: Actor | str | None = None,
    ) -> Handle[Any]:
        if reuse not in (None, "failed", "always"):
            raise CallerError(f'reuse={reuse!r}: a used key is started again if it "failed", or "always"')
        address = Address(workflow.name, checked_key(key))
        connection = self._connection
        seed = connection.entropy()
        given = checked_tags(tags)
        above = root if parent is not None and root != parent.instance else 0
        said = None if by is None else asked({"by": by})
        event = Started(
            workflow.name,
            address.key,
            value,
            seed,
            version,
            parent,
            given,
            reuse or "",
            due=due,
            root=above,
            asked=said,
        )
        instance = await connection.put(address, event, new=key is None)
        return Handle(connection, address, workflow, instance, self._workflows, restored=self._restored)

    @overload
    def handle(self, workflow: Startable[R], key: str) -> Handle[R]: ...

    @overload
    def handle(self, workflow: Keyed | str, key: str | None = ...) -> Handle[Any]: ...

    def handle(self, workflow: Startable[Any] | Keyed | str, key: str | None = None) -> Handle[Any]:
        """The handle of an instance that was started before, by its workflow and key, or by the `id` of a handle.

        The only instance of a workflow without keys has the key "".
        """
        if not isinstance(workflow, str) and isinstance(workflow, Keyed):
            workflow = workflow.workflow
        elif isinstance(workflow, str) and key is None and "/" in workflow:
            workflow, key = self._parts(workflow)
        found = self._registered(workflow) or (Named(workflow) if isinstance(workflow, str) else workflow)
        name = checked_text(found.name, "the name of a workflow")
        if not isinstance(key, str):
            raise CallerError(f"a handle needs the key of an instance, or its id alone, found {key!r}")
        if key or not takes_empty_key(self._workflows, name):
            key = checked_key(key)
        return Handle(self._any_loop, Address(name, key), found, None, self._workflows, restored=self._restored)

    def _parts(self, id: str) -> tuple[str, str]:
        """The workflow and the key of an id. A name that has a slash itself is understood where its code is."""
        name, _, key = id.partition("/")
        rest, _, last = key.partition("/")
        return (f"{name}/{rest}", last) if f"{name}/{rest}" in self._workflows else (name, key)

    async def state(
        self, workflow: Keyed | Stateful | str, key: str = "", *, at: int | None = None, at_least: int | None = None
    ) -> Any:
        """The state of an instance whose state is a value, such as a cell, as its code takes it; None: there is none.

        It is that of now, or as of an entry of the journal (`at`). `at_least` waits until the journal has that entry.
        The code of a cell is needed: `perdure.connect(url, workflows=[...])`. The definition of a process is in the
        database.
        """
        if not isinstance(workflow, Keyed | Stateful | str):
            if not hasattr(type(workflow), "machine"):
                raise CallerError(f"{workflow!r} is not a cell; did you forget @perdure.cell?")
            raise CallerError(f"{workflow!r} has a history, and no state to read: its state is no value")
        if not isinstance(workflow, str):
            workflow = workflow.name if isinstance(workflow, Stateful) else workflow.workflow
        name = checked_text(workflow, "the name of a workflow")
        address = Address(name, checked_route_key(key))
        if at_least is not None:
            await self._connection.reached(checked_entry(at_least, "at_least"))
        if at is None:
            record = await record_now(self._connection.queries, address)
            if record is None and not await is_known(self._connection.queries, self._workflows, name):
                await self._find(name)  # it says which names there are
            return await self._read_state(record)
        if checked_entry(at, "at") > (height := await self._connection.queries.height()):
            raise CallerError(f"at={at}: the journal ends with entry {height}; at_least={at} waits for it")
        return await self._read_state(await record_at(self._connection.queries, address, at))

    async def _read_state(self, record: StoredInstance | None) -> Any:
        known = self._workflows
        if record is not None and record.head.workflow not in known:
            known = Workflows(filter(None, [await self.code(record.head.workflow, version_in(record))]))
        return read_state(known, record)

    async def code(self, name: str, version: str = "") -> Any:
        """The workflow that this process, or else the database, has; without a version the active one. None: none."""
        found = self._workflows.exactly(name, version) if version else self._workflows.active(name)
        return found or await self._restored(self._connection.queries, name, version)

    async def _restored(self, queries: Queries, name: str, version: str = "") -> Any:
        """The workflow of a definition that the database has. A version names its bytes, so it is read once."""
        found = self._definitions.get((name, version))
        if found is None and self._restore is not None:
            found = await self._restore(queries, name, version)
            if found is not None and "+" in version:
                self._definitions[name, version] = found
        return found

    async def instances(
        self,
        *,
        workflow: Startable[Any] | Keyed | str = "",
        status: str = "",
        tags: Mapping[str, TagValue] | None = None,
        parent: int = 0,
        before: int = 0,
        limit: int = 100,
        version: str = "",
        key_prefix: str = "",
        root: int = 0,
        started: Between | None = None,
        ended: Between | None = None,
        reference: str = "",
        parts: Mapping[str, str] | None = None,
        order: ListOrder = "-started",
    ) -> list[Summary]:
        """What exists, newest first: of a workflow in all its versions or in one, with all of these tags, if any;
        children of `parent`, or the family of `root`, by their ids.

        `started` and `ended` are two times each: from the first on, and before the second; None is open.
        `before` is the id of the last one of the page before. `reference` and its `parts` are those of a process.
        `order`: `started`, the oldest first; `-changed`, the last changed first, of stuck, failed or waiting ones.
        """
        if isinstance(workflow, Keyed):
            workflow = workflow.workflow
        tags = {**checked_tags(tags, wanted=True), **reference_tags(reference, parts)}
        name: Any = workflow if isinstance(workflow, str) else getattr(workflow, "name", workflow)
        if name:
            checked_text(name, "the name of a workflow")
        if status and status not in list(Status):
            raise CallerError(unknown("status", status, list(map(str, Status)), "leave it out to see all"))
        changes = is_by_change(order, status)
        wanted = Filter(
            name,
            status,
            parent,
            checked_tags(tags, wanted=True),
            await list_place(self._connection.queries, before, changes),
            limit,
            version=version,
            key_prefix=key_prefix,
            root=root,
            started=span_of(started, "started"),
            ended=span_of(ended, "ended"),
            kept=True,
            oldest=order == "started",
            by_change=changes,
        )
        if name or parent or root or tags or key_prefix:
            return [summary(row) for row in await self._connection.queries.heads(wanted)]
        return [summary(row) for row in await self._of_users(wanted)]

    async def _of_users(self, wanted: Filter) -> list[HeadRow]:
        """Instances of built-in workflows, such as tasks, are listed only where a caller asks for them."""
        found: list[HeadRow] = []
        while rows := await self._connection.queries.heads(wanted):
            found += [row for row in rows if not row.workflow.startswith(OWN)]
            if len(found) >= wanted.limit or len(rows) < wanted.limit:
                break
            wanted = msgspec.structs.replace(wanted, before=(change_of if wanted.by_change else place_of)(rows[-1]))
        return found[: wanted.limit]

    async def send_to(
        self,
        name: str,
        body: object = None,
        *,
        reference: str,
        parts: Mapping[str, str] | None = None,
        id: str | None = None,
        by: Actor | str | None = None,
    ) -> Handle[Any]:
        """Send a message to the one live instance that has this reference; durable when this returns.

        None is `UnknownInstance`, several are `AmbiguousReference`: `parts` tells them apart.
        """
        found = await live_one(self._connection.queries, reference, parts)
        handle = self.handle(found.workflow, found.key)
        await handle.send(name, body, id=id, by=by)
        return handle

    async def send(self, event: Any, *, key: str | None = None, id: str | None = None, correlation: str = "") -> None:
        """Send a domain event to the instances that subscribe to it; durable when this returns.

        The same `id` twice is taken once; of another event it is refused, where that can be known (not in another
        process). `correlation` is passed on to all that the event leads to. `key` is checked: the key is in the event.
        """
        catalog = await self._domain_events.catalog(self._connection)
        name, body = catalog.encode(event, None if key is None else checked_route_key(key))
        await self._domain_events.send(self._connection, catalog, name, body, id, correlation)

    async def send_json(self, name: str, data: Any, *, id: str | None = None, correlation: str = "") -> None:
        """Send a domain event that came as JSON, by its name."""
        catalog = await self._domain_events.catalog(self._connection)
        name, body = catalog.encode_json(name, data)
        await self._domain_events.send(self._connection, catalog, name, body, id, correlation)

    async def open_effects(self, executor: str | None = None, *, after: str = "", limit: int = 100) -> list[OpenEffect]:
        """What waits for executors outside, or for one of them, in the order of the intents.

        `after` is the intent of the last one of the page before.
        """
        name = "" if executor is None else checked_text(executor, "the name of an executor")
        return await open_effects(self._connection.queries, name, intent_id(after) if after else b"", limit)

    async def answer(
        self,
        intent: str | OpenEffect,
        *,
        executor: str,
        ok: Any = NOTHING,
        error: str | None = None,
        status: Ending | None = None,
        cost: Any = None,
        signature: ReceiptSignature | None = None,
        wait: float | timedelta | None = None,
    ) -> None:
        """Answer an effect that waits for an executor outside: ok=value, error=text, or another status.

        `executor` is who answers, `cost` plain data for readers of the receipt, `signature` of `perdure.sign`:
        needed where the engine has keys of this executor. Durable when this returns. A receipt that is not admitted
        changes nothing, is recorded in the history of the world, and raises `ReceiptRefused`. An engine in another
        process judges when it takes the receipt: who wants to hear that says how many seconds to `wait` for it, and
        gets an `AskTimeout` if it takes longer. An intent that is not open, because it was answered before, is
        `UnknownIntent`.
        """
        name = checked_text(executor, "the name of an executor")
        if error is not None:
            checked_text(error, "an error")
        receipt = answer(name, ok=ok, error=error, status=status, cost=cost, signature=signature)
        for part, what in ((receipt.value, "a receipt"), (receipt.by and receipt.by.cost, "a cost")):
            limited(part or b"", what)
        id = intent_id(intent.intent if isinstance(intent, OpenEffect) else intent)
        row = await self._connection.queries.work(id)
        if row is None or not row.kind.startswith(KIND):
            raise UnknownIntent(id.hex())
        seconds = seconds_of(wait)
        since = 0 if seconds is None else await self._connection.queries.height()
        if await self._connection.put(row.instance, ReceiptArrived(id, receipt)) == 0:  # another answer came first
            raise UnknownIntent(id.hex())
        if seconds is not None:
            try:
                async with asyncio.timeout(seconds):
                    queries, changes = self._connection.queries, self._connection.changes(row.instance)
                    await wait_until_taken(
                        queries, changes, instance=row.instance, intent=id, executor=name, since=since
                    )
            except TimeoutError:
                text = f"no engine has taken the receipt for {id.hex()} within {seconds} s"
                raise AskTimeout(f"{text}; it is recorded, and one will") from None

    def _known(self, workflow: Startable[Any] | str) -> Startable[Any] | None:
        """What is registered here, for a start: that must be what is passed, by value where a definition is data."""
        found = self._registered(workflow)
        if found is not None and not isinstance(workflow, str) and not is_same(found, workflow):
            raise CallerError(
                f"the workflow that was passed is not the one that is registered as {found.name!r} in version "
                f"{found.version!r}, though it has that name and version: open the engine again with the one you mean, "
                "give it another version=..., or pass the name to run the registered one"
            )
        return found

    def _registered(self, workflow: Startable[Any] | str) -> Startable[Any] | None:
        if isinstance(workflow, str):
            return self._workflows.active(workflow)
        if hasattr(workflow, "encode_input"):
            return self._workflows.exactly(workflow.name, workflow.version)
        if isinstance(workflow, Keyed):  # asked last, because to ask a protocol is slow
            raise CallerError(f"{workflow!r} is {workflow.policy.refuses('start')}")
        raise CallerError(f"{workflow!r} is not a workflow; {no_workflow(workflow)}")

    async def _find(self, workflow: Startable[Any] | str) -> Startable[Any]:
        """A workflow that this client does not have: the engine of the database may."""
        name = workflow if isinstance(workflow, str) else workflow.name
        if isinstance(workflow, str) and (stored := await self._restored(self._connection.queries, name)) is not None:
            return cast(Startable[Any], stored)
        rows = Workflows(await self._connection.queries.workflows())
        row = rows.newest(name)
        if (error := self._workflows.unavailable.get(name)) is not None:
            raise WorkflowUnavailable(name, getattr(error, "problems", ()))
        if row is None or (self._workflows and name not in self._workflows):
            names = {*rows.names(), *self._workflows.names()}
            raise UnknownWorkflow(unknown("workflow", name, names, "register it: perdure.open(url, workflows=[...])"))
        return Named(name, row.parameters) if isinstance(workflow, str) else workflow
