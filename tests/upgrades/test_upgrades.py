"""What version 25c5c24 wrote is opened, migrated, replayed and verified by today's (`README.md`)."""

import gzip
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.stores.sqlite.schema import VERSION
from perdure.testing import replay
from perdure.worlds.snapshots import Snapshots
from tests.upgrades.clerk import Wished, clerk
from tests.upgrades.make import EXPORTED
from tests.upgrades.shop import CELLS, FLOWS, OrderCreated, Sale, Sum, books, order, pay, sale, sleeper, waiting

HERE = Path(__file__).parent
WORKFLOWS: list[Any] = [*FLOWS, *CELLS]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return unpacked("shop.db", tmp_path)


def unpacked(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(gzip.decompress((HERE / f"{name}.gz").read_bytes()))
    return path


def schema_version(path: Path) -> Any:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.pragma("user_version")
    finally:
        connection.close()


def test_histories_of_an_old_version_are_replayed():
    assert sorted(replay(HERE / "histories", *FLOWS)) == sorted(EXPORTED)


async def test_the_schema_of_an_old_database_is_migrated_and_its_rows_are_sound(database: Path):
    assert schema_version(database) < VERSION

    async with perdure.open(database, workflows=WORKFLOWS, handlers=[pay]) as engine:
        assert await engine.queries.check() == []

    assert schema_version(database) == VERSION


async def test_what_an_old_version_recorded_is_known(database: Path):
    async with perdure.open(database, workflows=WORKFLOWS, handlers=[pay]) as engine:
        done = await engine.handle(order, "o-1").result()
        assert done["decision"] == {"approved": True} and done["sent"] == ["delivered", "failed", "delivered"]
        statuses = {f"{each.workflow}/{each.key}": each.status for each in await engine.instances(limit=100)}
        failed = await engine.handle("broken", "b-1").error()

    assert "card declined" in str(failed)
    assert {statuses[id] for id in ("broken/b-1", "undone/u-1")} == {"failed"}
    assert statuses["waiting/w-2"] == "cancelled"


async def test_instances_that_waited_in_an_old_version_go_on(database: Path):
    async with perdure.open(database, workflows=WORKFLOWS, handlers=[pay]) as engine:
        await engine.handle(waiting, "w-1").send("word", "hello")
        assert await engine.handle(waiting, "w-1").result() == "heard hello"
        await engine.handle(order, "o-2").send("decision", "yes")
        assert (await engine.handle(order, "o-2").result())["sent"] == ["delivered"]
        await engine.handle(sleeper, "s-1").wake()
        assert await engine.handle(sleeper, "s-1").result() == "bear"


async def test_cells_of_an_old_version_are_verified_and_go_on(database: Path):
    async with perdure.open(database, workflows=WORKFLOWS, handlers=[pay]) as engine:
        verified = await Snapshots(engine).verify()
        assert verified.difference is None and verified.unread == []
        assert await engine.state(sale, "c-1") == Sale("failed")
        assert await engine.state(books, "") == Sum(14)

        await engine.send(OrderCreated("c-0", 42), id="request-0")  # taken by the old version
        assert await engine.state(sale, "c-0") == Sale("paid") and await engine.state(books, "") == Sum(14)


async def test_a_question_of_an_old_version_to_a_person_is_read_and_answered(tmp_path: Path):
    """`sys/task@1` in a stored journal and a stored manifest: one question has its answer, the other one is open."""
    async with perdure.open(unpacked("clerk.db", tmp_path), workflows=[clerk]) as engine:
        verified = await Snapshots(engine).verify()
        assert verified.difference is None and verified.unread == []
        assert await engine.state(clerk, "ann") == Wished("a desk", "yes")

        (asked,) = await engine.open_effects("person")
        assert (asked.effect, asked.params) == ("sys/task@1", {"title": "May bob?", "details": "a chair"})
        await engine.answer(asked, ok={"answer": "no"}, executor="person", wait=20)

        assert await engine.state(clerk, "bob") == Wished("a chair", "no")
        assert await engine.tasks.list() == [], "it is no row of the list of tasks"
        assert await engine.queries.check() == []
