"""What the pages say word for word: names of bodies, codes, places of what is wrong, and what a typo may not do."""

import asyncio
import json
import shlex

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import perdure
from perdure.access.model import Grant
from perdure.cli.commands.serve import _url
from perdure.kernel.asked import Actor
from perdure.server import Settings, app
from perdure.server.openapi import document
from perdure.server.problems import HttpProblem
from perdure.server.reading import read_json
from perdure.server.routes import EXAMPLE, ROUTES
from perdure.server.settings import secret_of
from perdure.verbs.act import SettleParams
from tests.server.site import ADMIN, OPERATOR, VIEWER, order, run, secret_plan

API = "/api/v1"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"a": 1,}', "1:9"),
        (b'{"a":\n  NaN}', "2:3"),
        (b'{"a": {"b": 1},\n "c": {"x": 1, "x": 2}}', "2:16"),
        (b'{"a": "b\xff"}', "1:9"),
        (b'["\\ud800"]', "1:2"),
        (b'{"a": 1e999}', "1:7"),
        (b"[" * 70 + b"]" * 70, "1:65"),
        (b'{"a": "\\"NaN {", "b": -Infinity}', "1:23"),
    ],
)
def test_what_is_malformed_has_its_line_and_column(body, where):
    with pytest.raises(HttpProblem) as refused:
        read_json(body)

    assert (refused.value.code, refused.value.more["where"]) == ("malformed", where)


def test_an_unknown_name_within_an_object_of_a_body_is_refused():
    """A misspelled `workflows` would grant all of them."""

    async def story(site):
        admin = await site.login()
        grant = {"actor": "x", "grants": [{"role": "viewer", "workflws": ["order"]}]}
        nowhere = {"actor": "x", "grants": [{"role": "viewer", "workflows": []}]}
        bulk = {"verb": "cancel", "selection": {"q": "workflow:none", "idz": []}}
        many = {"instances": [{"workflow": "order", "inptu": {}}]}
        asked = [("/access/keys", grant), ("/access/keys", nowhere), ("/bulk", bulk), ("/instances", many)]
        asked += [("/bulk", {"verb": "retyr", "selection": {}}), ("/instances", []), ("/instances", {"input": {}})]
        asked += [("/instances", {"workflow": "order", "delay": "soon"}), ("/instances", [{"input": {}}])]
        return [await admin.post(API + path, json=body) for path, body in asked], await admin.post(f"{API}/instances")

    found, empty = run(story)

    assert [each.status_code for each in found] == [422] * 9
    texts = [each.json()["detail"] for each in found[4:]]
    assert texts[0].startswith("no verb is named 'retyr'; did you mean 'retry'?")
    assert texts[1:] == [
        "a list has 1 to 500 starts, found 0",
        "workflow is missing: a start names one",
        "delay is a number, found a text",
        "workflow is missing in instances/0",
    ]
    assert found[0].json()["where"] == "/grants/0/workflws"
    assert "did you mean 'workflows'" in found[0].json()["detail"]
    assert "did you mean 'input'" in found[3].json()["detail"]
    assert (empty.status_code, empty.json()["code"]) == (422, "bad-request")


def test_bodies_have_the_names_of_the_page():
    async def story(site):
        client = await site.key(OPERATOR)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        on = f"{API}/instances/order/o-1/-"
        said = {
            "to": await client.post(f"{on}/rewind", json={"to": "charge", "dry_run": True}),
            "location": await client.post(f"{on}/rewind", json={"location": "charge", "dry_run": True}),
            "both": await client.post(f"{on}/rewind", json={"to": "charge", "location": "charge"}),
            "at": await client.post(f"{on}/fork", json={"at": "charge", "key": "o-2"}),
            "value": await client.post(f"{on}/settle", json={"location": "charge", "value": 1, "reason": "x"}),
            "error": await client.post(f"{on}/settle", json={"location": "charge", "error": "no"}),
            "two": await client.post(f"{on}/settle", json={"location": "charge", "error": "no", "value": 1}),
            "bulk": await client.post(
                f"{API}/bulk",
                json={"verb": "rewind", "selection": {"q": "key:o-1"}, "params": {"to": "charge"}, "dry_run": True},
            ),
            "start": await client.post(f"{API}/instances", json={"workflow": "order", "key": "a/b c"}),
            "list": await client.post(f"{API}/instances", json=[{"workflow": "order"}, {"workflow": "order"}]),
            "open": await client.get(f"{on}/result"),
        }
        started = await client.get(said["start"].headers["location"])
        return said, started.json()["id"]

    said, started = run(story)

    codes = {name: (answer.status_code, answer.json().get("code")) for name, answer in said.items()}
    assert codes == {
        "to": (200, None),
        "location": (200, None),
        "both": (422, "bad-request"),
        "at": (200, None),
        "value": (409, "not-stuck"),
        "error": (409, "not-stuck"),
        "two": (422, "bad-request"),
        "bulk": (200, None),
        "start": (201, None),
        "list": (200, None),
        "open": (202, "still-open"),
    }
    assert said["to"].json() == said["location"].json()
    assert said["bulk"].json()["sample"][0]["refused"] == ""
    assert started == "order/a/b c"
    assert (SettleParams("a", "b", error="no").outcome, SettleParams("a", "b", value=1).outcome) == ("error", "ok")


