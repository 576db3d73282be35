"""Memory: bounded by a number of instances and by the bytes of their states, whatever number of cells there is."""

from __future__ import annotations

from pathlib import Path

import apsw

import perdure
from perdure.codec import encode
from perdure.kernel.events import Address
from perdure.ports.store import Filter, place_of
from perdure.worlds.snapshots import Snapshots
from tests.cells.worlds import settled

KIB = 1024


class Grow(perdure.Record, name="test/Grow@1"):
    box: str
    size: perdure.Nat


class Box(perdure.Record, name="test/Box@1"):
    data: bytes
    times: perdure.Nat


@perdure.cell("test/box@1", key="box", effects=[])
def box(state: Box | None, event: Grow) -> perdure.Next:
    times = 1 + (state.times if state is not None else 0)
    return perdure.Next(Box(bytes(event.size), times))


async def state_of(engine: perdure.Engine, key: str) -> bytes:
    """By a replay of what is durable."""
    from perdure.kernel.replay import fold, rebuild

    address = Address("test/box", key)
    record = await engine.queries.record(address)
    assert record is not None
    machine = rebuild(fold(address, record.snapshot, record.rows), engine._workflows.newest("test/box"))  # type: ignore[arg-type]
    return machine.state  # type: ignore[attr-defined, no-any-return]


async def test_states_above_the_budget_are_dropped_down_to_three_quarters_of_it() -> None:
    async with perdure.open(":memory:", workflows=[box], memory=64 * KIB) as engine:
        weights: list[int] = []
        for n in range(40):
            await engine.send(Grow(f"b-{n}", 8 * KIB))
            await settled(engine)
            weights.append(engine._shard.kernel.cache.weight)

        kernel = engine._shard.kernel
        kept = sum(instance.weight for instance in kernel.instances().values())
        assert kernel.cache.weight == kept <= 64 * KIB and max(weights) <= 64 * KIB
        assert 32 * KIB < min(weights[8:]) <= 48 * KIB
        assert kernel.counts["spilled"] >= 30
        assert len(kernel.instances()) < 12


async def test_a_dropped_state_comes_back_from_its_snapshot_and_not_from_its_whole_history() -> None:
    async with perdure.open(":memory:", workflows=[box], memory=32 * KIB) as engine:
        for _ in range(50):
            await engine.send(Grow("long", 10 * KIB))
        for n in range(5):
            await engine.send(Grow(f"b-{n}", 10 * KIB))
            await settled(engine)
        head = await engine.queries.head(Address("test/box", "long"))
        assert head is not None and head.id not in engine._shard.kernel.instances()
        record = await engine.queries.record(head.id)
        assert record is not None and record.snapshot is not None and record.rows == ()

        await engine.send(Grow("long", 3))
        await settled(engine)

        assert await state_of(engine, "long") == encode({"data": bytes(3), "times": 51})


async def test_the_least_recently_used_states_go_first() -> None:
    async with perdure.open(":memory:", workflows=[box], memory=100 * KIB) as engine:
        for n in range(9):
            await engine.send(Grow(f"b-{n}", 10 * KIB))
        await engine.send(Grow("b-0", 10 * KIB))
        await engine.send(Grow("last", 20 * KIB))
        await settled(engine)

        keys = {instance.address.key for instance in engine._shard.kernel.instances().values()}
        assert {"b-0", "last"} <= keys and "b-1" not in keys


async def test_one_state_that_is_larger_than_the_budget_works(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "box.db", workflows=[box], memory=1) as engine:
        for n in range(6):
            await engine.send(Grow(f"b-{n % 2}", 200 * KIB))
        await settled(engine)

        assert engine._shard.kernel.cache.weight == 0
        assert (await Snapshots(engine).verify()).difference is None
        assert await engine.queries.check() == []


async def test_an_engine_opens_without_loading_its_cells_and_lists_them_in_pages(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "box.db", workflows=[box]) as engine:
        for n in range(300):
            await engine.send(Grow(f"b-{n}", 10))
        await settled(engine)

    async with perdure.open(tmp_path / "box.db", workflows=[box]) as engine:
        assert len(engine._shard.kernel.instances()) == 0
        found: list[str] = []
        before = None
        while page := await engine.queries.heads(Filter(workflow="test/box", before=before, limit=64)):
            found += [head.key for head in page]
            before = place_of(page[-1])
        assert len(found) == len(set(found)) == 300


async def test_a_cell_that_went_to_sleep_is_woken_from_its_state(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "boxes.db", workflows=[box], cache=0) as engine:
        for _ in range(3):
            await engine.send(Grow("small", 10))
            await settled(engine)
        record = await engine.queries.record(Address("test/box", "small"))
        assert record is not None and record.snapshot is not None
        assert record.rows == ()  # nothing is left to be called again


async def test_a_cell_that_is_woken_leaves_its_state_beside_the_entry_that_woke_it(tmp_path: Path) -> None:
    path = tmp_path / "boxes.db"
    async with perdure.open(path, workflows=[box], cache=0) as engine:
        for _ in range(4):
            await engine.send(Grow("small", 10))
            await settled(engine)

    # The first was made here, and left its state when it went to sleep; each of the others was woken by its event.
    assert left_beside(path) == [False, True, True, True]


async def test_a_cell_in_use_leaves_nothing_beside_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "boxes.db"
    for _ in range(2):  # when the engine opens again, the first event wakes it
        async with perdure.open(path, workflows=[box]) as engine:
            for _ in range(3):
                await engine.send(Grow("small", 10))
                await settled(engine)

    assert left_beside(path) == [False, False, False, True, False, False]
    async with perdure.open(path, workflows=[box]) as engine:
        record = await engine.queries.record(Address("test/box", "small"))
        assert record is not None and record.snapshot is not None and len(record.rows) == 2
        state = await engine.state(box, "small")
        assert state == Box(bytes(10), 6)
        assert (await Snapshots(engine).verify()).difference is None
        assert await engine.queries.check() == []


def left_beside(path: Path) -> list[bool]:
    """Of each entry of the only cell, whether its state stands beside it."""
    connection = apsw.Connection(str(path))
    world = "SELECT instance FROM journal ORDER BY seq LIMIT 1"
    rows = connection.execute(f"SELECT snapshot IS NOT NULL FROM journal WHERE instance <> ({world}) ORDER BY seq")
    return [bool(left) for (left,) in rows]


async def test_a_large_state_is_not_written_each_time_that_its_cell_goes_to_sleep(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "boxes.db", workflows=[box], cache=0) as engine:
        for _ in range(5):
            await engine.send(Grow("large", 100 * KIB))
            await settled(engine)
        record = await engine.queries.record(Address("test/box", "large"))
        assert record is not None and record.snapshot is None and len(record.rows) == 5
