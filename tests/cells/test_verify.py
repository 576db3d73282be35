"""`verify`: the world is replayed with the code that is there, and must be what it was, decision by decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import perdure
from perdure.worlds.snapshots import Snapshots
from tests.cells.test_snapshots import everything, kind, opened, url  # noqa: F401  # fixtures
from tests.cells.worlds import CELLS, Noted, Put, Total, account, busy, settled, side, total


async def test_a_world_that_nobody_changed_replays_from_its_first_entry_and_from_every_snapshot(url: str) -> None:  # noqa: F811
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await everything(engine)
        first = await snapshots.take()
        await busy(engine, 40)
        second = await snapshots.take()

        whole, from_first, from_second = (
            await snapshots.verify(),
            await snapshots.verify(first.hash),
            await snapshots.verify(second.hash),
        )

        assert [each.difference for each in (whole, from_first, from_second)] == [None, None, None]
        assert (whole.entries, whole.snapshots) == (second.entry, 2)
        assert (from_first.entries, from_first.snapshots) == (second.entry - first.entry, 1)
        assert (from_second.entries, from_second.unread) == (0, [])


@perdure.cell("test/total@1", effects=[])
def doubled(state: Total | None, event: Noted) -> perdure.Next:
    before = state.cents if state is not None else 0
    return perdure.Next(Total(before + (2 * event.cents if event.cents == 17 else event.cents)))


async def test_a_changed_reducer_is_a_difference_with_entry_cell_and_states(tmp_path: Path) -> None:
    url = str(tmp_path / "world.db")  # noqa: F811
    async with opened(url) as engine:
        for n in (1, 17, 3):
            await engine.send(Put("a", n))
        await settled(engine)
        taken = await Snapshots(engine).take()

    cells: list[Any] = [account, rewritten(doubled, total), side]
    async with perdure.connect(url, workflows=cells) as client:
        verified = await Snapshots(client).verify()
        later = await Snapshots(client).verify(taken.hash)

    difference = verified.difference
    assert difference is not None
    assert difference.entry == 7 and difference.cell == "test/total/"  # world, world, a, total, world, a, total
    assert difference.recorded.startswith("state ") and difference.current.startswith("state ")
    assert difference.current_state == {"cents": 35}
    assert "test_verify.py" in difference.advice
    assert later.difference is None  # the snapshot is believed


async def test_a_snapshot_that_does_not_follow_from_the_journal_is_a_difference(url: str) -> None:  # noqa: F811
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await engine.send(Put("a", 1))
        await settled(engine)
        taken = await snapshots.take()
        (row,) = await engine.queries.world_snapshots()
        other = await forged(engine, row)
        await engine.queries.add_world_snapshot(other)

        verified = await snapshots.verify()

        assert verified.difference is not None
        assert verified.difference.cell == "test/total/"
        assert (verified.difference.recorded_state, verified.difference.current_state) == ({"cents": 9}, {"cents": 1})
        assert taken.entry == verified.difference.entry


async def test_a_cell_without_code_is_a_difference_and_a_flow_without_code_is_told(tmp_path: Path) -> None:
    url = str(tmp_path / "world.db")  # noqa: F811
    async with opened(url) as engine:
        await engine.start("side", times=1, key="s")
        await engine.send(Put("a", 1))
        await settled(engine)

    async with perdure.connect(url, workflows=[account, total]) as client:
        assert (await Snapshots(client).verify()).unread == ["side"]
    async with perdure.connect(url, workflows=[total]) as client:
        difference = (await Snapshots(client).verify()).difference
        assert difference is not None and difference.cell == "test/account/a"
        assert "which is not registered here" in difference.advice


class Count(perdure.Record, name="test/Count@1"):
    cents: perdure.Nat
    times: perdure.Nat


def to_count(state: Total) -> Count:
    return Count(state.cents, 0)


@perdure.cell("test/total@2", effects=[], migrate=to_count)
def total_2(state: Count | None, event: Noted) -> perdure.Next:
    state = state or Count(0, 0)
    return perdure.Next(Count(state.cents + event.cents, state.times + 1))


async def test_cells_are_replayed_with_the_definition_of_each_stretch(url: str, tmp_path: Path) -> None:  # noqa: F811
    async with opened(url, [*CELLS, total_2]) as engine:
        rules = perdure.Governance(engine)
        await rules.apply(perdure.manifest(account, total))
        await busy(engine)
        snapshots = Snapshots(engine)
        before = await snapshots.take()
        proposal = await rules.propose(perdure.manifest(account, total_2))
        await rules.shadow(proposal.number, mode="migrate")
        await rules.approve(proposal.number)
        await rules.apply(proposal.number, "migrate")
        await busy(engine, 100)
        after = await snapshots.take()

        assert before.cells["test/total"] == after.cells["test/total"] == 1
        assert (await snapshots.take(full=True)).hash == after.hash
        assert (await snapshots.verify()).difference is None
        await snapshots.restore(tmp_path / "copy.db", before.hash)

    async with opened(str(tmp_path / "copy.db"), [*CELLS, total_2]) as engine:
        (applied,) = await perdure.Governance(engine).proposals()
        assert applied.status == "applied"
        assert (await Snapshots(engine).take()).hash == after.hash


def rewritten(cell: Any, like: Any) -> Any:
    """The same definition with another reducer, as after an edit of the file: the same `module:function`."""
    for name in ("__module__", "__qualname__"):
        setattr(cell.function, name, getattr(like.function, name))
    return cell


async def forged(engine: perdure.Engine, row: Any) -> Any:
    """A snapshot row whose world has another total than the journal says."""
    import msgspec

    from perdure.cells.index import CellIndex, Entry
    from perdure.cells.snapshot import cell_key, read_snapshot
    from perdure.codec import encode
    from perdure.worlds.snapshots import StoredBlobs, in_thread

    blobs = StoredBlobs(engine.queries)
    snapshot = await in_thread(read_snapshot, blobs, row.hash)
    state = encode({"cents": 9})
    entry = Entry(blobs.put(state), len(state), snapshot.at)
    index = await in_thread(CellIndex(blobs, snapshot.cells["test/total"]).update, [(cell_key(""), entry)])
    lie = msgspec.structs.replace(snapshot, cells={**snapshot.cells, "test/total": index.root})
    hash = blobs.put(lie.encode())
    await blobs.flush()
    return msgspec.structs.replace(row, hash=hash)
