"""The instance that keeps keys, grants and links."""

import asyncio
from datetime import UTC, datetime, timedelta

import perdure
from perdure.access.machine import PUBLISHED
from perdure.access.model import KEY, WORKFLOW, Access
from perdure.codec import decode, from_plain

SOON = datetime(2100, 1, 1, tzinfo=UTC)


def run(story, url=":memory:"):
    async def main():
        async with perdure.open(url) as engine:
            handle = await engine.start(WORKFLOW, key=KEY)
            return await story(engine, handle)

    return asyncio.run(main())


async def state(engine, handle):
    head = await engine.queries.head(handle.address)
    return from_plain(decode(await engine.queries.published(head.id, PUBLISHED)), Access)


def test_a_link_is_used_once():
    async def story(engine, handle):
        await handle.ask("link add", {"digest": "d", "actor": "ann", "expires_at": SOON}, timeout=60)
        return [await handle.ask("link use", {"digest": "d"}, timeout=60) for _ in range(2)]

    first, second = run(story)

    assert first == {"ok": "ann"}
    assert second["refused"] == "not-found"


def test_an_old_link_is_not_taken():
    async def story(engine, handle):
        old = datetime.now(UTC) - timedelta(seconds=1)
        await handle.ask("link add", {"digest": "d", "actor": "ann", "expires_at": old}, timeout=60)
        return await handle.ask("link use", {"digest": "d"}, timeout=60)

    assert run(story)["refused"] == "not-found"


def test_the_last_admin_stays():
    async def story(engine, handle):
        admin = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": []}
        nobody: dict[str, list[str]] = {"grants": [], "roles": []}
        await handle.ask("grant", {"actor": "ann", "person": admin}, timeout=60)
        refused = await handle.ask("grant", {"actor": "ann", "person": nobody}, timeout=60)
        return refused, await state(engine, handle)

    refused, access = run(story)

    assert refused["refused"] == "last-admin"
    assert list(access.people) == ["ann"]


def test_what_is_not_understood_changes_nothing():
    async def story(engine, handle):
        return await handle.ask("key add", {"id": 3}, timeout=5), await handle.ask("dance", None, timeout=60)

    assert [each["refused"] for each in run(story)] == ["bad-request", "bad-request"]


def test_it_survives_a_restart_and_there_is_one(tmp_path):
    url = tmp_path / "a.db"

    async def add(engine, handle):
        await handle.ask("link add", {"digest": "d", "actor": "ann", "expires_at": SOON}, timeout=60)

    run(add, url)

    assert run(lambda engine, handle: handle.ask("link use", {"digest": "d"}, timeout=60), url) == {"ok": "ann"}
