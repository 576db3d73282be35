"""A recorded history, delivered again to code, up to any entry. Nothing is run and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.codec import decode
from perdure.codec.phrases import first_line, short
from perdure.kernel.batch import JournalRow
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Effect
from perdure.kernel.entry import Entry
from perdure.kernel.events import Address, Event, Migrated, Rewound, Started
from perdure.kernel.instance import Instance
from perdure.kernel.machine import Machine, Workflow
from perdure.kernel.replay import Replay, deliver_again, fold, heard
from perdure.kernel.tags import told
from perdure.ports.seen import Line
from perdure.runtime.history import Reader, in_words


class Parted(Exception):
    """At this entry the code does something else than it did, or raises."""

    def __init__(self, entry: int) -> None:
        super().__init__(entry)
        self.entry = entry


class Delivery:
    """An entry, and a machine that stands before it. `event`: what the code gets of it; None: nothing."""

    def __init__(
        self, workflow: Workflow, machine: Machine, entry: Entry, event: Event | None, before: Instance
    ) -> None:
        self.workflow = workflow
        self.machine = machine
        self.entry = entry
        self.event = event
        self.state_before = state_of(machine)
        self._before = before
        self._open: dict[bytes, Effect] = {id: intent.effect for id, intent in before.open.items()}

    def deliver(self) -> Decision:
        assert self.event is not None
        recorded = None if self.raised else self.entry.decision  # what raised did so live, when nothing was recorded
        self.machine, current = deliver_again(
            self._before, self.entry, self.event, self.machine, self.workflow, recorded=recorded
        )
        return current

    @property
    def raised(self) -> bool:
        return raised(self.entry.decision)

    def asked(self, decision: Decision, now: Decision | None) -> list[str]:
        """What a decision on this entry asks for, in words. `now`: what the code has decided, if it has.

        A recorded state is known by its digest alone; it is the machine's if that has the same one.
        """
        words = [*map(in_words, decision.open), *decision.noted]
        words += [f"withdraw {in_words(self._open[id])}" for id in decision.withdraw]
        words += [f"send {send.name} to {send.to}" for send in decision.send]
        words += [f"emit {fact.name} {short(decode(fact.body))}" for fact in decision.announce]
        words += [f"publish {name} = {short(decode(value))}" for name, value in decision.publish]
        words += [f"tag {name} = {short(None if value is None else told(value))}" for name, value in decision.tags]
        words += [f"respond {short(decode(value))}" for _, value in decision.respond]
        if decision.state:
            known = now is not None and now.state == decision.state
            words.append(f"state {state_of(self.machine) if known else 'sha256:' + decision.state.hex()}")
        if decision.outcome is not None:
            outcome = decision.outcome
            value = "" if outcome.value is None else f" {short(decode(outcome.value))}"
            error = "" if outcome.error is None else f": {first_line(str(outcome.error))}"
            words.append(f"{outcome.status}{value}{error}")
        if decision.stuck is not None:
            words.append(f"stuck: {first_line(str(decision.stuck.error))}")
        return words

    def parts(self, now: Decision) -> bool:
        """The code does something else than it did."""
        return not self.raised and (raised(now) or self.workflow.differs(self.entry.decision, now))


class History:
    """What is recorded of an instance, and the code to replay it on. Always the whole journal, never a snapshot.

    `code` gives the code of a version.
    """

    def __init__(self, address: Address, rows: list[JournalRow], code: Callable[[str], Workflow]) -> None:
        self.address = address
        self.rows = rows
        self.state = fold(address, None, rows)
        self._code = code
        self._lines: list[Line] = Reader().read(rows)
        self.first = self._lines[0].number  # not always 1: a fork goes on counting
        self.last = self._lines[-1].number

    @property
    def workflow(self) -> Workflow:
        return self._code(self.state.definition)

    def line(self, number: int) -> Line:
        return self._lines[number - self.first]

    def replay(self, until: int) -> Iterator[tuple[int, Machine]]:
        """Deliver what the entries before one delivered, since the last rewind. The number of each, once it is done;
        the first is 0, and says which machine it is.
        """
        before = self._before(until)
        workflow = self._code(before.definition or self._before(self.first + 1).definition)  # the start names one
        replay = Replay(before, workflow, ahead=False)
        yield 0, replay.machine
        while self._step(replay):
            yield replay.recording.entry.number, replay.machine

    def _step(self, replay: Replay) -> bool:
        try:
            return replay.step()
        except Exception as error:
            replay.machine.dispose()
            raise Parted(replay.recording.entry.number) from error

    def at(self, number: int) -> Delivery:
        before = self._before(number)
        entry = (self.state.tail or [])[number - self.first]
        event = heard(entry.event, before.kept)
        replay = self.replay(number if type(event) is not Rewound else self.first)  # a rewind brings its own past
        _, machine = next(replay)
        for _ in replay:
            pass
        version = event.version if isinstance(event, Migrated | Started) else before.definition
        return Delivery(self._code(version), machine, entry, event, before)

    def _before(self, number: int) -> Instance:
        return fold(self.address, None, self.rows[: number - self.first])


def state_of(machine: Machine) -> str:
    """The state of a machine, in short; empty: there is none, or it is not a value."""
    state = getattr(machine, "state", b"")
    return short(decode(state)) if isinstance(state, bytes) and state else ""


def raised(decision: Decision) -> bool:
    """The machine raised: the instance is stuck, and what had been delivered counts for nothing."""
    return decision.stuck is not None and decision.stuck.kept
