"""The replay of a whole world: rows go in, in the journal's order, and out comes what the world is by the last of them.

Every cell lives through its entries again, by the definition of each stretch, and must decide what it decided then.
Effects are not performed and nothing is routed: what an entry led to stands in later entries. `WorldReplay.snapshot`
is the world snapshot at the last entry that was taken; it costs as much as has changed since the one that the replay
began from.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from perdure.codec import decode as decode_value
from perdure.errors import Corrupt, Divergence, UnknownVersion
from perdure.kernel.apply import apply
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.decision import Decision
from perdure.kernel.difference import Difference
from perdure.kernel.entry import Entry as JournalEntry
from perdure.kernel.entry import decode
from perdure.kernel.events import Address, Event, Migrated, Rewound, Started
from perdure.kernel.instance import Instance
from perdure.kernel.location import Patterns
from perdure.kernel.machine import Machine, Workflow
from perdure.kernel.replay import deliver_again, divergence, fold, heard, rebuild
from perdure.kernel.rows import before, has_new_head, head_row, response_name
from perdure.kernel.rules import IN_FORCE, RULER, decode_rules
from perdure.kernel.snapshot import write
from perdure.kernel.status import FINAL, TERMINAL
from perdure.kernel.workflows import Workflows

from .bound_manifest import Definition
from .index import Blobs, CellIndex, Entry
from .machine import CellMachine, join, split
from .snapshot import (
    GENESIS,
    SEGMENT,
    Kept,
    WorldSnapshot,
    cell_key,
    found,
    instance_key,
    named_blobs,
    published_key,
    read_kept,
    segment,
    segment_key,
    stored_values,
    write_rows,
)
from .world import WorldMachine, WorldWorkflow

LIVES_MAX: Final = 20_000
"""How many instances are in memory. When there are more, what changed is written, and all of them are let go."""


class Parted(Exception):
    """The code decides otherwise than it did. `recorded` is the digest of the state then, `state` the state now."""

    def __init__(self, address: Address, seq: int, error: Divergence, recorded: bytes, state: bytes) -> None:
        super().__init__(str(error))
        self.address = address
        self.seq = seq
        self.error = error
        self.recorded = recorded
        self.state = state


class WorldReplay:
    """`workflows` is the code. Cells must have theirs; other instances are replayed if they have."""

    def __init__(
        self,
        blobs: Blobs,
        workflows: Workflows[Workflow],
        base: WorldSnapshot = GENESIS,
        *,
        lives_max: int = LIVES_MAX,
    ) -> None:
        self._blobs = blobs
        self._workflows = workflows
        self._lives_max = lives_max
        self.seq, self.at = base.seq, base.at
        self.entries = 0
        self.unread: set[str] = set()  # workflows that are no cells and have no code here
        self._open = base.open
        self._cells = {workflow: CellIndex(blobs, root) for workflow, root in base.cells.items()}
        self._instances = CellIndex(blobs, base.instances)
        self._histories = CellIndex(blobs, base.histories)
        self._published = CellIndex(blobs, base.published)
        self._named = CellIndex(blobs, base.blobs)
        self._new_published: dict[bytes, Entry] = {}
        self._new_named: dict[bytes, Entry] = {}
        self._lives: dict[int, Life] = {}
        self._changed: dict[int, Life] = {}
        self._world = base.world
        self._governed: frozenset[str] = frozenset()
        if self._world:
            self._govern(self._load(self._world))

    # ---- in ------------------------------------------------------------------------------------------------------

    def take(self, row: JournalRow) -> None:
        """The next row. Raises `Parted` where the code decides otherwise, `UnknownVersion` where there is none."""
        if row.seq <= self.seq:
            raise Corrupt(f"entry {row.seq} stands after entry {self.seq}")
        life = self._lives.get(row.instance) or self._load(row.instance, row)
        entry = life.take(row)
        self._changed[row.instance] = life
        self.seq, self.at = row.seq, row.at
        self.entries += 1
        self._note(life, entry)
        if len(self._lives) > self._lives_max:
            self._write()
            self.close()

    def _note(self, life: Life, entry: JournalEntry) -> None:
        for message, value in entry.decision.respond:
            self._publish(life.instance.id, response_name(message), value)
        for name, value in entry.decision.publish:
            self._publish(life.instance.id, name, value)
            if name == IN_FORCE and life.instance.address == RULER:
                self._govern(life)
        for digest in named_blobs(entry) if life.kind == "cell" else stored_values(entry.event):
            self._new_named[digest] = Entry(digest, 0, 0)

    def _publish(self, id: int, name: str, value: bytes) -> None:
        digest = self._blobs.put(value)
        self._new_published[published_key(id, name)] = Entry(digest, len(value), self.at)

    def _govern(self, life: Life) -> None:
        self._world = life.instance.id
        self._governed = frozenset(decode_rules(life.instance.published.get(IN_FORCE)).versions)

    def _load(self, id: int, first: JournalRow | None = None) -> Life:
        entry = self._instances.get(instance_key(id))
        if entry is not None:
            life = self._revived(read_kept(self._blobs, entry.state))
        elif first is not None:
            life = self._begun(first)
        else:
            raise Corrupt(f"the world's instance {id} is not in its snapshot")
        self._lives[id] = life
        return life

    def _begun(self, row: JournalRow) -> Life:
        event = decode(row.seq, row.instance, row.at, row.body, Patterns()).event
        if type(event) is not Started:
            raise Corrupt(f"instance {row.instance} begins with {type(event).__name__} in entry {row.seq}")
        address = Address(event.workflow, event.key)
        life = Life(Instance(address), self._kind(address), self._workflows)
        self._check_code(life)
        return life

    def _revived(self, kept: Kept) -> Life:
        address = Address(kept.head.workflow, kept.head.key)
        kind = "other" if kept.segments is not None else "world" if address == RULER else "cell"
        life = Life(kept.instance(), kind, self._workflows)
        life.head, life.open_before = kept.head, len(life.instance.open)
        if kind == "other":
            life.segments = kept.segments or 0
            if life.workflow is not None:
                rows = kept.history(self._blobs, self._histories)
                life.machine = rebuild(fold(address, None, rows), life.workflow)
            if life.segments:  # the last one may have room
                last = segment(self._blobs, self._histories, kept.head.id, life.segments - 1)
                if len(last) < SEGMENT:
                    life.rows = last
                    life.segments -= 1
        elif kept.state:
            life.saved = join(found(self._blobs, kept.state, "state"), life.instance.snapshot_at or b"")
        else:
            life.saved = life.instance.snapshot_at
        self._check_code(life)
        return life

    def _kind(self, address: Address) -> str:
        if address == RULER:
            return "world"
        return "cell" if address.workflow in self._governed else "other"

    def _check_code(self, life: Life) -> None:
        if life.kind == "other" and life.workflow is None:
            self.unread.add(life.instance.address.workflow)

    def address(self, row: JournalRow) -> str:
        """The name of an instance whose row was given to `take`."""
        life = self._lives.get(row.instance)
        return "" if life is None else str(life.instance.address)

    # ---- out -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> WorldSnapshot:
        """What the world is by the last entry that was taken. All that it names is in the blobs, except itself."""
        self._write()
        world = (self._lives.get(self._world) or self._load(self._world)) if self._world else None
        governance, manifest = b"", ""
        if world is not None:
            machine = world.live()
            assert isinstance(machine, WorldMachine)
            governance = self._blobs.put(machine.state)
            manifest = decode_rules(world.instance.published.get(IN_FORCE)).hash
        return WorldSnapshot(
            self.seq,
            self.at,
            self._world,
            manifest,
            governance,
            self._open,
            {workflow: index.root for workflow, index in self._cells.items() if index.count()},
            self._instances.root,
            self._histories.root,
            self._published.root,
            self._named.root,
        )

    def state(self, workflow: str, key: str) -> bytes | None:
        """The state of a cell, as of the last `snapshot`."""
        index = self._cells.get(workflow)
        entry = None if index is None else index.get(cell_key(key))
        return None if entry is None else found(self._blobs, entry.state, "state")

    def _write(self) -> None:
        """Bring all indexes up to date."""
        cells: dict[str, dict[bytes, Entry | None]] = {}
        instances: dict[bytes, Entry | None] = {}
        histories: dict[bytes, Entry | None] = {}
        for id, life in sorted(self._changed.items()):  # of two generations the later one counts
            kept = self._kept(life, cells, histories)
            body = kept.encode()
            instances[instance_key(id)] = Entry(self._blobs.put(body), len(body), life.at)
            self._open += len(life.instance.open) - life.open_before
            life.open_before = len(life.instance.open)
        self._instances = self._instances.update(instances.items())
        self._histories = self._histories.update(histories.items())
        for workflow, changes in cells.items():
            index = self._cells.get(workflow) or CellIndex(self._blobs)
            self._cells[workflow] = index.update(changes.items())
        self._published = self._published.update(self._new_published.items())
        self._named = self._named.update(self._new_named.items())
        self._new_published, self._new_named, self._changed = {}, {}, {}

    def _kept(
        self, life: Life, cells: dict[str, dict[bytes, Entry | None]], histories: dict[bytes, Entry | None]
    ) -> Kept:
        instance, head = life.instance, life.head
        assert head is not None, "the first entry of an instance writes its head"
        if life.kind == "other":
            return self._kept_history(life, head, histories)
        address = instance.address
        state = b""
        if life.kind == "cell":
            machine = life.live()
            assert isinstance(machine, CellMachine)
            state = machine.state if instance.status not in TERMINAL else b""
            entry = Entry(self._blobs.put(state), len(state), life.at) if state else None
            cells.setdefault(address.workflow, {})[cell_key(address.key)] = entry
        if instance.status in FINAL:
            return Kept(head, instance.seq)
        saved = life.live().snapshot() or b""
        if not state:
            return Kept(head, instance.seq, write(instance, saved))
        state, rest = split(saved)
        return Kept(head, instance.seq, write(instance, rest), sha256(state).digest())

    def _kept_history(self, life: Life, head: HeadRow, histories: dict[bytes, Entry | None]) -> Kept:
        id, final = life.instance.id, life.instance.status in FINAL
        while len(life.rows) >= SEGMENT:
            part, life.rows = life.rows[:SEGMENT], life.rows[SEGMENT:]
            histories[segment_key(id, life.segments)] = self._segment(part)
            life.segments += 1
        segments = life.segments + bool(life.rows)
        if life.rows:
            histories[segment_key(id, life.segments)] = self._segment(life.rows)
        if final:
            histories.update({segment_key(id, number): None for number in range(segments)})
            return Kept(head, life.instance.seq)
        return Kept(head, life.instance.seq, write(life.instance, b""), b"", segments)

    def _segment(self, rows: list[JournalRow]) -> Entry:
        body = write_rows(rows)
        return Entry(self._blobs.put(body), len(body), rows[-1].at)

    def close(self) -> None:
        """Let go of every machine. What has been written stays."""
        for life in self._lives.values():
            life.dispose()
        self._lives = {}


class Life:
    """One instance, on its way through its entries: a step of replay for each, as the journal has them."""

    def __init__(self, instance: Instance, kind: str, workflows: Workflows[Workflow]) -> None:
        self.instance = instance
        self.kind = kind  # "cell", "world", "other"
        self.head: HeadRow | None = None
        self.at = 0
        self.open_before = 0  # intents that the index counts already
        self.machine: Machine | None = None
        self.saved: bytes | None = None  # what the machine begins with
        self.rows: list[JournalRow] = []  # of an instance that is no cell: those of the last segment
        self.segments = 0  # that are complete
        self._workflows = workflows
        self._reader = Patterns(instance.patterns.texts())

    @property
    def workflow(self) -> Workflow | None:
        name, version = self.instance.address.workflow, self.instance.definition
        return self._workflows.exactly(name, version) if self.kind != "other" else self._workflows.of(name, version)

    def dispose(self) -> None:
        if self.machine is not None:
            self.machine.dispose()
        self.machine = None

    def live(self) -> Machine:
        if self.machine is None:
            self.machine = self._code().machine(str(self.instance.address), self.saved)
        return self.machine

    def take(self, row: JournalRow) -> JournalEntry:
        entry = decode(row.seq, row.instance, row.at, row.body, self._reader)
        if type(entry.event) is Started and not self.instance.definition:
            self.instance.definition = entry.event.version  # `apply` will say the same
        if self.kind != "other":
            self._deliver(entry)
        else:
            self.rows.append(row)
            if self.workflow is not None:
                self._deliver(entry)
        had = before(self.instance, entry)
        apply(self.instance, entry)
        if has_new_head(self.instance, entry, had):
            self.head = head_row(self.instance, entry.at)
        self.at = row.at
        if self.kind == "other" and self.instance.ended:
            self.dispose()  # retried, it begins again
        return entry

    def _code(self) -> Workflow:
        workflow = self.workflow
        if workflow is None:
            address, version = self.instance.address, self.instance.definition
            text = f"{address} runs on version {version} of {address.workflow}, which is not registered here"
            raise UnknownVersion(f"{text}; without that code nobody can say what its state is")
        return workflow

    def _deliver(self, entry: JournalEntry) -> None:
        """Let the machine hear what it heard, and compare. What raised then was not delivered, and is not now."""
        event, decision, instance = entry.event, entry.decision, self.instance
        if decision.stuck is not None and decision.stuck.kept:
            return
        delivered = heard(event, instance.kept)
        if delivered is None:
            return
        workflow = self._code()
        try:
            current = self._decided(delivered, entry)
        except UnknownVersion:
            raise
        except Exception as error:
            told = f"an error: {type(error).__name__}: {error}"
            raise self._parted(entry, Divergence(str(instance.address), entry.number, "a decision", told)) from error
        if workflow.differs(decision, current):
            difference = Difference(decision, current)
            raise self._parted(
                entry, divergence(str(instance.address), entry.number, workflow, self.live(), difference)
            )

    def _decided(self, event: Event, entry: JournalEntry) -> Decision:
        if type(event) is Rewound:
            self.dispose()
            self.saved = None
        machine = self.live()
        if type(event) is Migrated:
            self.instance.definition = event.version  # `apply` will say the same
        self.machine, current = deliver_again(
            self.instance, entry, event, machine, self._code(), recorded=entry.decision
        )
        return current

    def _parted(self, entry: JournalEntry, error: Divergence) -> Parted:
        state = self.machine.state if isinstance(self.machine, CellMachine) else b""
        return Parted(self.instance.address, entry.seq, error, entry.decision.state, state)


def as_json(workflows: Workflows[Any], address: Address, version: str, state: bytes) -> Any:
    """A state for people: JSON by its schema, if the definition is known."""
    definition = workflows.exactly(address.workflow, version)
    plain = decode_value(state)
    return definition.state.to_json(plain) if isinstance(definition, Definition) else plain


def value_workflows(workflows: Workflows[Any]) -> Workflows[Workflow]:
    """Those whose instances have a value as their state: all that a snapshot needs the code of."""
    found: list[Workflow] = [each for each in workflows if isinstance(each, Definition | WorldWorkflow)]
    if WorldWorkflow.name not in workflows:
        found.append(WorldWorkflow())
    return Workflows(found)
