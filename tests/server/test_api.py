"""The API end to end: httpx over a real socket."""

import re
from pathlib import Path

import pytest

import perdure
from perdure.access.model import Grant
from perdure.server.problems import explained
from perdure.server.routes import ROUTES
from tests.server.site import OPERATOR, VIEWER, family, run

API = "/api/v1"


@perdure.flow
async def racing(ctx):
    winner, _ = await ctx.race(
        "race", {"first": lambda ctx: ctx.receive("go"), "second": lambda ctx: ctx.sleep("nap", 999)}
    )
    return winner


def test_an_instance_is_started_told_a_message_and_gives_its_result():
    async def story(site):
        client = await site.key(OPERATOR)
        started = await client.post(
            f"{API}/instances", json={"workflow": "order", "key": "o-17", "input": {"order_id": "o-17", "cents": 42}}
        )
        await site.engine.handle("order/o-17").until("waiting")
        why = (await client.get(f"{API}/instances/order/o-17/-/why")).json()
        sent = await client.post(f"{API}/instances/order/o-17/-/messages", json={"name": "decision", "body": "yes"})
        result = await client.get(f"{API}/instances/order/o-17/-/result?wait=60")
        shown = await client.get(f"{API}/instances/order/o-17")
        return started, why, sent, result.json(), shown

    started, why, sent, result, shown = run(story)

    assert (started.status_code, started.json()) == (201, {"id": "order/o-17", "workflow": "order", "key": "o-17"})
    assert "message decision" in why["reasons"][0]["text"]
    assert sent.json() == {"id": "order/o-17", "sent": "decision"}
    assert result["status"] == "completed"
    assert result["result"] == {"paid": "c-42", "decision": "yes"}
    assert shown.json()["input"] == {"order_id": "o-17", "cents": 42}
    assert shown.headers["etag"] == f'"{shown.json()["entries"]}"'
    assert shown.json()["may"]["send"] == "the instance has completed"


def test_each_view_of_an_instance_is_there():
    async def story(site):
        client = await site.key(VIEWER)
        await (await site.engine.start("order", key="a/b", cents=1)).until("waiting")
        names = ["", "/-/why", "/-/waiting", "/-/children", "/-/history", "/-/operations"]
        found = [await client.get(f"{API}/instances/order/a/b{name}") for name in names]
        number = found[0].json()["instance"]
        return found, await client.get(f"{API}/instances/@{number}")

    found, by_number = run(story)

    assert [each.status_code for each in found] == [200] * 6
    assert by_number.json() == found[0].json()
    operations = found[5].json()["operations"]
    assert [(each["kind"], each["status"]) for each in operations] == [("step", "ok"), ("wait", "waiting")]
    assert operations[0]["value"] == "c-1"


def test_pages_neither_repeat_nor_lose_while_others_are_written():
    async def story(site):
        client = await site.key(VIEWER)
        for n in range(25):
            await site.engine.start("broken", key=f"k-{n}")
        found, cursor = [], ""
        while cursor is not None:
            answer = (await client.get(f"{API}/instances", params={"limit": 4, "cursor": cursor})).json()
            found += [each["key"] for each in answer["items"]]
            cursor = answer["next"]
            await site.engine.start("secret_plan", key=f"later-{len(found)}")
        other = await client.get(f"{API}/instances", params={"limit": 4})
        wrong = await client.get(f"{API}/instances", params={"status": "failed", "cursor": other.json()["next"]})
        return found, wrong

    found, wrong = run(story)

    assert found == [f"k-{n}" for n in reversed(range(25))]
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad-cursor")


@pytest.mark.parametrize("order", ["-started", "started"])
def test_a_list_goes_back_as_it_went_forth(order):
    async def story(site):
        client = await site.key(VIEWER)
        for n in range(11):
            await site.engine.start("broken", key=f"k-{n}")
        there, back, page = [], [], {"next": ""}
        while page["next"] is not None:
            page = (
                await client.get(f"{API}/instances", params={"limit": 4, "cursor": page["next"], "order": order})
            ).json()
            there.append([each["key"] for each in page["items"]])
            await site.engine.start("secret_plan", key=f"later-{len(there)}")
        while page["previous"] is not None:
            page = (
                await client.get(f"{API}/instances", params={"limit": 4, "cursor": page["previous"], "order": order})
            ).json()
            back.append([each["key"] for each in page["items"]])
        return there, back

    there, back = run(story)

    if order == "-started":  # what was started meanwhile is above the first page
        assert there == [["k-10", "k-9", "k-8", "k-7"], ["k-6", "k-5", "k-4", "k-3"], ["k-2", "k-1", "k-0"]]
        assert back == [*there[1::-1], ["later-3", "later-2", "later-1"]]
    else:
        assert [key for keys in there for key in keys] == [
            *[f"k-{n}" for n in range(11)],
            "later-1",
            "later-2",
            "later-3",
        ]
        assert back == there[-2::-1]


