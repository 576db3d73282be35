"""One process runs the flows; another one starts, watches and answers. It has none of their code.

Prints:
    the desk is open
    the ticket is open, and waits for: answer
    helped: Why? Because.
    found: ticket/t-1 completed
"""

import asyncio
import subprocess
import sys
import tempfile

import perdure


@perdure.flow
async def ticket(ctx: perdure.Context, title: str) -> str:
    ctx.publish("state", "open")
    answer = await ctx.receive("answer")
    return f"helped: {title} {answer.body}"


async def desk() -> None:
    async with perdure.open("desk.db", workflows=[ticket]):
        print("the desk is open", flush=True)
        await asyncio.Event().wait()  # until this process is stopped


async def visitor(database: str) -> None:
    async with perdure.connect(database) as client:
        handle = await client.start("ticket", title="Why?", key="t-1")  # by its name, arguments by theirs
        async for state in handle.watch("state"):
            [waiting] = await handle.waiting()
            print(f"the ticket is {state}, and waits for: {waiting.what}")
            break
        await handle.send("answer", "Because.")
        print(await handle.result(timeout=10))
        print("found:", *(f"{found.workflow}/{found.key} {found.status}" for found in await client.instances()))


if __name__ == "__main__":
    if sys.argv[1:] == ["desk"]:
        asyncio.run(desk())
    else:
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, __file__, "desk"]
            with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                print(process.stdout.readline(), end="")
                asyncio.run(visitor(f"{directory}/desk.db"))
                process.kill()