def test_what_is_not_there_has_its_code_and_what_was_perhaps_meant():
    async def story(site):
        admin = await site.key(ADMIN, actor="root")
        client, other = await site.key(VIEWER), await site.key(Grant("viewer", ("order",)), actor="eve")
        await (await site.engine.start("order", key="order-17")).until("waiting")
        await (await site.engine.start("secret_plan", key="s-1")).until("waiting")
        await (await site.engine.start("broken", key="b")).until("failed")
        on = f"{API}/instances"
        found = {
            "entry": await client.get(f"{on}/order/order-17/-/at/99"),
            "diff": await client.get(f"{on}/diff?a=order/order-17&b=secret_plan/s-1"),
            "key": await client.get(f"{on}/order/order-18"),
            "verb": await client.get(f"{on}/order/order-17/-/hist"),
            "verb of another": await other.get(f"{on}/secret_plan/s-1/-/hist"),
            "workflow": await client.get(f"{on}/ordr/order-17"),
            "order": await client.get(f"{on}?order=newest"),
            "status": await client.get(f"{on}?status=stcuk"),
            "text": await client.get(f"{on}?q=key:x status:stcuk"),
            "values": await client.get(f"{on}/order/order-17?values=some"),
            "mine": await other.get(f"{on}/secret_plan/s-2"),
            "write": await other.post(f"{on}/secret_plan/s-1/-/cancel", json={}),
            "seen": await other.post(f"{on}/order/order-17/-/cancel", json={}),
            "put": await other.post(f"{API}/workflows/secret_plan/-/activate", json={"version": "1"}),
            "shown": await other.get(f"{API}/workflows/ordr"),
            "hidden": await other.get(f"{API}/workflows/secret_plam"),
            "start": await admin.post(f"{API}/instances", json={"workflow": "ordr"}),
            "report": await client.get(f"{on}/broken/b/-/report"),
        }
        granted = await admin.put(f"{API}/access/grants", json={"actor": "zoe", "grants": [{"role": "viewer"}]})
        looked = [(await other.get(f"{on}{path}")).json()["looked"] for path in ("", "/groups")]
        return found, granted.json(), looked

    found, granted, looked = run(story)

    codes = {name: (answer.status_code, answer.json()["code"]) for name, answer in found.items()}
    assert codes == {
        "entry": (404, "unknown-entry"),
        "diff": (409, "two-workflows"),
        "key": (404, "not-found"),
        "verb": (404, "not-found"),
        "verb of another": (404, "not-found"),
        "workflow": (404, "not-found"),
        "order": (422, "bad-filter"),
        "status": (422, "bad-filter"),
        "text": (422, "bad-filter"),
        "values": (422, "bad-request"),
        "mine": (404, "not-found"),
        "write": (404, "not-found"),
        "seen": (403, "forbidden"),
        "put": (404, "not-found"),
        "shown": (404, "not-found"),
        "hidden": (404, "not-found"),
        "start": (404, "unknown-workflow"),
        "report": (422, "bad-request"),
    }
    assert "did you mean 'order'?" in found["shown"].json()["detail"]
    assert found["start"].json()["detail"].endswith("; `GET /workflows` lists those of this login")
    assert (found["order"].json()["title"], found["values"].json()["title"]) == ("bad filter", "bad request")
    assert "secret_plan'" not in found["hidden"].text
    places = [found[name].json()["where"] for name in ("order", "status", "text", "values")]
    assert places == ["/order", "/status", "character 7", "/values"]
    for name in ("key", "workflow"):
        assert "did you mean order/order-17?" in found[name].json()["detail"]
        assert found[name].json()["error"] == "UnknownInstance"
    assert found["verb"].json()["detail"].startswith("no verb is named 'hist'; did you mean 'history'?")
    assert "history" not in found["verb of another"].text
    assert "secret_plan/s-1" not in found["mine"].text
    assert "zoe" in granted["people"]
    assert looked == [1, 1]  # not those of others


