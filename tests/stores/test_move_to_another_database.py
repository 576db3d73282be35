"""Moving a stopped world between databases: what was under way goes on at the other place."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import perdure
from perdure.app.copy import MoveCounts, move
from perdure.ports.store import Filter
from perdure.stores.postgres import upgrade
from tests.cells.shop import Order, Placed, order
from tests.postgres import Server

charged: list[str] = []


async def charge(name: str) -> str:
    charged.append(name)
    return f"charged {name}"


@perdure.flow
async def sale(ctx: perdure.Context, name: str) -> str:
    receipt = await ctx.step("charge", charge, name)
    message = await ctx.receive("go on")
    return f"{receipt}, {message.body}"


@perdure.flow
async def family(ctx: perdure.Context) -> list[str]:
    return [await ctx.child(sale, "near"), await ctx.child(sale, "far", key="elsewhere")]


@asynccontextmanager
async def opened(url: str | Path) -> AsyncIterator[perdure.Engine]:
    async with perdure.open(url, workflows=[sale, family, order], lenient=True) as engine:
        yield engine


async def waiting(engine: perdure.Engine, workflow: Any, key: str) -> perdure.Handle[Any]:
    handle = engine.handle(workflow, key)
    async with asyncio.timeout(60):
        while not await engine.queries.heads(Filter(workflow="sale", key=key, status="waiting")):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return handle


async def there_and_back(source: str | Path, target: str | Path) -> MoveCounts:
    charged.clear()
    async with opened(source) as engine:
        for n in range(5):
            await engine.start(sale, f"s{n}", key=f"s{n}")
        await engine.start(family, key="family")
        await waiting(engine, sale, "s4")
        near = "family/sale"
        await waiting(engine, sale, near)
        await engine.send(Placed("o-1"))
        await engine.queries.put_blobs([b"a picture"], 1)
    moved = await move(source, target)
    async with opened(target) as engine:
        assert (await engine.queries.facts()).get("engines", "1") == "1", "the copy is none of them"
        for n in range(5):
            handle = engine.handle(sale, f"s{n}")
            await handle.send("go on", n)
            assert await handle.result(60) == f"charged s{n}, {n}"
        await engine.handle(sale, near).send("go on", "near")
        far = await waiting(engine, sale, "elsewhere")
        await far.send("go on", "far")
        assert await engine.handle(family, "family").result(60) == ["charged near, near", "charged far, far"]
        assert isinstance(await engine.state(order, "o-1"), Order)
    assert sorted(charged) == ["far", "near", "s0", "s1", "s2", "s3", "s4"], "nothing is done twice"
    return moved


async def test_from_a_file_to_a_server_and_back(tmp_path: Path, postgres_server: Server) -> None:
    with postgres_server.name() as url:
        moved = await there_and_back(tmp_path / "shop.db", url)
        assert moved.shards == 1

        back = await move(url, tmp_path / "back.db")

        assert back.entries > moved.entries
        async with opened(tmp_path / "back.db") as engine:
            assert await engine.handle(sale, "s1").result(60) == "charged s1, 1"
            await (await engine.start(sale, "again", key="again")).send("go on", 1)


async def test_from_many_shards_into_a_file_and_from_there_to_a_server(
    tmp_path: Path, postgres: str, postgres_server: Server
) -> None:
    await there_and_back(postgres, tmp_path / "all.db")
    with postgres_server.name() as url:
        assert (await move(tmp_path / "all.db", url)).shards == 1
        async with opened(url) as engine:
            assert await engine.handle(sale, "s1").result(60) == "charged s1, 1"
            handle = await engine.start(sale, "new", key="new")
            await handle.send("go on", 1)
            assert await handle.result(60) == "charged new, 1"


async def test_from_server_to_server_with_as_many_shards(postgres: str, postgres_server: Server) -> None:
    with postgres_server.name() as url:
        assert (await there_and_back(postgres, url)).shards == 16


async def test_nothing_is_copied_while_an_engine_runs_or_over_something(tmp_path: Path, postgres: str) -> None:
    async with opened(tmp_path / "shop.db") as engine:
        await engine.start(sale, "one", key="one")
        with pytest.raises(perdure.EngineRunning, match="no engine runs"):
            await move(tmp_path / "shop.db", tmp_path / "other.db")
    with pytest.raises(perdure.CallerError, match="16 shards"):
        await move(tmp_path / "shop.db", postgres)
    await move(tmp_path / "shop.db", tmp_path / "copy.db")
    with pytest.raises(perdure.NotEmpty, match="there is a file"):
        await move(tmp_path / "shop.db", tmp_path / "copy.db")
    with pytest.raises(perdure.CallerError, match="into itself"):
        await move(tmp_path / "shop.db", tmp_path / "shop.db")
    with pytest.raises(perdure.CannotOpen, match="no database"):
        await move(tmp_path / "nothing.db", tmp_path / "more.db")
    assert not (tmp_path / "more.db").exists()


async def test_what_needs_one_order_of_the_whole_world_is_refused_where_there_are_many(postgres: str) -> None:
    async with opened(postgres) as engine:
        with pytest.raises(perdure.CallerError, match="16 shards"):
            await perdure.Snapshots(engine).take()
        with pytest.raises(perdure.CallerError, match="16 shards"):
            await perdure.Snapshots(engine).verify()


async def test_a_world_of_cells_on_one_shard_of_a_server_has_snapshots(postgres_server: Server) -> None:
    with postgres_server.name() as url:
        await upgrade(url, shards=1)
        async with opened(url) as engine:
            await engine.send(Placed("o-1"))
            while await engine.state(order, "o-1") is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            taken = await perdure.Snapshots(engine).take()

            assert (await perdure.Snapshots(engine).verify()).snapshots == 1
            assert taken.cells == {"com.acme/order": 1}


async def test_a_server_that_holds_something_is_not_copied_into(postgres: str, postgres_server: Server) -> None:
    async with opened(postgres) as engine:
        await engine.start(sale, "one", key="one")
    with postgres_server.schema() as other:
        async with opened(other) as engine:
            await engine.start(sale, "two", key="two")
        with pytest.raises(perdure.NotEmpty, match="not empty"):
            await move(postgres, other)
        async with opened(other) as engine:  # and it goes on as before
            assert await engine.handle(sale, "two").status() == "waiting"


async def test_a_copy_that_was_killed_is_no_owner_of_the_next_one(tmp_path: Path, postgres: str) -> None:
    async with opened(postgres) as engine:
        await engine.start(sale, "one", key="one")
    killed = f"""
import asyncio, os
from perdure.app.copy import move
asyncio.run(move({postgres!r}, {str(tmp_path / "killed.db")!r}, lambda what, done, total: os._exit(9)))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", killed)
    assert await process.wait() == 9
    base, _, schema = postgres.partition("schema=")
    connection = await asyncpg.connect(base.rstrip("?&"))
    await connection.execute(f"UPDATE {schema}.engines SET expires = now()")
    await connection.close()

    assert (await move(postgres, tmp_path / "copy.db")).entries


async def test_half_a_copy_cannot_be_opened(tmp_path: Path, postgres_server: Server) -> None:
    async with opened(tmp_path / "shop.db") as engine:
        await engine.start(sale, "one", key="one")

    def cut(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await move(tmp_path / "shop.db", tmp_path / "half.db", cut)
    assert "half.db" not in str(list(tmp_path.iterdir()))  # noqa: ASYNC240
    with postgres_server.name() as url:
        with pytest.raises(KeyboardInterrupt):
            await move(tmp_path / "shop.db", url, cut)
        with pytest.raises(perdure.CannotOpen, match="drop the schema"):
            async with opened(url):
                pass
        with pytest.raises(perdure.CannotOpen, match="drop the schema"):
            await move(tmp_path / "shop.db", url)
