"""World snapshots: they follow from the journal alone, cost what has changed, and a world goes on from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.app.dialects import registered
from perdure.cells.replay import WorldReplay, value_workflows
from perdure.cells.world import PROPOSALS
from perdure.codec import decode
from perdure.errors import CallerError, Corrupt, NotEmpty, UnknownSnapshot
from perdure.kernel.events import Address
from perdure.kernel.rules import RULER
from perdure.stores.answers import now
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores import flipped
from perdure.worlds.snapshots import Snapshots, StoredBlobs, in_thread
from tests.cells.worlds import CELLS, Closed, Keep, Put, Spoil, Wait, account, busy, keeping, print_it, settled, total

Opened = Callable[[], AbstractAsyncContextManager[perdure.Engine]]


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path) -> str:
    return ":memory:" if kind == "memory" else str(tmp_path / "world.db")


@asynccontextmanager
async def opened(url: str, cells: Any = CELLS) -> AsyncIterator[perdure.Engine]:
    engines: list[perdure.Engine] = []
    keep = keeping(lambda: engines[0].queries)
    async with perdure.open(url, workflows=cells, handlers=[print_it, keep]) as engine:
        engines.append(engine)
        yield engine


def empty_store(kind: str, tmp_path: Path, name: str = "restored.db") -> Any:
    return MemoryStore() if kind == "memory" else SqliteStore(tmp_path / name)


@asynccontextmanager
async def client_of(store: Any) -> AsyncIterator[Snapshots]:
    """Snapshots of a store that no engine runs on."""

    class Asked:
        queries = store
        _workflows = registered(CELLS)[0]

    yield Snapshots(Asked())  # type: ignore[arg-type]


async def everything(engine: perdure.Engine) -> None:
    """Effects, timers, emitted events, ended cells, a stuck one, a blob, a flow, and open work at the end."""
    await engine.start("side", times=3, key="s-1")
    await busy(engine)
    await engine.send(Keep("a-2", b"some bytes"))
    await engine.send(Wait("a-3", 10_000))
    await engine.send(Spoil("a-4"))
    await engine.handle("side", "s-1").send("go-0")
    await settled(engine)


async def test_two_snapshots_of_one_entry_are_one_whether_full_or_incremental(url: str) -> None:
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await everything(engine)
        first = await snapshots.take()
        await busy(engine, 100)
        await engine.handle("side", "s-1").send("go-1")
        await settled(engine)

        incremental = await snapshots.take()
        full = await snapshots.take(full=True)

        assert incremental.entry == full.entry > first.entry
        assert incremental.hash == full.hash != first.hash
        assert incremental.cells == {"test/account": 7, "test/total": 1}
        assert incremental.open == 2  # the timer, and what the flow waits for
        assert [taken.hash for taken in await snapshots.retained()] == [first.hash, full.hash]


async def test_a_snapshot_costs_what_has_changed(url: str) -> None:
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        for n in range(400):
            await engine.send(Put(f"b-{n}", 5 * n + 1))
        await settled(engine)
        first = await snapshots.take()
        await engine.send(Put("b-7", 1))
        await settled(engine)

        second = await snapshots.take()

        assert first.written > 800
        # Three instances (the cell, the total, the world) and two states, a path of two nodes to each; the world's
        # state, the record, the inbox.
        assert second.written < 25


async def test_a_world_goes_on_from_a_snapshot_and_its_tail_as_from_its_first_entry(
    kind: str, url: str, tmp_path: Path
) -> None:
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await everything(engine)
        taken = await snapshots.take()
        await busy(engine, 50)
        await engine.handle("side", "s-1").send("go-1")
        await engine.send(Wait("a-1", 0))  # an alarm that is set and goes off
        proposal = await perdure.Governance(engine).propose(perdure.manifest(account))
        await settled(engine)
        store = empty_store(kind, tmp_path)

        restored = await snapshots.restore_into(store, taken.hash)
        whole = await snapshots.take(full=True)

        async with client_of(store) as copy:
            again = await copy.take()
            assert restored.tail > 90 and restored.entry == taken.entry
            assert again.hash == whole.hash
            assert (await copy.verify()).difference is None
            assert await store.check() == []
        world = await store.head(RULER)
        answers = [await each.published(world.id, PROPOSALS) for each in (store, engine.queries)]
        assert answers[0] == answers[1] and decode(answers[0] or b"")[0]["proposal"] == proposal.number
        assert now(store.census).work == 1, "the alarm of a-3"
        store.close()


async def test_the_engine_of_a_restored_database_goes_on_with_every_instance(tmp_path: Path) -> None:
    async with opened(str(tmp_path / "world.db")) as engine:
        snapshots = Snapshots(engine)
        await everything(engine)
        await snapshots.take()
        await engine.send(Put("a-2", 1))
        await settled(engine)
        await snapshots.restore(tmp_path / "copy.db")

    async with opened(str(tmp_path / "copy.db")) as engine:
        await engine.send(Put("a-2", 5))
        await engine.send(Put("new", 5))
        for n in (1, 2):
            await engine.handle("side", "s-1").send(f"go-{n}")
        assert await engine.handle("side", "s-1").result() == 3
        head = await engine.queries.head(Address("test/account", "a-4"))
        assert head is not None and head.status == "stuck"
        await engine.handle("test/account", "a-4").cancel()
        await settled(engine)
        taken = await Snapshots(engine).take()
        verified = await Snapshots(engine).verify()

    assert taken.cells == {"test/account": 7, "test/total": 1}
    assert verified.difference is None and verified.begin > 0


async def test_a_flow_that_was_rewound_is_replayed_with_its_world(url: str) -> None:
    numbers = iter([1, 2])

    async def make() -> int:
        return next(numbers)

    @perdure.flow
    async def again(ctx: perdure.Context) -> int:
        number = await ctx.step("make", make)
        await ctx.receive(f"go-{number}")
        return number

    async with opened(url, [*CELLS, again]) as engine:
        snapshots = Snapshots(engine)
        flow = await engine.start(again, key="f-1")
        await settled(engine)
        before = await snapshots.take()
        await flow.rewind("make")
        await flow.send("go-2")
        assert await flow.result() == 2
        await settled(engine)

        taken = await snapshots.take()

        assert (await snapshots.take(full=True)).hash == taken.hash
        for since in (None, before.hash):
            assert (await snapshots.verify(since)).difference is None


async def test_a_replay_that_lets_go_of_instances_comes_to_the_same(url: str) -> None:
    async with opened(url) as engine:
        await everything(engine)
        await busy(engine, 50)
        taken = await Snapshots(engine).take()
        blobs, rows = StoredBlobs(engine.queries), await engine.queries.journal(0, 10_000)

        def replayed() -> tuple[bytes, int]:
            replay, most = WorldReplay(blobs, value_workflows(registered(CELLS)[0]), lives_max=3), 0
            for row in rows:
                replay.take(row)
                most = max(most, len(replay._lives))
            return replay.snapshot().hash, most

        hash, most = await in_thread(replayed)
        assert f"sha256:{hash.hex()}" == taken.hash and most <= 3


async def test_without_its_tail_a_world_is_as_it_was_at_the_snapshot(kind: str, url: str, tmp_path: Path) -> None:
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await everything(engine)
        taken = await snapshots.take()
        await busy(engine, 50)
        store = empty_store(kind, tmp_path)

        await snapshots.restore_into(store, taken.hash, tail=False)

        async with client_of(store) as copy:
            assert (await copy.take()).hash == taken.hash
            assert now(store.position).seq == taken.entry
        store.close()


@pytest.mark.parametrize("tail", [True, False])
async def test_blobs_are_restored_that_entries_of_the_tail_or_waiting_events_name(
    kind: str, url: str, tmp_path: Path, tail: bool
) -> None:
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await engine.send(Keep("b", b"before"))
        await put_while_stuck(engine, b"heard of later")
        taken = await snapshots.take()
        await engine.send(Keep("b", b"after"))
        await settled(engine)
        store = empty_store(kind, tmp_path)

        await snapshots.restore_into(store, taken.hash, tail=tail)

        there = [await store.blob(sha256(body).digest()) for body in (b"before", b"heard of later", b"after")]
        assert there == [b"before", b"heard of later", b"after" if tail else None]
        store.close()


async def put_while_stuck(engine: perdure.Engine, data: bytes) -> None:
    """A cell asks for a blob to be put, and is stuck when it is: the receipt waits in its inbox."""
    await asyncio.gather(engine.send(Keep("a", data)), engine.send(Spoil("a")))
    await settled(engine)
    assert len(await engine.queries.undelivered()) == 1


async def test_what_waits_in_a_mailbox_is_restored(tmp_path: Path) -> None:
    async with opened(str(tmp_path / "world.db")) as engine:
        await engine.send(Put("a", 1))
        await engine.send(Spoil("a"))
        await settled(engine)
        await engine.send(Put("a", 1))  # a stuck cell takes it later
        await settled(engine)
        taken = await Snapshots(engine).take()
        restored = await Snapshots(engine).restore(tmp_path / "copy.db", taken.hash, tail=False)

        assert restored.inbox == 1


@pytest.mark.parametrize("part", ["record", "root", "state", "instance", "governance", "inbox"])
async def test_a_snapshot_of_which_a_part_is_missing_or_damaged_is_refused_by_its_hash(
    kind: str, url: str, tmp_path: Path, part: str
) -> None:
    async with opened(url) as engine:
        snapshots = Snapshots(engine)
        await everything(engine)
        taken = await snapshots.take()
        record = decode(await engine.queries.blob(bytes.fromhex(taken.hash[7:])) or b"")
        victim = {
            "record": bytes.fromhex(taken.hash[7:]),
            "root": record["cells"]["test/account"],
            "instance": record["instances"],
            "governance": record["governance"],
            "inbox": (await engine.queries.world_snapshots())[-1].inbox,
            "state": (decode(await engine.queries.blob(record["cells"]["test/total"]) or b""))["leaf"][0][1],
        }[part]
        assert await engine.queries.delete_blobs([victim], 2**62) == 1
        store = empty_store(kind, tmp_path)

        with pytest.raises(Corrupt, match=victim.hex()):
            await snapshots.restore_into(store, taken.hash)
        assert await store.world_snapshots() == []
        store.close()


async def test_a_snapshot_is_restored_to_where_nothing_is(tmp_path: Path) -> None:
    async with opened(str(tmp_path / "world.db")) as engine:
        snapshots = Snapshots(engine)
        with pytest.raises(UnknownSnapshot, match="no world snapshot was taken yet"):
            await snapshots.restore(tmp_path / "copy.db")
        await engine.send(Closed("a"))
        taken = await snapshots.take()

        with pytest.raises(NotEmpty, match="there is a file"):
            await snapshots.restore(tmp_path / "world.db")
        with pytest.raises(UnknownSnapshot, match="sha256:abc"):
            await snapshots.restore(tmp_path / "copy.db", "sha256:abc")
        assert (await snapshots.restore(tmp_path / "copy.db", taken.hash[:20])).hash == taken.hash
        assert not (tmp_path / "copy.db.restoring").exists()


async def test_a_restored_database_is_read_shadowed_and_checked_like_any_other(tmp_path: Path) -> None:
    async with opened(str(tmp_path / "world.db")) as engine:
        await everything(engine)
        await Snapshots(engine).take()
        await busy(engine, 50)
        before = {key: await engine.state("test/account", key) for key in ("a-1", "a-2", "a-3")}
        await Snapshots(engine).restore(tmp_path / "copy.db")

    async with opened(str(tmp_path / "copy.db")) as engine:
        assert {key: await engine.state("test/account", key) for key in before} == before
        with pytest.raises(CallerError, match="has nothing from then"):
            await engine.state("test/account", "a-2", at=20)
        report = await perdure.Governance(engine).shadow(perdure.manifest(account, total))
        assert report.failures == [] and report.changed == 0
        lines = await engine.handle("test/account", "a-3").history()
        (waiting, *_) = await engine.handle("test/account", "a-3").waiting()
        assert lines and waiting.location.startswith("timer/")
        assert await engine.queries.check() == []


async def test_a_world_whose_own_history_is_damaged_goes_on_from_its_last_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    async with opened(str(path)) as engine:
        await engine.send(Put("a", 5))
        await settled(engine)
        await Snapshots(engine).take()
        await engine.send(Put("a", 2))
        await settled(engine)
    damage_the_last_entry_of_the_world(path)

    with pytest.raises(Corrupt):
        async with opened(str(path)) as engine:
            await engine.send(Put("a", 3))
    async with perdure.connect(path) as client:
        with pytest.raises(Corrupt):
            await Snapshots(client).restore(tmp_path / "with.db")
        await Snapshots(client).restore(tmp_path / "without.db", tail=False)

    async with opened(str(tmp_path / "without.db")) as engine:
        await engine.send(Put("a", 3))
        await settled(engine)
        assert (await engine.state(account, "a")).cents == 8


def damage_the_last_entry_of_the_world(path: Path) -> None:
    connection = apsw.Connection(str(path))
    world = "SELECT id FROM instances WHERE workflow = 'sys/world'"
    ((seq, body),) = connection.execute(
        f"SELECT seq, body FROM journal WHERE instance = ({world}) ORDER BY seq DESC LIMIT 1"
    )
    connection.execute("UPDATE journal SET body = ?, snapshot = NULL WHERE seq = ?", (flipped(body), seq))
    connection.execute(f"DELETE FROM snapshots WHERE instance = ({world})")
    connection.close()
