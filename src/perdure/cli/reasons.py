"""Why an instance does not move, in plain language: what it waits for, since when, and what would move it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final, NamedTuple

from perdure.kernel.events import Address
from perdure.kernel.status import TERMINAL, Status
from perdure.ports.store import Queries
from perdure.runtime.history import Line, Waiting, is_sleep

from .console import Console
from .look import Look, waiting_document
from .text import ago, first_line, local, short, span, until

BACKOFF: Final = re.compile(r"(?P<step>.+)/backoff#(?P<attempt>\d+)$")
"""The location of the timer between two attempts at a step."""


class Reason(NamedTuple):
    """`todo` is a command or an advice that would move the instance; empty: time or the engine will."""

    kind: str
    text: str
    todo: str = ""
    waiting: Waiting | None = None

    def document(self) -> dict[str, Any]:
        about = {} if self.waiting is None else waiting_document(self.waiting)
        return {**about, "kind": self.kind, "text": self.text, "todo": self.todo or None}


class Reasons:
    """Asks the database what it needs to know to explain one instance at one time."""

    def __init__(self, console: Console, queries: Queries, look: Look, now: datetime) -> None:
        self._console = console
        self._queries = queries
        self._look = look
        self._now = now
        self._alive = True  # an engine runs on the database

    async def all(self) -> list[Reason]:
        status = self._look.state.status
        self._alive = await self._queries.owner() is not None
        if status in TERMINAL:
            return [self._ended()]
        reasons = [self._stuck()] if status is Status.STUCK else [await self._open(each) for each in self._look.waiting]
        if self._look.state.cancelled:
            reasons.insert(0, Reason("cancel", "It was asked to cancel, and is cleaning up."))
        return [*reasons, *await self._engine(), *await self._undelivered()]

    # ---- what is open --------------------------------------------------------------------------------------

    async def _open(self, open: Waiting) -> Reason:
        match open.kind:
            case "call":
                return self._step(open)
            case "timer":
                return self._timer(open)
            case "wait":
                return self._message(open)
            case "child":
                return await self._child(open)
            case kind:
                return Reason(kind, f"It waits for the {kind} {open.location}{self._since(open)}.", "", open)

    def _step(self, open: Waiting) -> Reason:
        nth = f"attempt {open.attempt}" + (f", handed out {open.delivery} times" if open.delivery > 1 else "")
        if open.held:
            text = f"The step {open.location} waits for a free place in the executor {open.what}"
            return Reason("held", f"{text}{self._since(open)}.", "", open)
        again = "its outcome will be unknown when an engine runs," if open.once else "runs again when an engine does,"
        verb = "runs" if self._alive else f"is open, and {again}"
        text = f"The step {open.location} {verb}{self._since(open)} ({nth}, executor {open.what})."
        last = self._last_error(open.location)
        return Reason("step", text + (f" The attempt before failed: {last}" if last else ""), "", open)

    def _timer(self, open: Waiting) -> Reason:
        assert open.due is not None
        when = f"{local(open.due)} ({until(open.due, self._now)})"
        backoff = BACKOFF.match(open.location)
        if backoff is None:
            wake = self._console.command("wake", self._look.id, open.location) if is_sleep(open.location) else ""
            return Reason("timer", f"It sleeps at {open.location} until {when}.", wake, open)
        step, attempt = backoff["step"], int(backoff["attempt"])
        failed = f"The step {step} failed {'once' if attempt == 1 else f'{attempt} times'}"
        last = self._last_error(step)
        text = f"{failed}{f', last with {last}' if last else ''}; attempt {attempt + 1} begins at {when}."
        return Reason("backoff", text, "", open)

    def _message(self, open: Waiting) -> Reason:
        names = open.what.split(", ") if open.what else []
        wanted = " or ".join(names) if names else "of any name"
        deadline = f", at most until {local(open.due)} ({until(open.due, self._now)})" if open.due is not None else ""
        send = self._console.command("send", self._look.id, names[0] if names else "NAME", "{}")
        return Reason("wait", f"It waits for a message {wanted}{self._since(open)}{deadline}.", send, open)

    async def _child(self, open: Waiting) -> Reason:
        workflow, _, key = open.what.partition("/")
        head = await self._queries.head(Address(workflow, key))
        status = "is about to start" if head is None else f"is {head.status}"
        todo = self._console.command("why", open.what)
        return Reason("child", f"It waits for its child {open.what}, which {status}{self._since(open)}.", todo, open)

    def _since(self, open: Waiting) -> str:
        return f" since {span((self._now - open.since).total_seconds())}"

    def _last_error(self, location: str) -> str:
        for line in reversed(self._look.lines):
            if line.event == "receipt" and line.location == location:
                return first_line(str(line.error)) if line.error is not None else ""
        return ""

    # ---- what stands in the way ----------------------------------------------------------------------------

    def _stuck(self) -> Reason:
        stuck = self._look.state.stuck
        assert stuck is not None
        last = next(line for line in reversed(self._look.lines) if line.outcome)
        place = f" at {stuck.location}" if stuck.location else f" at entry {last.number} ({_what_came(last)})"
        since = span((self._now - last.at).total_seconds())
        text = f"It is stuck{place} since {since}: {first_line(str(stuck.error))}"
        retry = self._console.command("retry", self._look.id)
        if stuck.error.type == "OutcomeUnknown":
            settle = self._console.command("settle", self._look.id, stuck.location, "ok")
            todo = f"find out whether it did, then: {settle} (or error; a value may follow); or run it again: {retry}"
        elif stuck.error.type == "UndoFailed":
            settle = self._console.command("settle", self._look.id, stuck.location, "ok")
            todo = f"undo it by hand, then: {settle}; or try again: {retry}"
        elif stuck.error.type == "Divergence":
            advice = stuck.error.message.strip().partition("\n")[2] or "put the old code back"
            todo = f"{advice}\nthen: {retry}"
        else:
            todo = f"put right what is wrong, then: {retry}"
        return Reason("stuck", text, todo)

    async def _engine(self) -> list[Reason]:
        owner = await self._queries.owner()
        workflow = self._look.summary.workflow
        if owner is None:
            text = f"No engine runs on {self._console.db}: nothing moves until one does."
            return [Reason("no-engine", text, "perdure.open(...) in your program, or `perdure run`, runs one")]
        if workflow not in {name for name, *_ in await self._queries.workflows()}:
            text = f"The engine that runs, {owner}, does not know the workflow {workflow!r}."
            return [Reason("unknown-workflow", text, "register it: perdure.open(url, workflows=[...])")]
        return []

    async def _undelivered(self) -> list[Reason]:
        from perdure.runtime.history import undelivered

        events = undelivered(await self._queries.undelivered(self._look.state.address))
        return [
            Reason(
                "undelivered",
                f"On its way, not yet taken by an engine: {_what_came(line)}, {ago(line.at, self._now)}.",
            )
            for line in events
        ]

    # ---- the end -------------------------------------------------------------------------------------------

    def _ended(self) -> Reason:
        state, when = self._look.state, ago(self._look.summary.changed_at, self._now)
        match state.status:
            case Status.COMPLETED:
                return Reason("completed", f"It completed {when}, with the result {short(self._look.result)}.")
            case Status.CANCELLED:
                reason = self._look.error.message if self._look.error is not None else ""
                return Reason("cancelled", f"It was cancelled {when}" + (f": {reason}" if reason else "."))
            case _:
                return Reason("failed", f"It failed {when}: {first_line(str(self._look.error))}")


def _what_came(line: Line) -> str:
    return f"{line.event} {line.location}".strip()
