"""Server-sent events: live, resumed, and ended."""

import asyncio
import json
import threading
from typing import Any, cast

import perdure
from perdure.access.model import Grant
from perdure.server.feed import Feed
from tests.server.site import ALL, VIEWER, run

API = "/api/v1"


async def events(client, channels, last=None):
    headers = {} if last is None else {"last-event-id": last}
    async with client.stream("GET", f"{API}/stream", params={"channels": channels}, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        event: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if not line:
                if "event" in event:
                    yield event["event"], json.loads(event["data"]), event.get("id", "")
                event = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                event[name] = value


async def until(stream, wanted):
    """Events up to the first of a name."""
    found = []
    async for event in stream:
        found.append(event)
        if event[0] == wanted:
            return found
    return found


def test_a_watcher_hears_of_each_entry_of_an_instance():
    async def story(site):
        client = await site.key(VIEWER)
        handle = await site.engine.start("order", key="o-1")
        await handle.until("waiting")
        stream = events(client, "instance:order/o-1")
        await until(stream, "live")
        await handle.send("decision", "yes")
        found = []
        async for name, data, _ in stream:
            found.append((name, data.get("status")))
            if data.get("status") == "completed":
                return found

    found = run(story)

    assert ("entry", None) in found
    assert found[-1] == ("head", "completed")


def test_a_list_tells_of_instances_whose_tag_goes_or_changes():
    async def story(site):
        client = await site.key(VIEWER)
        handles = [await site.engine.start("secret_plan", key=key) for key in "ab"]
        other = await site.engine.start("secret_plan", key="other")
        for handle in handles:
            await handle.tag("customer", "c-7")
        stream = events(client, "list:tag.customer:c-7")
        await until(stream, "live")
        await other.send("note", 1)  # it was not in the list, and is not told
        await handles[0].tag("customer", None)
        await handles[0].send("note", 1)
        await handles[1].tag("customer", "c-9")
        await other.tag("customer", "c-7")
        found = []
        async for _, data, _ in stream:
            found.append((data["id"].partition("/")[2], data["fits"]))
            if data["fits"]:
                return found

    found = run(story)

    assert found == [("a", False), ("b", False), ("other", True)]


def test_a_list_tells_of_new_instances_and_of_those_that_leave_it():
    async def story(site):
        client = await site.key(Grant("viewer", ("order",)))
        stream = events(client, "list:status:waiting")
        await until(stream, "live")
        await site.engine.start("secret_plan", key="s-1")
        handle = await site.engine.start("order", key="o-1")
        await handle.until("waiting")
        await handle.send("decision", "yes")
        found = []
        async for _, data, _ in stream:
            found.append((data["id"], data["fits"], data["status"]))
            if data["status"] == "completed":
                return found

    found = run(story)

    assert {id for id, _, _ in found} == {"order/o-1"}
    assert found[-1] == ("order/o-1", False, "completed")


def test_a_cut_stream_resumes_at_every_position_without_gap_or_repetition():
    async def story(site):
        client = await site.key(VIEWER)
        begun = events(client, "fleet")
        (*_, (_, _, start)) = await until(begun, "live")
        for n in range(5):
            handle = await site.engine.start("order", key=f"o-{n}")
            await handle.until("waiting")
        whole = await until(events(client, "fleet", last=start), "live")
        ids = [id for name, _, id in whole if name == "count"]
        tails = []
        for id in ids:
            told = await until(events(client, "fleet", last=id), "live")
            tails.append([each for name, _, each in told if name == "count"])
        return ids, tails

    ids, tails = run(story)

    assert len(ids) >= 5 and len(set(ids)) == len(ids)
    for place, tail in enumerate(tails):
        assert tail == ids[place + 1 :]


def test_a_position_of_the_future_or_of_elsewhere_is_a_gap():
    async def story(site):
        client = await site.key(VIEWER)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        lasts = ["0-ffffff", "nonsense", "7-1"]
        return [[name for name, *_ in await until(events(client, "fleet", last=each), "live")] for each in lasts]

    assert run(story) == [["gap", "live"]] * 3


def test_a_revoked_right_ends_the_stream(monkeypatch):
    monkeypatch.setattr("perdure.server.stream.RECHECK_SECONDS", 0.05)
    monkeypatch.setattr("perdure.server.accesses.FRESH_SECONDS", 0.0)

    async def story(site):
        admin, client = await site.login(), await site.key(VIEWER)
        key = next(each["id"] for each in (await admin.get(f"{API}/access/keys")).json()["items"])
        stream = events(client, "fleet")
        await until(stream, "live")
        await admin.delete(f"{API}/access/keys/{key}")
        return (await until(stream, "bye"))[-1][0]

    assert run(story) == "bye"


def test_stopping_says_bye_and_loses_nothing():
    async def story(site):
        client = await site.key(VIEWER)
        stream = events(client, "fleet")
        await until(stream, "live")
        asyncio.get_running_loop().call_later(0.05, site.server.stopping.set)
        await site.engine.start("order", key="o-1")
        return [name for name, *_ in await until(stream, "bye")]

    assert run(story)[-1] == "bye"


def test_a_watcher_of_tasks_hears_of_their_tasks():
    async def story(site):
        manager = await site.key(actor="mia", roles=["manager"])
        stream = events(manager, "tasks:mine")
        await until(stream, "live")
        await site.engine.start("approval", key="a-1", amount=3)
        return (await until(stream, "task"))[-1]

    name, data, _ = run(story)

    assert (name, data["title"], data["status"]) == ("task", "Approve 3", "open")


def test_what_is_no_channel_or_not_visible_is_refused():
    async def story(site):
        client = await site.key(Grant("viewer", ("order",)))
        await (await site.engine.start("secret_plan", key="s-1")).until("waiting")
        asked = ["dance", "", "instance:secret_plan/s-1", "list:statu:stuck"]
        return [(await client.get(f"{API}/stream", params={"channels": each})).status_code for each in asked]

    assert run(story) == [422, 422, 404, 422]


def test_watching_costs_nothing_when_nobody_watches():
    async def story(site):
        client = await site.key(VIEWER)
        stream = events(client, "fleet")
        await until(stream, "live")
        running = site.server.feed._task is not None
        await stream.aclose()
        async with asyncio.timeout(60):
            while site.server.feed._task is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return running, site.server.feed._task

    assert run(story) == (True, None)


go = threading.Event()


async def telling() -> int:
    perdure.progress(1, 4, "begun")
    await asyncio.to_thread(go.wait)
    for n in range(3):
        perdure.emit({"n": n})
    return 3


@perdure.flow
async def teller(ctx):
    await ctx.step("tell", telling)
    await ctx.receive("again")
    await ctx.step("more", telling)


def heard_of(found, kind):
    return [data for name, data, _ in found if name == "frame" and data["kind"] == kind]


async def frames_of(site, engine):
    """What two logins hear of the frames of one instance; one of them may not see values."""
    go.clear()
    viewer = await site.key(VIEWER)
    blind = await site.key(Grant("viewer", values=False), actor="bob")
    handle = await engine.start("teller", key="t")
    async for _ in engine.changes():
        if await site.engine.queries.head(handle.address) is not None:
            break
    streams = [events(client, "frames:teller/t,instance:teller/t") for client in (viewer, blind)]
    begun = [await until(each, "frame") for each in streams]
    go.set()
    told = [[*first, *(await until_chunk(each))] for first, each in zip(begun, streams, strict=True)]
    await handle.until("waiting")
    await handle.send("again")
    rest = await until_chunk(streams[0])
    await handle.result(60)
    return *told, rest


async def until_chunk(stream):
    found = []
    async for each in stream:
        found.append(each)
        if each[0] == "frame" and each[1]["kind"] == "chunk" and each[1]["ordinal"] == 4:
            return found
    return found


def are_heard(seen, blind, rest):
    first = heard_of(seen, "progress")[0]
    assert (first["done"], first["total"], first["note"]) == (1, 4, "begun")
    assert [each["chunk"] for each in heard_of(seen, "chunk")] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert {id for name, _, id in seen if name == "frame"} == {""}, "frames have no place in the journal"
    assert [each["chunk"] for each in heard_of(blind, "chunk")] == [{"$withheld": True}] * 3
    assert {each["note"] for each in heard_of(blind, "progress")} == {""}
    assert {each["location"] for each in heard_of(rest, "chunk")} == {"more"}


def test_a_watcher_hears_the_frames_of_running_steps():
    async def story(site):
        return await frames_of(site, site.engine)

    are_heard(*run(story, workflows=[*ALL, teller]))


def test_a_server_that_runs_nothing_hears_the_frames_of_a_fleet(postgres):
    async def story(site):
        async with perdure.open(postgres, workflows=[*ALL, teller]) as engine:
            return await frames_of(site, engine)

    are_heard(*run(story, url=postgres, connect=True))


def test_where_no_frames_are_seen_their_channel_is_refused(tmp_path):
    path = str(tmp_path / "shop.db")

    async def story(site):
        async with perdure.open(path, workflows=[*ALL, teller]) as engine:
            go.set()
            await (await engine.start("teller", key="t")).until("waiting")
            client = await site.key(VIEWER)
            missing = await client.get(f"{API}/stream", params={"channels": "frames:teller/none"})
            return missing, await client.get(f"{API}/stream", params={"channels": "frames:teller/t"})

    async def main():
        async with perdure.open(path, workflows=ALL):
            pass

    asyncio.run(main())
    missing, refused = run(story, url=path, connect=True)

    assert missing.status_code == 404
    assert refused.status_code in (409, 422) and "process of the engine" in refused.json()["detail"]


def test_a_stream_that_is_cut_between_the_events_of_one_entry_loses_none_of_them():
    async def story(site):
        client = await site.key(VIEWER)
        await (await site.engine.start("order", key="o-1")).until("waiting")
        channels = "instance:order/o-1,list:status:waiting,fleet"
        (*_, (_, _, start)) = await until(events(client, channels), "live")
        await site.engine.handle("order/o-1").tag("a", "1")
        whole = [each for each in await until(events(client, channels, last=start), "live") if each[0] != "live"]
        tails = []
        for _, _, id in whole:
            told = await until(events(client, channels, last=id), "live")
            tails.append([(name, data) for name, data, _ in told if name != "live"])
        return [(name, data) for name, data, _ in whole], tails

    whole, tails = run(story)

    assert len(whole) == 4
    for place, tail in enumerate(tails):
        assert all(each in tail for each in whole[place + 1 :])
    assert tails[-1] == []


class Held:
    """A client whose database answers `heights` when it is let."""

    def __init__(self, client):
        self.queries, self.changes, self._heights, self.let = (
            self,
            client.changes,
            client.queries.heights,
            asyncio.Event(),
        )

    async def heights(self):
        await self.let.wait()
        return await self._heights()


def test_a_reader_that_comes_as_the_last_one_goes_begins_where_the_journal_ends():
    async def story(site):
        held = Held(site.engine)
        held.let.set()
        feed = Feed(cast(Any, held))
        first = await feed.join()
        held.let.clear()
        feed.leave(first)  # the task of the feed ends some turns later
        joining = asyncio.ensure_future(feed.join())
        await site.engine.start("order", key="o")
        early = joining.done()
        joining.cancel()
        await asyncio.wait([joining])
        held.let.set()
        again = await feed.join()
        found = dict(feed.position)
        feed.leave(again)
        left = len(feed._watchers)
        await feed.close()
        return early, left, found, await site.engine.queries.heights()

    early, left, found, heights = run(story)

    assert (early, left) == (False, 0)
    assert found == heights
