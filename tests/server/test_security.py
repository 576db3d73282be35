"""Security from the first request, seen from outside."""

import asyncio
import json

import pytest

from perdure.access.model import Grant
from perdure.server.limits import Buckets
from perdure.server.routes import ROUTES
from tests.server.site import ADMIN, OPERATOR, VIEWER, run

API = "/api/v1"


def test_a_stranger_gets_one_and_the_same_answer_everywhere():
    async def story(site):
        stranger = site.client()
        await (await site.engine.start("order", key="o-1")).until("waiting")
        asked = [
            ("GET", f"{API}/instances"),
            ("GET", f"{API}/instances/order/o-1"),
            ("GET", f"{API}/instances/order/none"),
            ("POST", f"{API}/instances"),
            ("PUT", f"{API}/nothing"),
            ("GET", "/"),
            ("GET", "/openapi.json"),
            ("GET", "/ui/abc/app.css"),
            ("DELETE", "/login"),
            ("GET", f"{API}/stream?channels=fleet"),
        ]
        answers = [await stranger.request(method, path) for method, path in asked]
        wrong = ["pdk_000000000000_" + "a" * 43, "nonsense", "pdk_", "\xe9"]
        for each in wrong:
            headers = {"authorization": f"Bearer {each}".encode("latin-1")}
            answers.append(await stranger.get(f"{API}/instances", headers=headers))
        answers.append(await stranger.get(f"{API}/instances", headers={"cookie": "perdure=abc"}))
        return answers

    answers = run(story)

    assert {each.status_code for each in answers} == {401}
    bodies = [
        {name: value for name, value in each.json().items() if name not in ("request", "instance")} for each in answers
    ]
    assert all(body == bodies[0] for body in bodies)
    headers = [{name for name in each.headers if name != "x-request"} for each in answers]
    assert all(names == headers[0] for names in headers)
    assert all("server" not in each.headers for each in answers)


def test_strangers_learn_health_and_nothing_else():
    async def story(site):
        stranger = site.client(headers={"host": "any.example"})
        live, ready = await stranger.get("/health/live"), await stranger.get("/health/ready")
        site.server.stopping.set()
        return live, ready, await stranger.get("/health/ready")

    live, ready, stopping = run(story)

    assert (live.status_code, ready.status_code, stopping.status_code) == (200, 200, 503)
    assert {live.text, ready.text, stopping.text} == {"{}"}


def test_the_login_link_works_once():
    async def story(site):
        token = site.server.accesses.own_link("ann")
        client = site.client(headers={"x-perdure": "1", "origin": site.url})
        first = await client.post("/login", json={"token": token})
        me = await client.get(f"{API}/whoami")
        second = await site.client(headers={"x-perdure": "1", "origin": site.url}).post("/login", json={"token": token})
        made = await client.post(f"{API}/access/link", json={"actor": "bob"})
        other = site.client(headers={"x-perdure": "1", "origin": site.url})
        third = await other.post("/login", json={"token": made.json()["path"].partition("#")[2]})
        return first, me, second, third, await other.get(f"{API}/whoami")

    first, me, second, third, other = run(story)

    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert (me.json()["id"], me.json()["grants"][0]["role"]) == ("ann", "admin")
    assert second.status_code == 401
    assert (third.status_code, other.json()["id"]) == (200, "bob")


def test_the_cookie_is_for_this_host_and_tls_alone():
    async def story(site):
        client = site.client(headers={"x-perdure": "1", "origin": site.url})
        return await client.post("/login", json={"token": site.server.accesses.own_link("ann")})

    plain, secure = run(story).headers["set-cookie"], run(story, secure=True).headers["set-cookie"]

    assert plain.startswith("perdure=") and "Secure" not in plain
    assert secure.startswith("__Host-perdure=") and "; Secure" in secure and "Path=/;" in secure
    assert "Domain" not in secure and "Max-Age=43200" in secure


def test_an_error_of_our_own_shows_a_number_and_the_log_has_the_rest(caplog):
    async def story(site):
        client = await site.login()

        async def broken(*args, **more):
            raise RuntimeError("SECRET-7 at line 12")

        site.server.client.queries.heights = broken
        return await client.get(f"{API}/instances")

    answer = run(story)

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.json()["request"] in answer.json()["detail"] and answer.json()["request"] in caplog.text
    assert "SECRET" not in answer.text and "line" not in answer.text
    assert "SECRET-7" in caplog.text


