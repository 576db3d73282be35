"""Live news of a running step: how far it is, and its output piece by piece, as a model that writes sends it.

Prints:
    1 of 3: Nothing
    2 of 3: is
    3 of 3: lost.
    recorded: Nothing is lost.
"""

import asyncio

import perdure


async def write(words: list[str]) -> str:
    for number, word in enumerate(words, start=1):
        await asyncio.sleep(0.05)  # finding the next word
        perdure.progress(number, len(words))
        perdure.emit(word)
    return " ".join(words)


@perdure.flow
async def article(ctx: perdure.Context, words: list[str]) -> str:
    return await ctx.step("write", write, words)


async def main() -> None:
    async with perdure.open(":memory:", workflows=[article]) as engine:
        handle = await engine.start(article, ["Nothing", "is", "lost."])
        async for frame in handle.stream():  # not recorded: only who looks now sees it
            if frame.kind == "progress":
                print(f"{frame.done} of {frame.total}", end=": ")
            else:
                print(frame.chunk)
        print("recorded:", await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
