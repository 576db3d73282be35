"""The SQL files: migrations end at the schema, and every named query is used."""

import re
from hashlib import blake2b
from importlib.resources import files

import apsw
import pytest

from perdure.stores.sqlite import reads, schema
from perdure.stores.sqlite.statements import SQL
from perdure.testing.stores import entry

PACKAGE = files("perdure.stores.sqlite")


def shape(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name")
    return [(type, name, re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split()))) for type, name, sql in rows]


def test_migrations_end_at_the_schema():
    migrated, direct = made(), apsw.Connection(":memory:")

    direct.execute(schema.schema())

    assert shape(migrated) == shape(direct)
    assert schema.version_of(migrated) == schema.VERSION
    assert migrated.pragma("application_id") == schema.APPLICATION_ID


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


def test_every_query_is_used_and_every_used_query_exists():
    code = "".join(file.read_text("utf-8") for file in PACKAGE.iterdir() if file.name.endswith(".py"))

    assert set(re.findall(r"(?<!`)\bSQL\.(\w+)", code)) == set(vars(SQL))


def test_every_query_can_be_prepared():
    connection = made()

    for sql in vars(SQL).values():
        numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
        values = max(numbered, default=sql.count("?"))
        connection.execute(f"EXPLAIN {sql.format(conditions='true')}", [None] * values)


def test_the_queries_of_the_hot_path_use_an_index_and_sort_nothing():
    for sql in (SQL.head_by_name, SQL.history, SQL.due, SQL.inbox, SQL.inbox_by_name, SQL.blob, SQL.blobs):
        assert is_quick(sql), sql


@pytest.mark.parametrize("conditions", ["workflow = ?", "status = ?", "parent = ? AND parent <> 0"])
def test_lists_of_heads_use_an_index_and_sort_nothing(conditions):
    assert is_quick(SQL.heads.format(conditions=conditions))


def made() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    return connection


def is_quick(sql: str) -> bool:
    plan = made().execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?"))
    steps = [str(step[3]) for step in plan]
    return not any("SCAN" in step or "TEMP B-TREE" in step for step in steps)
