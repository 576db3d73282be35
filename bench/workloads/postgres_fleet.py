"""One engine process against two on the same server. What limits?

Each process keeps 500 flows of 5 steps under way for some seconds, on shards of its own. Besides the rate: the
processor time of the engines and of the server's processes, and how busy all cores of the machine were, whoever used
them. Where engines and server share few cores, the second engine takes from the server what it needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from itertools import count
from pathlib import Path
from typing import Any

import perdure
from bench import server
from bench.measure import Bar, Figure, Measures, Workload, verify
from bench.workloads.w2_concurrent import STEPS, short
from perdure.kernel.events import Address
from perdure.kernel.placement import place as place_of

SECONDS = 8.0
AT_ONCE = 500
PATIENCE_SECONDS = 60


def on_perdure(place: Path) -> Measures:
    found: Measures = {}
    for engines in (1, 2):
        with server.schema() as url:
            found |= {f"{name}_{engines}": value for name, value in asyncio.run(_measure(url, engines)).items()}
    return {**found, "gain": found["steps_2"] / found["steps_1"]}


async def _measure(url: str, engines: int) -> Measures:
    code = f"from {__name__} import work; work({url!r})"
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=PIPE, stdout=PIPE)
        for _ in range(engines)
    ]
    try:
        async with server.connection() as beside:
            await beside.execute(f"SET search_path TO {url.rpartition('schema=')[2]}")
            await _shared(beside, engines)
            served, machine = await server.processor_time(beside), server.machine_time()
            began = time.perf_counter()
            for child in children:
                _tell(child)
            answers = [json.loads(await _hear(child)) for child in children]
            served, machine = await server.processor_time(beside) - served, server.machine_time() - machine
            seconds = time.perf_counter() - began  # the flows that were under way have ended, too
            for child in children:
                _tell(child)  # it may close
    finally:
        for child in children:
            await asyncio.wait_for(child.communicate(), PATIENCE_SECONDS)
    return {
        "steps": STEPS * sum(answer["flows"] for answer in answers) / SECONDS,
        "engine": sum(answer["cpu"] for answer in answers) / seconds,
        "server": served / seconds,
        "machine": machine / seconds,
    }


async def _shared(beside: Any, engines: int) -> None:
    """Until each engine has its fair share of the shards."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    fair = server.SHARDS // engines
    while (
        await beside.fetchval(
            "SELECT count(*) FROM (SELECT pid FROM shards WHERE pid <> 0 GROUP BY pid HAVING count(*) = $1) AS fair",
            fair,
        )
        != engines
    ):
        verify(time.monotonic() < deadline, "the engines did not share the shards")
        await asyncio.sleep(0.1)


def _tell(child: Process) -> None:
    assert child.stdin is not None
    child.stdin.write(b"\n")


async def _hear(child: Process) -> bytes:
    assert child.stdout is not None
    return await child.stdout.readline()


def work(url: str) -> None:
    asyncio.run(_work(url))


async def _work(url: str) -> None:
    async with perdure.open(url, workflows=[short]) as opened:
        await asyncio.to_thread(sys.stdin.readline)
        worked, until = time.process_time(), time.monotonic() + SECONDS
        keys, mine = count(), {shard.number for shard in opened._running.shards}
        ended = 0

        async def keep_going() -> None:
            nonlocal ended
            while time.monotonic() < until:
                key = next(key for n in keys if place_of(Address(short.name, key := f"{os.getpid()}-{n}"), 16) in mine)
                handle = await opened.start(short, 0, key=key)
                verify(await handle.result() == sum(range(STEPS)), "a flow gave another result than it should")
                ended += time.monotonic() < until

        await asyncio.gather(*(keep_going() for _ in range(AT_ONCE)))
        print(json.dumps({"flows": ended, "cpu": time.process_time() - worked}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


WORKLOAD = Workload(
    "postgres-fleet",
    "flows of 5 steps, one engine process and two",
    (
        Figure("steps with one", "steps_1", "/s"),
        Figure("steps with two", "steps_2", "/s"),
        Figure("two against one", "gain", "x", bar=Bar(">=", 1)),
        Figure("cores used by one engine", "engine_1"),
        Figure("cores used by the server meanwhile", "server_1"),
        Figure("cores used on the machine meanwhile", "machine_1"),
        Figure("cores used by two engines", "engine_2"),
        Figure("cores used by the server meanwhile", "server_2"),
        Figure("cores used on the machine meanwhile", "machine_2"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    needs_floor=False,
)
