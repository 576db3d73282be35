"""What people call the things that a cell, or the world of cells, waits for."""

from __future__ import annotations

from typing import Final

from perdure.codec.phrases import first_line
from perdure.kernel.decision import Stuck
from perdure.kernel.effects import Call
from perdure.kernel.events import Migrated
from perdure.kernel.status import Status
from perdure.ports.seen import Advice, Reason, Seen, Waiting, Words

from .policy import POLICY, WORLD_POLICY

ANEW: Final = "the next event that is routed to it makes it anew"
SEND: Final = Advice(command=("cells", "send", "EVENT", "JSON"))
DEBUG: Final = ("--against", "MODULE")


class CellWords(Words):
    policy = POLICY
    code = "reducer"

    def idle(self, seen: Seen) -> Reason | None:
        text = "It waits for the next event that is routed to it; nothing that it asked for is open."
        return Reason("event", text, (SEND,))

    def open(self, seen: Seen, open: Waiting) -> Reason | None:
        if open.kind == "effect":
            return _effect(seen, open)
        if open.kind == "timer" and open.due is not None:
            return Reason("timer", f"Its alarm {open.location} goes off at {seen.at(open.due)}.", (), open)
        return None

    def ways_out(self, seen: Seen, stuck: Stuck) -> tuple[Advice, ...] | None:
        retry, look = seen.command("retry"), seen.command("debug", *DEBUG)
        if stuck.error.type == "Divergence":
            advice = stuck.error.message.strip().partition("\n")[2] or "put the old reducer back"
            return (
                Advice("see where the reducer decides otherwise", look),
                *map(Advice, advice.splitlines()),
                Advice("with that code in the engine", retry),
            )
        see = Advice("see where that comes from", look)
        if type(seen.state.kept) is Migrated:
            migrate, apply = ("manifest", "migrate"), "perdure manifest apply N --mode migrate"
            return (
                see,
                Advice("mend its migrate function, and with that code in the engine", migrate),
                Advice(f"or put a definition into force that it can go over to ({apply}), and then", migrate),
            )
        kept = "the event is kept, and what came after it waits"
        return see, Advice(f"{kept}: mend the reducer, and with that code in the engine", retry)

    def ended(self, seen: Seen) -> Reason | None:
        when = seen.ago(seen.summary.changed_at)
        match seen.state.status:
            case Status.COMPLETED:
                return Reason("deleted", f"It was deleted {when}: its reducer returned no state. {ANEW.capitalize()}.")
            case Status.CANCELLED:
                reason = seen.error.message if seen.error is not None else ""
                return Reason("cancelled", f"It was cancelled {when}{f': {reason}' if reason else ''}; {ANEW}.")
            case _:
                return Reason("failed", f"It failed {when}: {first_line(str(seen.error))}; {ANEW}.")


class WorldWords(CellWords):
    policy = WORLD_POLICY

    def idle(self, seen: Seen) -> Reason | None:
        return Reason("event", "It waits for the next event from outside.", (SEND,))


def _effect(seen: Seen, open: Waiting) -> Reason:
    intent = seen.intent(open)
    wanted = f"the receipt of {open.what} (at {open.location})"
    if intent is None or not isinstance(intent.effect, Call):
        return Reason(
            "receipt", f"It waits for {wanted} from outside{seen.since(open)}{seen.deadline(open)}.", (), open
        )
    if open.held:
        return Reason("held", f"It waits for a free place to perform {open.what}{seen.since(open)}.", (), open)
    times = f", handed out {open.delivery} times" if open.delivery > 1 else ""
    text = f"It waits for {wanted}{seen.since(open)}{times}{seen.cut(open)}."
    if seen.engine is None:
        then = "its receipt will be unknown" if open.once else "it is performed again"
        text += f" Nobody performs it now: when an engine runs, {then}."
    return Reason("receipt", text, (), open)
