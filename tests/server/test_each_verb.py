"""Each verb of the table answers a good request, and refuses a bad one with a problem that says what is wrong."""

import json
from typing import Any

import msgspec
import pytest

import perdure
from perdure.kernel.entry import decode
from perdure.kernel.events import asked_of
from perdure.kernel.location import Patterns
from perdure.server import calling, limits
from perdure.server.api import definitions
from perdure.server.routes import ROUTES
from tests.server.site import ALL, run
from tests.server.test_definitions import PLAYBOOK, gated
from tests.server.test_world import Placed, first, second

API = "/api/v1"
OTHERS = {
    "effects ls": "test_world.py: keys of executors alone",
    "effects answer": "test_world.py: keys of executors alone",
    "bulk show": "test_bulk.py",
    "bulk cancel": "test_bulk.py",
    "retry": "test_repeat.py",
    "settle": "test_repeat.py",
    "message": "test_world.py: by the reference of a process",
    "migrate": "test_preview.py",
    "queue show": "test_queues.py: on PostgreSQL",
    "queue jobs": "test_queues.py: on PostgreSQL",
    "manifest apply": "test_world.py",
    "manifest migrate": "test_world.py",
}
"""Verbs whose good answer needs a world of its own: where it is tested."""


def fields_of(route):
    return {field.encode_name: field for field in msgspec.structs.fields(route.params)}


def patience(patch):
    """What begins a process of its own takes long on a machine that has much to do."""
    patch.setattr(limits, "ANSWER_SECONDS", 120.0)
    patch.setattr(calling, "WORK_SECONDS", 120.0)
    patch.setattr(definitions, "SIMULATE_SECONDS", 120.0)


async def begun(site):
    site.server._buckets._rate = site.server._buckets._burst = 1e9
    owner, bob = await site.login(), await site.login("bob")
    await perdure.Governance(site.engine).apply(perdure.manifest(first))
    await site.engine.send(Placed("a"))
    for text in (PLAYBOOK, PLAYBOOK.replace("result: 1", "result: 2")):
        version = (await owner.post(f"{API}/workflows", json={"text": text})).json()["version"]
    for key in ("go", "stop", "old"):
        await (await site.engine.start("order", key=key)).until("waiting")
    await (await site.engine.start("secret_plan", key="nap")).until("waiting")
    await owner.post(f"{API}/instances", json={"workflow": "stock", "key": "s"})
    await site.engine.handle("stock", "s").until("waiting")
    await site.engine.start(gated, key="g")
    for n in range(6):
        await (await site.engine.start("approval", key=f"t-{n}")).until("waiting")
    tasks = [each["id"] for each in (await owner.get(f"{API}/tasks", params={"status": "open"})).json()["items"]]
    async for _ in site.engine.changes():
        if await site.engine.instances(workflow="w/total"):
            break
    return owner, bob, version, tasks


def good(version, tasks):
    """In this order: method and path are those of the table, with the names of this site; then the body or query."""
    order, world = {"id": "order/go"}, perdure.manifest(second).manifest.data()
    stock, task = {"name": "stock", "version": version}, iter(tasks)
    return {
        "start": ({}, {"workflow": "order", "key": "new"}),
        "send": (order, {"name": "note"}),
        "tag": (order, {"tags": {"a": "b"}}),
        "wake": ({"id": "secret_plan/nap"}, {}),
        "pause": ({"id": "stock/s"}, {"reason": "stock-taking"}),
        "resume": ({"id": "stock/s"}, {}),
        "rewind": ({"id": "order/old"}, {"location": "charge"}),
        "fork": ({"id": "order/old"}, {"location": "charge", "key": "fork"}),
        "cancel": ({"id": "order/stop"}, {"reason": "no"}),
        "ask": ({"id": "stock/s"}, {"name": "ctx", "body": {"set": {"go": False}}, "wait": 20}),
        "patch": ({"id": "stock/s"}, {"set": {"go": False}}),
        "submit": ({"id": "gated/g"}, {"nodes": [{"name": "late", "after": ["gate"]}]}),
        "node cancel": ({"id": "gated/g", "node": "gate"}, {}),
        "bulk start": (
            {},
            {"verb": "tag", "selection": {"q": "workflow:order"}, "params": {"name": "x", "value": "y"}},
        ),
        "check": ({}, {"text": PLAYBOOK}),
        "put": ({}, {"text": PLAYBOOK}),
        "simulate": ({}, {"text": PLAYBOOK, "runs": 1}),
        "preview": (stock, {}),
        "activate": (stock, {"version": version}),
        "tasks claim": ({"task": tasks[0]}, {}),
        "tasks release": ({"task": tasks[0]}, {}),
        "tasks assign": ({"task": next(task)}, {"to": "ann"}),
        "tasks change": ({"task": next(task)}, {"priority": 80}),
        "tasks comment": ({"task": next(task)}, {"text": "seen"}),
        "tasks escalate": ({"task": next(task)}, {"roles": ["director"]}),
        "tasks cancel": ({"task": next(task)}, {"reason": "no"}),
        "tasks complete": ({"task": next(task)}, {"answer": {"outcome": "yes"}, "override": True}),
        "event": ({}, {"name": "w/Placed@1", "data": {"id": "b"}}),
        "manifest propose": ({}, {"manifest": world}),
        "manifest diff": ({}, {"proposal": "1"}),
        "manifest shadow": ({"number": "1"}, {"mode": "migrate"}),
        "manifest approve": ({"number": "1"}, {}),
        "manifest reject": ({"number": "1"}, {"reason": "no"}),
        "snapshot take": ({}, {}),
        "snapshot gc": ({}, {"dry_run": True}),
        "bookmark put": ({"name": "mine"}, {"q": "status:stuck"}),
        "bookmark show": ({"name": "mine"}, {}),
        "bookmark delete": ({"name": "mine"}, {}),
        "key add": ({}, {"actor": "crm", "grants": [{"role": "viewer"}]}),
        "grant": ({"actor": "eve"}, {"grants": [{"role": "viewer"}]}),
        "grant by name": ({}, {"actor": "eve", "grants": [{"role": "viewer"}]}),
        "access link": ({}, {}),
        "call": ({"verb": "tag"}, {"params": {"id": "order/go", "name": "x", "value": "y"}}),
        "ask verb": ({"verb": "show"}, {"params": json.dumps({"id": "order/go"})}),
        "diff": ({}, {"a": "order/go", "b": "order/old"}),
        "at": ({**order, "entry": "1"}, {}),
        "read": ({"id": "secret_plan/nap", "name": "summary"}, {}),
        "trace": ({"event": "1"}, {}),
        "workflow schema": ({"dialect": "process"}, {}),
        "drawing": ({"id": "stock/s"}, {}),
        "ctx": ({"id": "stock/s"}, {}),
        "tokens": ({"id": "stock/s"}, {}),
        "report": ({"id": "gated/g"}, {}),
        "cells show": ({"id": "w/total/a"}, {}),
        "cells tail": ({"id": "w/total/a"}, {}),
        "workflow diff": (stock, {"a": version, "b": version}),
        "tasks show": ({"task": tasks[0]}, {}),
    }


