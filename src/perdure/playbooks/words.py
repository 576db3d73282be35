"""A playbook in words: why a token waits, and what would move it."""

from __future__ import annotations

import msgspec

from perdure.codec import decode
from perdure.kernel.effects import PAUSED_AT
from perdure.ports.seen import Advice, Reason, Seen, Waiting, Words

from .model import from_bytes
from .pause import PAUSED, RESUME
from .scope import Compiler
from .workflow import POLICY


class PlaybookWords(Words):
    policy = POLICY
    code = "playbook"

    def name(self, location: str) -> str | None:
        return f"The action {location}"

    def open(self, seen: Seen, open: Waiting) -> Reason | None:
        if open.location.startswith(PAUSED_AT):
            return self._paused(seen, open)
        where, _, last = open.location.rpartition("/")
        if open.location.startswith("gate/") and seen.definition is not None:
            return self._gate(seen, seen.definition, open)
        if open.due is not None and last.startswith("backoff#"):
            error = seen.last_error(where)
            told = f", last with {error}" if error else ""
            text = f"{self.name(where)} has failed{told}; it is tried again at {seen.at(open.due)}."
            return Reason("backoff", text, (), open)
        return None

    def _paused(self, seen: Seen, open: Waiting) -> Reason:
        """Who paused it, since when, why, and how it goes on."""
        told = decode(seen.state.published[PAUSED]) if PAUSED in seen.state.published else None
        by = f" by {told['by']}" if told and told["by"] else ""
        why = f" ({told['reason']})" if told and told["reason"] else ""
        text = f"It was paused{by} {seen.ago(open.since)}{why}: what runs goes on to its end, and nothing else begins."
        return Reason(PAUSED, text, (Advice("to let it go on", seen.command(RESUME)),), open)

    def _gate(self, seen: Seen, definition: bytes, open: Waiting) -> Reason | None:
        """The guard of a gate, and the command that opens it."""
        gate = gate_at(Compiler(from_bytes(definition)), open.location)
        if gate is None:
            return None
        if any(each.location.startswith(PAUSED_AT) for each in seen.waiting):
            text = f"{gate.text}{seen.since(open)}{seen.deadline(open)}."
            return Reason("gate", f"{text} In a pause no gate is tested; this one is at the resume.", (), open)
        ways = [Advice(command=("playbooks", "patch", seen.id, f"{key}=true")) for key in gate.reads]
        ways += [Advice(f"it opens when the step {step} has ended") for step in gate.others]
        waited = seen.since(open).replace(" since ", " for ", 1)
        text = f"A token has waited at the gate of {gate.step}{waited}{seen.deadline(open)}, {gate.text}."
        return Reason("gate", text, tuple(ways), open)


class Gate(msgspec.Struct, frozen=True):
    """A gate at which a token waits. `reads` are the ctx keys that a patch could change."""

    step: str
    guards: tuple[str, ...]
    reads: tuple[str, ...]
    others: tuple[str, ...]  # steps whose end it reads

    @property
    def text(self) -> str:
        return f"until this is true: {' or '.join(self.guards)}" if self.guards else "and no rule admits it"


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
