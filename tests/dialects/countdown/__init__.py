"""A sixth dialect, as another package would bring it: countdowns. It uses `kernel`, `ports` and `codec` only.

    launch = Countdown("launch")
    perdure.open(url, workflows=[launch])      # found by the entry point: countdown = "…countdown:DIALECT"

A countdown counts messages named `tick`. At zero it calls a function, and completes with what that returns. Any other
message is a mistake of its author: the instance stops, and a retry lets it hear that message again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.codec import decode, encode
from perdure.kernel.decision import NOTHING, Decision, Outcome
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Call, Wait
from perdure.kernel.events import CancelAsked, Event, Message, ReceiptArrived, Started
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import Moment
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import Failure
from perdure.kernel.routing import Subscription
from perdure.kernel.status import Status
from perdure.ports.dialect import Gathered
from perdure.ports.executor import Work
from perdure.ports.seen import Advice, Reason, Seen, Waiting, Words


class Countdown:
    """What an author writes. `forgiving`: messages that are no ticks are passed over."""

    def __init__(self, name: str, at_zero: Callable[[int], Any] = str, *, forgiving: bool = False) -> None:
        self.workflow = CountdownWorkflow(name, at_zero, forgiving)


class CountdownWords(Words):
    def open(self, seen: Seen, open: Waiting) -> Reason | None:
        if open.location != "next":
            return None
        left = seen.lines[0].value - sum(line.location == "tick" for line in seen.lines)
        return Reason("tick", f"{left} to go.", (Advice(command=seen.command("send", "tick")),), open)


class CountdownDialect:
    name = "countdown"
    catalog = None
    words: Mapping[str, Words] = {"countdown": CountdownWords()}

    def gather(self, given: Sequence[Any]) -> Gathered:
        found = [each.workflow for each in given if isinstance(each, Countdown)]
        return Gathered(found, [each for each in given if not isinstance(each, Countdown)])


DIALECT = CountdownDialect()


class CountdownWorkflow:
    version = "1"
    parameters = b""
    limits = Limits()
    policy = Policy("countdown", rewind=False, fork=False, wake=False, why={"rewind": "a countdown: it goes one way"})
    subscriptions: tuple[Subscription, ...] = ()

    def __init__(self, name: str, at_zero: Callable[[int], Any], forgiving: bool) -> None:
        self.name = name
        self.at_zero = at_zero
        self.forgiving = forgiving

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return CountdownMachine(self, decode(snapshot) if snapshot is not None else 0)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation()

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return encode([*args, *kwargs.values()][0])

    def encode_plain_input(self, value: Any) -> bytes:
        return encode(value["ticks"])

    def decode_result(self, value: bytes) -> Any:
        return decode(value)


class CountdownMachine:
    def __init__(self, workflow: CountdownWorkflow, left: int) -> None:
        self._workflow = workflow
        self._left = left

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(input=input):
                self._left = decode(input)
                return Decision(open=(Wait("next", ("tick",)),))
            case Message(name="tick"):
                self._left -= 1
                return Decision(open=(Call("zero", executor="thread"),)) if self._left == 0 else NOTHING
            case Message(name=name) if not self._workflow.forgiving:
                raise ValueError(f"a countdown hears ticks, not {name}")
            case ReceiptArrived(receipt=receipt) if receipt.status == "ok":
                return Decision(outcome=Outcome(Status.COMPLETED, receipt.value))
            case ReceiptArrived(receipt=receipt):
                return Decision(outcome=Outcome(Status.FAILED, error=receipt.error))
            case CancelAsked(reason=reason):
                return Decision(outcome=Outcome(Status.CANCELLED, error=Failure("Cancelled", reason)))
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return Work(self._workflow.at_zero, (0,), {}, Any)

    def snapshot(self) -> bytes | None:
        return encode(self._left)

    def dispose(self) -> None:
        pass
