"""What callers hold, used as they would: from another loop, with another object, by an id, entered in the wrong way."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import perdure


async def echo(value: int) -> int:
    return value


@perdure.flow
async def one_step(ctx: perdure.Context, value: int = 1) -> int:
    return await ctx.step("echo", echo, value)


async def refuse(value: int) -> None:
    raise perdure.Fatal("no")


@perdure.flow
async def not_undone(ctx: perdure.Context) -> None:
    await ctx.step.options(undo=refuse)("echo", echo, 1)
    raise perdure.RollBack("back")


@perdure.flow
async def patient(ctx: perdure.Context) -> object:
    return (await ctx.receive("go")).body


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[perdure.Engine]:
    async with perdure.open(tmp_path / "a.db", workflows=[one_step, patient, not_undone]) as engine:
        yield engine


# ---- another event loop -------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[perdure.Engine, perdure.Handle[Any]], Awaitable[Any]]] = {
    "start": lambda engine, handle: engine.start(one_step),
    "start by name": lambda engine, handle: engine.start("one_step"),
    "instances": lambda engine, handle: engine.instances(),
    "result": lambda engine, handle: handle.result(),
    "status": lambda engine, handle: handle.status(),
    "send": lambda engine, handle: handle.send("go"),
    "a new handle": lambda engine, handle: engine.handle(patient, "k").cancel(),
    "watch": lambda engine, handle: anext(handle.watch("x")),
    "stream": lambda engine, handle: anext(handle.stream()),
    "history": lambda engine, handle: handle.history(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_from_another_loop_is_refused_at_once_and_says_what_to_do(tmp_path: Path, call: str) -> None:
    async with opened(tmp_path) as engine:
        handle = await engine.start(patient, key="k")

        async def elsewhere() -> None:
            await CALLS[call](engine, handle)

        with pytest.raises(perdure.WrongLoop, match=r"run_coroutine_threadsafe\(engine.start\(...\), engine.loop\)"):
            await asyncio.to_thread(asyncio.run, elsewhere())

        assert await handle.status() == "waiting" and len(await engine.instances()) == 1


async def test_what_the_refusal_says_works(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:

        def in_a_thread() -> int:
            loop = engine.loop
            assert loop is not None
            handle = asyncio.run_coroutine_threadsafe(engine.start(one_step, 7), loop).result(60)
            return asyncio.run_coroutine_threadsafe(handle.result(), loop).result(60)

        assert await asyncio.to_thread(in_a_thread) == 7


async def test_an_engine_that_is_called_inside_a_flow_says_what_to_write_there(tmp_path: Path) -> None:
    @perdure.flow
    async def confused(ctx: perdure.Context) -> None:
        await engine.start(one_step)

    async with perdure.open(tmp_path / "b.db", workflows=[confused, one_step]) as engine:
        with pytest.raises(perdure.InstanceFailed, match=r"inside a workflow use ctx.child\(...\)"):
            await (await engine.start(confused)).result(60)


# ---- another object -----------------------------------------------------------------------------------------------


async def test_another_object_of_a_registered_name_and_version_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:

        @perdure.flow(name="one_step")
        async def edited(ctx: perdure.Context, value: int = 1) -> int:
            return -value

        with pytest.raises(perdure.CallerError, match="is not the one that is registered as 'one_step' in version '1'"):
            await engine.start(edited, 1)

        assert await engine.instances() == []
        assert await (await engine.start(one_step, 2)).result(60) == 2


# ---- ids ----------------------------------------------------------------------------------------------------------


async def test_the_id_of_a_handle_is_a_text_that_leads_back_to_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        handle = await engine.start(one_step, key="o-17/with/slashes")

        kept = json.loads(json.dumps({"id": handle.id}))["id"]

        assert kept == "one_step/o-17/with/slashes"
        assert await engine.handle(kept).result(60) == 1


@pytest.mark.parametrize("id", ["one_step", "one_step/", "/k", ""])
async def test_a_text_that_is_no_id_is_refused(tmp_path: Path, id: str) -> None:
    async with opened(tmp_path) as engine:
        with pytest.raises(perdure.CallerError):
            engine.handle(id)


# ---- until --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remote", [False, True])
async def test_until_returns_when_the_instance_has_the_status(tmp_path: Path, remote: bool) -> None:
    url = tmp_path / "a.db"
    async with perdure.open(url, workflows=[patient]) as engine, perdure.connect(url) as client:
        handle = await (client if remote else engine).start("patient", key="k")

        await handle.until("waiting", timeout=60)
        assert await handle.status() == "waiting"
        with pytest.raises(perdure.ResultTimeout, match=r"patient/k was not running after 0 s"):
            await handle.until("running", timeout=0)

        ended = asyncio.create_task(handle.until("completed", timeout=60))
        await handle.send("go", 1)
        await ended
        with pytest.raises(perdure.InstanceEnded, match="completed and will not be waiting"):
            await handle.until("waiting")
        with pytest.raises(perdure.CallerError, match="did you mean 'waiting'"):
            await handle.until("waitin")


async def test_until_does_not_wait_for_an_instance_that_is_stuck(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        handle = await engine.start(not_undone, key="k")

        with pytest.raises(perdure.InstanceStuck):
            await handle.until("completed", timeout=60)
        await handle.until("stuck", timeout=60)


# ---- entering -----------------------------------------------------------------------------------------------------


async def test_an_engine_that_was_not_entered_says_what_to_write(tmp_path: Path) -> None:
    entrance: Any = perdure.open(tmp_path / "a.db")
    client: Any = perdure.connect(tmp_path / "a.db")

    with pytest.raises(perdure.NotEntered, match=r"open\(...\) has no start: .* `async with perdure.open\(...\) as"):
        await entrance.start(one_step)
    with pytest.raises(perdure.NotEntered, match="plain `with`"), entrance:
        pass
    with pytest.raises(perdure.NotEntered, match="was awaited"):
        await client
    with pytest.raises(AttributeError):
        client.handle  # noqa: B018


def test_the_version_and_the_command_line_are_where_people_look_for_them() -> None:
    command = [sys.executable, "-m", "perdure", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said.split() == ["perdure", perdure.__version__] == ["perdure", version("perdure")]