@pytest.fixture(scope="module")
def told():
    """The answers of each verb to a good request and to one with a field that it does not have."""

    async def story(site):
        owner, bob, version, tasks = await begun(site)
        requests = good(version, tasks)
        fine: dict[str, Any] = {}
        bad: dict[str, Any] = {}
        routes = {route.name: route for route in ROUTES}
        ordered = [*requests, *(name for name in routes if name not in requests and name not in OTHERS)]
        path_of = {"id": "order/go", "name": "stock", "version": version, "task": tasks[0], "number": "1"}
        for name in [*ordered, *OTHERS]:
            route = routes[name]
            path, (named, body) = route.path, requests.get(name, ({}, {}))
            if name == "key revoke":
                named = {"id": fine["key add"].json()["id"]}
            for each in route.in_path:
                path = path.replace(f"{{{each}}}", {**path_of, **named}.get(each, "1"))
            client = bob if name == "manifest approve" else owner

            async def ask(given, client=client, route=route, path=path):
                more = {"params": given} if route.read else {"json": given} if route.method != "DELETE" else {}
                return await client.request(route.method, API + path, **more)

            if name not in OTHERS:
                fine[name] = await ask(body)
            if route.method != "DELETE":
                bad[name] = await ask({**body, "reasn": "x"})
        return fine, bad, await outside_events(site.engine)

    with pytest.MonkeyPatch.context() as patch:
        patience(patch)
        return run(story, workflows=[*ALL, gated, first, second])


async def outside_events(engine):
    """The events of the journal that may carry who asked, each with it."""
    patterns: dict[int, Patterns] = {}
    found = []
    for row in await engine.queries.journal(0, 10_000):
        known = patterns.setdefault(row.instance, Patterns())
        event = decode(row.seq, row.instance, row.at, row.body, known).event
        head = await engine.queries.head(row.instance)
        found.append((f"{head.workflow}/{head.key}", event, asked_of(event)))
    return found


def test_every_write_names_its_actor(told):
    """What came over HTTP says by which way; what the test did itself has no actor."""
    _, _, events = told
    by_http = [(id, type(event).__name__, asked) for id, event, asked in events if asked is not None and asked.via]
    kinds = {(id.partition("/")[0], kind) for id, kind, _ in by_http}

    assert all(asked.by is not None and ("request:" in asked.via or "bulk:" in asked.via) for _, _, asked in by_http)
    assert kinds >= {
        *(("order", kind) for kind in ("Started", "Message", "Tagged", "CancelAsked", "Rewound")),
        ("secret_plan", "Woken"),
        ("stock", "Message"),
        ("gated", "Message"),
        ("perdure.definition", "Message"),
        ("perdure.task", "Message"),
        ("perdure.bulk", "Started"),
        ("sys", "Message"),
    }
    assert {asked.by.id for id, _, asked in events if id.startswith("perdure.access") and asked} == {"ann", "bob"}


def test_each_verb_answers_a_good_request(told):
    fine, _, _ = told
    wrong = {name: answer.text[:300] for name, answer in fine.items() if answer.is_error and name != "read"}

    assert wrong == {}
    assert fine["read"].status_code == 404  # nothing is published under that name: test_api.py has a name
    assert {*fine, *OTHERS} == {route.name for route in ROUTES}


def test_each_verb_refuses_a_field_that_it_does_not_have(told):
    _, bad, _ = told
    for name, answer in bad.items():
        problem = answer.json()
        assert answer.status_code in (404, 422), (name, answer.text[:300])
        assert problem["code"] in ("bad-request", "bad-filter", "not-found"), (name, answer.text[:300])
        assert problem["request"] and problem["type"].endswith(problem["code"]), name
