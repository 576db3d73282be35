"""Recorded values are shown to logins that may see them, in every face, and redacted fields to no login."""

import asyncio
import json
from contextlib import suppress

import httpx
import pytest

import perdure
from perdure.access.model import Grant
from perdure.errors import CallerError
from perdure.processes import Activate, Fail, Process, Set, Task, start, state
from perdure.server import Login, Settings, app
from perdure.server.redacting import REDACTED, Redactor, read_pointer
from perdure.server.routes import ROUTES
from tests.playbooks.test_engine import book
from tests.server import dialects
from tests.server.site import ADMIN, Decision, run
from tests.server.test_stream import events, until

API = "/api/v1"
SECRET = "SECRET-1"
SPELLED = ("SECRET", "U0VDUkVU", "NFQ1JFV", "TRUNSRV", "534543524554")
"""Also in base64, at each offset, and in hexadecimal."""


async def fail(what):
    raise perdure.Fatal(f"no {what}", {"what": what})


@perdure.flow
async def leaky(ctx, what: str = "", card: dict[str, str] | None = None):
    """A value in everything that a flow can record."""
    ctx.publish("said", {"what": what})
    with suppress(perdure.StepFailed):
        await ctx.step("charge", fail, what)
    await ctx.task("approve", title=f"Approve {what}", roles=["manager"], data={"what": what}, answer=Decision)
    raise ValueError(f"failed for {what}")


@perdure.flow
async def failing(ctx, what: str = "", card: dict[str, str] | None = None):
    raise ValueError(f"no {what} of {card}")


@perdure.flow
async def talking(ctx, what: str = ""):
    message = await ctx.receive("decision", ack=True)
    message.complete({"what": what})
    await ctx.receive("again")


class Got(perdure.Record, name="v/Got@1"):
    id: str
    what: str


class Kept(perdure.Record, name="v/Kept@1"):
    what: str


@perdure.cell("v/keeper@1", key="id", effects=[])
def keeper(state: Kept | None, event: Got, ctx: perdure.CellContext) -> perdure.Next:
    if event.id == "bad":
        raise ValueError(f"no {event.what}")
    return perdure.Next(Kept(event.what))


keeping = Process(
    "keeping",
    "1.0.0",
    steps=[Set("what", start.what), Activate("ask"), Fail("nope", state.what)],
    tasks=[Task("ask", title=start.what, roles=["manager"], data={"what": state.what}, answer={"type": "object"})],
)

BOOK = """apiVersion: perdure/v1
kind: Playbook
metadata: {name: keeping-book}
workload: {what: x}
executor: {spec: {ctx: {go: {init: false}, what: {init: SECRET-1}}}}
workflow:
  - {step: a, tool: {kind: noop, result: "{{ workload.what }}"}, next: b}
  - step: b
    spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
    tool: {kind: noop, result: "{{ a }}"}
"""

WORKFLOWS = [*dialects.ALL, leaky, failing, talking, keeper, keeping, perdure.load_playbook(BOOK)]


async def begun(site):
    site.server._buckets._rate = site.server._buckets._burst = 1e9
    given = {"what": SECRET, "card": {"number": "4111-SECRET"}}
    await (await site.engine.start_plain("leaky", given, key="l-1")).until("waiting")
    handle = await site.engine.start_plain("failing", given, key="f-1")
    with pytest.raises(perdure.InstanceFailed):
        await handle.result()
    await site.engine.start_plain("article", {"input": SECRET}, key="a-1")
    await site.engine.start_plain("talking", {"what": SECRET}, key="t-1")
    await site.engine.handle("talking", "t-1").ask("decision", {"what": SECRET}, timeout=60)
    for workflow in ("keeping", "keeping-book"):
        await (await site.engine.start_plain(workflow, {"what": SECRET}, key="k-1")).until("waiting")
    for id in ("good", "bad"):
        await site.engine.send(Got(id, SECRET))
    async for _ in site.engine.changes():
        if len(await site.engine.instances(workflow="v/keeper")) == 2:
            break
    site.engine.hurry.set()  # a node of it waits for a person: the end of the story does not
    kept = ["keeping/k-1", "keeping-book/k-1", "v/keeper/good", "v/keeper/bad"]
    return ["leaky/l-1", "failing/f-1", "article/a-1", "talking/t-1", *kept]


