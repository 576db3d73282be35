"""What people call the things that a process waits for: steps, pauses, messages."""

from __future__ import annotations

import re
from typing import Final

from perdure.kernel.decision import Stuck
from perdure.kernel.effects import Wait
from perdure.ports.seen import Advice, Reason, Seen, Waiting, Words

from .migrate import place_of, renamed_place
from .workflow import POLICY

_TURN: Final = re.compile(r"/~(\d+)")
_BESIDE: Final = re.compile(r"(?P<step>.+)/(?P<what>backoff|deadline)(#\d+)?$")


class ProcessWords(Words):
    policy = POLICY
    code = "process"

    def name(self, location: str) -> str | None:
        turns = _TURN.findall(location)
        where = f", in turn {' of turn '.join(str(int(turn) + 1) for turn in reversed(turns))}" if turns else ""
        return f"The step {_TURN.sub('', location)}{where}"

    def open(self, seen: Seen, open: Waiting) -> Reason | None:
        beside = _BESIDE.match(open.location)
        if beside is not None and open.due is not None:
            return self._beside(seen, open, beside["step"], beside["what"])
        intent = seen.intent(open)
        if intent is not None and isinstance(intent.effect, Wait):
            message = intent.effect.names[0] if intent.effect.names else ""
            text = f"{self._step(seen, open)} waits for the message {message}{seen.since(open)}{seen.deadline(open)}."
            return Reason("message", text, (Advice("to send it", seen.command("send", message)),), open)
        if open.kind == "timer" and open.due is not None:
            return Reason("timer", f"{self._step(seen, open)} waits until {seen.at(open.due)}.", (), open)
        return None

    def _step(self, seen: Seen, open: Waiting) -> str | None:
        """A step by its name in the version that the instance runs on: it may have migrated since this was opened."""
        place = now = place_of(open.location)
        for line in seen.lines:
            if line.event == "migrated" and isinstance(line.value, dict) and line.at >= open.since:
                now = renamed_place(now, line.value["map"])
        return self.name(open.location) if now == place else f"{self.name(now)}, opened as {open.location},"

    def ways_out(self, seen: Seen, stuck: Stuck) -> tuple[Advice, ...] | None:
        if stuck.kept:
            return None
        return (
            Advice("when what was wrong is put right", seen.command("retry")),
            Advice("to answer for the step", seen.command("settle", stuck.location, "ok", "VALUE")),
            Advice("to say that it failed", seen.command("settle", stuck.location, "error", "TEXT")),
        )

    def _beside(self, seen: Seen, open: Waiting, step: str, what: str) -> Reason:
        assert open.due is not None
        if what == "deadline":
            return Reason("deadline", f"{self.name(step)} has time until {seen.at(open.due)}.", (), open)
        error = seen.last_error(step)
        told = f", last with {error}" if error else ""
        return Reason(
            "backoff", f"{self.name(step)} has failed{told}; it is tried again at {seen.at(open.due)}.", (), open
        )
