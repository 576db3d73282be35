"""Cache of loaded instances of a shard, with the events queued for instances still loading.

An instance comes in when it is loaded or when it starts, and goes when it has ended, when there are too many, or when
their states are too large. What is offered to one that is away waits, and `wanted` names it. Only what is durable may
go. The cache decides and records nothing, and gives no turns: the kernel does.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from perdure.errors import Corrupt

from . import snapshot
from .batch import Batch, HeadRow, SnapshotRow
from .effects import Call
from .events import Address, Parent, Ref
from .instance import Instance
from .mailbox import Offer
from .replay import fold
from .retention import FORGOTTEN
from .rows import Loaded, decode_outcome
from .slots import Slots
from .status import FINAL, Status

SPILL_MAX: Final = 16 * 1024 * 1024
"""Bytes of states that one batch takes along from instances that are dropped from memory."""

SMALL: Final = 4096
"""A state of so many bytes is always worth its writing when its instance goes to sleep: to wake it by calling its
reducer again costs more than to read it. A larger one is written when what came since the last time is as large."""


class InstanceCache:
    def __init__(self, slots: Slots, counts: Counter[str]) -> None:
        self.wanted: dict[Ref, None] = {}
        self.weight = 0  # bytes of state in memory, of machines whose state is a value
        self.forgotten_seq = 0  # the last entry of anything dropped from memory: what was read before it is old
        self._by_id: OrderedDict[int, Instance] = OrderedDict()  # least recently used first
        self._by_address: dict[Address, Instance] = {}
        self._absent: dict[Ref, list[Offer]] = {}
        self._arrivals = 0
        self._slots = slots
        self._counts = counts

    # ---- who is here --------------------------------------------------------------------------------------------

    def find(self, ref: Ref) -> Instance | None:
        """An instance that is asked for: it counts as used."""
        if type(ref) is int:
            instance = self._by_id.get(ref)
            if instance is not None:
                self._by_id.move_to_end(ref)
            return instance
        instance = self._by_address.get(ref)  # type: ignore[arg-type]
        if instance is not None and instance.id in self._by_id:
            self._by_id.move_to_end(instance.id)
        return instance

    def get(self, id: int) -> Instance | None:
        """The same by its id, only looked at."""
        return self._by_id.get(id)

    def instances(self) -> Mapping[int, Instance]:
        """By id; the least recently used first."""
        return self._by_id

    def undelivered(self, ready: Iterable[Instance]) -> Iterator[Offer]:
        """Offers that are in memory only or not yet recorded. `ready`: those who have a turn; not all have a name."""
        for instance in self._by_id.values():
            yield from instance.mailbox
        for instance in self._by_address.values():
            if instance.id == 0:
                yield from instance.mailbox
        for instance in ready:
            if instance.id == 0 and self._by_address.get(instance.address) is not instance:
                yield from instance.mailbox  # of an id that no instance has
        for offers in self._absent.values():
            yield from offers

    # ---- coming in ----------------------------------------------------------------------------------------------

    def want(self, offer: Offer) -> None:
        """Its instance is not here: the offer waits, and the instance has to be loaded."""
        self._wait(offer.to, offer)
        self.wanted[offer.to] = None

    def _wait(self, ref: Ref, offer: Offer) -> None:
        self._arrivals += 1
        offer.number = self._arrivals
        self._absent.setdefault(ref, []).append(offer)

    def adopt(self, ref: Ref, record: Loaded | None) -> Instance:
        """Take in what the store knows of `ref`; what waited for it is in its mailbox. Raises if it cannot be read."""
        self.wanted.pop(ref, None)
        instance = self.find(ref)
        if instance is None:
            instance = self.enter(ref, record)
        offers = self._absent.pop(ref, [])
        if instance.id:
            offers += self._absent.pop(instance.id, [])
        if self._by_address.get(instance.address) is instance:
            offers += self._absent.pop(instance.address, [])
        offers.sort(key=_by_arrival)
        instance.mailbox.extend(offers)
        return instance

    def give_up(self, ref: Ref) -> list[Offer]:
        """What waited for an instance that cannot be read."""
        self.wanted.pop(ref, None)
        return self._absent.pop(ref, [])

    def enter(self, ref: Ref, record: Loaded | None) -> Instance:
        """What the store knows of `ref`, or one that is not started yet."""
        if record is None:
            instance = Instance(ref if isinstance(ref, Address) else Address("", ""))
            if isinstance(ref, Address):
                self._by_address[ref] = instance
            return instance
        id = record.instance if isinstance(record, SnapshotRow) else record.head.id
        instance = self._by_id.get(id) or self._revive(record)
        self._by_id[instance.id] = instance
        if isinstance(ref, Address) or not instance.ended:  # else a later generation may bear the name
            self._name(instance)
        return instance

    def _revive(self, record: Loaded) -> Instance:
        if isinstance(record, SnapshotRow):
            instance = snapshot.restore(record)
        elif record.head.status in FINAL or record.head.reason == FORGOTTEN:
            return _ended(record.head)
        else:
            instance = fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows)
            if not instance.version:
                raise Corrupt(f"there are no entries of {instance.address}")
        instance.woken = instance.made
        for intent in instance.open.values():
            if type(intent.effect) is Call and not intent.held and not self._slots.is_away(intent.effect):
                self._slots.found(intent.id)
        return instance

    def _name(self, instance: Instance) -> None:
        """A name means the last generation."""
        current = self._by_address.get(instance.address)
        if current is None or current.generation <= instance.generation or current.id == 0:
            self._by_address[instance.address] = instance

    def next_generation(self, before: Instance) -> Instance:
        """Another instance under the same name. What names the earlier one by its id stays with that."""
        instance = self._by_address[before.address] = Instance(before.address)
        mailbox, before.mailbox = before.mailbox, deque()
        for offer in mailbox:
            (before if isinstance(offer.to, int) else instance).mailbox.append(offer)
        return instance

    def started(self, instance: Instance) -> None:
        """Its first entry is being written: from now on it has an id."""
        self._by_id[instance.id] = instance
        self._by_address[instance.address] = instance

    def weigh(self, instance: Instance) -> None:
        weight: int = getattr(instance.machine, "size", 0)  # one that does not say counts as nothing
        self.weight += weight - instance.weight
        instance.weight = weight

    # ---- going --------------------------------------------------------------------------------------------------

    def let_go(self, unstarted: Instance) -> None:
        """Nothing has this name. What still waits for it may start it: until then it must be found."""
        if not unstarted.mailbox:
            self._by_address.pop(unstarted.address, None)

    def forget(self, instance: Instance) -> None:
        """Drop an instance from memory; what waits in its mailbox waits for it to be loaded again."""
        self.weight -= instance.weight
        instance.weight = 0
        self.forgotten_seq = max(self.forgotten_seq, instance.seq)
        self._by_id.pop(instance.id, None)
        if self._by_address.get(instance.address) is instance:
            del self._by_address[instance.address]
        if instance.machine is not None:
            instance.machine.dispose()
        if instance.mailbox or instance.shelf:
            for offer in [*instance.shelf, *instance.mailbox]:
                self._wait(instance.id, offer)
            if instance.mailbox:
                self.wanted[instance.id] = None
            instance.mailbox.clear()
            instance.shelf.clear()

    def evict(self, keep: int, durable_seq: int, batch: Batch) -> int:
        """Drop the least recently used instances above `keep`. Only durable, idle ones may go.

        One whose state is a value leaves it in the batch: it is woken by one read. One whose call is running will soon
        be asked again, and would have to be rebuilt: it stays, up to four times `keep`.
        """
        surplus = len(self._by_id) - keep
        if surplus <= 0:
            return 0
        also_running = len(self._by_id) > 4 * keep
        idle = (
            instance
            for instance in self._by_id.values()
            if instance.seq <= durable_seq
            and (also_running or not instance.calls)
            and not instance.mailbox
            and not instance.shelf
        )
        gone = [instance for instance, _ in zip(idle, range(surplus), strict=False)]
        written = 0
        for instance in gone:
            if (
                instance.weight
                and written < SPILL_MAX
                and (instance.weight <= SMALL or instance.tail_size >= instance.weight)
            ):
                written += _leave_snapshot(instance, batch)
            self.forget(instance)
        return len(gone)

    def relieve(self, budget: int, durable_seq: int, batch: Batch) -> int:
        """Above a budget of bytes, drop the least recently used states until three quarters of it are left.

        Each leaves a snapshot in the batch, unless it has one: a large state is dear to rebuild from many entries.
        Those whose calls are running go last. What one batch should not carry is dropped after the next one.
        """
        if self.weight <= budget:
            return 0
        idle = [
            instance
            for instance in self._by_id.values()
            if instance.weight and instance.seq <= durable_seq and not instance.mailbox and not instance.shelf
        ]
        gone = written = 0
        for instance in sorted(idle, key=_is_calling):
            if self.weight <= budget * 3 // 4 or written > SPILL_MAX:
                break
            written += _leave_snapshot(instance, batch)
            self.forget(instance)
            gone += 1
        self._counts["spilled"] += gone
        return gone

    def dispose(self) -> None:
        """This memory is dropped: let go of every machine."""
        for instance in self._by_id.values():
            if instance.machine is not None:
                instance.machine.dispose()


def _ended(head: HeadRow) -> Instance:
    """One that has ended for good: of its past nothing is needed."""
    instance = Instance(Address(head.workflow, head.key))
    instance.id, instance.generation, instance.input_hash = head.id, head.generation, head.input_hash
    instance.parent = Parent(head.parent, b"") if head.parent else None
    instance.status = Status(head.status)
    instance.outcome = decode_outcome(head.outcome) if head.outcome is not None else None
    return instance


def _leave_snapshot(instance: Instance, batch: Batch) -> int:
    """Write the state of an instance that goes, unless it stands there already. The answer is its size."""
    if not instance.tail_size or instance.halted or instance.machine is None or instance.ended:
        return 0
    row = snapshot.take(instance)
    assert row is not None, "a state that is a value can be written"
    batch.snapshots[instance.id] = row
    return len(row.body)


def _is_calling(instance: Instance) -> bool:
    return instance.calls > 0


def _by_arrival(offer: Offer) -> int:
    return offer.number
