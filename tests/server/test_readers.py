"""Reads: histories are folded once, and a read never holds up a commit."""

from typing import Any

import apsw
import pytest

import perdure
from perdure.kernel.events import Address
from perdure.server.readers import LINE_BYTES, Histories
from tests.server.site import ALL, OPERATOR, VIEWER, run

API = "/api/v1"


@perdure.flow
async def counting(ctx):
    while True:
        await ctx.receive("count")


async def counted(engine, key, count):
    handle = await engine.start(counting, key=key)
    for n in range(count):
        await handle.send("count", n, by="ann" if n % 2 else None)
    return handle


def test_pages_of_a_history_fold_each_entry_once():
    async def story(site):
        client = await site.key(VIEWER)
        handle = await counted(site.engine, "c", 60)
        url, found, after = f"{API}/instances/counting/c/-/history", [], 0
        while page := (await client.get(url, params={"after": after, "limit": 7})).json()["history"]:
            found += page
            after = page[-1]["number"]
        folded = site.server.histories.folded
        back = (await client.get(url, params={"before": 20, "limit": 3})).json()["history"]
        some = (await client.get(url, params={"find": "started"})).json()["history"]
        await handle.send("count", "new")
        new = (await client.get(url, params={"after": 61})).json()
        return found, folded, back, some, new, site.server.histories.folded

    found, folded, back, some, new, then = run(story, workflows=[*ALL, counting])

    assert [each["number"] for each in found] == list(range(1, 62))
    assert (folded, then) == (61, 62)
    assert [each["number"] for each in back] == [17, 18, 19]
    assert [each["number"] for each in some] == [1]
    assert (new["entries"], [each["value"] for each in new["history"]]) == (62, ["new"])


def test_who_asked_is_told_with_each_page():
    async def story(site):
        await counted(site.engine, "c", 6)
        client = await site.key(VIEWER)
        return (await client.get(f"{API}/instances/counting/c/-/history", params={"after": 2, "limit": 3})).json()

    told = run(story, workflows=[*ALL, counting])

    assert {number: each["by"] for number, each in told["asked"].items()} == {"3": "ann", "5": "ann"}


async def test_the_histories_that_were_not_used_for_long_go_first():
    async with perdure.open(":memory:", workflows=[counting]) as engine:
        heads: list[Any] = []
        for key in "abc":
            await counted(engine, key, 10)
            heads.append(await engine.queries.head(Address("counting", key)))
        histories = Histories(kept_bytes=25 * LINE_BYTES)
        for head in heads:
            assert len((await histories.of(engine.queries, head)).lines) == 11
        kept = len(histories._kept)

        await histories.of(engine.queries, heads[2])
        await histories.of(engine.queries, heads[0])

    assert kept < 3
    assert histories.folded == 4 * 11


@pytest.mark.parametrize("sql", ["SELECT * FROM journal", "SELECT * FROM instances"])
def test_a_read_never_holds_up_a_commit(tmp_path, sql):
    """A reader in the midst of its rows, as reads of lists and histories have it, keeps its state; commits go on."""
    database = str(tmp_path / "shop.db")

    async def story(site):
        client = await site.key(OPERATOR)
        for n in range(5):
            await (await site.engine.start("order", key=f"o-{n}")).until("waiting")
        reader = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
        rows = reader.execute(sql)
        assert next(rows)
        for n in range(5):
            url = f"{API}/instances/order/o-{n}/-/messages"
            assert (await client.post(url, json={"name": "decision", "body": n})).status_code == 200
            await site.engine.handle("order", f"o-{n}").result(20)
        listed = (await client.get(f"{API}/instances", params={"status": "completed"})).json()["items"]
        rest = list(rows)
        reader.close()
        return listed, rest

    listed, rest = run(story, url=database)

    assert len(listed) == 5
    assert rest
