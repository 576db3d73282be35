"""An agent: a model chooses tools until it has an answer. Each call is recorded; the dangerous tool asks a person.

Prints:
    model: search for 'cheap flights to Oslo'
    model: buy 'the one at 08:15'
    to decide: {'tool': 'buy', 'input': 'the one at 08:15'}
    model: answer with 'You fly at 08:15.'
    You fly at 08:15. (3 calls of the model)
"""

import asyncio

import perdure

Call = dict[str, str]
SCRIPT = [("search for", "cheap flights to Oslo"), ("buy", "the one at 08:15"), ("answer with", "You fly at 08:15.")]


@perdure.step(retries=5, timeout=60)
async def model(messages: list[Call]) -> Call:  # a language model would read the messages
    tool, words = SCRIPT[len(messages) - 1]
    print(f"model: {tool} {words!r}")
    return {"tool": tool, "input": words}


async def search(words: str) -> str:
    return "one at 08:15, one at 23:50"


@perdure.step(once=True, retries=0)  # money: never twice
async def buy(words: str) -> str:
    return "bought"


@perdure.flow
async def agent(ctx: perdure.Context, task: str, calls: int) -> str:
    messages: list[Call] = [{"tool": "user", "input": task}]
    for number in range(1, calls + 1):
        match call := await model(messages):
            case {"tool": "answer with", "input": answer}:
                return f"{answer} ({number} calls of the model)"
            case {"tool": "buy"}:
                ctx.publish("to decide", call)
                decision = await ctx.receive("decision")
                seen = await buy(call["input"]) if decision.body else "a person said no"
            case _:
                seen = await ctx.step("search", search, call["input"])
        messages.append({"tool": call["tool"], "input": seen})
    return f"no answer after {calls} calls"


async def main() -> None:
    async with perdure.open(":memory:", workflows=[agent]) as engine:
        handle = await engine.start(agent, "Get me to Oslo.", 10)
        async for call in handle.watch("to decide"):
            print("to decide:", call)
            await handle.send("decision", True)
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