def test_a_parent_is_named_as_well_as_numbered():
    async def story(site):
        client, other = await site.key(VIEWER), await site.key(Grant("viewer", ("order",)), actor="eve")
        await (await site.engine.start("family", key="f-0")).until("waiting")
        head = (await client.get(f"{API}/instances/family/f-0")).json()
        asked = [f"parent={each}" for each in ("family/f-0", head["instance"], f"@{head['instance']}", "family/none")]
        asked += ["q=parent:family/f-0", "not.root=family/f-0", "root=family/f-0"]
        found = [[each["key"] for each in (await client.get(f"{API}/instances?{q}")).json()["items"]] for q in asked]
        count = (await client.get(f"{API}/instances/count?root=family/f-0")).json()
        return found, count, (await other.get(f"{API}/instances?parent=family/f-0")).json()["items"]

    from tests.server.site import ALL, family

    found, count, others = run(story, workflows=[*ALL, family])

    assert found == [["f-1"], ["f-1"], ["f-1"], [], ["f-1"], [], ["f-2", "f-1", "f-0"]]
    assert (count, others) == ({"count": 3}, [])


def test_what_is_waited_for_is_named_by_its_kind_or_its_name():
    async def story(site):
        client = await site.key(VIEWER)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        await (await site.engine.start("secret_plan", key="s-1")).until("waiting")
        asked = ("message", "decision", "message decision", "timer", "mess", "message dec*", "nothing")
        found = [(await client.get(f"{API}/instances", params={"waits_for": each})).json()["items"] for each in asked]
        return [[each["key"] for each in items] for items in found]

    assert run(story) == [["o-1"], ["o-1"], ["o-1"], ["s-1"], [], ["o-1"], []]


@perdure.flow
async def outer(ctx):
    await ctx.child(secret_plan, key="s-1")


@perdure.flow
async def secret_outer(ctx):
    await ctx.child(order, key="o-1")


def test_relatives_that_a_login_does_not_see_are_not_told_of():
    async def story(site):
        for name in ("outer", "secret_outer"):
            await (await site.engine.start(name, key="a")).until("waiting")
        await site.engine.handle("order", "o-1").until("waiting")
        client = await site.key(Grant("viewer", ("outer", "order")))
        on = f"{API}/instances"
        shown = (await client.get(f"{on}/order/o-1")).json()
        called = (await client.get(f"{API}/verbs/show", params={"params": '{"id": "order/o-1"}'})).json()
        why = (await client.get(f"{on}/outer/a/-/why")).json()["reasons"]
        lists = [
            await client.get(f"{on}/export?limit=-1"),
            await client.get(f"{on}/export?cursor=x"),
            await client.get(f"{on}/export?order=-changed"),
            await client.get(f"{on}/export?order=started&columns=id"),
            await client.get(f"{on}/export?order=-changed&waits_for=child&columns=id"),
        ]
        return shown, called, why, lists

    shown, called, why, lists = run(story, workflows=[outer, secret_outer, order, secret_plan])

    assert (shown["parent"], shown["path"], called["parent"]) == (None, [], None)
    assert [each["text"].partition("for its")[2] for each in why] == [" child secret_plan/s-1."]
    assert [each["todo"] for each in why] == [[]]
    assert [each.status_code for each in lists] == [422, 422, 422, 200, 200]
    assert [json.loads(line)["id"] for line in lists[3].text.splitlines()] == ["outer/a", "order/o-1"]
    assert [json.loads(line)["id"] for line in lists[4].text.splitlines()] == ["outer/a"]


