"""The machine of one task. What people do to it are messages, its journal is its history, its end is the owner's receipt.

Each verb is one entry. A verb that is refused changes nothing; its sender reads the answer by the id of the message.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.codec import decode, digest, encode, from_plain, to_plain
from perdure.codec.jsonschema import read
from perdure.errors import Misfit, Problem
from perdure.kernel.asked import Actor
from perdure.kernel.decision import NOTHING, Decision, Outcome
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Timer
from perdure.kernel.events import Address, CancelAsked, Event, Message, Received, Started
from perdure.kernel.identity import Identity
from perdure.kernel.limits import Limits
from perdure.kernel.moment import Moment, at_of, when
from perdure.kernel.receipt import Failure
from perdure.kernel.routing import Subscription
from perdure.kernel.status import Status

from . import votes
from .life import ENDED, TaskStatus, changed
from .model import COMMENT_MAX, ROW, WORKFLOW, Question, checked_priority, moment_of, texts
from .rights import VERBS, Refusal, Request, Standing, refusal

BAD_ANSWER: Final = "bad-answer"
BAD_REQUEST: Final = "bad-request"


class State(msgspec.Struct):
    """What a task is now. The question does not change; what a verb changes of it stands here."""

    question: Question
    created_at: datetime
    status: TaskStatus = TaskStatus.OPEN
    assignee: str = ""
    held_since: datetime | None = None
    priority: int = 50
    due: datetime | None = None
    expire: datetime | None = None
    roles: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    escalated: int = 0  # how many of the planned escalations have happened
    votes: tuple[votes.Vote, ...] = ()
    timer: int = 0  # the number of the open timer; 0: none is open
    timers: int = 0  # how many timers were opened
    generation: int = 1
    seed: bytes = b""

    @property
    def standing(self) -> Standing:
        asked = self.question
        shared = asked.quorum is not None
        return Standing(self.status, self.roles, self.users, asked.managers, asked.exclude, self.assignee, shared)


class TaskMachine:
    def __init__(self, address: str, snapshot: bytes | None) -> None:
        workflow, _, key = address.partition("/")
        self._address = Address(workflow, key)
        self._state: State | None = None if snapshot is None else from_plain(decode(snapshot), State)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started():
                return self._begin(event, moment)
            case Message():
                return self._asked(event, moment)
            case Received():
                return self._time_passed(when(moment.at))
            case CancelAsked(reason=reason):
                return self._end(
                    TaskStatus.CANCELLED, when(moment.at), (), reason=reason or "its owner needs it no longer"
                )
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes | None:
        return None if self._state is None else encode(to_plain(self._state, State))

    def dispose(self) -> None:
        self._state = None

    # ---- the beginning -------------------------------------------------------------------------------------------

    def _begin(self, event: Started, moment: Moment) -> Decision:
        asked = from_plain(decode(event.input), Question)
        state = self._state = State(
            question=asked,
            created_at=when(moment.at),
            priority=asked.priority,
            due=asked.due,
            expire=asked.expire,
            roles=asked.roles,
            users=asked.users,
            generation=event.generation,
        )
        if asked.assignee:
            self._hold(asked.assignee, state.created_at)
        return self._changed(withdraw=())

    # ---- verbs ---------------------------------------------------------------------------------------------------

    def _asked(self, message: Message, moment: Moment) -> Decision:
        """A verb: its arguments are the body, its actor stands beside it."""
        state, now = self._now, when(moment.at)
        arguments = decode(message.body) if message.body else {}
        by = None if message.asked is None else message.asked.by
        if message.name not in VERBS or by is None or not isinstance(arguments, dict):
            return _refused(message, BAD_REQUEST, "a task takes a verb with its arguments from an actor")
        reason = message.asked.reason if message.asked is not None else ""
        request = Request(message.name, by, _actor(arguments.get("to")), bool(arguments.get("override")), reason)  # type: ignore[arg-type]
        if (against := refusal(state.standing, request)) is not None:
            return self._refuse(message, against)
        match message.name:
            case "claim":
                if state.assignee != by.id:
                    self._hold(by.id, now)
            case "assign":
                assert request.to is not None
                self._hold(request.to.id, now)
            case "release":
                self._release()
            case "change":
                return self._change(message, arguments, now)
            case "comment":
                if not isinstance(arguments.get("text"), str) or len(arguments["text"]) > COMMENT_MAX:
                    return _refused(message, BAD_REQUEST, f"a comment is a text of at most {COMMENT_MAX} characters")
            case "escalate":
                return self._escalate_by_hand(message, arguments)
            case "cancel":
                end = self._end(TaskStatus.CANCELLED, now, (by.id,), reason=reason)
                return self._answered(message, end)
            case "complete":
                return self._complete(message, arguments, by, moment)
        return self._answered(message, self._changed())

    def _complete(self, message: Message, arguments: dict[str, Any], by: Actor, moment: Moment) -> Decision:
        state, now = self._now, when(moment.at)
        recorded = None if moment.recorded is None else _response(moment.recorded, message)
        answer, problems = self._fitting(arguments.get("answer"), recorded)
        if problems:
            return _refused(message, BAD_ANSWER, "the answer does not fit", problems=problems)
        outcome = state.question.outcome_of(answer)
        quorum = state.question.quorum
        if quorum is None:
            return self._answered(message, self._completed(outcome, answer, (by.id,), now))
        vote = votes.Vote(by.id, outcome, answer, now)
        state.votes = (*(each for each in state.votes if each.by != by.id), vote)
        decided = votes.decided(state.votes, quorum, state.question.outcomes)
        if decided is None:
            return self._answered(message, self._changed())
        counted = tuple([each.by for each in state.votes if decided in (votes.NO_QUORUM, each.outcome)])
        deciding = None if decided == votes.NO_QUORUM else answer
        return self._answered(message, self._completed(decided, deciding, counted, now))

    def _fitting(self, answer: Any, recorded: dict[str, Any] | None) -> tuple[Any, list[Problem]]:
        """The answer as its form means it, or what is wrong with it. In a replay the recorded verdict counts."""
        form = self._now.question.answer
        if form is None:
            return None, [] if answer is None else [Problem("", "this task has no form: its answer is null")]
        try:
            return read(form, answer), []
        except Misfit as misfit:
            if recorded is not None and recorded.get("refused") != BAD_ANSWER:
                return answer, []
            return None, list(misfit.problems)

    def _change(self, message: Message, arguments: dict[str, Any], now: datetime) -> Decision:
        state = self._now
        try:
            if arguments.get("priority") is not None:
                state.priority = checked_priority(arguments["priority"])
            if "due" in arguments:
                state.due = moment_of(arguments["due"], now, "due")
            if "expire" in arguments:
                state.expire = moment_of(arguments["expire"], now, "expire")
        except ValueError as error:
            return _refused(message, BAD_REQUEST, str(error))
        return self._answered(message, self._changed())

    def _escalate_by_hand(self, message: Message, arguments: dict[str, Any]) -> Decision:
        try:
            roles, users = texts(arguments.get("roles", ()), "roles"), texts(arguments.get("users", ()), "users")
            priority = arguments.get("priority")
            self._escalate(
                roles, users, bool(arguments.get("release")), None if priority is None else checked_priority(priority)
            )
        except ValueError as error:
            return _refused(message, BAD_REQUEST, str(error))
        return self._answered(message, self._changed())

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
        state.timer = 0
        planned = state.question.escalate
        while state.escalated < len(planned) and planned[state.escalated].at <= now:
            if state.expire is not None and state.expire < planned[state.escalated].at:
                break
            step = planned[state.escalated]
            state.escalated += 1
            self._escalate(step.roles, step.users, step.release, step.priority)
        if state.expire is not None and state.expire <= now:
            return self._end(TaskStatus.EXPIRED, now, ())
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

    def _changed(self, withdraw: tuple[bytes, ...] | None = None) -> Decision:
        """What follows from a change that does not end the task: its row, and at most one timer."""
        state = self._now
        wanted = self._next()
        before = self._open_due
        publish = ((ROW, encode(self._row())),)
        if wanted == before:
            return Decision(publish=publish)
        closed = (self._timer_id(state.timer),) if state.timer else ()
        state.timer = 0
        self._open_due = wanted
        if wanted is None:
            return Decision(withdraw=closed, publish=publish)
        state.timers += 1
        state.timer = state.timers
        return Decision(open=(Timer(_location(state.timer), at_of(wanted)),), withdraw=closed, publish=publish)
