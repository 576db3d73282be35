"""States that are values, as callers read them, and what the ruler takes from outside."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from perdure.errors import CallerError, Divergence, UnknownVersion
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.machine import Machine, Workflow
from perdure.kernel.policy import Policy
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rows import StoredInstance
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Filter, Queries, place_of

from .startable import Startable


@runtime_checkable
class Keyed(Protocol):
    """What an author made that is no workflow itself: `workflow` names the one that the kernel runs."""

    @property
    def workflow(self) -> str: ...

    @property
    def policy(self) -> Policy: ...

    def definition(self) -> Any: ...


@runtime_checkable
class Stateful(Workflow, Protocol):
    """A workflow whose state is a value, which callers may read."""

    def read_state(self, machine: Machine) -> Any: ...


async def is_known(queries: Queries, workflows: Workflows[Any], name: str) -> bool:
    """Whether this process or the database has a workflow of a name."""
    return name in workflows or Workflows(await queries.workflows()).newest(name) is not None


def version_in(record: StoredInstance) -> str:
    """The version that an instance runs on by its record, which may end before a migration."""
    return fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows).definition


@runtime_checkable
class Receives(Workflow, Protocol):
    """A workflow whose instances keep messages until they receive them."""

    def unread(self, machine: Machine) -> list[tuple[str, Any]]:
        """The name and the body of each message that was not received yet, the oldest first."""
        ...


@runtime_checkable
class Answerable(Workflow, Protocol):
    """A workflow that knows which answers of a person fit the places where its instances are stuck."""

    def refuse_answer(self, machine: Machine, location: str, answer: Any) -> None:
        """Raise why the answer, as plain data, does not fit the location."""
        ...


async def record_now(queries: Queries, ref: Address | int) -> StoredInstance | None:
    """What is known of an instance, with its past also if it has ended: some workflows keep their state."""
    record = await queries.record(ref)
    if record is None or record.rows or record.snapshot is not None:
        return record
    rows = await queries.history(record.head.id)
    whole = rows and rows[0].seq == record.head.id  # a restored database may have the end alone
    return StoredInstance(record.head, None, tuple(rows)) if whole else record


async def record_at(queries: Queries, address: Address, at: int) -> StoredInstance | None:
    """What was known of an instance when the journal ended with an entry: of the generation that there was."""
    head = await _generation_at(queries, address, at)
    if head is None:
        return None
    record = await queries.record(head.id)
    if record is None or record.snapshot is None or record.snapshot.seq > at:
        rows = await queries.history(head.id)
        if not rows or rows[0].seq != head.id:
            text = f"at={at}: this database was restored, and has nothing from then of {address}"
            raise CallerError(f"{text}; ask the one that it was restored from")
        record = StoredInstance(head, None, tuple(rows))
    return StoredInstance(head, record.snapshot, tuple([row for row in record.rows if row.seq <= at]))


async def _generation_at(queries: Queries, address: Address, at: int) -> HeadRow | None:
    """The last generation of a name that had begun by an entry: the id of an instance is that of its first entry."""
    before = None
    while heads := await queries.heads(Filter(address.workflow, key=address.key, before=before)):
        for head in heads:
            if head.id <= at:
                return head
        before = place_of(heads[-1])
    return None


@runtime_checkable
class Drawable(Workflow, Protocol):
    """A workflow whose instances can be drawn."""

    def draw_instance(self, machine: Machine, format: str, direction: str) -> str: ...


def draw_instance(
    workflows: Workflows[Startable[Any]], record: StoredInstance | None, format: str, direction: str
) -> str:
    """An instance as a picture, by its record."""
    if record is None:
        raise CallerError("there is nothing to draw: no engine has taken it up yet")
    head = record.head
    instance = fold(Address(head.workflow, head.key), record.snapshot, record.rows)
    workflow = workflows.of(head.workflow, instance.definition)
    if workflow is not None and hasattr(workflow, "draw_entries"):
        return str(workflow.draw_entries(instance.address, instance.tail or (), format, direction))
    if workflow is None or not isinstance(workflow, Drawable):
        raise CallerError(f"{instance.address} cannot be drawn here: register its workflow, if that can be drawn")
    machine = rebuild(instance, workflow)
    try:
        return workflow.draw_instance(machine, format, direction)
    finally:
        machine.dispose()


def read_unread(workflow: Receives, record: StoredInstance) -> list[tuple[str, Any]]:
    """The messages that an instance has recorded and not received."""
    instance = fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows)
    if instance.ended:
        return []
    machine = rebuild(instance, workflow)
    try:
        return workflow.unread(machine)
    finally:
        machine.dispose()


def check_answer(
    workflows: Workflows[Startable[Any]], record: StoredInstance | None, location: str, answer: Any
) -> None:
    """Raise why a person's answer does not fit the place where an instance is stuck, if its code is here to tell."""
    if record is None:
        return
    instance = fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows)
    workflow = workflows.of(record.head.workflow, instance.definition)
    if not isinstance(workflow, Answerable):
        return
    try:
        machine = rebuild(instance, workflow)
    except Divergence:  # the code here is other code than that of the instance
        return
    try:
        workflow.refuse_answer(machine, location, answer)
    finally:
        machine.dispose()


def read_state(workflows: Workflows[Startable[Any]], record: StoredInstance | None) -> Any:
    """The state that an instance is in by its record; None: there is none."""
    if record is None or (not record.rows and record.snapshot is None):
        return None
    head = record.head
    instance = fold(Address(head.workflow, head.key), record.snapshot, record.rows)
    workflow = workflows.exactly(head.workflow, instance.definition)
    if instance.ended and not getattr(workflow, "keeps_state", False):
        return None
    if workflow is None:
        known = ", ".join(workflows.versions(head.workflow)) or "none"
        raise UnknownVersion(
            f"the state of {instance.address} can be read with its code, version {instance.definition}; "
            f"here is {known}: register it, workflows=[...]"
        )
    if not isinstance(workflow, Stateful):
        raise CallerError(f"{instance.address} has a history, and no state to read: its state is no value")
    machine = rebuild(instance, workflow)
    try:
        return workflow.read_state(machine)
    finally:
        machine.dispose()
