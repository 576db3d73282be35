"""`wake` and `settle`: a person moves what does not move by itself."""

from pathlib import Path

from tests.cli.world import World, eventually

SHOP = """
import asyncio
from pathlib import Path

import perdure


@perdure.step(once=True, retries=0)
async def pay(cents: int) -> str:
    with open("paid", "a") as file:
        file.write(f"{cents}\\n")
    while True:
        await asyncio.sleep(1)


@perdure.flow
async def order(ctx: perdure.Context, cents: int) -> str:
    return f"paid with {await pay(cents)}"


@perdure.flow
async def nap(ctx: perdure.Context) -> str:
    await ctx.sleep("long", 3600)
    return "awake"
"""


def test_a_payment_that_was_killed_is_settled_by_a_person(world: World) -> None:
    (world.directory / "shop.py").write_text(SHOP)
    process = world.process("run", "shop:order", "--input", "42", "--key", "o-1", "--db", "shop.db")
    eventually(lambda: Path("paid").exists() and Path("paid").read_text() == "42\n")
    process.kill()
    process.wait()

    assert "its outcome will be unknown" in world.perdure("why", "o-1").stdout
    stuck = world.perdure("run", "shop:order", "--input", "42", "--key", "o-1", "--db", "shop.db")
    assert stuck.exit_code == 1
    assert "whether step 'pay' took effect is not known" in stuck.stderr
    assert "perdure settle order/o-1 pay ok" in world.perdure("why", "o-1").stdout
    assert world.perdure("settle", "o-1", "elsewhere", "ok").exit_code == 3

    settled = world.perdure("settle", "o-1", "pay", "ok", '"receipt 7"')
    assert (settled.exit_code, settled.stdout) == (0, "settled pay of order/o-1: ok\n")

    done = world.perdure("run", "shop:order", "--input", "42", "--key", "o-1", "--db", "shop.db")
    assert done.stdout.strip() == '"paid with receipt 7"'
    assert Path("paid").read_text() == "42\n"


def test_a_sleeper_is_woken_by_a_person(world: World) -> None:
    (world.directory / "shop.py").write_text(SHOP)
    process = world.process("run", "shop:nap", "--key", "n-1", "--db", "shop.db")
    eventually(lambda: "perdure wake nap/n-1 long" in world.perdure("why", "n-1").stdout)

    assert world.perdure("wake", "n-1", "elsewhere").exit_code == 3
    assert world.perdure("wake", "n-1").stdout == "woke nap/n-1\n"

    assert world.ended(process) == (0, '"awake"\n')
