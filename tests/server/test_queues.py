"""Open jobs of queues, which workers take from PostgreSQL."""

import asyncio

import perdure
from tests.server.site import VIEWER, site


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
