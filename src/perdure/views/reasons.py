"""Why an instance does not move, in plain language: what it waits for, since when, and what would move it.

All that has to be known is read first (`see`). What is said of it is computed: by the words of the dialect, else by the
common ones here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from perdure.app.dialects import words_of
from perdure.app.urls import is_server
from perdure.codec.phrases import error_line, one_line, short, span
from perdure.definitions.load import stored
from perdure.kernel.batch import HeadRow
from perdure.kernel.decision import Stuck
from perdure.kernel.effects import Child
from perdure.kernel.events import Address
from perdure.kernel.instance import Instance
from perdure.kernel.location import is_sleep
from perdure.kernel.moment import when
from perdure.kernel.policy import Policy, decode_policy
from perdure.kernel.rules import IN_FORCE, RULER, Rules, decode_rules
from perdure.kernel.status import TERMINAL, Status
from perdure.kernel.task import TaskRow
from perdure.ports.seen import Advice, Reason, Seen, Waiting, Words, holder, schema_of_message
from perdure.ports.store import Queries
from perdure.runtime.history import HistoryNow, read_now, summary, undelivered
from perdure.tasks.row import TaskInfo, info_of, overdue

PLACES: Final = {"inline": "inline", "thread": "threads", "process": "processes"}
"""The parameter of `perdure.open` that says how many steps an executor runs at once."""

FindCode = Callable[[str, str], Awaitable[Any]]
"""Gives the code of a version of a workflow, or None."""

CODE: Final = ("--against", "MODULE")
INPUT_MAX: Final = 200
"""A longer input is not repeated in a command."""

RECORDED: Final = Reason(
    "undelivered",
    "It is recorded, and no engine has taken it up yet.",
    (Advice("perdure.open(...) in your program, or `perdure run`, runs one"),),
)
"""Of an instance whose start was posted: there is nothing more to know of it."""


async def see(
    queries: Queries,
    head: HeadRow,
    now: datetime,
    database: str,
    history: HistoryNow | None = None,
    *,
    code: FindCode | None = None,
) -> tuple[Seen, Words]:
    """All that is to be known of an instance, and what its dialect says of it. `database`: how the caller calls it.

    `history`: what came so far, if the caller has it. `code`: who finds the code of a workflow.
    """
    state, lines, open_now, _ = history or await read_now(queries, head.id)
    waiting = await with_jobs(queries, state, open_now)
    rows = await queries.workflows()
    mine = [row for row in rows if row.name == head.workflow]
    policy, words = _words(mine[-1].policy if mine else "", state.made)
    waiting = await with_schemas(code, head, waiting)
    owner = await queries.owner()
    children: dict[str, str] = {}
    tasks: dict[str, TaskRow] = {}
    for open in waiting:
        intent = state.at(open.location)
        if intent is not None and isinstance(intent.effect, Child):
            child = await queries.head(Address(intent.effect.workflow, intent.effect.key))
            children |= {} if child is None else {open.location: child.status}
            task = None if child is None else await queries.task(child.id)
            tasks |= {} if task is None else {open.location: task}
    definition = await stored(queries, head.workflow, head.version) if policy.exact else None
    seen = Seen(
        now=now,
        summary=summary(head),
        state=state,
        lines=lines,
        waiting=waiting,
        policy=policy,
        definition=None if definition is None else definition.definition,
        undelivered=undelivered(await queries.undelivered(state.address)),
        children=children,
        tasks=tasks,
        engine=None if owner is None else str(owner),
        workflows=frozenset(row.name for row in rows),
        versions=frozenset(row.version for row in mine),
        rules=await rules_in_force(queries),
        database=database,
        server=is_server(database),
    )
    return seen, words


async def with_jobs(queries: Queries, state: Instance, waiting: Sequence[Waiting]) -> list[Waiting]:
    """What is open, with the jobs of the steps that are in queues."""
    found = []
    for open in waiting:
        intent = state.at(open.location) if open.kind == "call" and not open.held else None
        job = None if intent is None else await queries.job(intent.id)
        found.append(open if job is None else replace(open, job=job))
    return found


async def with_schemas(code: FindCode | None, head: HeadRow, waiting: list[Waiting]) -> list[Waiting]:
    """What is open, with the schemas of the messages that are waited for, where the code of the workflow has them."""
    if code is None or not any(open.kind == "wait" for open in waiting):
        return waiting
    found = await code(head.workflow, head.version)
    return [
        replace(open, schema=schema_of_message(found, open.what)) if open.kind == "wait" else open for open in waiting
    ]


async def words_for(queries: Queries, workflow: str, made: bool) -> tuple[Policy, Words]:
    """What holds for the instances of a workflow, and what its dialect says of them."""
    policies = [row.policy for row in await queries.workflows() if row.name == workflow]
    return _words(policies[-1] if policies else "", made)


def _words(policy: str, made: bool) -> tuple[Policy, Words]:
    known = decode_policy(policy)
    words = words_of(known.noun if policy else None, made)
    return known if policy else words.policy, words


async def rules_in_force(queries: Queries) -> Rules:
    head = await queries.head(RULER)
    return decode_rules(None if head is None else await queries.published(head.id, IN_FORCE))


def reasons(seen: Seen, words: Words) -> list[Reason]:
    return Reasons(seen, words).all()


class Reasons:
    def __init__(self, seen: Seen, words: Words) -> None:
        self._seen = seen
        self._words = words

    def all(self) -> list[Reason]:
        seen, status = self._seen, self._seen.state.status
        if status in TERMINAL:
            return [self._words.ended(seen) or self._ended(), *self._words.besides(seen)]
        lacking, undelivered = [*self._lacking()], [*self._undelivered()]
        if lacking and seen.policy.exact:  # whatever else it waits for, it cannot be told
            return [*lacking, *undelivered]
        found = [self._stuck()] if status is Status.STUCK else [self._open(open) for open in seen.waiting]
        found = [*self._cancel(), *sorted(found, key=lambda each: each.kind != "paused"), *lacking]
        idle = None if found else self._words.idle(seen)
        return [*([idle] if idle is not None else []), *found, *self._no_engine(), *undelivered]

    # ---- what is open --------------------------------------------------------------------------------------

    def _open(self, open: Waiting) -> Reason:
        told = self._words.open(self._seen, open)
        if told is not None:
            return told
        match open.kind:
            case "call":
                return self._queued(open) or self._step(open)
            case "timer":
                return self._timer(open)
            case "wait":
                return self._message(open)
            case "child" | "task":
                return self._child(open)
            case kind:
                text = f"It waits for the {kind} {open.location}{self._seen.since(open)}."
                return Reason(kind, text, (), open)

    def _name(self, open: Waiting) -> str:
        return self._words.name(open.location) or f"The step {open.location}"

    def _queued(self, open: Waiting) -> Reason | None:
        """A step of a queue: who has it, or who would."""
        job, since = open.job, self._seen.since(open)
        if job is None:
            return None
        if job.worker:
            who = holder(job.worker, when(job.claimed) if job.claimed else None, self._seen.now)
            text = f"{self._name(open)} runs{since} ({_nth(open)}, queue {job.queue}, {who})."
            return Reason("step", text, (), open)
        text = f"{self._name(open)} is in the queue {job.queue}{since} ({_nth(open)}), for {job.function}. "
        if self._seen.server:
            worker = ("worker", job.function.partition(":")[0], "--queue", job.queue)
            dispatch = ("dispatch", job.queue, "--dask", "ADDRESS")
            text += job.note or (
                "No worker has it: all are busy, or none has that function. A worker has what its modules define or "
                "import by name, and every @perdure.step of a module that they import."
            )
            todos = Advice("to serve the queue", worker), Advice("or on a cluster", dispatch)
            return Reason("queued", text, todos, open)
        text += "It runs if the engine serves the queue."
        todo = Advice(f"to serve it: perdure.open(..., queues={{{job.queue!r}: N}})")
        return Reason("queued", text, (todo,), open)

    def _step(self, open: Waiting) -> Reason:
        seen, name = self._seen, self._name(open)
        if open.held:
            text = f"{name} waits for a free place in the executor {open.what}{seen.since(open)}."
            hold = Advice("what may hold them", ("ls", "--status", "running"))
            more = Advice(f"more places: perdure.open(..., {PLACES.get(open.what, open.what)}=N)")
            return Reason("held", text, (hold, more), open)
        details = f"({_nth(open)}, executor {open.what}{seen.cut(open)})"
        if seen.engine is not None:
            text = f"{name} runs{seen.since(open)} {details}."
        else:
            then = "its outcome will be unknown" if open.once else "it runs again"
            text = f"{name} was begun {seen.ago(open.since)} {details}, and nobody runs it now: "
            text += f"when an engine does, {then}."
        last = seen.last_error(open.location)
        return Reason("step", text + (f" The attempt before failed: {last}" if last else ""), (), open)

    def _timer(self, open: Waiting) -> Reason:
        assert open.due is not None
        when = self._seen.at(open.due)
        if not self._seen.policy.wake or not is_sleep(open.location):
            return Reason("timer", f"It waits for the timer {open.location} until {when}.", (), open)
        wake = Advice(command=self._seen.command("wake", open.location))
        return Reason("timer", f"It sleeps at {open.location} until {when}.", (wake,), open)

    def _message(self, open: Waiting) -> Reason:
        names = open.what.split(", ") if open.what else []
        wanted = " or ".join(names) if names else "of any name"
        send = Advice(command=self._seen.command("send", names[0] if names else "NAME", "{}"))
        text = f"It waits for a message {wanted}{self._seen.since(open)}{self._seen.deadline(open)}."
        return Reason("wait", text, (send,), open)

    def _child(self, open: Waiting) -> Reason:
        if open.location in self._seen.tasks:
            return self._task(info_of(self._seen.tasks[open.location]), open)
        status = self._seen.children.get(open.location)
        told = "is about to start" if status is None else f"is {status}"
        text = f"It waits{self._seen.since(open)} for its child {open.what}, which {told}."
        return Reason("child", text, (Advice(command=("why", open.what)),), open)

    def _task(self, task: TaskInfo, open: Waiting) -> Reason:
        people = ", ".join([*task.users, *(f"role {role}" for role in task.roles)])
        who = f", held by {task.assignee}" if task.assignee else f", open for {people}" if people else ""
        if task.held_since is not None:
            who += f" since {span((self._seen.now - task.held_since).total_seconds())}"
        due = overdue(task, self._seen.now)
        late = f", due {due}" if due.startswith("in ") else f", {due}" if due else ""
        text = f"It waits{self._seen.since(open)} for the task {task.name} ({task.id}){who}{late}."
        person = task.assignee or next(iter(task.users), "ID")
        roles = [] if task.assignee or task.users else [word for role in task.roles for word in ("--role", role)]
        complete = ("tasks", "complete", task.id, "--as", person, *roles)
        return Reason("task", text, (Advice("to complete it", complete),), open)

    # ---- what stands in the way ----------------------------------------------------------------------------

    def _cancel(self) -> Iterator[Reason]:
        if self._seen.state.cancelled:
            asked = next(line for line in reversed(self._seen.lines) if line.event == "cancel")
            reason = f" ({asked.value})" if asked.value else ""
            text = f"It was asked to cancel {self._seen.ago(asked.at)}{reason}, and is cleaning up."
            yield Reason("cancel", text)

    def _stuck(self) -> Reason:
        seen, stuck = self._seen, self._seen.state.stuck
        assert stuck is not None
        last = next(line for line in reversed(seen.lines) if line.outcome)
        place = f" at {stuck.location}" if stuck.location else f" at entry {last.number} ({last.name})"
        since = span((seen.now - last.at).total_seconds())
        text = f"It is stuck{place} since {since}: {error_line(stuck.error)}"
        return Reason("stuck", text, self._words.ways_out(seen, stuck) or self._ways_out(stuck))

    def _ways_out(self, stuck: Stuck) -> tuple[Advice, ...]:
        command = self._seen.command
        retry, look = command("retry"), command("debug", *CODE)
        match stuck.error.type:
            case "OutcomeUnknown":
                took, failed = command("settle", stuck.location, "ok"), command("settle", stuck.location, "error")
                return (
                    Advice("find out whether it took effect; if so (its result may follow as JSON)", took),
                    Advice("if not, and it is to count as failed", failed),
                    Advice("if not, and it is to run again", retry),
                )
            case "Divergence":
                advice = stuck.error.message.strip().partition("\n")[2] or "put the old code back"
                return (
                    Advice("see where the code does something else", look),
                    *map(Advice, advice.splitlines()),
                    Advice("put that right, then check", ("replay", *CODE)),
                    Advice("with that code in the engine", retry),
                )
            case _:
                return Advice("see where that comes from", look), Advice("with mended code in the engine", retry)

    def _no_engine(self) -> Iterator[Reason]:
        seen = self._seen
        if seen.engine is None:
            text = f"No engine runs on {seen.database}: nothing moves until one does."
            todo = Advice("perdure.open(...) in your program runs one")
            if seen.policy.created == "start":
                code = f"MODULE:{seen.summary.workflow}" if seen.definition is None else "FILE"
                run = ("run", code, *self._start())
                todo = Advice(f"{todo.text}, and so does", run)
            yield Reason("no-engine", text, (todo,))

    def _lacking(self) -> Iterator[Reason]:
        """The engine that runs does not have the code that this instance needs."""
        seen, head = self._seen, self._seen.summary
        if seen.engine is None:
            return
        if not seen.policy.exact:
            if head.workflow not in seen.workflows:
                text = f"The engine that runs, {seen.engine}, does not know the workflow {head.workflow!r}."
                todo = Advice("register it: perdure.open(url, workflows=[...])")
                yield Reason("unknown-workflow", text, (todo,))
            return
        needed = [head.version]
        if seen.rules.outdated(head.workflow, head.version):
            needed.append(seen.rules.versions[head.workflow])  # it migrates to that before anything else
        for version in needed:
            if version not in seen.versions:
                text = (
                    f"The engine that runs, {seen.engine}, does not have the code of {head.workflow} in version "
                    f"{version}"
                )
                has = f"it has {', '.join(sorted(seen.versions))}" if seen.versions else "it has no version of it"
                todo = Advice("open it with this definition too: perdure.open(url, workflows=[...])")
                rest = "Nothing is lost: events, receipts and alarms wait until an engine has it."
                yield Reason("unknown-workflow", f"{text}; {has}. {rest}", (todo,))
                return

    def _start(self) -> list[str]:
        """The options of a command that starts it as it was started."""
        given = self._seen.lines[0].value
        text = one_line(given)
        value = [] if not given else ["--input", text if len(text) <= INPUT_MAX else "@FILE"]
        return [*value, "--key", self._seen.summary.key]

    def _undelivered(self) -> Iterator[Reason]:
        for line in self._seen.undelivered:
            text = f"On its way, not yet taken by an engine: {line.name}, {self._seen.ago(line.at)}."
            yield Reason("undelivered", text)

    # ---- the end -------------------------------------------------------------------------------------------

    def _ended(self) -> Reason:
        seen, when = self._seen, self._seen.ago(self._seen.summary.changed_at)
        again = ("start", seen.summary.workflow, *self._start(), "--reuse", "failed")
        match seen.state.status:
            case Status.COMPLETED:
                return Reason("completed", f"It completed {when}, with the result {short(seen.result)}.")
            case Status.CANCELLED:
                reason = seen.error.message if seen.error is not None else ""
                text = f"It was cancelled {when}" + (f": {reason}" if reason else ".")
                return Reason("cancelled", text, (Advice("to start it again", again),))
            case _:
                look = Advice("see where that comes from", seen.command("debug", *CODE))
                retry = Advice("to run again what failed", seen.command("retry"))
                tries = (look, retry) if self._words.policy.retry else ()  # what a verb refuses is no advice
                todo = (*tries, Advice("to start it from the beginning", again))
                return Reason("failed", f"It failed {when}: {error_line(seen.error)}", todo)


def _nth(open: Waiting) -> str:
    return f"attempt {open.attempt}" + (f", handed out {open.delivery} times" if open.delivery > 1 else "")
