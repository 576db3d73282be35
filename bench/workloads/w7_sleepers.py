"""W7, sleepers: 100,000 flows that sleep for a day. What does an engine need for instances that do nothing?

They should cost rows and no memory. One process starts them all and reports its memory; another one opens
the database again, which must not take longer because of them. Memory is what Linux says in /proc (left out
elsewhere).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import apsw

import perdure
from bench.engines import DATABASE, engine
from bench.measure import Bar, Figure, Measures, Workload, memory, verify

FLOWS = 100_000
AT_ONCE = 1_000
DAY = 86_400


@perdure.flow
async def sleeper(ctx: perdure.Context) -> None:
    await ctx.sleep("a day", DAY)


def on_perdure(place: Path) -> Measures:
    started = _in_process("start", place)
    opened = _in_process("open", place)
    connection = apsw.Connection(str(place / DATABASE))
    rows = int(connection.execute("SELECT count(*) FROM journal").get)
    timers = int(connection.execute("SELECT count(*) FROM open_work").get)
    waiting = int(connection.execute("SELECT count(*) FROM instances WHERE status = 'waiting'").get)
    connection.close()
    verify(timers == waiting == rows == FLOWS, f"{rows} entries, {timers} timers, {waiting} waiting flows")
    return {
        **{name: value for name, value in started.items() if name != "open"},
        "rows": rows + timers + waiting,
        "bytes": (place / DATABASE).stat().st_size,
        "open": opened["open"],
        **({"rss_opened": opened["rss"]} if "rss" in opened else {}),
    }


def _in_process(what: str, place: Path) -> Measures:
    code = f"from {__name__} import work; work({what!r}, {str(place)!r})"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    found: Measures = json.loads(done.stdout)
    return found


def work(what: str, place: str) -> None:
    """What the two processes do, one after the other."""
    print(json.dumps(asyncio.run({"start": _start, "open": _open}[what](Path(place)))))


async def _start(place: Path) -> Measures:
    async with engine(place, [sleeper], settled=False) as opened:
        began = time.perf_counter()
        for _ in range(FLOWS // AT_ONCE):
            await asyncio.gather(*(opened.start(sleeper) for _ in range(AT_ONCE)))
        return {"starts": FLOWS / (time.perf_counter() - began), **memory()}


async def _open(place: Path) -> Measures:
    began = time.perf_counter()
    async with engine(place, [sleeper], settled=False) as opened:
        seconds = time.perf_counter() - began
        newest = await opened.instances(limit=1)
        verify(newest[0].status == "waiting", f"the newest flow is {newest[0].status}")
        return {"open": seconds, **memory()}


WORKLOAD = Workload(
    "W7-sleepers",
    "100,000 sleeping flows",
    (
        Figure("memory", "rss", "MB", bar=Bar("<", 300e6)),
        Figure("memory at its highest", "peak", "MB"),
        Figure("starts", "starts", "/s"),
        Figure("starts against the floor", "starts", "x", of="rate"),
        Figure("rows", "rows"),
        Figure("database", "bytes", "MB"),
        Figure("opening it again", "open", "ms"),
        Figure("memory after opening it again", "rss_opened", "MB"),
    ),
    {"perdure": on_perdure},
    once=True,
)
