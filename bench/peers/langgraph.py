"""W1, W2, W3, W5, W6, W9, G1 and G2 on LangGraph, as its documentation writes graphs with a checkpointer.

    python -m bench.peers.langgraph W1 DIRECTORY URL def RUNS

A step is a node that leads back to itself, and a checkpoint is written after each (`durability="sync"`: before the
next one begins). Not the functional API: its tasks are saved in the background, and the next one does not wait for
that. It has no durable timer, so there is no W4. Where there is a choice, what favours it: nodes written with `def`
and with `async def` are both here, and the faster one counts; many runs at once go through `batch` and `abatch`; on
PostgreSQL a pool of 20 connections with the settings that its documentation asks for; the recursion limit is as high
as the runs are long.
"""

from __future__ import annotations

import asyncio
import json
import operator
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from bench import records
from bench.measure import Measures, payload, percentiles, verify
from bench.peers.wal import settled
from bench.sizes import (
    G1_WIDE,
    G2_LONG,
    GRAPH_ROUNDS,
    W1_STEPS,
    W2_STEPS,
    W3_RUNS,
    W5_MESSAGES,
    W6_DONE,
    W6_STEPS,
    W9_STEPS,
    WARM,
)

CONNECTIONS = 20
SETTINGS: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


class State(TypedDict):
    run: int
    steps: int
    done: int
    total: int
    data: NotRequired[bytes]  # of the last step, where steps have large results


def number(state: State) -> dict[str, int]:
    return {"done": state["done"] + 1, "total": state["total"] + state["done"]}


async def number_async(state: State) -> dict[str, int]:
    return number(state)


def echo(state: State) -> dict[str, int]:
    return {"done": state["done"] + 1, "total": state["total"] + interrupt("ask")}


async def echo_async(state: State) -> dict[str, int]:
    return echo(state)


def noted(state: State) -> dict[str, int]:
    if records.note(state["run"], state["done"]):
        threading.Event().wait()
    return number(state)


async def noted_async(state: State) -> dict[str, int]:
    if records.note(state["run"], state["done"]):
        await asyncio.Event().wait()
    return number(state)


def load(state: State) -> dict[str, Any]:
    """As many bytes as the run is called."""
    return {**number(state), "data": payload(state["done"], state["run"])}


async def load_async(state: State) -> dict[str, Any]:
    return load(state)


def graph_of(node: Any, saver: Any) -> Any:
    """A graph that does so many steps as its state says."""
    builder = StateGraph(State)
    builder.add_node("step", node)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["done"] < state["steps"] else END)
    return builder.compile(checkpointer=saver)


class Sum(TypedDict):
    total: Annotated[int, operator.add]


def instant(state: Sum) -> dict[str, int]:
    return {"total": 1}


async def instant_async(state: Sum) -> dict[str, int]:
    return {"total": 1}


def fan(node: Any, saver: Any) -> Any:
    """G1: nodes side by side, and one that waits for all of them."""
    builder = StateGraph(Sum)
    names = [f"n{number}" for number in range(G1_WIDE)]
    for name in names:
        builder.add_node(name, node)
        builder.add_edge(START, name)
    builder.add_node("join", node)
    builder.add_edge(names, "join")
    builder.add_edge("join", END)
    return builder.compile(checkpointer=saver)


def chain(node: Any, saver: Any) -> Any:
    """G2: nodes one after the other."""
    builder = StateGraph(Sum)
    for number in range(G2_LONG):
        builder.add_node(f"n{number}", node)
        builder.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    builder.add_edge(f"n{G2_LONG - 1}", END)
    return builder.compile(checkpointer=saver)


def begin(run: int, steps: int) -> State:
    return {"run": run, "steps": steps, "done": 0, "total": run}


def thread(name: str, steps: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}, "recursion_limit": steps + 1}


def _begins(name: str, runs: int) -> tuple[list[State], list[dict[str, Any]]]:
    return [begin(n, W2_STEPS) for n in range(runs)], [thread(f"{name}-{n}", W2_STEPS) for n in range(runs)]