def test_large_values_are_cut_with_the_place_of_the_whole_and_fields_are_chosen():
    async def story(site):
        client = await site.key(OPERATOR)
        await (await site.engine.start("order", key="o-1", order_id="x" * 10_000)).until("waiting")
        few = (await client.get(f"{API}/instances/order/o-1?fields=id,input")).json()
        rows = (await client.get(f"{API}/instances?fields=key,status")).json()["items"]
        wrong = await client.get(f"{API}/instances?fields=stats")
        return few, rows, wrong, (await client.get(few["input"]["href"])).json()

    few, rows, wrong, whole = run(story)

    assert list(few) == ["id", "input"] and few["input"]["bytes"] > 10_000
    assert rows == [{"key": "o-1", "status": "waiting"}]
    assert (wrong.status_code, wrong.json()["where"]) == (422, "/fields")
    assert "did you mean 'status'" in wrong.json()["detail"]
    assert whole == {"id": "order/o-1", "input": {"order_id": "x" * 10_000, "cents": 0}}


def test_an_input_that_does_not_fit_has_a_row_for_each_wrong_field_and_a_page_that_explains_the_code():
    async def story(site):
        client = await site.key(OPERATOR)
        given = {"workflow": "order", "key": "o-1", "input": {"order_id": 5, "cents": "many"}}
        refused = await client.post(f"{API}/instances", json=given)
        problem = refused.json()
        return refused.status_code, problem, await client.get(problem["type"]), await client.get("/errors/no-such-code")

    status, problem, page, missing = run(story)

    assert (status, problem["code"]) == (422, "invalid-input")
    assert [row["pointer"] for row in problem["errors"]] == ["/order_id", "/cents"]
    assert (problem["expected"], problem["where"]) == ("str", "order") and "5" in problem["found"]
    assert "NotConvertible, 422" in page.text and "correct the value and call again" in page.text
    assert missing.status_code == 404


def test_every_code_that_the_server_gives_has_a_page():
    sources = [path.read_text(encoding="utf-8") for path in Path("src/perdure/server").rglob("*.py")]
    raised = {code for source in sources for code in re.findall(r'HttpProblem\(\s*\d{3},\s*"([a-z-]+)"', source)}
    codes = raised | {code for route in ROUTES for code in route.refusals}

    assert len(codes) > 50
    assert sorted(code for code in codes if not explained(code)) == []


def test_counts_and_facets():
    async def story(site):
        client = await site.key(VIEWER)
        for n in range(3):
            await (await site.engine.start("order", key=f"o-{n}", tags={"n": str(n)})).until("waiting")
        counts = [
            (await client.get(f"{API}/instances/count", params=params)).json()["count"]
            for params in ({}, {"status": "waiting"}, {"q": "tag.n>0"}, {"workflow": "order", "not.status": "waiting"})
        ]
        return counts, (await client.get(f"{API}/instances/facets")).json()["items"]

    counts, facets = run(story)

    assert counts == [3, 3, 2, 0]
    assert [(each["workflow"], each["status"], each["count"]) for each in facets] == [("order", "waiting", 3)]


def test_instances_are_grouped_by_error_and_by_what_they_wait_for():
    async def story(site):
        client = await site.key(VIEWER)
        for n in range(3):
            await (await site.engine.start("broken", key=f"b-{n}")).until("failed")
            await (await site.engine.start("order", key=f"o-{n}", cents=n)).until("waiting")
        failed = (await client.get(f"{API}/instances/groups?status=failed")).json()
        waiting = (await client.get(f"{API}/instances/groups?q=status:waiting")).json()
        blind = await site.key(Grant("viewer", values=False), actor="blind")
        hidden = (await blind.get(f"{API}/instances/groups?status=failed")).json()
        wrong = await client.get(f"{API}/instances/groups?statu=failed")
        return failed, waiting, hidden, wrong

    failed, waiting, hidden, wrong = run(story)

    (bad,) = failed["items"]
    assert (bad["workflow"], bad["reason"], bad["count"], failed["partial"]) == ("broken", "ValueError", 3, False)
    assert (bad["error"]["message"], bad["error"]["traceback"]) == ("this flow fails", "")
    assert bad["example"].startswith("broken/b-")
    assert [(each["reason"], each["count"], each["error"]) for each in waiting["items"]] == [
        ("message decision", 3, None)
    ]
    assert hidden["items"][0]["error"]["message"] == ""
    assert wrong.status_code == 422


