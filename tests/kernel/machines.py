"""The smallest dialect there is: a machine that does what it is told, and a world that drives the kernel.

An *order* is a tuple such as ("call", "a") or ("complete", 7). Orders come as the input of a start, as the
body of a message, or were given before for the receipt of a location: ("then", "a", [orders]). What the
machine heard is its state. The world plays the runtime: it loads, advances and commits, and executes nothing;
a test gives the receipts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from perdure.codec import decode, encode
from perdure.kernel import snapshot
from perdure.kernel.batch import Batch, HeadRow, InboxRow, JournalRow, Publication, SnapshotRow, WorkRow
from perdure.kernel.decision import Decision, Fact, Outcome, Reply, Send, Stuck
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait
from perdure.kernel.entry import Entry
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    ReceiptArrived,
    Redelivered,
    Ref,
    Retried,
    Settled,
    Started,
)
from perdure.kernel.gate import Executors, Gate
from perdure.kernel.identity import Identity
from perdure.kernel.instance import Instance
from perdure.kernel.kernel import Kernel, full
from perdure.kernel.limits import Limits
from perdure.kernel.location import Patterns
from perdure.kernel.machine import Machine
from perdure.kernel.mailbox import Answer, Offer
from perdure.kernel.moment import Moment
from perdure.kernel.policy import ANY, Policy
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.routing import Subscription
from perdure.kernel.rows import StoredInstance, offer_of
from perdure.kernel.rules import IN_FORCE, RULER, FactRoute, Rules, decode_rules
from perdure.kernel.status import FINAL, Status

Order = Sequence[Any]


class Told:
    """A workflow whose instances follow orders. `broken`: orders of this name raise until it is repaired."""

    def __init__(
        self,
        name: str = "told",
        *,
        limits: Limits | None = None,
        subscriptions: tuple[Subscription, ...] = (),
        version: str = "1",
        policy: Policy = ANY,
    ) -> None:
        self.name = name
        self.version = version
        self.parameters = b""
        self.policy = policy
        self.limits = limits or Limits()
        self.subscriptions = subscriptions
        self.broken: set[str] = set()
        self.renamed: dict[str, str] = {}  # locations that the code calls by another name now
        self.disposed = 0

    def machine(self, address: str, snapshot: bytes | None) -> ToldMachine:
        return ToldMachine(self, snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        asked = difference.current.open
        source = f"orders.txt:{len(asked[0].location)}" if asked else ""
        return Explanation(source=source, advice="follow the orders")


class ToldMachine:
    def __init__(self, workflow: Told, snapshot: bytes | None) -> None:
        self.workflow = workflow
        self.state: dict[str, Any] = {"heard": [], "then": {}, "name": None}
        if snapshot is not None:
            self.state = msgspec.json.decode(snapshot)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        told = self._orders(event)
        decision: dict[str, Any] = {}
        for order in told:
            self._obey(order, decision)
        self.state["heard"].append([type(event).__name__, _detail(event), moment.at, moment.entropy().hex()])
        return Decision(**decision)

    def _orders(self, event: Event) -> Iterable[Order]:
        match event:
            case Started():
                self.state["name"] = [event.workflow, event.key, event.generation]
                return _orders_in(event.input if event.first is None else event.first.body)
            case Message():
                return _orders_in(event.body)
            case ReceiptArrived():
                return self.state["then"].get(event.intent.hex(), ())  # type: ignore[no-any-return]
            case CancelAsked():
                return self.state["then"].get("cancel", [["end", "cancelled"]])  # type: ignore[no-any-return]
            case Retried():
                return self.state["then"].get("retry", ())  # type: ignore[no-any-return]
            case Settled():
                return self.state["then"].get("settle", ())  # type: ignore[no-any-return]
            case _:
                raise AssertionError(f"no machine is told of {event}")

    def _obey(self, order: Order, decision: dict[str, Any]) -> None:
        match order:
            case ["call" | "timer" | "wait" | "child" as kind, str(location), *rest]:
                effect = self._effect(kind, self.workflow.renamed.get(location, location), rest)
                self._add(decision, "open", effect)
            case ["withdraw", location, *rest]:
                self._add(decision, "withdraw", self.intent(location, rest[0] if rest else 1))
            case ["send", workflow, key, orders, *rest]:
                id = rest[0] if rest else ""
                self._add(decision, "send", Send(Address(workflow, key), "m", encode(orders), id))
            case ["announce", name, body]:
                self._add(decision, "announce", Fact(name, encode(body)))
            case ["publish", name, value]:
                self._add(decision, "publish", (name, encode(value)))
            case ["enforce", versions, routes]:
                manifest = Rules("of a test", versions, tuple(FactRoute(*route) for route in routes))
                self._add(decision, "publish", (IN_FORCE, manifest.encode()))
            case ["ids", *ids]:
                decision["ids"] = tuple(id.encode() for id in ids)
            case ["state", str(value)]:
                decision["state"] = self.workflow.renamed.get(value, value).encode()
            case ["reply", refused]:
                decision["reply"] = Reply(refused)
            case ["then", location, orders]:
                where = location if location in ("cancel", "retry", "settle") else self.intent(location).hex()
                self.state["then"][where] = orders
            case _:
                self._stop(order, decision)

    def _stop(self, order: Order, decision: dict[str, Any]) -> None:
        match order:
            case ["stuck", location]:
                decision["stuck"] = Stuck(Failure("Undecided", "asks a person"), location)
            case ["stuck", location, "open"]:
                decision["stuck"] = Stuck(Failure("Undecided", "asks a person"), location, open=True)
            case ["undo"]:
                decision["undo"] = True
            case ["end", status]:
                decision["outcome"] = Outcome(Status(status))
            case ["complete", value]:
                decision["outcome"] = Outcome(Status.COMPLETED, encode(value))
            case ["break", name]:
                if name in self.workflow.broken:
                    raise RuntimeError(f"{name} is broken")
            case ["raise", text]:
                raise RuntimeError(text)
            case _:
                assert order == ["note"], f"no such order: {order}"

    def _effect(self, kind: str, location: str, rest: list[Any]) -> Effect:
        match kind, rest:
            case "call", _:
                return Call(location, **(rest[0] if rest else {}))
            case "timer", [due]:
                return Timer(location, due)
            case "wait", [due, *params]:  # with parameters: for somebody outside
                return Wait(location, ("m",), due, *params)
            case _:
                workflow, key, orders, *detached = rest
                return Child(location, workflow, key, encode(orders), bool(detached))

    def _add(self, decision: dict[str, Any], field: str, value: object) -> None:
        decision[field] = (*decision.get(field, ()), value)

    def intent(self, location: str, attempt: int = 1) -> bytes:
        workflow, key, generation = self.state["name"]
        return Identity(Address(workflow, key), generation).intent(location, attempt)

    def work(self, intent: bytes) -> object:
        return f"work of {intent.hex()}"

    def snapshot(self) -> bytes | None:
        return msgspec.json.encode(self.state)

    def dispose(self) -> None:
        self.workflow.disposed += 1


def _orders_in(body: bytes) -> Iterable[Order]:
    """Facts have no orders in them."""
    told = decode(body)
    return told if isinstance(told, list) else ()


def _detail(event: Event) -> str:
    match event:
        case Message():
            return event.name
        case ReceiptArrived():
            return event.receipt.status
        case CancelAsked():
            return event.reason
        case _:
            return ""


class Journal(list[JournalRow]):
    """The journal of a batch that looks at the live instance after every entry."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def append(self, row: JournalRow) -> None:
        super().append(row)
        self._world.look(row)