def test_no_log_has_a_credential(caplog):
    caplog.set_level("DEBUG")

    async def story(site):
        token = site.server.accesses.own_link("ann")
        client = site.client(headers={"x-perdure": "1", "origin": site.url})
        await client.post("/login", json={"token": token})
        key = (await client.post(f"{API}/access/keys", json={"actor": "crm", "roles": ["clerk"]})).json()["key"]
        await site.client(headers={"authorization": f"Bearer {key}"}).get(f"{API}/whoami")
        await site.client(headers={"authorization": f"Bearer {key}x"}).get(f"{API}/whoami")
        return [token, key.split("_", 2)[2], client.cookies["perdure"]]

    secrets = run(story)

    ours = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))
    assert all(secret not in ours for secret in secrets)


def test_failed_logins_are_slowed_down():
    async def story(site):
        client = site.client(headers={"x-perdure": "1", "origin": site.url})
        return [(await client.post("/login", json={"token": "x"})).status_code for _ in range(7)]

    assert run(story) == [401] * 5 + [429] * 2


def test_a_logout_ends_the_session_everywhere():
    async def story(site):
        client = await site.login()
        cookie = dict(client.cookies)
        assert (await client.post("/logout")).status_code == 200
        return await site.client(cookies=cookie).get(f"{API}/whoami")

    assert run(story).status_code == 401


def test_a_result_that_is_waited_for_is_told_to_no_login_that_ended_meanwhile():
    async def story(site):
        handle = await site.engine.start("order", key="o")
        admin, client = await site.login(), await site.key(OPERATOR)
        on = f"{API}/instances/order/o/-"
        asking = asyncio.ensure_future(client.get(f"{on}/result?wait=60"))
        while "crm" not in site.server._buckets._known:  # noqa: ASYNC110  # until it is past its login
            await asyncio.sleep(0)
        (key,) = (await admin.get(f"{API}/access/keys")).json()["items"]
        await admin.delete(f"{API}/access/keys/{key['id']}")
        await handle.send("decision", "of others")
        return await asking, await admin.get(f"{on}/result?wait=60")

    refused, told = run(story)

    assert (refused.status_code, "of others" in refused.text) == (401, False)
    assert (told.status_code, told.json()["result"]["decision"]) == (200, "of others")


def test_a_cookie_write_from_another_site_is_refused():
    async def story(site):
        client = await site.login()
        url, body = f"{API}/instances", {"workflow": "order", "key": "o-1"}
        foreign = await client.post(url, json=body, headers={"origin": "http://evil.example"})
        plain = await site.client(cookies=dict(client.cookies)).post(url, json=body)
        reading = await site.client(cookies=dict(client.cookies)).get(url)
        return foreign, plain, reading, await site.engine.queries.counts()

    foreign, plain, reading, counts = run(story)

    assert (foreign.status_code, foreign.json()["code"]) == (403, "foreign-origin")
    assert plain.status_code == 403
    assert reading.status_code == 200
    assert not any(workflow == "order" for workflow, *_ in counts)


def test_a_foreign_host_is_refused_before_anything_else():
    async def story(site):
        client = await site.key(ADMIN)
        return await client.get(f"{API}/instances", headers={"host": "evil.example"})

    answer = run(story)

    assert (answer.status_code, answer.json()["code"]) == (403, "foreign-host")


def test_keys_are_stored_as_hashes_and_end():
    async def story(site):
        admin = await site.login()
        made = (await admin.post(f"{API}/access/keys", json={"actor": "crm", "roles": ["clerk"]})).json()
        client = site.client(headers={"authorization": f"Bearer {made['key']}"})
        before = await client.get(f"{API}/whoami")
        listed = await admin.get(f"{API}/access/keys")
        journal = b"".join(row.body for row in await site.engine.queries.journal(0, 1000))
        await admin.delete(f"{API}/access/keys/{made['id']}")
        return made, before, listed, journal, await client.get(f"{API}/whoami")

    made, before, listed, journal, after = run(story)
    secret = made["key"].split("_", 2)[2]

    assert before.json()["roles"] == ["clerk"]
    assert secret not in listed.text and secret.encode() not in journal
    assert "digest" not in listed.text
    assert after.status_code == 401


def test_a_key_has_never_more_rights_than_its_maker():
    async def story(site):
        client = await site.key(Grant("admin", ("order",)))
        body = {"actor": "x", "grants": [{"role": "viewer", "workflows": ["*"]}]}
        return await client.post(f"{API}/access/keys", json=body)

    assert run(story).status_code == 403


