"""Commands that read work on a file that their user may only read, or in a directory that they may not write."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores import batch, entry, head
from tests.cli.world import World, clean_environment

OBEYING = """
import ctypes, os, sys
if os.geteuid() == 0:  # the permissions of files hold for root too, from the next exec on
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
    for capability in CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH:
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Runs Python with the arguments that it gets."""

READING = (
    ["ls"],
    ["show", "order/o-17"],
    ["history", "order/o-17"],
    ["why", "order/o-17"],
    ["export", "order/o-17"],
    ["journal", "tail"],
    ["doctor"],
)

CLIENT = """
import sys
from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores import ask
client = SqliteStore.open_client(sys.argv[1])
for line in sys.stdin:
    print(ask(client.height()), flush=True)
"""


@pytest.fixture
def place(world: World) -> Iterator[Path]:
    """A directory with the database in it."""
    place = world.directory / "shop"
    place.mkdir()
    world.db = str(place / "shop.db")
    yield place
    protect(place, 0o700, 0o600)


def protect(place: Path, directory: int, files: int) -> None:
    place.chmod(0o700)
    for file in place.iterdir():
        file.chmod(files)
    place.chmod(directory)


def call(world: World, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", OBEYING, "-m", "perdure", *args],
        cwd=world.directory,
        env={**clean_environment(), "PERDURE_DB": world.db},
        capture_output=True,
        text=True,
        check=False,
    )


def engine(world: World) -> SqliteStore:
    store = SqliteStore(world.db)
    now(store.acquire, "engine")
    return store


def height(client: subprocess.Popen[str]) -> int:
    assert client.stdin is not None and client.stdout is not None
    print("?", file=client.stdin, flush=True)
    return int(client.stdout.readline())


@pytest.mark.parametrize(("directory", "files"), [(0o700, 0o400), (0o500, 0o600), (0o500, 0o400)])
def test_a_file_that_may_only_be_read_is_read_and_nothing_is_made_beside_it(world, place, directory, files):
    assert world.perdure("run", "flows:order", "--key", "o-17", "--input", '{"order_id": "o-17"}').exit_code == 0
    protect(place, directory, files)
    before = sorted(os.listdir(place))

    for command in READING:
        done = call(world, *command)
        assert done.returncode == 0, (command, done.stderr)
        assert "o-17" in done.stdout or command == ["doctor"]

    assert sorted(os.listdir(place)) == before


def test_what_would_write_is_refused_and_says_why(world, place):
    world.perdure("run", "flows:order", "--key", "o-17", "--input", '{"order_id": "o-17"}')
    protect(place, 0o500, 0o400)

    for command in (["start", "order", "--key", "o-18", "--input", '{"order_id": "o-18"}'], ["run", "flows:order"]):
        done = call(world, *command)
        assert (done.returncode, "Traceback" in done.stderr) == (6, False), done.stderr
        assert "shop.db can only be read" in done.stderr or "may not be read and written" in done.stderr


def test_the_log_of_a_running_engine_is_read_too(world, place):
    store = engine(world)
    store.commit(batch(journal=[entry(1, 1)], heads=[head(1)]), lambda error: None)
    protect(place, 0o500, 0o400)

    assert len(call(world, "ls", "--json").stdout.splitlines()) == 1
    store.close()


def test_a_log_that_cannot_be_read_is_told_with_the_way_round(world, place):
    store = engine(world)
    store.commit(batch(journal=[entry(1, 1)], heads=[head(1)]), lambda error: None)
    store._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    store.close()
    Path(f"{world.db}-shm").unlink(missing_ok=True)
    protect(place, 0o500, 0o400)

    done = call(world, "ls")

    assert done.returncode == 6
    assert f"copy {world.db} and {world.db}-wal to a directory that you may write" in done.stderr


def test_a_client_that_may_only_read_sees_what_an_engine_writes_later(world, place):
    """Without a log SQLite takes the file for one that never changes. Yet an engine may come and go."""
    store = engine(world)
    store.close()
    protect(place, 0o500, 0o400)
    client = subprocess.Popen(
        [sys.executable, "-c", OBEYING, "-c", CLIENT, world.db],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    heights = [height(client)]

    protect(place, 0o700, 0o600)
    store = engine(world)
    store.commit(batch(journal=[entry(1, 1)], heads=[head(1)]), lambda error: None)
    protect(place, 0o500, 0o400)
    heights.append(height(client))
    protect(place, 0o700, 0o600)
    store.commit(batch(journal=[entry(2, 1)]), lambda error: None)
    store.close()
    protect(place, 0o500, 0o400)
    heights.append(height(client))

    client.communicate()
    assert heights == [0, 1, 2]
