"""The SQL files: migrations end at the schema, every named query is used, and the hot ones go by an index."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

import perdure
from perdure.errors import CannotOpen, EngineRunning
from perdure.ports.store import Filter
from perdure.stores.answers import asked
from perdure.stores.lists import sql_of
from perdure.stores.postgres import PostgresDatabase, new_script, schema, upgrade
from perdure.stores.postgres.connections import QUICK
from perdure.stores.postgres.statements import quoted, statements, text_of
from tests.postgres import Server, changed
from tests.stores.questions import FILTERS, LISTS, questions

PACKAGE = files("perdure.stores.postgres")
SQL = statements("perdure")

COLUMNS = """
SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default, collation_name, is_identity
FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 2
"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1 ORDER BY 1"
OPTIONS = """
SELECT relname, reloptions FROM pg_class JOIN pg_namespace AS place ON place.oid = relnamespace
WHERE nspname = $1 AND relkind = 'r' ORDER BY 1
"""
CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(rule.oid) FROM pg_constraint AS rule
JOIN pg_namespace AS place ON place.oid = connamespace WHERE nspname = $1 ORDER BY 1, 2
"""


async def shape(connection: Any, name: str) -> str:
    found = [await connection.fetch(query, name) for query in (COLUMNS, INDEXES, OPTIONS, CONSTRAINTS)]
    return str(found).replace(name, "perdure")


def plain(text: str) -> str:
    """Without the quotes that a name with a space needs, and those that are escaped for them."""
    return text.translate(dict.fromkeys(map(ord, "\\\"'")))


@perdure.flow
async def small(ctx: perdure.Context) -> str:
    return "done"


@asynccontextmanager
async def connected(url: str, **settings: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def test_migrations_end_at_the_schema(postgres: str, postgres_server: Server):
    direct = postgres.partition("schema=")[2]
    async with connected(postgres_server.url) as connection:
        await connection.execute("DROP SCHEMA IF EXISTS migrated CASCADE; CREATE SCHEMA migrated")
        for number in range(1, schema.VERSION + 1):
            await connection.execute(text_of(f"migrations/{number:04}.sql", "migrated"))

        assert await shape(connection, "migrated") == await shape(connection, direct)
        assert await schema.version_of(connection, direct) == schema.VERSION
        await connection.execute("DROP SCHEMA migrated CASCADE")


def test_there_is_one_migration_for_each_version():
    names = sorted(file.name for file in PACKAGE.joinpath("migrations").iterdir() if file.name.endswith(".sql"))

    assert names == [f"{number:04}.sql" for number in range(1, schema.VERSION + 1)]


async def made_first(connection: Any, url: str) -> str:
    """A database of the first version, with something in it; its engine is long dead."""
    name = url.partition("schema=")[2]
    await connection.execute(f"CREATE SCHEMA {name}")
    await connection.execute(text_of("migrations/0001.sql", name) + text_of("functions.sql", name))
    await connection.execute(
        f"""INSERT INTO {name}.migrations (version) VALUES (1);
        INSERT INTO {name}.shards (shard, epoch, owner, pid, host, since, expires)
        SELECT generate_series(0, 3), 7, 'first', 1, 'host', now() - interval '1 day', now() - interval '1 day';
        INSERT INTO {name}.engines (name, expires) VALUES ('first', now() - interval '1 day');
        INSERT INTO {name}.snapshots (instance, seq, body) VALUES (1, 1, 'snapshot');
        INSERT INTO {name}.journal (seq, instance, at, body) VALUES (1, 1, 1001, 'entry')"""
    )
    return name


async def test_a_database_of_the_first_version_is_brought_up_to_date(postgres: str, postgres_server: Server):
    with postgres_server.name() as url:
        async with connected(postgres_server.url) as connection:
            name = await made_first(connection, url)
            with pytest.raises(
                CannotOpen, match=f"has schema 1, this perdure {schema.VERSION}; stop its engines, then"
            ):
                await PostgresDatabase.open(url)

            done = await upgrade(url)

            assert (done.before, done.version, done.shards) == (1, schema.VERSION, 4)
            assert await shape(connection, name) == await shape(connection, postgres.partition("schema=")[2])
        database = await PostgresDatabase.open(url)
        assert [row.body for row in await database.queries.journal(0, 10)] == [b"entry"]
        standing = await database.renew("second", {})
        assert standing.free == (0, 1, 2, 3)
        assert (await asked(database.store(2).acquire, "second")).epoch == 8
        await database.close()


async def test_tags_and_counts_of_an_older_database_become_rows(postgres_server: Server):
    long = "x" * 600
    with postgres_server.name() as url:
        async with connected(postgres_server.url) as connection:
            name = await made_first(connection, url)
            await connection.executemany(
                f"""INSERT INTO {name}.instances
                    (id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags)
                VALUES ($1, 'order', $2, 1, '1', $3, $4, 90, $5, '', $6)""",
                [
                    (1, "a", "waiting", 30, 0, '{"team":"red"}'),
                    (2, "b", "failed", 10, 1, json.dumps({"team": "red", long: long})),
                    ((3 << 48) + 1, "c", "completed", 20, 0, "{}"),
                ],
            )

            await upgrade(url)

            shards = await connection.fetch(f"SELECT shard, status, count FROM {name}.counts ORDER BY 1, 2")
            assert [tuple(row) for row in shards] == [(0, "failed", 1), (0, "waiting", 1), (3, "completed", 1)]
        database = await PostgresDatabase.open(url)
        queries = database.queries
        assert [head.key for head in await queries.heads(Filter())] == ["a", "c", "b"]
        assert [head.key for head in await queries.heads(Filter(tags={"team": "red"}))] == ["a", "b"]
        assert [head.key for head in await queries.heads(Filter(tags={long: long}))] == ["b"]
        assert [head.key for head in await queries.heads(Filter(root=1))] == ["a", "b"]
        assert [head.key for head in await queries.heads(Filter(ended=(90, 91)))] == ["c", "b"]
        assert await queries.counts() == {
            ("order", "1", "waiting"): 1, ("order", "1", "failed"): 1, ("order", "1", "completed"): 1,
        }  # fmt: skip
        wrong = ("has no row", "the instance has not", "are counted")
        assert not [problem for problem in await queries.check() if any(text in problem for text in wrong)]
        await database.close()


@pytest.mark.parametrize("name", ["a$b$", 'it\'s "mine"; --', "Übung.x", "perdure.journal"])
async def test_a_schema_may_have_a_strange_name(postgres_server: Server, name: str):
    url = changed(postgres_server.url, schema=quote(name))
    try:
        await upgrade(url)

        async with perdure.open(url, workflows=[small]) as engine:
            assert await (await engine.start(small, tags={"a": "b"})).result(60) == "done"
            assert len(await engine.instances(workflow=small, tags={"a": "b"})) == 1
            assert await engine.queries.check() == []
    finally:
        await postgres_server.execute_now(f"DROP SCHEMA IF EXISTS {quoted(name)} CASCADE")


async def test_nothing_is_upgraded_while_an_engine_runs(postgres_server: Server):
    with postgres_server.name() as url:
        async with connected(postgres_server.url) as connection:
            name = await made_first(connection, url)
            await connection.execute(f"UPDATE {name}.engines SET expires = now() + interval '1 minute'")
            before = await shape(connection, name)

            with pytest.raises(EngineRunning, match=r"first runs on .* nothing was changed"):
                await upgrade(url)

            assert await shape(connection, name) == before


async def test_upgrading_twice_changes_nothing(postgres: str, postgres_server: Server):
    name = postgres.partition("schema=")[2]
    async with connected(postgres_server.url) as connection:
        before = await shape(connection, name)

        done = await upgrade(postgres)

        assert (done.before, done.version, done.shards) == (schema.VERSION, schema.VERSION, 16)
        assert await shape(connection, name) == before


async def test_the_printed_script_makes_the_same_as_the_command(postgres: str, postgres_server: Server):
    name = postgres.partition("schema=")[2]
    async with connected(postgres_server.url) as connection:
        await connection.execute('DROP SCHEMA IF EXISTS "by hand" CASCADE')
        await connection.execute(new_script("by hand", shards=3))

        printed = await shape(connection, "by hand")
        assert plain(printed) == plain(await shape(connection, name))
        assert await connection.fetchval('SELECT count(*) FROM "by hand".shards') == 3
        await connection.execute('DROP SCHEMA "by hand" CASCADE')


def test_every_query_is_used_and_every_used_query_exists():
    code = "".join(file.read_text("utf-8") for file in PACKAGE.iterdir() if file.name.endswith(".py"))

    used = set(re.findall(r"sql\.(\w+)", code)) | set(re.findall(r"\bstatements\(\w+(?:\.\w+)?\)\.(\w+)", code))
    assert used | LISTS == set(vars(SQL))


PARTS = {"{conditions}": "true", "{order}": "DESC", "{limit}": "$1", "{at}": "1", "{number}": "2"}


async def test_every_query_can_be_prepared(postgres: str, postgres_server: Server):
    async with connected(postgres_server.url) as connection:
        for sql in vars(statements(postgres.partition("schema=")[2])).values():
            await connection.prepare(re.sub(r"\{\w+\}", lambda sign: PARTS[sign[0]], sql))


async def test_the_queries_of_the_engine_use_an_index_and_sort_nothing(postgres: str, postgres_server: Server):
    sql = statements(postgres.partition("schema=")[2])
    async with connected(postgres_server.url, **QUICK) as connection:
        for query in (
            sql.due, sql.inbox, sql.head_by_name, sql.history, sql.records, sql.running, sql.last_entry,
            sql.commit_lone, sql.commit_headed,
        ):  # fmt: skip
            plan = await plan_of(connection, query)
            assert "Seq Scan" not in plan.replace("Seq Scan on world_snapshots", ""), plan
            # The histories of an instance come from their index in order; only two rows at most are ever sorted.
            assert "Sort" not in plan or query == sql.last_entry, plan


@pytest.mark.parametrize("filter", FILTERS, ids=str)
async def test_lists_of_heads_read_the_narrowest_index_and_sort_nothing(
    postgres: str, postgres_server: Server, filter: Filter
):
    name = postgres.partition("schema=")[2]
    async with connected(postgres_server.url, **QUICK) as connection:
        for question in questions(filter):
            query, _ = sql_of(question, statements(name), lambda number: f"${number + 1}", f"{name}.tags")
            plan = await plan_of(connection, query)

            by = {"tags": "tags_pkey", "": "instances_pkey"}.get(question.segment.by, question.segment.by)
            assert f"using {by} " in plan, (question, plan)
            assert "Seq Scan" not in plan, (question, plan)
            assert "Sort" not in plan or not question.segment.by, (question, plan)  # one row is sorted, or none


async def test_a_list_of_a_rare_tag_reads_its_rows_among_many_instances(postgres: str, postgres_server: Server):
    """As the server plans it by its statistics, with the settings of a client."""
    name = postgres.partition("schema=")[2]
    async with connected(postgres_server.url) as connection:
        await connection.execute(
            f"""INSERT INTO {name}.instances
                (id, workflow, key, generation, version, status, started_at, changed_at, parent, input_hash, tags)
            SELECT n, 'order', n, 1, '1', 'completed', n, n, 0, '', '{{}}' FROM generate_series(1, 20000) AS n;
            INSERT INTO {name}.tags (name, value, started_at, instance)
            SELECT 'size', 'big', n, n FROM generate_series(1, 20000) AS n
            UNION ALL SELECT 'team', 'red', n, n FROM generate_series(1, 20000, 5000) AS n;
            ANALYZE {name}.instances; ANALYZE {name}.tags"""
        )
        for wanted in (Filter(tags={"team": "red"}), Filter(workflow="order", tags={"team": "red", "size": "big"})):
            for question in questions(wanted)[-1:]:
                query, values = sql_of(question, statements(name), lambda number: f"${number + 1}", f"{name}.tags")
                rows = await connection.fetch(f"EXPLAIN (ANALYZE, TIMING off) {query}", *values)
                plan = "\n".join(row[0] for row in rows)

                assert "Seq Scan on instances" not in plan, plan
                assert "Index Cond: ((name = 'team'::text) AND (value = 'red'::text)" in plan, plan
                assert max(map(int, re.findall(r"actual rows=(\d+)", plan))) <= 4, plan


async def plan_of(connection: Any, query: str) -> str:
    """The generic plan, as the server makes it for whatever values."""
    names = {"int4": "integer", "int8": "bigint"}
    prepared = await connection.prepare(query)
    types = [kind.name for kind in prepared.get_parameters()]
    texts = [
        f"{names.get(kind.removesuffix('[]'), kind.removesuffix('[]'))}{'[]' * kind.endswith('[]')}" for kind in types
    ]
    await connection.execute(f"PREPARE asked ({', '.join(texts)}) AS {query}")
    rows = await connection.fetch(f"EXPLAIN EXECUTE asked ({', '.join(['NULL'] * len(texts))})")
    await connection.execute("DEALLOCATE asked")
    return "\n".join(row[0] for row in rows)
