"""What the command line asks of a store beyond its instances: the same answers from every store."""

import os

import pytest

import perdure
from perdure.kernel.batch import WorkflowRow
from perdure.kernel.events import Address, Message, Started
from perdure.kernel.rows import inbox_row
from perdure.ports.store import Filter
from perdure.runtime.history import undelivered
from perdure.stores.answers import now
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore


@perdure.flow
async def waiting(ctx: perdure.Context) -> None:
    await ctx.receive("go")


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return ":memory:" if request.param == "memory" else str(tmp_path / "a.db")


async def test_the_owner_is_known_while_the_engine_runs(url):
    async with perdure.open(url, workflows=[waiting]) as engine:
        owner = await engine.queries.owner()

        assert owner is not None and owner.name and owner.pid in (0, os.getpid())
        assert (await engine.queries.facts())["path"] == url


async def test_asking_for_the_owner_does_not_end_its_lease(tmp_path):
    path = tmp_path / "a.db"
    async with perdure.open(path, workflows=[waiting]):
        async with perdure.connect(path) as client:
            assert await client.queries.owner() is not None

        with pytest.raises(perdure.EngineRunning):
            async with perdure.open(path):
                pass

    async with perdure.connect(path) as client:
        assert await client.queries.owner() is None


async def test_instances_are_found_by_key_alone(url):
    async with perdure.open(url, workflows=[waiting]) as engine:
        await engine.start(waiting, key="a")
        await engine.start(waiting, key="b")

        assert [head.key for head in await engine.queries.heads(Filter(key="a"))] == ["a"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_is_on_its_way_is_told(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "a.db")
    now(store.acquire, "test")
    now(store.register, [WorkflowRow("waiting", "1", b"")])
    to = Address("waiting", "k")
    start = Started("waiting", "k", b"\xd9\xd9\xf7\xa0", b"seed")
    await store.post(inbox_row(b"1" * 16, to, start, 1), start=b"h")
    await store.post(inbox_row(b"2" * 16, to, Message("go", b"\xd9\xd9\xf7\x01"), 2))

    lines = undelivered(await store.undelivered(to))

    assert [(line.event, line.location, line.value) for line in lines] == [
        ("started", "", {}),
        ("message", "go", 1),
    ]
    assert await store.undelivered(Address("waiting", "other")) == []
    store.close()
