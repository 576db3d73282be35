"""Two histories side by side: what happened at each place, whenever that was. Pure.

A place is a location and an attempt (of a message: its name, and the how manieth it is). Times, entry numbers and the
order of what ran in parallel are no differences, nor is a crash that made a step run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from perdure.codec import decode, encode
from perdure.kernel.apply import Changed, apply
from perdure.kernel.batch import JournalRow
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait, attempt_of
from perdure.kernel.entry import Entry
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    ReceiptArrived,
    Requested,
    Retried,
    Rewound,
    Settled,
    Started,
    Streamed,
    Woken,
)
from perdure.kernel.instance import Instance
from perdure.kernel.location import Patterns
from perdure.kernel.receipt import Failure
from perdure.ports.seen import Words
from perdure.runtime.history import word_of


class StoryPlace(NamedTuple):
    what: str  # step, timer, wait, child, message, input, status...
    location: str = ""
    attempt: int = 1

    def __str__(self) -> str:
        text = f"{self.what} {self.location}".strip()
        return text if self.attempt == 1 else f"{text} (attempt {self.attempt})"


STATUS: Final = StoryPlace("status")
TOLD: Final = ("published", "announced")


class ComparedError(msgspec.Struct, frozen=True):
    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class ShownFact(msgspec.Struct, frozen=True):
    """`value` is left out where there is none."""

    entry: int
    status: str
    value: Any | UnsetType
    error: ComparedError | None


class ShownDifference(msgspec.Struct, frozen=True):
    """What came of a place in either history; None: only the other one has it."""

    what: str
    location: str
    attempt: int
    a: ShownFact | None
    b: ShownFact | None

    @property
    def place(self) -> str:
        return str(StoryPlace(self.what, self.location, self.attempt))


class StoryFact(NamedTuple):
    """What came of a place, and the entry that says so. `value` is canonical bytes."""

    entry: int
    status: str = ""
    value: bytes | None = None
    error: Failure | None = None

    def says(self, words: Words) -> object:
        """What is compared. A traceback names files and lines: where an error came from, not what it was."""
        error = self.error
        if error is None:
            return self.status, self.value, None
        return self.status, self.value, (error.type, error.message, not words.repeats(error.type) and error.encoded)

    def shown(self) -> ShownFact:
        value = UNSET if self.value is None else decode(self.value)
        error = None if self.error is None else ComparedError(self.error.type, self.error.message)
        return ShownFact(self.entry, self.status, value, error)


class StoryDifference(NamedTuple):
    """`a` or `b` is None where only the other history has the place."""

    place: StoryPlace
    a: StoryFact | None
    b: StoryFact | None

    @property
    def entry(self) -> int:
        return min(fact.entry for fact in (self.a, self.b) if fact is not None)

    def shown(self) -> ShownDifference:
        a, b = (None if fact is None else fact.shown() for fact in (self.a, self.b))
        return ShownDifference(*self.place, a, b)


class Story:
    """The facts of one history, in the order in which their places were first heard of."""

    def __init__(self, address: Address, rows: list[JournalRow]) -> None:
        self.name = str(address)
        self.state = Instance(address)
        self.facts: dict[StoryPlace, StoryFact] = {}
        self._open: dict[bytes, Effect] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._kept: Event | None = None
        patterns = Patterns()
        for row in rows:
            entry = decode_entry(row.seq, row.instance, row.at, row.body, patterns)
            changed = apply(self.state, entry)
            self._happened(entry.number, entry.event)
            self._decided(entry, changed)
        self._ended()

    def _happened(self, number: int, event: Event) -> None:
        match event:
            case Started(first=Message(name=name, body=body)):
                self._add("message", name, StoryFact(number, value=body))
            case Started(input=given):
                self._add("input", "", StoryFact(number, value=given))
            case ReceiptArrived(intent=id, receipt=receipt):
                self._close(id, StoryFact(number, receipt.status, receipt.value, receipt.error))
            case Requested(intent=id, name=name, body=body):
                self._add("request", f"{self._open[id].location}/{name}", StoryFact(number, value=body))
            case Streamed(intent=id, body=body):
                self._add("frame", self._open[id].location, StoryFact(number, value=body))
            case Message(name=name, body=body):
                self._add("message", name, StoryFact(number, value=body))
            case CancelAsked(reason=reason, undo=undo):
                self._add("cancel", "", StoryFact(number, "with undo" if undo else "", encode(reason)))
            case Woken(location=location):
                self._add("wake", location, StoryFact(number))
            case Retried():
                self._add("retry", "", StoryFact(number))
            case Rewound(to=to):
                self._add("rewind" if to else "retry", to, StoryFact(number))
            case Settled(location=location, receipt=receipt):
                self._add("settled", location, StoryFact(number, receipt.status, receipt.value, receipt.error))
            case _:  # the kernel's own: about the processes that ran the flow, not about the flow
                pass

    def _decided(self, entry: Entry, changed: Changed) -> None:
        number, decision = entry.number, entry.decision
        heard = self._kept if type(entry.event) is Retried and self._kept is not None else entry.event
        self._kept = heard if decision.stuck is not None and decision.stuck.kept else None
        for id in decision.withdraw:
            self._close(id, StoryFact(number, _reason(self._open[id], heard)))
        if type(heard) is Rewound:
            for id in self._open.keys() - self.state.open.keys():
                self._close(id, StoryFact(number, "dropped"))
        for intent in changed.opened:
            effect = self._open[intent.id] = intent.effect
            self.facts[_place(effect)] = StoryFact(number, "open")
            for what, given in _given(effect):
                self.facts[StoryPlace(what, effect.location, attempt_of(effect))] = StoryFact(number, value=given)
        for note in decision.noted:
            kind, _, location = note.partition(" ")
            kind, _, version = kind.partition(":")
            self._add(kind, location, StoryFact(number, version))
        for name, value in decision.publish:
            self._add("published", name, StoryFact(number, value=value))
        for fact in decision.announce:
            self._add("announced", fact.name, StoryFact(number, value=fact.body))
        for send in decision.send:
            self._add("send", send.name, StoryFact(number, value=send.body))
        for _, value in decision.respond:
            self._add("response", "", StoryFact(number, value=value))
        if decision.stuck is not None:
            self._add("stuck", decision.stuck.location, StoryFact(number, error=decision.stuck.error))

    def _ended(self) -> None:
        state = self.state
        if state.ended:
            for effect in self._open.values():
                self.facts[_place(effect)] = StoryFact(state.version, "withdrawn")
        value, error = (None, None) if state.outcome is None else (state.outcome.value, state.outcome.error)
        self.facts[STATUS] = StoryFact(state.version, state.status.value, value, error)

    def _add(self, what: str, location: str, fact: StoryFact) -> None:
        """What has no attempts is counted: the second message of a name, the second value of a published one."""
        self._counts[what, location] += 1
        count = self._counts[what, location]
        self.facts[StoryPlace(what, location if count == 1 else f"{location}#{count}")] = fact

    def _close(self, id: bytes, fact: StoryFact) -> None:
        self.facts[_place(self._open.pop(id))] = fact


def differences(a: Story, b: Story, words: Words) -> list[StoryDifference]:
    """The earliest first, by the number of the entry in the history that has it first; how they stand now, last."""
    found = [
        StoryDifference(place, a.facts.get(place), b.facts.get(place))
        for place in dict.fromkeys([*a.facts, *b.facts])
        if place.what not in TOLD or not words.repeats(place.location.partition("#")[0])
    ]
    return sorted(
        (each for each in found if _differs(each, words)), key=lambda each: (each.place == STATUS, each.entry)
    )


def _differs(each: StoryDifference, words: Words) -> bool:
    return each.a is None or each.b is None or each.a.says(words) != each.b.says(words)


def _place(effect: Effect) -> StoryPlace:
    return StoryPlace(word_of(effect), effect.location, attempt_of(effect))


def _given(effect: Effect) -> Iterator[tuple[str, bytes]]:
    """What is recorded of the arguments. Keys of children are not: they are made of the key of the parent."""
    if type(effect) is Child:
        yield "input of child", effect.input
    if type(effect) is Call and effect.params is not None:
        yield "arguments of step", effect.params


def _reason(effect: Effect, event: Event) -> str:
    """Why an operation is closed without a receipt."""
    match effect, event:
        case Wait(names=names), Message(name=name) if not names or name in names:
            return "received"
        case Timer(), Woken():
            return "woken"
        case _:
            return "withdrawn"
