"""Work that is due, also when nothing can become of it: its instance is stuck, or its code is not here."""

from pathlib import Path

import perdure
from perdure import Next
from perdure.cells.effects import Alarm
from perdure.kernel.batch import WorkRow
from perdure.ports.store import Place
from perdure.runtime.timers import ROWS_MAX, Timers


def rows_of(count: int, due: int = 10) -> list[WorkRow]:
    return [WorkRow(n.to_bytes(4, "big"), n, "timer", due) for n in range(count)]


def due(timers: Timers, now: int, rows: list[WorkRow], reads: list[Place]) -> list[WorkRow]:
    """What is due, after a read if one is needed."""
    if timers.exhausted(now):
        before, limit, after = timers.window(now)
        reads.append(after)
        timers.fill(now, [row for row in rows if row.due <= before and (row.due, row.intent) > after][:limit])
    return timers.due(now)


def test_rows_that_nothing_becomes_of_are_given_once_and_hold_up_nobody() -> None:
    rows, reads = [*rows_of(2 * ROWS_MAX + 5), WorkRow(b"late", 1, "timer", 20)], list[Place]()
    timers, now, given = Timers(), 1_000, list[WorkRow]()

    while timers.next() <= now:
        given += due(timers, now, rows, reads)

    assert given == rows
    assert len(reads) == 3


def test_work_that_is_opened_behind_what_was_read_is_given() -> None:
    reads = list[Place]()
    rows, timers, now = rows_of(ROWS_MAX), Timers(), 1_000
    due(timers, now, rows, reads)
    early, late = WorkRow(b"\x00", 1, "timer", 10), WorkRow(b"\xff", 2, "timer", 10)

    timers.opened([early, late])

    assert timers.due(now) == [early]  # the other one stands in the table, behind what was read


def test_what_happens_while_rows_are_read_is_not_forgotten() -> None:
    timers, now = Timers(), 1_000
    gone, kept, opened, far = (WorkRow(name, 1, "timer", 10) for name in (b"gone", b"kept", b"opened", b"far"))
    far = far._replace(due=10**18)
    timers.window(now)

    timers.closed([b"gone"])
    timers.opened([opened, far])
    timers.fill(now, [gone, kept])

    assert timers.due(now) == [kept, opened]
    assert timers.next() < far.due  # it stands in the table, beyond what was read


def test_an_intent_that_is_closed_and_opened_again_while_rows_are_read_has_its_new_time() -> None:
    timers, now = Timers(), 1_000
    timers.window(now)

    timers.closed([b"again"])
    timers.opened([WorkRow(b"again", 1, "timer", 20)])
    timers.fill(now, [WorkRow(b"again", 1, "timer", 10)])

    assert timers.due(now) == [WorkRow(b"again", 1, "timer", 20)]


class Wound(perdure.Record, name="clock/Wound@1"):
    clock: str


class Clock(perdure.Record, name="clock/Clock@1"):
    rung: perdure.Nat = 0


@perdure.cell("clock/clock@1", key="clock", effects=[Alarm])
def clock(state: Clock | None, event: Wound | perdure.ReceiptOf[Alarm]) -> Next:
    if isinstance(event, Wound):
        return Next(Clock(), effects=[Alarm(at=1) for _ in range(64)])
    raise RuntimeError("a clock that is broken is stuck with all the others due")


@perdure.flow
async def nap(ctx: perdure.Context) -> str:
    await ctx.sleep("nap", 0.01)
    return "slept"


async def test_many_timers_of_stuck_instances_and_of_code_that_is_not_here_hold_up_nobody(tmp_path: Path) -> None:
    url = tmp_path / "clocks.db"
    async with perdure.open(url, workflows=[clock, nap]) as engine:
        for n in range(ROWS_MAX // 60):
            await engine.send(Wound(f"c-{n}"))
        assert await (await engine.start(nap)).result(60) == "slept"

    async with perdure.open(url, workflows=[nap], cache=10) as engine:
        assert await (await engine.start(nap)).result(60) == "slept"
        assert engine.counts["refused"] <= ROWS_MAX + 2_000, "each is tried once"
        assert len(engine._shard.kernel.instances()) <= 11, "what was refused is not kept in memory"
