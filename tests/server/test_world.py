"""Cells over HTTP: events, effects of executors outside, and proposals that another person approves."""

from typing import Any

import perdure
from perdure import Next, ReceiptOf
from perdure.access.model import Grant
from perdure.kernel.events import Address
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
        again = [await each.post(f"{API}/receipts/{intent}", json={"ok": {"auth": "y"}}) for each in (bank, printer)]
        never = await bank.post(f"{API}/receipts/{'00' * 16}", json={"ok": {"auth": "y"}})
        unchanged: Any = await site.engine.state(first, "a")
        return sent, limited, waiting, none, refused, empty, done, [*again, never], unchanged.n

    sent, limited, waiting, none, refused, empty, done, late, n = run(story, workflows=[*ALL, first])

    assert [each.status_code for each in sent] == [200, 200]
    assert limited.status_code == 404
    assert [(each["effect"], each["executor"]) for each in waiting] == [("w/pay@1", "bank")]
    assert (none[0], none[1].status_code) == ([], 404)
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown-intent")
    assert (empty.status_code, done.status_code) == (422, 200)
    assert [each.status_code for each in late] == [202, 404, 404] and n == 1000
    assert {each.json()["code"] for each in late[1:]} == {"unknown-intent"}


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


def test_a_proposal_is_shadowed_and_compared_over_http():
    async def story(site):
        rules = perdure.Governance(site.engine)
        await rules.apply(perdure.manifest(first))
        author, bob = await site.key(Grant("author"), actor="ann"), await site.key(ADMIN, actor="bob")
        blind = await site.key(Grant("viewer", ("sys/world",)), actor="vi")
        wanted = perdure.manifest(second).manifest.data()
        on = f"{API}/world"
        for _ in range(2):
            await author.post(f"{on}/proposals", json={"manifest": wanted})
        difference = await author.get(f"{on}/diff", params={"proposal": 1})
        await placed(site, "a")
        await placed(site, "b")
        shadowed = await author.post(f"{on}/proposals/1/-/shadow", json={"mode": "migrate"})
        seen = [(await client.get(f"{on}/proposals")).json()["items"][-1]["report"] for client in (author, blind)]
        refused = {
            "unknown": await author.post(f"{on}/proposals/9/-/shadow", json={}),
            "mode": await author.post(f"{on}/proposals/1/-/shadow", json={"mode": "at once"}),
            "effect": await author.post(f"{on}/proposals/1/-/shadow", json={"receipts": {"w/nothing@1": 1}}),
            "viewer": await blind.post(f"{on}/proposals/1/-/shadow", json={}),
            "diff": await author.get(f"{on}/diff", params={"proposal": 9}),
        }
        await bob.post(f"{on}/proposals/1/-/approve", json={})
        await bob.post(f"{on}/proposals/1/-/apply", json={"mode": "migrate"})
        stale = [
            await author.get(f"{on}/diff", params={"proposal": 2}),
            await author.post(f"{on}/proposals/2/-/shadow", json={}),
        ]
        dry = await bob.post(f"{on}/migrate", json={"dry_run": True})
        forged = await bob.post(f"{on}/migrate", json={"plan": "7-00"})
        done = await bob.post(f"{on}/migrate", json={"plan": dry.json()["plan"]})
        author_may_not = await author.post(f"{on}/migrate", json={})
        return difference, shadowed, seen, refused, stale, dry, forged, done, author_may_not

    difference, shadowed, seen, refused, stale, dry, forged, done, no = run(story, workflows=[*ALL, first, second])

    assert difference.status_code == 200, difference.text
    assert difference.json()["changes"] and difference.json()["hash"] != difference.json()["proposed"]
    assert (shadowed.status_code, shadowed.json()["status"]) == (200, "shadowed"), shadowed.text
    whole, numbers = seen
    assert whole["statuses"] == numbers["statuses"]
    assert (numbers["states"], numbers["first_effects"]) == ([], [])
    assert {name: (each.status_code, each.json()["code"]) for name, each in refused.items()} == {
        "unknown": (404, "unknown-proposal"),
        "mode": (422, "bad-request"),
        "effect": (422, "bad-request"),
        "viewer": (403, "forbidden"),
        "diff": (404, "unknown-proposal"),
    }
    assert [(each.status_code, each.json()["code"]) for each in stale] == [(409, "stale-patch")] * 2
    assert (dry.json()["migrated"], sorted(dry.json()["sample"])) == (2, ["w/total/a", "w/total/b"])
    assert (forged.status_code, forged.json()["code"]) == (409, "selection-changed")
    assert (done.json(), no.status_code) == ({"migrated": 2}, 403)