def test_access_is_managed_by_admins_of_all_workflows_alone():
    async def story(site):
        client = await site.key(Grant("admin", ("order",)))
        key = (await (await site.login()).get(f"{API}/access/keys")).json()["items"][0]["id"]
        asked: list[tuple[str, str, dict[str, str] | None]]
        asked = [("POST", "/access/link", {}), ("PUT", "/access/grants/ann", {}), ("GET", "/audit", None)]
        asked += [("DELETE", f"/access/keys/{key}", None), ("GET", "/access/keys", None), ("GET", "/trace/e", None)]
        return [(await client.request(method, API + path, json=body)).status_code for method, path, body in asked]

    assert run(story) == [403] * 6


def test_a_login_link_has_never_more_rights_than_its_maker():
    async def story(site):
        found = []
        owner, other = await site.login(), await site.key(Grant("admin", values=False), actor="eve")
        for maker, actor in ((owner, ""), (owner, "bob"), (other, "")):
            path = (await maker.post(f"{API}/access/link", json={"actor": actor})).json()["path"]
            client = site.client(headers={"x-perdure": "1", "origin": site.url})
            await client.post("/login", json={"token": path.partition("#")[2]})
            me = (await client.get(f"{API}/whoami")).json()
            found.append((me["id"], me["grants"]))
        return found

    ann, bob, eve = run(story)

    assert ann == ("ann", [{"role": "admin", "workflows": ["*"], "values": True}])
    assert (bob, eve) == (("bob", []), ("eve", []))


def test_what_a_login_may_not_see_does_not_exist_and_is_not_counted():
    async def story(site):
        client = await site.key(Grant("operator", ("order",)))
        await (await site.engine.start("order", key="o-1")).until("waiting")
        await (await site.engine.start("secret_plan", key="s-1")).until("waiting")
        hidden = await client.get(f"{API}/instances/secret_plan/s-1")
        missing = await client.get(f"{API}/instances/secret_plan/s-2")
        counted = await client.get(f"{API}/instances/count")
        listed = await client.get(f"{API}/instances")
        started = await client.post(f"{API}/instances", json={"workflow": "secret_plan"})
        access = await client.get(f"{API}/instances/perdure.access/main")
        facets = await client.get(f"{API}/instances/facets")
        return hidden, missing, counted, listed, started, access, facets

    hidden, missing, counted, listed, started, access, facets = run(story)

    assert hidden.status_code == missing.status_code == access.status_code == 404
    assert hidden.json()["detail"].replace("s-1", "s-2") == missing.json()["detail"]
    assert counted.json() == {"count": 1}
    assert [each["id"] for each in listed.json()["items"]] == ["order/o-1"]
    assert started.status_code == 404
    assert "secret_plan" not in facets.text


def test_the_verbs_of_the_command_line_do_not_tell_of_what_a_login_may_not_see():
    async def story(site):
        client = await site.key(Grant("operator", ("order",)))
        await (await site.engine.start("order", key="o-1")).until("waiting")
        for workflow, key in (("secret_plan", "s-1"), ("secret_plan", "o-1")):
            await (await site.engine.start(workflow, key=key)).until("waiting")
        asked = [("show", {"id": "s-1"}), ("show", {"id": "secret_plan/s-9"}), ("why", {"id": "secret_plan/s-1"})]
        asked += [("ls", {"workflow": "secret_pla"}), ("ls", {"parent": "s-1"}), ("show", {"id": "o-1"})]
        return [
            await client.get(f"{API}/verbs/{verb}", params={"params": json.dumps(params)}) for verb, params in asked
        ]

    answers = run(story)

    assert [each.status_code for each in answers] == [404, 404, 404, 200, 404, 200]
    assert answers[-1].json()["id"] == "order/o-1"
    for answer in answers:
        asked = answer.request.url.params["params"]
        assert "secret_plan" not in answer.text or "secret_plan" in asked
    assert "did you mean secret_plan" not in "".join(answer.text for answer in answers)


def test_a_login_starts_in_its_own_name():
    """A process that keeps its starter from approving would else be approved by one person."""

    async def story(site):
        client = await site.key(OPERATOR, actor="eve")
        body = {"workflow": "order", "key": "o-1", "input": {}, "by": "ann"}
        first = await client.post(f"{API}/instances", json=body)
        second = await client.post(f"{API}/verbs/start", json={"params": body})
        own = await client.post(f"{API}/instances", json={**body, "by": "eve"})
        return first.status_code, second.status_code, own.status_code

    assert run(story) == (403, 403, 201)


