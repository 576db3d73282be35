"""The machine of one bulk: part after part, each a call and a timer that keeps the rate.

The selection is in the input, so an instance that matches later is left alone. A part may run again after a crash: its
events have ids of their own, and the kernel drops an id that it has seen.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.errors import CallerError
from perdure.kernel.decision import NOTHING, Decision, Outcome, Stuck
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Call, Timer
from perdure.kernel.events import Address, CancelAsked, Event, ReceiptArrived, Retried, Started
from perdure.kernel.identity import Identity
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import Moment
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.routing import Subscription
from perdure.kernel.status import Status
from perdure.ports.executor import Work

from .model import PART_MAX, PUBLISHED, WORKFLOW, BulkPart, BulkProgress, BulkWork, PartDone, Perform, RefusedInstance
from .model import unpack as unpack_ids

DELIVERIES_MAX: Final = 1_000_000
"""A part repeats nothing, so it may be delivered again after any number of crashes."""


class BulkState(msgspec.Struct):
    """`taken`: instances of parts that are done. `part`, `pace`: what is open now; `attempt` counts after a failure."""

    work: BulkWork
    generation: int
    taken: int = 0
    refused: list[RefusedInstance] = []
    part: bool = False
    pace: bool = False
    number: int = 0
    attempt: int = 1


class BulkMachine:
    def __init__(self, address: str, snapshot: bytes | None, perform: Perform | None) -> None:
        workflow, _, key = address.partition("/")
        self._address = Address(workflow, key)
        self._perform = perform
        self._state: BulkState | None = None if snapshot is None else from_plain(decode(snapshot), BulkState)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(parent=parent) if parent is not None:  # a workflow would act in the name that it gives
                refused = Failure("Refused", "a bulk is asked for by a person, and is no child of a workflow")
                return Decision(outcome=Outcome(Status.FAILED, error=refused))
            case Started():
                work = from_plain(decode(event.input), BulkWork)
                self._state = BulkState(work, event.generation)
                return self._next(moment)
            case ReceiptArrived():
                return self._answered(event.intent, event.receipt, moment)
            case CancelAsked(reason=reason):
                error = Failure("Cancelled", reason)
                return Decision(withdraw=self._open(), outcome=Outcome(Status.CANCELLED, error=error))
            case Retried():
                self._now.attempt += 1
                self._now.part = True
                return Decision(open=(self._call(),))
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        if self._perform is None:
            return None
        state, work = self._now, self._now.work
        ids = unpack_ids(work.instances[state.taken * 8 : (state.taken + self._size) * 8])
        left = work.errors_max - len(state.refused)
        part = BulkPart(self._address.key, work.verb, work.params, ids, left, work.by, work.reason)
        return Work(self._perform, (part,), {}, PartDone)

    def snapshot(self) -> bytes | None:
        return None if self._state is None else encode(to_plain(self._state, BulkState))

    def dispose(self) -> None:
        self._state = None

    @property
    def _now(self) -> BulkState:
        assert self._state is not None, "a bulk begins with its selection"
        return self._state

    @property
    def _size(self) -> int:
        """Instances of a part: those of one second, if they are not too many."""
        return max(1, min(PART_MAX, int(self._now.work.rate)))

    def _next(self, moment: Moment) -> Decision:
        """Begin the next part, or end."""
        state, work = self._now, self._now.work
        total = len(work.instances) // 8
        publish = ((PUBLISHED, self._progress()),)
        if state.taken >= total:
            value = encode({"done": total - len(state.refused), "refused": len(state.refused)})
            return Decision(publish=publish, outcome=Outcome(Status.COMPLETED, value))
        if len(state.refused) >= work.errors_max:
            text = f"{len(state.refused)} of the first {state.taken} instances refused; {total - state.taken} are left"
            failed = Outcome(Status.FAILED, error=Failure("TooManyErrors", text, retry=False))
            return Decision(publish=publish, outcome=failed)
        state.number, state.part, state.pace = state.number + 1, True, True
        nanoseconds = int(min(self._size, total - state.taken) / work.rate * 1e9)
        timer = Timer(f"pace/~{state.number}", moment.at + nanoseconds)
        return Decision(publish=publish, open=(self._call(), timer))

    def _call(self) -> Call:
        return Call(f"part/~{self._now.number}", self._now.attempt, deliveries_max=DELIVERIES_MAX)

    def _answered(self, intent: bytes, receipt: Receipt, moment: Moment) -> Decision:
        state = self._now
        part, pace = self._intents()
        if intent == pace:
            state.pace = False
            return NOTHING if state.part else self._next(moment)
        if intent != part:
            return NOTHING
        state.part = False
        if receipt.status != "ok" or receipt.value is None:
            error = receipt.error or Failure("NotPerformed", f"a part of the bulk ended as {receipt.status}")
            withdraw, state.pace = (pace,) * state.pace, False
            return Decision(withdraw=withdraw, stuck=Stuck(error, f"part/~{state.number}"))
        done = from_plain(decode(receipt.value), PartDone)
        state.taken += done.taken
        state.refused = [*state.refused, *done.refused]
        state.attempt = 1
        ends = state.taken * 8 >= len(state.work.instances) or len(state.refused) >= state.work.errors_max
        if not state.pace:
            return self._next(moment)
        if ends:  # nothing is left to be paced
            state.pace = False
            return msgspec.structs.replace(self._next(moment), withdraw=(pace,))
        return Decision(publish=((PUBLISHED, self._progress()),))

    def _intents(self) -> tuple[bytes, bytes]:
        state = self._now
        identity = Identity(self._address, state.generation)
        return identity.intent(f"part/~{state.number}", state.attempt), identity.intent(f"pace/~{state.number}", 1)

    def _open(self) -> tuple[bytes, ...]:
        state = self._now
        part, pace = self._intents()
        return (part,) * state.part + (pace,) * state.pace

    def _progress(self) -> bytes:
        state, work = self._now, self._now.work
        total = len(work.instances) // 8
        progress = BulkProgress(
            work.verb,
            work.params,
            work.where,
            work.counted_at,
            work.rate,
            work.errors_max,
            work.by,
            work.reason,
            total,
            state.taken - len(state.refused),
            total - state.taken,
            state.refused,
        )
        return encode(to_plain(progress, BulkProgress))


class BulkWorkflow:
    """The built-in workflow of bulks. Every engine has it; `perform` does a part, in the engine that runs the bulk."""

    name = WORKFLOW
    version = "1"
    parameters = b""
    policy = Policy("bulk", send=False, retry=False, rewind=False, fork=False, wake=False)
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def __init__(self, perform: Perform | None = None) -> None:
        self._perform = perform

    def machine(self, address: str, snapshot: bytes | None) -> BulkMachine:
        return BulkMachine(address, snapshot, self._perform)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation(advice="perdure.bulk runs code of perdure alone: report it")

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return self.encode_plain_input(kwargs if not args else args[0])

    def encode_plain_input(self, value: Any) -> bytes:
        if not isinstance(value, dict):
            raise CallerError("a bulk is started by `perdure bulk start`, or POST /bulk")
        return encode(to_plain(from_plain(value, BulkWork), BulkWork))

    def decode_result(self, value: bytes) -> Any:
        return decode(value)
