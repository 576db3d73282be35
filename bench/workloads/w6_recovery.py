"""W6: a process with 1,000 half-done flows is killed with SIGKILL. How long until all are done?

Each execution of a step leaves a record in a plain file, which survives the kill (the machine goes on).
When half of the steps have left theirs, the process is killed; then the same database is opened again.
Steps that had run but whose receipts were not durable yet run again: they are counted, and there must be no
others.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import apsw

import perdure
from bench.engines import DATABASE, engine
from bench.measure import Figure, Measures, Workload, verify

FLOWS = 1_000
STEPS = 10
RECORD = struct.Struct("<II")
PATIENCE_SECONDS = 120

_records = -1  # the descriptor of the file of records, in the process that executes


async def noted(flow: int, step: int) -> int:
    os.write(_records, RECORD.pack(flow, step))
    return step


@perdure.flow
async def long(ctx: perdure.Context, flow: int) -> int:
    total = flow
    for step in range(STEPS):
        total += await ctx.step("noted", noted, flow, step)
    return total


def on_perdure(place: Path) -> Measures:
    _kill_in_the_middle(place)
    before = executed(place)
    recorded = _entries(place) - FLOWS
    began = time.perf_counter()
    opened, results = asyncio.run(_finish(place))
    seconds = time.perf_counter() - began
    after = executed(place)
    steps = FLOWS * STEPS
    repeated = after.total() - steps
    verify(
        results == [n + sum(range(STEPS)) for n in range(FLOWS)],
        "the flows gave other results than they should",
    )
    verify(len(after) == steps, f"{len(after)} of {steps} steps were executed")
    verify(repeated <= before.total() - recorded, f"{repeated} steps ran again, though {recorded} were recorded")
    return {
        "open": opened,
        "seconds": seconds,
        "steps": (steps - recorded) / seconds,
        "recorded": recorded,
        "repeated": repeated,
    }


def _kill_in_the_middle(place: Path) -> None:
    code = f"from {__name__} import work; work({str(place)!r})"
    child = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while size_of_records(place) < FLOWS * STEPS // 2 * RECORD.size:
            verify(child.poll() is None, "the process ended before it could be killed")
            verify(time.monotonic() < deadline, f"half of the steps took longer than {PATIENCE_SECONDS} s")
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def size_of_records(place: Path) -> int:
    file = place / "records"
    return file.stat().st_size if file.exists() else 0


def executed(place: Path) -> Counter[tuple[int, ...]]:
    return Counter(RECORD.iter_unpack((place / "records").read_bytes()))


def _entries(place: Path) -> int:
    """How many entries are durable. All flows have started by then: they advance in step."""
    connection = apsw.Connection(str(place / DATABASE))
    try:
        started = connection.execute("SELECT count(*) FROM instances").get
        verify(started == FLOWS, f"{started} of {FLOWS} flows had started")
        return int(connection.execute("SELECT count(*) FROM journal").get)
    finally:
        connection.close()


async def _finish(place: Path) -> tuple[float, list[int]]:
    open_records(place)
    began = time.perf_counter()
    async with engine(place, [long], settled=False) as opened:
        seconds = time.perf_counter() - began
        handles = [opened.handle(long, str(n)) for n in range(FLOWS)]
        return seconds, await asyncio.gather(*(handle.result() for handle in handles))


def work(place: str) -> None:
    """What the process does that is killed."""
    asyncio.run(_work(Path(place)))


async def _work(place: Path) -> None:
    open_records(place)
    async with engine(place, [long], settled=False) as opened:
        handles = await asyncio.gather(*(opened.start(long, n, key=str(n)) for n in range(FLOWS)))
        await asyncio.gather(*(handle.result() for handle in handles))


def open_records(place: Path) -> None:
    global _records  # noqa: PLW0603  # a step takes plain data only, and this is none
    _records = os.open(place / "records", os.O_CREAT | os.O_WRONLY | os.O_APPEND)


WORKLOAD = Workload(
    "W6",
    "1,000 half-done flows after SIGKILL",
    (
        Figure("until the engine is open", "open", "s"),
        Figure("until all are done", "seconds", "s"),
        Figure("remaining steps", "steps", "/s"),
        Figure("remaining steps against the floor", "steps", "x", of="rate"),
        Figure("steps recorded before the kill", "recorded"),
        Figure("steps that ran again", "repeated"),
    ),
    {"perdure": on_perdure},
)