async def everything(client, ids):
    """The answers of all reads."""
    tasks = (await client.get(f"{API}/tasks")).json()["items"]
    mine = [each["id"] for each in tasks if each["workflow"] == "leaky"]
    names = {"{entry}": "1", "{name}": "said", "{task}": mine[0] if mine else "1", "{event}": "e"}
    found = {}
    for id in ids:
        for route in ROUTES:
            if not route.read or route.name == "ask verb":
                continue
            path = route.path.replace("{id}", id)
            for name, value in names.items():
                path = path.replace(name, value)
            query = {"a": ids[0], "b": ids[0]} if route.name == "diff" else {"values": "whole"}
            found[route.name, id] = await client.get(API + path, params=query)
        for verb in ("show", "history", "why", "export"):
            asked = {"params": json.dumps({"id": id})}
            found[f"verb {verb}", id] = await client.get(f"{API}/verbs/{verb}", params=asked)
        asked = {"params": json.dumps({"a": id, "b": id})}
        found["verb diff", id] = await client.get(f"{API}/verbs/diff", params=asked)
        on = f"{API}/instances/{id}/-"
        for form in ("words", "operations", "raw"):
            found[f"history {form}", id] = await client.get(f"{on}/history", params={"form": form, "values": "whole"})
        for entry in range(1, 5):
            found[f"at {entry}", id] = await client.get(f"{on}/at/{entry}", params={"values": "whole"})
            found[f"drawing {entry}", id] = await client.get(f"{on}/drawing", params={"at": entry})
    for entry in range(1, 30):
        found["trace", str(entry)] = await client.get(f"{API}/trace/{entry}")
        asked = {"params": json.dumps({"event": str(entry)})}
        found["verb trace", str(entry)] = await client.get(f"{API}/verbs/trace", params=asked)
    for format in ("jsonl", "csv"):
        found["list export", format] = await client.get(f"{API}/instances/export", params={"format": format})
    return found


async def acted(client, ids):
    """The answers of verbs that act, and of dry runs."""
    found = {}
    for id in ids:
        on, (workflow, _, key) = f"{API}/instances/{id}/-", id.rpartition("/")
        for verb in ("cancel", "retry"):
            found[verb, id] = await client.post(f"{on}/{verb}", json={"dry_run": True})
        for verb in ("rewind", "fork"):
            found[verb, id] = await client.post(f"{on}/{verb}", json={"location": "charge", "dry_run": True})
        again = {"workflow": workflow, "key": key, "input": {"what": "other"}}
        found["start", id] = await client.post(f"{API}/instances", json=again)
        found["preview", id] = await client.post(f"{API}/workflows/{workflow}/-/preview", json={})
    for each in (await client.get(f"{API}/tasks", params={"status": "open"})).json()["items"]:
        found["claim", each["id"]] = await client.post(f"{API}/tasks/{each['id']}/-/comment", json={"text": "seen"})
    return found


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_withheld_values_are_nowhere(role):
    async def story(site):
        ids = await begun(site)
        client = await site.key(Grant(role, values=False), actor="vic")
        stream = events(client, "tasks:mine,list:,instance:leaky/l-1", last="")
        told = [each for each in (await until(stream, "live"))]
        searched = [await client.get(f"{API}/instances/{id}/-/history", params={"find": SECRET}) for id in ids]
        seen = await everything(await site.key(ADMIN), ids)
        return await everything(client, ids) | await acted(client, ids), told, seen, searched

    withheld, told, seen, searched = run(story, workflows=WORKFLOWS)

    assert [name for name, answer in withheld.items() if any(each in answer.text for each in SPELLED)] == []
    assert [answer.json()["history"] for answer in searched] == [[]] * len(searched)  # a search is no oracle
    assert "SECRET" not in str(told)
    assert {name for (name, _), answer in seen.items() if "SECRET" in answer.text} >= {
        *("show", "why", "history", "operations", "at", "read", "tasks ls", "tasks show", "result", "verb export")
    }
    assert {answer.status_code for (name, _), answer in withheld.items() if name == "verb export"} == {403}


def test_the_mailbox_tells_its_messages_within_the_limits_of_values():
    async def story(site):
        handle = await site.engine.start_plain("talking", {"what": "it"}, key="t-1")
        bodies = ({"what": SECRET, "card": {"number": "4111"}}, "x" * 20_000)
        for body in bodies:
            await handle.send("again", body)
        before = await site.key(Grant("viewer", values=False), actor="vic"), await site.key(ADMIN)
        at = f"{API}/instances/talking/t-1"
        found = [(each, values) for each in before for values in ({}, {"values": "whole"})]
        told = [(await each.get(at, params=values)).json()["mailbox"] for each, values in found]
        await handle.ask("decision", None, timeout=60)
        return told, (await before[1].get(at)).json()["mailbox"]

    (*hidden, cut, whole), after = run(story, workflows=[talking], redact=("/card/number",))

    assert [mail["body"] for mailbox in hidden for mail in mailbox] == [{"$withheld": True}] * 4
    assert [(mail["event"], mail["name"], mail["recorded"]) for mail in cut] == [("message", "again", True)] * 2
    assert cut[0]["body"] == {"what": SECRET, "card": {"number": REDACTED}} and cut[1]["body"]["bytes"] > 20_000
    assert whole[1]["body"] == "x" * 20_000
    assert after == []  # it received the first, and has completed


