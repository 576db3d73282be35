"""The machine of a flow: a coroutine on a deterministic loop, and the operations that it has open.

One delivery: hand the event to whoever waits for it, run the loop until nothing is ready, and answer with what was opened
and withdrawn meanwhile. The coroutine itself is the state; `log.py` says how it is rebuilt.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

from perdure.codec import decode, encode
from perdure.errors import BadCall, Deadlock, Divergence, NotAwaited, PerdureError
from perdure.kernel.decision import Decision, Fact, Outcome, Send
from perdure.kernel.effects import Call, Effect, Timer, Wait, attempt_of
from perdure.kernel.events import Address, CancelAsked, Event, Message, Received, Started
from perdure.kernel.identity import Identity
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.status import Status

from . import scope as scopes
from .context import Context as FlowContext
from .context import current_machine
from .log import Item, Log, Mark
from .loop import FlowFuture, FlowLoop, FlowTask, source_of
from .scope import Scope

if TYPE_CHECKING:
    from .author import Flow

CLEANUP: Final = "&cleanup"
"""The timer that bounds what `finally` blocks may do after a cancel."""


class Evicted(BaseException):
    """The machine was dropped while its code stood here. Only code in `finally` blocks can ever see it."""


class Operation:
    """An effect that the flow has open: who waits for its receipt."""

    __slots__ = ("effect", "fire", "future", "id")

    def __init__(self, id: bytes, effect: Effect, future: FlowFuture | None, fire: Callable[[], None] | None) -> None:
        self.id = id
        self.effect = effect
        self.future = future
        self.fire = fire


class Mail:
    """A message in the flow's mailbox; `entry` is the number of the entry that brought it."""

    __slots__ = ("at", "entry", "message")

    def __init__(self, entry: int, at: int, message: Message) -> None:
        self.entry = entry
        self.at = at
        self.message = message


