"""Checkpoints beside the commits: the log stays short, whoever reads and whatever dies."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure.kernel.batch import Batch
from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.checkpoints import Checkpoints
from perdure.stores.sqlite.room import FIRST_BYTES, Room
from perdure.testing.stores import ask, batch, entry, head

FRAME = 2048 + 24
PAGES = 200
BODY = 40_000  # 20 pages


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "test.db")
    now(store.acquire, "engine")
    return store


def commit(store: SqliteStore, seq: int) -> None:
    errors: list[Exception | None] = []
    store.commit(batch(journal=[entry(seq, 1, os.urandom(BODY))], heads=[head(1)] if seq == 1 else []), errors.append)
    assert errors == [None]


def wait_for_thread(checkpoints: Checkpoints) -> None:
    if checkpoints._copier is not None:
        done = threading.Event()
        checkpoints._copier.run(done.set)
        done.wait()


def commit_with(checkpoints: Checkpoints, store: SqliteStore, seq: int) -> None:
    """A commit of a machine that is not so busy that the thread never has its turn."""
    if seq % 10 == 0:
        wait_for_thread(checkpoints)
    commit(store, seq)


def pages_of_log(store: SqliteStore) -> int:
    return os.path.getsize(f"{store.path}-wal") // FRAME


def test_the_log_begins_anew_while_commits_go_on(store: SqliteStore) -> None:
    checkpoints = Checkpoints(store.path, store._connection, PAGES)

    for seq in range(1, 401):  # 8,000 pages
        commit_with(checkpoints, store, seq)

    assert pages_of_log(store) < 4_000
    checkpoints.close()
    store.close()


def test_the_thread_copies_everything_and_the_next_commit_stands_at_the_beginning(store: SqliteStore) -> None:
    checkpoints = Checkpoints(store.path, store._connection, PAGES)
    for seq in range(1, 11):  # the log is long then: the thread begins to copy, unless it is still making room
        wait_for_thread(checkpoints)
        commit(store, seq)
    assert checkpoints._copier is not None
    checkpoints._copier.stop()
    copied = os.path.getsize(store.path)

    commit(store, 11)

    assert copied > 10 * BODY, "the thread copied nothing"
    log, _ = store._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    assert log < 50
    assert ask(store.height()) == 11
    store.close()


def test_a_reader_of_an_old_state_keeps_the_log_and_his_state_and_then_it_begins_anew(store: SqliteStore) -> None:
    checkpoints = Checkpoints(store.path, store._connection, PAGES)
    commit(store, 1)
    with closing(apsw.Connection(store.path)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM journal").get == 1
        for seq in range(2, 101):
            commit(store, seq)
        assert reader.execute("SELECT count(*) FROM journal").get == 1
        assert pages_of_log(store) > 1_900
        reader.execute("COMMIT")

    size, unchanged = pages_of_log(store), 0
    for seq in range(101, 2_101):  # until the thread had its turn, which may take a while where others work
        commit(store, seq)
        size, before = pages_of_log(store), size
        unchanged = unchanged + 1 if size == before else 0
        if unchanged == 30:  # 600 pages, and it is as long as it was
            break

    assert unchanged == 30, "the log never began again"
    assert ask(store.height()) == seq
    checkpoints.close()
    store.close()


READING = """
import sys, time
import apsw

connection = apsw.Connection(sys.argv[1])
print("reading", flush=True)
while True:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM instances").get
    time.sleep(0.02)
    connection.execute("COMMIT")
"""


def test_the_log_begins_anew_beside_somebody_who_nearly_always_reads(store: SqliteStore) -> None:
    checkpoints = Checkpoints(store.path, store._connection, PAGES)
    with subprocess.Popen([sys.executable, "-c", READING, store.path], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == "reading\n"

        size, unchanged = 0, 0
        for seq in range(1, 4_001):  # until the thread found a moment, which may take a while where others work
            commit_with(checkpoints, store, seq)
            size, before = pages_of_log(store), size
            unchanged = unchanged + 1 if size == before else 0
            if unchanged == 30:  # 600 pages, and it is as long as it was
                break
        reader.kill()

    assert unchanged == 30, "the log never began again"
    checkpoints.close()
    store.close()


def test_a_thread_that_cannot_open_the_file_tries_again(store: SqliteStore) -> None:
    checkpoints = Checkpoints(store.path, store._connection, PAGES)
    path, checkpoints._path = checkpoints._path, f"{store.path}.moved"

    for seq in range(1, 401):  # 8,000 pages
        commit(store, seq)
        wait_for_thread(checkpoints)
        if checkpoints._begin_at > PAGES:
            checkpoints._path = path  # after the first try

    assert pages_of_log(store) < 4_000
    checkpoints.close()
    store.close()


def test_a_thread_that_cannot_be_started_fails_no_commit(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    checkpoints = Checkpoints(store.path, store._connection, PAGES)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for seq in range(1, 51):
            commit(store, seq)

    for seq in range(51, 401):  # now one can be had
        commit_with(checkpoints, store, seq)

    assert ask(store.height()) == 400
    assert pages_of_log(store) < 4_000
    store.close()


def test_a_store_without_a_loop_has_no_thread_and_a_short_log_all_the_same(store: SqliteStore) -> None:
    for seq in range(1, 1_001):  # 20,000 pages
        commit(store, seq)

    assert store._checkpoints is None
    assert pages_of_log(store) < 10_000
    store.close()


COMMITTING = """
import asyncio, os, sys
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.checkpoints import Checkpoints
from perdure.testing.stores import batch, entry, head

