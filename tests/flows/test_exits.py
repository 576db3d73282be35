"""What wants to end the process, or the engine, from inside: `sys.exit()`, Ctrl-C, a close within a step."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Context
from perdure.errors import EngineClosed
from tests.flows.conftest import Stage, becomes
from tests.flows.rig import Rig


async def echo(value: Any) -> Any:
    return value


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
async def test_an_async_step_that_wants_to_end_the_process_uses_up_an_attempt(
    stage: Stage, kind: type[BaseException]
) -> None:
    async def leave() -> None:
        await asyncio.sleep(0)
        raise kind("bye")

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(retries=1, backoff=perdure.Backoff(base=0))("leave", leave)
        except perdure.StepFailed as failed:
            return f"{failed.attempts} attempts, {failed.error}"
        return "left"

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == f"2 attempts, {kind.__name__}: bye"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
async def test_a_flow_that_wants_to_end_the_process_is_stuck_and_alone(
    memory: Stage, kind: type[BaseException]
) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step("s", echo, 1)
        raise kind

    async with memory.open(flow, replay=False) as engine:
        handle = await engine.start(flow)
        await becomes(handle, "stuck")
        assert "cannot end the process" in str(await handle.error())


PROGRAM = """
import asyncio, signal, sys
import perdure

async def hit():
    signal.raise_signal(signal.SIGINT)

@perdure.flow
async def flow(ctx: perdure.Context) -> None:
    await ctx.step.options(retries=0)("hit", hit)

async def main():
    async with perdure.open(sys.argv[1], workflows=[flow], drain=600) as engine:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = await engine.start(flow, key="k")
        await handle.result()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_within_a_step_closes_in_good_order_and_does_not_wait_for_that_step(tmp_path: Path) -> None:
    """The drain has ten minutes, and the test less."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    done = subprocess.run(
        [sys.executable, program, tmp_path / "p.db"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.stdout == "interrupted\n", done.stderr

    async def look() -> tuple[str, str]:
        async with perdure.connect(tmp_path / "p.db") as client:
            handle = client.handle("flow", "k")
            return await handle.status(), (await handle.history())[-1].event

    assert asyncio.run(look()) == ("running", "parked"), "it has used up no attempt"


@pytest.mark.parametrize("colour", ["async", "plain"])
async def test_a_step_may_close_the_engine_that_runs_it(tmp_path: Path, colour: str) -> None:
    stack, loop = AsyncExitStack(), asyncio.get_running_loop()
    closed: list[str] = []

    async def close() -> None:
        await stack.aclose()
        closed.append("closed")

    def close_from_a_thread() -> None:
        asyncio.run_coroutine_threadsafe(close(), loop).result(60)

    how: Callable[[], Any] = close if colour == "async" else close_from_a_thread

    @perdure.flow
    async def flow(ctx: Context) -> str:
        if not closed:
            await ctx.step("close", how)
        return "done"

    url = tmp_path / "f.db"
    engine = await stack.enter_async_context(perdure.open(url, workflows=[flow], drain=60))
    handle = await engine.start(flow, key="k")
    async with asyncio.timeout(60):
        with pytest.raises(EngineClosed):
            await handle.result()
        with pytest.raises(EngineClosed):
            await handle.result()
        while not closed:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def now_quick() -> None:
        closed.append("again")

    how = now_quick
    closed.clear()
    async with perdure.open(url, workflows=[flow]) as again:  # the file is free, and the step loses no attempt
        assert await again.handle(flow, "k").result(60) == "done"
        assert closed == ["again"]


def test_an_abandoned_async_generator_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: ignored.append(repr(found.exc_value)))

    @perdure.flow
    async def flow(ctx: Context) -> None:
        async def numbers() -> Any:
            try:
                while True:
                    yield 1
            finally:
                await ctx.step("clean up", echo, 1)

        async for _ in numbers():
            await ctx.receive("go")

    async def story() -> None:
        async with perdure.open(":memory:", workflows=[flow]) as engine:
            await becomes(await engine.start(flow), "waiting")

    asyncio.run(story())
    gc.collect()
    assert ignored == []


def test_clean_up_code_of_an_evicted_flow_may_gather_and_warns_of_nothing() -> None:
    reached: list[str] = []

    @perdure.flow
    async def flow(ctx: Context) -> None:
        try:
            await asyncio.gather(ctx.receive("a"), ctx.receive("b"))
        finally:
            try:
                await asyncio.gather(ctx.step("x", echo, 1), ctx.step("y", echo, 2))
            finally:
                reached.append("the last finally")

    rig = Rig(flow)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        rig.machine.dispose()
        assert reached == ["the last finally"]
    assert found == []
