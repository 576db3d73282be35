"""The SQL tools, on real databases."""

import asyncio
from datetime import UTC, datetime

import pytest

from perdure.tools import ToolCall, ToolError, find
from tests.postgres import server


@pytest.fixture(scope="module")
def postgres():
    return server().url


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def database(request, tmp_path):
    """The name of a tool and a function that runs SQL with it."""
    dsn = request.getfixturevalue("postgres") if request.param == "postgres" else str(tmp_path / "t.db")
    tool = find(request.param)

    async def run(key="k", **params):
        told = await tool.run(tool.read({"dsn": dsn, **params}), ToolCall(key, 10.0))
        return told.result

    asyncio.run(
        run(script="drop table if exists t; drop table if exists perdure_once; create table t (n int, s varchar(100))")
    )
    run.tool = request.param  # type: ignore[attr-defined]
    return run


async def test_values_are_bound_and_rows_come_back(database):
    await database(query="insert into t values (:n, :s)", params={"n": 1, "s": "it's :n"})
    await database(commands=["insert into t values (2, :s)", "insert into t values (3, :s)"], params={"s": "x"})

    found = await database(
        query="select n, s, ':no' as q from t where n < :most -- :not\n order by n", params={"most": 3}
    )

    assert found == {
        "rows": [{"n": 1, "s": "it's :n", "q": ":no"}, {"n": 2, "s": "x", "q": ":no"}],
        "row_count": 2,
        "columns": ["n", "s", "q"],
    }


async def test_a_bound_value_cannot_change_the_statement(database):
    evil = "x'); drop table t; --"

    await database(query="insert into t values (1, :s)", params={"s": evil})

    assert (await database(query="select s from t"))["rows"] == [{"s": evil}]


async def test_the_result_is_that_of_the_last_statement(database):
    several = "insert into t values (1, 'a'); insert into t values (2, 'b'); select n from t order by n;"

    assert (await database(query=several))["rows"] == [{"n": 1}, {"n": 2}]


async def test_no_rows_have_columns_too(database):
    assert await database(query="select n from t") == {"rows": [], "row_count": 0, "columns": ["n"]}


async def test_a_time_with_a_zone_comes_back_as_that_moment(database):
    if database.tool == "sqlite":
        pytest.skip("SQLite has no such type")

    found = await database(query="select timestamptz '2026-01-02 03:04:05+02' as at")

    assert found["rows"] == [{"at": datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)}]


async def test_a_failure_leaves_nothing(database):
    with pytest.raises(ToolError) as raised:
        await database(commands=["insert into t values (1, 'a')", "insert into nowhere values (1)"])

    assert raised.value.kind == "sql_error"
    assert (await database(query="select count(*) as n from t"))["rows"] == [{"n": 0}]


async def test_exactly_once_keeps_key_and_result_in_the_transaction(database):
    first = await database("visit-1", query="insert into t values (1, 'a') returning n", exactly_once=True)
    again = await database("visit-1", query="insert into t values (1, 'a') returning n", exactly_once=True)
    await database("visit-2", query="insert into t values (1, 'a')", exactly_once=True)

    assert again == first
    assert (await database(query="select count(*) as n from t"))["rows"] == [{"n": 2}]


async def test_more_rows_than_allowed_are_an_error(database):
    for n in range(3):
        await database(query="insert into t values (:n, '')", params={"n": n})

    with pytest.raises(ToolError) as raised:
        await database(query="select * from t", max_rows=2)

    assert raised.value.kind == "too_large"


async def test_bad_parameters(database):
    for params in ({}, {"query": "select 1", "script": "select 1"}, {"query": "select :x", "params": {}}):
        with pytest.raises(ToolError) as raised:
            await database(**params)
        assert raised.value.kind == "bad_parameters"


async def test_lists_and_maps_are_json(postgres):
    tool = find("postgres")
    params = {
        "dsn": postgres,
        "query": "select :a::jsonb->>'k' as k, cardinality(:b) as n",
        "params": {"a": {"k": "v"}, "b": [1, 2]},
    }

    told = await tool.run(tool.read(params), ToolCall("k"))

    assert told.result["rows"] == [{"k": "v", "n": 2}]


async def test_a_server_that_is_not_there_is_connect():
    with pytest.raises(ToolError) as raised:
        await find("postgres").run(
            find("postgres").read({"dsn": "postgresql://127.0.0.1:1/x", "query": "select 1"}), ToolCall("k", 2.0)
        )

    assert (raised.value.kind, raised.value.retryable) == ("connect", True)