async def placed(site, cell, **said):
    await site.engine.send(Placed(cell), **said)
    async for _ in site.engine.changes():
        if await site.engine.queries.head(Address("w/total", cell)) is not None:
            return


def test_the_rules_of_a_world_are_asked_by_their_own_verbs_alone():
    """A message to the world is a rule: who may send messages approves no manifest by one."""

    async def story(site):
        await perdure.Governance(site.engine).apply(perdure.manifest(first))
        author, operator = await site.key(Grant("author"), actor="ann"), await site.key(OPERATOR, actor="op")
        wanted = perdure.manifest(second).manifest.data()
        await author.post(f"{API}/world/proposals", json={"manifest": wanted})
        await perdure.Governance(site.engine).shadow(1, mode="migrate")
        rule = {"name": "sys/approve", "body": {"proposal": 1}}
        on, world = f"{API}/instances/sys/world/main/-", "sys/world/main"
        tried = []
        for client in (operator, author, await site.login()):
            tried += [
                await client.post(f"{on}/messages", json=rule),
                await client.post(f"{on}/ask", json=rule),
                await client.post(f"{on}/cancel", json={}),
                await client.patch(f"{on}/tags", json={"tags": {"a": "b"}}),
                await client.post(f"{API}/verbs/send", json={"params": {"id": world, **rule}}),
            ]
        bulk = {"verb": "send", "selection": {"ids": [world]}, "params": rule}
        tried.append(await operator.post(f"{API}/bulk", json=bulk))
        may = (await operator.get(f"{API}/instances/{world}")).json()["may"]
        sent = await operator.post(f"{API}/events", json={"name": "w/Placed@1", "data": {"id": "a"}})
        listed = await operator.get(f"{API}/instances")
        return tried, may, sent, (await perdure.Governance(site.engine).proposals())[0].status, listed

    tried, may, sent, status, listed = run(story, workflows=[*ALL, first, second])

    assert {each.status_code for each in tried} <= {403, 404}
    assert "sys/world/main" not in [each["id"] for each in listed.json()["items"]]
    assert set(may.values()) == {"needs the verbs of its own"}
    assert (sent.status_code, status) == (200, "shadowed")


def test_a_shadow_run_needs_the_code_and_rules_need_an_engine(tmp_path):
    path = str(tmp_path / "world.db")

    async def begun(site):
        await perdure.Governance(site.engine).apply(perdure.manifest(first))
        author = await site.key(Grant("author"))
        wanted = perdure.manifest(second).manifest.data()
        await author.post(f"{API}/world/proposals", json={"manifest": wanted})
        return await author.post(f"{API}/world/proposals/1/-/shadow", json={})

    async def alone(site):
        admin = await site.login()
        on = f"{API}/world"
        return [
            await admin.post(f"{on}/proposals/1/-/approve", json={}),
            await admin.post(f"{on}/migrate", json={}),
            await admin.get(f"{on}/proposals"),
        ]

    without_code = run(begun, url=path, workflows=[*ALL, first])
    approve, migrate, listed = run(alone, url=path, connect=True)

    assert (without_code.status_code, without_code.json()["code"]) == (409, "code-not-here")
    for each in (approve, migrate):
        assert (each.status_code, each.json()["code"], each.headers["retry-after"]) == (503, "no-engine", "5")
    assert [each["status"] for each in listed.json()["items"]] == ["proposed"]


def test_world_snapshots_are_taken_listed_and_freed():
    async def story(site):
        await perdure.Governance(site.engine).apply(perdure.manifest(first))
        admin, author = await site.key(ADMIN), await site.key(Grant("author"), actor="ada")
        on = f"{API}/world/snapshots"
        for id in ("a", "b"):
            await placed(site, id)
            taken = await admin.post(on, json={})
        listed = await admin.get(on)
        dry = await admin.post(f"{on}/gc", json={"keep": 1, "dry_run": True})
        bad = await admin.post(f"{on}/gc", json={"keep": 0})
        freed = await admin.post(f"{on}/gc", json={"keep": 1})
        left = await admin.get(on)
        return taken, listed, dry, bad, freed, left, await author.post(on, json={}), await author.get(on)

    taken, listed, dry, bad, freed, left, *no = run(story, workflows=[*ALL, first])

    assert taken.status_code == 200, taken.text
    assert [each["cells"]["w/total"] for each in listed.json()["items"]] == [1, 2]
    assert listed.json()["items"][-1]["hash"] == taken.json()["snapshot"]["hash"]
    assert dry.json()["snapshots"] == freed.json()["snapshots"] == [listed.json()["items"][0]["hash"]]
    assert (bad.status_code, len(left.json()["items"])) == (422, 1)
    assert [each.status_code for each in no] == [403, 403]


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