def test_who_has_to_do_a_task_sees_what_it_is_about():
    async def story(site):
        await begun(site)
        client = await site.key(Grant("viewer", values=False), actor="mia", roles=["manager"])
        task = (await client.get(f"{API}/tasks", params={"candidate": "true"})).json()["items"]
        task = next(each for each in task if each["workflow"] == "leaky")
        return (await client.get(f"{API}/tasks/{task['id']}")).json()

    found = run(story, workflows=WORKFLOWS)

    assert (found["title"], found["data"]) == (f"Approve {SECRET}", {"what": SECRET})


def test_redacted_fields_are_shown_to_no_login():
    async def story(site):
        ids, admin = await begun(site), await site.key(ADMIN, roles=["manager"])
        stream = events(admin, "tasks:mine,list:", last="")
        found = await everything(admin, ids) | await acted(admin, ids)
        return found, await until(stream, "live")

    found, told = run(story, workflows=WORKFLOWS, redact=("/**/what", "/**/card/number", "/**/input"))

    assert [name for name, answer in found.items() if "SECRET" in answer.text] == []
    assert "SECRET" not in str(told)
    card = {name for name, answer in found.items() if "4111-" in answer.text}  # the number alone may stand in a time
    shown = found["show", "failing/f-1"].json()
    assert card == set()
    assert shown["input"]["card"] == {"number": REDACTED}
    assert SECRET not in json.dumps(shown)  # nor in the text of its error
    assert SECRET not in found["tasks show", "leaky/l-1"].text
    assert SECRET not in found["why", "failing/f-1"].text
    assert found["verb export", "failing/f-1"].status_code == 403


KEEPING = """
keychain: [{name: k, map: {token: token}}]
workflow:
  - step: a
    tool:
      - {name: look, kind: python, args: {t: "<{{ keychain.k.token }}>"}, code: "return t"}
      - {name: fail, kind: python, args: {t: "{{ keychain.k.token }}"}, code: "raise ValueError(t)"}
"""


def test_a_secret_is_in_no_answer_and_no_log(caplog):
    caplog.set_level("DEBUG")
    secret = "canary-77-of-this-test"

    async def story():
        playbook = book(KEEPING)
        async with perdure.open(":memory:", workflows=[playbook], secrets={"token": secret}) as engine:
            handle = await engine.start_plain(playbook.name, {}, key="p-1")
            with suppress(perdure.InstanceFailed, perdure.InstanceStuck):
                await handle.result()
            server = app(
                engine, actor=lambda scope: Login(perdure.Actor("ann"), (ADMIN,)), settings=Settings(secret="x" * 16)
            )
            transport = httpx.ASGITransport(server)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return await everything(client, [f"{playbook.name}/p-1"])

    found = asyncio.run(asyncio.wait_for(story(), 60))

    assert not [name for name, answer in found.items() if secret in answer.text]
    assert any("<secret token>" in answer.text for answer in found.values())
    assert secret not in caplog.text


@pytest.mark.parametrize(
    ("pointer", "hidden"),
    [
        ("/a/b", {"a": {"b": REDACTED, "c": ["long text", {"b": 2}]}, "b": 3}),
        ("/*/b", {"a": {"b": REDACTED, "c": ["long text", {"b": 2}]}, "b": 3}),
        ("/**/b", {"a": {"b": REDACTED, "c": ["long text", {"b": REDACTED}]}, "b": REDACTED}),
        ("/a/c/0", {"a": {"b": 1, "c": [REDACTED, {"b": 2}]}, "b": 3}),
        ("/a", {"a": REDACTED, "b": 3}),
        ("/nothing", {"a": {"b": 1, "c": ["long text", {"b": 2}]}, "b": 3}),
    ],
)
def test_a_pointer_names_fields_at_one_place_or_at_any_depth(pointer, hidden):
    value = {"a": {"b": 1, "c": ["long text", {"b": 2}]}, "b": 3}

    assert Redactor([read_pointer(pointer)]).value(value) == hidden


def test_a_text_that_was_hidden_is_hidden_in_sentences_too():
    redactor = Redactor([read_pointer("/card")])
    redactor.value({"card": {"number": "4111-1111"}})

    assert redactor.texts({"message": "no card 4111-1111"}) == {"message": "no card …"}


@pytest.mark.parametrize("text", ["", "card", "/card/"])
def test_what_is_no_pointer_is_refused(text):
    with pytest.raises(CallerError):
        read_pointer(text)
