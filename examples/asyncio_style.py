"""Plain asyncio inside a flow: TaskGroup, as_completed, timeout, sleep and Queue are durable there.

Prints:
    group: [2, 4]
    fastest first: ['hare', 'tortoise']
    timeout: the oracle is silent
    queue: ['bread', 'milk']
"""

import asyncio

import perdure


async def bring(item: str, seconds: float = 0) -> str:
    await asyncio.sleep(seconds)
    return item


@perdure.step
async def double(number: int) -> int:
    return 2 * number


@perdure.flow
async def asyncio_style(ctx: perdure.Context) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double(number)) for number in (1, 2)]
    told = [f"group: {[task.result() for task in tasks]}"]

    racers = [ctx.step("run", bring, "tortoise", 0.1), ctx.step("run", bring, "hare")]
    told.append(f"fastest first: {[await done for done in asyncio.as_completed(racers)]}")

    try:
        async with asyncio.timeout(0.05):  # a durable timer: it goes on while no process runs
            await ctx.receive("oracle")
    except TimeoutError:
        told.append("timeout: the oracle is silent")

    queue = asyncio.Queue[str](maxsize=1)

    async def shop() -> None:
        for item in ("bread", "milk"):
            await asyncio.sleep(0.01)
            await queue.put(await ctx.step("buy", bring, item))

    shopping = asyncio.create_task(shop())
    told.append(f"queue: {[await queue.get(), await queue.get()]}")
    await shopping  # a task that nobody awaits would be an error: nothing outlives its flow
    return told


if __name__ == "__main__":
    for line in perdure.run(asyncio_style):
        print(line)
