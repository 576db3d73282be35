"""The journal, cells and the doctor over HTTP: what the command line tells, for those who may see it."""

import asyncio
from typing import Any

import perdure
from perdure.access.model import Grant
from tests.server.dialects import ALL, Counted, shelf
from tests.server.site import ADMIN, VIEWER, order, run

API = "/api/v1"


async def counted(engine, *pieces):
    """Count pieces of the shelf `a`, and wait until its state has all of them."""
    for n in pieces:
        await engine.send(Counted("a", n))
    async for _ in engine.changes():
        found = await engine.state(shelf, "a")
        if found is not None and found.pieces == sum(pieces):
            return


def test_cells_are_listed_and_shown_now_and_at_an_entry():
    async def story(site):
        viewer, other = await site.key(VIEWER), await site.key(Grant("viewer", ("order",)), actor="x")
        await (await site.engine.start("order", key="o")).until("waiting")
        await counted(site.engine, 2, 3)
        listed, none = await viewer.get(f"{API}/cells"), await other.get(f"{API}/cells")
        now, tail = (
            await viewer.get(f"{API}/cells/com.acme/shelf/a"),
            await viewer.get(f"{API}/cells/com.acme/shelf/a/-/tail"),
        )
        first = tail.json()["entries"][0]["entry"]
        then = await viewer.get(f"{API}/cells/com.acme/shelf/a", params={"at": first})
        bad = [
            await other.get(f"{API}/cells/com.acme/shelf/a"),
            await viewer.get(f"{API}/cells/order/o"),
            await viewer.get(f"{API}/cells/com.acme/shelf/a", params={"at": 10**6}),
        ]
        blind = await site.key(Grant("viewer", values=False), actor="b")
        return listed, none, now, tail, then, bad, await blind.get(f"{API}/cells/com.acme/shelf/a")

    listed, none, now, tail, then, bad, blind = run(story, workflows=ALL)

    assert [each["id"] for each in listed.json()["items"]] == ["com.acme/shelf/a"]
    assert none.json()["items"] == []
    assert (now.json()["state"], now.json()["entry"]) == ({"pieces": 5}, None)
    assert then.json()["state"] == {"pieces": 2}
    assert [each["number"] for each in tail.json()["entries"]] == [1, 2]
    assert [each.status_code for each in bad] == [404, 404, 404]
    assert blind.json()["state"] == {"$withheld": True}


def test_a_server_without_the_code_of_a_cell_says_so(tmp_path):
    async def story(site):
        admin = await site.login()
        return await admin.get(f"{API}/cells/com.acme/shelf/a"), await admin.get(f"{API}/cells")

    async def before():
        async with perdure.open(path, workflows=[shelf]) as engine:
            await counted(engine, 1)

    path = str(tmp_path / "w.db")
    asyncio.run(before())
    shown, listed = run(story, url=path, connect=True)

    assert (shown.status_code, shown.json()["code"]) == (409, "code-not-here")
    assert [each["id"] for each in listed.json()["items"]] == ["com.acme/shelf/a"]


def test_the_journal_is_read_page_by_page_by_those_who_see_it():
    async def story(site):
        viewer, other = await site.key(VIEWER), await site.key(Grant("viewer", ("order",)), actor="x")
        await (await site.engine.start("order", key="o")).until("waiting")
        await (await site.engine.start("secret_plan", key="s")).until("waiting")
        found: list[Any] = []
        after = "0"
        while after is not None:
            page = (await viewer.get(f"{API}/journal", params={"after": after, "limit": 2})).json()
            found, after = found + page["items"], page["next"]
        seen = (await other.get(f"{API}/journal")).json()["items"]
        elsewhere = (await viewer.get(f"{API}/journal", params={"shard": 3})).json()
        bad = await viewer.get(f"{API}/journal", params={"shard": -1})
        history = (await viewer.get(f"{API}/instances/order/o/-/history")).json()["history"]
        return found, seen, elsewhere, bad, history

    found, seen, elsewhere, bad, history = run(story, workflows=ALL)

    assert {each["id"] for each in found} == {"order/o", "secret_plan/s", "sys/world/main"}
    numbers = [int(each["entry"]) for each in found]
    assert numbers == sorted(set(numbers))
    assert {each["id"] for each in seen} == {"order/o"}
    assert [{name: each[name] for name in history[0]} for each in seen] == history
    assert (elsewhere["items"], elsewhere["next"], bad.status_code) == ([], None, 422)


def test_the_doctor_finds_a_sound_database_and_is_for_those_who_see_all_of_it(tmp_path):
    async def story(site):
        clients = await site.key(ADMIN), await site.key(VIEWER, actor="v"), await site.key(Grant("admin", ("order",)))
        return [await client.get(f"{API}/doctor") for client in clients]

    told, seen, no = run(story, url=str(tmp_path / "w.db"), workflows=[order])

    assert (told.json()["ok"], told.json()["problems"], no.status_code) == (True, [], 403)
    assert (seen.status_code, seen.json()["ok"], seen.json()["database"]) == (200, True, {})
    assert told.json()["database"]["journal_mode"] == "wal"
    assert {"name": "order", "version": "1"} in told.json()["database"]["workflows"]
