"""The smallest dialect, whose instances do what they are told, and the smallest shard, which plays them."""

from typing import Any

import msgspec

from perdure.kernel.batch import Batch, WorkflowRow
from perdure.kernel.decision import Decision, Outcome, Send
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Ref, Started
from perdure.kernel.gate import Executors
from perdure.kernel.identity import Identity
from perdure.kernel.kernel import Kernel
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine, Workflow
from perdure.kernel.mailbox import Offer
from perdure.kernel.moment import Moment
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import DONE, Failure
from perdure.kernel.routing import Subscription
from perdure.kernel.rows import offer_of
from perdure.kernel.status import Status

from .harness import Harness, Waiting, commit, load


class ScriptedMachine:
    """A machine that does what the name of a message says, so that a story is a list of words."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._opened: list[tuple[str, str]] = []  # kind and location of what is open
        self._count = 0
        self._name = Address("", "")
        self._generation = 1
        if snapshot is not None:
            self._opened, self._count, self._name, self._generation = _state.decode(snapshot)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(workflow=workflow, key=key, generation=generation):
                self._name, self._generation = Address(workflow, key), generation
                return Decision()
            case ReceiptArrived(intent=intent):
                self._opened = [pair for pair in self._opened if self._intent(pair[1]) != intent]
                return Decision()
            case CancelAsked(reason=reason):
                return Decision(outcome=Outcome(Status.CANCELLED, error=Failure("Cancelled", reason)))
            case Message(name=name, body=body):
                return self._obey(name, body, moment)
            case _:
                return Decision()

    def _obey(self, order: str, body: bytes, moment: Moment) -> Decision:
        word, _, argument = order.partition(" ")
        match word:
            case "call":
                return self._open(word, Call(self._location(word)))
            case "timer":
                return self._open(word, Timer(self._location(word), moment.at + int(argument)))
            case "wait":
                return self._open(word, Wait(self._location(word), ("go",), moment.at + 50))
            case "child" | "detach":
                place = self._location(word)
                return self._open(word, Child(place, "puppet", argument, b"", detached=word == "detach"))
            case "withdraw" if self._opened:
                _, location = self._opened.pop(0)
                return Decision(withdraw=(self._intent(location),))
            case "publish":
                return Decision(publish=((argument, body + moment.entropy()[:2]),))
            case "tag":
                name, _, value = argument.partition("=")
                return Decision(tags=((name, value),))
            case "untag":
                return Decision(tags=((argument, None),))
            case "send":
                self._count += 1
                return Decision(send=(Send(Address("puppet", argument), "note", body, f"{self._name}-{self._count}"),))
            case "end":
                return Decision(outcome=Outcome(Status.COMPLETED, body))
            case "fail":
                return Decision(outcome=Outcome(Status.FAILED, error=Failure("Failed", "as it was told")))
            case "raise":
                raise RuntimeError("as it was told")
            case _:
                return Decision()

    def _open(self, kind: str, effect: Effect) -> Decision:
        self._opened.append((kind, effect.location))
        return Decision(open=(effect,))

    def _location(self, kind: str) -> str:
        self._count += 1
        return f"{kind}/~{self._count}"

    def _intent(self, location: str) -> bytes:
        return Identity(self._name, self._generation).intent(location, 1)

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._opened, self._count, self._name, self._generation))

    def dispose(self) -> None:
        pass


_state = msgspec.msgpack.Decoder(tuple[list[tuple[str, str]], int, Address, int])


class ScriptedWorkflow:
    """The workflow whose machines are scripted. Its name is in recorded rows."""

    name = "puppet"
    version = "1"
    parameters = b""
    limits = Limits()
    policy = Policy()
    subscriptions: tuple[Subscription, ...] = ()

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return ScriptedMachine(snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation()


class SmallShard:
    """A shard without a loop: what is offered is recorded and committed before the call returns."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.now = 0
        self.open()

    def open(self) -> None:
        self.store = Waiting(self._harness)
        lease = self.store.acquire("player")
        self.store.register([WorkflowRow("puppet", "1", b"")])
        position = self.store.position()
        workflows: list[Workflow] = [ScriptedWorkflow()]
        gate, salt = Executors({"inline": None}), lease.epoch.to_bytes(8, "big")
        self.kernel = Kernel(workflows, gate, seq=position.seq, at=position.at, salt=salt)
        self._held: set[bytes] = set()

    def reopen(self) -> None:
        self.store.release()
        self.store.close()
        self.open()
        self.read_inbox()

    def start(self, key: str, **fields: Any) -> None:
        self.offer(Address("puppet", key), Started("puppet", key, b"", b"seed" * 4, **fields))

    def tell(self, key: str, order: str, body: bytes = b"") -> None:
        self.offer(Address("puppet", key), Message(order, body))

    def offer(self, to: Ref, event: Event) -> None:
        self.now += 1
        self.kernel.offer(Offer(to, event))
        self.play()

    def fire(self, before: int) -> None:
        self.now = max(self.now, before)
        for row in self.store.due(before, 100):
            self.kernel.offer(Offer(row.instance, ReceiptArrived(row.intent, DONE)))
        self.play()

    def read_inbox(self) -> None:
        for row in self.store.inbox(100):
            if row.id not in self._held:
                self._held.add(row.id)
                self.kernel.offer(offer_of(row))
        self.play()

    def play(self) -> None:
        """Two turns a batch: what is caused later is kept in the inbox, and must be found there."""
        while self.kernel.cache.wanted or self.kernel.ready:
            batch = Batch()
            for _ in range(2):
                for ref, record in load(self._harness, self.store, list(self.kernel.cache.wanted)).items():
                    self.kernel.adopt(ref, record)
                self.kernel.advance(batch, self.now)
            self.kernel.close(batch)
            if batch.writes:
                self._held.update(batch.inbox_added)
                assert commit(self._harness, self.store, batch) is None
            self.kernel.committed(batch)