def test_rates_tell_starts_by_hour_and_ends_of_each_workflow():
    async def story(site):
        client = await site.key(Grant("viewer", ("broken",)))
        await (await site.engine.start("broken", key="b-1")).until("failed")
        await (await site.engine.start("order", key="o-1")).until("waiting")
        return (await client.get(f"{API}/instances/rates")).json()

    rates = run(story)

    assert (sum(rates["starts"]), sum(rates["failures"])) == (1, 1)
    assert rates["by"] == {"broken": {"starts": [0] * 23 + [1], "completed": 0, "failed": 1, "cancelled": 0}}


def test_an_instance_tells_its_parents_and_the_trace_of_its_start():
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"

    async def story(site):
        client = await site.key(OPERATOR)
        await client.post(
            f"{API}/instances",
            json={"workflow": "family", "key": "f-0"},
            headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"},
        )
        await site.engine.handle("family/f-0").until("waiting")
        await site.engine.handle("family/f-2").until("waiting")
        await (await site.engine.start(hub, key="h")).until("waiting")
        blind = await site.key(Grant("viewer", ("family",)), actor="eve")
        listed = [
            {each["id"]: each["parent"] for each in (await reader.get(f"{API}/instances")).json()["items"]}
            for reader in (client, blind)
        ]
        return *[(await client.get(f"{API}/instances/family/f-{n}")).json() for n in (0, 2)], listed

    root, grandchild, (all, some) = run(story, workflows=[family, hub])
    kin = {"family/f-0": None, "family/f-1": "family/f-0", "family/f-2": "family/f-1"}

    assert (root["path"], root["trace"]) == ([], trace)
    assert (grandchild["path"], grandchild["trace"]) == (["family/f-0", "family/f-1"], "")
    assert all == {**kin, "hub/h": None, "family/c": "hub/h"}
    assert some == {**kin, "family/c": None}, "a parent that is hidden is not told"


@perdure.flow
async def hub(ctx):
    await ctx.child(family, 2, key="c")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/instances", b"{", 400, "malformed"),
        ("POST", "/instances", b'{"workflow": NaN}', 400, "malformed"),
        ("POST", "/instances", b'{"key": "a", "key": "b"}', 400, "malformed"),
        ("POST", "/instances", b"\xff", 400, "malformed"),
        ("POST", "/instances", b'{"input": ' + b"[" * 70 + b"]" * 70 + b"}", 400, "malformed"),
        ("POST", "/instances", b"[]", 422, "bad-request"),
        ("POST", "/instances", b'{"workflw": "order"}', 422, "bad-request"),
        ("POST", "/instances", b'{"workflow": 3}', 422, "bad-request"),
        ("POST", "/instances", b'{"workflow": "ordr"}', 404, "unknown-workflow"),
        ("POST", "/instances", b'{"workflow": "order", "input": {"cnts": 1}}', 422, "invalid-input"),
        ("GET", "/instances?status=stuk", b"", 422, "bad-filter"),
        ("GET", "/instances?statu=stuck", b"", 422, "bad-filter"),
        ("GET", "/instances?limit=0", b"", 422, "bad-request"),
        ("GET", "/instances?limit=501", b"", 422, "bad-request"),
        ("GET", "/instances?cursor=abc", b"", 422, "bad-cursor"),
        ("GET", "/instances/order/none", b"", 404, "not-found"),
        ("GET", "/instances/@99", b"", 404, "not-found"),
        ("GET", "/instances/order/o-1/-/dance", b"", 404, "not-found"),
        ("PUT", "/instances", b"", 405, "wrong-method"),
        ("GET", "/nothing", b"", 404, "not-found"),
        ("GET", "/tasks/12", b"", 404, "not-found"),
        ("POST", "/instances/order/o-1/-/retry", b"", 409, "not-stuck"),
        ("POST", "/instances/order/o-1/-/wake", b"", 404, "unknown-location"),
    ],
)
def test_bad_requests_are_problems(method, path, body, status, code):
    async def story(site):
        client = await site.key(OPERATOR)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        return await client.request(method, API + path, content=body, headers={"content-type": "application/json"})

    answer = run(story)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request"]


