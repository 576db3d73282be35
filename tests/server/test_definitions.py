"""Definitions that are data, and what only instances of playbooks and graphs have, over HTTP."""

import asyncio
from datetime import date

import msgspec

import perdure
from perdure.access.model import Grant
from perdure.graphs import Graph, Limits
from perdure.processes import Complete, Process, Receive
from tests.server.dialects import ALL
from tests.server.site import VIEWER, Decision, run

API = "/api/v1"


async def wait_for_ever(node):
    await asyncio.Event().wait()


gated = Graph("gated", runner=wait_for_ever, limits=Limits(nodes=10))
gated.node("gate")

PLAYBOOK = """apiVersion: perdure/v1
kind: Playbook
metadata: {name: stock}
executor: {spec: {ctx: {go: {init: false}}}}
workflow:
  - step: a
    tool: {kind: noop, result: 1}
    next: b
  - step: b
    spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
    tool: {kind: noop, result: "{{ a }}"}
"""


def test_a_playbook_is_checked_put_started_and_patched():
    async def story(site):
        author, viewer = await site.key(Grant("author", ("stock",))), await site.key(VIEWER, actor="vi")
        wrong = PLAYBOOK.replace("next: b", "next: c")
        checked = await author.post(f"{API}/workflows/check", json={"text": wrong})
        bad = await author.post(f"{API}/workflows", json={"text": wrong})
        kept = await author.post(f"{API}/workflows", json={"text": PLAYBOOK})
        other = await author.post(f"{API}/workflows", json={"text": PLAYBOOK.replace("stock", "other")})
        no = await viewer.post(f"{API}/workflows", json={"text": PLAYBOOK})
        started = await author.post(f"{API}/instances", json={"workflow": "stock", "key": "s", "input": {}})
        handle = site.engine.handle("stock", "s")
        await handle.until("waiting")
        on = f"{API}/instances/stock/s/-"
        before, tokens = await viewer.get(f"{on}/ctx"), await viewer.get(f"{on}/tokens")
        refused = await author.patch(f"{on}/ctx", json={"set": {"go": True}, "if_version": 7})
        patched = await author.patch(f"{on}/ctx", json={"set": {"go": True}})
        await handle.result(10)
        after = await author.patch(f"{on}/ctx", json={"set": {"go": True}})
        order = await site.engine.start("order", key="o")
        await order.until("waiting")
        none = await viewer.get(f"{API}/instances/order/o/-/ctx")
        again = await author.post(f"{API}/workflows/stock/-/activate", json={"version": kept.json()["version"]})
        return checked, bad, kept, other, no, started, before, tokens, refused, patched, after, none, again

    checked, bad, kept, other, no, started, before, tokens, refused, patched, after, none, again = run(story)

    assert (checked.json()["ok"], checked.json()["noun"]) == (False, "playbook")
    assert checked.json()["problems"][0]["pointer"] == "8:11"
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid-definition")
    assert bad.json()["errors"][0]["pointer"] == "8:11"
    assert (kept.status_code, kept.json()["name"], other.status_code, no.status_code) == (200, "stock", 404, 403)
    assert started.status_code == 201, started.text
    assert (before.json()["state"], before.json()["ctx_version"]) == ({"go": False}, 0)
    assert [each["step"] for each in tokens.json()["tokens"]] == ["b"]
    assert (refused.status_code, refused.json()["code"]) == (409, "patch-refused")
    assert patched.json() == {"id": "stock/s", "ctx_version": 1}
    assert (after.status_code, after.json()["code"]) == (409, "instance-ended")
    assert none.status_code == 409
    assert again.json() == kept.json()


def test_a_definition_is_sent_as_yaml_alone():
    async def story(site):
        author = await site.key(Grant("author"))
        await (await site.engine.start("approval", key="a-1")).until("waiting")
        yaml = {"content": PLAYBOOK, "headers": {"content-type": "application/yaml; charset=utf-8"}}
        told = [await author.post(f"{API}/workflows{path}", **yaml) for path in ("/check", "", "/stock/-/preview")]
        broken = await author.post(f"{API}/workflows", content=b"\xff", headers=yaml["headers"])
        other = await author.post(f"{API}/instances", **yaml)
        return told, broken, other

    told, broken, other = run(story)

    assert [each.status_code for each in told] == [200, 200, 200]
    assert (told[0].json()["ok"], told[1].json()["name"]) == (True, "stock")
    assert (broken.status_code, other.status_code) == (400, 415)


