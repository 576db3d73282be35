"""Garbage collection: what a retained snapshot or an entry reaches stays, the rest goes."""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path

import pytest

from perdure.cells.index import CellIndex
from perdure.cells.snapshot import name_of, reached
from perdure.errors import CallerError
from perdure.worlds.snapshots import Snapshots, StoredBlobs, in_thread
from tests.cells.test_snapshots import kind, opened, put_while_stuck, url  # noqa: F401  # fixtures
from tests.cells.worlds import Closed, Keep, Put, busy, settled


async def test_what_only_a_given_up_snapshot_needs_is_freed_and_the_rest_is_kept(url: str) -> None:  # noqa: F811
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await busy(engine)
        first = await snapshots.take()
        await busy(engine, 100)
        second = await snapshots.take()
        before = len(await engine.queries.blobs())

        dry = await snapshots.collect(keep=1, grace=0)
        assert dry.dry_run and dry.snapshots == [first.hash] and dry.blobs > 3
        assert len(await engine.queries.blobs()) == before and len(await snapshots.retained()) == 2

        done = await snapshots.collect(keep=1, grace=0, dry_run=False)
        assert (done.blobs, done.bytes, done.kept) == (dry.blobs, dry.bytes, dry.kept)
        assert len(await engine.queries.blobs()) == before - dry.blobs
        assert [taken.hash for taken in await snapshots.retained()] == [second.hash]
        assert (await snapshots.take(full=True)).hash == second.hash
        assert (await snapshots.collect(grace=0)).blobs == 0


async def test_what_is_young_stays(url: str) -> None:  # noqa: F811
    async with opened(url) as engine:
        await engine.queries.put_blobs([b"nobody needs this"], 1)
        await busy(engine, rounds=3)
        await Snapshots(engine).take()
        await busy(engine, 10, rounds=3)
        await Snapshots(engine).take()

        collected = await Snapshots(engine).collect(keep=1, grace=3600, dry_run=False)

        assert collected.blobs == 1 and len(collected.snapshots) == 1


async def test_a_blob_that_an_effect_has_put_stays_as_long_as_its_entry(url: str) -> None:  # noqa: F811
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await engine.send(Keep("a", b"early"))
        await settled(engine)
        await snapshots.take()
        await engine.send(Keep("a", b"late"))
        await engine.queries.put_blobs([b"nobody needs this"], 1)
        await settled(engine)

        await snapshots.collect(grace=0, dry_run=False)

        kept = {await engine.queries.blob(row.digest) for row in await engine.queries.blobs()}
        assert {b"early", b"late"} <= kept and b"nobody needs this" not in kept


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf")])
async def test_a_grace_period_that_is_none_is_refused(grace: float) -> None:
    async with opened(":memory:") as engine:
        with pytest.raises(CallerError, match=f"a grace period is 0 to .* seconds, found {grace}"):
            await Snapshots(engine).collect(grace=grace)


@pytest.mark.parametrize("where", ["inbox", "inbox of a snapshot"])
async def test_a_blob_stays_whose_receipt_waits_for_a_stuck_cell(url: str, where: str) -> None:  # noqa: F811
    async with opened(url) as engine:
        await put_while_stuck(engine, b"heard of later")
        if where == "inbox of a snapshot":
            await Snapshots(engine).take()
            await engine.handle("test/account", "a").cancel()  # the event that waits is gone
            await settled(engine)

        await Snapshots(engine).collect(grace=0, dry_run=False)

        assert await engine.queries.blob(sha256(b"heard of later").digest()) == b"heard of later"


async def test_the_newest_snapshot_and_the_base_of_a_restored_database_are_never_given_up(tmp_path: Path) -> None:
    async with opened(str(tmp_path / "world.db")) as engine:
        await busy(engine)
        base = await Snapshots(engine).take()
        await Snapshots(engine).restore(tmp_path / "copy.db")
        with pytest.raises(CallerError, match="always kept"):
            await Snapshots(engine).collect(keep=0)
    async with opened(str(tmp_path / "copy.db")) as engine:
        snapshots = Snapshots(engine)
        for n in range(3):
            await busy(engine, 100 * n + 100)
            last = await snapshots.take()

        await snapshots.collect(keep=1, grace=0, dry_run=False)

        assert [taken.hash for taken in await snapshots.retained()] == [base.hash, last.hash]
        assert (await snapshots.verify()).difference is None


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_retained_is_whole_after_any_collection(seed: int) -> None:
    dice = random.Random(seed)
    async with opened(":memory:") as engine:
        snapshots = Snapshots(engine)
        for step in range(12):
            for _ in range(dice.randrange(20)):
                key = f"a-{dice.randrange(60)}"
                event = dice.choice([Put(key, dice.randrange(50)), Closed(key), Keep(key, dice.randbytes(3))])
                await engine.send(event)
            await engine.queries.put_blobs([b"garbage %d" % step], 1)
            await settled(engine)
            if dice.random() < 0.6:
                await snapshots.take(full=dice.random() < 0.3)
            if dice.random() < 0.4:
                await snapshots.collect(keep=dice.choice([None, 1, 2]), grace=0, dry_run=False)

        await snapshots.take()
        await snapshots.collect(grace=0, dry_run=False)

        rows = await engine.queries.world_snapshots()
        blobs = StoredBlobs(engine.queries)
        needed = await in_thread(lambda: set(reached(blobs, [row.hash for row in rows])))
        there = {row.digest for row in await engine.queries.blobs(limit=100_000)}
        assert needed | {row.inbox for row in rows} == there, [name_of(each) for each in needed ^ there]
        for taken in await snapshots.retained():
            assert (await snapshots.verify(taken.hash)).difference is None
        assert (await snapshots.verify()).snapshots == len(rows)
        assert sum(taken.cells.get("test/account", 0) for taken in await snapshots.retained()) >= 0
        assert CellIndex(blobs).root not in there
