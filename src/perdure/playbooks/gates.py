"""Gates: which tokens are admitted, which wait, and when they are tested again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.expressions import NeedsRead
from perdure.kernel.effects import Wait

from .keys import seconds
from .net import Token
from .scope import StepCode
from .state import Open, State
from .turn import Turn, due
from .values import Fault, NeedsPut, error

if TYPE_CHECKING:
    from .machine import PlaybookMachine


class Gates:
    def __init__(self, machine: PlaybookMachine) -> None:
        self.machine = machine
        self.compiler = machine.compiler
        self.net = machine.net
        self._watch: dict[tuple[str, str], set[int]] | None = None  # gates by what they read; None: not made yet

    @property
    def state(self) -> State:
        return self.machine.state

    def allowed(self, turn: Turn, token: Token, code: StepCode) -> bool:
        if code.step.admit is None:
            return True
        roots = self.machine.roots(token.id, token.args)
        for index, (guard, allow) in enumerate(code.admit):
            if turn.guard(guard, roots, f"{code.path}/admit/rules/{index}/when", f"gate/{token.step}#{token.id}"):
                return allow
        return False

    def admit(self, turn: Turn, id: int) -> None:
        token = self.state.marking.tokens[id]
        code = self.compiler.step(token.step)
        try:
            if self.allowed(turn, token, code):
                self.machine.runs.run(turn, token)
                return
        except (NeedsRead, NeedsPut) as need:
            self.machine.need(turn, need, ["admit", id, -1], f"gate/{token.step}#{id}")
            return
        except Fault as fault:
            self.machine.runs.refuse(turn, token, fault.error)
            return
        admit = code.step.admit
        assert admit is not None
        if admit.on_deny == "pending":
            self.hold(turn, token, code)
        elif admit.on_deny == "fail":
            self.machine.runs.refuse(turn, token, error("not_admitted", f"the gate of {token.step} denied the token"))
        else:
            self.discard(turn, token)

    def hold(self, turn: Turn, token: Token, code: StepCode) -> None:
        if token.state == "pending":
            return
        token.state = "pending"
        location = f"gate/{token.step}#{token.id}"
        until = None
        if code.admit_timeout is not None:
            roots = self.machine.roots(token.id, token.args)
            within = seconds(turn.value(code.admit_timeout, roots, f"{code.path}/admit/timeout", location))
            until = None if within is None else due(turn, within)
        turn.open(Wait(location, ("ctx",), until), Open("gate", "", token.id))
        self._watched(token, code)

    def _watched(self, token: Token, code: StepCode) -> None:
        if self._watch is not None:
            for read in _gate_reads(code):
                self._watch.setdefault(read, set()).add(token.id)

    def _watchers(self) -> dict[tuple[str, str], set[int]]:
        if self._watch is None:
            self._watch = {}
            for token in self.state.marking.of("pending"):
                self._watched(token, self.compiler.step(token.step))
        return self._watch

    def test_again(self, turn: Turn) -> None:
        """Test the gates that read something that has changed, the oldest first."""
        watch, changed = self._watchers(), self.machine.changed
        self.machine.changed = set()
        found = set(watch.get(("", ""), ()))
        for root, key in changed:
            found |= watch.get((root, key), set()) | watch.get((root, "*"), set())
        for id in sorted(found):
            token = self.state.marking.tokens.get(id)
            if token is None or token.state != "pending":
                for ids in watch.values():
                    ids.discard(id)
                continue
            self._test(turn, token)

    def _test(self, turn: Turn, token: Token) -> None:
        code = self.compiler.step(token.step)
        try:
            allowed = self.allowed(turn, token, code)
        except (NeedsRead, NeedsPut) as need:
            self.machine.need(turn, need, ["admit", token.id, -1], f"gate/{token.step}#{token.id}")
            return
        except Fault as fault:
            turn.withdraw_at(f"gate/{token.step}#{token.id}")
            self.machine.runs.refuse(turn, token, fault.error)
            return
        if allowed:
            turn.withdraw_at(f"gate/{token.step}#{token.id}")
            self.machine.runs.run(turn, token)

    def held_back(self, id: int) -> bool:
        """Whether a pause keeps a token from its gate: one that is ready comes first when it is over."""
        paused, queue = self.machine.pauses.on, self.state.queue
        if paused and id not in queue and self.state.marking.tokens[id].state == "ready":
            queue.insert(0, id)
        return paused

    def look_again(self) -> None:
        """All that the gates read may have changed during the pause."""
        self.machine.changed |= set(self._watchers())

    def timed_out(self, turn: Turn, owner: Open) -> None:
        token = self.state.marking.tokens[owner.token]
        admit = self.compiler.step(token.step).step.admit
        assert admit is not None
        if admit.on_timeout == "admit":
            self.machine.runs.run(turn, token)
        elif admit.on_timeout == "fail":
            self.machine.runs.refuse(turn, token, error("timeout", f"the gate of {token.step} did not open in time"))
        else:
            self.discard(turn, token)

    def discard(self, turn: Turn, token: Token) -> None:
        self.state.counts.denied += 1
        turn.note("discard", f"{token.step}#{token.id}")
        self.machine.runs.forget(turn, token)
        self.net.end(self.state.marking, token)


def _gate_reads(code: StepCode) -> set[tuple[str, str]]:
    found = {("", "")} if code.volatile else set()
    for read in code.reads:
        root = {"_steps": "steps"}.get(str(read[0]), str(read[0]))
        if root in ("ctx", "steps"):
            found.add((root, str(read[1]) if len(read) > 1 else "*"))
    return found
