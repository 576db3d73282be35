"""Verb by role by visibility by face: each verb of the table, asked by logins that see its subject, or do not."""

import json

import pytest

from perdure.access.model import Grant
from perdure.server.routes import ROUTES
from perdure.verbs.table import VERBS
from tests.server.site import run
from tests.server.test_stream import events, until

API = "/api/v1"
ON_INSTANCE = [route for route in ROUTES if route.path.startswith("/instances/{id}")]
ON_WORKFLOW = [route for route in ROUTES if route.path.startswith("/workflows/{name}")]
HERE, NOWHERE = "order/o-1", "order/o-9"

ELSEWHERE = (Grant("operator", ("approval",)), Grant("author", ("broken",)))
"""A login that may act, and does not see the workflow `order`."""

SEES = (Grant("viewer", ("order",)), *ELSEWHERE)
"""A login that sees `order`, and may act on others only."""


async def asked(client, route, id):
    path = route.path.replace("{id}", id).replace("{name}", "order").replace("{entry}", "1")
    body = route.example if isinstance(route.example, dict) else {}
    more = {} if route.read else {"json": body}
    return await client.request(route.method, API + path, **more)


async def begun(site, grants):
    site.server._buckets._rate = site.server._buckets._burst = 1e9
    await (await site.engine.start("order", key="o-1")).until("waiting")
    return await site.key(*grants, actor="eve")


def bare(answer, id):
    """An answer without what differs between any two requests."""
    body = answer.json()
    body.pop("request", None)
    headers = {n: v for n, v in answer.headers.items() if n not in ("x-request", "date", "content-length")}
    return answer.status_code, json.dumps(body).replace(id, "ID"), headers


def test_what_is_not_seen_is_what_does_not_exist_for_every_verb():
    async def story(site):
        client = await begun(site, ELSEWHERE)
        found = {}
        for route in ON_INSTANCE:
            found[route.name] = [bare(await asked(client, route, id), id) for id in (HERE, NOWHERE)]
        for verb, row in VERBS.items():
            names: tuple[str, ...] = row.params.__struct_fields__
            if "id" not in names:
                continue
            for id in (HERE, NOWHERE):
                params = {"id": id}
                params |= {name: "x" for name in names if name in ("name", "location", "value")}
                if row.changes:
                    answer = await client.post(f"{API}/verbs/{verb}", json={"params": params})
                else:
                    answer = await client.get(f"{API}/verbs/{verb}", params={"params": json.dumps(params)})
                found.setdefault(f"verb {verb}", []).append(bare(answer, id))
        streams = [await client.get(f"{API}/stream", params={"channels": f"instance:{id}"}) for id in (HERE, NOWHERE)]
        found["stream"] = [bare(answer, id) for answer, id in zip(streams, (HERE, NOWHERE), strict=True)]
        return found

    for name, (here, nowhere) in run(story).items():
        assert here == nowhere, name
        assert here[0] in (404, 422), name


def test_a_workflow_that_is_not_seen_does_not_exist():
    async def story(site):
        client = await begun(site, ELSEWHERE)
        one = {route.name: await asked(client, route, HERE) for route in ON_WORKFLOW}
        listed = [await client.get(f"{API}{path}") for path in ("/workflows", "/queues", "/instances/facets", "/fleet")]
        return one, listed

    one, listed = run(story)

    assert {answer.status_code for answer in one.values()} <= {404, 403}
    assert not any('"order"' in answer.text for answer in listed)


def test_who_sees_and_may_not_act_is_told_the_role_in_every_face():
    async def story(site):
        client = await begun(site, SEES)
        verbs = {route.name: await asked(client, route, HERE) for route in ON_INSTANCE}
        params = {"id": HERE, "reason": "no"}
        by_name = await client.post(f"{API}/verbs/cancel", json={"params": params})
        may = (await client.get(f"{API}/instances/{HERE}")).json()["may"]
        stream = events(client, f"instance:{HERE}")
        told = await until(stream, "live")
        return verbs, by_name, may, told[-1][0], await site.engine.handle("order", "o-1").status()

    verbs, by_name, may, told, status = run(story)

    for route in ON_INSTANCE:
        answer = verbs[route.name]
        if route.read:
            assert answer.status_code not in (401, 403), route.name
        else:
            assert (answer.status_code, answer.json()["expected"]) == (403, "operator"), route.name
    assert (by_name.status_code, by_name.json()["expected"]) == (403, "operator")
    assert set(may.values()) == {"needs the role operator"}
    assert told == "live"
    assert status == "waiting"


def test_read_only_refuses_every_verb_that_is_no_read():
    async def story(site):
        site.server._buckets._rate = site.server._buckets._burst = 1e9
        await (await site.engine.start("order", key="o-1")).until("waiting")
        client = await site.login()
        writes = [route for route in ROUTES if route.repeat != "read" and route.who != "executor"]
        found = {route.name: await asked(client, route, HERE) for route in writes}
        listed = (await client.get(f"{API}/verbs")).json()["items"]
        may = (await client.get(f"{API}/instances/{HERE}")).json()["may"]
        return found, listed, may, await site.engine.handle("order", "o-1").status()

    found, listed, may, status = run(story, read_only=True)

    for name, answer in found.items():
        assert (answer.status_code, answer.json()["code"]) == (403, "read-only"), name
    assert {"check", "preview", "simulate"}.isdisjoint(found)
    assert {each["read"] for each in listed if each["allowed"]} == {True}
    assert set(may.values()) == {"this server is read-only"}
    assert status == "waiting"


@pytest.mark.parametrize("name", ["perdure.access/main", "perdure.task/x"])
def test_built_in_instances_are_for_admins(name):
    async def story(site):
        client = await begun(site, (Grant("author"),))
        return [(await asked(client, route, name)).status_code for route in ON_INSTANCE]

    assert set(run(story)) <= {404, 422}