def test_a_wrong_media_type_and_large_bodies_are_refused():
    async def story(site):
        client = await site.key(OPERATOR)
        form = await client.post(f"{API}/instances", content=b"a=b", headers={"content-type": "text/plain"})
        large = await client.post(f"{API}/instances/order/o/-/cancel", content=b" " * (1024 * 1024 + 1))
        long = await client.get(f"{API}/instances?q={'a' * 9000}")
        return form.status_code, large.status_code, long.status_code

    assert run(story) == (415, 413, 414)


def test_a_field_that_there_is_not_comes_with_a_proposal():
    async def story(site):
        return (await (await site.key(OPERATOR)).post(f"{API}/instances", json={"workflw": "order"})).json()

    assert "did you mean 'workflow'?" in run(story)["detail"]


def test_one_idempotency_key_is_one_event():
    async def story(site):
        client = await site.key(OPERATOR)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        url, headers = f"{API}/instances/order/o-1/-/messages", {"idempotency-key": "k-1"}
        first = await client.post(url, json={"name": "note", "body": 1}, headers=headers)
        again = await client.post(url, json={"name": "note", "body": 1}, headers=headers)
        other = await client.post(url, json={"name": "note", "body": 2}, headers=headers)
        site.server._repeats._kept.clear()  # as after a restart: now the kernel knows it
        later = await client.post(url, json={"name": "note", "body": 1}, headers=headers)
        history = (await client.get(f"{API}/instances/order/o-1/-/history")).json()["history"]
        starts = [
            await client.post(f"{API}/instances", json={"workflow": "order"}, headers={"idempotency-key": "s-1"})
            for _ in range(2)
        ]
        return first, again, other, later, history, starts

    first, again, other, later, history, starts = run(story)

    assert first.json() == again.json() == later.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    assert [each["event"] for each in history].count("message") == 1
    assert starts[0].json() == starts[1].json()


def test_if_match_decides_with_the_entry():
    async def story(site):
        client = await site.key(OPERATOR)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        url = f"{API}/instances/order/o-1"
        tag = (await client.get(url)).headers["etag"]
        wrong = await client.post(f"{url}/-/messages", json={"name": "n"}, headers={"if-match": '"1"'})
        right = await client.post(f"{url}/-/messages", json={"name": "n"}, headers={"if-match": tag})
        stale = await client.post(f"{url}/-/cancel", json={}, headers={"if-match": tag})
        return wrong, right, stale

    wrong, right, stale = run(story)

    assert (wrong.status_code, wrong.json()["code"]) == (412, "version-conflict")
    assert right.status_code == 200
    assert stale.status_code == 412


def test_every_write_names_its_actor():
    async def story(site):
        client = await site.key(OPERATOR, actor="crm")
        await client.post(f"{API}/instances", json={"workflow": "order", "key": "o-1"})
        await site.engine.handle("order/o-1").until("waiting")
        url = f"{API}/instances/order/o-1"
        await client.patch(f"{url}/-/tags", json={"tags": {"a": "b"}})
        for reason in ("zu spät".encode(), "zu spät".encode("latin-1")):
            await client.post(f"{url}/-/messages", json={"name": "note"}, headers={"x-reason": reason})
        await client.post(f"{url}/-/cancel", json={}, headers={"x-reason": "ordered twice"})
        return (await client.get(f"{url}/-/history")).json()

    found = run(story)
    events = {entry["event"]: found["asked"].get(str(entry["number"])) for entry in found["history"]}

    assert {name: asked["by"] for name, asked in events.items() if asked} == dict.fromkeys(
        ("started", "tagged", "message", "cancel"), "crm"
    )
    assert events["cancel"]["reason"] == "ordered twice"
    assert [each["reason"] for each in found["asked"].values()].count("zu spät") == 2
    assert "key:" in events["started"]["via"]


