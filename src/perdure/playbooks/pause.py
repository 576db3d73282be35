"""The messages `pause` and `resume`: a person stops admissions and new attempts, and lets them begin again.

What runs goes on to its end: its outcome is judged, its arcs are followed, and deadlines hold. An open wait stands for
the pause, so it is in the state, survives a restart and is seen like everything else that an instance waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.codec import encode
from perdure.kernel.effects import PAUSED_AT, Wait
from perdure.kernel.events import Message
from perdure.kernel.moment import when

from .scope import Compiler
from .state import Open
from .turn import Turn

if TYPE_CHECKING:
    from .machine import PlaybookMachine

PAUSE: Final = "pause"
RESUME: Final = "resume"
PAUSED: Final = "paused"
"""The name under which an instance publishes who paused it, since when and why; null: it is not paused."""


class Pauses:
    def __init__(self, machine: PlaybookMachine) -> None:
        self.machine = machine

    @property
    def on(self) -> bool:
        return bool(self.machine.state.effects.of_kind(PAUSE))

    def hears(self, turn: Turn, event: Message) -> bool:
        """Whether a message was one of these two. An action that waits for a message of that name gets it as ever.

        So did journals from before there were pauses: what was recorded then had no answer.
        """
        if event.name not in (PAUSE, RESUME) or event.name in awaited(self.machine.compiler):
            return False
        recorded = turn.moment.recorded
        if recorded is not None and event.id and not recorded.respond:
            return False
        if event.name == RESUME:
            self._resume(turn)
        elif not self.on:
            self._pause(turn, event)
        if event.id:
            turn.responded.append((event.id, encode({PAUSED: self.on})))
        return True

    def _pause(self, turn: Turn, event: Message) -> None:
        state, asked = self.machine.state, event.asked
        state.asked += 1
        location = f"{PAUSED_AT}#{state.asked}"
        by = None if asked is None or asked.by is None else asked.by.id
        since = when(turn.at).isoformat().replace("+00:00", "Z")
        told = {"by": by, "since": since, "reason": "" if asked is None else asked.reason}
        turn.open(Wait(location, (RESUME,)), Open(PAUSE, ""))
        turn.published.append((PAUSED, encode(told)))
        turn.note(PAUSE, location)

    def _resume(self, turn: Turn) -> None:
        """Everything that was held is looked at: loops, attempts, gates; tokens that are ready stand in their queue."""
        machine = self.machine
        if not self.on:
            return
        self.lift(turn)
        turn.note(RESUME, PAUSED_AT)
        for token, run in machine.state.runs.items():
            if run.turns is not None:
                machine.later(["loop", token, -1])
            reads = {
                each.pipe for each in machine.state.effects.of_token(token).values() if each.kind in ("read", "put")
            }
            for index, pipe in run.pipes.items():
                if index not in reads and pipe.frames and pipe.frames[-1].phase == "begin":
                    machine.later(["pipe", token, index])
        machine.gates.look_again()

    def lift(self, turn: Turn) -> None:
        """It is paused no longer: it goes on, or it ends."""
        for id in list(self.machine.state.effects.of_kind(PAUSE)):
            turn.withdraw(id)
            turn.published.append((PAUSED, encode(None)))


def awaited(compiler: Compiler) -> set[str]:
    """The messages that actions of a playbook wait for by a name that is no template."""
    playbook = compiler.playbook
    pipelines = (*(step.actions for step in playbook.steps), *playbook.workbook.values())
    names = [action.fields.get("message") for actions in pipelines for action in actions if action.kind == "wait"]
    return {name for name in names if isinstance(name, str)}
