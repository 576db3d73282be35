"""Deadlines against messages and answers where an engine was down or busy; timers against clocks that are set."""

import asyncio
import logging
import random

import pytest

import perdure
from perdure import Context, ReceiveTimeout
from perdure.codec import encode
from perdure.kernel.batch import JournalRow
from perdure.kernel.events import Address, Message
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rows import inbox_row
from perdure.runtime.virtual_clock import SECOND
from perdure.testing.faults import Faults
from perdure.testing.simulation import SimulatedRequest, Simulation
from tests.entries import entries_of
from tests.flows.rig import Rig

DAY = 24 * 3600


@perdure.flow
async def by_receive(ctx: Context) -> str:
    try:
        return str((await ctx.receive("go", timeout=5)).body)
    except ReceiveTimeout:
        return "late"


@perdure.flow
async def by_timeout(ctx: Context) -> str:
    try:
        async with asyncio.timeout(5):
            return str((await ctx.receive("go")).body)
    except TimeoutError:
        return "late"


@perdure.flow
async def by_race(ctx: Context) -> str:
    async def receive() -> str:
        return str((await ctx.receive("go")).body)

    async def sleep() -> str:
        await ctx.sleep("sleep", 5)
        return "late"

    answer: str
    _, answer = await ctx.race("race", {"go": receive, "sleep": sleep})
    return answer


@perdure.flow
async def leaf(ctx: Context) -> str:
    return str((await ctx.receive("go")).body)


@perdure.flow
async def parent(ctx: Context) -> str:
    try:
        async with asyncio.timeout(5):
            return str(await ctx.child(leaf, key="leaf"))
    except TimeoutError:
        return "late"


FLOWS = [by_receive, by_timeout, by_race]


def go_down(world: Simulation) -> None:
    process = world.owner
    assert process is not None
    process.die()
    world.processes.remove(process)


def post(world: Simulation, to: Address) -> None:
    world._post(SimulatedRequest(to, Message("go", encode("in time"), "go"), "go", None))


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
@pytest.mark.parametrize(("sent", "answer"), [(4, "in time"), (6, "late")])
def test_an_engine_that_was_down_knows_whether_a_message_came_before_the_deadline(flow, sent, answer):
    world = Simulation([flow])
    handle = world.start(flow)
    world.advance(0.1)
    go_down(world)
    world.advance(sent)
    post(world, handle.address)
    world.advance(10)

    world.spawn()
    world.run()

    assert handle.result == answer


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
@pytest.mark.parametrize(("sent", "answer"), [(4, "in time"), (6, "late")])
def test_a_busy_engine_knows_it_too(flow, sent, answer):
    world = Simulation([flow])
    handle = world.start(flow)
    world.advance(0.1)

    world.clock.skip(world.clock.steady + sent * SECOND)
    assert world.owner is not None
    world.owner.shard.offer(handle.address, Message("go", encode("in time"), "go"))
    world.run()

    assert handle.result == answer


@pytest.mark.parametrize(("sent", "answer"), [(4, "in time"), (6, "late")])
def test_a_child_that_answers_after_its_parents_deadline_is_late(sent, answer):
    world = Simulation([parent, leaf])
    handle = world.start(parent)
    world.advance(0.1)

    world.clock.skip(world.clock.steady + sent * SECOND)
    assert world.owner is not None
    world.owner.shard.offer(Address("leaf", "leaf"), Message("go", encode("in time"), "go"))
    world.run()

    assert handle.result == answer


def test_a_deadline_waits_until_all_that_came_before_it_is_read():
    """More rows are in the inbox than one look takes."""
    world = Simulation([by_receive])
    handle = world.start(by_receive)
    world.advance(0.1)
    go_down(world)
    for n in range(1500):
        row = inbox_row(n.to_bytes(16, "big"), handle.address, Message("noise", encode(n)), world.clock.now())
        assert not world.disk.post(row).refused
        world.auditor.posted(handle.address, Message("noise", encode(n)))
    world.advance(4)
    post(world, handle.address)
    world.advance(10)

    world.spawn()
    world.run()

    assert handle.result == "in time"


