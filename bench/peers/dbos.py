"""The workloads on DBOS, as its documentation writes workflows and steps.

Where there is a choice: its own defaults, quiet logs, no tracing, the system database alone. It has two ways to write a
workflow, `def` and `async def`; both are run, and the faster one counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from dbos import DBOS, DBOSConfig

SEQUENTIAL_STEPS = 1_000
FLOWS = 1_000
STEPS = 5
WARM = 20


@DBOS.step()
def number(n: int) -> int:
    return n


@DBOS.step()
async def number_async(n: int) -> int:
    return n


@DBOS.workflow()
def sequence(steps: int) -> int:
    total = 0
    for n in range(steps):
        total += number(n)
    return total


@DBOS.workflow()
async def sequence_async(steps: int) -> int:
    total = 0
    for n in range(steps):
        total += await number_async(n)
    return total


@DBOS.workflow()
def short(first: int) -> int:
    total = first
    for n in range(STEPS):
        total += number(n)
    return total


@DBOS.workflow()
async def short_async(first: int) -> int:
    total = first
    for n in range(STEPS):
        total += await number_async(n)
    return total


def w1() -> dict[str, float]:
    def plain(steps: int) -> float:
        began = time.perf_counter()
        result = DBOS.start_workflow(sequence, steps).get_result()
        return _checked(time.perf_counter() - began, result, sum(range(steps)))

    async def with_async(steps: int) -> float:
        began = time.perf_counter()
        result = await (await DBOS.start_workflow_async(sequence_async, steps)).get_result()
        return _checked(time.perf_counter() - began, result, sum(range(steps)))

    async def twice() -> float:
        await with_async(WARM)
        return await with_async(SEQUENTIAL_STEPS)

    plain(WARM)
    return _faster(SEQUENTIAL_STEPS, plain(SEQUENTIAL_STEPS), asyncio.run(twice()))


def w2() -> dict[str, float]:
    def plain(flows: int) -> float:
        began = time.perf_counter()
        handles = [DBOS.start_workflow(short, n) for n in range(flows)]
        results = [handle.get_result() for handle in handles]
        return _checked(time.perf_counter() - began, results, [n + sum(range(STEPS)) for n in range(flows)])

    async def with_async(flows: int) -> float:
        async def one(n: int) -> int:
            return await (await DBOS.start_workflow_async(short_async, n)).get_result()

        began = time.perf_counter()
        results = await asyncio.gather(*(one(n) for n in range(flows)))
        return _checked(time.perf_counter() - began, results, [n + sum(range(STEPS)) for n in range(flows)])

    async def twice() -> float:
        await with_async(WARM)
        return await with_async(FLOWS)

    plain(WARM)
    return _faster(FLOWS * STEPS, plain(FLOWS), asyncio.run(twice()))


def _checked(seconds: float, result: object, expected: object) -> float:
    if result != expected:
        raise SystemExit(f"the result is {result!r:.80}")
    return seconds


def _faster(steps: int, plain: float, with_async: float) -> dict[str, float]:
    rates = {"plain": steps / plain, "async": steps / with_async}
    return {"steps": max(rates.values()), **rates}


def main(workload: str, url: str) -> None:
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    measures = {"W1": w1, "W2": w2}[workload]()
    DBOS.destroy()
    print(json.dumps(measures))


if __name__ == "__main__":
    main(*sys.argv[1:])