async def main():
    store = SqliteStore(sys.argv[1], call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe)
    store.acquire("engine", lambda lease: None)
    store._checkpoints = Checkpoints(store.path, store._connection, 200)
    for seq in range(1, 100_000):
        told = asyncio.get_running_loop().create_future()
        heads = [head(1)] if seq == 1 else []
        store.commit(batch(journal=[entry(seq, 1, os.urandom(4_000))], heads=heads), told.set_result)
        assert await told is None
        print(seq, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [97, 150, 233, 409, 612])
def test_what_was_acknowledged_survives_a_kill_beside_a_checkpoint(tmp_path: Path, after: int) -> None:
    path = tmp_path / "test.db"
    with subprocess.Popen([sys.executable, "-c", COMMITTING, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == after:
                process.send_signal(signal.SIGKILL)
                break
        acknowledged = max([after, *map(int, process.stdout.read().split())])

    store = SqliteStore(path)
    now(store.acquire, "next")

    height = ask(store.height())
    assert acknowledged <= height <= acknowledged + 1
    assert [row.seq for row in ask(store.journal(0, height))] == list(range(1, height + 1))
    assert store._connection.pragma("integrity_check") == "ok"
    store.close()


def test_closing_waits_for_the_pages_and_takes_the_log_away(tmp_path: Path) -> None:
    async def run() -> None:
        store = SqliteStore(tmp_path / "test.db", call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe)
        now(store.acquire, "engine")
        for seq in range(1, 501):  # 10,000 pages
            told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
            store.commit(_row(seq), told.set_result)
            assert await told is None
        assert store._checkpoints is not None and store._checkpoints._copier is not None
        store.close()

    asyncio.run(run())
    assert [name for name in os.listdir(tmp_path) if name.endswith(("-wal", "-shm"))] == []


def _row(seq: int) -> Batch:
    return batch(journal=[entry(seq, 1, os.urandom(BODY))], heads=[head(1)] if seq == 1 else [])


# ---- room in the log ------------------------------------------------------------------------------------------


def test_a_log_of_a_few_pages_gets_no_room_and_a_longer_one_does(store: SqliteStore) -> None:
    checkpoints = Checkpoints(store.path, store._connection)
    commit(store, 1)
    assert os.path.getsize(f"{store.path}-wal") < 50 * FRAME

    for seq in range(2, 10):
        commit(store, seq)
    checkpoints.close()

    assert os.path.getsize(f"{store.path}-wal") > FIRST_BYTES
    store.close()


def test_room_never_comes_over_what_was_committed(store: SqliteStore, tmp_path: Path) -> None:
    """Both write at the end of the log at the same time, again and again."""
    ended = threading.Event()

    def make_room() -> None:
        while not ended.is_set():
            Room(store.path, 2048, 1_000_000)._append(100)

    thread = threading.Thread(target=make_room)
    thread.start()
    for seq in range(1, 301):
        commit(store, seq)
    ended.set()
    thread.join()
    for ending in ("", "-wal"):
        shutil.copy(f"{store.path}{ending}", f"{tmp_path / 'killed.db'}{ending}")
    store.close()

    again = SqliteStore(tmp_path / "killed.db")
    now(again.acquire, "next")
    assert ask(again.height()) == 300
    assert again._connection.pragma("integrity_check") == "ok"
    again.close()


def test_a_log_that_gets_no_room_grows_by_itself(store: SqliteStore) -> None:
    checkpoints = Checkpoints(store.path, store._connection, PAGES)
    checkpoints._room = Room(f"{store.path}.moved", 2048, PAGES)

    for seq in range(1, 401):
        commit(store, seq)

    assert ask(store.height()) == 400
    assert pages_of_log(store) < 4_000
    checkpoints.close()
    store.close()
