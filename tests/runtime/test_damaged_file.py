"""A damaged SQLite file: one kind of error, no endless tries, and no caller that waits for ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import Corrupt, FileDamaged
from perdure.stores.sqlite.schema import PAGE_BYTES

SECONDS = 20


@perdure.flow
async def publishes(ctx: perdure.Context) -> Any:
    body = (await ctx.receive("go")).body
    ctx.publish("heard", body)
    return body


async def make(path: Path, keys: str = "ab") -> None:
    async with perdure.open(path, workflows=[publishes]) as engine:
        for key in keys:
            await engine.start(publishes, key=key)


def page_of(path: Path, table: str) -> int:
    connection = apsw.Connection(str(path))
    page: int = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).get
    connection.close()
    return page


def damage_page(path: Path, table: str) -> None:
    page = page_of(path, table)
    with open(path, "r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)


def change(path: Path, statement: str, *values: object) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, values)
    connection.close()


async def test_a_commit_that_meets_a_damaged_page_stops_the_engine_and_everybody_hears_it(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    await make(path)
    damage_page(path, "published")

    async with asyncio.timeout(SECONDS), perdure.open(path, workflows=[publishes], drain=3600) as engine:
        result = asyncio.ensure_future(engine.handle(publishes, "b").result())
        with pytest.raises(FileDamaged, match="restore it from a backup"):
            await engine.handle(publishes, "a").send("go", 1)
        with pytest.raises(FileDamaged):
            await result
        with pytest.raises(FileDamaged):
            await engine.start(publishes, key="c")
        assert "crashes" not in engine.counts


async def test_a_damaged_page_that_every_engine_needs_is_told_when_it_opens(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    await make(path)
    damage_page(path, "instances_by_name")

    with pytest.raises(FileDamaged):
        async with perdure.open(path, workflows=[publishes]):
            pass


async def test_a_read_of_a_damaged_page_is_the_same_error_for_a_client(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    await make(path)
    damage_page(path, "published")

    async with perdure.connect(path) as client:
        with pytest.raises(FileDamaged):
            await client.handle("publishes", "a").read("heard")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM journal WHERE seq = (SELECT min(seq) FROM journal WHERE instance = 1)",
        "DELETE FROM large_bodies",
        "UPDATE instances SET version = CAST(x'ff' AS TEXT) WHERE key = 'a'",
    ],
    ids=["a lost row", "a lost large body", "a text that is none"],
)
async def test_damaged_rows_of_one_instance_stop_no_other(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "test.db"
    async with perdure.open(path, workflows=[large]) as engine:
        assert (await engine.start(large, "x" * 100_000, key="a")).address.key == "a"
        await engine.start(large, "y", key="b")
    change(path, statement)

    async with asyncio.timeout(SECONDS), perdure.open(path, workflows=[large]) as engine:
        with pytest.raises(Corrupt):
            await engine.handle(large, "a").send("go", 1)
        await engine.handle(large, "b").send("go", 2)
        assert await engine.handle(large, "b").result() == 2
        assert "crashes" not in engine.counts


@perdure.flow
async def large(ctx: perdure.Context, text: str) -> Any:
    return (await ctx.receive("go")).body


async def test_a_wrong_row_of_an_index_is_found_by_doctor(tmp_path: Path) -> None:
    """SQLite answers from an index without a look at the rows: a list may be wrong, and only a check of all tells."""
    path = tmp_path / "test.db"
    await make(path)
    page = page_of(path, "instances_by_name")
    content = bytearray(path.read_bytes())
    at = content.index(b"publishesb", (page - 1) * PAGE_BYTES, page * PAGE_BYTES)
    content[at + len("publishes")] = ord("q")
    path.write_bytes(content)

    async with perdure.connect(path) as client:
        assert await client.queries.check() != []


async def used(path: Path) -> None:
    """All that callers do. Each of them may hear that the database is damaged, and nothing else."""
    async with perdure.open(path, workflows=[publishes, large], drain=1) as engine:
        await heard(engine.start(publishes, key="new"))
        await heard(engine.instances())
        for key in "abcdef":
            handle = engine.handle(large, key)
            await heard(handle.status())
            await heard(handle.history())
            await heard(handle.send("go", 1))
            await heard(handle.result())
            await heard(engine.handle(publishes, key).read("heard"))
    async with perdure.connect(path) as client:
        await heard(client.queries.check())


async def heard(asked: Awaitable[Any]) -> None:
    async with asyncio.timeout(SECONDS):
        with suppress(perdure.PerdureError):
            await asked


@pytest.mark.parametrize("seed", range(40))
async def test_no_damaged_byte_gives_another_error_or_lets_a_caller_wait(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    path = tmp_path / "test.db"
    await make(path, "abcdef")
    async with perdure.open(path, workflows=[large]) as engine:
        for number, key in enumerate("abcdef"):
            await engine.start(large, "x" * 10 ** (number % 6), key=key)
    content = bytearray(path.read_bytes())
    if seed % 2:
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    else:
        page = dice.randrange(len(content) // PAGE_BYTES) * PAGE_BYTES
        content[page : page + 100] = dice.randbytes(100)
    path.write_bytes(content)

    with suppress(perdure.PerdureError):  # the open may hear it already
        await used(path)
