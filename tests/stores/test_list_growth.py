"""A list among many instances reads what it reads among few: counted in rows and steps, not in seconds."""

import re
from typing import Any

import apsw
import asyncpg
import pytest

from perdure.kernel.batch import HeadRow, TagRow
from perdure.kernel.rows import tag_rows
from perdure.stores.lists import listing, sql_of
from perdure.stores.postgres.statements import statements
from perdure.stores.sqlite import reads, schema
from tests.postgres import Server
from tests.stores.many import TEXTS, heads, questions

FEW, MANY = 8_000, 32_000
STEPS = 100
COLUMNS = ", ".join("?" * len(HeadRow._fields))


def filled(count: int) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    with connection:
        connection.executemany(f"INSERT INTO instances VALUES ({COLUMNS})", heads(count))
        connection.executemany(
            "INSERT INTO tags VALUES (?, ?, ?, ?)", (tag for head in heads(count) for tag in tag_rows(head))
        )
    return connection


@pytest.fixture(scope="module")
def databases() -> tuple[apsw.Connection, apsw.Connection]:
    return filled(FEW), filled(MANY)


def steps(connection: apsw.Connection, text: str) -> int:
    """What SQLite does for a list, in steps of its machine."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += STEPS
        return False

    connection.set_progress_handler(count, STEPS)
    try:
        assert sum(len(reads.page(connection, each, bounded=True).heads) for each in questions(text)) > 0
    finally:
        connection.set_progress_handler(None)
    return taken


@pytest.mark.parametrize("text", TEXTS)
def test_a_list_over_a_million_is_as_quick_as_over_a_thousand(
    databases: tuple[apsw.Connection, apsw.Connection], text: str
) -> None:
    few, many = (steps(connection, text) for connection in databases)

    assert many <= 1.2 * few + 2 * STEPS


async def test_a_list_reads_few_rows_of_many_on_postgresql(postgres: str, postgres_server: Server) -> None:
    name = postgres.partition("schema=")[2]
    connection = await asyncpg.connect(postgres_server.url)
    try:
        rows = list(heads(2 * FEW))
        tags = [tag for head in rows for tag in tag_rows(head)]
        await connection.copy_records_to_table("instances", records=rows, columns=HeadRow._fields, schema_name=name)
        await connection.copy_records_to_table("tags", records=tags, columns=TagRow._fields, schema_name=name)
        await connection.execute(f"ANALYZE {name}.instances; ANALYZE {name}.tags")
        read = {text: await rows_read(connection, name, text) for text in TEXTS}
    finally:
        await connection.close()

    assert {text: count for text, count in read.items() if count > FEW} == {}


async def rows_read(connection: Any, name: str, text: str) -> int:
    """Rows that come out of tables and indexes, and those that were read and left out."""
    read = 0
    for filter in questions(text):
        asking = listing(filter, bounded=True)
        question = next(asking)
        while True:
            sql, values = sql_of(question, statements(name), lambda number: f"${number + 1}", f"{name}.tags")
            plan = await connection.fetch(f"EXPLAIN (ANALYZE, TIMING off) {sql}", *values)
            for (line,) in plan:
                if found := re.search(r"Scan .*actual rows=(\d+) loops=(\d+)", line):
                    read += int(found[1]) * int(found[2])
                read += int(found[1]) if (found := re.search(r"Rows Removed by Filter: (\d+)", line)) else 0
            try:
                question = asking.send(await connection.fetch(sql, *values))
            except StopIteration:
                break
    return read
