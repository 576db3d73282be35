"""Makes the database and the histories of `README.md`. It runs with the version that shall have made them."""

import asyncio
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import perdure
from tests.upgrades.shop import CELLS, FLOWS, OrderCreated, books, broken, order, pay, sleeper, undone, waiting

EXPORTED = ("order/o-1", "order/o-2", "parcel/o-1/box-2", "broken/b-1", "undone/u-1", "sleeper/s-1", "waiting/w-1")


async def live(url: str) -> None:
    async with perdure.open(url, workflows=[*FLOWS, *CELLS], handlers=[pay]) as engine:
        first = await engine.start(order, "o-1", 4200, [2, 40, 5], key="o-1")
        await first.send("decision", {"approved": True})
        await first.result()
        await engine.start(order, "o-2", 4200, [1], key="o-2")  # waits for its decision
        await engine.start(sleeper, "bear", key="s-1")
        await engine.start(waiting, key="w-1")
        cancelled = await engine.start(waiting, key="w-2")
        await cancelled.cancel("no longer needed")
        for flow, key in ((broken, "b-1"), (undone, "u-1")):
            await ended(await engine.start(flow, key=key))
        await ended(cancelled)
        for number, cents in enumerate((42, 4200, 77)):
            await engine.send(OrderCreated(f"c-{number}", cents), id=f"request-{number}")
        for _ in range(200):  # until all has come to rest
            await asyncio.sleep(0.01)
        total = await engine.state(books, "")
        assert total is not None and total.cents == 14
        assert [each.what for each in await engine.handle(order, "o-2").waiting()] == ["decision"]


async def ended(handle: perdure.Handle[Any]) -> None:
    try:
        await handle.result()
    except perdure.PerdureError:
        return
    raise AssertionError("it should have failed")


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "shop.db"
        asyncio.run(live(str(database)))
        for id in EXPORTED:
            file = target / "histories" / f"{id.replace('/', '-')}.json"
            file.parent.mkdir(exist_ok=True)
            subprocess.run(
                [Path(sys.executable).parent / "perdure", "export", id, "-o", file, "--db", database], check=True
            )
        (target / "shop.db.gz").write_bytes(gzip.compress(database.read_bytes(), mtime=0))


if __name__ == "__main__":
    main(Path(__file__).parent)
