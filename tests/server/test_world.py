"""Cells over HTTP: events, effects of executors outside, and proposals that another person approves."""

from typing import Any

import perdure
from perdure import Next, ReceiptOf
from perdure.access.model import Grant
from perdure.processes import Complete, Process, Receive, Reference, start
from tests.server.site import ADMIN, ALL, OPERATOR, VIEWER, run
from tests.server.test_stream import events, until

API = "/api/v1"


class Placed(perdure.Record, name="w/Placed@1"):
    id: str


class Total(perdure.Record, name="w/Total@1"):
    n: perdure.Nat


class Pay(perdure.Effect, name="w/pay@1", outside="bank"):
    n: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


@perdure.cell("w/total@1", key="id", effects=[Pay])
def first(state: Total | None, event: Placed | ReceiptOf[Pay]) -> Next:
    if isinstance(event, ReceiptOf):
        return Next(Total(1000))
    return Next(Total(1), effects=[Pay(1)])


@perdure.cell("w/total@2", key="id", effects=[Pay], migrate=lambda old: old)
def second(state: Total | None, event: Placed | ReceiptOf[Pay]) -> Next:
    return Next(Total(2))


referring = Process(
    "referring",
    version="1.0.0",
    reference=Reference(start.id),
    steps=[Receive("wait", "go"), Complete("done")],
)


def test_an_executor_with_its_key_sees_its_effects_alone_and_answers_them():
    async def story(site):
        operator, bank = await site.key(OPERATOR), await site.key(executor="bank", actor="bank")
        printer = await site.key(executor="printer", actor="printer")
        sent = [
            await operator.post(
                f"{API}/events", json={"name": "w/Placed@1", "data": {"id": "a"}}, headers={"idempotency-key": "e-1"}
            )
            for _ in range(2)
        ]
        limited = await (await site.key(Grant("operator", ("order",)), actor="x")).post(
            f"{API}/events", json={"name": "w/Placed@1", "data": {"id": "b"}}
        )
        async for _ in site.engine.changes():
            waiting = (await bank.get(f"{API}/effects")).json()["items"]
            if waiting:
                break
        none = (await printer.get(f"{API}/effects")).json()["items"], (await operator.get(f"{API}/effects"))
        intent = waiting[0]["intent"]
        refused = await printer.post(f"{API}/receipts/{intent}", json={"ok": {"auth": "x"}})
        empty = await bank.post(f"{API}/receipts/{intent}", json={})
        done = await bank.post(f"{API}/receipts/{intent}", json={"ok": {"auth": "x"}})
        async for _ in site.engine.changes():
            state: Any = await site.engine.state(first, "a")
            if state.n == 1000:
                break
        again = await bank.post(f"{API}/receipts/{intent}", json={"ok": {"auth": "x"}})
        return sent, limited, waiting, none, refused, empty, done, again

    sent, limited, waiting, none, refused, empty, done, again = run(story, workflows=[*ALL, first])

    assert [each.status_code for each in sent] == [200, 200]
    assert limited.status_code == 404
    assert [(each["effect"], each["executor"]) for each in waiting] == [("w/pay@1", "bank")]
    assert (none[0], none[1].status_code) == ([], 404)
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown-intent")
    assert (empty.status_code, done.status_code) == (422, 200)
    assert (again.status_code, again.json()["code"]) == (404, "unknown-intent")


def test_the_proposer_of_a_manifest_does_not_approve_it():
    async def story(site):
        rules = perdure.Governance(site.engine)
        await rules.apply(perdure.manifest(first))
        ann, bob = await site.key(ADMIN, actor="ann"), await site.key(ADMIN, actor="bob")
        wanted = perdure.manifest(second).manifest.data()
        proposed = await ann.post(f"{API}/world/proposals", json={"manifest": wanted})
        early = await bob.post(f"{API}/world/proposals/1/-/approve", json={})
        await rules.shadow(1, mode="migrate")
        own = await ann.post(f"{API}/world/proposals/1/-/approve", json={})
        approved = await bob.post(f"{API}/world/proposals/1/-/approve", json={})
        applied = await bob.post(f"{API}/world/proposals/1/-/apply", json={"mode": "migrate"})
        shown = await (await site.key(VIEWER, actor="vi")).get(f"{API}/world/manifest")
        listed = (await ann.get(f"{API}/world/proposals")).json()["items"]
        return proposed, early, own, approved, applied, shown, listed

    proposed, early, own, approved, applied, shown, listed = run(story, workflows=[*ALL, first, second])

    assert (proposed.json()["number"], proposed.json()["by"]) == (1, "ann"), proposed.text
    assert (early.status_code, early.json()["code"]) == (409, "rule-refused")
    assert (own.status_code, own.json()["code"]) == (409, "four-eyes")
    assert approved.json()["status"] == "approved"
    assert (shown.status_code, applied.status_code) == (200, 200), shown.text + applied.text
    assert shown.json()["hash"] == applied.json()["hash"]
    assert [(each["status"], each["by"]) for each in listed] == [("applied", "ann")]


def test_a_message_finds_the_instance_of_its_reference():
    async def story(site):
        for key, reference in (("o-1", "r-1"), ("o-2", "r-2"), ("o-3", "r-2")):
            handle = await site.engine.start_plain("referring", {"id": reference}, key=key)
            await handle.until("waiting")
        client = await site.key(OPERATOR)
        return [
            await client.post(f"{API}/messages", json={"reference": each, "name": "go", "body": 1})
            for each in ("r-1", "r-2", "r-3")
        ]

    found = run(story, workflows=[*ALL, referring])

    assert found[0].json() == {"id": "referring/o-1", "sent": "go"}
    assert [(each.status_code, each.json()["code"]) for each in found[1:]] == [
        (409, "ambiguous-reference"),
        (404, "not-found"),
    ]


def test_a_bulk_is_watched_by_who_asked_for_it():
    async def story(site):
        client, other = await site.key(OPERATOR, actor="ann"), await site.key(OPERATOR, actor="bob")
        for n in range(3):
            await (await site.engine.start("order", key=f"o-{n}")).until("waiting")
        asked = {"verb": "cancel", "selection": {"q": "workflow:order"}, "rate": 0.5}
        id = (await client.post(f"{API}/bulk", json=asked)).json()["id"]
        stream = events(client, f"bulk:{id}")
        await until(stream, "live")
        await client.post(f"{API}/bulk/{id}/-/cancel", json={})
        async for _, data, _ in stream:
            if data.get("status") == "cancelled":
                break
        hidden = await other.get(f"{API}/stream", params={"channels": f"bulk:{id}"})
        return data["id"], id, hidden.status_code

    told, id, hidden = run(story)

    assert told == f"perdure.bulk/{id}"
    assert hidden == 404
