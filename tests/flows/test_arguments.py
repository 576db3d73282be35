"""The arguments of a start: what the workflow does not take is refused, wherever the start comes from."""

from __future__ import annotations

import inspect
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure import ChildFailed, Context, FlowWarning, InstanceFailed, NotConvertible
from perdure.flows.author import OPTIONS_OF_START

from .conftest import Stage


async def echo(value: Any) -> Any:
    return value


@perdure.flow
async def transfer(ctx: Context, account: str, cents: int = 100, rate: float = 1) -> str:
    moved = await ctx.step("move", echo, cents)
    return f"{moved} to {account} at {rate}"


@perdure.flow
async def booked(ctx: Context, /, when: datetime, *rest: int, **options: str) -> str:
    return f"{when:%Y} {list(rest)} {options}"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"account": "a", "cent": 5},
            r"transfer: \$.cent: expected a call transfer\(account: str, cents: int = 100, rate: float = 1.0\), "
            "found an argument 'cent' that it does not take; did you mean 'cents'?",
        ),
        ({"account": "a", "b": 1, "c": 2}, "found the arguments 'b', 'c', which it does not take"),
        ({"cents": 5}, "found no argument 'account'"),
        ({"account": "a", "cents": "5"}, r"\$.cents: expected int, found str '5'"),
    ],
)
async def test_a_client_without_code_refuses_a_wrong_call(tmp_path: Path, arguments: Any, text: str) -> None:
    url = tmp_path / "a.db"
    async with perdure.open(url, workflows=[transfer]) as engine, perdure.connect(url) as client:
        for start in (
            lambda: client.start("transfer", **arguments),
            lambda: client.start_plain("transfer", arguments),
        ):
            with pytest.raises(NotConvertible, match=text):
                await start()

        assert await engine.instances() == []


async def test_a_right_call_by_name_is_recorded_as_the_workflow_itself_would_record_it(tmp_path: Path) -> None:
    url = tmp_path / "a.db"
    async with perdure.open(url, workflows=[transfer, booked]) as engine, perdure.connect(url) as client:
        await engine.start(transfer, "a", rate=2, key="t")
        await engine.start(booked, datetime(2026, 1, 1, tzinfo=UTC), seat="7", key="b")

        by_name = await client.start("transfer", account="a", rate=2, key="t")
        from_json = await client.start_plain("booked", {"when": "2026-01-01T00:00:00Z", "seat": "7"}, key="b")

        assert await by_name.result(60) == "100 to a at 2.0"
        assert await from_json.result(60) == "2026 [] {'seat': '7'}"


async def test_where_the_database_knows_no_parameters_the_instance_fails_and_names_them(tmp_path: Path) -> None:
    url = tmp_path / "a.db"
    async with perdure.open(url, workflows=[transfer]):
        pass
    with closing(apsw.Connection(str(url))) as connection:
        connection.execute("UPDATE workflows SET parameters = x''")  # as a migration leaves them
    async with perdure.connect(url) as client:
        await client.start("transfer", account="a", cent=5, key="k")

    async with perdure.open(url, workflows=[transfer]) as engine:
        with pytest.raises(InstanceFailed, match="an argument 'cent' that it does not take"):
            await engine.handle(transfer, "k").result(60)


async def test_a_child_by_name_refuses_a_misspelt_argument_and_so_does_its_retry(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> list[str]:
        said = []
        for wrong in ({"account": "a", "cent": 5}, {}, {"account": 3}):
            try:
                await ctx.child("transfer", **wrong)
            except ChildFailed as failed:
                said.append(str(failed.error).partition("found ")[2])
        return said

    async with stage.open(parent, transfer) as engine:
        handle = await engine.start(parent, key="p")
        assert await handle.result(60) == [
            "an argument 'cent' that it does not take; did you mean 'cents'?",
            "nothing",
            "int 3",
        ]
        child = engine.handle(transfer, "p/transfer")
        await child.retry()
        with pytest.raises(InstanceFailed, match="cent"):
            await child.result(60)


async def test_a_delayed_start_with_a_misspelt_argument_fails_at_once_and_does_not_run_after_a_restart(
    disk: Stage,
) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> str:
        return str(await ctx.child("transfer", account="a", cent=5, delay=3600))

    async with disk.open(parent, transfer) as engine:
        handle = await engine.start(parent)
        with pytest.raises(InstanceFailed, match="cent"):
            await handle.result(60)


async def test_an_instance_goes_on_and_goes_back_when_its_code_no_longer_takes_an_argument(disk: Stage) -> None:
    async def then(ctx: Context, account: str, currency: str) -> str:
        await ctx.step("first", echo, account)
        return str((await ctx.receive("go")).body)

    async def now(ctx: Context, account: str) -> str:
        await ctx.step("first", echo, account)
        return str((await ctx.receive("go")).body)

    async with disk.open(perdure.flow(name="pay")(then)) as engine:
        await (await engine.start("pay", "a", "EUR", key="k")).read("nothing")

    newer = perdure.flow(name="pay")(now)
    async with disk.open(newer, replay=False) as engine:
        handle = engine.handle(newer, "k")
        await handle.rewind("first", force=True)
        await handle.send("go", 1)
        assert await handle.result(60) == "1"


def test_a_parameter_that_is_named_like_an_option_of_start_is_told_where_it_is_defined() -> None:
    with pytest.warns(FlowWarning, match="'key', which is also an option of engine.start: .* pass it by position"):

        @perdure.flow
        async def find(ctx: Context, key: str) -> None: ...

    with pytest.warns(FlowWarning, match="'delay', which"):

        @perdure.flow
        async def later(ctx: Context, *, delay: int = 0) -> None: ...


def test_every_option_of_start_is_known_as_one() -> None:
    parameters = inspect.signature(perdure.Client.start).parameters.values()

    assert {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} == OPTIONS_OF_START
