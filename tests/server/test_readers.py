"""Reads: histories are folded once, and a read never holds up a commit."""

import asyncio
import threading
from base64 import b64decode
from collections import Counter
from typing import Any

import apsw
import pytest

import perdure
from perdure.access.model import Grant
from perdure.app.definitions import stored_one
from perdure.kernel.events import Address
from perdure.kernel.workflows import Workflows
from perdure.ports.seen import error_of, result_of
from perdure.ports.store import Filter
from perdure.processes import Complete, Process, start
from perdure.runtime.client import Client
from perdure.runtime.connections import RemoteConnection
from perdure.runtime.history import Reader, value_of
from perdure.server.readers import LINE_BYTES, FoldedHistory, Histories
from perdure.views.instance_at import instance_at
from perdure.views.look import look, shown_error, shown_wait
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


broken = [1]


async def shaky(n):
    if n in broken:
        raise ValueError("not yet")
    return n


@perdure.flow
async def eventful(ctx):
    """Steps, a retry by hand, a lost branch, a child, messages, published values, frames, an end."""
    for n in range(3):
        await ctx.step(f"shaky-{n}", shaky, n)
        ctx.publish("last", n)
    first = asyncio.create_task(ctx.receive("go"))
    second = asyncio.create_task(ctx.receive("stop", timeout=1000))
    await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    await ctx.child("order", key=f"child-of-{ctx.key}")
    ctx.publish("last", "the end")
    return "done"


async def an_eventful_story(engine):
    broken[:] = [1]
    handle = await engine.start(eventful, key="e")
    await handle.until("failed")
    broken.clear()
    await handle.retry()
    await handle.until("waiting")
    await handle.send("go", 1)
    child = engine.handle("order", "child-of-e")
    async for _ in engine.changes():
        if await engine.queries.head(Address("order", "child-of-e")) is not None:
            break
    await child.until("waiting")
    await handle.rewind("shaky-2", force=True)
    await handle.until("waiting")
    await handle.cancel()
    await handle.until("cancelled")
    return handle


async def test_each_cut_equals_a_fold_to_that_entry():
    async with perdure.open(":memory:", workflows=[*ALL, eventful]) as engine:
        await an_eventful_story(engine)
        queries = engine.queries
        compared = 0
        for head in await queries.heads(Filter(limit=100)):
            rows = await queries.history(head.id)
            whole = FoldedHistory()
            whole.fold(rows)
            for entry in range(1, len(rows) + 1):
                part = FoldedHistory()
                part.fold(rows[:entry])
                cut = instance_at("it", whole.lines, whole.past, whole.operations, entry)
                state = part.reader.state
                assert cut == instance_at("it", part.lines, part.past, part.operations, entry)
                assert cut.operations == part.operations.upto()
                assert cut.waiting == [shown_wait(each) for each in part.reader.waiting()]
                assert cut.status == state.status
                assert cut.published == {name: value_of(value) for name, value in state.published.items()}
                assert (cut.result, cut.error) == (result_of(state), shown_error(error_of(state)))
                compared += 1

    assert compared > 15


URLS = ["", "/-/why", "/-/waiting", "/-/operations", "/-/at/100", "/-/history", "/-/history?form=compact"]


@pytest.mark.parametrize("url", URLS)
def test_no_long_history_is_folded_on_the_loop_of_the_engine(monkeypatch, url):
    """Whatever is asked of it first: the thread that commits goes on."""
    folded: Counter[int] = Counter()
    read = Reader._read

    def spying(reader, entry):
        folded[threading.get_ident()] += 1
        return read(reader, entry)

    async def story(site):
        client = await site.key(VIEWER)
        await counted(site.engine, "c", 120)
        monkeypatch.setattr(Reader, "_read", spying)
        answer = await client.get(f"{API}/instances/counting/c{url}")
        monkeypatch.undo()
        return answer.status_code, answer.text, folded.pop(threading.get_ident(), 0), folded.total()

    status, text, on_the_loop, beside = run(story, workflows=[*ALL, counting])

    assert status == 200, text
    assert (on_the_loop, beside) == (0, 121)


