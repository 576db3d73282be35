"""The machine of a flow: a coroutine on a deterministic loop, and the operations that it has open.

One delivery: hand the event to the operation that waits for it, run the loop until nothing is ready, and answer with
what was opened and withdrawn meanwhile. The coroutine itself is the state; `log.py` says how it is rebuilt.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import BadCall, Deadlock
from perdure.kernel.decision import Decision, Stuck
from perdure.kernel.effects import Call, Effect, Timer, Wait, attempt_of
from perdure.kernel.events import (
    CancelAsked,
    Event,
    Message,
    ReceiptArrived,
    Requested,
    Retried,
    Rewound,
    Settled,
    Started,
    Woken,
)
from perdure.kernel.identity import Identity
from perdure.kernel.machine import Rebuild
from perdure.kernel.moment import Moment, when
from perdure.kernel.problem import Hook, Problem, ProblemKind, Report
from perdure.kernel.receipt import DONE, Failure, is_interrupt
from perdure.kernel.status import Status

from . import ending, messages, rewind, unsettled
from . import scope as scopes
from .change import in_order
from .log import Log
from .loop import Evicted, FlowLoop, FlowTask, source_of
from .mailbox import Mail, Mailbox
from .operation import AGAIN, SLEEP, Operation
from .rewind import Lives, Rewinding
from .said import Said
from .scope import Scope
from .start import failed_at_once, start
from .undo import Undos

if TYPE_CHECKING:
    from .author import Flow


class FlowMachine:
    # What few instances ever have, and what is not read while all goes well, is not made for each of them.
    noted_before: Collection[str] = ()  # by operations that are now decided again
    life = 0  # the entry of the last rewind
    fired = (0, "")  # the last timer of asyncio that was over, and in which entry
    rollback_opened: tuple[str, ...] = ()
    undone_at: tuple[str, ...] = ()
    requests: dict[str, bytes | None] | None = None  # of running steps, with the answers that the flow gave

    def __init__(self, flow: Flow[Any, Any], address: str, snapshot: bytes | None) -> None:
        self.flow = flow
        self.address = address
        self.key = ""
        self.started_by: str | None = None
        self.generation = 1
        self.loop = FlowLoop(self)  # type: ignore[abstract]  # the rest raises NotDurable
        self.moment = Moment(0, b"", 0)
        self.log = Log() if flow.loops or snapshot is not None else None
        self.wants_log = False  # a loop has pruned, and nothing in the code of the flow itself had named one
        self.identity: Identity | None = None
        self.main: FlowTask | None = None
        self.losers: dict[FlowTask, None] = {}
        self.operations: dict[bytes, Operation] = {}
        self.mailbox = Mailbox()
        self.held: dict[int, messages.Held] = {}
        self.unsettled: dict[str, tuple[Operation, Stuck]] = {}
        self._undos: Undos | None = None
        self._undo_scopes: dict[str, Scope] = {}
        self.rollback: FlowTask | None = None
        self.cancel_undo = False
        self.cancel_reason: str | None = None
        self.forced = False
        self._disposed = False
        self.passed_by = 0  # the last delivery in which a removed operation went on
        self.lives: Lives | None = None
        self.rewinding: Rewinding | None = None
        self._event: Event | None = None  # which is delivered now, for the log...
        self._location = ""  # ...and the operation that it belongs to
        self._asked: Operation | None = None
        self.opened: dict[bytes, Effect] = {}
        self.withdrawn: list[bytes] = []
        self.said: Said | None = None
        if snapshot is not None:
            rewind.restore(self, snapshot)

    # ---- the contract (perdure.kernel.machine.Machine) -----------------------------------------------------

    def deliver(self, event: Event, moment: Moment) -> Decision:
        if type(event) is not ReceiptArrived and (rewound := _rewound_by(event)) is not None:
            return rewind.go_back(self, rewound, moment, fork=type(event) is Started)
        location = self.happened(event, moment)
        if self.log is not None:
            self._event, self._location = event, location
        self.run()
        decision = self.decision()
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
            location = log.taken.pop(moment.number, "")
        log.add(moment, event, decision, location)

    def work(self, intent: bytes) -> object:
        operation = self.operations.get(intent)
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
            same = rewind.shape(twin) == rewind.shape(self)
            twin.dispose()
        except Exception:  # an iteration had left more behind than its state: the journal goes on being read whole
            same = False
        if not same:
            self.log.put_off()
        return data if same else None

    @property
    def pruned(self) -> bool:
        """Whether its loops have forgotten as much as they keep since the last snapshot."""
        return self.wants_log if self.log is None else self.log.pruned

    def dispose(self) -> None:
        """Let go of the coroutines. Their `finally` blocks run, as Python has it, but can open nothing."""
        self._disposed = True
        for operation in self.operations.values():
            if operation.future is not None:
                operation.future.cancel()  # it forgets the task that awaits it, which would hold it in turn
        self.operations.clear()
        self._asked = None
        self.held.clear()
        self.main = None
        self.loop.dispose()

    # ---- one delivery --------------------------------------------------------------------------------------

    def happened(self, event: Event, moment: Moment) -> str:
        """Tell the operation that waits. The answer is the location of the operation that the event belongs to."""
        self.moment = moment  # as `_begin`, without the calls: this is done at every step
        loop, now = self.loop, moment.at
        if now < loop.now:
            loop.set(now)
        loop.now = now
        self.opened.clear()
        self.withdrawn.clear()
        location = ""
        if type(event) is ReceiptArrived:  # first, because most events are receipts
            location = self._received(event)
            if self.log is not None and self.log.barriers:
                self.log.release(moment.number)
            return location
        match event:
            case Message():
                messages.hand_over(self, Mail(moment.number, event))
            case Requested():
                messages.requested(self, event)
            case Started():
                start(self, event, new=moment.recorded is None or failed_at_once(moment.recorded))
            case Woken(location=asked):
                location = self._wake(asked)
            case Settled(location=at, receipt=receipt):
                location = unsettled.settle(self, at, receipt)
            case Retried():
                location = unsettled.settle(self, "", AGAIN)
            case CancelAsked(reason=reason, undo=undo):
                self.cancel_reason, self.cancel_undo = reason, undo
                if not undo or self.rollback is None:  # else what could not be undone is still to be undone
                    self.unsettled.clear()
                assert self.main is not None
                self.main.cancel()
            case _:
                raise BadCall(f"a flow takes no {type(event).__name__} event")
        if self.log is not None and self.log.barriers:
            self.log.release(moment.number)
        return location

    def begin(self, moment: Moment) -> None:
        self.moment = moment
        self.loop.set(moment.at)
        self.opened.clear()
        self.withdrawn.clear()

    async def sleep(self, location: str, due: int) -> None:
        """A timer that can be woken."""
        await self.answer(self.open(Timer(location, due), SLEEP))

    def _wake(self, location: str) -> str:
        """End the sleep at a location, or all of them. The location, if it was one."""
        asleep = [operation for operation in self.operations.values() if operation.work is SLEEP]
        woken = [operation for operation in asleep if location in ("", operation.effect.location)]
        for operation in woken:
            assert operation.future is not None
            self.withdraw(operation)
            if not operation.future.done():
                operation.future.set_result(DONE)
        return woken[0].effect.location if len(woken) == 1 else ""

    def _received(self, event: ReceiptArrived) -> str:
        operation = self.operations.pop(event.intent)
        effect, future = operation.effect, operation.future
        if operation.settle and event.receipt.status == "unknown":
            return unsettled.stop_at(self, operation, event.receipt)
        if type(effect) is Wait:
            self.mailbox.forget(operation, effect)
        if future is None:
            assert operation.fire is not None
            self.fired = self.moment.number, effect.location
            operation.fire()
        elif not future.done():
            future.set_result(event.receipt)
        return effect.location

    def run(self) -> None:
        try:
            self.loop.drain(None if self.moment.recording is None else self._go_ahead)
        except (KeyboardInterrupt, SystemExit) as error:
            if is_interrupt(error):
                raise
            raise BadCall(f"the flow raised {error!r}: a flow cannot end the process") from error
        assert self.main is not None
        done = self.main.done()
        if done:
            for task in self.loop.others():
                if task.cancelling():  # a cancelled `gather` or `timeout` does not wait for the clean-up either
                    ending.wait_for(self, task)
        if (done or self.cancel_reason is not None) and (self.losers or not done):
            ending.bound_cleanup(self)

    def _go_ahead(self, awaited: Any) -> bool:
        """In a replay: answer the call that is awaited at once, if its receipt is what came next (decision 12).

        The flow stops here, nothing else is ready, and all that it asks for is this call: its decision is the recorded
        one. So it need not be made, and the next delivery is no more than the receipt.
        """
        asked, recording = self._asked, self.moment.recording
        if asked is None or recording is None:
            return False
        recorded, answered = recording.entry.decision, None
        if asked.future is awaited and not (self.opened or self.withdrawn or self.said or asked.settle):
            answered = recording.answer(asked.effect.location, self.operations)
        if answered is None:
            self._open_asked()
            return False
        event, moment = answered
        if self.rollback is not None:
            self.rollback_opened += (asked.effect.location,)
        if self.log is not None:
            self._remember(self.log, recorded)
            self._event, self._location = event, asked.effect.location
        self._asked, self.moment = None, moment
        self.loop.set(moment.at)
        awaited.set_result(event.receipt)
        return True

    def decision(self) -> Decision:
        assert self.main is not None
        outcome = ending.outcome(self) if self.forced or self.main.done() else None
        if outcome is not None and self._undos is not None:
            outcome = ending.rolled_back(self, outcome)
        if outcome is not None and outcome.status is Status.FAILED and self.flow.on_error is not None:
            assert outcome.error is not None
            self.report((self.flow.on_error,), "flow", "", 1, outcome.error)
        facts = () if outcome is None else ending.lost_failures(self)
        stuck: Stuck | None = None
        if self.unsettled and outcome is None:
            _, stuck = next(iter(self.unsettled.values()))
        elif outcome is None and not self.operations and not (self.log and self.log.barriers):
            raise Deadlock(source_of(self.main.get_coro()) or self.flow.name)
        opened, withdrawn = tuple(self.opened.values()), tuple(self.withdrawn)
        said, self.said = self.said, None
        if said is None and stuck is None and not self.cancel_undo:
            return Decision(opened, withdrawn, (), facts, (), None, None, outcome, (), tuple(self.opened))
        said = said or Said()
        sent, published, noted = tuple(said.sent), tuple(said.published), tuple(said.noted)
        responded, reports = tuple(said.responded), tuple(said.reports)
        ids = tuple(self.opened)
        decision = Decision(
            opened, withdrawn, sent, facts, published, None, stuck, outcome, noted, ids, responded, reports
        )
        if said.tags or said.answers or self.cancel_undo:
            tags, answers = tuple(said.tags), tuple(said.answers)
            decision = msgspec.structs.replace(decision, tags=tags, answers=answers, undo=self.cancel_undo)
        return decision

    def force_end(self) -> None:
        """The clean-up took too long: the flow ends without the rest of it."""
        self.forced = True

    def give_back(self, task: asyncio.Task[Any]) -> None:
        """A task has ended: others get the messages that it did not complete. One callback, however many it has."""
        messages.give_back(self, task)

    # ---- undo, for the context -----------------------------------------------------------------------------

    @property
    def undos(self) -> Undos:
        if self._undos is None:
            self._undos = Undos()
        return self._undos

    def undone(self, location: str) -> None:
        """What was done at a location is no longer done. A flow that fails is undone, and may be retried."""
        if self.rollback is not None:
            self.undone_at += (location,)

    def undo_scope(self, path: str) -> Scope:
        """Where the steps of a rollback stand. One scope however often it rolls back: no location comes twice."""
        return self._undo_scopes.setdefault(path, Scope(f"{path}&undo/", False, self))

    # ---- operations, for the context -----------------------------------------------------------------------

    def claim(self, name: str) -> str:
        """The location of an operation that begins now, in the scope of the code that asks."""
        scope = scopes.current.get()
        if self._disposed and scope is not scopes.NOWHERE:
            raise Evicted
        return scope.claim(name)

    def open(self, effect: Effect, work: object = None, fire: Callable[[], None] | None = None) -> Operation:
        """Ask for an effect. It is recorded with this delivery, and only then handed out."""
        if self._disposed:
            raise Evicted
        assert self.identity is not None
        if self._asked is not None:
            self._open_asked()
        id = self.identity.intent(effect.location, effect.attempt if type(effect) is Call else 1)
        operation = Operation(id, effect, Future(loop=self.loop) if fire is None else None, fire, work)
        self._add(operation)
        if type(effect) is Wait:
            self.mailbox.wait(operation, effect)
        return operation

    def _add(self, operation: Operation) -> None:
        if self.rewinding is not None and rewind.answered_before(self, operation, self.rewinding):
            return
        if self.rollback is not None:
            self.rollback_opened += (operation.effect.location,)
        self.operations[operation.id] = operation
        self.opened[operation.id] = operation.effect

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
            asked.id = self.intent(asked.effect.location, attempt_of(asked.effect))
            self._add(asked)

    def withdraw(self, operation: Operation) -> None:
        """The flow does not wait for this operation any more. One opened in this very delivery was never asked for."""
        self._open_asked()
        if self._disposed or self.operations.pop(operation.id, None) is None:
            return
        if self.opened.pop(operation.id, None) is None:
            self.withdrawn.append(operation.id)
        if type(operation.effect) is Wait:
            self.mailbox.forget(operation, operation.effect)

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
        self.saying().noted.append(f"{kind} {location}")

    def saying(self) -> Said:
        scope = scopes.current.get(None)
        if scope is None or scope.machine is not self:
            raise BadCall(scopes.OUTSIDE)
        if self.said is None:
            self.said = Said()
        return self.said

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
        if self.said is None:
            self.said = Said()
        self.said.reports += [Report(hook, problem) for hook in hooks]

    def intent(self, location: str, attempt: int) -> bytes:
        assert self.identity is not None
        return self.identity.intent(location, attempt)

    @property
    def family(self) -> str:
        """What the keys of children begin with: a key that is used again, or rewound, has other children."""
        if self.life:
            return f"{self.key}~{self.generation}.{self.life}"
        return self.key if self.generation == 1 else f"{self.key}~{self.generation}"

    # ---- for the loop (perdure.flows.loop.Host) ------------------------------------------------------------

    def open_timer(self, due: int, fire: Callable[[], None]) -> Callable[[], None]:
        if self._disposed:
            raise Evicted
        location = scopes.current.get().claim_own("timer")
        operation = self.open(Timer(location, due), fire=fire)
        return lambda: self.withdraw(operation)

    # ---- telling where -------------------------------------------------------------------------------------

    @property
    def raised(self) -> BaseException | None:
        """What the flow's code ended with, as it was raised: for a debugger, which wants to see its frames."""
        main = self.main
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


def _rewound_by(event: Event) -> Rewound | None:
    if type(event) is Started:
        return event.forked
    return event if type(event) is Rewound else None
