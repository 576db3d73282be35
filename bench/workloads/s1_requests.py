"""S1: what a request costs, against a bare Starlette handler on the same uvicorn.

Both servers are processes of their own and are asked in turns, so a ratio is of the same second. Requests a second are
those of eight connections, the median is that of one. The login is an API key.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from bench.measure import Bar, Figure, Measures, Workload
from bench.served import INSTANCES, Asked, Served, rate, running
from bench.server import processor_time_of

ROUNDS: Final = 7
SECONDS: Final = 0.6
CONNECTIONS: Final = 8
KEYS: Final = 1_000


def _start(turn: str) -> Asked:
    return lambda n: (INSTANCES, b'{"workflow": "waiting", "key": "%s-%d"}' % (turn.encode(), n))


def _asked(turn: int) -> dict[str, Asked]:
    return {
        "list": lambda n: (f"{INSTANCES}?limit=50", b""),
        "filtered": lambda n: (f"{INSTANCES}?limit=50&status=waiting&workflow=waiting", b""),
        "one": lambda n: (f"{INSTANCES}/waiting/k-{n * 7 % KEYS}", b""),
        "start": _start(f"s{turn}"),
    }


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_measure(place))


async def _measure(place: Path) -> Measures:
    found: dict[str, list[float]] = {}
    async with running("bare") as ground, running("perdure", str(place / "web.db")) as served:
        ground.port = (await ground.answer())["port"]
        await served.order("fill", KEYS)
        await served.open()
        for turn in range(ROUNDS):
            floor = await _look(ground, lambda n: ("/", b""))
            found.setdefault("floor", []).append(floor[0])
            for name, asked in _asked(turn).items():
                looked = await _look(served, asked)
                found.setdefault(f"{name}_rate", []).append(looked[0] / floor[0])
                found.setdefault(f"{name}_p50", []).append(looked[1] / floor[1])
                found.setdefault(f"{name}_work", []).append(looked[2] / floor[2])
    middle = {name: sorted(values)[len(values) // 2] for name, values in found.items()}
    spread = {f"{name}_least": min(values) for name, values in found.items() if name.endswith("_rate")}
    return middle | spread


async def _look(served: Served, asked: Asked) -> tuple[float, float, float]:
    """Requests a second, the median of one connection, and the server's processor time for one request."""
    await rate(served, lambda n: asked(-n - 1), 0.05, 1)
    before, began = processor_time_of(served.pid), time.perf_counter()
    many, _ = await rate(served, asked, SECONDS, CONNECTIONS)
    worked = processor_time_of(served.pid) - before
    requests = many * (time.perf_counter() - began)
    _, one = await rate(served, lambda n: asked(n + 10**8), SECONDS / 2, 1)
    return many, one, worked / requests


NAMES: Final = {"list": "list of 50", "filtered": "list of a status", "one": "one instance", "start": "start"}
RATES: Final = {"list": 0.30, "filtered": 0.30, "one": 0.45, "start": 0.20}

WHY: Final = (
    "a bare handler is 90 µs of processor time; a list is 340 µs more: its rows to read, to judge and to write as "
    "JSON, a thread that reads them, so that no commit waits, and the 12 headers of each answer"
)

WORKLOAD = Workload(
    "S1-requests",
    "requests to a server, against a bare Starlette handler",
    (
        Figure("bare handler: requests", "floor", "/s"),
        *(Figure(f"{NAMES[each]}: requests, share of the bare ones", f"{each}_rate", "x", bar=Bar(">=", least, WHY))
          for each, least in RATES.items()),
        *(Figure(f"{NAMES[each]}: the same, the least of {ROUNDS} turns", f"{each}_rate_least", "x") for each in RATES),
        *(Figure(f"{NAMES[each]}: p50 of one connection, against it", f"{each}_p50", "x",
                 bar=Bar("<=", 4, WHY) if each in ("list", "filtered") else None) for each in RATES),
        *(Figure(f"{NAMES[each]}: processor time, against it", f"{each}_work", "x") for each in RATES),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)  # fmt: skip
