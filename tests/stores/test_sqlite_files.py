"""What happens to a database when its files are deleted, replaced, linked or read by other users."""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

import perdure
from perdure.errors import CannotOpen, EngineRunning, FileReplaced
from perdure.kernel.batch import Batch
from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores import ask, batch, entry, head, message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    now(store.acquire, "first")
    return store


def commit(store: SqliteStore, written: Batch) -> Exception | None:
    answers: list[Exception | None] = []
    store.commit(written, answers.append)
    return answers[0]


def error_of_commits(store: SqliteStore, rows: int) -> Exception | None:
    """Of the first commit that has one: a row alone trusts a look that is some milliseconds old."""
    for seq in range(2, 1_000_000, rows):
        error = commit(store, batch(journal=[entry(seq + n, 1) for n in range(rows)]))
        if error is not None:
            return error
    return None


@perdure.flow
async def waiting(ctx: perdure.Context) -> object:
    return (await ctx.receive("go")).body


# ---- deleted or replaced --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2])  # one row alone is committed by a shorter way
def test_a_commit_into_a_deleted_file_is_no_success(path, rows):
    store = opened(path)
    assert commit(store, batch(journal=[entry(1, 1)], heads=[head(1)])) is None
    path.unlink()

    error = error_of_commits(store, rows)

    assert isinstance(error, FileReplaced)
    assert f"{path} was deleted or moved while it was open" in str(error)
    store.close()


def test_a_commit_into_a_file_that_another_one_replaced_is_no_success(path, tmp_path):
    store = opened(path)
    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))
    shutil.copy(path, tmp_path / "backup.db")
    os.replace(tmp_path / "backup.db", path)

    error = error_of_commits(store, 1)

    assert isinstance(error, FileReplaced)
    assert "replaced by another file" in str(error)
    store.close()


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
def test_an_engine_without_work_notices_too(path, ending):
    store = opened(path)
    assert now(store.inbox, 10) == []
    os.unlink(f"{path}{ending}")

    with pytest.raises(FileReplaced, match=f"{path}{ending} was deleted"):
        now(store.inbox, 10)
    store.close()


def test_a_log_that_was_deleted_under_a_running_engine_is_saved_when_it_closes(path):
    store = opened(path)
    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))
    os.unlink(f"{path}-wal")
    store.close()

    again = opened(path)
    assert now(again.position).seq == 1
    again.close()


def test_the_close_of_a_replaced_database_leaves_the_log_of_the_new_one_alone(path):
    first = opened(path)
    client = SqliteStore.open_client(path)
    commit(first, batch(journal=[entry(1, 1)], heads=[head(1)]))
    for file in path.parent.iterdir():
        file.unlink()
    second = opened(path)
    assert commit(second, batch(journal=[entry(1, 1)], heads=[head(1)])) is None
    log = Path(f"{path}-wal").stat()

    first.close()
    client.close()

    assert Path(f"{path}-wal").stat().st_ino == log.st_ino
    assert commit(second, batch(journal=[entry(2, 1)])) is None
    second.close()
    third = opened(path)
    assert now(third.position).seq == 2
    third.close()


def test_a_client_of_a_deleted_file_hears_it_when_it_posts_and_when_it_waits(path):
    store = opened(path)
    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))
    client = SqliteStore.open_client(path)
    path.unlink()

    with pytest.raises(FileReplaced):
        ask(client.post(message(b"m", 1)))
    with pytest.raises(FileReplaced):
        ask(client.changed())
    client.close()
    store.close()


async def test_an_engine_whose_file_is_deleted_stops_and_everybody_hears_why(path):
    async with perdure.open(path, workflows=[waiting]) as engine:
        handle = await engine.start(waiting, key="k")
        result = asyncio.ensure_future(handle.result())
        path.unlink()

        with pytest.raises(FileReplaced):
            await asyncio.wait_for(result, 60)
        with pytest.raises(FileReplaced):
            await engine.start(waiting, key="other")


async def test_a_second_engine_on_a_new_file_of_that_name_waits_for_the_lease(path):
    async with perdure.open(path, workflows=[waiting]):
        path.unlink()
        with pytest.raises(EngineRunning):
            async with perdure.open(path, workflows=[waiting]):
                pass


# ---- other names and other users ------------------------------------------------------------------------------


def test_a_hard_link_lets_no_second_engine_in(path, tmp_path):
    store = opened(path)
    os.link(path, tmp_path / "link.db")

    for opening in (SqliteStore, SqliteStore.open_client):
        with pytest.raises(CannotOpen, match=r"has 2 names \(hard links\)"):
            opening(tmp_path / "link.db")

    assert commit(store, batch(journal=[entry(1, 1)])) is None
    store.close()


def modes(path: Path) -> dict[str, str]:
    return {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in path.parent.iterdir()}


def test_new_files_are_for_their_owner_alone(path):
    store = opened(path)
    commit(store, batch(journal=[entry(1, 1)]))

    assert set(modes(path).values()) == {"0o600"}
    assert f"{path.name}-lease" in modes(path)
    store.close()


def test_a_file_that_exists_keeps_its_permissions_and_its_neighbours_get_them(path):
    opened(path).close()
    path.chmod(0o660)
    store = opened(path)

    assert {modes(path)[f"{path.name}{ending}"] for ending in ("", "-wal", "-shm", "-lease")} == {"0o660"}
    store.close()
