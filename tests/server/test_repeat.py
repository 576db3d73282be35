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
    assert [each.get("problem", {}).get("code") for each in items[30:]] == ["invalid-input", "not-found"]
    assert second.json() == first.json()
    assert {each.status_code for each in wrong} == {422}
