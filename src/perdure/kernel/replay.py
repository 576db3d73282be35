"""Replay: rebuild a machine from recorded entries, and notice when it changed its mind.

Replay only applies: it never opens an effect. What the machine decides now is compared with what it decided then;
a difference is a `Divergence` with both sides and the location, never a silent second run.
"""

from collections.abc import Iterable, Iterator

from perdure.errors import Corrupt, Divergence

from .apply import apply, apply_run
from .batch import JournalRow, SnapshotRow
from .decision import Decision
from .difference import Difference, plainly
from .entry import Entry, decode
from .events import KERNEL_ONLY, Address, CancelAsked, Event, Migrated, Retried, Rewound, Started
from .instance import Instance
from .location import Patterns
from .look_ahead import LookAhead
from .machine import Governed, Machine, Successor, Workflow
from .moment import Moment
from .snapshot import restore


def fold(address: Address, snapshot: SnapshotRow | None, rows: Iterable[JournalRow]) -> Instance:
    """The state of an instance, from its snapshot and the rows after it. Its machine is built when needed."""
    try:
        return _folded(address, snapshot, rows)
    except (LookupError, TypeError, ValueError) as error:  # each row is whole, but one is missing
        raise Corrupt(f"the rows of {address} do not fit together: {error}") from error


def _folded(address: Address, snapshot: SnapshotRow | None, rows: Iterable[JournalRow]) -> Instance:
    instance = restore(snapshot) if snapshot is not None else Instance(address)
    reader = Patterns(instance.patterns.texts())
    tail: list[Entry] = []
    applied = size = 0
    for seq, id, at, body in rows:
        entry = decode(seq, id, at, body, reader)
        size += len(body)
        if not entry.plain:
            apply_run(instance, tail[applied:])
            apply(instance, entry)
            applied = len(tail) + 1
        tail.append(entry)
    apply_run(instance, tail[applied:])
    instance.tail = tail
    instance.tail_size += size
    return instance


def rebuild(instance: Instance, workflow: Workflow) -> Machine:
    """The live machine of a folded instance, by delivering again what was delivered."""
    try:
        return _replayed(instance, workflow)
    except Divergence as error:
        if instance.definition != workflow.version:
            error.advice = f"{_other_version(instance, workflow)}\n{error.advice}".rstrip()
        raise


def _replayed(instance: Instance, workflow: Workflow) -> Machine:
    if not instance.tail:  # it is new, or nothing came after its snapshot
        return workflow.machine(str(instance.address), instance.snapshot_at)
    replay = Replay(instance, workflow)
    try:
        while replay.step():
            pass
    except BaseException:
        replay.machine.dispose()
        raise
    return replay.machine


class Replay:
    """The driver of replay: a machine is told what it was told, and its decisions are compared, step by step.

    `ahead`: the fast path. A machine may take the recorded receipt of a call that it has just asked for, without a
    delivery of its own (`LookAhead.answer`). Otherwise each step is one entry, for those who look at each of them.
    """

    __slots__ = ("_delivered", "_instance", "machine", "recording", "workflow")

    def __init__(self, instance: Instance, workflow: Workflow, *, ahead: bool = True) -> None:
        self._instance = instance
        self.workflow = workflow
        delivered = since_rewind(deliveries(instance.tail or ()))
        begin = instance.snapshot_at
        if delivered and type(delivered[0][1]) is Rewound:
            begin = None
        elif delivered and type(delivered[0][1]) is Migrated:
            begin = delivered.pop(0)[0].decision.begin
        self._delivered = delivered
        self.recording = LookAhead(instance.seed, delivered, ahead=ahead)
        self.machine = workflow.machine(str(instance.address), begin)

    def step(self) -> bool:
        """Deliver the next event; False: there is none. Raises `Divergence`. `recording.entry` is where it stands."""
        delivery = self.recording.take()
        if delivery is None:
            return False
        current = self.machine.deliver(*delivery)
        entry = self.recording.entry
        if self.workflow.differs(entry.decision, current):
            later = tuple([other.decision for other, _ in self._delivered if other.number > entry.number])
            difference = Difference(entry.decision, current, later)
            raise divergence(str(self._instance.address), entry.number, self.workflow, self.machine, difference)
        return True


def heard(event: Event, kept: Event | None) -> Event | None:
    """What a machine gets of an event; None: the kernel decides alone. A retry delivers the event that was `kept`."""
    if kept is not None and type(event) is CancelAsked:
        return None
    delivered = kept if kept is not None and type(event) is Retried else event
    return None if type(delivered) in KERNEL_ONLY else delivered


def deliver_again(
    before: Instance, entry: Entry, event: Event, machine: Machine, workflow: Workflow, *, recorded: Decision | None
) -> tuple[Machine, Decision]:
    """One step of replay: what a machine decides now on the event of an entry, and the machine that goes on.

    `before` is the instance without the entry. After a migration another machine goes on: that of `workflow`. What is
    `recorded` tells a machine that this is a replay.
    """
    seed = event.seed if type(event) is Started else before.seed
    moment = Moment(entry.clock, seed, entry.number, recorded, None, entry.seq, entry.at)
    if type(event) is Migrated:
        return migrated(str(before.address), machine, event, moment, workflow)
    return machine, machine.deliver(event, moment)


def migrated(
    address: str, machine: Machine, event: Migrated, moment: Moment, workflow: Workflow
) -> tuple[Machine, Decision]:
    """The machine of another definition with what this one holds, and the decision that it begins with."""
    if isinstance(workflow, Successor):
        return workflow.take_over(address, machine, event.renamed, moment)
    assert isinstance(workflow, Governed), "only what rules govern is migrated by them"
    made = workflow.migrated(address, machine, event.rules)
    return made, Decision(state=made.digest, begin=made.snapshot() or b"")


def since_rewind(delivered: Iterable[tuple[Entry, Event]]) -> list[tuple[Entry, Event]]:
    """Where an instance was rewound, what was before is in the event; where it was migrated, in the decision."""
    past = list(delivered)
    for place in range(len(past) - 1, -1, -1):
        if type(past[place][1]) is Rewound or type(past[place][1]) is Migrated:
            return past[place:]
    return past


def _other_version(instance: Instance, workflow: Workflow) -> str:
    return (
        f"It started with version {instance.definition}, which is not registered: it was replayed on version "
        f"{workflow.version}. Register version {instance.definition} too, and it goes on with that."
    )


def deliveries(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Event]]:
    """Which event each entry delivered to the machine: kept events count when their retry succeeded."""
    kept: Event | None = None
    for entry in entries:
        event = entry.event
        if entry.plain:
            yield entry, event
            continue
        if entry.decision.stuck is not None and entry.decision.stuck.kept:
            kept = kept if type(event) is Retried and kept is not None else event
            continue
        if type(event) is Retried and kept is not None:
            event, kept = kept, None
        elif type(event) is Rewound or type(event) is Migrated:  # what was kept is gone with the rest
            kept = None
        if type(event) not in KERNEL_ONLY:
            yield entry, event


def divergence(address: str, number: int, workflow: Workflow, machine: Machine, difference: Difference) -> Divergence:
    """The error of a machine that decides otherwise than it did in entry `number`."""
    words, plain = workflow.explain(machine, difference), plainly(difference)
    return Divergence(
        instance=address,
        entry=number,
        recorded=words.recorded or plain.recorded,
        current=words.current or plain.current,
        location=words.location or plain.location,
        source=words.source,
        advice=words.advice,
    )
