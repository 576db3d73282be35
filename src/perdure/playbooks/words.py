"""A playbook in words: why a token waits, and what an instance has in hand."""

from __future__ import annotations

from typing import Any

import msgspec

from .machine import PlaybookMachine
from .scope import Compiler
from .values import shown


class Gate(msgspec.Struct, frozen=True):
    """A gate at which a token waits. `reads` are the ctx keys that a patch could change."""

    step: str
    guards: tuple[str, ...]
    reads: tuple[str, ...]
    others: tuple[str, ...]  # steps whose end it reads

    @property
    def text(self) -> str:
        wanted = " or ".join(self.guards) or "nothing admits it"
        return f"A token waits at the gate of {self.step} until {wanted}"


def gate_at(compiler: Compiler, location: str) -> Gate | None:
    """The gate that a location `gate/STEP#TOKEN` names."""
    place, _, rest = location.partition("/")
    name = rest.partition("#")[0]
    known = {step.name for step in compiler.playbook.steps}
    if place != "gate" or name not in known:
        return None
    code = compiler.step(name)
    assert code.step.admit is not None
    guards = [str(rule.when) for rule in code.step.admit.rules if rule.allow and rule.when is not None]
    reads = sorted({str(read[1]) for read in code.reads if read[0] == "ctx" and len(read) > 1})
    others = sorted({str(read[1]) for read in code.reads if read[0] in ("steps", "_steps") and len(read) > 1})
    return Gate(name, tuple(guards), tuple(reads), tuple(others))


def state_of(machine: PlaybookMachine) -> dict[str, Any]:
    """What people see of an instance: ctx, tokens and the last runs."""
    state = machine.state
    tokens = [
        {"id": token.id, "step": token.step, "state": token.state, "args": shown(token.args)}
        for _, token in sorted(state.marking.tokens.items())
    ]
    ended = {step: found["status"] for step, found in sorted(state.steps.items()) if found is not None}
    return {
        "ctx": shown(state.ctx),
        "ctx_version": state.ctx_version,
        "tokens": tokens,
        "steps": ended,
        "counts": msgspec.to_builtins(state.counts),
    }
