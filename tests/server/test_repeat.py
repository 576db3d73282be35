"""Requests that come again: at another server, after the instance has ended, and several at once."""

import pytest

import perdure
from perdure.access.model import Grant
from tests.server.site import ALL, OPERATOR, run

API = "/api/v1"


@perdure.flow
async def dozing(ctx):
    await ctx.sleep("nap", 1000)
    raise ValueError("it fails after its nap")


@pytest.mark.parametrize(
    ("verb", "path", "body", "ends"),
    [
        ("POST", "cancel", {"reason": "twice"}, "cancelled"),
        ("POST", "wake", {}, "failed"),
        ("PATCH", "tags", {"tags": {"a": "1", "b": "2"}}, ""),
    ],
)
def test_a_repeated_key_after_the_end_gives_the_first_answer_at_any_server(verb, path, body, ends):
    async def story(site):
        handle = await site.engine.start("dozing", key="d")
        await handle.until("waiting")
        client = await site.key(OPERATOR)
        url, headers = f"{API}/instances/dozing/d/-/{path}", {"idempotency-key": "k-1"}
        first = await client.request(verb, url, json=body, headers=headers)
        if not ends:
            await handle.cancel()
        await handle.until(ends or "cancelled")
        site.server._repeats._kept.clear()  # as another server, which has no answers in memory
        second = await client.request(verb, url, json=body, headers=headers)
        other = await client.post(f"{API}/instances/dozing/d/-/retry", json={}, headers=headers)
        return first, second, other, [line.event for line in await handle.history()]

    first, second, other, events = run(story, workflows=[*ALL, dozing])

    assert (first.status_code, second.status_code) == (200, 200), second.text
    assert second.json() == first.json()
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    assert len(events) == len(set(events)), "nothing is recorded twice"


def test_tags_of_one_request_are_one_entry():
    async def story(site):
        handle = await site.engine.start("dozing", key="d")
        await handle.until("waiting")
        client = await site.key(OPERATOR)
        answer = await client.patch(
            f"{API}/instances/dozing/d/-/tags", json={"tags": {"a": "1", "b": "2"}}, headers={"idempotency-key": "k"}
        )
        return answer.json(), [line.event for line in await handle.history()]

    answer, events = run(story, workflows=[*ALL, dozing])

    assert answer["tags"] == {"a": "1", "b": "2"}
    assert events == ["started", "tagged"]


def test_keys_of_two_actors_are_two():
    async def story(site):
        handle = await site.engine.start("order", key="o")
        await handle.until("waiting")
        for actor in ("ann", "bob"):
            client = await site.key(OPERATOR, actor=actor)
            url, headers = f"{API}/instances/order/o/-/messages", {"idempotency-key": "1"}
            await client.post(url, json={"name": "other", "body": actor}, headers=headers)
        return [line.value for line in await handle.history() if line.event == "message"]

    assert run(story) == ["ann", "bob"]


def test_many_are_started_by_one_request_and_each_is_answered():
    async def story(site):
        client = await site.key(Grant("operator", ("order",)))
        asked = [{"workflow": "order", "input": {"cents": n}} for n in range(30)]
        asked += [{"workflow": "order", "input": {"pence": 1}}, {"workflow": "broken"}]
        headers = {"idempotency-key": "many"}
        first = await client.post(f"{API}/instances", json={"instances": asked}, headers=headers)
        site.server._repeats._kept.clear()
        second = await client.post(f"{API}/instances", json={"instances": asked}, headers=headers)
        wrong = [
            await client.post(f"{API}/instances", json={"instances": []}),
            await client.post(f"{API}/instances", json={"instances": asked[:1] * 501}),
            await client.post(f"{API}/instances", json={"workflow": "order", "instances": asked}),
        ]
        return first, second, wrong, len(await site.engine.instances(workflow="order"))

    first, second, wrong, count = run(story)

    items = first.json()["items"]
    assert first.status_code == 200 and count == 30
    assert [each.get("problem", {}).get("code") for each in items[30:]] == ["invalid-input", "unknown-workflow"]
    assert second.json() == first.json()
    assert {each.status_code for each in wrong} == {422}


REQUESTS = [
    ("POST", "/instances", {"workflow": "order", "input": {"cents": 3}}, {"workflow": "order", "input": {"cents": 4}}),
    ("POST", "/instances/order/o/-/messages", {"name": "hint", "body": 1}, {"name": "hint", "body": 2}),
    ("POST", "/instances/order/o/-/rewind", {"location": "charge"}, {"location": "receive:decision"}),
    ("POST", "/instances/order/o/-/fork", {"location": "charge"}, {"location": "receive:decision"}),
    (
        "POST",
        "/instances/order/o/-/fork",
        {"location": "charge", "key": "f"},
        {"location": "receive:decision", "key": "f"},
    ),
    ("PATCH", "/instances/order/o/-/tags", {"tags": {"a": "1"}}, {"tags": {"b": "2"}}),
    ("POST", "/bulk", {"verb": "tag", "params": {"name": "a", "value": "1"}, "selection": {"ids": ["order/o"]}}, None),
]


@pytest.mark.parametrize(("method", "path", "body", "other"), REQUESTS)
def test_another_server_makes_a_keyed_request_once_marks_its_repeat_and_refuses_another_under_the_key(
    method, path, body, other
):
    async def story(site):
        await (await site.engine.start("order", key="o")).until("waiting")
        client, headers, answers = await site.key(OPERATOR), {"idempotency-key": "k-1"}, []
        counts = []
        for said in (body, body, other or body):
            answers.append(await client.request(method, API + path, json=said, headers=headers))
            site.server._repeats._kept.clear()  # as another server, which has no answers in memory
            counts.append(
                (await client.get(f"{API}/instances/count", params={"workflow": ["order", "perdure.bulk"]})).json()
            )
        return answers, counts, [line.event for line in await site.engine.handle("order/o").history()]

    (first, second, third), counts, events = run(story)

    assert first.is_success and second.status_code == first.status_code, second.text
    assert second.json() == first.json()
    assert "idempotency-replayed" not in first.headers and second.headers["idempotency-replayed"] == "true"
    if other:
        assert (third.status_code, third.json()["code"]) == (422, "key-reused")
    assert counts[0] == counts[1] == counts[2]
    assert all(events.count(each) <= 1 for each in ("message", "tagged", "rewound"))


def test_a_key_is_made_once_by_one_request_at_any_server():
    async def story(site):
        admin, headers = await site.login(), {"idempotency-key": "k-1"}
        said = {"actor": "crm", "grants": [{"role": "viewer", "workflows": ["*"]}]}
        first = await admin.post(f"{API}/access/keys", json=said, headers=headers)  # it is shown this once
        second = await admin.post(f"{API}/access/keys", json=said, headers=headers)
        used = await site.client(headers={"authorization": f"Bearer {first.json()['key']}"}).get(f"{API}/whoami")
        return second, used, (await admin.get(f"{API}/access/keys")).json()["items"]

    second, used, keys = run(story)

    assert (second.status_code, second.json()["code"]) == (422, "key-reused")
    assert used.status_code == 200 and len(keys) == 1
