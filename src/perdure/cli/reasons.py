"""Why an instance does not move, in plain language: what it waits for, since when, and what would move it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final, NamedTuple

from perdure.app import is_server
from perdure.flows.machine import CLEANUP, START
from perdure.kernel.decision import Stuck
from perdure.kernel.effects import Call, Child
from perdure.kernel.events import Address
from perdure.kernel.location import is_sleep, unescape
from perdure.kernel.status import TERMINAL, Status
from perdure.ports.store import Queries
from perdure.runtime.history import Line, Waiting

from .console import Console
from .look import Look, waiting_document
from .text import ago, first_line, local, short, span, to_json, until

BACKOFF: Final = re.compile(r"(?P<step>.+)/backoff#(?P<attempt>\d+)$")
"""The location of the timer between two attempts at a step."""

UNDO: Final = re.compile(r"(?:^|/)&undo/(?P<step>[^/]+)")
"""The location of a step that undoes another one."""

PLACES: Final = {"inline": "inline", "thread": "threads", "process": "processes"}
"""The parameter of `perdure.open` that says how many steps an executor runs at once."""

RUNNING: Final = ("--status", "running")
CODE: Final = ("--against", "MODULE")
INPUT_MAX: Final = 200
"""A longer input is not repeated in a command."""


class Reason(NamedTuple):
    """`todo` is what would move the instance, one command or advice a line; empty: time or the engine will."""

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
        self._is_playbook = False

    async def all(self) -> list[Reason]:
        status = self._look.state.status
        self._alive = await self._queries.owner() is not None
        if status in TERMINAL:
            return [self._ended()]
        reasons = [self._stuck()] if status is Status.STUCK else [await self._open(each) for each in self._look.waiting]
        return [*self._cancel(), *reasons, *await self._engine(), *await self._undelivered()]

    def _command(self, verb: str, *words: str) -> str:
        return self._console.command(verb, self._look.id, *words)

    # ---- what is open --------------------------------------------------------------------------------------

    async def _open(self, open: Waiting) -> Reason:
        match open.kind:
            case "call":
                return await self._queued(open) or self._step(open)
            case "timer":
                return self._timer(open)
            case "wait":
                return await self._gate(open) or self._message(open)
            case "child":
                return await self._child(open)
            case kind:
                return Reason(kind, f"It waits for the {kind} {open.location}{self._since(open)}.", "", open)

    async def _queued(self, open: Waiting) -> Reason | None:
        """A step of a queue: who has it, or who would."""
        intent = self._look.state.at(open.location)
        job = None if intent is None or open.held else await self._queries.job(intent.id)
        if job is None:
            return None
        nth = f"attempt {open.attempt}" + (f", handed out {open.delivery} times" if open.delivery > 1 else "")
        if job.worker:
            text = f"{_name(open.location)} runs{self._since(open)} ({nth}, queue {job.queue}, worker {job.worker})."
            return Reason("step", text, "", open)
        text = f"{_name(open.location)} is in the queue {job.queue}{self._since(open)} ({nth}), for {job.function}. "
        if is_server(self._console.db):
            module = job.function.partition(":")[0]
            worker = self._console.command("worker", module, "--queue", job.queue)
            text += "No worker has it: all are busy, or none has that function."
            return Reason("queued", text, f"to serve the queue: {worker}", open)
        text += "It runs if the engine serves the queue."
        return Reason("queued", text, f"to serve it: perdure.open(..., queues={{{job.queue!r}: N}})", open)

    def _step(self, open: Waiting) -> Reason:
        if open.held:
            text = f"{_name(open.location)} waits for a free place in the executor {open.what}{self._since(open)}."
            more = f"more places: perdure.open(..., {PLACES.get(open.what, open.what)}=N)"
            return Reason("held", text, f"what may hold them: {self._console.command('ls', *RUNNING)}\n{more}", open)
        nth = f"attempt {open.attempt}" + (f", handed out {open.delivery} times" if open.delivery > 1 else "")
        details = f"({nth}, executor {open.what}{self._cut(open)})"
        if self._alive:
            text = f"{_name(open.location)} runs{self._since(open)} {details}."
        else:
            then = "its outcome will be unknown" if open.once else "it runs again"
            text = f"{_name(open.location)} was begun {ago(open.since, self._now)} {details}, and nobody runs it now: "
            text += f"when an engine does, {then}."
        last = self._last_error(open.location)
        return Reason("step", text + (f" The attempt before failed: {last}" if last else ""), "", open)

    def _cut(self, open: Waiting) -> str:
        intent = self._look.state.at(open.location)
        timeout = intent.effect.timeout if intent is not None and isinstance(intent.effect, Call) else None
        return "" if timeout is None else f", cut after {timeout / 1e9:g} s"

    def _timer(self, open: Waiting) -> Reason:
        assert open.due is not None
        when = f"{local(open.due)} ({until(open.due, self._now)})"
        backoff = BACKOFF.match(open.location)
        if backoff is not None:
            return self._backoff(open, backoff["step"], int(backoff["attempt"]), when)
        if open.location == START:
            text = f"It was started for later: it begins at {when}."
            return Reason("timer", text, f"to begin now: {self._command('wake')}", open)
        if open.location == CLEANUP:
            return Reason("timer", f"What is not cleaned up at {when} is cut.", "", open)
        if not is_sleep(open.location):
            text = f"It waits for a sleep or a timeout of asyncio ({open.location}) until {when}. Only time ends it."
            return Reason("timer", text, "", open)
        return Reason(
            "timer", f"It sleeps at {open.location} until {when}.", self._command("wake", open.location), open
        )

    def _backoff(self, open: Waiting, step: str, attempt: int, when: str) -> Reason:
        last = self._last_error(step)
        failed = f"{_name(step)} failed {'once' if attempt == 1 else f'{attempt} times'}"
        text = f"{failed}{f', last with {last}' if last else ''}; attempt {attempt + 1} begins at {when}."
        return Reason("backoff", text, "", open)

    async def _gate(self, open: Waiting) -> Reason | None:
        """The gate of a playbook: its guard, and the command that opens it."""
        summary = self._look.summary
        if not open.location.startswith("gate/"):
            return None
        from perdure.definitions import load

        stored = await load.stored(self._queries, summary.workflow, summary.version)
        if stored is None or stored.dialect != "playbook":
            return None
        from perdure.playbooks.model import from_bytes
        from perdure.playbooks.scope import Compiler
        from perdure.playbooks.words import gate_at

        self._is_playbook = True
        gate = gate_at(Compiler(from_bytes(stored.definition)), open.location)
        if gate is None:
            return None
        deadline = f", at most until {local(open.due)} ({until(open.due, self._now)})" if open.due is not None else ""
        ways = [self._console.command("playbooks", "patch", self._look.id, f"{key}=true") for key in gate.reads]
        ways += [f"it opens when the step {step} has ended" for step in gate.others]
        return Reason("gate", f"{gate.text}{self._since(open)}{deadline}.", "\n".join(ways), open)

    def _message(self, open: Waiting) -> Reason:
        names = open.what.split(", ") if open.what else []
        wanted = " or ".join(names) if names else "of any name"
        deadline = f", at most until {local(open.due)} ({until(open.due, self._now)})" if open.due is not None else ""
        send = self._command("send", names[0] if names else "NAME", "{}")
        return Reason("wait", f"It waits for a message {wanted}{self._since(open)}{deadline}.", send, open)

    async def _child(self, open: Waiting) -> Reason:
        intent = self._look.state.at(open.location)
        assert intent is not None and isinstance(intent.effect, Child)
        head = await self._queries.head(Address(intent.effect.workflow, intent.effect.key))
        status = "is about to start" if head is None else f"is {head.status}"
        todo = self._console.command("why", open.what)
        return Reason("child", f"It waits{self._since(open)} for its child {open.what}, which {status}.", todo, open)

    def _since(self, open: Waiting) -> str:
        return f" since {span((self._now - open.since).total_seconds())}"

    def _last_error(self, location: str) -> str:
        for line in reversed(self._look.lines):
            if line.event == "receipt" and line.location == location:
                return first_line(str(line.error)) if line.error is not None else ""
        return ""

    # ---- what stands in the way ----------------------------------------------------------------------------

    def _cancel(self) -> list[Reason]:
        if not self._look.state.cancelled:
            return []
        asked = next(line for line in reversed(self._look.lines) if line.event == "cancel")
        reason = f" ({asked.value})" if asked.value else ""
        return [Reason("cancel", f"It was asked to cancel {ago(asked.at, self._now)}{reason}, and is cleaning up.")]

    def _stuck(self) -> Reason:
        stuck = self._look.state.stuck
        assert stuck is not None
        last = next(line for line in reversed(self._look.lines) if line.outcome)
        place = f" at {stuck.location}" if stuck.location else f" at entry {last.number} ({_what_came(last)})"
        since = span((self._now - last.at).total_seconds())
        text = f"It is stuck{place} since {since}: {first_line(str(stuck.error))}"
        return Reason("stuck", text, "\n".join(self._ways_out(stuck)))

    def _ways_out(self, stuck: Stuck) -> list[str]:
        retry, settle = self._command("retry"), self._command("settle", stuck.location, "ok")
        look = self._command("debug", *CODE)
        match stuck.error.type:
            case "OutcomeUnknown":
                failed = self._command("settle", stuck.location, "error")
                return [
                    f"find out whether it took effect; if so (its result may follow as JSON): {settle}",
                    f"if not, and it is to count as failed: {failed}",
                    f"if not, and it is to run again: {retry}",
                ]
            case "UndoFailed":
                return [f"undo it by hand, then: {settle}", f"or let it be tried again: {retry}"]
            case "Divergence":
                check = self._console.command("replay", *CODE)
                advice = stuck.error.message.strip().partition("\n")[2] or "put the old code back"
                return [
                    f"see where the code does something else: {look}",
                    *advice.splitlines(),
                    f"put that right, then check: {check}",
                    f"with that code in the engine: {retry}",
                ]
            case _:
                return [f"see where that comes from: {look}", f"with mended code in the engine: {retry}"]

    async def _engine(self) -> list[Reason]:
        owner = await self._queries.owner()
        workflow = self._look.summary.workflow
        if owner is None:
            text = f"No engine runs on {self._console.db}: nothing moves until one does."
            what = f"{workflow}.yaml" if self._is_playbook else f"MODULE:{workflow}"
            run = self._console.command("run", what, *self._start())
            return [Reason("no-engine", text, f"perdure.open(...) in your program runs one, and so does: {run}")]
        if workflow not in {name for name, *_ in await self._queries.workflows()}:
            text = f"The engine that runs, {owner}, does not know the workflow {workflow!r}."
            return [Reason("unknown-workflow", text, "register it: perdure.open(url, workflows=[...])")]
        return []

    def _start(self) -> list[str]:
        """The options of a command that starts it as it was started."""
        given = self._look.lines[0].value
        text = to_json(given)
        value = [] if not given else ["--input", text if len(text) <= INPUT_MAX else "@FILE"]
        return [*value, "--key", self._look.summary.key]

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
        again = self._console.command("start", self._look.summary.workflow, *self._start(), "--reuse", "failed")
        match state.status:
            case Status.COMPLETED:
                return Reason("completed", f"It completed {when}, with the result {short(self._look.result)}.")
            case Status.CANCELLED:
                reason = self._look.error.message if self._look.error is not None else ""
                text = f"It was cancelled {when}" + (f": {reason}" if reason else ".")
                return Reason("cancelled", text, f"to start it again: {again}")
            case _:
                look = f"see where that comes from: {self._command('debug', *CODE)}"
                text = f"It failed {when}: {first_line(str(self._look.error))}"
                retry = f"to run again what failed: {self._command('retry')}"
                return Reason("failed", text, f"{look}\n{retry}\nto start it anew: {again}")


def _name(location: str) -> str:
    undo = UNDO.search(location)
    return f"The step {location}" if undo is None else f"The undo of {unescape(undo['step'])}"


def _what_came(line: Line) -> str:
    return f"{line.event} {line.location}".strip()
