"""The process dies in the middle of a step, twice. What was done stays done, and the order is finished.

Prints:
    process 1 died: charge, pack
    process 2 died: charge, pack, pack
    process 3 ended: charge, pack, pack, pack, ship
    idempotency keys that the three packs had: 1
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import perdure

LEDGER = Path("ledger.txt")


def work(step: str) -> None:
    info = perdure.step_info()
    with LEDGER.open("a") as ledger:
        ledger.write(f"{step} {info.idempotency_key}\n")
    if step == "pack" and info.delivery < 3:  # its third execution survives
        os.kill(os.getpid(), 9)  # no handler runs, nothing is saved on the way out


@perdure.flow
async def order(ctx: perdure.Context) -> None:
    for step in ("charge", "pack", "ship"):
        await ctx.step(step, work, step)


def main(directory: str) -> None:
    for number in (1, 2, 3):
        process = subprocess.run([sys.executable, __file__, "shop"], cwd=directory, check=False)
        done = [line.split() for line in (directory / LEDGER).read_text().splitlines()]
        print(f"process {number} {'died' if process.returncode else 'ended'}:", ", ".join(step for step, _ in done))
    print("idempotency keys that the three packs had:", len({key for step, key in done if step == "pack"}))


if __name__ == "__main__":
    if sys.argv[1:] == ["shop"]:
        perdure.run(order, url="shop.db", key="o-17")  # the same key: the same instance, begun or not
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
