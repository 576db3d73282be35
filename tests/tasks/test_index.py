"""The cost of a page of tasks depends on its size: it is read from one place of an index, and nothing is sorted."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from perdure.kernel.task import CandidateRow, TaskRow, TaskRows
from perdure.ports.store import TaskFilter, TaskOrder
from perdure.stores.postgres.statements import text_of
from perdure.stores.sqlite import schema
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tasks import merged, page
from perdure.testing.stores.tasks import task
from tests.postgres import Server

ORDERS: tuple[TaskOrder, ...] = ("created", "due", "priority")


def plan(connection: apsw.Connection, filter: TaskFilter) -> list[str]:
    sql, values = page(filter, lambda number: "?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def is_direct(steps: list[str]) -> bool:
    return not any("TEMP B-TREE" in step or step in ("SCAN t", "SCAN c") for step in steps)


@pytest.fixture
def connection() -> apsw.Connection:
    made = apsw.Connection(":memory:")
    schema.migrate(made)
    return made


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("after", [None, (5, 6)])
@pytest.mark.parametrize(
    "more",
    [{}, {"without": "x:eve"}, {"name": "approve"}, {"reference": "r"}, {"label": ("a", "b")}],
    ids=str,
)
def test_a_page_of_open_tasks_is_read_from_an_index(
    connection: apsw.Connection, order: TaskOrder, after: Any, more: dict[str, Any]
):
    who = (("r:clerk", None), ("u:ann", False), ("*", True))

    assert is_direct(plan(connection, TaskFilter(who=who, order=order, after=after, **more)))


def test_a_page_of_overdue_tasks_is_read_from_the_index_by_due(connection: apsw.Connection):
    assert is_direct(plan(connection, TaskFilter(due_before=7, order="due", after=(5, 6))))


def test_a_page_of_ended_tasks_is_read_from_an_index(connection: apsw.Connection):
    assert is_direct(plan(connection, TaskFilter(who=(), statuses=("completed", "expired"))))


def test_the_tasks_of_an_owner_are_found_by_an_index(connection: apsw.Connection):
    assert "SEARCH t USING INDEX tasks_by_owner (workflow=? AND key=?)" in plan(
        connection, TaskFilter(workflow="order", key="o-17")
    )


RARE: dict[str, Any] = {
    "name": "rare",
    "workflow": "rare",
    "reference": "rare",
    "labels": '{"all":"of them","team":"red"}',
    "due": 5,
    "priority": 60,
}
COMMON: dict[str, Any] = {"labels": '{"all":"of them"}'}


@pytest.mark.parametrize(
    ("filter", "rows"),
    [
        pytest.param({"who": (("r:clerk", False),), "order": "due"}, 50, id="the first of many"),
        *[
            pytest.param({"who": who, "order": order, **more}, 3, id=f"{who[0][0]} {order} {more}")
            for who in ((("*", None),), (("r:clerk", None),))
            for order in ORDERS
            for more in (
                {"name": "rare"},
                {"workflow": "rare"},
                {"label": ("team", "red")},
                {"label": ("all", "of them"), "workflow": "rare"},
                {"due_before": 7},
            )
        ],
        *[
            pytest.param(
                {"who": (), "statuses": ("expired",), "order": order, **more}, rows, id=f"{order} {more} ended"
            )
            for order in ORDERS
            for more, rows in (
                ({}, 50),
                ({"name": "rare"}, 2),
                ({"reference": "rare"}, 2),
                ({"label": ("team", "red")}, 2),
                ({"name": "approve", "due_before": 7}, 0),
            )
        ],
        pytest.param({"order": "priority", "due_before": 10**6}, 50, id="all are due"),
        pytest.param({"who": (("r:clerk", False),), "name": "approve"}, 50, id="a name that most have"),
    ],
)
def test_a_page_among_many_tasks_takes_as_many_steps_as_among_few(
    few_and_many: tuple[apsw.Connection, apsw.Connection], filter: dict[str, Any], rows: int
):
    few, many = few_and_many

    assert steps(many, filter, rows) <= 1.5 * steps(few, filter, rows)


def steps(connection: apsw.Connection, filter: dict[str, Any], rows: int) -> int:
    """Counted by SQLite itself: no clock is asked."""
    counted = 0

    def count() -> bool:
        nonlocal counted
        counted += 1
        return False

    connection.set_progress_handler(count, 10)
    wanted = TaskFilter(**filter)
    sql, values = page(wanted, lambda number: "?")
    found = merged([TaskRow(*row) for row in connection.execute(sql, values)], wanted)
    connection.set_progress_handler(None)
    assert len(found) == rows
    return counted


@pytest.fixture(scope="module")
def few_and_many() -> tuple[apsw.Connection, apsw.Connection]:
    """A database with some thousand tasks, and one with ten times as many. Tests read them only."""
    few, many = (apsw.Connection(":memory:") for _ in range(2))
    schema.migrate(few)
    fill(few, 1, MANY // 10)
    fill(few, MANY // 10, MANY)
    with many.backup("main", few, "main") as copying:
        copying.step()
    fill(many, MANY, 10 * MANY)
    return few, many


def fill(connection: apsw.Connection, begin: int, end: int) -> None:
    made = [task(n, **COMMON, due=10 + 10 * (n % 97)) for n in range(begin, end)]
    made += [task(-n, **COMMON, status="expired", due=10 + 10 * (n % 97)) for n in range(begin, end)]
    if end == MANY:
        made[:2] = [task(each.row.id, **RARE, status="expired") for each in made[:2]]
        made[2:5] = [task(each.row.id, **RARE) for each in made[2:5]]
    with connection:
        connection.executemany(SQL.write_task, [each.row for each in made])
        connection.executemany(SQL.write_candidate, [row for each in made for row in each.candidates])


MANY = 2000


def labels(texts: dict[str, str]) -> str:
    return msgspec.json.encode(texts, order="sorted").decode()


ODD = [
    task(1, name="n" * 300, workflow="order", labels=labels({"team": "red", "a": "\u2603"})),
    task(2, name="pay", labels=labels({'quote " \\': 'a","b":"c', "nul": "\x00", "long": "x" * 500, "": ""})),
    task(3, status="assigned", assignee="ann", due=7, priority=90),
    task(4, status="completed", labels=labels({"team": "red", "a": 'b "'}), reference="o-17"),
    task(5, status="cancelled", name="n" * 300, priority=90),
    task(6, status="expired", due=7),
]


def test_an_older_file_gets_the_rows_by_which_tasks_are_found():
    connection = apsw.Connection(":memory:")
    for number in range(1, 13):
        connection.execute(schema.migration(number))
    connection.pragma("user_version", 12)
    for each in ODD:
        connection.execute(SQL.write_task, each.row)
        connection.executemany(SQL.write_candidate, old(each))

    schema.migrate(connection)

    found = {tuple(row) for row in connection.execute(SQL.all_candidates)}
    assert found == {tuple(row) for each in ODD for row in each.candidates}


def old(rows: TaskRows) -> list[CandidateRow]:
    """The candidates of a task as they were before tasks were found by name, workflow and label, and when ended."""
    return [row for row in rows.candidates if row.held < 2 and row.who[:2] not in ("n:", "w:", "l:")]


async def test_an_older_schema_gets_the_rows_by_which_tasks_are_found(postgres_server: Server):
    with postgres_server.name() as url:
        name = url.partition("schema=")[2]
        connection = await asyncpg.connect(postgres_server.url)
        try:
            await connection.execute(f"CREATE SCHEMA {name}")
            for number in range(1, 9):
                await connection.execute(text_of(f"migrations/{number:04}.sql", name))
            await fill_postgres(connection, name, [TaskRows(each.row, tuple(old(each))) for each in ODD])
            for number in (9, 10):
                await connection.execute(text_of(f"migrations/{number:04}.sql", name))

            found = await connection.fetch(f"SELECT {', '.join(CandidateRow._fields)} FROM {name}.task_candidates")
            assert {tuple(row) for row in found} == {tuple(row) for each in ODD for row in each.candidates}
        finally:
            await connection.close()


async def fill_postgres(connection: Any, name: str, rows: list[TaskRows]) -> None:
    put = connection.copy_records_to_table
    await put("tasks", schema_name=name, columns=TaskRow._fields, records=[each.row for each in rows])
    candidates = [row for each in rows for row in each.candidates]
    await put("task_candidates", schema_name=name, columns=CandidateRow._fields, records=candidates)
    await connection.execute(f"ANALYZE {name}.tasks; ANALYZE {name}.task_candidates")


@pytest.fixture(scope="module")
def many_on_postgres(postgres_server: Server) -> Iterator[str]:
    """The schema of a database with many tasks, which tests read only."""
    with postgres_server.schema() as url:
        name = url.partition("schema=")[2]
        asyncio.run(fill_with_many(postgres_server.url, name))
        yield name


async def fill_with_many(url: str, name: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        many = [task(n, due=10 + 10 * (n % 97)) for n in range(1, 10_000)]
        await fill_postgres(connection, name, [*many, *(task(n, **RARE) for n in range(10_000, 10_003))])
    finally:
        await connection.close()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("who", ["*", "r:clerk"])
async def test_postgres_reads_few_rows_for_a_page_of_rare_tasks(
    many_on_postgres: str, postgres_server: Server, who: str, order: TaskOrder
):
    connection = await asyncpg.connect(postgres_server.url)
    try:
        wanted: tuple[dict[str, Any], ...] = (
            {"name": "rare"}, {"workflow": "rare"}, {"label": ("team", "red")}, {"due_before": 7},
        )  # fmt: skip
        for more in wanted:
            filter = TaskFilter(who=((who, None),), order=order, **more)
            sql, values = page(filter, lambda number: f"${number + 1}", f"{many_on_postgres}.", "strpos")
            (found,) = await connection.fetchrow(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values)

            assert rows_read(json.loads(found)[0]["Plan"]) < 2500, more
    finally:
        await connection.close()


def rows_read(node: dict[str, Any]) -> float:
    """How many rows the scans of a plan have read."""
    inner = sum(rows_read(each) for each in node.get("Plans", ()))
    if "Scan" not in node["Node Type"] or "Relation Name" not in node:
        return inner
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return inner + float((node["Actual Rows"] + removed) * node["Actual Loops"])