def test_versions_of_a_definition_have_a_form_a_text_and_a_difference():
    async def story(site):
        author, viewer = await site.key(Grant("author")), await site.key(VIEWER, actor="vi")
        other = await site.key(Grant("viewer", ("order",)), actor="x")
        texts = PLAYBOOK, PLAYBOOK.replace("result: 1", "result: 2")
        one, two = [(await author.post(f"{API}/workflows", json={"text": text})).json()["version"] for text in texts]
        of = f"{API}/workflows/stock/-"
        exported = await viewer.get(f"{of}/{one}/export")
        again = await author.post(f"{API}/workflows/check", json={"text": exported.json()["text"]})
        told = {
            "source": await viewer.get(f"{of}/{one}/source"),
            "drawing": await viewer.get(f"{of}/{one}/drawing"),
            "diff": await viewer.get(f"{of}/diff", params={"a": one, "b": two}),
            "same": await viewer.get(f"{of}/diff", params={"a": one, "b": one}),
            "form": await viewer.get(f"{API}/workflows/order/-/1/form"),
            "schema": await viewer.get(f"{API}/schemas/process"),
            "functions": await viewer.get(f"{API}/functions"),
        }
        refused = [
            await viewer.get(f"{of}/{one}/export", params={"format": "python"}),
            await viewer.get(f"{API}/workflows/order/-/1/export"),
            await viewer.get(f"{of}/9.9/source"),
            await other.get(f"{of}/{one}/source"),
            await other.get(f"{of}/{one}/form"),
            await viewer.get(f"{API}/schemas/nothing"),
        ]
        return one, two, again, told, refused

    one, two, again, told, refused = run(story)

    assert (again.json()["ok"], again.json()["version"]) == (True, one)
    assert {name: each.status_code for name, each in told.items()} == dict.fromkeys(told, 200)
    assert told["source"].json()["version"] == one
    assert told["drawing"].json()["picture"]["nodes"]
    lines = told["diff"].json()["diff"]
    assert (lines[0], lines[1], told["same"].json()["diff"]) == (f"--- {one}", f"+++ {two}", [])
    schema = told["form"].json()["schema"]
    assert (schema["properties"]["cents"]["type"], schema["required"]) == ("integer", [])
    assert schema["properties"]["cents"]["default"] == 0
    assert told["schema"].json()["schema"]["$defs"]["step"]
    assert {"name", "gives", "text"} == set(told["functions"].json()["functions"][0])
    assert [each.status_code for each in refused] == [422, 409, 404, 404, 404, 404]


class Part(msgspec.Struct):
    name: str
    count: int = 1


@perdure.flow
async def assembly(ctx, parts: list[Part], day: date | None = None, anything=None):
    return len(parts)


def test_the_form_of_a_start_has_the_schemas_of_annotations():
    async def story(site):
        viewer = await site.key(VIEWER)
        version = (await viewer.get(f"{API}/workflows/assembly")).json()["versions"][0]["version"]
        return (await viewer.get(f"{API}/workflows/assembly/-/{version}/form")).json()["schema"]

    schema = run(story, workflows=[*ALL, assembly])

    assert schema["properties"]["parts"]["items"]["properties"]["name"] == {"type": "string"}
    assert schema["properties"]["day"]["anyOf"][0] == {"type": "string", "format": "date"}
    assert schema["properties"]["anything"]["default"] is None
    assert schema["required"] == ["parts"]


def test_a_version_tells_its_oldest_live_instance_and_who_registered_it():
    async def story(site):
        author = await site.key(Grant("author"), actor="ann")
        texts = PLAYBOOK, PLAYBOOK.replace("result: 1", "result: 2")
        one, two = [(await author.post(f"{API}/workflows", json={"text": text})).json()["version"] for text in texts]
        for key in ("o-1", "o-2"):
            await (await site.engine.start("order", key=key)).until("waiting")
        plain = (await author.get(f"{API}/workflows")).json()["items"]
        await site.engine.handle("order", "o-1").cancel()
        await site.engine.handle("order", "o-1").until("cancelled")
        listed = (await author.get(f"{API}/workflows", params={"oldest": "true"})).json()["items"]
        return one, two, plain, listed, (await author.get(f"{API}/workflows/stock")).json()["versions"]

    one, two, plain, listed, versions = run(story)

    (order,) = [each for each in listed if each["name"] == "order"]
    assert order["versions"][0]["oldest"]["id"] == "order/o-2"
    assert not any("oldest" in version for each in plain for version in each["versions"])
    assert {each["version"]: each["active"] for each in versions} == {one: False, two: True}
    assert {each["put_by"] for each in versions} == {"ann"}


