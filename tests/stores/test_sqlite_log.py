"""A damaged write-ahead log: told apart from a torn one, refused, kept, and left behind by a command."""

import os
import random
import shutil
from pathlib import Path

import apsw
import pytest

from perdure.errors import EngineRunning, FileDamaged
from perdure.kernel.batch import Batch
from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteStore, recover
from perdure.stores.sqlite.room import Room
from perdure.stores.sqlite.schema import PAGE_BYTES
from perdure.testing.stores import ask, batch, entry, head

FRAME = 24 + PAGE_BYTES
COMMITS = 30


@pytest.fixture(params=["", "with room"])
def killed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A database as a killed engine leaves it: most of it is in the log."""
    path = tmp_path / "live" / "test.db"
    path.parent.mkdir()
    store = SqliteStore(path)
    now(store.acquire, "first")
    for n in range(1, COMMITS + 1):
        assert commit(store, batch(journal=[entry(n, n, b"x" * 300 * n)], heads=[head(n)])) is None
    if request.param:
        Room(str(path), PAGE_BYTES, 10_000).make()
    copied = copy(path, tmp_path / "test.db")
    store.close()
    return copied


def commit(store: SqliteStore, written: Batch) -> Exception | None:
    answers: list[Exception | None] = []
    store.commit(written, answers.append)
    return answers[0]


def copy(source: Path, target: Path) -> Path:
    for ending in ("", "-wal"):
        shutil.copy(f"{source}{ending}", f"{target}{ending}")
    return target


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(log_of(path).read_bytes())
    content[place] ^= 1 << bit
    log_of(path).write_bytes(content)


def commit_frames(path: Path) -> list[int]:
    """The places of the frames that end a commit."""
    content = log_of(path).read_bytes()
    return [place for place in range(32, len(content) - FRAME + 1, FRAME) if content[place + 4 : place + 8] != bytes(4)]


def root_page(path: Path, table: str) -> int:
    """The number of the first page of a table in the file; its log is not read."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{path}?immutable=1", flags=flags)
    found: int = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
    connection.close()
    return found


def entries(path: Path) -> int:
    store = SqliteStore(path)
    now(store.acquire, "again")
    found: int = now(store.position).seq
    store.close()
    return found


def test_a_log_that_is_whole_is_taken(killed):
    assert entries(killed) == COMMITS


def test_a_flipped_bit_before_the_last_commit_is_damage_wherever_it_is(killed, tmp_path):
    dice = random.Random(7)
    last = commit_frames(killed)[-2] + FRAME  # where the last commit begins
    places = [*range(32), *(dice.randrange(32, last) for _ in range(40)), *range(last - FRAME, last - FRAME + 24)]
    for place in places:
        damaged = copy(killed, tmp_path / "damaged.db")
        flip(damaged, place, dice.randrange(8))
        before = log_of(damaged).read_bytes()

        for opening in (SqliteStore, SqliteStore.open_client):
            with pytest.raises(FileDamaged, match="perdure db recover"):
                opening(damaged)

        assert log_of(damaged).read_bytes() == before, "the log is kept"


def test_a_commit_that_was_cut_is_no_damage(killed, tmp_path):
    """A power cut in a flush leaves any of the pages of the last commit, also its end without its beginning."""
    ends = commit_frames(killed)
    first, end = ends[-2] + FRAME, ends[-1]
    assert end > first, "the last commit has several frames"
    content = log_of(killed).read_bytes()
    for torn in range(first, end + 1, FRAME):
        cut = copy(killed, tmp_path / "cut.db")
        log_of(cut).write_bytes(content[:torn] + bytes(FRAME) + content[torn + FRAME :])

        assert entries(cut) == COMMITS - 1


def test_frames_of_an_earlier_round_behind_the_end_are_no_damage(tmp_path):
    path = tmp_path / "live.db"
    store = SqliteStore(path)
    now(store.acquire, "first")
    for n in range(1, COMMITS):
        commit(store, batch(journal=[entry(n, n, b"x" * 3000)], heads=[head(n)]))
    store._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    commit(store, batch(journal=[entry(COMMITS, 1)]))
    copied = copy(path, tmp_path / "test.db")
    store.close()

    assert entries(copied) == COMMITS


def test_what_a_rolled_back_transaction_left_in_the_log_is_no_damage(tmp_path):
    path = tmp_path / "live.db"
    store = SqliteStore(path)
    now(store.acquire, "first")
    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))
    other = apsw.Connection(str(path))
    other.pragma("cache_size", 5)  # what does not fit goes to the log before the commit
    other.execute("BEGIN")
    other.executemany("INSERT INTO blobs VALUES (?, 0, ?)", [(b"%d" % n, os.urandom(5000)) for n in range(40)])
    other.execute("ROLLBACK")
    other.close()
    commit(store, batch(journal=[entry(2, 1)]))
    copied = copy(path, tmp_path / "test.db")
    frames = (log_of(copied).stat().st_size - 32) // FRAME
    assert frames > 40, "this proves nothing"
    store.close()

    assert entries(copied) == 2


def test_a_living_engine_has_nothing_to_recover_and_its_clients_come_in(tmp_path):
    path = tmp_path / "test.db"
    store = SqliteStore(path)
    now(store.acquire, "first")
    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))

    client = SqliteStore.open_client(path)

    assert ask(client.height()) == 1
    client.close()
    store.close()


# ---- going on without it --------------------------------------------------------------------------------------


def test_a_database_goes_on_with_the_log_up_to_the_damage(killed):
    place = commit_frames(killed)[19] + FRAME + 100  # within the commit of entry 20: the first two are not of entries
    flip(killed, place)
    before = log_of(killed).read_bytes()

    done = recover(str(killed))

    assert done is not None and done.with_log and done.frame == (place - 32) // FRAME + 1
    assert Path(done.kept).read_bytes() == before
    assert 0 < done.entry < COMMITS
    assert entries(killed) == done.entry
    assert recover(str(killed)) is None


def test_a_database_goes_on_without_the_log_when_a_checkpoint_had_copied_all_of_it(killed):
    other = apsw.Connection(str(killed))
    other.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    assert other.execute("SELECT count(*) FROM journal").get == COMMITS
    other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
    other.close()
    flip(killed, commit_frames(killed)[10] + 50)

    done = recover(str(killed))

    assert done is not None and not done.with_log
    assert done.entry == COMMITS
    assert entries(killed) == COMMITS


def test_a_database_that_is_damaged_both_ways_is_left_as_it_is(killed):
    flip(killed, commit_frames(killed)[10] + 50)
    end = PAGE_BYTES * root_page(killed, "world_snapshots")  # the log does not change this table
    content = bytearray(killed.read_bytes())
    content[end - PAGE_BYTES : end] = b"\xff" * PAGE_BYTES
    killed.write_bytes(content)
    before = log_of(killed).read_bytes()

    with pytest.raises(FileDamaged, match="neither with its log"):
        recover(str(killed))

    assert (killed.read_bytes(), log_of(killed).read_bytes()) == (bytes(content), before)


def test_nothing_is_recovered_under_a_running_engine(tmp_path):
    store = SqliteStore(tmp_path / "test.db")
    now(store.acquire, "first")

    with pytest.raises(EngineRunning):
        recover(str(tmp_path / "test.db"))
    store.close()
