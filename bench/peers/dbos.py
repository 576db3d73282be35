"""W1 to W6 and W9 on DBOS, as its documentation writes workflows and steps.

    python -m bench.peers.dbos W1 DIRECTORY URL def RUNS

It has two ways to write a workflow, `def` and `async def`: both are here, and the faster one counts. Where else there
is a choice, what favours it: its own defaults (a pool of 20 connections, as many threads as it wants), quiet logs, no
tracing, no admin server, the system database alone; a workflow is called where it is awaited at once (W1, W3), which is
quicker than starting it and asking for its result; the shortest waits it allows for notifications (W5), and short ones
for results (W6); and on SQLite a file that was put into WAL mode before (`wal.py`). DBOS keeps that mode but does not
choose it itself: with its own default, journal_mode=delete, steps took two to four times as long.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSConfig, SetWorkflowID
from dbos._dbos import _get_dbos_instance

from bench import records
from bench.measure import Measures, payload, percentiles, verify
from bench.peers.wal import settled
from bench.sizes import W1_STEPS, W2_STEPS, W3_RUNS, W4_SECONDS, W5_MESSAGES, W6_DONE, W6_STEPS, W9_STEPS, WARM

POLL_SECONDS = 0.001
PATIENCE_SECONDS = 600  # for a connection of the pool: with 1,000 runs at once, 30 s were not always enough
RESULT_POLL_SECONDS = 0.05


@DBOS.step()
def number(n: int) -> int:
    return n


@DBOS.step()
async def number_async(n: int) -> int:
    return n


@DBOS.workflow()
def sequence(first: int, steps: int) -> int:
    total = first
    for n in range(steps):
        total += number(n)
    return total


@DBOS.workflow()
async def sequence_async(first: int, steps: int) -> int:
    total = first
    for n in range(steps):
        total += await number_async(n)
    return total


@DBOS.workflow()
def sleeper() -> float:
    due = time.time() + W4_SECONDS
    DBOS.sleep(W4_SECONDS)
    return due


@DBOS.workflow()
async def sleeper_async() -> float:
    due = time.time() + W4_SECONDS
    await DBOS.sleep_async(W4_SECONDS)
    return due


@DBOS.workflow()
def echo(messages: int) -> int:
    total = 0
    for _ in range(messages):
        asked = DBOS.recv("ask")
        total += asked
        DBOS.set_event(f"answer-{asked}", total)
    return total


@DBOS.workflow()
async def echo_async(messages: int) -> int:
    total = 0
    for _ in range(messages):
        asked = await DBOS.recv_async("ask")
        total += asked
        await DBOS.set_event_async(f"answer-{asked}", total)
    return total


@DBOS.step()
def noted(run: int, step: int) -> int:
    if records.note(run, step):
        threading.Event().wait()
    return step


@DBOS.step()
async def noted_async(run: int, step: int) -> int:
    if records.note(run, step):
        await asyncio.Event().wait()
    return step


@DBOS.workflow()
def long(run: int) -> int:
    total = run
    for step in range(W6_STEPS):
        total += noted(run, step)
    return total


@DBOS.workflow()
async def long_async(run: int) -> int:
    total = run
    for step in range(W6_STEPS):
        total += await noted_async(run, step)
    return total


@DBOS.step()
def load(n: int, size: int) -> bytes:
    return payload(n, size)


@DBOS.step()
async def load_async(n: int, size: int) -> bytes:
    return payload(n, size)


@DBOS.workflow()
def carry(steps: int, size: int) -> int:
    return sum(len(load(n, size)) for n in range(steps))


@DBOS.workflow()
async def carry_async(steps: int, size: int) -> int:
    return sum([len(await load_async(n, size)) for n in range(steps)])


class Plain:
    """Workflows written with `def`."""

    def w1(self) -> Measures:
        sequence(0, WARM)
        began = time.perf_counter()
        result = sequence(0, W1_STEPS)
        return _rate(W1_STEPS, time.perf_counter() - began, result, sum(range(W1_STEPS)))

    def w2(self, runs: int) -> Measures:
        _all(sequence, [(n, W2_STEPS) for n in range(WARM)])
        began = time.perf_counter()
        results = _all(sequence, [(n, W2_STEPS) for n in range(runs)])
        return _runs(runs, time.perf_counter() - began, results)

    def w3(self) -> Measures:
        times = []
        for n in range(WARM + W3_RUNS):
            began = time.perf_counter()
            result = sequence(n, 1)
            times.append(time.perf_counter() - began)
            verify(result == n, f"run {n} gave {result}")
        return percentiles(times[WARM:])

    def w4(self, runs: int) -> Measures:
        late = []

        def wait(handle: Any) -> None:
            due = handle.get_result()
            late.append(time.time() - due)

        handles = [DBOS.start_workflow(sleeper) for _ in range(runs)]
        waiting = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        return _lateness(late, runs)

    def w5(self) -> Measures:
        handle = DBOS.start_workflow(echo, W5_MESSAGES)
        times = []
        for n in range(W5_MESSAGES):
            began = time.perf_counter()
            DBOS.send(handle.workflow_id, n, "ask")
            answer = DBOS.get_event(handle.workflow_id, f"answer-{n}")
            times.append(time.perf_counter() - began)
            verify(answer == sum(range(n + 1)), f"answer {n} was {answer}")
        verify(handle.get_result() == sum(range(W5_MESSAGES)), "the workflow ended with something else")
        return percentiles(times)

    def w6_work(self, runs: int) -> None:
        for n in range(runs):
            with SetWorkflowID(f"w6-{n}"):
                DBOS.start_workflow(long, n)
        threading.Event().wait()

    def w6_results(self, runs: int) -> list[int]:
        handles = [DBOS.retrieve_workflow(f"w6-{n}") for n in range(runs)]
        return [handle.get_result(polling_interval_sec=RESULT_POLL_SECONDS) for handle in handles]

    def w9(self) -> Measures:
        found: Measures = {}
        for size, steps in W9_STEPS.items():
            carry(WARM, size)
            began = time.perf_counter()
            result = carry(steps, size)
            found[f"steps_{size}"] = _rate(steps, time.perf_counter() - began, result, steps * size)["steps"]
        return found


class Async:
    """Workflows written with `async def`."""

    async def w1(self) -> Measures:
        await sequence_async(0, WARM)
        began = time.perf_counter()
        result = await sequence_async(0, W1_STEPS)
        return _rate(W1_STEPS, time.perf_counter() - began, result, sum(range(W1_STEPS)))

    async def w2(self, runs: int) -> Measures:
        await _all_async(sequence_async, [(n, W2_STEPS) for n in range(WARM)])
        began = time.perf_counter()
        results = await _all_async(sequence_async, [(n, W2_STEPS) for n in range(runs)])
        return _runs(runs, time.perf_counter() - began, results)

    async def w3(self) -> Measures:
        times = []
        for n in range(WARM + W3_RUNS):
            began = time.perf_counter()
            result = await sequence_async(n, 1)
            times.append(time.perf_counter() - began)
            verify(result == n, f"run {n} gave {result}")
        return percentiles(times[WARM:])

    async def w4(self, runs: int) -> Measures:
        async def one() -> float:
            due: float = await (await DBOS.start_workflow_async(sleeper_async)).get_result()
            return time.time() - due

        return _lateness(await asyncio.gather(*(one() for _ in range(runs))), runs)

    async def w5(self) -> Measures:
        handle = await DBOS.start_workflow_async(echo_async, W5_MESSAGES)
        times = []
        for n in range(W5_MESSAGES):
            began = time.perf_counter()
            await DBOS.send_async(handle.workflow_id, n, "ask")
            answer = await DBOS.get_event_async(handle.workflow_id, f"answer-{n}")
            times.append(time.perf_counter() - began)
            verify(answer == sum(range(n + 1)), f"answer {n} was {answer}")
        verify(await handle.get_result() == sum(range(W5_MESSAGES)), "the workflow ended with something else")
        return percentiles(times)

    async def w6_work(self, runs: int) -> None:
        async def start(n: int) -> None:
            with SetWorkflowID(f"w6-{n}"):
                await DBOS.start_workflow_async(long_async, n)

        await asyncio.gather(*(start(n) for n in range(runs)))
        await asyncio.Event().wait()

    async def w6_results(self, runs: int) -> list[int]:
        return await asyncio.to_thread(Plain().w6_results, runs)

    async def w9(self) -> Measures:
        found: Measures = {}
        for size, steps in W9_STEPS.items():
            await carry_async(WARM, size)
            began = time.perf_counter()
            result = await carry_async(steps, size)
            found[f"steps_{size}"] = _rate(steps, time.perf_counter() - began, result, steps * size)["steps"]
        return found


def _all(workflow: Callable[..., Any], arguments: Sequence[tuple[int, ...]]) -> list[int]:
    handles = [DBOS.start_workflow(workflow, *each) for each in arguments]
    return [handle.get_result() for handle in handles]


async def _all_async(workflow: Callable[..., Awaitable[Any]], arguments: Sequence[tuple[int, ...]]) -> list[int]:
    async def one(each: tuple[int, ...]) -> int:
        return await (await DBOS.start_workflow_async(workflow, *each)).get_result()

    return await asyncio.gather(*(one(each) for each in arguments))


def _rate(steps: int, seconds: float, result: object, expected: object) -> Measures:
    verify(result == expected, f"the result is {result!r:.80}")
    return {"steps": steps / seconds}


def _runs(runs: int, seconds: float, results: list[int]) -> Measures:
    expected = [n + sum(range(W2_STEPS)) for n in range(runs)]
    return {"runs": runs / seconds, **_rate(runs * W2_STEPS, seconds, results, expected)}


def _lateness(late: Sequence[float], runs: int) -> Measures:
    verify(len(late) == runs, f"{len(late)} of {runs} workflows woke up")
    verify(min(late) >= 0, f"a workflow woke up {-min(late):.6f} s too early")
    return percentiles(late)


_kept: list[sqlite3.Connection] = []


def launch(url: str) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "db_engine_kwargs": {"pool_timeout": PATIENCE_SECONDS},
        "run_admin_server": False,
        "notification_listener_polling_interval_sec": POLL_SECONDS,
        "notification_coalesce_sec": POLL_SECONDS,
    }
    if url.startswith("sqlite"):
        _kept.append(settled(url.removeprefix("sqlite:///")))
    DBOS(config=config)
    DBOS.launch()
    with _get_dbos_instance()._sys_db.engine.connect() as connection:
        if url.startswith("sqlite"):
            asked = [
                connection.execute(sqlalchemy.text(f"PRAGMA {name}")).scalar()
                for name in ("journal_mode", "synchronous")
            ]
            verify(asked == ["wal", 2], f"journal_mode and synchronous are {asked}, not WAL and FULL")
        else:
            on = connection.execute(sqlalchemy.text("SHOW synchronous_commit")).scalar()
            verify(on == "on", f"synchronous_commit is {on}")


def main(workload: str, place: str, url: str, style: str, runs: str) -> None:
    system = Plain() if style == "def" else Async()

    def call(method: Callable[..., Any], *arguments: int) -> Any:
        return method(*arguments) if style == "def" else asyncio.run(method(*arguments))

    match workload:
        case "W6":
            command = [sys.executable, "-m", "bench.peers.dbos", "W6-work", place, url, style, runs]
            records.kill_in_the_middle(command, Path(place), int(runs))
            records.begin(Path(place), stops=False)
            began = time.perf_counter()
            launch(url)
            results = call(system.w6_results, int(runs))
            seconds = time.perf_counter() - began
            records.verify_all_done(Path(place), results, int(runs))
            measures = {"seconds": seconds, "steps": int(runs) * (W6_STEPS - W6_DONE) / seconds}
        case "W6-work":
            records.begin(Path(place), stops=True)
            launch(url)
            call(system.w6_work, int(runs))
        case "W2" | "W4":
            launch(url)
            measures = call(getattr(system, workload.lower()), int(runs))
        case _:
            launch(url)
            measures = call(getattr(system, workload.lower()))
    DBOS.destroy()
    print(json.dumps(measures))


if __name__ == "__main__":
    main(*sys.argv[1:])