def test_a_message_of_a_client_whose_clock_is_ahead_does_not_end_a_wait_early():
    world = Simulation([by_receive])
    handle = world.start(by_receive)
    world.advance(1)
    message = Message("go", encode("in time"), "go")
    world.disk.post(inbox_row(b"ahead", handle.address, message, world.clock.now() + DAY * SECOND))
    world.auditor.posted(handle.address, message)

    world.run()

    assert handle.result == "in time"


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_whether_a_message_is_late_does_not_depend_on_crashes_and_slow_reads(flow):
    for seed in range(40):
        dice = random.Random(seed)
        faults = Faults(cache=dice.choice((0, 4096)))
        for name in ("crash_before", "crash_after", "false_error", "late_read", "late_load", "kill"):
            setattr(faults, name, 0.2)
        world = Simulation([flow], seed=seed, faults=faults)
        handle = world.start(flow)
        while not handle.status:
            world.advance(0.01)
        (due,) = (row.due for row in world.database.work.values())
        world.advance((due - world.clock.now()) / SECOND + dice.uniform(-0.05, 0.05))
        in_time = world.clock.now() < due
        if handle.outcome is None:
            post(world, handle.address)
        world.run()

        assert handle.result == ("in time" if in_time else "late"), seed


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_a_journal_in_which_a_late_message_had_won_is_replayed_as_it_was_recorded(flow):
    """Engines before this rule recorded it so."""
    rig = Rig(flow, rebuild="rows")
    rig.now += 60 * SECOND
    rig.send("go", "had won")

    assert rig.result == "had won"
    rebuild(fold(Address(flow.name, "k"), None, rig.rows), flow).dispose()


# ---- clocks that are set ---------------------------------------------------------------------------


@perdure.flow
async def naps(ctx: Context) -> list[float]:
    """How long the loop's own time says that things took: a sleep, one of asyncio's, a timeout, a retry."""
    loop = asyncio.get_running_loop()
    times = [loop.time()]
    await ctx.receive("go")
    await ctx.sleep("nap", 1)
    times.append(loop.time())
    await asyncio.sleep(1)
    times.append(loop.time())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await ctx.receive("never")
    times.append(loop.time())
    with pytest.raises(ReceiveTimeout):
        await ctx.receive("never", timeout=1)
    times.append(loop.time())
    return times


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_was_a_day_ahead_and_is_corrected_delays_nothing(restart):
    world = Simulation([naps])
    world.clock.jump(DAY * SECOND)
    handle = world.start(naps)
    world.advance(0.1)

    world.clock.jump(-DAY * SECOND)
    if restart:
        go_down(world)
        world.spawn()
    handle.send("go", id="go")
    world.advance(6)

    assert handle.result == sorted(handle.result)
    assert handle.result[-1] - handle.result[0] < 6
    assert {round(later - earlier) for earlier, later in zip(handle.result[1:], handle.result[2:], strict=False)} == {1}


def test_a_timer_that_fired_is_not_fired_again_when_the_clock_is_set_back():
    world = Simulation([naps])
    handle = world.start(naps)
    handle.send("go", id="go")
    for by in (3, -2, 3, -2, 3, -2):
        world.advance(0.1)
        world.clock.jump(by * SECOND)
        handle.send("noise")
    world.run()

    rows = [JournalRow(*row) for row in world.database.journal]
    assert [entry.clock == entry.at for entry in entries_of(rows)].count(False) > 0
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    assert handle.result == sorted(handle.result)


def test_the_log_tells_once_that_the_journal_is_ahead_of_the_clock(caplog):
    world = Simulation([naps])
    world.start(naps)
    world.advance(0.1)
    caplog.set_level(logging.WARNING, "perdure")

    world.clock.jump(-50 * SECOND)
    world.advance(1)
    assert not caplog.records

    world.clock.jump(-50 * SECOND)
    world.advance(1)

    (record,) = caplog.records
    assert "the journal is 99 s ahead of the clock" in record.message
