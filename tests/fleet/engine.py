"""An engine process of a fleet: `python -m tests.fleet.engine URL [LEDGER ACKNOWLEDGED]`. It ends at SIGTERM, in order.

With a ledger it is its own client, too: it starts flows and sends them messages, and notes in the second file what was
acknowledged.
"""

import asyncio
import itertools
import json
import logging
import os
import signal
import sys

import perdure
from perdure.errors import CannotOpen, PerdureError
from perdure.runtime.client import Client
from tests.fleet.flows import FLOWS, collect, is_there, walk

ITEMS = 5
ENOUGH = ".enough"


async def main(url: str, *load: str) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    async with perdure.open(url, workflows=FLOWS, drain=2.0) as engine:
        print("ready", flush=True)
        busy = asyncio.create_task(keep_busy(engine, *load)) if load else None
        await asked.wait()
        if busy is not None:
            busy.cancel()
    print("counts", json.dumps(engine.counts), flush=True)


async def keep_busy(engine: Client, ledger: str, acknowledged: str) -> None:
    """Until there is a file that says enough. What an engine in trouble does not take is not asked for again."""
    with open(acknowledged, "a", buffering=1) as file:  # noqa: ASYNC230  # a line now and then
        for number in itertools.count():
            if is_there(acknowledged + ENOUGH):
                print("enough", flush=True)
                return
            key = f"e{os.getpid()}-{number}"
            try:
                basket = await engine.start(collect, ledger, key=key)
                print("start collect", key, file=file)
                for value in range(ITEMS):
                    await basket.send("item", value)
                    print("item", key, value, file=file)
                await basket.send("end")
                walker = await engine.start(walk, ledger, 5, 0.02, key=key)
                print("start walk", key, file=file)
                await asyncio.wait_for(walker.result(), 30)
            except (PerdureError, TimeoutError) as error:
                logging.info("the load went on with the next: %s", error)
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except CannotOpen as error:
        sys.exit(str(error))
