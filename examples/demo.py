"""The promise of perdure, kept before your eyes: kill -9, start again, and what was done stays done.

    make demo

One order goes through charge, reserve, a wait, ship and notify. Its process is killed twice: while the order
waits, and in the middle of a step. Every step writes what it does into a file, the ledger, so that you need
not take the engine's word for it. The demo ends with exit status 1 if the promise is broken.
"""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import perdure

DATABASE = Path("shop.db")
LEDGER = Path("ledger.txt")
KEPT = Path(".perdure") / "demo"
WAIT_SECONDS = 2.0


# ---- what you would write: steps do the work, the flow says in which order ------------------


def charge(order_id: str, cents: int) -> str:
    write(f"charge   {order_id}, {cents / 100:.2f}")
    return f"payment-{order_id}"


def reserve(order_id: str) -> None:
    write(f"reserve  {order_id}")


async def ship(order_id: str) -> str:
    info = perdure.step_info()
    key = info.idempotency_key[:8]  # equal each time that this step runs for this order: a carrier that knows
    write(f"ship     {order_id} begins, idempotency key {key}")  # the key books one parcel only
    await asyncio.sleep(30 if info.delivery == 1 else 0.3)  # slow at first, so that it can be killed
    write(f"ship     {order_id} is done, idempotency key {key}")
    return f"parcel-{key}"


def notify(order_id: str, parcel: str) -> None:
    write(f"notify   {order_id} about {parcel}")


@perdure.flow
async def order(ctx: perdure.Context, order_id: str, cents: int) -> str:
    payment = await ctx.step("charge", charge, order_id, cents)
    await ctx.step("reserve", reserve, order_id)
    await ctx.sleep("cooling-off", WAIT_SECONDS)
    parcel = await ctx.step("ship", ship, order_id)
    await ctx.step("notify", notify, order_id, parcel)
    return f"{payment} paid for {parcel}"


async def shop() -> None:
    """The whole program that is killed. It says the same thing each time: this order shall be done."""
    async with perdure.open(DATABASE, workflows=[order]) as engine:
        handle = await engine.start(order, "o-17", 4200, key="o-17")  # same key: same instance, started once
        await handle.result()


def write(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(line + "\n")


# ---- the story: start it, kill it, start it again -------------------------------------------


def main() -> int:
    print("An order: charge, reserve, wait 2 s, ship, notify. Its steps write into a ledger.\n")
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    database, told = KEPT / DATABASE, Ledger(KEPT / LEDGER)

    process = start()
    told.until("reserve")
    asyncio.run(until_waiting(database))
    kill(process, "while the order waits")

    process = start()
    told.until("ship")
    kill(process, "in the middle of ship")

    process = start()
    status = process.wait(timeout=20)
    told.until("notify")
    print(f"   process {process.pid} ends by itself, exit status {status}\n")

    history, result = asyncio.run(read_journal(database))
    print("What the journal says (SQLite, read after the end):")
    for line in history:
        came = " ".join(word for word in (line.event, line.location, line.status) if word)
        then = ", ".join(line.opened) or line.outcome or "the same step again"
        print(f"   {line.number}  {line.at:%H:%M:%S.%f}  {came:<22} -> {then}")
    print(f"   result: {result}\n")

    broken = broken_promises(told.lines, [line.event for line in history], status)
    for promise in broken:
        print(f"BROKEN: {promise}")
    if not broken:
        print("charge, reserve and notify ran once. ship was cut in the middle and ran again, under the same")
        print("idempotency key. The wait went on while nobody was there. Three starts made one order.")
    print(f"\nSee it in a browser: {Path(sys.executable).parent / 'perdure'} serve --db {KEPT / DATABASE}")
    return 1 if broken else 0


def start() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, Path(__file__).resolve(), "shop"], cwd=KEPT)
    print(f"-> process {process.pid} starts")
    return process


def kill(process: subprocess.Popen[bytes], when: str) -> None:
    process.kill()  # SIGKILL: no handler runs, nothing is saved on the way out
    process.wait()
    print(f"-> kill -9 {process.pid}, {when}")


class Ledger:
    """Follows the ledger and tells each new line once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def until(self, word: str) -> None:
        deadline = time.monotonic() + 20
        while not (self.lines and self.lines[-1].startswith(word)):
            if time.monotonic() > deadline:
                sys.exit(f"BROKEN: no {word!r} in the ledger after 20 s")
            time.sleep(0.02)
            written = self.path.read_text().splitlines() if self.path.exists() else []
            for line in written[len(self.lines) :]:
                print(f"   ledger: {line}")
            self.lines = written


async def until_waiting(database: Path) -> None:
    """Ask the database. The ledger is ahead of it: a step ends before its receipt is recorded."""
    async with perdure.connect(database) as client:
        handle = client.handle("order", "o-17")
        await handle.until("waiting")


async def read_journal(database: Path) -> tuple[list[Any], str]:
    async with perdure.connect(database, workflows=[order]) as client:
        handle = client.handle(order, "o-17")
        return await handle.history(), await handle.result(timeout=1)


def broken_promises(ledger: list[str], events: list[str], status: int) -> list[str]:
    done = [line.split(",")[0] for line in ledger]
    keys = {line.split()[-1] for line in ledger if line.startswith("ship")}
    promises = {
        "the last process must end well": status == 0,
        "charge must run once": done.count("charge   o-17") == 1,
        "reserve must run once": done.count("reserve  o-17") == 1,
        "ship must begin twice and end once": done.count("ship     o-17 begins") == 2
        and done.count("ship     o-17 is done") == 1,
        "ship must have one idempotency key": len(keys) == 1,
        "notify must run once, at the end": [line.split()[0] for line in ledger].count("notify") == 1,
        "the order must be started once": events.count("started") == 1,
    }
    return [promise for promise, kept in promises.items() if not kept]


if __name__ == "__main__":
    if sys.argv[1:] == ["shop"]:
        asyncio.run(shop())
    else:
        sys.exit(main())
