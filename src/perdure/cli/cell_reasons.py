"""Why a cell does not move: the words of `reasons.py`, for what is made by events and lives by receipts."""

from __future__ import annotations

from perdure.kernel.decision import Stuck
from perdure.kernel.effects import Call
from perdure.kernel.events import Migrated
from perdure.kernel.rules import RULER
from perdure.kernel.status import Status
from perdure.runtime.history import Waiting

from .reasons import CODE, Reason, Reasons
from .text import ago, first_line, local, until
from .world import kernel_manifest

ANEW = "the next event that is routed to it makes it anew"
OPEN = "perdure.open(...) in your program runs one"


class CellReasons(Reasons):
    async def all(self) -> list[Reason]:
        reasons = await super().all()
        lacking = [reason for reason in reasons if reason.kind == "unknown-workflow"]
        if lacking:  # whatever else it waits for, it cannot be told
            return [*lacking, *(reason for reason in reasons if reason.kind == "undelivered")]
        if any(reason.kind not in ("no-engine", "undelivered") for reason in reasons):
            return reasons
        return [self._idle(), *reasons]

    def _idle(self) -> Reason:
        send = self._console.command("cells", "send", "EVENT", "JSON")
        if self._look.summary.workflow == RULER.workflow:
            return Reason("event", "It waits for the next event from outside.", send)
        return Reason(
            "event", "It waits for the next event that is routed to it; nothing that it asked for is open.", send
        )

    async def _open(self, open: Waiting) -> Reason:
        if open.kind == "effect":
            return self._effect(open)
        if open.kind == "timer" and open.due is not None:
            text = f"Its alarm {open.location} goes off at {local(open.due)} ({until(open.due, self._now)})."
            return Reason("timer", text, "", open)
        return await super()._open(open)

    def _effect(self, open: Waiting) -> Reason:
        intent = self._look.state.at(open.location)
        here = intent is not None and isinstance(intent.effect, Call)
        wanted = f"the receipt of {open.what} (at {open.location})"
        times = f", handed out {open.delivery} times" if open.delivery > 1 else ""
        if not here:
            deadline = "" if open.due is None else f", at most until {local(open.due)} ({until(open.due, self._now)})"
            return Reason("receipt", f"It waits for {wanted} from outside{self._since(open)}{deadline}.", "", open)
        if open.held:
            return Reason("held", f"It waits for a free place to perform {open.what}{self._since(open)}.", "", open)
        text = f"It waits for {wanted}{self._since(open)}{times}{self._cut(open)}."
        if not self._alive:
            then = "its receipt will be unknown" if open.once else "it is performed again"
            text += f" Nobody performs it now: when an engine runs, {then}."
        return Reason("receipt", text, "", open)

    def _ways_out(self, stuck: Stuck) -> list[str]:
        retry, look = self._command("retry"), self._command("debug", *CODE)
        kept = "the event is kept, and what came after it waits"
        if stuck.error.type == "Divergence":
            advice = stuck.error.message.strip().partition("\n")[2] or "put the old reducer back"
            see = f"see where the reducer decides otherwise: {look}"
            return [see, *advice.splitlines(), f"with that code in the engine: {retry}"]
        if type(self._look.state.kept) is Migrated:
            migrate, apply = self._console.command("manifest", "migrate"), "perdure manifest apply N --mode migrate"
            return [
                f"see where that comes from: {look}",
                f"mend its migrate function, and with that code in the engine: {migrate}",
                f"or put a definition into force that it can go over to ({apply}), and then: {migrate}",
            ]
        return [
            f"see where that comes from: {look}",
            f"{kept}: mend the reducer, and with that code in the engine: {retry}",
        ]

    async def _engine(self) -> list[Reason]:
        owner = await self._queries.owner()
        if owner is None:
            return [Reason("no-engine", f"No engine runs on {self._console.db}: nothing moves until one does.", OPEN)]
        head, force = self._look.summary, await kernel_manifest(self._queries)
        needed = [head.version]
        if force.outdated(head.workflow, head.version):
            needed.append(force.versions[head.workflow])  # it goes over to that before anything else
        has = {row.version for row in await self._queries.workflows() if row.name == head.workflow}
        for version in needed:
            if version not in has:
                text = f"The engine that runs, {owner}, does not have the code of {head.workflow} in version {version}"
                known = f"it has {', '.join(sorted(has))}" if has else "it has no version of it"
                todo = "open it with this definition too: perdure.open(url, workflows=[...])"
                rest = "Nothing is lost: events, receipts and alarms wait until an engine has it."
                return [Reason("unknown-workflow", f"{text}; {known}. {rest}", todo)]
        return []

    def _ended(self) -> Reason:
        when = ago(self._look.summary.changed_at, self._now)
        match self._look.state.status:
            case Status.COMPLETED:
                return Reason("deleted", f"It was deleted {when}: its reducer returned no state. {ANEW.capitalize()}.")
            case Status.CANCELLED:
                reason = self._look.error.message if self._look.error is not None else ""
                return Reason("cancelled", f"It was cancelled {when}{f': {reason}' if reason else ''}; {ANEW}.")
            case _:
                return Reason("failed", f"It failed {when}: {first_line(str(self._look.error))}; {ANEW}.")
