"""S2: is a list of 50 among 1,000,000 instances as quick as among 1,000?

The rows of the lists are written in bulk, without a journal: each list reads nothing else. A list is read as the server
reads it, without HTTP, which would hide what grows. The sizes are asked in turns, so growth is what one round says.

Two kinds of filters. Those that fit as large a share of the instances at each size: here a list must not grow. And
those that fit few among many, which no index finds: here a page must end in its budget, and say where to go on.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import perdure
from bench.growth import FLAT, beside, databases, in_process, places_of, rounds
from bench.measure import Bar, Figure, Measures, Store, Workload, verify
from perdure.kernel.batch import HeadRow, TagRow
from perdure.kernel.rows import tag_rows
from perdure.views.lists import count, page
from perdure.views.where import parse

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS: Final = 9
TIMES: Final = 12
"""So many lists of a filter are one turn, of which the median counts."""

PAGE: Final = 50
BEGIN: Final = 1_700_000_000_000_000_000
SECOND: Final = 1_000_000_000
WORKFLOWS: Final = 3

FILTERS: Final = {
    "all": "",
    "workflow": "workflow:w1",
    "dialect": "dialect:flow",
    "version": "version:2",
    "status": "status:failed",
    "workflow, status": "workflow:w1 status:failed",
    "key": "key:a-4-777",
    "key_prefix of few": "key_prefix:a-4-",
    "key_prefix of many": "key_prefix:a-",
    "tag": "tag.region:north",
    "two tags": "tag.region:north tag.size:big",
    "parent": "parent:1",
    "root": "root:1",
    "started": "started>2023-11-14T22:14Z",
    "ended": "ended>2023-11-14T22:14Z",
    "changed": "changed>2023-11-14T22:14Z",
    "waits_for": "waits_for:*decision*",
    "error_type": "error_type:KeyError",
    "queue": "queue:mail",
    "not": "-workflow:w1",
    "tag, compared": "tag.n>3",
}
"""S20, one by one, with pairs that lists of the web UI use."""

BUDGET: Final = Bar("<=", 0.3, why="250 ms, and the read that is under way then")

RARE: Final = {
    "rare version": "version:1",
    "rare error": "error_type:Rare",
    "rare wait": "waits_for:rare",
    "rare version of a workflow with a status": "workflow:w1 status:completed version:1",
    "nothing": "-workflow:w*",
}
"""Filters that few of many instances fit, or none."""


def heads(size: int) -> Iterator[HeadRow]:
    """Instances, one a second. The first is the parent of one in twelve; the oldest fifty are rare in each way."""
    statuses = ["completed"] * 11 + ["failed"] * 4 + ["waiting"] * 4 + ["stuck"]
    reasons = {
        "failed": ("KeyError at charge",),
        "stuck": ("KeyError at ship",),
        "waiting": ("message decision", "queue mail"),
    }
    for n in range(1, size + 1):
        dice = n * 2654435761 % 2**32 >> 8
        status, rare = statuses[dice % 20], n <= 50
        reason = reasons[status][dice // 20 % len(reasons[status])] if status in reasons else ""
        if rare:
            reason = "Rare at charge" if status in ("failed", "stuck") else "rare"
        at, parent = BEGIN + n * SECOND, 1 if n > 1 and dice % 12 == 0 else 0
        ended_at = at + SECOND if status in ("completed", "failed") else 0
        tags = {"region": "north" if dice % 4 else "south", "n": str(n % 10), **({} if dice % 3 else {"size": "big"})}
        yield HeadRow(
            n, f"w{dice // 7 % WORKFLOWS}", f"{'abc'[n % 3]}-{n // 180}-{n}", 1, "1" if rare else "2", status, at,
            at + SECOND, parent, b"", json.dumps(tags), None, parent or n, ended_at, reason,
        )  # fmt: skip


COLUMNS: Final = ", ".join(HeadRow._fields)


async def make(url: str, size: int, store: Store) -> Measures:
    """A database with so many instances."""
    began = time.perf_counter()
    async with perdure.open(url, workflows=[plain(n) for n in range(WORKFLOWS)]):
        pass
    counts: Counter[tuple[str, str, str]] = Counter()

    def counted() -> Iterator[HeadRow]:
        for head in heads(size):
            counts[head.workflow, head.version, head.status] += 1
            yield head

    tagged = (tag for head in heads(size) for tag in tag_rows(head))
    await (_fill_postgres if store == "postgres" else _fill_sqlite)(url, counted(), tagged, counts)
    return {"made": time.perf_counter() - began}


def plain(n: int) -> Any:
    @perdure.flow(name=f"w{n}")
    async def workflow(ctx: perdure.Context) -> None:
        pass

    return workflow


async def _fill_sqlite(
    url: str, rows: Iterator[HeadRow], tags: Iterator[TagRow], counts: Counter[tuple[str, str, str]]
) -> None:
    import apsw

    connection = apsw.Connection(url)
    connection.pragma("synchronous", "OFF")
    with connection:
        connection.executemany(
            f"INSERT INTO instances ({COLUMNS}) VALUES ({', '.join('?' * len(HeadRow._fields))})", rows
        )
        connection.executemany("INSERT INTO tags (name, value, started_at, instance) VALUES (?, ?, ?, ?)", tags)
        connection.executemany(
            "INSERT INTO counts (workflow, version, status, count) VALUES (?, ?, ?, ?)",
            [(*standing, number) for standing, number in counts.items()],
        )
    connection.close()


async def _fill_postgres(
    url: str, rows: Iterator[HeadRow], tags: Iterator[TagRow], counts: Counter[tuple[str, str, str]]
) -> None:
    from bench import server

    schema = url.rpartition("schema=")[2]
    async with server.connection() as opened:

        async def copy(table: str, columns: Sequence[str], records: Iterable[Any]) -> None:
            await opened.copy_records_to_table(table, records=records, columns=columns, schema_name=schema)

        await copy("instances", HeadRow._fields, rows)
        await copy("tags", TagRow._fields, tags)
        standings = [(0, *standing, number) for standing, number in counts.items()]
        await copy("counts", ("shard", "workflow", "version", "status", "count"), standings)


async def take_turns(urls: dict[int, str], store: Store) -> Measures:
    async with beside(store) as server, AsyncExitStack() as stack:
        places = await places_of(urls, server)
        clients = {size: await stack.enter_async_context(perdure.connect(url)) for size, url in urls.items()}
        taken: dict[str, list[dict[int, float]]] = {name: [] for name in FILTERS}
        async for turns in rounds(ROUNDS, urls, places):
            for name, text in FILTERS.items():
                taken[name].append({size: await _list(clients[size], text) for size in turns})
        found: Measures = {}
        for name, each in taken.items():
            found |= _growth(name, list(urls), each)
        largest = clients[max(urls)]
        for name, text in RARE.items():
            found |= await _searched(name, largest, text)
        return found


async def _list(client: Any, text: str) -> float:
    where, times = parse(text), []
    for _ in range(TIMES):
        began = time.perf_counter()
        found = await page(client.queries, where, lambda workflow: True, PAGE)
        times.append(time.perf_counter() - began)
        verify(bool(found.heads), f"{text!r} found nothing")
    return min(times)


def _growth(name: str, sizes: list[int], taken: list[dict[int, float]]) -> Measures:
    """A curve; the most that a factor of ten added; and from the smallest size to the largest, with its range."""
    found = {f"{name}@{point}": statistics.median(each[size] for each in taken) for point, size in enumerate(sizes)}
    whole = [each[sizes[-1]] / each[sizes[0]] for each in taken]
    steps = [statistics.median(each[more] / each[less] for each in taken) for less, more in pairwise(sizes)]
    return found | {f"{name}_growth": max(steps), f"{name}_whole": statistics.median(whole)}


async def _searched(name: str, client: Any, text: str) -> Measures:
    """The longest page of a search that no index narrows, and how many pages until its end."""
    where, place, pages, longest, found = parse(text), None, 0, 0.0, 0
    while pages == 0 or place is not None:
        began = time.perf_counter()
        part = await page(client.queries, where, lambda workflow: True, PAGE, place)
        longest, pages = max(longest, time.perf_counter() - began), pages + 1
        found, place = found + len(part.heads), part.next
    began = time.perf_counter()
    await count(client.queries, where, lambda workflow: True)
    return {f"{name}_page": longest, f"{name}_pages": pages, f"{name}_count": time.perf_counter() - began}


def on_perdure(store: Store, sizes: tuple[int, ...]) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        with databases(store, place, sizes) as urls:
            made = [in_process(make, url, size, store) for size, url in urls.items()]
            return made[-1] | in_process(take_turns, urls, store)

    return run


GROWTH: Final = {
    "sqlite": Bar(FLAT.sign, FLAT.value, "from 1,000 to 10,000 alone: of 1,000 such a list reads all, and ends sooner"),
    "postgres": Bar(FLAT.sign, FLAT.value, "wall time of a server beside others: 1 to 18 round trips of 0.2 ms each"),
}


def _workload(name: str, store: Store, sizes: tuple[int, ...]) -> Workload:
    last = len(sizes) - 1
    return Workload(
        name,
        f"a list of {PAGE} among {sizes[0]:,} instances and among {sizes[-1]:,}, growth over each 10 x",
        (
            *(Figure(f"{each}: growth", f"{each}_growth", "x", bar=GROWTH[store]) for each in FILTERS),
            *(Figure(f"{each}: among {sizes[-1]:,}", f"{each}@{last}", "ms") for each in FILTERS),
            *(Figure(f"{each}: the longest page", f"{each}_page", "ms", bar=BUDGET) for each in RARE),
            *(Figure(f"{each}: pages until the end", f"{each}_pages") for each in RARE),
            *(Figure(f"{each}: its count", f"{each}_count", "ms", bar=BUDGET) for each in RARE),
        ),
        {"perdure": on_perdure(store, sizes)},
        once=True,
        needs_floor=False,
        store=store,
    )


WORKLOAD = _workload("S2-lists", "sqlite", SIZES)
POSTGRES = _workload("postgres-S2-lists", "postgres", SIZES)