def test_nodes_are_added_to_a_graph_and_ended():
    async def story(site):
        operator, viewer = await site.key(Grant("operator")), await site.key(VIEWER, actor="vi")
        await site.engine.start(gated, key="g")
        on, other = f"{API}/instances/gated/g/-/nodes", f"{API}/instances/order/o/-/nodes"
        await (await site.engine.start("order", key="o")).until("waiting")
        late = {"nodes": [{"name": "late", "after": ["gate"]}]}
        added = await operator.post(on, json=late, headers={"idempotency-key": "one"})
        same = await operator.post(on, json=late, headers={"idempotency-key": "one"})
        refused = [
            await operator.post(on, json=late),
            await operator.post(f"{on}/nothing/cancel", json={}),
            await viewer.post(f"{on}/gate/cancel", json={}),
            await operator.post(other, json=late),
        ]
        ended = await operator.post(f"{on}/gate/cancel", json={})
        await site.engine.handle("gated", "g").until("failed")
        after = await operator.post(on, json=late)
        return added, same, refused, ended, after

    added, same, refused, ended, after = run(story, workflows=[*ALL, gated])

    assert (added.status_code, added.json()) == (200, {"id": "gated/g", "names": ["late"]})
    assert same.json() == added.json()
    assert [(each.status_code, each.json()["code"]) for each in refused] == [
        (409, "denied"),
        (404, "unknown-node"),
        (403, "forbidden"),
        (409, "code-not-here"),
    ]
    assert (ended.status_code, ended.json()["node"]) == (200, "gate")
    assert (after.status_code, after.json()["code"]) == (409, "instance-ended")


def test_the_report_of_a_graph_is_told():
    async def story(site):
        viewer = await site.key(VIEWER)
        handle = await site.engine.start_plain("article", {"input": "heat pumps"}, key="a")
        while_open = await viewer.get(f"{API}/instances/{handle.id}/-/report")
        await site.engine.start("order", key="o")
        none = await viewer.get(f"{API}/instances/order/o/-/report")
        return while_open, none

    told, none = run(story, workflows=ALL)

    assert told.status_code == 200, told.text
    assert told.json()["nodes"] and {"node", "status", "trust"} <= set(told.json()["nodes"][0])
    assert none.status_code == 409


@perdure.flow
async def formed(ctx):
    any_name = "any"
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.receive("decision", type=Decision))
        group.create_task(ctx.receive("count", type=int))
        group.create_task(ctx.receive("note"))
        group.create_task(ctx.receive(any_name, type=int))


def test_what_waits_for_a_message_tells_the_schema_that_the_definition_has():
    """Whoever sends it gets a form; a message that takes anything has none."""
    asks = Process(
        "asks",
        "1.0.0",
        steps=[
            Receive("decide", "decision", schema=Decision),
            Receive("note", "note"),
            Complete("end"),
        ],
    )

    async def story(found):
        viewer = await found.key(VIEWER)
        await (await found.engine.start("formed", key="f")).until("waiting")
        formed = (await viewer.get(f"{API}/instances/formed/f/-/waiting")).json()["waiting"]
        handle = await found.engine.start("asks", key="a")
        await handle.until("waiting")
        url = f"{API}/instances/asks/a"
        first = [(await viewer.get(url + each)).json() for each in ("", "/-/waiting", "/-/why")]
        await handle.send("decision", {"outcome": "yes", "comment": ""})
        async for _ in found.engine.changes():
            if [each.location for each in await handle.waiting()] == ["note"]:
                break
        return first, (await viewer.get(f"{url}/-/waiting")).json(), formed

    (shown, waiting, why), then, of_a_flow = run(story, workflows=[*ALL, asks, formed])

    open = shown["waiting"][0], waiting["waiting"][0], why["reasons"][0]["waiting"]
    by_name = {each["what"]: each.get("schema") for each in of_a_flow}
    assert by_name == {"decision": open[0]["schema"], "count": {"type": "integer"}, "note": None, "any": None}
    for schema in [each["schema"] for each in open]:
        assert schema["properties"]["outcome"]["enum"] == ["yes", "no"]
        assert schema["required"] == ["outcome"]
    assert "schema" not in then["waiting"][0]
