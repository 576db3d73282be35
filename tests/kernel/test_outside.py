"""Receipts from outside: judged from what the intent says, refused without a trace in the instance, and audited."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.codec import decode, encode
from perdure.kernel.events import Address, Message, ReceiptArrived
from perdure.kernel.mailbox import Accepted, Refused, Stale
from perdure.kernel.outside import Outside
from perdure.kernel.receipt import Answerer, Receipt
from perdure.kernel.rows import NEVER, inbox_row
from perdure.kernel.rules import AUDIT, RULER
from tests.kernel.machines import Told, World

PSP = Outside("pay@1", "psp", {"cents": 1}, entry=1).encode()
ASKED = ("wait", "pay", None, PSP)


def receipt(executor: str | None = "psp") -> Receipt:
    return Receipt("ok", encode(1), None, None if executor is None else Answerer(executor))


def world_with(*orders: Any) -> World:
    """One instance that obeys the orders, beside the world that hears of refusals."""
    world = World(Told(), Told(RULER.workflow))
    world.start(RULER.key, ("wait", "w", None), workflow=RULER.workflow)
    world.start("a", *orders)
    return world.run()


def posted(world: World, given: Receipt, location: str = "pay") -> World:
    """The receipt comes as a row of the inbox, to a kernel that has nothing in memory."""
    row = inbox_row(b"posted", world.id("a"), ReceiptArrived(world.intent("a", location), given), world.now)
    world.inbox[row.id] = row
    return world.restart()


def audits(world: World) -> list[str]:
    events = [entry.event for entry in world.entries(RULER.key, RULER.workflow)]
    return [decode(event.body)["code"] for event in events if isinstance(event, Message) and event.name == AUDIT]


def test_an_effect_for_somebody_outside_has_a_row_that_says_for_whom():
    world = world_with(ASKED, ("wait", "soon", 5_000, PSP), ("wait", "plain", None))

    assert sorted((row.kind, row.due) for row in world.work.values()) == [
        ("outside/psp", 5_000),
        ("outside/psp", NEVER),
    ]


def test_its_receipt_is_taken_and_its_row_is_gone():
    world = world_with(ASKED)

    ticket = world.offer(world.id("a"), ReceiptArrived(world.intent("a", "pay"), receipt()))
    world.run()

    assert isinstance(world.answers[ticket], Accepted)
    assert world.work == {} and world.open("a") == [] and audits(world) == []


@pytest.mark.parametrize(
    ("location", "executor", "code"),
    [("pay", "mallory", "wrong-executor"), ("call", "psp", "not-outside"), ("wait", "psp", "not-outside")],
)
def test_a_receipt_that_is_not_admitted_leaves_the_instance_as_it_was(location: str, executor: str, code: str):
    world = world_with(ASKED, ("call", "call"), ("wait", "wait", None))
    before = world.entries("a")

    ticket = world.offer(world.id("a"), ReceiptArrived(world.intent("a", location), receipt(executor)))
    world.run()

    answer = world.answers[ticket]
    assert isinstance(answer, Refused) and answer.code == code
    assert world.entries("a") == before and world.open("a") == ["pay", "call", "wait"]
    assert audits(world) == [code]
    assert world.kernel.counts["receipts_refused"] == 1


def test_a_receipt_from_the_inbox_that_does_not_say_who_it_is_from_is_not_admitted():
    world = posted(world_with(ASKED), receipt(None)).run()

    assert world.open("a") == ["pay"] and world.inbox == {} and audits(world) == ["no-identity"]


def test_the_engines_own_receipts_from_the_inbox_say_nothing_and_are_taken():
    world = posted(world_with(("call", "call")), receipt(None), "call").run()

    assert world.open("a") == [] and audits(world) == []


def test_a_deadline_needs_no_identity():
    world = world_with(("wait", "pay", 5_000, PSP))
    world.now = 6_000

    world.fire().run()

    assert world.open("a") == [] and world.work == {} and audits(world) == []


def test_an_audit_is_not_lost_with_the_memory():
    world = posted(world_with(ASKED), receipt("mallory"))
    world.load()
    world.kernel.adopt(world.id("a"), world.record(world.id("a")))
    batch = world.batch()
    world.kernel.advance(batch, world.now)  # the world itself is not in memory yet: it has heard nothing
    world.kernel.close(batch)
    assert audits(world) == [] and len(batch.inbox_added) == 1
    world.commit(batch)

    world.restart().run()

    assert audits(world) == ["wrong-executor"] and world.inbox == {}


def test_what_is_signed_is_judged_by_what_the_intent_says():
    heard: list[tuple[Address, bytes, Outside]] = []
    world = world_with(ASKED)

    def verify(address: Address, intent: bytes, outside: Outside, given: Receipt) -> str:
        heard.append((address, intent, outside))
        return "no good" if len(heard) == 1 else ""

    world.kernel.verify = verify
    first = world.offer(world.id("a"), ReceiptArrived(world.intent("a", "pay"), receipt()))
    world.run()
    second = world.offer(world.id("a"), ReceiptArrived(world.intent("a", "pay"), receipt()))
    third = world.offer(world.id("a"), ReceiptArrived(world.intent("a", "pay"), receipt()))
    world.run()

    asked = (Address("told", "a"), heard[0][1], Outside("pay@1", "psp", {"cents": 1}, entry=1))
    assert heard == [asked, asked]
    assert world.answers[first] == Refused("bad-signature", "no good")
    assert isinstance(world.answers[second], Accepted) and isinstance(world.answers[third], Stale)