def test_a_history_is_told_in_words_as_operations_and_as_it_is_kept():
    async def story(site):
        client = await site.key(VIEWER)
        hidden = await site.key(Grant("viewer", values=False), actor="bob")
        await an_eventful_story(site.engine)
        url = f"{API}/instances/eventful/e/-/history"
        told = {form: (await client.get(url, params={"form": form})).json() for form in ("words", "compact", "raw")}
        page = (await client.get(url, params={"form": "raw", "after": 3, "limit": 2})).json()
        found = (await client.get(url, params={"form": "raw", "find": "go"})).json()
        withheld = (await hidden.get(url, params={"form": "raw", "limit": 1})).json()
        head = await site.engine.queries.head(Address("eventful", "e"))
        return told, page, found, withheld, await site.engine.queries.history(head.id)

    told, page, found, withheld, rows = run(story, workflows=[*ALL, eventful])
    words, compact, raw = told["words"]["history"], told["compact"]["operations"], told["raw"]["raw"]

    belong = [entry for row in compact for entry in row["entries"]]
    assert sorted(belong) == [each["number"] for each in words], "each entry belongs to one row"
    assert compact[0]["what"] == "the instance itself"
    assert [each["number"] for each in raw] == [each["number"] for each in words]
    assert [b64decode(each["body"]["bytes"]) for each in raw] == [row.body for row in rows]
    assert raw[0]["body"]["event"]["kind"] == "Started"
    locations = [effect["location"] for each in raw for effect in each["body"].get("decision", {}).get("open", [])]
    assert locations == [each["location"] for each in compact[1:]]
    assert [each["number"] for each in page["raw"]] == [4, 5]
    assert "message" in [words[each["number"] - 1]["event"] for each in found["raw"]]
    assert withheld["raw"][0]["body"] == {"$withheld": True}


async def test_a_commit_is_made_while_a_history_is_being_read():
    """The cut of a history goes on only when a commit that began after it is durable."""
    async with perdure.open(":memory:", workflows=[counting]) as engine:
        handle = await counted(engine, "c", 120)
        head = await engine.queries.head(Address("counting", "c"))
        assert head is not None
        begun, committed = threading.Event(), threading.Event()

        def work(whole):
            begun.set()
            return committed.wait(60), whole.last

        reading = asyncio.ensure_future(Histories().cut(engine.queries, head, work))
        assert await asyncio.to_thread(begun.wait, 60)
        await handle.send("count", "meanwhile")
        committed.set()

        assert await reading == (True, 121)
        assert len(await handle.history()) == 122


async def test_the_histories_that_were_not_used_for_long_go_first():
    async with perdure.open(":memory:", workflows=[counting]) as engine:
        heads: list[Any] = []
        for key in "abc":
            await counted(engine, key, 10)
            heads.append(await engine.queries.head(Address("counting", key)))
        histories = Histories(kept_bytes=25 * LINE_BYTES)
        for head in heads:
            assert await histories.cut(engine.queries, head, lambda whole: len(whole.lines)) == 11
        kept = len(histories._kept)

        await histories.cut(engine.queries, heads[2], FoldedHistory.now)
        await histories.cut(engine.queries, heads[0], FoldedHistory.now)

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


class Counted:
    """The questions of a database, and how many were asked."""

    def __init__(self, queries):
        self._queries, self.count = queries, 0

    def __getattr__(self, name):
        self.count += 1
        return getattr(self._queries, name)


async def test_what_a_show_reads_does_not_grow_with_the_definitions_of_the_database():
    """Of an instance that waits, whose code the database may have."""

    async def questions(definitions):
        async with perdure.open(":memory:", workflows=[counting]) as engine:
            for n in range(definitions):
                await engine.processes.put(Process(f"p-{n}", version="1.0.0", steps=[Complete(start.n)]))
            await counted(engine, "c", 1)
            asked = Counted(engine.queries)
            head = await asked.head(Address("counting", "c"))
            client = Client(RemoteConnection(asked), Workflows(), restore=stored_one)
            await look(asked, head, code=client.code)
        return asked.count

    assert await questions(6) == await questions(1)
