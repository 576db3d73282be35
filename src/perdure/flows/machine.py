"""The machine of a flow: a coroutine on a deterministic loop, and the operations that it has open.

One delivery: hand the event to whoever waits for it, run the loop until nothing is ready, and answer with
what was opened and withdrawn meanwhile. The coroutine itself is the state; `log.py` says how it is rebuilt.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Never

import msgspec

from perdure.codec import decode, encode, from_plain
from perdure.errors import BadCall, CallerError, Deadlock, Divergence, NotAwaited, PerdureError, RollBack, StepFailed
from perdure.kernel.decision import NOTHING, Decision, Outcome, Send, Stuck
from perdure.kernel.difference import Difference
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait, attempt_of, due_of
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    Received,
    Requested,
    Retried,
    Rewound,
    Settled,
    Started,
    Woken,
)
from perdure.kernel.identity import Identity
from perdure.kernel.machine import Rebuild
from perdure.kernel.moment import TIME_MAX, Moment, when
from perdure.kernel.past import Item as PastItem
from perdure.kernel.past import Past, read, write
from perdure.kernel.problem import Hook, Problem, ProblemKind, Report
from perdure.kernel.receipt import DONE, Failure, Receipt, causes_of, failure_of, is_interrupt
from perdure.kernel.replay import divergence
from perdure.kernel.status import Status

from . import scope as scopes
from .author import limited, same_operations
from .change import in_order
from .context import Context as FlowContext
from .log import Item, Log, Mark
from .loop import Evicted, FlowFuture, FlowLoop, FlowTask, source_of
from .mailbox import Mail, Mailbox
from .operation import AGAIN, SLEEP, Operation
from .relive import Anew, Lives, Reliving, failed_at
from .scope import Scope
from .undo import Undos, roll_back

if TYPE_CHECKING:
    from .author import Flow

CLEANUP: Final = "&cleanup"
"""The timer that bounds what `finally` blocks may do after a cancel, or after the flow has returned."""

REQUEST: Final = "&request "
"""What the ids of messages begin with that are requests of running steps."""

START: Final = "&start"
"""The timer of a flow that was started for later."""


class Held(msgspec.Struct, eq=False):
    """A message that was received by a task, and is to be completed."""

    mail: Mail
    location: str
    by: asyncio.Task[Any]
    entry: int  # in which it was received


class Said:
    """What one delivery says without waiting for an answer. Most say nothing."""

    __slots__ = ("answers", "noted", "published", "reports", "responded", "sent", "tags")

    def __init__(self) -> None:
        self.sent: list[Send] = []
        self.published: list[tuple[str, bytes]] = []
        self.tags: list[tuple[str, str | None]] = []
        self.noted: list[str] = []
        self.responded: list[tuple[str, bytes]] = []
        self.reports: list[Report] = []
        self.answers: list[tuple[bytes, str, bytes]] = []


class FlowMachine:
    # What few instances ever have, and nobody looks at while all goes well, is not made for each of them.
    noted_before: Collection[str] = ()  # by operations that are now decided anew
    _life = 0  # the entry of the last rewind
    _fired = (0, "")  # the last timer of asyncio that was over, and in which entry
    _rollback_opened: tuple[str, ...] = ()
    _undone: tuple[str, ...] = ()
    _requests: dict[str, bytes | None] | None = None  # of running steps, with the answers that the flow gave

    def __init__(self, flow: Flow[Any, Any], address: str, snapshot: bytes | None) -> None:
        self.flow = flow
        self.address = address
        self.key = ""
        self.started_by: str | None = None
        self.generation = 1
        self.loop = FlowLoop(self)  # type: ignore[abstract]  # the rest raises NotDurable
        self.moment = Moment(0, b"", 0)
        self.log = Log() if flow.loops or snapshot is not None else None
        self._identity: Identity | None = None
        self._main: FlowTask | None = None
        self._losers: dict[FlowTask, None] = {}
        self._operations: dict[bytes, Operation] = {}
        self._mailbox = Mailbox()
        self._held: dict[int, Held] = {}
        self._unsettled: dict[str, tuple[Operation, Stuck]] = {}
        self._undos: Undos | None = None
        self._undo_scopes: dict[str, Scope] = {}
        self._rollback: FlowTask | None = None
        self._cancel_undo = False
        self._taken: dict[int, str] = {}
        self._resume: dict[str, list[Mark]] = {}
        self._barriers: tuple[tuple[int, FlowFuture], ...] = ()
        self._cancel_reason: str | None = None
        self._forced = False
        self._disposed = False
        self.passed_by = 0  # the last delivery in which a removed operation went on
        self.lives: Lives | None = None
        self._reliving: Reliving | None = None
        self._event: Event | None = None  # which is delivered now, for the log...
        self._location = ""  # ...and the operation that it belongs to
        self._asked: Operation | None = None
        self._opened: dict[bytes, Effect] = {}
        self._withdrawn: list[bytes] = []
        self._said: Said | None = None
        if snapshot is not None:
            self._restore(snapshot)

    # ---- the contract (perdure.kernel.machine.Machine) -----------------------------------------------------

    def deliver(self, event: Event, moment: Moment) -> Decision:
        if type(event) is not Received and (rewound := _rewound_by(event)) is not None:
            return self._go_back(rewound, moment, fork=type(event) is Started)
        location = self._happened(event, moment)
        if self.log is not None:
            self._event, self._location = event, location
        self._run()
        decision = self._decision()
        recorded = self.moment.recorded
        if recorded is not None and self.passed_by == self.moment.number:
            decision = in_order(decision, recorded)
        if self.log is not None:
            self._remember(self.log, decision)
        return decision

    def _remember(self, log: Log, decision: Decision) -> None:
        event, moment, location = self._event, self.moment, self._location
        assert event is not None
        if type(event) is Message or type(event) is Requested:
            location = self._taken.pop(moment.number, "")
        self._log(log, moment, event, decision, location)

    @staticmethod
    def _log(log: Log, moment: Moment, event: Event, decision: Decision, location: str) -> None:
        recorded = decision
        if decision.reports or decision.answers:
            recorded = msgspec.structs.replace(decision, reports=(), answers=())
        log.append(Item(moment.number, moment.at, event, recorded, location, seed=moment.seed))

    def work(self, intent: bytes) -> object:
        operation = self._operations.get(intent)
        return None if operation is None else operation.work

    def snapshot(self) -> bytes | None:
        """The pruned log, if it really rebuilds what runs here: a snapshot is never the truth."""
        if self.log is None:
            if self.flow.loops:  # a loop began, and nothing in the flow's own code had named one
                raise Rebuild
            return None
        data = self.log.save()
        if data is None:
            return None
        try:
            twin = FlowMachine(self.flow, self.address, data)
        except Exception:  # an iteration had left more behind than its state: the journal goes on being read whole
            return None
        same = twin._shape() == self._shape()
        twin.dispose()
        return data if same else None

    def dispose(self) -> None:
        """Let go of the coroutines. Their `finally` blocks run, as Python has it, but can open nothing."""
        self._disposed = True
        for operation in self._operations.values():
            if operation.future is not None:
                operation.future.cancel()  # it forgets the task that awaits it, which would hold it in turn
        self._operations.clear()
        self._asked = None
        self._held.clear()
        self._main = None
        self.loop.dispose()

    # ---- one delivery --------------------------------------------------------------------------------------

    def _happened(self, event: Event, moment: Moment) -> str:
        """Tell whoever waits. The answer is the location of the operation that the event belongs to."""
        self.moment = moment  # as `_begin`, without the calls: this is done at every step
        loop, now = self.loop, moment.at
        if now < loop.now:
            loop.set(now)
        loop.now = now
        self._opened.clear()
        self._withdrawn.clear()
        location = ""
        if type(event) is Received:  # first, because most events are receipts
            location = self._received(event)
            if self._barriers:
                self._release_barriers(moment.number)
            return location
        match event:
            case Message():
                self.hand_over(Mail(moment.number, event))
            case Started():
                self._start(event, new=moment.recorded is None or _failed_at_once(moment.recorded))
            case Requested():
                self._requested(event)
            case Woken(location=asked):
                location = self._wake(asked)
            case Settled(location=at, receipt=receipt):
                location = self._settled(at, receipt)
            case Retried():
                location = self._settled("", AGAIN)
            case CancelAsked(reason=reason, undo=undo):
                self._cancel_reason, self._cancel_undo = reason, undo
                if not undo or self._rollback is None:  # else what could not be undone is still to be undone
                    self._unsettled.clear()
                assert self._main is not None
                self._main.cancel()
            case _:
                raise BadCall(f"a flow takes no {type(event).__name__} event")
        if self._barriers:
            self._release_barriers(moment.number)
        return location

    def _requested(self, event: Requested) -> None:
        """A running step asks. The request is a message; one that comes again hears the answer of the first."""
        id = f"{REQUEST}{event.intent.hex()} {event.id}"
        if self._requests is None:
            self._requests = {}
        if id not in self._requests:
            self._requests[id] = None
            self.hand_over(Mail(self.moment.number, Message(event.name, event.body, id)))
        elif (known := self._requests[id]) is not None:
            self._said = self._said or Said()
            self._said.answers.append((event.intent, event.id, known))

    def _answer_request(self, message: Message, response: bytes | None) -> None:
        assert self._requests is not None, "a request was asked"
        asker, _, id = message.id.removeprefix(REQUEST).partition(" ")
        answer = encode({"v": None if response is None else decode(response)})
        self._requests[message.id] = answer
        self._saying().answers.append((bytes.fromhex(asker), id, answer))

    def _begin(self, moment: Moment) -> None:
        self.moment = moment
        self.loop.set(moment.at)
        self._opened.clear()
        self._withdrawn.clear()

    def _start(self, event: Started, *, new: bool) -> None:
        """`new`: arguments that the code does not take are refused. In a replay the code may have taken them then.

        A refusal is recorded with this very delivery, however long the start is delayed: a replay finds it there.
        """
        due = event.due
        self.key, self.generation = event.key, event.generation
        self.started_by = None if event.asked is None or event.asked.by is None else event.asked.by.id
        self.loop.started_at = self.moment.at
        self.loop.salt(event.seed)
        self._identity = Identity(Address(event.workflow, event.key), event.generation)
        try:
            args, kwargs = self.flow.signature.call_args(decode(event.input), strict=new)
            body = self.flow.function(FlowContext(self), *args, **kwargs)
        except CallerError as error:  # started by name, from where nobody could check the input
            body = _raise(error)
            due = 0 if new else due
        if due > self.moment.at:
            body = self._later(due, body)
        self._main = self.loop.spawn(body, Scope("", self.flow.strict_names, self), Context(), self.flow.name)

    async def _later(self, due: int, body: Coroutine[Any, Any, Any]) -> Any:
        """The flow, but not before its time."""
        try:
            await self.sleep(START, due)
        except BaseException:
            body.close()
            raise
        return await body

    async def sleep(self, location: str, due: int) -> None:
        """A timer that can be woken."""
        await self.answer(self.open(Timer(location, due), SLEEP))

    def _wake(self, location: str) -> str:
        """End the sleep at a location, or all of them. The location, if it was one."""
        asleep = [operation for operation in self._operations.values() if operation.work is SLEEP]
        woken = [operation for operation in asleep if location in ("", operation.effect.location)]
        for operation in woken:
            assert operation.future is not None
            self.withdraw(operation)
            if not operation.future.done():
                operation.future.set_result(DONE)
        return woken[0].effect.location if len(woken) == 1 else ""

    def _received(self, event: Received) -> str:
        operation = self._operations.pop(event.intent)
        effect, future = operation.effect, operation.future
        if operation.settle and event.receipt.status == "unknown":
            return self._stop_at(operation, event.receipt)
        if type(effect) is Wait:
            self._mailbox.forget(operation, effect)
        if future is None:
            assert operation.fire is not None
            self._fired = self.moment.number, effect.location
            operation.fire()
        elif not future.done():
            future.set_result(event.receipt)
        return effect.location

    def _stop_at(self, operation: Operation, receipt: Receipt) -> str:
        """Nobody knows whether the step took effect: a person must say so. Nothing else is delivered before."""
        effect, error = operation.effect, receipt.error or Failure("unknown", "no reason is known")
        assert type(effect) is Call, "nothing else is settled"
        location = effect.location
        self.report(operation.hooks, operation.kind, location, effect.attempt, error)
        text = f"whether step {location!r} took effect is not known: {error.message}"
        self._unsettled[location] = operation, Stuck(Failure("OutcomeUnknown", text, retry=False), location)
        return location

    async def ask_person(self, location: str, error: StepFailed) -> Receipt:
        """What was done at a location cannot be undone by us: a person must help."""
        text = f"what {location!r} did could not be undone: {error}"
        stuck = Stuck(Failure("UndoFailed", text, retry=False), location)
        operation = Operation(b"", Timer(location, 0), self.loop.create_future())
        self._unsettled[location] = operation, stuck
        receipt: Receipt = await operation.future  # type: ignore[misc]
        return receipt

    def _settled(self, location: str, receipt: Receipt) -> str:
        """A person has answered for a location; empty: for the one at which the flow is stuck."""
        location = location or next(iter(self._unsettled), "")
        operation, stuck = self._unsettled.pop(location, (None, None))
        if operation is None or stuck is None:
            return ""
        assert operation.future is not None
        if receipt.status == "ok" and operation.returns is not None:
            try:
                from_plain(None if receipt.value is None else decode(receipt.value), operation.returns)
            except CallerError as error:
                text = f"{stuck.error.message}; the answer that was given does not fit: {error}"
                failure = msgspec.structs.replace(stuck.error, message=text)
                self._unsettled[location] = operation, msgspec.structs.replace(stuck, error=failure)
                return location
        if not operation.future.done():
            operation.future.set_result(receipt)
        return location

    def _run(self) -> None:
        try:
            self.loop.drain(None if self.moment.recording is None else self._go_ahead)
        except (KeyboardInterrupt, SystemExit) as error:
            if is_interrupt(error):
                raise
            raise BadCall(f"the flow raised {error!r}: a flow cannot end the process") from error
        assert self._main is not None
        done = self._main.done()
        if done:
            for task in self.loop.others():
                if task.cancelling():  # a cancelled `gather` or `timeout` does not wait for the clean-up either
                    self._wait_for(task)
        if (done or self._cancel_reason is not None) and (self._losers or not done):
            self._bound_cleanup()

    def _go_ahead(self, awaited: Any) -> bool:
        """In a replay: answer the call that is awaited at once, if its receipt is what came next (decision 12).

        The flow stops here, nothing else is ready, and all that it asks for is this call: its decision is the recorded
        one. So it need not be made, and the next delivery is no more than the receipt.
        """
        asked, recording = self._asked, self.moment.recording
        if asked is None or recording is None:
            return False
        recorded, answered = recording.entry.decision, None
        if asked.future is awaited and not (self._opened or self._withdrawn or self._said or asked.settle):
            answered = recording.answer(asked.effect.location, self._operations)
        if answered is None:
            self._open_asked()
            return False
        event, moment = answered
        if self._rollback is not None:
            self._rollback_opened += (asked.effect.location,)
        if self.log is not None:
            self._remember(self.log, recorded)
            self._event, self._location = event, asked.effect.location
        self._asked, self.moment = None, moment
        self.loop.set(moment.at)
        awaited.set_result(event.receipt)
        return True

    def _bound_cleanup(self) -> None:
        id = self._intent(CLEANUP, 1)
        if id not in self._operations and not self._forced:
            due = min(TIME_MAX, self.moment.at + round(self.flow.cleanup * 1e9))
            self.open(Timer(CLEANUP, due), fire=self._force)

    def _force(self) -> None:
        self._forced = True

    def _decision(self) -> Decision:
        assert self._main is not None
        outcome = self._outcome() if self._forced or self._main.done() else None
        if outcome is not None and self._undos is not None:
            outcome = self._rolled_back(outcome)
        if outcome is not None and outcome.status is Status.FAILED and self.flow.on_error is not None:
            assert outcome.error is not None
            self.report((self.flow.on_error,), "flow", "", 1, outcome.error)
        stuck: Stuck | None = None
        if self._unsettled and outcome is None:
            _, stuck = next(iter(self._unsettled.values()))
        elif outcome is None and not self._operations and not self._barriers:
            raise Deadlock(source_of(self._main.get_coro()) or self.flow.name)
        opened, withdrawn = tuple(self._opened.values()), tuple(self._withdrawn)
        said, self._said = self._said, None
        if said is None and stuck is None:
            return Decision(opened, withdrawn, (), (), (), None, None, outcome, (), tuple(self._opened))
        said = said or Said()
        sent, published, noted = tuple(said.sent), tuple(said.published), tuple(said.noted)
        responded, reports = tuple(said.responded), tuple(said.reports)
        ids = tuple(self._opened)
        decision = Decision(
            opened, withdrawn, sent, (), published, None, stuck, outcome, noted, ids, responded, reports
        )
        if said.tags or said.answers:
            decision = msgspec.structs.replace(decision, tags=tuple(said.tags), answers=tuple(said.answers))
        return decision

    # ---- the end -------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome | None:
        main = self._main
        assert main is not None
        if not self._forced and self._losers:
            return None
        if self._cancel_reason is not None:
            return self._cancelled("; its clean-up took too long and was cut" if self._forced else "")
        if main.cancelled():
            return self._failed(BadCall("the flow raised CancelledError, but nobody cancelled it"))
        error = main.exception()
        if isinstance(error, RollBack):
            self._refuse_unknown_checkpoint(error)
        if error is not None:
            return self._failed(error)
        if self.loop.refused is not None:
            return self._failed(self.loop.refused)
        leaked = [task for task in self.loop.others() if task not in self._losers and task is not self._rollback]
        if leaked:
            return self._failed(NotAwaited([f"{t.get_name()} ({_describe(t)})" for t in leaked]))
        try:
            plain = self.flow.signature.result_to_plain(main.result())
            value = limited(encode(plain), f"the result of {self.flow.name}")
        except PerdureError as unusable:
            return self._failed(unusable)
        return Outcome(Status.COMPLETED, value)

    def _refuse_unknown_checkpoint(self, error: RollBack) -> None:
        """Undo nothing, rather than everything. Older versions did that, and their journals are replayed so."""
        if error.to is None or error.reached or self._rollback is not None or self.moment.recorded is not None:
            return
        known = ", ".join(map(repr, self.undos.checkpoints)) or "none"
        raise BadCall(
            f"RollBack(to={error.to!r}) was raised outside of a checkpoint of that name, so nothing was undone; "
            f"the flow has come to these checkpoints: {known}"
        ) from error

    def _failed(self, error: BaseException) -> Outcome:
        failure = failure_of(error)
        if isinstance(error, StepFailed):
            failure = msgspec.structs.replace(failure, causes=causes_of(error.errors))  # type: ignore[arg-type]
        again = failed_at(error)
        entry, timer = self._fired
        if not again and entry == self.moment.number:
            again = {timer}
        if self._forced:
            again.add(CLEANUP)
        return Outcome(Status.FAILED, error=failure, again=tuple(sorted(again)))

    def _rolled_back(self, outcome: Outcome) -> Outcome | None:
        """How the flow ends, once what it did is undone; None: that is under way."""
        if outcome.status is Status.COMPLETED or (outcome.status is Status.CANCELLED and not self._cancel_undo):
            return outcome
        if self._rollback is None:
            scope = Scope("", False, self)
            self._rollback = self.loop.spawn(roll_back(self, 0, ""), scope, Context(), "undo")
            self.loop.drain()
        if not self._rollback.done():
            return None
        self._rollback.result()
        if outcome.status is Status.FAILED:
            again = (*outcome.again, *self._undone, *self._rollback_opened)
            outcome = msgspec.structs.replace(outcome, again=again, renew=self._undone + self._rollback_opened)
        return outcome

    def _cancelled(self, note: str) -> Outcome:
        return Outcome(Status.CANCELLED, error=Failure("Cancelled", (self._cancel_reason or "") + note))

    # ---- undo, for the context -----------------------------------------------------------------------------

    @property
    def undos(self) -> Undos:
        if self._undos is None:
            self._undos = Undos()
        return self._undos

    def undone(self, location: str) -> None:
        """What was done at a location is no longer done. A flow that fails is undone, and may be retried."""
        if self._rollback is not None:
            self._undone += (location,)

    def undo_scope(self, path: str) -> Scope:
        """Where the steps of a rollback stand. One scope however often it rolls back: no location comes twice."""
        return self._undo_scopes.setdefault(path, Scope(f"{path}&undo/", False, self))

    # ---- operations, for the context -----------------------------------------------------------------------

    def claim(self, name: str) -> str:
        """The location of an operation that begins now, in the scope of the code that asks."""
        if self._disposed:
            raise Evicted(scopes.OUTSIDE)  # only a step that was given the context ever shows it to anybody
        return scopes.current.get().claim(name)

    def open(self, effect: Effect, work: object = None, fire: Callable[[], None] | None = None) -> Operation:
        """Ask for an effect. It is recorded with this delivery, and only then handed out."""
        if self._disposed:
            raise Evicted
        assert self._identity is not None
        if self._asked is not None:
            self._open_asked()
        id = self._identity.intent(effect.location, effect.attempt if type(effect) is Call else 1)
        operation = Operation(id, effect, Future(loop=self.loop) if fire is None else None, fire, work)
        self._add(operation)
        if type(effect) is Wait:
            self._mailbox.wait(operation, effect)
        return operation

    def _add(self, operation: Operation) -> None:
        if self._reliving is not None and self._answered_before(operation, self._reliving):
            return
        if self._rollback is not None:
            self._rollback_opened += (operation.effect.location,)
        self._operations[operation.id] = operation
        self._opened[operation.id] = operation.effect

    def _answered_before(self, operation: Operation, reliving: Reliving) -> bool:
        """Whether there is an answer already, from before the instance was rewound."""
        receipt = reliving.answer(operation.effect)
        if receipt is None:
            reliving.opened(operation, self.moment.at)
            return False
        self.note("answered", operation.effect.location)
        if operation.fire is not None:
            self.loop.call_soon(operation.fire)
        elif operation.future is not None:
            operation.future.set_result(receipt)
        return True

    def ask(self, call: Call, work: object) -> Operation:
        """The same for a call in a replay. It is opened when its receipt is not what came next: see `_go_ahead`."""
        if self._disposed:
            raise Evicted
        self._open_asked()
        self._asked = Operation(b"", call, Future(loop=self.loop), None, work)
        return self._asked

    def _open_asked(self) -> None:
        if self._asked is not None:
            asked, self._asked = self._asked, None
            asked.id = self._intent(asked.effect.location, attempt_of(asked.effect))
            self._add(asked)

    def withdraw(self, operation: Operation) -> None:
        """Nobody waits for this operation any more. One opened in this very delivery was never asked for."""
        self._open_asked()
        if self._disposed or self._operations.pop(operation.id, None) is None:
            return
        if self._opened.pop(operation.id, None) is None:
            self._withdrawn.append(operation.id)
        if type(operation.effect) is Wait:
            self._mailbox.forget(operation, operation.effect)

    async def answer(self, operation: Operation) -> Any:
        """The receipt (or mail) of an operation; a cancelled wait withdraws it."""
        assert operation.future is not None
        try:
            return await operation.future
        except asyncio.CancelledError:
            self.withdraw(operation)
            raise

    def note(self, kind: str, location: str) -> None:
        """An operation that needs no effect is recorded all the same: a changed flow must be found out."""
        self._saying().noted.append(f"{kind} {location}")

    def _saying(self) -> Said:
        scope = scopes.current.get(None)
        if scope is None or scope.machine is not self:
            raise BadCall(scopes.OUTSIDE)
        if self._said is None:
            self._said = Said()
        return self._said

    def report(  # noqa: PLR0917  # what a problem consists of
        self,
        hooks: tuple[Hook, ...],
        kind: ProblemKind,
        location: str,
        attempt: int,
        error: Failure,
        remaining: int = 0,
        due: int | None = None,
    ) -> None:
        """Tell hooks of a failure. Not in a replay: they heard of it then, or missed it. `due`: of the next attempt."""
        if not hooks or self.moment.recorded is not None:
            return
        again = None if due is None else when(due)
        problem = Problem(kind, self.address, location, attempt, remaining, again is not None, again, error)
        if self._said is None:
            self._said = Said()
        self._said.reports += [Report(hook, problem) for hook in hooks]

    def _intent(self, location: str, attempt: int) -> bytes:
        assert self._identity is not None
        return self._identity.intent(location, attempt)

    def hand_over(self, mail: Mail) -> None:
        """The oldest receive that waits for the message takes it; else it stays in the mailbox."""
        while (operation := self._mailbox.waiting_for(mail.message)) is not None:
            assert operation.future is not None
            self.withdraw(operation)
            if not operation.future.done():  # else it is being cancelled in this very delivery
                operation.future.set_result(mail)
                return
        self._mailbox.put(mail)

    def take_mail(self, names: tuple[str, ...], limit: int) -> list[Mail]:
        """The oldest messages of these names. What this task took before and did not complete is among them."""
        task = asyncio.current_task(self.loop)
        own = [held for held in self._held.values() if held.by is task and held.mail.message.name in names]
        for held in own if names else [held for held in self._held.values() if held.by is task]:
            if held.entry == self.moment.number:
                raise BadCall(
                    f"message {held.mail.message.name!r} was received with ack=True and not completed, and nothing "
                    "happened since: call message.complete() before the next receive"
                )
            self._mailbox.put(self._held.pop(held.mail.entry).mail)
        mails: list[Mail] = []
        while len(mails) < limit and (mail := self._mailbox.take(names)) is not None:
            mails.append(mail)
        return mails

    def took(self, mail: Mail, location: str, ack: bool) -> None:
        """A receive has a message. One that must be completed comes again if its task ends without doing so."""
        if not ack:
            self._consumed(mail, location)
            return
        task = asyncio.current_task(self.loop)
        assert task is not None
        if all(held.by is not task for held in self._held.values()):
            task.remove_done_callback(self._give_back)
            task.add_done_callback(self._give_back)
        self._held[mail.entry] = Held(mail, location, task, self.moment.number)

    def _give_back(self, task: asyncio.Task[Any]) -> None:
        """A task has ended: others get what it did not complete."""
        for held in [held for held in self._held.values() if held.by is task]:
            del self._held[held.mail.entry]
            self.hand_over(held.mail)

    def put_back(self, mails: list[Mail]) -> None:
        """They were taken, and could not be given to anybody."""
        for mail in mails:
            self.hand_over(mail)

    def complete(self, mail: Mail, location: str, response: bytes | None) -> None:
        """The flow has dealt with a message."""
        self._saying()
        if mail.completed:
            raise BadCall(f"message {mail.message.name!r} was completed before")
        mail.completed = True
        if self._held.pop(mail.entry, None) is not None or self._mailbox.remove(mail):
            self._consumed(mail, location)
        if mail.message.id.startswith(REQUEST):
            self._answer_request(mail.message, response)
        elif response is not None and mail.message.id:
            self._saying().responded.append((mail.message.id, response))

    def _consumed(self, mail: Mail, location: str) -> None:
        if self.log is None:
            return
        if mail.entry == self.moment.number:
            self._taken[mail.entry] = location
        else:
            self.log.consumed(mail.entry, location)

    def send(self, to: Address, name: str, body: bytes) -> None:
        sent = self._saying().sent
        id = f"{self.address}~{self.generation}:{self.moment.number}:{len(sent)}"
        sent.append(Send(to, name, body, id))

    @property
    def family(self) -> str:
        """What the keys of children begin with: a key that is used again, or rewound, has other children."""
        if self._life:
            return f"{self.key}~{self.generation}.{self._life}"
        return self.key if self.generation == 1 else f"{self.key}~{self.generation}"

    def publish(self, name: str, value: bytes) -> None:
        self._saying().published.append((name, value))

    def tag(self, name: str, value: str | None) -> None:
        self._saying().tags.append((name, value))

    def cut(self, tasks: Iterable[FlowTask]) -> None:
        """Cancel what still runs, without waiting for it; the flow ends only after its clean-up."""
        for task in tasks:
            if not task.done():
                task.cancel()
                self._wait_for(task)

    def _wait_for(self, task: FlowTask) -> None:
        if task not in self._losers:
            self._losers[task] = None
            task.add_done_callback(lambda done: self._losers.pop(done, None))

    # ---- for the loop (perdure.flows.loop.Host) ------------------------------------------------------------

    def open_timer(self, due: int, fire: Callable[[], None]) -> Callable[[], None]:
        if self._disposed:
            raise Evicted
        location = scopes.current.get().claim_own("timer")
        operation = self.open(Timer(location, due), fire=fire)
        return lambda: self.withdraw(operation)

    # ---- loops of the flow and their pruning ---------------------------------------------------------------

    def mark(self, loop: str, number: int, state: bytes) -> None:
        """An iteration of a loop begins."""
        if self.log is None:
            self.flow.loops = True
        else:
            self.log.mark(loop, number, self.moment.number, state)

    def prune(self, loop: str, keep: int, number: int) -> None:
        """Forget the iterations of a loop before the last `keep`; `number` is the last one."""
        if self._undos is not None:
            self._undos.forget(loop, number - keep + 1)
        if self.log is None:
            return
        alive = [operation.effect.location for operation in self._operations.values()]
        alive += [task.path for task in self.loop.pending()]
        self.log.prune(loop, keep, alive)

    async def resume_loop(self, location: str) -> Mark | None:
        """Where a pruned loop goes on, once replay has reached the entry at which that iteration began."""
        marks = self._resume.pop(location, None)
        if not marks:
            return None
        assert self.log is not None, "whoever resumes was restored from a log"
        self.log.marks[location] = deque(marks)
        first = marks[0]
        if first.entry > self.moment.number:
            gate = self.loop.create_future()
            self._barriers = (*self._barriers, (first.entry, gate))
            await gate
        return first

    def _release_barriers(self, number: int) -> None:
        for entry, gate in self._barriers:
            if entry <= number and not gate.done():
                gate.set_result(None)
        self._barriers = tuple([(entry, gate) for entry, gate in self._barriers if entry > number])

    # ---- another past --------------------------------------------------------------------------------------

    def _go_back(self, event: Rewound, moment: Moment, *, fork: bool) -> Decision:
        """Live through a past, then go on from there: all that is open then is opened now."""
        past = read(event.past)
        self.noted_before = frozenset(past.noted)
        if past.base:
            self.log = Log()
            self._restore(past.base)
        self._reliving = reliving = self._reliving or Reliving()
        for operation in self._operations.values():
            reliving.opened(operation, self.moment.at)
        anew = Anew(past.items, fork)
        items = iter([item for item in past.items if item.way != "now"])
        for item in items:
            anew.decided(item, self._relive(item, moment, items))
        late = [msgspec.structs.replace(item, way="again") for item in reliving.late.values()]
        now = [item for item in past.items if item.way == "now"]
        mark = msgspec.structs.replace(event, past=write(Past((*late, *now))))
        decision = self._mark(mark, moment, now, anew)
        if moment.recorded is not None and self.passed_by == moment.number:
            decision = in_order(decision, moment.recorded)
        if self.log is not None:
            self._log(self.log, moment, mark, decision, "")
        return decision

    def _relive(self, item: PastItem, rewound: Moment, rest: Iterator[PastItem]) -> Decision:
        """One delivery of the past."""
        same = item.way == "same"
        if not same and self._main is not None and self._main.done():
            return NOTHING
        moment = Moment(item.at, item.seed, item.number, item.decision if same else rewound.recorded)
        event = self._as_of_now(item)
        if event is None:
            assert self._reliving is not None
            self._reliving.late[item.location, item.attempt] = item
            return NOTHING
        location = ""
        if type(event) is Rewound:
            decision = self._mark(event, moment, list(read(event.past).items), None)
        else:
            location = self._happened(event, moment)
            self._run()
            decision = self._decision()
        if same:
            if self.passed_by == item.number:
                decision = in_order(decision, item.decision)
            if not same_operations(item.decision, decision):
                later = tuple([each.decision for each in rest])
                raise self._diverged(item.number, Difference(item.decision, decision, later))
        if type(event) is Message or type(event) is Requested:
            location = self._taken.pop(item.number, "")
        if self.log is not None:
            self._log(self.log, moment, event, decision, location)
        return decision

    def _as_of_now(self, item: PastItem) -> Event | None:
        """The event of an item, with the ids of this life; None: what it answers is not open."""
        event = item.event
        if type(event) is Received:
            operation = self._reliving.at(item) if self._reliving is not None else None
            if operation is None or self._operations.get(operation.id) is not operation:
                return None
            return Received(operation.id, event.receipt)
        return event

    def _mark(self, event: Rewound, moment: Moment, now: list[PastItem], anew: Anew | None) -> Decision:
        """The moment of a rewind: what is open is opened again, by other ids."""
        self._begin(moment)
        for item in now:
            if item.way == "again":
                assert self._reliving is not None
                self._reliving.late[item.location, item.attempt] = item
            elif type(item.event) is Started:  # it did something then, so it was not refused
                self._start(item.event, new=False)
            elif (told := self._as_of_now(item)) is not None:
                self._happened(told, moment)
        self._release_barriers(moment.number)
        self._run()
        self._renew(event, moment)
        self._said = said = self._said or Said()
        said.reports.clear()  # of failures long ago: their hooks were told then
        if anew is not None:
            said.noted[:0] = anew.noted
            said.sent[:] = [*anew.sent, *anew.not_sent(said.sent)]
            said.published[:0] = anew.published.items()
            said.tags[:0] = anew.tags.items()
            said.responded[:0] = anew.responded
        return self._decision()

    def _renew(self, event: Rewound, moment: Moment) -> None:
        if self.lives is None:
            self.lives = Lives()
        self.lives.renew(event.renew, moment.number)
        assert self._identity is not None
        family, self._life = self.family, moment.number
        self._identity = self._identity.in_life(moment.number)
        operations, self._operations = self._operations, {}
        self._opened.clear()
        self._withdrawn = [id for id in self._withdrawn if id in event.open]
        for operation in operations.values():
            if operation.id not in event.open:
                self._reopen(operation, event, moment, family)
            self._operations[operation.id] = operation

    def _reopen(self, operation: Operation, event: Rewound, moment: Moment, family: str) -> None:
        effect = operation.effect
        assert self._identity is not None and self.lives is not None and self._reliving is not None
        id = self._identity.intent(effect.location, attempt_of(effect))
        opened_at = self._reliving.opened_at(effect)
        if type(effect) is Call:
            effect = msgspec.structs.replace(effect, life=self.lives.of(effect.location))
        elif type(effect) is Wait:
            self._mailbox.waits_as(operation, effect, id)
        elif type(effect) is Child and effect.key.startswith(f"{family}/"):
            effect = msgspec.structs.replace(effect, key=self.family + effect.key[len(family) :])
        due = due_of(effect)
        if due is not None and opened_at is not None and effect.location in event.again:  # it waits as long as then
            effect = msgspec.structs.replace(effect, due=min(TIME_MAX, due - opened_at + moment.at))
        operation.id, operation.effect = id, effect
        self._opened[id] = effect

    # ---- its own past, pruned ------------------------------------------------------------------------------

    def _restore(self, snapshot: bytes) -> None:
        marks, items = Log.load(snapshot)
        self._resume = dict(marks)
        try:
            for item in items:
                current = self._replay(item, Moment(item.at, item.seed, item.number, item.decision))
                if not same_operations(item.decision, current):
                    later = tuple([item.decision for item in items])
                    raise self._diverged(item.number, Difference(item.decision, current, later))
        except BaseException:
            self.dispose()
            raise

    def _replay(self, item: Item, moment: Moment) -> Decision:
        if type(item.event) is Rewound:
            self._reliving = self._reliving or Reliving()
            for operation in self._operations.values():
                self._reliving.opened(operation, moment.at)
            current = self._mark(item.event, moment, list(read(item.event.past).items), None)
        else:
            if item.ghost:
                self._begin(moment)
                self._release_barriers(moment.number)
            else:
                self._happened(item.event, moment)
            self._run()
            current = self._decision()
        if self.passed_by == moment.number:
            current = in_order(current, item.decision)
        self._taken.pop(moment.number, None)
        assert self.log is not None
        self.log.append(item)
        return current

    def _diverged(self, number: int, difference: Difference) -> Divergence:
        return divergence(self.address, number, self.flow, self, difference)

    def _shape(self) -> tuple[object, ...]:
        """What must be equal in a machine and its rebuilt twin, as far as that can be seen from outside."""
        paths = [task.path for task in self.loop.pending()]
        mail = self._mailbox.entries(), list(self._held)
        undos = [] if self._undos is None else self._undos.locations()
        return list(self._operations), mail, undos, paths, len(self._losers), bool(self._barriers)

    # ---- telling where -------------------------------------------------------------------------------------

    @property
    def raised(self) -> BaseException | None:
        """What the flow's code ended with, as it was raised: for a debugger, which wants to see its frames."""
        main = self._main
        return main.exception() if main is not None and main.done() and not main.cancelled() else None

    def source(self, location: str) -> str:
        """Where the flow's code stands now, as file:line: the place that asks for what is at a location."""
        tasks = [task for task in self.loop.pending() if location.startswith(task.path)]
        for task in sorted(tasks, key=lambda task: len(task.path), reverse=True):  # the innermost scope first
            place = source_of(task.get_coro())
            if place:
                return place
        code = self.flow.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


async def _raise(error: Exception) -> Never:
    raise error


def _failed_at_once(recorded: Decision) -> bool:
    return recorded.outcome is not None and recorded.outcome.status is Status.FAILED


def _rewound_by(event: Event) -> Rewound | None:
    if type(event) is Started:
        return event.forked
    return event if type(event) is Rewound else None


def _describe(task: FlowTask) -> str:
    coro = task.get_coro()
    place = source_of(coro)
    return f"{getattr(coro, '__qualname__', coro)}{' at ' + place if place else ''}"
