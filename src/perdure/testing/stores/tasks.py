"""Tasks: rows and candidates, lists in three orders by every filter, and whether they say what the journal says."""

from itertools import product
from typing import Any

import msgspec

from perdure.codec import seal
from perdure.kernel.task import NO_TIME, TaskRow, TaskRows, candidates
from perdure.ports.store import TaskFilter
from perdure.stores.tasks import matches, merged, place_in

from .harness import Harness, OneStore, Waiting, ask, commit
from .rows import batch, entry
from .scripted import SmallShard


def task(id: int, who: str = "r:clerk", **fields: Any) -> TaskRows:
    """`who`: names, with spaces between them."""
    row = TaskRow(
        id,
        0,
        "order",
        f"o-{id}",
        "approve",
        "approve",
        "Approve it",
        "open",
        "",
        50,
        1000 + id,
        NO_TIME,
        NO_TIME,
        NO_TIME,
        "[]",
        "",
        "",
        "{}",
        seal(b"body"),
    )
    row = row._replace(**fields)
    return TaskRows(row, candidates(row, who.split() if row.status in ("open", "assigned") else ()))


def write(harness: Harness, store: Waiting, tasks: list[TaskRows], begin: int = 1) -> None:
    made = batch(journal=[entry(n, n) for n in range(begin, begin + len(tasks))])
    made.tasks = {each.row.id: each for each in tasks}
    assert commit(harness, store, made) is None


def ids(store: Waiting, **fields: Any) -> list[int]:
    return [row.id for row in ask(store.tasks(TaskFilter(**fields)))]


MANY = [
    task(
        n,
        " ".join(
            ["r:clerk"] * (n % 2) + ["u:ann"] * (n % 3 == 0) + ["x:eve"] * (n % 5 == 0) + ["f:ref"] * (n % 4 == 0)
        ),
        due=NO_TIME if n % 3 else 9000 - 10 * (n % 7),
        priority=10 * (n % 4),
        name="approve" if n % 2 else "pay",
        workflow="order" if n % 5 else "claim",
        key=f"o-{n % 6}",
        reference="ref" if n % 4 == 0 else "",
        labels='{"team":"red"}' if n % 3 else '{"a":"1","team":"blue"}',
        status="completed" if n % 11 == 0 else "open",
        created_at=5000 - 7 * (n % 9),
    )
    for n in range(1, 80)
]


class Tasks(OneStore):
    def test_a_task_is_found_by_its_id(self, harness: Harness, store: Waiting) -> None:
        written = task(3, title="Grüße \u2603", labels='{"team":"red"}')
        write(harness, store, [written])

        assert ask(store.task(3)) == written.row
        assert ask(store.task(4)) is None

    def test_a_change_replaces_row_and_candidates(self, harness: Harness, store: Waiting) -> None:
        write(harness, store, [task(1, "r:clerk u:ann")])
        write(harness, store, [task(1, "r:clerk a:bob", status="assigned", assignee="bob", priority=90)], begin=2)

        assert ids(store, who=(("u:ann", None),)) == []
        assert ids(store, who=(("a:bob", None),)) == [1]
        assert ids(store, who=(("r:clerk", True),)) == [1]
        assert ids(store, who=(("r:clerk", False),)) == []
        found = ask(store.task(1))
        assert found is not None and (found.status, found.priority) == ("assigned", 90)

    def test_an_ended_task_is_found_by_its_status_alone(self, harness: Harness, store: Waiting) -> None:
        write(harness, store, [task(1), task(2, status="completed", ended_at=77, outcome="approve")])

        assert ids(store) == [1]
        assert ids(store, who=(), statuses=("completed",)) == [2]
        assert ids(store, statuses=("completed", "expired")) == [1, 2]
        assert ids(store, who=()) == []

    def test_every_filter_gives_what_a_plain_look_gives(self, harness: Harness, store: Waiting) -> None:
        write(harness, store, MANY)
        whose: list[Any] = [(("*", None),), (("r:clerk", None), ("u:ann", False)), ()]
        rest: list[dict[str, Any]] = [
            {},
            {"name": "pay"},
            {"workflow": "claim"},
            {"workflow": "order", "key": "o-2"},
            {"reference": "ref"},
            {"label": ("team", "red")},
            {"label": ("team", "blue")},
            {"due_before": 8980},
            {"due_before": 8980, "name": "pay"},
            {"label": ("team", "red"), "name": "pay", "workflow": "claim"},
            {"without": "x:eve"},
            {"without": "x:eve", "workflow": "order", "key": "o-4"},
        ]
        for who, more, statuses, order in product(whose, rest, [(), ("completed",)], ["created", "due", "priority"]):
            filter = TaskFilter(who=who, statuses=statuses, order=order, limit=7, **more)
            everything = msgspec.structs.replace(filter, limit=1000)
            expected = merged([each.row for each in MANY if matches(filter, each)], everything)

            assert _pages(store, filter) == expected, filter
            assert ask(store.count_tasks(filter)) == len(expected), filter

    def test_paging_neither_skips_nor_repeats_while_tasks_come_and_go(self, harness: Harness, store: Waiting) -> None:
        write(harness, store, [task(n) for n in range(1, 21)])
        first = ask(store.tasks(TaskFilter(limit=8)))
        write(harness, store, [task(3, status="completed"), task(12, status="cancelled"), task(30)], begin=21)

        after = place_in("created", first[-1])
        rest = ask(store.tasks(TaskFilter(limit=50, after=after)))

        assert [row.id for row in first] == list(range(1, 9))
        assert [row.id for row in rest] == [*range(9, 12), *range(13, 21), 30]

    def test_check_finds_rows_of_tasks_that_lie(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        assert ask(player.store.check()) == []
        made = batch(removed=[b"none"])
        made.tasks = {1: task(1)}
        assert commit(harness, player.store, made) is None

        assert [problem[:22] for problem in ask(player.store.check())] == ["task 1: the rows are T"]
        player.store.close()


def _pages(store: Waiting, filter: TaskFilter) -> list[TaskRow]:
    """A whole list, page by page."""
    found: list[TaskRow] = []
    while rows := ask(store.tasks(filter)):
        found += rows
        filter = msgspec.structs.replace(filter, after=place_in(filter.order, rows[-1]))
    return found