def test_who_sees_and_may_not_act_hears_which_role_it_needs_and_the_audit_knows():
    async def story(site):
        viewer, admin = await site.key(VIEWER, actor="vic"), await site.login()
        await (await site.engine.start("order", key="o-1")).until("waiting")
        answers = [await viewer.post(f"{API}/instances/order/o-1/-/cancel", json={}) for _ in range(3)]
        for _ in range(100):
            audit = (await admin.get(f"{API}/audit")).json()["items"]
            if any(each["what"] == "denied" for each in audit):
                break
        return answers, audit

    answers, audit = run(story)

    assert [(each.status_code, each.json()["expected"]) for each in answers] == [(403, "operator")] * 3
    denied = [each for each in audit if each["what"] == "denied"]
    assert [(each["by"], each["details"]["verb"]) for each in denied] == [("vic", "cancel")]


def test_built_in_instances_take_no_generic_verbs():
    async def story(site):
        client = await site.key(ADMIN)
        send = {"name": "grant", "body": {}}
        return await client.post(f"{API}/instances/perdure.access/main/-/messages", json=send)

    assert run(story).status_code == 403


def test_read_only_refuses_on_the_server():
    async def story(site):
        await site.engine.start("order", key="o-1")
        client = await site.login()
        return await client.post(f"{API}/instances", json={"workflow": "order"})

    answer = run(story, read_only=True)

    assert (answer.status_code, answer.json()["code"]) == (403, "read-only")


def test_withheld_values_are_nowhere():
    async def story(site):
        client = await site.key(Grant("viewer", values=False))
        handle = await site.engine.start("order", key="o-1", order_id="SECRET-1", cents=77)
        await handle.until("waiting")
        before = [await client.get(f"{API}/instances/order/o-1{part}") for part in ("", "/-/why", "/-/history")]
        await handle.send("decision", "SECRET-2")
        await handle.result()
        parts = ("", "/-/why", "/-/history", "/-/operations", "/-/result", "/-/published/decided")
        return before + [await client.get(f"{API}/instances/order/o-1{part}") for part in parts]

    for answer in run(story):
        assert answer.status_code == 200
        assert "SECRET" not in answer.text and "c-77" not in answer.text, answer.text


def test_every_answer_has_the_guards_of_a_browser():
    async def story(site):
        client = await site.login()
        return [await client.get(path) for path in (f"{API}/whoami", "/login", "/nothing")]

    for answer in run(story):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_flood_is_slowed_down():
    async def story(site):
        client = await site.key(VIEWER)
        site.server._buckets = Buckets(per_second=0.5, burst=5)
        return [await client.get(f"{API}/whoami") for _ in range(8)]

    answers = run(story)

    assert [each.status_code for each in answers[:5]] == [200] * 5
    assert answers[-1].status_code == 429 and int(answers[-1].headers["retry-after"]) >= 1


@pytest.mark.parametrize("role", ["viewer", "operator", "author"])
def test_the_matrix_of_verb_and_role(role):
    """Each verb of the table is asked by each role: 403 says the role, everything else is another answer."""
    rank = ["viewer", "operator", "author", "admin"]

    async def story(site):
        client = await site.key(Grant(role))
        found = {}
        for route in ROUTES:
            path = route.path.replace("{id}", "order/none").replace("{name}", "order").replace("{task}", "1")
            answer = await client.request(route.method, API + path.replace("{actor}", "x"), content=b"")
            found[route.name] = answer.status_code
        return found

    found = run(story)

    for route in ROUTES:
        needs = rank.index(route.who) if route.who in rank else 0
        assert (found[route.name] == 403) is (rank.index(role) < needs), (route.name, found[route.name])
        assert found[route.name] != 500, route.name


def test_an_executor_key_does_nothing_else():
    async def story(site):
        await (await site.engine.start("approval", key="a-1")).until("waiting")
        (task,) = (await (await site.login()).get(f"{API}/tasks")).json()["items"]
        client = await site.key(executor="printer", actor="ann")  # the name of a person gives it nothing
        return [
            await client.get(f"{API}/instances"),
            await client.get(f"{API}/tasks"),
            await client.get(f"{API}/tasks/{task['id']}"),
            await client.post(f"{API}/tasks/{task['id']}/-/claim", json={}),
            await client.put(f"{API}/bookmarks/mine", json={"q": ""}),
            await client.get(f"{API}/stream", params={"channels": "tasks:mine"}),
        ], await client.get(f"{API}/whoami")

    refused, who = run(story)

    assert [each.status_code for each in refused] == [403] * 6
    assert who.json()["id"] == "ann"


def test_an_operator_sees_the_verbs_that_are_allowed():
    async def story(site):
        client = await site.key(OPERATOR)
        return (await client.get(f"{API}/verbs")).json()["items"]

    found = {each["name"]: each["allowed"] for each in run(story)}

    assert found["cancel"] and found["ls"] and not found["key add"]
    assert set(found) == {route.name for route in ROUTES}
