"""Wait for a job that runs elsewhere: ask now and then, ever less often, give up after a while, and tidy up.

Prints:
    cat video: asked 4 times, it has 42 minutes
    dog video: given up, and stopped over there
"""

import asyncio

import perdure


async def submit(video: str) -> str:
    return f"job of {video}"  # its number over there


async def look(job: str, times: int) -> int | None:
    return 42 if job == "job of cat video" and times == 4 else None


async def stop(job: str) -> str:
    return "stopped over there"


@perdure.flow
async def transcode(ctx: perdure.Context, video: str, patience: float) -> str:
    job = await ctx.step("submit", submit, video)
    times, pause = 1, 0.01  # seconds; in real life it would be minutes
    try:
        async with asyncio.timeout(patience):
            while (minutes := await ctx.step("look", look, job, times)) is None:
                await ctx.sleep("pause", pause)
                times, pause = times + 1, min(pause * 2, 3600)
    except TimeoutError:
        return f"{video}: given up, and {await ctx.step('stop', stop, job)}"
    return f"{video}: asked {times} times, it has {minutes} minutes"


async def main() -> None:
    async with perdure.open(":memory:", workflows=[transcode]) as engine:
        cat = await engine.start(transcode, "cat video", 60)
        dog = await engine.start(transcode, "dog video", 0.3)
        print(await cat.result())
        print(await dog.result())


if __name__ == "__main__":
    asyncio.run(main())
