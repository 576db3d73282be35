"""Drives the machine of one graph without an engine: calls run in this thread, time and people are the test's.

Every event is delivered to the live machine. With `rebuild` the machine is made again from its snapshot after each one,
so that nothing can hide outside of its state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

from perdure.codec import decode, encode
from perdure.executors import info
from perdure.graphs import Graph
from perdure.graphs.machine import GraphMachine
from perdure.kernel.check import check
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Call, Child, Effect, Timer
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Requested, Started
from perdure.kernel.instance import Instance
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import DONE, Failure, Receipt
from perdure.ports import asking
from perdure.tasks.model import WORKFLOW as TASK

SECOND = 1_000_000_000


class Pending:
    """An answer that a run waits for."""

    def __init__(self, id: str, name: str, body: bytes) -> None:
        self.id, self.name, self.body = id, name, body

    def __await__(self) -> Generator[Any, Any, bytes]:
        answer: bytes = yield self
        return answer


class Live:
    """A run in the hands of the rig."""

    def __init__(self, intent: bytes, location: str, delivery: int, coroutine: Any) -> None:
        self.intent, self.location, self.delivery = intent, location, delivery
        self.coroutine = coroutine
        self.waits_for = ""


class Rig:
    def __init__(self, graph: Graph, input: Any = None, *, key: str = "k", rebuild: bool = False, **start: Any) -> None:
        self.graph = graph
        self.rebuild = rebuild
        self.now = 1_700_000_000 * SECOND
        self.number = 0
        self.machine: Any = graph.machine(f"{graph.name}/{key}", None)
        self.journal: list[tuple[Event, Moment, Decision]] = []
        self.open: dict[bytes, Effect] = {}
        self.deliveries: dict[bytes, int] = {}
        self.live: dict[bytes, Live] = {}
        self.hands: list[Callable[[], None]] = []  # what executors are about to do, in order
        self.ran: list[str] = []  # locations of calls, as they began
        self.outcome: Any = None
        self.most = 0
        self.responses: dict[str, Any] = {}
        self.input = graph.encode_input((input,), start)
        self.instance = Instance(Address(graph.name, key))
        self.instance.generation = 1
        self.deliver(Started(graph.name, key, self.input, b"seed"))

    # ---- events ------------------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> Decision:
        self.number += 1
        moment = Moment(self.now, b"seed", self.number, None, None, self.number, self.now)
        decision: Decision = self.machine.deliver(event, moment)
        self.journal.append((event, moment, decision))
        if isinstance(event, ReceiptArrived):
            self.open.pop(event.intent, None)
        for id in decision.withdraw:
            assert id in self.open, "only what is open can be withdrawn"
            del self.open[id]
            cut = self.live.pop(id, None)
            if cut is not None:
                cut.coroutine.close()
        assert len(decision.open) <= 1000 + 10
        check(self.instance, event, Decision(open=decision.open, intents=decision.intents))
        for id, effect in zip(decision.intents, decision.open, strict=True):
            assert id not in self.open, f"two effects at {effect.location}"
            self.open[id] = effect
        if self.rebuild:
            self._rebuild()
        for id, effect in zip(decision.intents, decision.open, strict=True):
            if isinstance(effect, Call):
                self._hand_out(id)
        for intent, request, value in decision.answers:
            self._answer(intent, request, value)
        for message, said in decision.respond:
            self.responses[message] = decode(said)
        if decision.outcome is not None:
            assert self.outcome is None
            self.outcome = decision.outcome
            self.open.clear()
        self.most = max(self.most, self.state.running)
        return decision

    def _rebuild(self) -> None:
        data = self.machine.snapshot()
        self.machine = self.graph.machine(f"{self.graph.name}/k", data)
        assert self.machine.snapshot() == data, "a snapshot is canonical"

    def _hand_out(self, intent: bytes) -> None:
        self.deliveries[intent] = self.deliveries.get(intent, 0) + 1
        self.hands.append(lambda: self._begin(intent))

    def _begin(self, intent: bytes) -> None:
        effect = self.open.get(intent)
        if not isinstance(effect, Call) or intent in self.live:
            return
        work = self.machine.work(intent)
        self.ran.append(effect.location)
        if effect.executor == "thread":
            self._answered(intent, lambda: work.function(*work.args, **work.kwargs))
            return
        delivery = self.deliveries[intent]
        token = asking.current.set(Pending)
        live = Live(intent, effect.location, delivery, work.function(*work.args, **work.kwargs))
        self.live[intent] = live
        try:
            self._advance(live, None)
        finally:
            asking.current.reset(token)

    def _advance(self, live: Live, value: Any) -> None:
        try:
            asked = live.coroutine.send(value)
        except StopIteration as end:
            self.live.pop(live.intent, None)
            self._receipt(live.intent, info.ok(end.value, None))
            return
        except Exception as error:
            self.live.pop(live.intent, None)
            self._receipt(live.intent, info.error(error))
            return
        assert isinstance(asked, Pending), "runs of the rig wait for answers only"
        live.waits_for = asked.id
        event = Requested(live.intent, live.delivery, asked.id, asked.name, asked.body)
        self.hands.append(lambda: self._request(live, event))

    def _request(self, live: Live, event: Requested) -> None:
        if self.live.get(live.intent) is live:
            self.deliver(event)

    def _answer(self, intent: bytes, request: str, value: bytes) -> None:
        live = self.live.get(intent)
        if live is not None and live.waits_for == request:
            live.waits_for = ""
            self.hands.append(lambda: self._go_on(live, value))

    def _go_on(self, live: Live, value: bytes) -> None:
        if self.live.get(live.intent) is live:
            token = asking.current.set(Pending)
            try:
                self._advance(live, value)
            finally:
                asking.current.reset(token)

    def _answered(self, intent: bytes, function: Callable[[], Any]) -> None:
        try:
            receipt = info.ok(function(), None)
        except Exception as error:
            receipt = info.error(error)
        self._receipt(intent, receipt)

    def _receipt(self, intent: bytes, receipt: Receipt) -> None:
        if intent in self.open:
            self.deliver(ReceiptArrived(intent, receipt))

    # ---- what a test does --------------------------------------------------------------------------------------------

    def run(self, dice: random.Random | None = None, steps: int = 1_000_000) -> Rig:
        """Let executors work until nothing moves by itself. Timers do not fire."""
        while self.hands and steps:
            steps -= 1
            place = dice.randrange(len(self.hands)) if dice is not None else 0
            self.hands.pop(place)()
            if self.outcome is not None:
                break
            self.fire(0)
        return self

    def fire(self, seconds: float) -> None:
        """Let time pass, and timers fire that are due."""
        until = self.now + round(seconds * SECOND)
        while True:
            due = sorted((e.due, id) for id, e in self.open.items() if isinstance(e, Timer) and e.due <= until)
            if not due or self.outcome is not None:
                break
            self.now = max(self.now, due[0][0])
            self.deliver(ReceiptArrived(due[0][1], DONE))
            if seconds:
                self.run()
        self.now = until

    def crash(self) -> None:
        """The process dies: runs begin again, with the machine that the journal gives."""
        for live in self.live.values():
            live.coroutine.close()
        self.live.clear()
        self.hands.clear()
        self.machine = self.replayed()
        for intent, effect in self.open.items():
            if isinstance(effect, Call):
                self._hand_out(intent)

    def replayed(self) -> GraphMachine:
        """A machine that was told the whole journal again. It decides the same."""
        machine: Any = self.graph.machine(f"{self.graph.name}/k", None)
        for event, moment, decision in self.journal:
            again = machine.deliver(event, moment)
            assert again == decision, f"replay decides otherwise at {moment.number}"
        return machine  # type: ignore[no-any-return]

    def tasks(self) -> list[tuple[bytes, Any]]:
        """The questions to people that are open, with their data."""
        found = [(id, e) for id, e in self.open.items() if isinstance(e, Child) and e.workflow == TASK]
        return [(id, decode(effect.input)) for id, effect in found]

    def say(self, intent: bytes, outcome: str, **answer: Any) -> None:
        """A person answers a question."""
        value = {"outcome": outcome, "answer": {"outcome": outcome, **answer}, "by": "ann"}
        self._receipt(intent, Receipt("ok", encode(value)))
        self.run()

    def expire(self, intent: bytes) -> None:
        self._receipt(intent, Receipt("error", error=Failure("TaskExpired", "")))
        self.run()

    def child(self, location: str, receipt: Receipt) -> None:
        id = next(id for id, e in self.open.items() if isinstance(e, Child) and e.location == location)
        self._receipt(id, receipt)
        self.run()

    def send(self, name: str, body: Any) -> Decision:
        decision = self.deliver(Message(name, encode(body), f"m{self.number}"))
        self.run()
        return decision

    def deliver_message(self, name: str, body: Any) -> str:
        """A message, without letting anything else happen. Gives its id."""
        id = f"m{self.number}"
        self.deliver(Message(name, encode(body), id))
        return id

    def cancel(self) -> None:
        self.deliver(CancelAsked("enough"))

    # ---- what a test sees --------------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        return self.machine.state

    @property
    def result(self) -> Any:
        assert self.outcome is not None, f"it has not ended: {self.outcomes()}"
        assert self.outcome.status == "completed", self.outcome.error
        return decode(self.outcome.value)

    def outcomes(self) -> dict[str, str]:
        """Each node with its outcome, and the reason if there is one."""
        found = {}
        for name, node in self.state.nodes.items():
            word = node.outcome or node.status
            found[name] = f"{word}({node.reason})" if node.reason else word
        return found

    def facts(self, kind: str) -> list[Any]:
        """What the facts of one kind say, in order."""
        found: list[Any] = []
        for _, _, decision in self.journal:
            for fact in decision.announce:
                if fact.name == f"graph/{kind}@1":
                    body = decode(fact.body)
                    found += body.get("nodes", body.get("items", []))
        return found

    def opened(self) -> list[str]:
        return [each["node"] for each in self.facts("opened")]


async def echo(node: Any) -> Any:
    """A runner that returns its goal."""
    return node.goal


def run(graph: Graph, input: Any = None, **start: Any) -> Rig:
    return Rig(graph, input, **start).run()
