"""Open jobs of queues, which workers take from PostgreSQL."""

import asyncio

import perdure
from perdure.access.model import Grant
from perdure.app.workers import opened
from tests.server.site import ALL, VIEWER, run, site


@perdure.step(executor="images")
async def shrink(name: str) -> str:
    return name


@perdure.flow
async def picture(ctx, name: str = "p"):
    return await ctx.step("shrink", shrink, name)


def test_open_jobs_are_told_by_queue(postgres):
    async def story():
        async with site(postgres, workflows=[picture]) as found:
            client = await found.key(VIEWER)
            for key in ("a", "b"):
                await found.engine.start("picture", key=key)
            async for _ in found.engine.changes():
                items = (await client.get("/api/v1/queues")).json()["items"]
                if items and items[0]["depth"] == 2:
                    return items

    (queue,) = asyncio.run(asyncio.wait_for(story(), 60))

    assert (queue["name"], queue["taken"]) == ("images", 0)
    assert {job["instance"] for job in queue["jobs"]} == {"picture/a", "picture/b"}


def test_a_queue_is_paged_and_says_which_worker_has_what(postgres):
    async def story():
        async with site(postgres, workflows=[*ALL, picture]) as found, opened(postgres) as (jobs, _):
            client, other = await found.key(VIEWER), await found.key(Grant("viewer", ("order",)), actor="x")
            for n in range(5):
                await found.engine.start("picture", key=f"k-{n}")
            async for _ in found.engine.changes():
                if len(await found.engine.queries.jobs()) == 5:
                    break
            (function,) = {job.function for job in await found.engine.queries.jobs()}
            await jobs.claim("worker-one", ["images"], [function], 2)
            told = {path: await client.get(f"/api/v1{path}") for path in ("/queues", "/queues/images", "/workers")}
            pages, cursor = [], ""
            while cursor is not None:
                page = (await client.get("/api/v1/queues/images/-/jobs", params={"limit": 2, "cursor": cursor})).json()
                pages.append(page["items"])
                cursor = page["next"]
            first = (await client.get("/api/v1/queues/images/-/jobs", params={"limit": 2})).json()["next"]
            refused = [
                await client.get("/api/v1/queues/none"),
                await client.get("/api/v1/queues/none/-/jobs"),
                await client.get("/api/v1/queues/none/-/jobs", params={"cursor": first}),
                await client.get("/api/v1/queues/images/-/jobs", params={"cursor": first[:-2] + "AA"}),
                await client.get("/api/v1/queues/images/-/jobs", params={"limit": 501}),
            ]
            hidden = [
                await other.get(f"/api/v1{path}") for path in ("/queues", "/workers", "/queues/images", "/queues/none")
            ]
            return told, pages, refused, hidden

    told, pages, refused, hidden = asyncio.run(asyncio.wait_for(story(), 120))

    queue = told["/queues/images"].json()
    assert (queue["depth"], queue["taken"], len(queue["jobs"])) == (5, 2, 5)
    assert told["/queues"].json()["items"][0]["depth"] == 5
    (worker,) = told["/workers"].json()["items"]
    assert (worker["name"], worker["queues"], worker["jobs"]) == ("worker-one", {"images": 2}, 2)
    assert worker["since"] and queue["workers"] == [worker]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {job["instance"] for page in pages for job in page} == {f"picture/k-{n}" for n in range(5)}
    assert sum(bool(job["worker"]) for page in pages for job in page) == 2
    assert [(each.status_code, each.json()["code"]) for each in refused] == [
        (404, "not-found"),
        (404, "not-found"),
        (422, "bad-cursor"),
        (422, "bad-cursor"),
        (422, "bad-request"),
    ]
    assert [each.json().get("items") for each in hidden] == [[], [], None, None]
    assert hidden[2].json()["detail"].replace("images", "none") == hidden[3].json()["detail"]


GO = asyncio.Event()


@perdure.step(executor="images")
async def held(name: str) -> str:
    if name == "last":
        await GO.wait()
    return name


@perdure.flow
async def album(ctx, name: str = ""):
    return await ctx.step("held", held, name)


def test_a_queue_tells_how_many_jobs_ended_in_the_last_minute():
    async def story(site):
        client, other = await site.key(VIEWER), await site.key(Grant("viewer", ("album",)), actor="x")
        for name in ("a", "b", "c"):
            await (await site.engine.start("album", key=name, name=name)).result(60)
        last = await site.engine.start("album", key="last", name="last")
        async for _ in site.engine.changes():
            if (await client.get("/api/v1/queues")).json()["items"]:
                break
        told = [(await each.get("/api/v1/queues/images")).json() for each in (client, other)]
        GO.set()
        await last.result(60)
        return told

    told, hidden = run(story, workflows=[album], queues={"images": 2})

    assert (told["depth"], told["per_minute"]) == (1, 3)
    assert hidden["per_minute"] is None
