"""Requests of a hostile programmer: each is one problem, no other request waits for it, and nothing hidden is told."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

import perdure
from perdure.access.model import Grant, Login
from perdure.bulk.model import pack
from perdure.errors import CallerError
from perdure.kernel.asked import Actor
from perdure.kernel.events import Address
from perdure.server import reading, repeat
from perdure.server.http import Answer
from perdure.server.repeat import Repeats, event_id
from perdure.views.find import READINGS_MAX, readings
from tests.server.site import ADMIN, ALL, OPERATOR, run
from tests.server.test_definitions import PLAYBOOK
from tests.server.test_each_verb import patience
from tests.server.test_world import Placed, first, second

API = "/api/v1"
JSON = {"content-type": "application/json"}
BODIES = (
    ("/instances", '{"workflow": "order", "input": {"cents": ' + "1" * 5000 + "}}"),
    ("/instances", '{"\\ud800": 1}'),
    ("/instances", '{"workflow": "\\ud800"}'),
    ("/instances", '{"workflow": "order", "input": {"\\uDFFF": 1}}'),
    ("/instances/order/o-1/-/messages", '{"name": "x", "body": ["\\ud800"]}'),
    ("/bulk", '{"verb": "cancel", "selection": {"ids": ["\\udc00"]}}'),
    ("/verbs/cancel", '{"params": {"id": "\\ud800"}}'),
)
QUERIES = (
    "/instances/order/o-1/-/result?wait=nan",
    "/instances/order/o-1/-/result?wait=-inf",
    "/instances/order/o-1/-/result?wait=1e999",
    f"/instances?limit={'1' * 5000}",
    f"/instances/order/o-1/-/history?after={'9' * 1001}",
)


def test_what_is_no_json_is_one_problem_with_the_guards_of_every_answer():
    async def story(site):
        client = await site.key(OPERATOR)
        told = [await client.post(API + path, content=body, headers=JSON) for path, body in BODIES]
        return told, [await client.get(API + query) for query in QUERIES]

    bodies, queries = run(story)

    for (path, body), answer in zip(BODIES, bodies, strict=True):
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), (path, body[:60], answer.text[:200])
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert [answer.status_code for answer in queries] == [422] * len(QUERIES)


def test_a_pair_of_surrogates_is_a_letter():
    async def story(site):
        client = await site.key(OPERATOR)
        body = '{"workflow": "order", "key": "\\ud83d\\ude00", "input": {"order_id": "\\ud83d\\ude00"}}'
        made = await client.post(f"{API}/instances", content=body, headers=JSON)
        return made, await client.get(f"{API}/instances/order/\U0001f600")

    made, shown = run(story)

    assert (made.status_code, shown.status_code) == (201, 200)
    assert shown.json()["input"]["order_id"] == "\U0001f600"


def test_a_timeout_that_is_no_number_is_refused():
    async def main():
        async with perdure.open(":memory:") as engine:
            await engine.handle("order", "o-1").until("waiting", float("nan"))

    with pytest.raises(CallerError, match="nan"):
        asyncio.run(main())


def test_a_name_of_slashes_is_not_a_question_for_each_of_them():
    async def story(site):
        keys = ["a/" * 20 + "b", "/".join("k" * 100)]
        for key in keys:
            await (await site.engine.start("order", key=key)).until("waiting")
        read = [await readings(site.engine.queries, text) for text in ("a/" * 2000, "a/" * 100_000, "a/b/c")]
        client = await site.key(OPERATOR)
        found = [await client.get(f"{API}/instances/order/{key}") for key in keys]
        acted = await client.post(f"{API}/verbs/cancel", json={"params": {"id": "a/" * 100_000}})
        bulk = {"verb": "cancel", "selection": {"ids": ["a/" * 50_000]}, "dry_run": True}
        return read, found, acted, await client.post(f"{API}/bulk", json=bulk)

    read, found, acted, bulk = run(story)

    assert [len(each) for each in read] == [1, 1, 3]
    assert READINGS_MAX >= 3
    assert [each.status_code for each in found] == [200, 200]
    assert (acted.status_code, bulk.status_code) == (404, 404)


def test_names_that_a_login_does_not_see_are_never_proposed():
    async def story(site):
        for workflow in ("order", "secret_plan"):
            await (await site.engine.start(workflow, key="same")).until("waiting")
        await (await site.engine.start("secret_plan", key="hidden-9")).until("waiting")
        client = await site.key(Grant("author", ("ord*",)))
        bulk = {"verb": "cancel", "dry_run": True}
        named = [
            await client.post(f"{API}/bulk", json={**bulk, "selection": {"ids": [id]}})
            for id in ("same", "hidden-8", "secret_plan/hidden-9", "secret_plan/hidden-8")
        ]
        others = [
            await client.post(f"{API}/instances", json={"workflow": "ordr"}),
            await client.post(f"{API}/verbs/start", json={"params": {"workflow": "ordr"}}),
            await client.post(f"{API}/workflows/ordr/-/activate", json={"version": "1"}),
            await client.get(f"{API}/workflows/ordr/-/source"),
        ]
        return named, others

    named, others = run(story)

    assert [each.status_code for each in named] == [200, 404, 404, 404]
    assert [each["id"] for each in named[0].json()["sample"]] == ["order/same"]
    assert named[2].json()["detail"].replace("9", "8") == named[3].json()["detail"]
    for answer in (*named, *others):
        assert "secret_plan/same" not in answer.text
        assert not answer.is_error or "secret_plan" not in answer.text.replace("secret_plan/hidden", "")


def test_keys_of_two_actors_are_two_also_where_actors_have_slashes():
    assert len({event_id("a", "b/c"), event_id("a/b", "c"), event_id("a%2Fb", "c")}) == 3
    assert event_id("ann", "k-1") == "ann/k-1"


def test_a_kept_answer_is_given_to_no_login_that_may_see_less():
    async def story(site):
        full, blind = (
            await site.key(OPERATOR, actor="crm"),
            await site.key(Grant("operator", values=False), actor="crm"),
        )
        await (await site.engine.start("order", key="o-1")).until("waiting")
        asked = {"json": {"location": "charge", "dry_run": True}, "headers": {"idempotency-key": "k-1"}}
        on = f"{API}/instances/order/o-1/-/rewind"
        return [await client.post(on, **asked) for client in (full, full, blind)]

    first, again, other = run(story)

    assert [each.status_code for each in (first, again, other)] == [200, 200, 200]
    assert [each.headers.get("idempotency-replayed") for each in (first, again, other)] == [None, "true", None]


def test_kept_answers_take_a_bounded_number_of_bytes(monkeypatch):
    async def main():
        repeats, login = Repeats(), Login(Actor("ann"))
        monkeypatch.setattr(repeat, "KEPT_BYTES", 1000)
        done = []

        async def ask(number):
            async def work():
                done.append(number)
                return Answer(200, b"x" * 300)

            return await repeats.once(login, f"k-{number}", "said", work)

        for number in (1, 2, 3, 4, 4, 1):
            await ask(number)
        return done

    assert asyncio.run(main()) == [1, 2, 3, 4, 1]


def test_a_login_by_the_link_of_an_admin_ends_with_the_grant():
    async def story(site):
        owner = await site.login()
        for actor in ("eve", "bob"):  # one admin is left
            await owner.put(f"{API}/access/grants/{actor}", json={"grants": [{"role": "admin", "workflows": ["*"]}]})
        eve = await site.key(ADMIN, actor="eve")
        path = (await eve.post(f"{API}/access/link", json={})).json()["path"]
        browser = site.client(headers={"x-perdure": "1", "origin": site.url})
        await browser.post("/login", json={"token": path.partition("#")[2]})
        before = (await browser.get(f"{API}/whoami")).json()["grants"]
        await owner.put(f"{API}/access/grants/eve", json={"grants": []})
        site.server.accesses._read_at = float("-inf")
        return before, (await browser.get(f"{API}/whoami")).json()["grants"]

    before, after = run(story)

    assert [each["role"] for each in before] == ["admin"]
    assert after == []


@pytest.mark.parametrize("actor", ["", "a\x00b", "a" * 600])
def test_an_actor_that_no_journal_takes_gets_no_rights(actor):
    async def story(site):
        client, grants = await site.login(), [{"role": "viewer"}]
        return [
            await client.post(f"{API}/access/keys", json={"actor": actor, "grants": grants}),
            await client.put(f"{API}/access/grants/x", json={"grants": grants, "roles": [actor]}),
            await client.put(f"{API}/access/grants/x", json={"grants": [{"role": "viewer", "workflows": [actor]}]}),
        ]

    assert [answer.status_code for answer in run(story)] == [422, 422, 422]


def test_a_number_is_one_generation_for_every_verb():
    async def story(site):
        first = await site.engine.start("order", key="o-1")
        await first.send("decision", "yes")
        await first.result(60)
        await (await site.engine.start("order", "other", key="o-1", reuse="always")).until("waiting")
        now = await site.engine.queries.head(Address("order", "o-1"))
        old, new = (f"{API}/instances/@{head}" for head in (await first._id(), now.id))
        client = await site.key(ADMIN)
        told = (
            [(await client.get(f"{on}/-/result")).json()["status"] for on in (old, new)],
            [(await client.get(on)).json()["generation"] for on in (old, new)],
        )
        refused = [
            await client.post(f"{old}/-/cancel", json={}),
            await client.post(f"{old}/-/messages", json={"name": "decision", "body": "no"}),
            await client.post(f"{API}/verbs/cancel", json={"params": {"id": f"@{await first._id()}"}}),
            await client.patch(f"{old}/-/tags", json={"tags": {"a": "b"}}),
        ]
        return (
            told,
            refused,
            await site.engine.handle("order", "o-1").status(),
            await client.post(f"{new}/-/cancel", json={}),
        )

    (results, generations), refused, status, cancelled = run(story)

    assert (results, generations) == (["completed", "waiting"], [1, 2])
    assert [(each.status_code, each.json()["code"]) for each in refused] == [(409, "instance-ended")] * 4
    assert (status, cancelled.status_code) == ("waiting", 200)


def test_pages_of_the_command_line_have_no_gaps_where_others_are():
    async def story(site):
        for n in range(6):
            await (await site.engine.start(("order", "secret_plan")[n % 2], key=f"k-{n}")).until("waiting")
        client, pages, before = await site.key(Grant("viewer", ("order",))), [], 0
        while before is not None:
            params = {"params": json.dumps({"limit": 2, "before": before})}
            page = (await client.get(f"{API}/verbs/ls", params=params)).json()
            pages.append([each["id"] for each in page["instances"]])
            before = page["next_before"]
        return pages

    assert run(story) == [["order/k-4", "order/k-2"], ["order/k-0"]]


def test_what_would_hold_up_the_loop_is_refused_before(monkeypatch):
    async def story(site):
        client = await site.key(Grant("author"))
        await (await site.engine.start("order", key="o-1")).until("waiting")
        large = {"name": "decision", "body": ["x" * 1000] * 200}
        taken = await client.post(f"{API}/instances/order/o-1/-/messages", json=large)
        monkeypatch.setattr(reading, "VALUES_MAX", 1000)
        many = {"name": "decision", "body": [[1]] * 500}
        q = "status:stuck " * 1000
        return taken, [
            await client.post(f"{API}/instances/order/o-1/-/messages", json=many),
            await client.post(f"{API}/bulk", json={"verb": "cancel", "selection": {"q": q}, "dry_run": True}),
            await client.put(f"{API}/bookmarks/mine", json={"q": q}),
        ]

    taken, refused = run(story)

    assert taken.status_code == 200
    assert [(each.status_code, each.json()["code"]) for each in refused] == [
        (413, "too-large"),
        (422, "bad-filter"),
        (422, "bad-filter"),
    ]


def test_one_simulation_runs_at_a_time(monkeypatch):
    patience(monkeypatch)

    async def story(site):
        client = await site.key(Grant("author"))
        asked = [client.post(f"{API}/playbooks/simulate", json={"text": PLAYBOOK, "runs": 1}) for _ in range(3)]
        return await asyncio.gather(*asked)

    told = run(story)

    assert sorted(each.status_code for each in told) == [200, 409, 409]
    assert {each.json()["code"] for each in told if each.is_error} == {"still-working"}


@perdure.flow
async def climber(ctx, ids: bytes = b""):
    """Code of a workflow that would take rights which nobody gave it."""
    person = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": []}
    ctx.send("perdure.access/main", "grant", {"actor": "eve", "person": person})
    ctx.send("sys/world/main", "sys/approve", {"proposal": 1})
    given = {"where": "", "counted_at": datetime(2026, 1, 1, tzinfo=UTC), "rate": 50.0, "errors_max": 5}
    try:
        await ctx.child("perdure.bulk", verb="cancel", params={}, instances=ids, by="ann", reason="", **given)
    except perdure.ChildFailed as failed:
        return str(failed)
    return "done"


def test_a_workflow_takes_no_rights_and_acts_in_no_other_name():
    async def story(site):
        await perdure.Governance(site.engine).apply(perdure.manifest(first))
        admin = await site.login()
        await site.key(ADMIN)  # access is there
        await admin.post(f"{API}/world/proposals", json={"manifest": perdure.manifest(second).manifest.data()})
        await perdure.Governance(site.engine).shadow(1, mode="migrate")
        order = await site.engine.start("order", key="o-1")
        await order.until("waiting")
        said = await (await site.engine.start(climber, pack([await order._id()]), key="c")).result(60)
        await site.engine.send(Placed("after"))  # it is behind the rule in the world's mailbox
        async for _ in site.engine.changes():
            if await site.engine.instances(workflow="w/total"):
                break
        people = (await admin.get(f"{API}/access/grants")).json()["people"]
        return said, people, await order.status(), (await perdure.Governance(site.engine).proposals())[0].status

    said, people, status, proposal = run(story, workflows=[*ALL, climber, first, second])

    assert "a bulk is asked for by a person" in said
    assert (people, status, proposal) == ({}, "waiting", "shadowed")