class Plain:
    """Nodes written with `def`."""

    @contextmanager
    def saver(self, url: str) -> Iterator[Any]:
        if url.startswith("sqlite"):
            file = url.removeprefix("sqlite:///")
            with closing(settled(file)), SqliteSaver.from_conn_string(file) as saver:
                saver.setup()
                asked = [saver.conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
                _verify_sqlite(asked)
                yield saver
        else:
            with ConnectionPool(url, max_size=CONNECTIONS, kwargs=SETTINGS, open=True) as pool:
                saver = PostgresSaver(pool)
                saver.setup()
                with pool.connection() as connection:
                    _verify_postgres(connection.execute("SHOW synchronous_commit").fetchone())
                yield saver

    def w1(self, saver: Any) -> Measures:
        graph = graph_of(number, saver)
        graph.invoke(begin(0, WARM), thread("warm", WARM), durability="sync")
        began = time.perf_counter()
        state = graph.invoke(begin(0, W1_STEPS), thread("w1", W1_STEPS), durability="sync")
        return _rate(W1_STEPS, time.perf_counter() - began, [state["total"]], [sum(range(W1_STEPS))])

    def w2(self, saver: Any, runs: int) -> Measures:
        graph = graph_of(number, saver)
        graph.batch(*_begins("warm", WARM), durability="sync")
        began = time.perf_counter()
        states = graph.batch(*_begins("w2", runs), durability="sync")
        return _runs(runs, time.perf_counter() - began, states)

    def w3(self, saver: Any) -> Measures:
        graph = graph_of(number, saver)
        times = []
        for n in range(WARM + W3_RUNS):
            began = time.perf_counter()
            state = graph.invoke(begin(n, 1), thread(f"w3-{n}", 1), durability="sync")
            times.append(time.perf_counter() - began)
            verify(state["total"] == n, f"run {n} gave {state}")
        return percentiles(times[WARM:])

    def w5(self, saver: Any) -> Measures:
        graph, waiting = graph_of(echo, saver), thread("w5", W5_MESSAGES)
        graph.invoke(begin(0, W5_MESSAGES), waiting, durability="sync")
        times = []
        for n in range(W5_MESSAGES):
            began = time.perf_counter()
            state = graph.invoke(Command(resume=n), waiting, durability="sync")
            times.append(time.perf_counter() - began)
            verify(state["total"] == sum(range(n + 1)), f"answer {n} was {state}")
        return percentiles(times)

    def w6_work(self, saver: Any, runs: int) -> None:
        """As many threads as runs: each of them is held by its sixth step."""
        inputs = [begin(n, W6_STEPS) for n in range(runs)]
        configs = [{**thread(f"w6-{n}", W6_STEPS), "max_concurrency": runs} for n in range(runs)]
        graph_of(noted, saver).batch(inputs, configs, durability="sync")

    def w6_results(self, saver: Any, runs: int) -> list[int]:
        graph = graph_of(noted, saver)
        states = graph.batch([None] * runs, [thread(f"w6-{n}", W6_STEPS) for n in range(runs)], durability="sync")
        return [state["total"] for state in states]

    def w9(self, saver: Any) -> Measures:
        graph, found = graph_of(load, saver), {}
        for size, steps in W9_STEPS.items():
            graph.invoke(begin(size, WARM), thread(f"warm-{size}", WARM), durability="sync")
            began = time.perf_counter()
            state = graph.invoke(begin(size, steps), thread(f"w9-{size}", steps), durability="sync")
            found[f"steps_{size}"] = steps / (time.perf_counter() - began)
            verify(state["data"] == payload(steps - 1, size), "some bytes were lost")
        return found

    def g1(self, saver: Any) -> Measures:
        return self._graph(fan(instant, saver), G1_WIDE, G1_WIDE + 1)

    def g2(self, saver: Any) -> Measures:
        return self._graph(chain(instant, saver), G2_LONG, G2_LONG)

    def _graph(self, graph: Any, nodes: int, total: int) -> Measures:
        times = []
        for n in range(GRAPH_ROUNDS + 1):
            began = time.perf_counter()
            state = graph.invoke({"total": 0}, thread(f"g-{n}", nodes + 2), durability="sync")
            times.append(time.perf_counter() - began)
            verify(state["total"] == total, f"the graph gave {state}")
        return {"nodes": nodes / statistics.median(times[1:])}


class Async:
    """Nodes written with `async def`."""

    @asynccontextmanager
    async def saver(self, url: str) -> AsyncIterator[Any]:
        if url.startswith("sqlite"):
            file = url.removeprefix("sqlite:///")
            with closing(settled(file)):
                async with AsyncSqliteSaver.from_conn_string(file) as saver:
                    await saver.setup()
                    asked = []
                    for name in ("journal_mode", "synchronous"):
                        async with saver.conn.execute(f"PRAGMA {name}") as cursor:
                            asked.append((await cursor.fetchone())[0])
                    _verify_sqlite(asked)
                    yield saver
        else:
            async with AsyncConnectionPool(url, max_size=CONNECTIONS, kwargs=SETTINGS, open=False) as pool:
                saver = AsyncPostgresSaver(pool)
                await saver.setup()
                async with pool.connection() as connection:
                    _verify_postgres(await (await connection.execute("SHOW synchronous_commit")).fetchone())
                yield saver

    async def w1(self, saver: Any) -> Measures:
        graph = graph_of(number_async, saver)
        await graph.ainvoke(begin(0, WARM), thread("warm", WARM), durability="sync")
        began = time.perf_counter()
        state = await graph.ainvoke(begin(0, W1_STEPS), thread("w1", W1_STEPS), durability="sync")
        return _rate(W1_STEPS, time.perf_counter() - began, [state["total"]], [sum(range(W1_STEPS))])

    async def w2(self, saver: Any, runs: int) -> Measures:
        graph = graph_of(number_async, saver)
        await graph.abatch(*_begins("warm", WARM), durability="sync")
        began = time.perf_counter()
        states = await graph.abatch(*_begins("w2", runs), durability="sync")
        return _runs(runs, time.perf_counter() - began, states)

    async def w3(self, saver: Any) -> Measures:
        graph = graph_of(number_async, saver)
        times = []
        for n in range(WARM + W3_RUNS):
            began = time.perf_counter()
            state = await graph.ainvoke(begin(n, 1), thread(f"w3-{n}", 1), durability="sync")
            times.append(time.perf_counter() - began)
            verify(state["total"] == n, f"run {n} gave {state}")
        return percentiles(times[WARM:])

    async def w5(self, saver: Any) -> Measures:
        graph, waiting = graph_of(echo_async, saver), thread("w5", W5_MESSAGES)
        await graph.ainvoke(begin(0, W5_MESSAGES), waiting, durability="sync")
        times = []
        for n in range(W5_MESSAGES):
            began = time.perf_counter()
            state = await graph.ainvoke(Command(resume=n), waiting, durability="sync")
            times.append(time.perf_counter() - began)
            verify(state["total"] == sum(range(n + 1)), f"answer {n} was {state}")
        return percentiles(times)

    async def w6_work(self, saver: Any, runs: int) -> None:
        inputs = [begin(n, W6_STEPS) for n in range(runs)]
        configs = [thread(f"w6-{n}", W6_STEPS) for n in range(runs)]
        await graph_of(noted_async, saver).abatch(inputs, configs, durability="sync")

    async def w6_results(self, saver: Any, runs: int) -> list[int]:
        graph, threads = graph_of(noted_async, saver), [thread(f"w6-{n}", W6_STEPS) for n in range(runs)]
        return [state["total"] for state in await graph.abatch([None] * runs, threads, durability="sync")]

    async def w9(self, saver: Any) -> Measures:
        graph, found = graph_of(load_async, saver), {}
        for size, steps in W9_STEPS.items():
            await graph.ainvoke(begin(size, WARM), thread(f"warm-{size}", WARM), durability="sync")
            began = time.perf_counter()
            state = await graph.ainvoke(begin(size, steps), thread(f"w9-{size}", steps), durability="sync")
            found[f"steps_{size}"] = steps / (time.perf_counter() - began)
            verify(state["data"] == payload(steps - 1, size), "some bytes were lost")
        return found

    async def g1(self, saver: Any) -> Measures:
        return await self._graph(fan(instant_async, saver), G1_WIDE, G1_WIDE + 1)

    async def g2(self, saver: Any) -> Measures:
        return await self._graph(chain(instant_async, saver), G2_LONG, G2_LONG)

    async def _graph(self, graph: Any, nodes: int, total: int) -> Measures:
        times = []
        for n in range(GRAPH_ROUNDS + 1):
            began = time.perf_counter()
            state = await graph.ainvoke({"total": 0}, thread(f"g-{n}", nodes + 2), durability="sync")
            times.append(time.perf_counter() - began)
            verify(state["total"] == total, f"the graph gave {state}")
        return {"nodes": nodes / statistics.median(times[1:])}


def _rate(steps: int, seconds: float, results: list[int], expected: list[int]) -> Measures:
    verify(results == expected, f"the result is {results!r:.80}")
    return {"steps": steps / seconds}


def _runs(runs: int, seconds: float, states: list[State]) -> Measures:
    expected = [n + sum(range(W2_STEPS)) for n in range(runs)]
    return {"runs": runs / seconds, **_rate(runs * W2_STEPS, seconds, [state["total"] for state in states], expected)}


def _verify_sqlite(asked: list[object]) -> None:
    verify(asked == ["wal", 2], f"journal_mode and synchronous are {asked}, not WAL and FULL")


def _verify_postgres(row: Any) -> None:
    verify(row["synchronous_commit"] == "on", f"synchronous_commit is {row}")


def call(style: str, url: str, method: str, *arguments: int) -> Any:
    if style == "def":
        plain = Plain()
        with plain.saver(url) as saver:
            return getattr(plain, method)(saver, *arguments)

    async def call_async() -> Any:
        system = Async()
        async with system.saver(url) as saver:
            return await getattr(system, method)(saver, *arguments)

    return asyncio.run(call_async())


def main(workload: str, place: str, url: str, style: str, runs: str) -> None:
    match workload:
        case "W6":
            command = [sys.executable, "-m", "bench.peers.langgraph", "W6-work", place, url, style, runs]
            records.kill_in_the_middle(command, Path(place), int(runs))
            records.begin(Path(place), stops=False)
            began = time.perf_counter()
            results = call(style, url, "w6_results", int(runs))
            seconds = time.perf_counter() - began
            records.verify_all_done(Path(place), results, int(runs))
            measures = {"seconds": seconds, "steps": int(runs) * (W6_STEPS - W6_DONE) / seconds}
        case "W6-work":
            records.begin(Path(place), stops=True)
            call(style, url, "w6_work", int(runs))
        case "W2":
            measures = call(style, url, "w2", int(runs))
        case _:
            measures = call(style, url, workload.lower())
    print(json.dumps(measures))


if __name__ == "__main__":
    main(*sys.argv[1:])
