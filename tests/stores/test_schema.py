"""The SQL files: migrations end at the schema, and every named query is used."""

import json
import re
from hashlib import blake2b
from importlib.resources import files

import apsw
import pytest

from perdure.ports.store import Filter
from perdure.stores.lists import sql_of
from perdure.stores.sqlite import reads, schema
from perdure.stores.sqlite.statements import SQL
from perdure.testing.stores import entry
from tests.stores.questions import FILTERS, LISTS, NAMED, questions

PACKAGE = files("perdure.stores.sqlite")


def shape(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name")
    return [(type, name, re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split()))) for type, name, sql in rows]


def rows(connection: apsw.Connection) -> dict[str, object]:
    """What a database holds from its beginning."""
    tables = [name for type, name, _ in shape(connection) if type == "table"]
    return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}


def test_migrations_end_at_the_schema():
    migrated, direct = apsw.Connection(":memory:"), made()

    migrated.execute(schema.migration(1))
    migrated.pragma("user_version", 1)
    schema.migrate(migrated)

    assert shape(migrated) == shape(direct)
    assert rows(migrated) == rows(direct)
    for connection in (migrated, direct):
        assert schema.version_of(connection) == schema.VERSION
        assert connection.pragma("application_id") == schema.APPLICATION_ID


def test_there_is_one_migration_for_each_version():
    names = sorted(file.name for file in PACKAGE.joinpath("migrations").iterdir() if file.name.endswith(".sql"))

    assert names == [f"{number:04}.sql" for number in range(1, schema.VERSION + 1)]


def test_migrating_twice_changes_nothing():
    connection = made()
    before = shape(connection)

    schema.migrate(connection)

    assert shape(connection) == before


def test_a_database_of_the_first_version_is_brought_up_to_date():
    first = apsw.Connection(":memory:")
    first.execute(schema.migration(1))
    first.pragma("user_version", 1)
    first.execute("INSERT INTO journal (seq, instance, at, body) VALUES (1, 1, 1, x'00')")

    schema.migrate(first)

    assert shape(first) == shape(made())
    assert first.execute("SELECT count(*) FROM journal").get == 1


def test_the_large_bodies_of_an_older_database_stay_where_the_journal_finds_them():
    body = entry(1, 1, b"x" * 100_000).body
    digest = blake2b(body, digest_size=32).digest()
    older = apsw.Connection(":memory:")
    for number in (1, 2, 3):
        older.execute(schema.migration(number))
    older.pragma("user_version", 3)
    older.execute("INSERT INTO blobs (digest, body) VALUES (?, ?)", (digest, body))
    older.execute("INSERT INTO journal (seq, instance, at, body) VALUES (1, 1, 1001, ?)", (b"\0" + digest,))

    schema.migrate(older)

    assert shape(older) == shape(made())
    assert reads.journal(older, 0, 10) == [entry(1, 1, b"x" * 100_000)]
    assert older.execute("SELECT count(*) FROM blobs").get == 0


def test_tags_and_counts_of_an_older_database_become_rows():
    long = "x" * 600
    older = apsw.Connection(":memory:")
    for number in range(1, 10):
        older.execute(schema.migration(number))
    older.pragma("user_version", 9)
    older.executemany(
        """INSERT INTO instances
            (id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags)
        VALUES (?, 'order', ?, 1, '1', ?, ?, 90, ?, x'', ?)""",
        [
            (1, "a", "waiting", 30, 0, '{"team":"red"}'),
            (2, "b", "failed", 10, 1, json.dumps({"team": "red", long: "a\x00b"})),
            (3, "c", "completed", 20, 0, "{}"),
        ],
    )

    schema.migrate(older)

    def keys(filter: Filter) -> list[str]:
        return [head.key for head in reads.heads(older, filter)]

    assert shape(older) == shape(made())
    assert keys(Filter()) == ["a", "c", "b"]
    assert keys(Filter(tags={"team": "red"})) == ["a", "b"]
    assert keys(Filter(tags={long: "a\x00b"})) == ["b"]
    assert keys(Filter(root=1)) == ["a", "b"]
    assert keys(Filter(ended=(90, 91))) == ["c", "b"]
    assert reads.counts(older) == {
        ("order", "1", "waiting"): 1, ("order", "1", "failed"): 1, ("order", "1", "completed"): 1,
    }  # fmt: skip


def test_every_query_is_used_and_every_used_query_exists():
    code = "".join(file.read_text("utf-8") for file in PACKAGE.iterdir() if file.name.endswith(".py"))

    assert set(re.findall(r"(?<!`)\bSQL\.(\w+)", code)) | LISTS == set(vars(SQL))


def test_every_query_can_be_prepared():
    connection = made()

    for sql in vars(SQL).values():
        whole = sql.format(conditions="true", by="", order="DESC", limit="?", at="1", number="2")
        count = len(set(re.findall(r"\?\d+", whole))) or whole.count("?")
        connection.execute(f"EXPLAIN {whole}", [None] * count)


def test_the_queries_of_the_hot_path_use_an_index_and_sort_nothing():
    for sql in (SQL.head_by_name, SQL.history, SQL.due, SQL.inbox, SQL.inbox_by_name, SQL.blob, SQL.blobs):
        assert is_quick(sql), sql


@pytest.mark.parametrize("filter", [*FILTERS, *NAMED], ids=str)
def test_lists_of_heads_read_the_narrowest_index_and_sort_nothing(filter):
    for question in questions(filter):
        sql, _ = sql_of(question, SQL, lambda number: "?")

        few = filter.key and question.segment.by == "instances_by_name"  # generations of one key may be sorted
        assert is_quick(sql) or few, question
        assert question.segment.by in plan_of(sql)


def test_a_list_of_a_tag_reads_the_rows_of_that_tag_and_the_heads_of_these():
    (wanted,) = questions(Filter(tags={"team": "red"}))
    sql, values = sql_of(wanted, SQL, lambda number: "?")

    assert plan_of(sql).splitlines() == [
        "SEARCH tags USING PRIMARY KEY (name=? AND value=?)",
        "SEARCH instances USING INTEGER PRIMARY KEY (rowid=?)",
    ]
    assert values == ["team", "red", 100]


def made() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    return connection


def is_quick(sql: str) -> bool:
    """Lists of all instances read their index from its end."""
    plan = plan_of(sql).replace("SCAN instances USING INDEX instances_by_start", "")
    plan = plan.replace("SCAN instances USING COVERING INDEX instances_by_start", "")
    return "SCAN" not in plan and "TEMP B-TREE" not in plan


def plan_of(sql: str) -> str:
    plan = made().execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?"))
    return "\n".join(str(step[3]) for step in plan)
