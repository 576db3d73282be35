"""The smallest flow: one step, run once.

Prints:
    Hello, world!
"""

import perdure


def greet(name: str) -> str:
    return f"Hello, {name}!"


@perdure.flow
async def hello(ctx: perdure.Context, name: str) -> str:
    return await ctx.step("greet", greet, name)


if __name__ == "__main__":
    print(perdure.run(hello, "world"))