def test_tasks_are_listed_claimed_and_completed():
    async def story(site):
        manager = await site.key(actor="mia", roles=["manager"])
        other = await site.key(actor="otto", roles=["clerk"])
        handle = await site.engine.start("approval", key="a-1", amount=9)
        await handle.until("waiting")
        listed = (await manager.get(f"{API}/tasks?candidate=true")).json()["items"]
        task = listed[0]["id"]
        hidden = await other.get(f"{API}/tasks/{task}")
        claimed = await manager.post(f"{API}/tasks/{task}/-/claim")
        bad = await manager.post(f"{API}/tasks/{task}/-/complete", json={"answer": {"outcome": "maybe"}})
        detail = (await manager.get(f"{API}/tasks/{task}")).json()
        done = await manager.post(f"{API}/tasks/{task}/-/complete", json={"answer": {"outcome": "yes"}})
        return listed, hidden, claimed, bad, detail, done, await handle.result(60)

    listed, hidden, claimed, bad, detail, done, result = run(story)

    assert listed[0]["title"] == "Approve 9"
    assert hidden.status_code == 404
    assert hidden.json()["detail"].endswith("; `GET /tasks` lists those of this login")
    assert claimed.json()["assignee"] == "mia"
    assert (bad.status_code, bad.json()["code"]) == (422, "bad-answer")
    assert "complete" in detail["may"] and detail["form"]
    assert done.json()["status"] == "completed"
    assert result == "yes"


def test_workflows_and_the_fleet_are_told():
    async def story(site):
        client = await site.key(Grant("viewer", ("order",)))
        return (await client.get(f"{API}/workflows")).json(), (await client.get(f"{API}/fleet")).json()

    workflows, fleet = run(story)

    assert [each["name"] for each in workflows["items"]] == ["order"]
    assert workflows["items"][0]["can_start"] == "needs the role operator"
    (shard,) = fleet["shards"]
    assert shard["engine"] == fleet["engine"]["name"] == fleet["engines"][0]["name"]
    assert (shard["epoch"], shard["lease_until"], fleet["oldest_undelivered"]) == ("1", None, None)
    assert (shard["undelivered"], fleet["unserved"]) == (0, [])
    (engine,) = fleet["engines"]
    assert 0 <= engine["commit_p50_seconds"] <= engine["commit_p95_seconds"]
    assert (engine["undelivered"], engine["inbox_lag_seconds"]) == (0, 0)
    assert list(engine["workflows"]) == ["order"]  # what this login sees


def test_the_fleet_tells_code_that_no_engine_has(tmp_path):
    path = str(tmp_path / "shop.db")

    async def begun(site):
        await (await site.engine.start("order", key="o-1")).until("waiting")
        return (await (await site.key(VIEWER)).get(f"{API}/fleet")).json()

    async def without(site):
        return (await (await site.key(VIEWER)).get(f"{API}/fleet")).json()

    served = run(begun, url=path)
    left = run(without, url=path, workflows=[family])

    ((name, (version,)),) = [each for each in served["engines"][0]["workflows"].items() if each[0] == "order"]
    assert served["unserved"] == []
    assert left["unserved"] == [{"workflow": name, "version": version, "live": 1}]
    assert list(left["engines"][0]["workflows"]) == ["family"]


def test_a_key_may_have_what_paths_end_with():
    async def story(site):
        client = await site.key(OPERATOR)
        started = await client.post(f"{API}/instances", json={"workflow": "order", "key": "a/-/b"})
        shown = [await client.get(f"{API}/instances/order/a{sign}b") for sign in ("/-/", "%2F-%2F")]
        return started, shown, await client.get(f"{API}/instances/order/none/-/b")

    started, shown, none = run(story)

    assert started.status_code == 201
    assert [each.json()["key"] for each in shown] == ["a/-/b", "a/-/b"]
    assert (none.status_code, none.json()["code"]) == (404, "not-found")


def test_a_wait_whose_message_came_is_ok_and_one_that_lost_a_race_is_dropped():
    async def story(site):
        client = await site.key(OPERATOR)
        handle = await site.engine.start("racing", key="r")
        await handle.until("waiting")
        await handle.send("go", 7)
        await handle.result()
        operations = (await client.get(f"{API}/instances/racing/r/-/operations")).json()["operations"]
        return {each["location"]: (each["status"], each["value"]) for each in operations}

    found = run(story, workflows=[racing])

    assert found == {"race/first/receive:go": ("ok", 7), "race/second/nap": ("dropped", None)}


def test_bounds_of_times_are_parameters_too():
    async def story(site):
        client = await site.key(VIEWER)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        bounds = ("started=>2026-11-01", "started=%3E2026-11-01", "started.gt=2026-11-01", "started=<2026-11-01")
        found = [(await client.get(f"{API}/instances?{each}")).json()["items"] for each in bounds]
        return [len(items) for items in found], (await client.get(f"{API}/instances?started=2026-11-01")).json()

    counts, bare = run(story)

    assert counts == [1, 1, 1, 0]
    assert bare["code"] == "bad-filter" and "started.gt=" in bare["detail"]
