"""Steps that may run once only: a crash leaves their outcome unknown, and a person (or the flow) settles it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, Literal

import pytest

import perdure
from perdure import (
    BadCall,
    CallerError,
    Context,
    InstanceFailed,
    InstanceStuck,
    NotConvertible,
    NotStuck,
    OutcomeUnknown,
)
from perdure.kernel.events import CancelAsked, Retried, Settled
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.workflows import Workflows
from perdure.runtime.handle import Handle
from perdure.server.problems import problem_of
from perdure.verbs.act import SettleParams, settle

from .conftest import Stage, becomes, until
from .rig import Rig, same_in_every_rebuild

UNKNOWN = Receipt("unknown", error=Failure("ProcessDied", "the process died", retry=False))


def paying(unknown: Literal["stuck", "raise"] = "stuck") -> tuple[perdure.Flow[Any, Any], list[str], asyncio.Event]:
    paid: list[str] = []
    go = asyncio.Event()

    @perdure.step(once=True, unknown=unknown, retries=2, backoff=perdure.Backoff(base=0))
    async def pay(amount: int) -> str:
        paid.append(f"pay {amount}")
        await go.wait()
        return "receipt 1"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            receipt = await pay(5)
        except OutcomeUnknown:
            receipt = "looked up"
        return f"{receipt}, shipped {await ctx.step('ship', ship)}"

    async def ship() -> str:
        return "parcel"

    return flow, paid, go


async def crashed(disk: Stage, flow: perdure.Flow[Any, Any], paid: list[str]) -> None:
    """Its process dies while the step runs."""
    async with disk.open(flow, replay=False) as engine:
        await engine.start(flow, key="k")
        await until(lambda: bool(paid))
        disk.crash()


async def test_a_crash_makes_the_outcome_unknown_and_the_instance_stuck(disk: Stage) -> None:
    flow, paid, _ = paying()
    await crashed(disk, flow, paid)

    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        with pytest.raises(InstanceStuck, match="whether step 'pay' took effect is not known"):
            await handle.result(60)
        assert paid == ["pay 5"]

        await handle.settle("pay", "receipt 7")

        assert await handle.result(60) == "receipt 7, shipped parcel"
        assert paid == ["pay 5"]
        assert "settled" in [line.event for line in await handle.history()]


async def test_settled_as_an_error_it_is_a_failed_step(disk: Stage) -> None:
    flow, paid, _ = paying()
    await crashed(disk, flow, paid)

    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await becomes(handle, "stuck")

        await handle.settle("pay", error="the bank says no")

        with pytest.raises(InstanceFailed, match="the bank says no"):
            await handle.result(60)


async def test_a_retry_runs_it_again_as_another_attempt(disk: Stage) -> None:
    flow, paid, go = paying()
    await crashed(disk, flow, paid)
    go.set()

    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await becomes(handle, "stuck")

        await handle.retry()

        assert await handle.result(60) == "receipt 1, shipped parcel"
        assert paid == ["pay 5", "pay 5"]


async def test_the_flow_can_handle_it_itself(disk: Stage) -> None:
    flow, paid, _ = paying(unknown="raise")
    await crashed(disk, flow, paid)

    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == "looked up, shipped parcel"
        assert paid == ["pay 5"]


async def test_an_engine_that_is_stopped_in_good_order_does_not_run_it_again(disk: Stage) -> None:
    flow, paid, _ = paying()
    async with disk.open(flow, replay=False) as engine:
        await engine.start(flow, key="k")
        await until(lambda: bool(paid))

    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await becomes(handle, "stuck")
        assert "stopped while it ran" in str(await handle.error())
        await handle.settle("pay", "receipt 7")
        assert await handle.result(60) == "receipt 7, shipped parcel"
        assert paid == ["pay 5"]


async def test_only_what_is_stuck_can_be_settled_and_only_where_it_is(disk: Stage) -> None:
    flow, paid, _ = paying()
    await crashed(disk, flow, paid)

    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await becomes(handle, "stuck")
        with pytest.raises(CallerError, match="not stuck at 'ship'"):
            await handle.settle("ship", 1)
        await handle.settle("pay", "receipt 7")
        await handle.result(60)
        with pytest.raises(NotStuck):
            await handle.settle("pay", "receipt 8")


@pytest.mark.parametrize(
    "answer", [Settled("pay", Receipt("ok")), Retried(), CancelAsked()], ids=lambda a: type(a).__name__
)
def test_every_answer_is_the_same_in_every_rebuild(answer: Any) -> None:
    async def nothing() -> None: ...

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        return [str(value) for value in (await ctx.join("both", {"a": branch("a"), "b": branch("b")})).values()]

    def branch(name: str) -> Any:
        async def run(ctx: Context) -> Any:
            return await ctx.step.options(once=True)("pay", nothing)

        return run

    def drive(rig: Rig) -> Any:
        decision = rig.answer("both/a/pay", UNKNOWN)
        assert decision.stuck is not None
        assert decision.stuck.location == "both/a/pay"
        rig.deliver(answer if not isinstance(answer, Settled) else Settled("both/a/pay", answer.receipt))
        return rig.run()

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == ("cancelled: Cancelled" if isinstance(answer, CancelAsked) else ["None", "None"])


async def test_an_answer_that_does_not_fit_leaves_it_stuck(disk: Stage) -> None:
    flow, paid, _ = paying()
    await crashed(disk, flow, paid)

    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await becomes(handle, "stuck")
        before = await handle.history()
        with pytest.raises(NotConvertible, match=r"the answer for 'pay': \$: expected str, found int 17"):
            await handle.settle("pay", 17)
        for dry_run in (True, False):
            with pytest.raises(NotConvertible, match=r"the answer for 'pay'") as refused:
                await settle(engine, SettleParams("flow/k", "pay", value=7, dry_run=dry_run))
            problem = problem_of(refused.value)
            assert problem is not None and (problem.status, problem.code) == (422, "invalid-input")
        assert await handle.history() == before

        without_code: Handle[Any] = Handle(handle._connection, handle.address, flow, None, Workflows([]))
        await without_code.settle("pay", 17)
        with pytest.raises(InstanceStuck, match=r"what was given does not fit: the answer for 'pay'.*expected str"):
            await handle.result(60)

        await handle.settle("pay", "receipt 7")

        assert await handle.result(60) == "receipt 7, shipped parcel"


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def test_a_child_process_that_dies_leaves_the_outcome_unknown(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(once=True, executor="process")("kill", kill_this_process)

    async with memory.open(flow) as engine:
        handle = await engine.start(flow)
        with pytest.raises(InstanceStuck, match="before it had an answer"):
            await handle.result(60)
        assert [line.event for line in await handle.history()] == ["started", "receipt"]
        await handle.settle("kill")
        await handle.result(60)


def test_once_and_ephemeral_exclude_each_other() -> None:
    with pytest.raises(BadCall, match="cannot run once only"):
        perdure.step(once=True, ephemeral=True)