def test_a_key_that_was_made_elsewhere_works_at_once():
    """As `perdure access key` makes it: this server has read access shortly before, and does not know the key."""

    async def story(site):
        await site.key(VIEWER)
        from perdure.codec import to_plain
        from perdure.server.accesses import read_access
        from perdure.server.api.access import KeyParams, made_key

        stranger = site.client()
        await stranger.get(f"{API}/whoami", headers={"authorization": "Bearer pdk_a_b"})
        key, made = made_key(KeyParams("late", [VIEWER]), "root")
        await site.engine.handle("perdure.access", "main").ask("key add", to_plain(key), by="root")
        assert made.id in (await read_access(site.engine.queries)).keys
        site.server.accesses._read_at -= 0.2  # and it was read again a moment ago at the latest
        return (await stranger.get(f"{API}/whoami", headers={"authorization": f"Bearer {made.key}"})).json()

    assert run(story)["id"] == "late"


def test_each_verb_has_an_example_in_the_document():
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            words = shlex.split(operation["x-codeSamples"][0]["source"])
            assert words[0] == "curl" and "{" not in words[-1].partition("?")[0], (method, path)
            assert all("example" in each for each in operation["parameters"] if each["in"] == "path"), (method, path)
            if method in ("post", "put", "patch"):
                body = operation["requestBody"]["content"]["application/json"]
                sent = json.loads(words[words.index("-d") + 1])
                assert sent == body["example"], (method, path)
                assert set(body["schema"]["required"]) <= set(sent) <= set(body["schema"]["properties"]), (method, path)


def test_the_definition_of_the_examples_is_one():
    async def story(site):
        author = await site.key(Grant("author"))
        return [
            await author.post(f"{API}{route.path}", json=route.example)
            for route in ROUTES
            if isinstance(route.example, dict) and route.example.get("text") == EXAMPLE
        ]

    assert [answer.status_code for answer in run(story)] == [200] * 3


def test_a_note_that_is_recorded_meanwhile_hides_no_change_of_access():
    """The audit is written beside the answers; it made a server forget what it was just reading."""

    async def story(site):
        await site.key(VIEWER)
        accesses, reading = site.server.accesses, asyncio.Event()
        real = accesses._client.queries.published

        async def meanwhile(*given):
            found = await real(*given)
            if not reading.is_set():
                reading.set()
                await accesses.ask("note", {"what": "denied"}, Actor("eve"))
            return found

        accesses._client.queries.published = meanwhile
        return await accesses.state(fresh=True)

    assert run(story).keys


def test_a_mounted_document_says_where_it_is_and_a_failing_actor_is_the_fault_of_the_host(caplog):
    def who(request):
        if request.headers.get("x-user") == "bad":
            raise ValueError("a secret of the host")
        return request.headers.get("x-user") == "text" or Actor("ann", admin=True)

    async def main():
        async with perdure.open(":memory:", workflows=[order]) as engine:
            mounted = Starlette(routes=[Mount("/a", app(engine, actor=who, settings=Settings(secret="x" * 16)))])
            transport = httpx.ASGITransport(mounted)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client:
                started = await client.post("/a/api/v1/instances", json={"workflow": "order", "key": "o/1"})
                found = await client.get(started.headers["location"])
                failed = [await client.get("/a/api/v1/whoami", headers={"x-user": name}) for name in ("bad", "text")]
                return (await client.get("/a/openapi.json")).json()["servers"], found.json()["id"], failed

    servers, found, failed = asyncio.run(main())

    assert (servers, found) == ([{"url": "/a"}], "order/o/1")
    assert [each.status_code for each in failed] == [500, 500]
    assert all("`actor=`" in each.json()["detail"] and "secret" not in each.text for each in failed)
    assert "a secret of the host" in caplog.text and "found bool" in caplog.text


