"""The process that `test_kill.py` kills: owners that ask, and people who answer."""

import asyncio
import sys

import perdure

COUNT = 120
ANN = perdure.Actor("ann", roles=["clerk"])


@perdure.flow
async def asks(ctx: perdure.Context, number: int) -> str:
    first = await ctx.task("first", roles=["clerk"], data={"number": number})
    second = await ctx.task("second", roles=["clerk"])
    return f"{number} {first.by} {second.by}"


async def answer(engine: perdure.Engine, task: perdure.TaskInfo) -> None:
    await engine.tasks.claim(task.id, by=ANN, id=f"claim {task.id}")
    await engine.tasks.complete(task.id, by=ANN, id=f"complete {task.id}")


async def main(url: str) -> None:
    async with perdure.open(url, workflows=[asks]) as engine:
        print("ready", flush=True)
        handles = [await engine.start(asks, number, key=str(number)) for number in range(COUNT)]
        results = asyncio.gather(*(handle.result() for handle in handles))
        while not results.done():
            found = await engine.tasks.list(by=ANN, candidate=True, limit=20)
            await asyncio.gather(*(answer(engine, task) for task in found))
            await asyncio.sleep(0)
        assert await results == [f"{number} ann ann" for number in range(COUNT)]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
