"""The cost of a page of tasks depends on its size: it is read from one place of an index, and nothing is sorted."""

from typing import Any

import apsw
import pytest

from perdure.ports.store import TaskFilter, TaskOrder
from perdure.stores.sqlite import schema
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tasks import page
from perdure.testing.stores.tasks import task

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


def test_a_page_among_many_tasks_takes_as_many_steps_as_among_few(connection: apsw.Connection):
    """Counted by SQLite itself: no clock is asked."""

    def steps() -> int:
        counted = 0

        def count() -> bool:
            nonlocal counted
            counted += 1
            return False

        connection.set_progress_handler(count, 10)
        sql, values = page(TaskFilter(who=(("r:clerk", False),), order="due"), lambda number: "?")
        assert len(connection.execute(sql, values).fetchall()) == 50
        connection.set_progress_handler(None)
        return counted

    def fill(begin: int, end: int) -> None:
        rows = [task(n, due=10 * (n % 97)) for n in range(begin, end)]
        with connection:
            connection.executemany(SQL.write_task, [each.row for each in rows])
            connection.executemany(SQL.write_candidate, [row for each in rows for row in each.candidates])

    fill(1, 1001)
    few = steps()
    fill(1001, 20_001)

    assert steps() <= 1.5 * few
