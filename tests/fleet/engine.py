"""An engine process of a fleet: `python -m tests.fleet.engine URL`. It ends in good order at SIGTERM."""

import asyncio
import json
import logging
import signal
import sys

import perdure
from perdure.errors import CannotOpen
from tests.fleet.flows import FLOWS

CANNOT_OPEN = 3
"""The exit code when the database does not answer at the start."""


async def main(url: str) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    async with perdure.open(url, workflows=FLOWS, drain=2.0) as engine:
        print("ready", flush=True)
        await asked.wait()
    print("counts", json.dumps(engine.counts), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(main(sys.argv[1]))
    except CannotOpen as error:
        print(error, file=sys.stderr)
        sys.exit(CANNOT_OPEN)
