"""What `show` and `/verbs` say of the verbs is what the verbs do."""

import pytest

from perdure.access.model import Grant
from perdure.server.routes import ROUTES
from tests.server.site import ALL, VIEWER, run
from tests.server.test_definitions import PLAYBOOK, gated

API = "/api/v1"
BODIES = {
    "node cancel": ("POST", "nodes/gate/cancel", {}),
    "wake": ("POST", "wake", {}),
    "send": ("POST", "messages", {"name": "decision", "body": 1}),
    "cancel": ("POST", "cancel", {"dry_run": True}),
    "retry": ("POST", "retry", {"dry_run": True}),
    "settle": ("POST", "settle", {"location": "charge", "as": "ok", "dry_run": True}),
    "rewind": ("POST", "rewind", {"location": "charge", "dry_run": True}),
    "fork": ("POST", "fork", {"location": "charge", "dry_run": True}),
    "tag": ("PATCH", "tags", {"tags": {"seen": "yes"}}),
    "patch": ("PATCH", "ctx", {"set": {"go": False}}),
    "pause": ("POST", "pause", {"reason": "stock-taking"}),
    "resume": ("POST", "resume", {}),
    "submit": ("POST", "nodes", {"nodes": [{"name": "late", "after": ["gate"]}]}),
}
"""By verb: how it is asked for so that it fits where it is allowed at all. The first of them end an instance."""


async def begun(site):
    author = await site.key(Grant("author"))
    await author.post(f"{API}/workflows", json={"text": PLAYBOOK})
    await author.post(f"{API}/instances", json={"workflow": "stock", "key": "s"})
    await (await site.engine.start("order", key="open")).until("waiting")
    await (await site.engine.start("secret_plan", key="sleeps")).until("waiting")
    await (await site.engine.start("broken", key="failed")).until("failed")
    ended = await site.engine.start("order", key="ended")
    await ended.send("decision", "yes")
    await ended.result(60)
    await site.engine.start(gated, key="g")
    await site.engine.handle("stock", "s").until("waiting")
    return author


def test_what_may_says_of_an_instance_is_what_its_verbs_do():
    async def story(site):
        author, found = await begun(site), {}
        for id in ("order/open", "secret_plan/sleeps", "broken/failed", "order/ended", "stock/s", "gated/g"):
            may = (await author.get(f"{API}/instances/{id}")).json()["may"]
            for verb in reversed(BODIES):
                method, path, body = BODIES[verb]
                answer = await author.request(method, f"{API}/instances/{id}/-/{path}", json=body)
                found[id, verb] = may.get(verb, "it is of another dialect"), answer
        return found

    for (id, verb), (against, answer) in run(story, workflows=[*ALL, gated]).items():
        if (id, verb) == ("gated/g", "send"):
            continue  # it takes messages of some names
        place_is_unknown = answer.status_code == 404 and answer.json()["code"] in ("unknown-location", "not-found")
        done = answer.status_code == 200 or (not against and place_is_unknown)
        assert done is not bool(against), (id, verb, against, answer.text)


@pytest.mark.parametrize(
    ("grant", "more", "reason"),
    [
        (VIEWER, {}, "it needs the role "),
        (Grant("author"), {"read_only": True}, "this server is read-only"),
    ],
)
def test_verbs_says_why_a_verb_is_not_allowed(grant, more, reason):
    async def story(site):
        client = await site.key(grant) if not more else await site.login()
        return (await client.get(f"{API}/verbs")).json()["items"]

    items = {each["name"]: each for each in run(story, **more)}

    assert set(items) == {route.name for route in ROUTES}
    assert all(each["allowed"] is not bool(each["why"]) for each in items.values())
    assert items["cancel"]["why"].startswith(reason)
    assert items["show"]["why"] == ""


def test_an_executor_is_told_its_own_verbs():
    async def story(site):
        bank = await site.key(executor="bank", actor="bank")
        return (await bank.get(f"{API}/verbs")).json()["items"]

    allowed = {each["name"] for each in run(story) if each["allowed"]}

    assert {"effects ls", "effects answer", "whoami"} <= allowed
    assert not allowed & {"ls", "show", "start", "cancel"}
