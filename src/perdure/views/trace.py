"""What an event from outside led to: from the ruler to instances, from these to effects, from effects to receipts.

Nothing of this is stored: a message is found again by who announced it, and a receipt by its intent. Where a message
goes is asked of the rules in force now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.codec import decode as decode_value
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.decision import Fact
from perdure.kernel.entry import Entry, decode
from perdure.kernel.events import Address, Message, ReceiptArrived, Retried, Started, Streamed
from perdure.kernel.location import Patterns
from perdure.kernel.moment import when
from perdure.kernel.routing import Router
from perdure.kernel.rules import IN_FORCE, RULER, decode_rules
from perdure.kernel.snapshot import restore
from perdure.ports.store import Filter, Queries
from perdure.runtime.history import effect_of, in_words, value_of

PAGE: Final = 1000


class TraceNode(msgspec.Struct, frozen=True):
    """An entry and what came of it. `what`: the event, or the receipt and of what; `open`: what has no receipt yet."""

    entry: int
    at: datetime
    id: str
    what: str
    status: str  # of a receipt
    value: Any
    outcome: str  # how it ended for the instance: stuck, deleted, failed, cancelled; mostly nothing
    open: list[str]
    led_to: list[TraceNode]


class Tracer:
    """Follows what is recorded, and reads each history once."""

    def __init__(self, queries: Queries, router: Router, ruler: HeadRow) -> None:
        self._queries = queries
        self._router = router
        self._ruler = ruler
        self._histories: dict[int, list[Entry]] = {}
        self._names: dict[int, str] = {ruler.id: str(RULER)}
        self._told: set[int] = set()  # entries that have their place already

    @classmethod
    async def of(cls, queries: Queries) -> Tracer | None:
        """None: this database has no ruler."""
        ruler = await queries.head(RULER)
        if ruler is None:
            return None
        router = Router()
        router.enforce(decode_rules(await queries.published(ruler.id, IN_FORCE)))
        return cls(queries, router, ruler)

    async def by_text(self, text: str) -> list[TraceNode]:
        """Of the events from outside that have this id or this correlation."""
        return [await self._node(entry) async for entry in self._events() if _belongs(entry, text)]

    async def by_entry(self, seq: int) -> list[TraceNode]:
        rows = await self._queries.journal(seq - 1, 1)
        if not rows or rows[0].seq != seq:
            return []
        if rows[0].instance == self._ruler.id:
            return [await self._node(_alone(rows[0]))]
        entries = await self._history(rows[0].instance)
        return [await self._node(entry) for entry in entries if entry.seq == seq]

    # ---- from entry to entry -----------------------------------------------------------------------------------

    async def _node(self, entry: Entry) -> TraceNode:
        self._told.add(entry.seq)
        what, status, value = await self._what(entry)
        decision, outcome = entry.decision, ""
        led_to: list[TraceNode] = []
        if decision.stuck is not None:
            outcome = f"stuck: {decision.stuck.error}"
            led_to += await self._retried(entry)
        elif decision.outcome is not None:
            error = decision.outcome.error
            outcome = "deleted" if error is None else f"{decision.outcome.status}: {error}"
        for fact in decision.announce:
            led_to += await self._heard(entry, fact)
        open: list[str] = []
        for id, effect in zip(decision.ids, decision.open, strict=False):
            for later in await self._history(entry.instance):
                if isinstance(later.event, Streamed) and later.event.intent == id:
                    led_to.append(await self._node(later))
            answer = await self._answer(entry, id)
            if answer is None:
                open.append(in_words(effect))
            else:
                led_to.append(await self._node(answer))
        name = await self._name(entry.instance)
        return TraceNode(entry.seq, when(entry.at), name, what, status, value, outcome, open, led_to)

    async def _what(self, entry: Entry) -> tuple[str, str, Any]:
        match entry.event:
            case Message(name=name, body=body) | Started(first=Message(name=name, body=body)):
                return name, "", decode_value(body)
            case ReceiptArrived(intent=id, receipt=receipt):
                value = None if receipt.value is None else decode_value(receipt.value)
                error = "" if receipt.error is None else f": {receipt.error}"
                return f"receipt of {await self._asked(entry.instance, id)}", f"{receipt.status}{error}", value
            case Streamed(intent=id, number=number, body=body):
                return f"frame {number} of {await self._asked(entry.instance, id)}", "", value_of(body)
            case event:
                return type(event).__name__.lower(), "", None

    async def _asked(self, instance: int, intent: bytes) -> str:
        for entry in await self._history(instance):
            for id, effect in zip(entry.decision.ids, entry.decision.open, strict=False):
                if id == intent:
                    return effect_of(effect) or in_words(effect)
        return "an effect"

    async def _heard(self, entry: Entry, fact: Fact) -> list[TraceNode]:
        """Who took a domain event. What is on its way has no entry yet."""
        sender = await self._name(entry.instance)
        found = []
        for address in self._router.route(fact):
            taken = await self._taken(address, entry.seq, fact, sender)
            if taken is not None:
                found.append(await self._node(taken))
        return found

    async def _taken(self, address: Address, after: int, fact: Fact, sender: str) -> Entry | None:
        generations = await self._queries.heads(Filter(address.workflow, key=address.key, limit=PAGE))
        for head in reversed(generations):
            for entry in await self._history(head.id):
                event = entry.event.first if isinstance(entry.event, Started) else entry.event
                if entry.seq <= after or entry.seq in self._told or not isinstance(event, Message):
                    continue
                if (event.name, event.body, event.id, event.sender) == (fact.name, fact.body, fact.id, sender):
                    return entry
        return None

    async def _answer(self, entry: Entry, intent: bytes) -> Entry | None:
        for later in await self._history(entry.instance):
            if isinstance(later.event, ReceiptArrived) and later.event.intent == intent:
                return later
        return None

    async def _retried(self, entry: Entry) -> list[TraceNode]:
        for later in await self._history(entry.instance):
            if later.seq > entry.seq and isinstance(later.event, Retried):
                return [await self._node(later)]
        return []

    # ---- reading -----------------------------------------------------------------------------------------------

    async def _events(self) -> AsyncIterator[Entry]:
        """All that came from outside, page by page."""
        after = 0
        while rows := await self._queries.history(self._ruler.id, after, PAGE):
            after = rows[-1].seq
            for row in rows:
                yield _alone(row)

    async def _history(self, instance: int) -> list[Entry]:
        if instance not in self._histories:
            patterns = Patterns()
            rows = await self._queries.history(instance)
            if rows and rows[0].seq != instance:  # a restored database has its end only
                record = await self._queries.record(instance)
                rows = [] if record is None else list(record.rows)
                if record is not None and record.snapshot is not None:
                    patterns = Patterns(restore(record.snapshot).patterns.texts())
            self._histories[instance] = [decode(row.seq, row.instance, row.at, row.body, patterns) for row in rows]
        return self._histories[instance]

    async def _name(self, instance: int) -> str:
        if instance not in self._names:
            head = await self._queries.head(instance)
            self._names[instance] = "" if head is None else f"{head.workflow}/{head.key}"
        return self._names[instance]


def _alone(row: JournalRow) -> Entry:
    """The ruler asks for no effects, so a row of it needs none of those before it."""
    return decode(row.seq, row.instance, row.at, row.body, Patterns())


def _belongs(entry: Entry, text: str) -> bool:
    return isinstance(entry.event, Message) and text in (entry.event.id, entry.event.correlation)