class FlowMachine:
    def __init__(self, flow: Flow[Any, Any], address: str, snapshot: bytes | None) -> None:
        self.flow = flow
        self.address = address
        self.loop = FlowLoop(self)  # type: ignore[abstract]  # the rest raises NotDurable
        self.moment = Moment(0, b"", 0)
        self.log = Log()
        self.losers: list[FlowTask] = []
        self.dice: tuple[int, random.Random] | None = None
        self._identity: Identity | None = None
        self._main: FlowTask | None = None
        self._operations: dict[bytes, Operation] = {}
        self._work: dict[str, object] = {}
        self._mail: deque[Mail] = deque()
        self._waits: list[Operation] = []
        self._taken: dict[int, str] = {}
        self._resume: dict[str, list[Mark]] = {}
        self._barriers: list[tuple[int, FlowFuture]] = []
        self._cancel_reason: str | None = None
        self._forced = False
        self._disposed = False
        self._opened: dict[bytes, Effect] = {}
        self._withdrawn: list[bytes] = []
        self._sent: list[Send] = []
        self._facts: list[Fact] = []
        self._published: list[tuple[str, bytes]] = []
        if snapshot is not None:
            self._restore(snapshot)

    # ---- the contract (perdure.kernel.machine.Machine) -----------------------------------------------------------

    def deliver(self, event: Event, moment: Moment) -> Decision:
        location = self._happened(event, moment)
        self._run()
        decision = self._decision()
        if type(event) is Message:
            location = self._taken.pop(moment.number, "")
        self.log.append(moment.number, moment.at, event, decision, location)
        return decision

    def work(self, location: str) -> object:
        return self._work.get(location)

    def snapshot(self) -> bytes | None:
        return self.log.save(self.moment.seed)

    def dispose(self) -> None:
        """Let go of the coroutines. Their `finally` blocks run, as Python has it, but can open nothing any more."""
        self._disposed = True
        for task in self.loop.pending():
            try:
                task.get_coro().close()
            except BaseException:  # whatever user code does while it is thrown away concerns nobody
                continue

    # ---- one delivery --------------------------------------------------------------------------------------------

    def _happened(self, event: Event, moment: Moment) -> str:
        """Tell whoever waits. The answer is the location of the operation that the event belongs to."""
        self.moment = moment
        self.loop.now = moment.at
        self._opened, self._withdrawn = {}, []
        self._release_barriers(moment.number)
        match event:
            case Received(intent=id, receipt=receipt):
                return self._received(id, receipt)
            case Message():
                self._message(Mail(moment.number, moment.at, event))
            case Started():
                self._start(event)
            case CancelAsked(reason=reason):
                self._cancel_reason = reason
                assert self._main is not None
                self._main.cancel()
            case _:
                raise BadCall(f"a flow takes no {type(event).__name__} event")
        return ""

    def _start(self, event: Started) -> None:
        self.loop.started_at = self.moment.at
        self.loop.number_from(event.seed)
        self._identity = Identity(Address(event.workflow, event.key), event.generation)
        context = Context()
        context.run(scopes.current.set, Scope("", self.flow.strict_names))
        context.run(current_machine.set, self)
        args, kwargs = self.flow.signature.call_args(decode(event.input))
        body = self.flow.function(FlowContext(self), *args, **kwargs)
        self._main = self.loop.spawn(body, context, self.flow.name)

    def _received(self, id: bytes, receipt: Receipt) -> str:
        operation = self._operations.pop(id)
        location = operation.effect.location
        if type(operation.effect) is Call:
            self._work.pop(location, None)
        elif type(operation.effect) is Wait:
            self._waits.remove(operation)
        if operation.fire is not None:
            operation.fire()
        elif operation.future is not None and not operation.future.done():
            operation.future.set_result(receipt)
        return location

    def _message(self, mail: Mail) -> None:
        """A waiting receive takes the message at once; else it stays in the mailbox."""
        for operation in self._waits:
            assert type(operation.effect) is Wait and operation.future is not None
            if not operation.effect.names or mail.message.name in operation.effect.names:
                self.withdraw(operation)
                operation.future.set_result(mail)
                return
        self._mail.append(mail)

    def _run(self) -> None:
        try:
            self.loop.drain()
        except SystemExit as error:
            raise BadCall(f"the flow raised SystemExit({error.code}): a flow cannot end the process") from error
        if self._cancel_reason is not None and self._main is not None and not self._main.done():
            self._bound_cleanup()

    def _bound_cleanup(self) -> None:
        id = self._intent(CLEANUP, 1)
        if id not in self._operations and not self._forced:
            self.open(Timer(CLEANUP, self.moment.at + round(self.flow.cleanup * 1e9)), fire=self._force)

    def _force(self) -> None:
        self._forced = True

    def _decision(self) -> Decision:
        outcome = self._outcome()
        if outcome is None and not self._operations and not self._barriers:
            assert self._main is not None
            raise Deadlock(source_of(self._main.get_coro()) or self.flow.name)
        sent, published = tuple(self._sent), tuple(self._published)
        if sent:
            self._sent = []
        if published:
            self._published = []
        return Decision(
            tuple(self._opened.values()), tuple(self._withdrawn), sent, (), published, None, None, outcome
        )

    # ---- the end -------------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome | None:
        main = self._main
        assert main is not None
        if self._forced:
            return self._cancelled("; its clean-up took too long and was cut")
        if not main.done() or not all(task.done() for task in self.losers):
            return None
        if self._cancel_reason is not None:
            return self._cancelled("")
        if main.cancelled():
            return _failed(BadCall("the flow raised CancelledError, but nobody cancelled it"))
        error = main.exception()
        if error is not None:
            return _failed(error)
        leaked = self.loop.pending()
        if leaked:
            return _failed(NotAwaited([f"{t.get_name()} ({_describe(t)})" for t in leaked]))
        try:
            value = encode(self.flow.signature.result_to_plain(main.result()))
            if len(value) > self.flow.limits.bytes // 2:
                raise BadCall(f"the result has {len(value):,} bytes; record a reference instead")
        except PerdureError as unusable:
            return _failed(unusable)
        return Outcome(Status.COMPLETED, value)

    def _cancelled(self, note: str) -> Outcome:
        return Outcome(Status.CANCELLED, error=Failure("Cancelled", (self._cancel_reason or "") + note))

    # ---- operations, for the context -----------------------------------------------------------------------------

    def open(
        self, effect: Effect, *, work: object = None, fire: Callable[[], None] | None = None
    ) -> Operation:
        """Ask for an effect. It is recorded with this delivery, and only then handed out."""
        if self._disposed:
            raise Evicted
        id = self._intent(effect.location, attempt_of(effect))
        operation = Operation(id, effect, self.loop.create_future() if fire is None else None, fire)
        self._operations[id] = operation
        self._opened[id] = effect
        if work is not None:
            self._work[effect.location] = work
        if type(effect) is Wait:
            self._waits.append(operation)
        return operation

    def withdraw(self, operation: Operation) -> None:
        """Nobody waits for this operation any more. One opened in this very delivery was never asked for."""
        if self._disposed or self._operations.pop(operation.id, None) is None:
            return
        if self._opened.pop(operation.id, None) is None:
            self._withdrawn.append(operation.id)
        if type(operation.effect) is Wait:
            self._waits.remove(operation)
        self._work.pop(operation.effect.location, None)

    async def answer(self, operation: Operation) -> Any:
        """The receipt (or mail) of an operation; a cancelled wait withdraws it."""
        assert operation.future is not None
        try:
            return await operation.future
        except asyncio.CancelledError:
            self.withdraw(operation)
            raise

    def _intent(self, location: str, attempt: int) -> bytes:
        assert self._identity is not None
        return self._identity.intent(location, attempt)

    def idempotency_key(self, location: str) -> str:
        assert self._identity is not None
        return self._identity.idempotency_key(location)

    def take_mail(self, names: tuple[str, ...], location: str) -> Mail | None:
        """The oldest message of these names."""
        for mail in self._mail:
            if not names or mail.message.name in names:
                self._mail.remove(mail)
                self.note_taken(mail, location)
                return mail
        return None

    def put_back(self, mail: Mail) -> None:
        """A receive was cancelled in the very moment in which its message came: nothing may be lost."""
        place = next((n for n, other in enumerate(self._mail) if other.entry > mail.entry), len(self._mail))
        self._mail.insert(place, mail)
        self._taken.pop(mail.entry, None)

    def note_taken(self, mail: Mail, location: str) -> None:
        if mail.entry == self.moment.number:
            self._taken[mail.entry] = location
        else:
            self.log.consumed(mail.entry, location)

    def send(self, to: Address, name: str, body: bytes) -> None:
        number = len(self._sent)
        self._sent.append(Send(to, name, body, f"{self.address}:{self.moment.number}:{number}"))

    def publish(self, name: str, value: bytes) -> None:
        self._published.append((name, value))

    # ---- for the loop (perdure.flows.loop.Host) ------------------------------------------------------------------

    def open_timer(self, due: int, fire: Callable[[], None]) -> Callable[[], None]:
        location = scopes.current.get().claim_own("timer")
        operation = self.open(Timer(location, due), fire=fire)
        return lambda: self.withdraw(operation)

    def task_context(self) -> Context:
        return self.task_context_in(scopes.current.get().task())

    def task_context_in(self, scope: Scope) -> Context:
        context = copy_context()
        context.run(scopes.current.set, scope)
        return context

    # ---- loops of the flow and their pruning ---------------------------------------------------------------------

    def open_locations(self) -> list[str]:
        return [operation.effect.location for operation in self._operations.values()]

    async def resume_loop(self, location: str) -> Mark | None:
        """Where a pruned loop goes on, once replay has reached the entry at which that iteration began."""
        marks = self._resume.pop(location, None)
        if not marks:
            return None
        self.log.marks[location] = deque(marks)
        first = marks[0]
        if first.entry > self.moment.number:
            gate = self.loop.create_future()
            self._barriers.append((first.entry, gate))
            await gate
        return first

    def _release_barriers(self, number: int) -> None:
        for entry, gate in self._barriers:
            if entry <= number and not gate.done():
                gate.set_result(None)
        self._barriers = [(entry, gate) for entry, gate in self._barriers if entry > number]

    def _restore(self, snapshot: bytes) -> None:
        seed, marks, items = Log.load(snapshot)
        self._resume = dict(marks)
        for item in items:
            self._replay(item, Moment(item.at, seed, item.number))

    def _replay(self, item: Item, moment: Moment) -> None:
        if item.ghost:
            self.moment, self.loop.now = moment, moment.at
            self._opened, self._withdrawn = {}, []
            self._release_barriers(moment.number)
        else:
            self._happened(item.event, moment)
        self._run()
        current = self._decision()
        if self.flow.differs(item.decision, current):
            recorded = ", ".join(e.location for e in item.decision.open) or "nothing more"
            now = ", ".join(e.location for e in current.open) or "nothing more"
            raise Divergence(self.address, item.number, recorded, now, source=self.source(None))
        self._taken.pop(moment.number, None)
        self.log.items.append(item)

    # ---- telling where -------------------------------------------------------------------------------------------

    def source(self, effect: Effect | None) -> str:
        """Where the flow's code stands now, as file:line; for an effect, the place that asks for it."""
        for task in self.loop.pending():
            place = source_of(task.get_coro())
            if place:
                return place
        code = self.flow.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


def _failed(error: BaseException) -> Outcome:
    from perdure.kernel.kernel import failure_of

    return Outcome(Status.FAILED, error=failure_of(error))


def _describe(task: FlowTask) -> str:
    coro = task.get_coro()
    place = source_of(coro)
    return f"{getattr(coro, '__qualname__', coro)}{' at ' + place if place else ''}"
