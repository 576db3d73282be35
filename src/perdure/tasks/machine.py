"""The machine of one task. People send it messages, its journal is its history, its end is the owner's receipt.

Each verb is one entry. A verb that is refused changes nothing; its sender reads the answer by the id of the message.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from perdure.codec import decode, digest, encode, from_plain, is_text, to_plain
from perdure.codec.jsonschema import read
from perdure.errors import BadCall, CallerError, Misfit, Problem
from perdure.kernel.asked import Actor
from perdure.kernel.decision import NOTHING, Decision, Outcome
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Timer
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Started
from perdure.kernel.identity import Identity
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import TIME_MAX, Moment, at_of, when
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import Failure
from perdure.kernel.routing import Subscription
from perdure.kernel.status import Status

from . import votes
from .life import TaskStatus, changed
from .model import COMMENT_MAX, WORKFLOW, Question, checked_priority, moment_of, texts
from .rights import VERBS, Refusal, TaskRequest, refusal
from .row import State, published

BAD_ANSWER: Final = "bad-answer"
BAD_REQUEST: Final = "bad-request"
EXPIRED: Final = "TaskExpired"
CANCELLED: Final = "TaskCancelled"


class TaskMachine:
    def __init__(self, address: str, snapshot: bytes | None) -> None:
        workflow, _, key = address.partition("/")
        self._address = Address(workflow, key)
        self._state: State | None = None if snapshot is None else from_plain(decode(snapshot), State)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started():
                return self._begin(event, when(moment.at))
            case Message():
                return self._asked(event, moment)
            case ReceiptArrived():
                self._now.timer_due = None
                return self._time_passed(when(moment.at))
            case CancelAsked(reason=reason):
                return self._cancelled("", reason or "its owner needs it no longer", when(moment.at))
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes | None:
        return None if self._state is None else encode(to_plain(self._state, State))

    def dispose(self) -> None:
        self._state = None

    @property
    def _now(self) -> State:
        assert self._state is not None, "a task begins with its question"
        return self._state

    # ---- the beginning -------------------------------------------------------------------------------------------

    def _begin(self, event: Started, now: datetime) -> Decision:
        asked = from_plain(decode(event.input), Question)
        self._state = State(
            question=asked,
            created_at=now,
            generation=event.generation,
            priority=asked.priority,
            due=asked.due,
            expire=asked.expire,
            roles=asked.roles,
            users=asked.users,
        )
        if asked.assignee:
            self._hold(asked.assignee, now)
        return self._changed()

    # ---- verbs ---------------------------------------------------------------------------------------------------

    def _asked(self, message: Message, moment: Moment) -> Decision:
        """A verb: its arguments are the body, its actor stands beside it."""
        state, asked = self._now, message.asked
        arguments = decode(message.body)
        if message.name not in VERBS or asked is None or asked.by is None or not isinstance(arguments, dict):
            return _refused(message, BAD_REQUEST, "a task takes a verb with its arguments from an actor")
        try:
            to, override = _actor(arguments.get("to")), bool(arguments.get("override"))
            request = TaskRequest(message.name, asked.by, to, override, asked.reason)
            against = refusal(state.standing, request)
            if against is None:
                return self._granted(message, request, arguments, moment)
        except BadCall as error:
            return _refused(message, BAD_REQUEST, str(error))
        return self._refuse(message, against)

    def _granted(self, message: Message, request: TaskRequest, arguments: dict[str, Any], moment: Moment) -> Decision:
        now, by = when(moment.at), request.by
        match request.verb:
            case "claim":
                self._hold(by.id, now)
            case "assign":
                assert request.to is not None
                self._hold(request.to.id, now)
            case "release":
                self._release()
            case "change":
                self._change(arguments, now)
            case "comment":
                checked_comment(arguments.get("text"))
                return _accepted(message, Decision(publish=(published(self._now),)), publish=False)
            case "escalate":
                self._escalate_by_hand(arguments)
            case "cancel":
                return _accepted(message, self._cancelled(by.id, request.reason, now))
            case _:
                return self._complete(message, arguments.get("answer"), by, moment)
        return _accepted(message, self._changed())

    def _complete(self, message: Message, given: Any, by: Actor, moment: Moment) -> Decision:
        state, now = self._now, when(moment.at)
        recorded = moment.recorded
        if recorded is not None and recorded.outcome is None and not recorded.publish:
            return recorded  # it was refused: the verdict of then counts, whatever a newer validator says
        try:
            answer = fitting(state.question.form, given)
        except Misfit as misfit:
            if recorded is None:
                problems = [[each.where, each.text] for each in misfit.problems]
                return _refused(message, BAD_ANSWER, "the answer does not fit", problems=problems)
            answer = given
        outcome = state.question.outcome_of(answer)
        quorum = state.question.quorum
        if quorum is None:
            return _accepted(message, self._completed(outcome, answer, by.id, (by.id,), now))
        vote = votes.Vote(by.id, outcome, answer, now)
        state.votes = (*(each for each in state.votes if each.by != by.id), vote)
        decided = votes.decided(state.votes, quorum, state.question.outcomes)
        if decided is None:
            return _accepted(message, self._changed())
        counted = tuple([each.by for each in state.votes if decided in (votes.NO_QUORUM, each.outcome)])
        deciding = None if decided == votes.NO_QUORUM else answer
        return _accepted(message, self._completed(decided, deciding, by.id, counted, now))

    def _change(self, arguments: dict[str, Any], now: datetime) -> None:
        state = self._now
        priority = state.priority if arguments.get("priority") is None else checked_priority(arguments["priority"])
        due = moment_of(arguments["due"], now, "due") if "due" in arguments else state.due
        expire = moment_of(arguments["expire"], now, "expire") if "expire" in arguments else state.expire
        state.priority, state.due, state.expire = priority, due, expire

    def _escalate_by_hand(self, arguments: dict[str, Any]) -> None:
        roles, users = texts(arguments.get("roles", ()), "roles"), texts(arguments.get("users", ()), "users")
        priority = arguments.get("priority")
        self._escalate(
            roles, users, bool(arguments.get("release")), None if priority is None else checked_priority(priority)
        )

    def _hold(self, who: str, now: datetime) -> None:
        state = self._now
        if state.assignee != who:
            state.held_since = now
        state.assignee, state.status = who, changed(state.status, TaskStatus.ASSIGNED)

    def _release(self) -> None:
        state = self._now
        state.assignee, state.held_since = "", None
        state.status = changed(state.status, TaskStatus.OPEN)

    def _escalate(self, roles: tuple[str, ...], users: tuple[str, ...], release: bool, priority: int | None) -> None:
        state = self._now
        state.roles = tuple(dict.fromkeys((*state.roles, *roles)))
        state.users = tuple(dict.fromkeys((*state.users, *users)))
        if release and state.assignee:
            self._release()
        if priority is not None:
            state.priority = priority

    # ---- time ----------------------------------------------------------------------------------------------------

    def _time_passed(self, now: datetime) -> Decision:
        """The timer fired: everything that is due happens, in order, in this one entry."""
        state = self._now
        planned = state.question.escalate
        while (due := self._next()) is not None and due <= now:
            if state.escalated < len(planned) and planned[state.escalated].at == due:
                step = planned[state.escalated]
                state.escalated += 1
                self._escalate(step.roles, step.users, step.release, step.priority)
            else:
                return self._expired(now)
        return self._changed()

    def _next(self) -> datetime | None:
        """When the next thing happens by itself."""
        state = self._now
        planned = state.question.escalate
        times = [state.expire] if state.expire is not None else []
        if state.escalated < len(planned):
            times.append(planned[state.escalated].at)
        return min(times, default=None)

    # ---- decisions -----------------------------------------------------------------------------------------------

    def _changed(self) -> Decision:
        """What follows from a change that does not end the task: its row, and at most one timer."""
        state = self._now
        wanted, before = self._next(), state.timer_due
        row = (published(state),)
        if wanted == before:
            return Decision(publish=row)
        closed = () if before is None else (self._timer_id(),)
        state.timer_due = wanted
        if wanted is None:
            return Decision(withdraw=closed, publish=row)
        state.timers += 1
        return Decision((Timer(self._timer(), min(at_of(wanted), TIME_MAX)),), closed, publish=row)

    def _timer(self) -> str:
        """The location of the last timer: a timer that is opened again has a location of its own."""
        return "next" if self._now.timers == 1 else f"next#{self._now.timers}"

    def _timer_id(self) -> bytes:
        return Identity(self._address, self._now.generation).intent(self._timer(), 1)

    def _completed(self, outcome: str, answer: Any, by: str, counted: tuple[str, ...], now: datetime) -> Decision:
        state = self._now
        state.outcome, state.answer = outcome, digest(encode(answer))
        all_votes = [[vote.by, vote.outcome, vote.answer, vote.at] for vote in state.votes]
        value = {"outcome": outcome, "answer": answer, "by": by, "at": now, "votes": all_votes}
        return self._end(TaskStatus.COMPLETED, counted, now, Outcome(Status.COMPLETED, encode(value)))

    def _cancelled(self, by: str, reason: str, now: datetime) -> Decision:
        failure = Failure(CANCELLED, reason, encoded=encode({"by": by}), retry=False)
        return self._end(TaskStatus.CANCELLED, (by,) if by else (), now, Outcome(Status.CANCELLED, error=failure))

    def _expired(self, now: datetime) -> Decision:
        state = self._now
        text = f"no answer came until {state.expire:%Y-%m-%d %H:%M:%S} UTC"
        failure = Failure(EXPIRED, f"the task {state.question.name} has expired: {text}", retry=False)
        return self._end(TaskStatus.EXPIRED, (), now, Outcome(Status.FAILED, error=failure))

    def _end(self, status: TaskStatus, by: tuple[str, ...], now: datetime, outcome: Outcome) -> Decision:
        state = self._now
        state.status = changed(state.status, status)
        state.ended_at, state.ended_by = now, by
        return Decision(publish=(published(state),), outcome=outcome)

    def _refuse(self, message: Message, against: Refusal) -> Decision:
        return _refused(message, against.code, against.text, holder=self._now.assignee)


def fitting(form: dict[str, Any] | None, answer: Any) -> Any:
    """The answer as its form means it. Raises `Misfit` with everything that is wrong."""
    if form is None:
        if answer is not None:
            raise Misfit([Problem("", "this task has no form: its answer is null")])
        return None
    return read(form, answer)


def checked_comment(text: Any) -> str:
    if not isinstance(text, str) or not is_text(text) or not text.strip() or len(text) > COMMENT_MAX:
        raise BadCall(f"a comment is a text of 1 to {COMMENT_MAX} characters, found {text!r:.80}")
    return text


def _actor(plain: Any) -> Actor | None:
    """To whom a task is assigned: an id and roles."""
    if plain is None:
        return None
    if not isinstance(plain, list) or len(plain) != 2:
        raise BadCall(f"a task is assigned to an actor, found {plain!r:.80}")
    return Actor(plain[0], plain[1])


def _accepted(message: Message, decision: Decision, *, publish: bool = True) -> Decision:
    """The decision, and the row after it as the response to the sender of the verb."""
    ((_, value),) = decision.publish
    respond = ((message.id, value),) if message.id else ()
    return Decision(
        decision.open,
        decision.withdraw,
        publish=decision.publish if publish else (),
        outcome=decision.outcome,
        respond=respond,
    )


def _refused(message: Message, code: str, text: str, **more: Any) -> Decision:
    if not message.id:
        return NOTHING
    return Decision(respond=((message.id, encode({"refused": code, "text": text, **more})),))


class TaskWorkflow:
    """The built-in workflow of tasks. Every engine has it, and only other instances start it."""

    name = WORKFLOW
    version = "1"
    parameters = b""
    policy = Policy(
        "task",
        created="engine",
        retry=False,
        rewind=False,
        fork=False,
        wake=False,
        why={"start": "a task: a workflow asks for it, `await ctx.task(...)` in a flow"},
    )
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def machine(self, address: str, snapshot: bytes | None) -> TaskMachine:
        return TaskMachine(address, snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation(advice="a task runs code of perdure alone: report it")

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        raise CallerError("a task is asked for by a workflow: `await ctx.task(...)` in a flow")

    def encode_plain_input(self, value: Any) -> bytes:
        return self.encode_input((), {})

    def decode_result(self, value: bytes) -> Any:
        return decode(value)


TASKS: Final = TaskWorkflow()
