"""What became of each step of an instance, as its journal says: for drawings, now or at an entry of the past."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from perdure.drawing.model import State
from perdure.kernel.effects import Call, attempt_of
from perdure.kernel.entry import Entry
from perdure.kernel.events import Address, CancelAsked, Migrated, ReceiptArrived, Settled, Started
from perdure.kernel.identity import Identity

from .blocks import Mark
from .migrate import place_of, renamed_place
from .model import names_of, sequences

_AGAIN: Final = re.compile(r"#\d+$")
_BESIDE: Final = re.compile(r"/(backoff|deadline)(#\d+)?$")
_DONE: Final = ("branch", "join", "timer", "end", "failed")


class History:
    """Folds entries into marks."""

    def __init__(self, data: dict[str, Any], address: Address) -> None:
        self._data = data
        self._address = address
        self._identity = Identity(address, 1)
        self._open: dict[bytes, str] = {}
        self._states: dict[str, State] = {}
        self._turns: dict[str, set[str]] = {}
        self._attempts: dict[str, int] = {}
        self._people: dict[str, str] = {}
        self._renamed: list[dict[str, str]] = []  # by each migration
        self._ended = ""
        self._completes = False  # by a `Complete`

    def take(self, entries: Iterable[Entry]) -> History:
        for entry in entries:
            self._event(entry)
            self._decision(entry)
        return self

    def _event(self, entry: Entry) -> None:
        match entry.event:
            case Started(generation=generation):
                self._identity = Identity(self._address, generation)
            case ReceiptArrived(intent=intent, receipt=receipt) if intent in self._open:
                self._mark(self._open.pop(intent), "done" if receipt.status == "ok" else "failed")
            case Settled(location=location):
                self._mark(location, "done")
            case CancelAsked():
                pass
            case Migrated(renamed=renamed) if renamed:
                self._renamed.append(renamed)
                self._states = {renamed_place(place, renamed): state for place, state in self._states.items()}
                self._attempts = {renamed_place(place, renamed): n for place, n in self._attempts.items()}
                self._turns = {renamed_place(place, renamed): turns for place, turns in self._turns.items()}
            case _:
                pass

    def _decision(self, entry: Entry) -> None:
        decision = entry.decision
        for id in decision.withdraw:
            if id in self._open:
                location = self._open.pop(id)
                self._mark(location, "done" if _message(entry) else "dropped")
        for note in decision.noted:
            word, _, location = note.partition(" ")
            if word in _DONE:
                self._mark(location, "done")
                self._completes |= word == "end"
                if word == "branch":
                    self._mark(location.rpartition("/")[0], "done")
            elif word == "undo":
                self._mark(location, "undone")
        for effect in decision.open if decision.outcome is None else ():
            location = effect.location
            self._open[self._identity.intent(location, attempt_of(effect))] = location
            if not _BESIDE.search(location):
                if type(effect) is Call:
                    place = self._place(location)
                    self._attempts[place] = max(effect.attempt, self._attempts.get(place, 1))
                self._mark(location, "open")
        if decision.stuck is not None:
            self._mark(decision.stuck.location, "stuck")
        if decision.outcome is not None:
            for location in self._open.values():
                self._mark(location, "dropped")
            self._open.clear()
            self._ended = str(decision.outcome.status)

    def _mark(self, location: str, state: State) -> None:
        if _BESIDE.search(location):
            return
        self._states[self._place(location)] = state
        parts = location.split("/")
        for number, part in enumerate(parts):
            if part.startswith("~"):
                turns = self._turns.setdefault(self._place("/".join(parts[:number])), set())
                turns.add("/".join(parts[: number + 1]))

    def _place(self, location: str) -> str:
        """Where a step stands in the last definition: without turns, by its last name."""
        place = _AGAIN.sub("", place_of(location))
        for renamed in self._renamed:
            place = renamed_place(place, renamed)
        return place

    def marks(self) -> dict[str, Mark]:
        """By location without the numbers of turns. A branch that was taken has a mark too."""
        to_the_end = self._ended == "completed" and not self._completes
        self._fill(self._data["steps"], "", reached=to_the_end)
        found = {place: Mark(state, self._note(place)) for place, state in self._states.items()}
        if to_the_end:
            found.setdefault("end", Mark("done"))
        return found

    def _note(self, place: str) -> str:
        turns, attempts = len(self._turns.get(place, ())), self._attempts.get(place, 1)
        if turns:
            return "1 turn" if turns == 1 else f"{turns} turns"
        return f"{attempts} attempts" if attempts > 1 else ""

    def _fill(self, steps: list[dict[str, Any]], prefix: str, *, reached: bool) -> bool:
        """Steps that leave no entry are done if something after them was reached. The answer: whether any was."""
        after = reached
        for name, step in reversed(list(zip(names_of(steps), steps, strict=True))):
            place = prefix + name
            inside = False
            for below, inner in sequences(step):
                segment = "~" if step["kind"] == "repeat" and below == ("steps",) else str(below[-1])
                if below[0] == "cases":
                    segment = step["cases"][below[1]]["label"]
                ends = after and segment not in ("on_failure", "on_timeout", "on_unknown", "on_cancel", "undo")
                way = f"{place}/{segment}"
                known = way in self._states or any(each.startswith(f"{way}/") for each in self._states)
                inside |= self._fill(inner, f"{way}/", reached=ends and known) or known
            silent = step["kind"] in ("set", "set_reference", "repeat", "parallel", "decide", "choose")
            passed = after and step["kind"] == "receive"  # its message was there before
            if place not in self._states and (passed or (silent and (after or inside))):
                self._states[place] = "done" if after or self._ended == "completed" else "open"
            after = after or place in self._states
        return after


def _message(entry: Entry) -> bool:
    """Whether a wait was withdrawn because its message came."""
    return type(entry.event).__name__ == "Message"
