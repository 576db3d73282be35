"""Shadow runs: what a manifest would do to the world as it is now. On a copy, in virtual time, without any effect.

The copy has every cell and everything that waits in a mailbox. The manifest is applied there, what is under way goes
on, and time passes up to a horizon. Effects are noted and never performed; they are answered only as far as the caller
has said how, or from what was recorded for the very same parameters. What would follow from other answers is not
predicted.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from perdure.cells.bound_manifest import Definition
from perdure.cells.machine import EXECUTOR, CellMachine
from perdure.cells.manifest import Manifest
from perdure.cells.policy import APPLY
from perdure.codec import decode, encode
from perdure.codec.schema import parse_name
from perdure.errors import PerdureError
from perdure.kernel.batch import HeadRow, InboxRow, Publication
from perdure.kernel.decision import Outcome, Stuck
from perdure.kernel.effects import Call, Effect, Wait
from perdure.kernel.entry import Entry
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Address, Message, Migrated, ReceiptArrived
from perdure.kernel.instance import Instance
from perdure.kernel.location import NoLocations, Patterns
from perdure.kernel.machine import Workflow
from perdure.kernel.outside import outside_of
from perdure.kernel.problem import Report as ProblemReport
from perdure.kernel.receipt import Answerer, Receipt, failure_of
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rows import inbox_row
from perdure.kernel.rules import RULER
from perdure.kernel.snapshot import restore
from perdure.kernel.status import TERMINAL
from perdure.kernel.workflows import Workflows
from perdure.ports.executor import Answered, Framed
from perdure.ports.frame import Frame
from perdure.ports.store import Position
from perdure.runtime.shard import Shard
from perdure.runtime.virtual_clock import VirtualClock
from perdure.stores.memory import MemoryDatabase, MemoryStore

ENTRIES_MAX: Final = 100_000
"""How many a run makes at most: cells may answer each other for ever."""

SHOWN: Final = 100
"""How many of each kind a report names; it counts all of them."""

CAVEAT: Final = "No effect was executed. What would follow from answers that the run did not have is not predicted."


class ShadowReport(msgspec.Struct, frozen=True):
    """What a shadow run found. `failures` stand against the manifest; the rest is for the person who approves it."""

    failures: list[str]
    entries: int
    effects: dict[str, int]  # asked for during the run, by name
    first_effects: list[dict[str, Any]]
    open: dict[str, int]  # effects without an answer at the end, by name
    statuses: dict[str, int]  # by cell, definition and status
    allowlists: dict[str, dict[str, list[str]]]  # declared effects that come and go, by cell
    changed: int  # how many cells have another state than before
    states: list[dict[str, Any]]  # the first of them, before and after
    horizon: int
    mode: str
    caveat: str = CAVEAT


class Shadow:
    """One run. `receipts`: how effects are answered, by the name of the effect; `recorded`: as they were before."""

    def __init__(
        self,
        database: MemoryDatabase,
        workflows: Iterable[Workflow],
        *,
        now: int,
        receipts: Mapping[str, Receipt],
        recorded: bool,
    ) -> None:
        self._database = database
        self._workflows: Workflows[Workflow] = Workflows(workflows)
        self._before = len(database.journal)
        self._begun = dict(database.snapshots)  # of a restored database: what is not in the journal
        self._read = self._before  # up to where the journal was looked through for what is asked outside
        self._states: dict[int, Any] = {}
        self._asked: list[tuple[int, bytes, Effect]] = []  # what is open now: it is not performed here
        for id, instance in self._living():
            self._states[id] = self._state(instance)
            self._asked += [(id, intent.id, intent.effect) for intent in instance.open.values()]
        self._answers = Answers(receipts, self._recorded() if recorded else ())
        self._clock = VirtualClock(random.Random(0))  # dice that decide nothing but ids
        self._clock.jump(now - self._clock.now())
        executors = [ShadowExecutor(name, self._answers) for name in ("inline", "thread", "process", EXECUTOR)]
        self._shard = Shard(
            ShadowStore(database), self._clock, executors, self._workflows, owner="shadow", listener=Silence()
        )

    def run(self, before: Manifest, after: Manifest, mode: str, horizon: int) -> ShadowReport:
        self._post_apply(after, mode)
        self._shard.open(_raised)
        self._settle()
        failures = [*self._apply_failures(), *self._without_code()]
        self._answer(self._asked)
        for id, head in list(self._database.heads.items()):
            if self._shard.kernel.router.rules.outdated(head.workflow, head.version) and head.status not in TERMINAL:
                self._shard.offer(id, Migrated())
        self._settle()
        until = self._clock.steady + horizon
        while (when := self._next()) is not None and when <= until and not self._enough:
            self._clock.skip(when)
            self._settle()
        if self._enough:
            failures.append(f"the run was cut after {ENTRIES_MAX:,} entries: it does not come to rest (endless)")
        return self._report(before, after, failures, horizon, mode)

    # ---- the run -------------------------------------------------------------------------------------------------

    def _post_apply(self, manifest: Manifest, mode: str) -> None:
        """In front of all that waits: mailboxes are as of now, and what is in them meets the new manifest."""
        message = Message(APPLY, encode({"manifest": manifest.bytes, "mode": mode}), "shadow")
        row = inbox_row(b"shadow", RULER, message, self._clock.now())
        self._database.inbox = {row.id: (0, row), **self._database.inbox}
        self._database.inbox = {
            id: (place, found) for place, (id, (_, found)) in enumerate(self._database.inbox.items(), 1)
        }
        self._database.inbox_places = len(self._database.inbox)

    def _settle(self) -> None:
        going_on = True
        while going_on:
            while not self._enough and self._clock.step(self._clock.steady):
                pass
            going_on = not self._enough and self._answer(self._asked_outside())

    def _answer(self, asked: Iterable[tuple[int, bytes, Effect]]) -> bool:
        """Tell cells the answers that are known to what no executor of this run is asked for; False: there are none."""
        answered = [(id, intent, receipt) for id, intent, effect in asked if (receipt := self._answers.to(effect))]
        for id, intent, receipt in answered:
            self._shard.offer(id, ReceiptArrived(intent, receipt))
        return bool(answered)

    def _asked_outside(self) -> Iterable[tuple[int, bytes, Effect]]:
        """The effects that cells have asked for outside since the last look."""
        rows, self._read = self._database.journal[self._read :], len(self._database.journal)
        for row in rows:
            decision = decode_entry(*row, NoLocations()).decision
            for intent, effect in zip(decision.ids, decision.open, strict=False):
                if type(effect) is Wait:
                    yield row[1], intent, effect

    @property
    def _enough(self) -> bool:
        return len(self._database.journal) - self._before > ENTRIES_MAX

    def _next(self) -> int | None:
        """When something will happen by itself; a look into the inbox finds nothing here."""
        times = [self._clock.next([self._shard.looking])]
        order, now = self._database.work_order, self._clock.now()
        coming = bisect_right(order, now, key=itemgetter(0))  # what is overdue still is that of a stuck cell
        if coming < len(order):
            times.append(self._clock.steady + order[coming][0] - now)
        return min((when for when in times if when is not None), default=None)

    def _recorded(self) -> Iterable[tuple[Effect, Receipt]]:
        """The effects that there were, and their answers."""
        asked: dict[bytes, Effect] = {}
        for _, entry in self._journal():
            for id, effect in zip(entry.decision.ids, entry.decision.open, strict=False):
                if _named(effect):
                    asked[id] = effect
            if isinstance(entry.event, ReceiptArrived) and entry.event.intent in asked:
                yield asked.pop(entry.event.intent), entry.event.receipt

    # ---- what it found -------------------------------------------------------------------------------------------

    def _apply_failures(self) -> list[str]:
        answer = self._database.published.get((self._database.names[RULER.workflow, RULER.key], "&response/shadow"))
        told = decode(answer) if answer is not None else {"refused": "lost", "text": "the world did not answer"}
        return [f"{told['text']} ({told['refused']})"] if "refused" in told else []

    def _without_code(self) -> list[str]:
        """Cells of the manifest that the run could not run: what they would do is not known."""
        versions = self._shard.kernel.router.rules.versions
        missing = [name for name, version in versions.items() if self._workflows.exactly(name, version) is None]
        return [f"there is no code for {name} as the manifest defines it (no-code)" for name in missing]

    def _report(self, before: Manifest, after: Manifest, failures: list[str], horizon: int, mode: str) -> ShadowReport:
        effects: list[dict[str, Any]] = []
        for entry, address in self._entries():
            effects += [_asked(address, effect) for effect in entry.decision.open if _named(effect)]
            stuck = entry.decision.stuck
            if stuck is not None:
                failures.append(f"{address} is stuck: {stuck.error}")
            elif entry.decision.outcome is not None and entry.decision.outcome.error is not None:
                failures.append(f"{address} {entry.decision.outcome.status}: {entry.decision.outcome.error}")
        states = self._changed_states()
        live = [head for head in self._database.heads.values() if head.status not in TERMINAL]
        return ShadowReport(
            failures,
            len(self._database.journal) - self._before,
            dict(Counter(found["effect"] for found in effects)),
            effects[:SHOWN],
            self._open(),
            dict(Counter(f"{head.workflow} {head.version} {head.status}" for head in live)),
            _allowlists(before, after),
            len(states),
            states[:SHOWN],
            horizon,
            mode,
        )

    def _entries(self) -> Iterable[tuple[Entry, Address]]:
        for place, entry in self._journal():
            if place >= self._before and entry.instance in self._database.heads:
                head = self._database.heads[entry.instance]
                yield entry, Address(head.workflow, head.key)

    def _journal(self) -> Iterable[tuple[int, Entry]]:
        """All entries whose instance is there from its start, or from a snapshot on."""
        readers = {id: Patterns(restore(row).patterns.texts()) for id, row in self._begun.items()}
        for place, (seq, instance, at, body) in enumerate(self._database.journal):
            if seq == instance:
                readers[instance] = Patterns()
            if instance in readers and (instance not in self._begun or seq > self._begun[instance].seq):
                yield place, decode_entry(seq, instance, at, body, readers[instance])

    def _open(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for _, instance in self._living():
            counts.update(found for intent in instance.open.values() if (found := _named(intent.effect)))
        return dict(counts)

    def _changed_states(self) -> list[dict[str, Any]]:
        changed: list[dict[str, Any]] = []
        for id, head in self._database.heads.items():
            if not isinstance(self._workflows.of(head.workflow, head.version), Definition):
                continue
            then = self._states.get(id)
            now = self._state(self._folded(head)) if head.status not in TERMINAL else None
            if then != now:
                changed.append({"cell": head.workflow, "key": head.key, "before": then, "after": now})
        return changed

    def _living(self) -> Iterable[tuple[int, Instance]]:
        for id, head in self._database.heads.items():
            if head.status not in TERMINAL:
                yield id, self._folded(head)

    def _folded(self, head: HeadRow) -> Instance:
        record = MemoryStore(self._database)._record(head)
        return fold(Address(head.workflow, head.key), record.snapshot, record.rows)

    def _state(self, instance: Instance) -> Any:
        """Of a cell, as JSON data; what cannot be rebuilt has none."""
        definition = self._workflows.exactly(instance.address.workflow, instance.definition)
        if not isinstance(definition, Definition):
            return None
        try:
            machine = rebuild(instance, definition)
        except PerdureError:
            return None
        assert isinstance(machine, CellMachine)
        return definition.state.to_json(decode(machine.state)) if machine.state else None


class Answers:
    """What the caller has said, by the name of the effect; else what was answered before, for the same parameters."""

    def __init__(self, receipts: Mapping[str, Receipt], recorded: Iterable[tuple[Effect, Receipt]]) -> None:
        self._receipts = receipts
        self._recorded = {_key(effect): receipt for effect, receipt in recorded}

    def to(self, effect: Effect) -> Receipt | None:
        """None: it stays open. An executor outside answers in its own name."""
        name = _named(effect)
        if not name:
            return None
        receipt = self._receipts.get(name) or self._recorded.get(_key(effect))
        outside = outside_of(effect)
        if receipt is None or outside is None or receipt.by is not None:
            return receipt
        return msgspec.structs.replace(receipt, by=Answerer(outside.executor))


class ShadowStore(MemoryStore):
    """The copy. What is being performed goes on elsewhere: it is not begun again, and not given up as lost either."""

    def position(self, done: Callable[[Position | Exception], None]) -> None:
        def found(position: Position | Exception) -> None:
            done(position if isinstance(position, Exception) else msgspec.structs.replace(position, running=()))

        super().position(found)


class ShadowExecutor:
    """Performs nothing. Gives the answers that are known."""

    slots = None

    def __init__(self, name: str, answers: Answers) -> None:
        self.name = name
        self._answers = answers

    def listen(self, framed: Framed) -> None:
        pass

    def start(self, publication: Publication, answered: Answered) -> None:
        receipt = self._answers.to(publication.effect)
        if receipt is not None:
            answered(publication.intent, receipt)

    def stop(self, intent: bytes) -> None:
        pass

    async def close(self) -> None:
        pass


class Silence:
    """It has no listener."""

    def ended(self, instance: int, address: Address, outcome: Outcome) -> None: ...
    def stuck(self, instance: int, address: Address, stuck: Stuck) -> None: ...
    def published(self, instance: int, name: str) -> None: ...
    def failed(self, report: ProblemReport) -> None: ...
    def framed(self, instance: int, frame: Frame) -> None: ...
    def fallen(self, error: Exception) -> None: ...
    def reloaded(self) -> None: ...
    def committed(self, seq: int) -> None: ...
    def posted(self, rows: Sequence[InboxRow]) -> None: ...


def receipt_of(given: Any) -> Receipt:
    """How a caller says it: a value is ok, an exception is an error."""
    if isinstance(given, Receipt):
        return given
    if isinstance(given, BaseException):
        return Receipt("error", error=msgspec.structs.replace(failure_of(given), traceback=""))
    return Receipt("ok", encode(given))


def _named(effect: Any) -> str:
    """The name of a cell's effect; empty: it is no such effect."""
    if isinstance(effect, Call | Wait) and effect.params is not None:
        return str(decode(effect.params)["effect"])
    return ""


def _key(effect: Any) -> bytes:
    """What an effect was asked with: its name and its parameters, not who asked, or when."""
    asked = decode(effect.params)
    return encode([asked["effect"], asked["params"]])


def _asked(address: Address, effect: Any) -> dict[str, Any]:
    asked = decode(effect.params)
    return {"cell": address.workflow, "key": address.key, "effect": asked["effect"], "location": effect.location}


def _allowlists(before: Manifest, after: Manifest) -> dict[str, dict[str, list[str]]]:
    """Which effects each cell may ask for that it might not before, and the other way round."""
    then = {parse_name(name).workflow: set(cell.effects) for name, cell in before.cells.items()}
    now = {parse_name(name).workflow: set(cell.effects) for name, cell in after.cells.items()}
    return {
        cell: {"added": sorted(now.get(cell, set()) - then.get(cell, set())),
               "removed": sorted(then.get(cell, set()) - now.get(cell, set()))}
        for cell in sorted(then.keys() | now.keys())
        if then.get(cell) != now.get(cell)
    }  # fmt: skip


def _raised(error: Exception | None) -> None:
    if error is not None:
        raise error