def test_the_secret_of_a_user_is_never_read_in_part(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("PERDURE_SERVER_SECRET", raising=False)
    made = secret_of(Settings())
    file = tmp_path / "perdure" / "server.secret"

    assert (secret_of(Settings()), file.read_bytes(), len(made)) == (made, made, 64)
    assert (file.stat().st_mode & 0o777, [each.name for each in file.parent.iterdir()]) == (0o600, [file.name])
    file.chmod(0o640)
    with pytest.raises(perdure.CallerError, match="others may open it"):
        secret_of(Settings())
    file.chmod(0o600)
    file.write_bytes(b"")  # of a process that died within the write
    with pytest.raises(perdure.CallerError, match="delete it"):
        secret_of(Settings())


@pytest.mark.parametrize(
    ("hosts", "tls", "proxied", "url"),
    [
        ([], False, False, "http://127.0.0.1:7373"),
        (["ops.example"], False, True, "https://ops.example"),
        (["ops.example"], True, False, "https://ops.example:7373"),
        (["ops.example:443"], True, False, "https://ops.example:443"),
        ([], False, True, "http://127.0.0.1:7373"),
    ],
)
def test_the_link_that_is_printed_leads_to_the_server(hosts, tls, proxied, url):
    assert _url(hosts, "127.0.0.1", 7373, tls=tls, proxied=proxied) == url


def test_if_match_is_judged_before_any_other_refusal_and_an_ended_instance_says_that_it_ended():
    async def story(site):
        order_1, client = await site.engine.start("order", key="o-1"), await site.key(OPERATOR)
        await order_1.until("waiting")
        on, moved = f"{API}/instances/order/o-1/-", {"if-match": '"99"'}
        asked = [("wake", {}), ("settle", {"location": "x"}), ("fork", {"at": "charge", "key": "f"}), ("retry", {})]
        asked += [("rewind", {"to": "nowhere"}), ("messages", {"name": "decision"})]
        refused = [await client.post(f"{on}/{verb}", json=body, headers=moved) for verb, body in asked]
        await order_1.send("decision", "yes")
        await order_1.result(20)
        now = {"if-match": (await client.get(f"{API}/instances/order/o-1")).headers["etag"]}
        ended = [
            await client.post(f"{on}/messages", json={"name": "decision"}, headers=now),
            await client.post(f"{on}/rewind", json={"to": "charge"}, headers=now),
            await client.post(f"{on}/rewind", json={"to": "charge", "dry_run": True}),
        ]
        shown = (await client.get(f"{API}/instances/order/o-1")).json()["may"]
        return refused, ended, shown

    refused, ended, may = run(story)

    assert [(each.status_code, each.json()["code"]) for each in refused] == [(412, "version-conflict")] * 6
    assert all("the last entry of order/o-1 is 2, not 99" in each.json()["detail"] for each in refused)
    assert [(each.status_code, each.json()["code"]) for each in ended] == [(409, "instance-ended")] * 3
    assert (may["rewind"], may["fork"]) == ("the instance has completed", "")


def test_a_fork_under_one_key_is_one_instance_and_its_dry_run_is_refused_as_the_fork_is():
    async def story(site):
        await (await site.engine.start("order", key="o-1")).until("waiting")
        client, on = await site.key(OPERATOR), f"{API}/instances/order/o-1/-/fork"
        same = [await client.post(on, json={"at": "charge", "key": "f"}) for _ in range(2)]
        wrong: list[dict[str, object]] = [
            {"at": "charge", "key": "o-1"},
            {"at": "charge", "key": "f", "edit": {"charge": "c-2"}},
        ]
        wrong.append({"at": "charge", "edit": {"nowhere": 1}})
        refused = [await client.post(on, json={**body, **dry}) for body in wrong for dry in ({}, {"dry_run": True})]
        return same, refused, (await client.get(f"{API}/instances/count")).json()

    same, refused, count = run(story)

    assert [(each.status_code, each.json()["id"]) for each in same] == [(200, "order/f")] * 2
    codes = ["key-in-use", "key-in-use", "unknown-location"]
    assert [each.json()["code"] for each in refused] == [code for code in codes for _ in range(2)]
    assert count == {"count": 2}


def test_what_is_shown_with_a_time_is_not_after_that_time():
    async def story(site):
        await (await site.engine.start("order", key="o-1")).until("waiting")
        client = await site.key(VIEWER)
        row = (await client.get(f"{API}/instances")).json()["items"][0]
        bounds = [("started.gt", row["started_at"]), ("changed.gt", row["changed_at"])]
        bounds += [("not.started.gt", row["started_at"]), ("started.lt", row["started_at"])]
        return [(await client.get(f"{API}/instances/count", params=[bound])).json()["count"] for bound in bounds]

    assert run(story) == [0, 0, 1, 0]


@pytest.mark.parametrize("key", ["a/../b", "..", "x/-/history", "50% ö?#/x"])
def test_links_of_an_answer_lead_to_an_instance_of_any_name(key):
    async def story(site):
        client = await site.key(OPERATOR)
        made = await client.post(f"{API}/instances", json={"workflow": "order", "key": key, "input": {"cents": 1}})
        await site.engine.handle("order", key).send("decision", "x" * 9000)
        await site.engine.handle("order", key).result(20)
        shown = (await client.get(made.headers["location"])).json()
        whole = await client.get(shown["result"]["href"])
        return shown["key"], whole.json()["result"]["decision"]

    assert run(story) == (key, "x" * 9000)