class World:
    """One shard with a store in memory. A restart begins from its rows and from nothing else."""

    def __init__(self, *workflows: Any, gate: Gate | None = None, checked: bool = True) -> None:
        self.workflows = workflows or (Told(),)
        self.gate = gate or Executors({"inline": None})
        self.checked = checked
        self.now = 1_000
        self.lives = 1
        self.journal: list[JournalRow] = []
        self.histories: dict[int, list[JournalRow]] = {}
        self.heads: dict[int, HeadRow] = {}
        self.work: dict[bytes, WorkRow] = {}
        self.inbox: dict[bytes, InboxRow] = {}
        self.snapshots: dict[int, SnapshotRow] = {}
        self.published: dict[tuple[int, str], bytes] = {}
        self.answers: dict[object, Answer] = {}
        self.started: list[Publication] = []  # every call that executors were ever given, in order
        self.running: dict[bytes, Publication] = {}
        self.stopped: list[bytes] = []
        self.ended: list[tuple[int, Address, Outcome]] = []
        self.statuses: dict[int, list[Status]] = {}
        self._live: dict[int, list[JournalRow]] = {}
        self._snapshots: dict[int, SnapshotRow] = {}
        self._tickets = 0
        self.kernel = self._new_kernel()

    def _new_kernel(self) -> Kernel:
        last = self.journal[-1] if self.journal else None
        return Kernel(
            self.workflows,
            self.gate,
            seq=last.seq if last else 0,
            at=last.at if last else 0,
            salt=bytes([self.lives]),
            rules=decode_rules(self._published(RULER, IN_FORCE)),
        )

    def _published(self, address: Address, name: str) -> bytes | None:
        head = self._head(address)
        return None if head is None else self.published.get((head.id, name))

    # ---- in ----------------------------------------

    def offer(self, to: Ref, event: Event, *, ticket: object = None) -> object:
        """Offer an event; the answer will be in `answers` under the ticket that is returned."""
        self._tickets += 1
        ticket = ticket if ticket is not None else self._tickets
        self.kernel.offer(Offer(to, event, ticket))
        return ticket

    def start(self, key: str, *orders: Order, workflow: str = "told", reuse: str = "") -> object:
        event = Started(workflow, key, encode(list(orders)), seed=b"seed of " + key.encode(), reuse=reuse)
        return self.offer(Address(workflow, key), event)

    def tell(self, to: Ref | str, *orders: Order, id: str = "", name: str = "m", sender: str = "") -> object:
        return self.offer(self._ref(to), Message(name, encode(list(orders)), id, sender))

    def cancel(self, to: Ref | str, reason: str = "told so") -> object:
        return self.offer(self._ref(to), CancelAsked(reason))

    def retry(self, to: Ref | str) -> object:
        return self.offer(self._ref(to), Retried())

    def settle(self, to: Ref | str, location: str) -> object:
        return self.offer(self._ref(to), Settled(location, Receipt("ok")))

    def answer(self, key: str, location: str, status: Any = "ok", *, attempt: int = 1) -> object:
        """The executor's receipt for the call at a location."""
        instance = self.id(key)
        intent = self.intent(key, location, attempt)
        self.running.pop(intent, None)
        return self.offer(instance, ReceiptArrived(intent, Receipt(status)))

    def _ref(self, to: Ref | str) -> Ref:
        return Address("told", to) if isinstance(to, str) else to

    # ---- the runtime ----------------------------------------

    def load(self) -> None:
        for ref in list(self.kernel.cache.wanted):
            self.kernel.adopt(ref, self.record(ref))

    def record(self, ref: Ref) -> StoredInstance | None:
        head = self._head(ref)
        if head is None:
            return None
        if head.status in FINAL:
            return StoredInstance(head)
        taken = self.snapshots.get(head.id)
        rows = [row for row in self.histories[head.id] if taken is None or row.seq > taken.seq]
        return StoredInstance(head, taken, tuple(rows))

    def _head(self, ref: Ref) -> HeadRow | None:
        if isinstance(ref, int):
            return self.heads.get(ref)
        named = [head for head in self.heads.values() if (head.workflow, head.key) == (ref.workflow, ref.key)]
        return max(named, key=lambda head: head.generation, default=None)

    def batch(self) -> Batch:
        batch = Batch()
        batch.journal = Journal(self)
        return batch

    def build(self, batch: Batch | None = None) -> Batch:
        """Everything that can be delivered now, closed and ready to commit."""
        batch = batch if batch is not None else self.batch()
        self.load()
        while self.kernel.ready and not full(batch):
            self.kernel.advance(batch, self.now)
            self.load()
        self.kernel.close(batch)
        return batch

    def commit(self, batch: Batch) -> Batch:
        self._write(batch)
        for intent in batch.stops:
            if self.running.pop(intent, None) is not None:
                self.stopped.append(intent)
        for publication in batch.publications.values():
            assert publication.intent not in self.running, "a call that runs was handed out again"
            self.started.append(publication)
            self.running[publication.intent] = publication
        for ticket, answer in batch.answers:
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = answer
        self.ended.extend(batch.ended)
        self.kernel.committed(batch)
        return batch

    def _write(self, batch: Batch) -> None:
        for row in batch.journal:
            assert not self.journal or row.seq > self.journal[-1].seq
            self.journal.append(row)
            self.histories.setdefault(row.instance, []).append(row)
        self.heads.update(batch.heads)
        for intent in batch.work_closed:
            assert self.work.pop(intent, None) is not None, "a work row that does not exist was deleted"
        for intent, work in batch.work_opened.items():
            assert intent not in self.work, "a work row was written twice"
            self.work[intent] = work
        for id in batch.inbox_removed:
            assert self.inbox.pop(id, None) is not None, "an inbox row that does not exist was deleted"
        for id, kept in batch.inbox_added.items():
            assert id not in self.inbox, "an inbox row was written twice"
            self.inbox[id] = kept
        self.snapshots.update(batch.snapshots)
        for key, value in batch.published.items():
            self.published[key] = value.value

    def run(self) -> World:
        """Build and commit until nothing is left to do."""
        for _ in range(10_000):
            batch = self.commit(self.build())
            if not batch and not self.kernel.ready and not self.kernel.cache.wanted:
                return self
        raise AssertionError("the world does not come to rest")

    def restart(self, *, alive: Collection[bytes] = (), alone: bool = True, recover: bool = True) -> World:
        """The process died: only the rows are left, and `alive` calls (a failed commit kills none)."""
        self.lives += 1
        self.kernel = self._new_kernel()
        self.running = {id: running for id, running in self.running.items() if id in alive}
        self._live = {id: list(rows) for id, rows in self.histories.items()}
        self._snapshots = dict(self.snapshots)
        self.statuses = {id: self.statuses[id][: len(rows)] for id, rows in self.histories.items()}
        for row in self.inbox.values():
            self.kernel.offer(offer_of(row))
        if recover:
            for id in sorted(self.heads):
                if self.heads[id].status not in ("running", "stuck"):
                    continue
                self.kernel.adopt(id, self.record(id))
                for *_, instance, intent in self.kernel.recover(id, alive):
                    self.kernel.offer(Offer(instance, Redelivered(intent, alone)))
        return self

    def fire(self) -> World:
        """Answer the timers and deadlines that are due."""
        for row in sorted(self.work.values(), key=lambda row: row.due):
            if row.due <= self.now:
                status: Any = "ok" if row.kind == "timer" else "timeout"
                self.kernel.offer(Offer(row.instance, ReceiptArrived(row.intent, Receipt(status))))
        return self

    # ---- what a test asks ----------------------------------------

    def id(self, key: str, workflow: str = "told") -> int:
        """The id of the last generation, durable or not."""
        instance = self.kernel.cache._by_address.get(Address(workflow, key))
        if instance is not None and instance.id:
            return instance.id
        head = self._head(Address(workflow, key))
        assert head is not None, f"there is no {workflow}/{key}"
        return head.id

    def intent(self, key: str, location: str, attempt: int = 1, *, workflow: str = "told") -> bytes:
        generation = self.instance(key, workflow).generation
        return Identity(Address(workflow, key), generation).intent(location, attempt)

    def instance(self, key: str, workflow: str = "told") -> Instance:
        """The live instance, or the one that its rows say."""
        id = self.id(key, workflow)
        live = self.kernel.instances().get(id)
        return live if live is not None and live.version else self.folded(id)

    def folded(self, id: int) -> Instance:
        head = self.heads[id]
        return fold(Address(head.workflow, head.key), None, self.histories[id])

    def status(self, key: str, workflow: str = "told") -> str:
        return self.instance(key, workflow).status.value

    def heard(self, key: str, workflow: str = "told") -> list[str]:
        """What the machine heard, in order: rebuilt from the journal, so that it must be there."""
        instance = self.folded(self.id(key, workflow))
        definition = next(w for w in self.workflows if w.name == workflow)
        machine = rebuild(instance, definition)
        assert isinstance(machine, ToldMachine)
        return [f"{kind} {detail}".strip() for kind, detail, *_ in machine.state["heard"]]

    def entries(self, key: str, workflow: str = "told") -> list[Entry]:
        patterns = Patterns()
        rows = self._live[self.id(key, workflow)]
        return [decode_entry(row.seq, row.instance, row.at, row.body, patterns) for row in rows]

    def open(self, key: str, workflow: str = "told") -> list[str]:
        return [intent.effect.location for intent in self.instance(key, workflow).open.values()]

    def calls(self) -> list[str]:
        """Every call that executors were given: `key location delivery`."""
        return [f"{p.address.key} {p.effect.location} {p.delivery}" for p in self.started]

    # ---- live state is folded state ----------------------------------------

    def look(self, row: JournalRow) -> None:
        """After every entry: what is in memory is what the rows say, with and without a snapshot."""
        rows = self._live.setdefault(row.instance, [])
        rows.append(row)
        live = self.kernel.instances()[row.instance]
        self.statuses.setdefault(row.instance, []).append(live.status)
        if not self.checked:
            return
        assert fold(live.address, None, rows).state() == live.state()
        earlier = self._snapshots.get(row.instance)
        if earlier is not None:
            tail = [row for row in rows if row.seq > earlier.seq]
            assert fold(live.address, earlier, tail).state() == live.state()
        if live.machine is not None and live.stuck is None and not live.ended:
            self._look_at_machine(live, rows)

    def _look_at_machine(self, live: Instance, rows: list[JournalRow]) -> None:
        assert live.workflow is not None and live.machine is not None
        if not any(isinstance(each, Told) and (each.broken or each.renamed) for each in self.workflows):
            again = rebuild(fold(live.address, None, rows), live.workflow)
            assert again.snapshot() == live.machine.snapshot()
        if live.version % 3 == 0:
            sizes = live.snapshot_size, live.tail_size
            taken = snapshot.take(live)
            live.snapshot_size, live.tail_size = sizes
            assert taken is not None
            assert snapshot.restore(taken).state() == live.state()
            self._snapshots[live.id] = taken
