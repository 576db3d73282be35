"""What only a file can do: be held by a dead process, be full, be somebody else's, be cut in the middle."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.codec import seal
from perdure.errors import (
    CannotOpen,
    Corrupt,
    EngineRunning,
    Fenced,
    NewerSchema,
    NotADatabase,
    StoreFailed,
)
from perdure.kernel.batch import Batch
from perdure.kernel.events import Address
from perdure.kernel.rows import Loaded, StoredInstance
from perdure.ports.shards import Figures
from perdure.ports.store import Filter, Posted
from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.pace import Pace
from perdure.stores.sqlite.schema import PAGE_BYTES
from perdure.testing.stores import ask, batch, entry, head, message

COMMON = """
import asyncio, sys
from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores import ask, batch, entry, head, message
path = sys.argv[1]
"""

ENGINE = (
    COMMON
    + """
store = SqliteStore(path)
store.acquire("the child", lambda lease: None)
store.commit(batch(journal=[entry(1, 1)], heads=[head(1)]), print)
print("ready", flush=True)
sys.stdin.read()
"""
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    now(store.acquire, "first")
    yield store
    store.close()


def child(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"the child ended before it said {word!r}")


def commit(store: SqliteStore, written: Batch) -> Exception | None:
    answers: list[Exception | None] = []
    store.commit(written, answers.append)
    return answers[0]


# ---- the lease ---------------------------------------------------------------------------------------------


def test_after_a_kill_the_next_engine_enters_at_once(path):
    first = child(ENGINE, path)
    until(first, "ready")
    first.send_signal(signal.SIGKILL)
    first.communicate()

    store = SqliteStore(path)
    lease = now(store.acquire, "second")

    assert lease.epoch == 2
    assert now(store.position).seq == 1
    assert commit(store, batch(journal=[entry(2, 1)])) is None
    store.close()


def test_a_second_engine_is_told_who_runs(path):
    first = child(ENGINE, path)
    until(first, "ready")
    second = SqliteStore(path)

    with pytest.raises(EngineRunning) as caught:
        now(second.acquire, "second")

    assert f"the child (pid {first.pid} on " in str(caught.value)
    assert f"perdure.connect({str(path)!r})" in str(caught.value)
    first.communicate()
    assert now(second.acquire, "second").epoch == 2
    second.close()


def test_a_second_engine_in_the_same_process_is_refused_under_any_name(path, store):
    link = path.parent / "link.db"
    link.symlink_to(path)

    for name in (path, link, f"{path.parent}/./test.db"):
        second = SqliteStore(name)
        with pytest.raises(EngineRunning, match="first"):
            now(second.acquire, "second")
        second.close()


def test_the_lease_outlives_clients_that_come_and_go(path, store):
    SqliteStore.open_client(path).close()

    with pytest.raises(EngineRunning):
        now(SqliteStore(path).acquire, "second")


def test_an_owner_can_begin_a_new_epoch(store):
    assert now(store.acquire, "first").epoch == 2
    assert commit(store, batch(journal=[entry(1, 1)])) is None


# ---- other processes ---------------------------------------------------------------------------------------

POSTS = 100

CLIENT = (
    COMMON
    + f"""
client = SqliteStore.open_client(path)
print("ready", flush=True)
for n in range({POSTS}):
    assert not ask(client.post(message(b"%03d" % n, 1))).refused
print(len(ask(client.journal(0, 10**6))))
"""
)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_client_posts_while_the_engine_commits(path, in_thread):
    async def run() -> list[bytes]:
        call_soon = asyncio.get_running_loop().call_soon_threadsafe if in_thread else None
        store = SqliteStore(path, call_soon_threadsafe=call_soon)
        now(store.acquire, "engine")
        await committed(store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        seen: list[bytes] = []
        seq = 1
        client = child(CLIENT, path)
        until(client, "ready")
        running = True
        while running:
            running = client.poll() is None  # looked at before the inbox: the last look sees the last post
            removed = [row.id for row in now(store.inbox, 1000)]
            seen += removed
            seq += 1
            assert await committed(store, batch(journal=[entry(seq, 1)], removed=removed)) is None
        assert client.returncode == 0
        assert await store.check() != []  # these entries are no real ones; the file itself is sound
        assert now(store.position).seq == seq
        store.close()
        return seen

    assert asyncio.run(run()) == [b"%03d" % n for n in range(POSTS)]


async def committed(store: SqliteStore, written: Batch) -> Exception | None:
    answer: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    store.commit(written, answer.set_result)
    return await answer


def test_a_client_reads_what_the_engine_has_committed(path, store):
    client = SqliteStore.open_client(path)
    before = ask(client.changed())

    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))

    assert ask(client.changed()) != before
    assert ask(client.heads(Filter())) == [head(1)]
    assert ask(client.post(message(b"m", 1))) == Posted()
    assert now(store.inbox, 10) == [message(b"m", 1)]
    client.close()


def test_a_client_can_post_while_no_engine_runs(path, store):
    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))
    store.close()
    client = SqliteStore.open_client(path)

    assert ask(client.post(message(b"m", 1))) == Posted()
    client.close()

    later = SqliteStore(path)
    now(later.acquire, "later")
    assert now(later.inbox, 10) == [message(b"m", 1)]
    later.close()


# ---- the writer thread -------------------------------------------------------------------------------------


def slow(path: Path) -> SqliteStore:
    store = SqliteStore(path, call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe)
    now(store.acquire, "slow")
    store._pace.slow = True
    return store


def test_on_a_slow_disk_commits_happen_in_a_thread_and_are_told_on_the_loop(path):
    async def run() -> None:
        store = slow(path)
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        store.commit(batch(journal=[entry(1, 1)]), lambda error: told.set_result(threading.get_ident()))
        assert not told.done()  # not before the call returns
        assert await told == threading.get_ident()
        store.close()

    asyncio.run(run())


def test_reads_during_a_commit_see_what_is_durable(path):
    async def run() -> None:
        store = slow(path)
        assert await committed(store, batch(journal=[entry(1, 1)], heads=[head(1)])) is None
        go_on = threading.Event()
        finish = store._finish
        store._finish = lambda: (go_on.wait(60), finish())[1]  # type: ignore[method-assign]
        answer: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        store.commit(batch(journal=[entry(2, 1)], heads=[head(1, status="waiting")]), answer.set_result)

        assert now(store.position).seq == 1
        found: list[Loaded | Exception | None] = []
        store.load([1, Address("puppet", "key-1")], lambda ref, record: found.append(record))
        assert found == [StoredInstance(head(1), None, (entry(1, 1),))] * 2
        assert await store.head(1) == head(1)
        assert now(store.inbox, 10) == []

        go_on.set()
        assert await answer is None
        assert now(store.position).seq == 2
        store.close()

    asyncio.run(run())


def test_nobody_hears_of_a_commit_after_close(path):
    async def run() -> None:
        store = slow(path)
        told: list[object] = []
        store.commit(batch(journal=[entry(1, 1)]), told.append)
        store.close()
        for _ in range(10):
            await asyncio.sleep(0)
        assert told == []

    asyncio.run(run())
    again = SqliteStore(path)
    now(again.acquire, "again")
    assert now(again.position).seq == 1
    again.close()


def test_the_loop_does_not_wait_for_a_client_that_is_writing(path):
    async def run() -> None:
        store = SqliteStore(path, call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe)
        now(store.acquire, "engine")
        client = apsw.Connection(str(path))
        client.execute("BEGIN IMMEDIATE")
        answer: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        store.commit(batch(journal=[entry(1, 1)]), answer.set_result)  # returns, although the file is locked

        assert not answer.done()
        client.execute("COMMIT")
        assert await asyncio.wait_for(answer, 60) is None
        client.close()
        store.close()

    asyncio.run(run())


def test_a_full_disk_is_told_from_the_thread_too(path):
    async def run() -> None:
        store = slow(path)
        fill(store)
        error = await committed(store, batch(journal=[entry(1, 1, os.urandom(60_000))]))
        assert isinstance(error, StoreFailed)
        store.close()

    asyncio.run(run())


def test_the_path_is_chosen_by_the_time_of_recent_commits():
    pace = Pace()
    for _ in range(100):
        pace.took(0.0002)
    pace.took(0.050)  # a checkpoint
    assert not pace.slow

    for _ in range(10):
        pace.took(0.005)
    assert pace.slow

    for _ in range(8):
        pace.took(0.0001)
    assert not pace.slow


# ---- failing disks -----------------------------------------------------------------------------------------


def fill(store: SqliteStore) -> None:
    """From here on the file may not grow."""
    store._connection.pragma("max_page_count", store._connection.pragma("page_count"))


def test_a_full_disk_fails_the_commit_and_leaves_the_store_usable(path, store):
    commit(store, batch(journal=[entry(1, 1)], heads=[head(1)]))
    fill(store)

    error = commit(store, batch(journal=[entry(2, 1, os.urandom(60_000))], added=[message(b"m", 1)]))

    assert isinstance(error, StoreFailed)
    assert "the disk is full" in str(error)
    assert ask(store.journal(0, 10)) == [entry(1, 1)]
    assert now(store.inbox, 10) == []
    store._connection.pragma("max_page_count", 1_000_000)
    assert commit(store, batch(journal=[entry(2, 1, b"x" * 60_000)])) is None
    assert ask(store.journal(1, 10)) == [entry(2, 1, b"x" * 60_000)]


LIMITED = (
    COMMON
    + """
import os, resource, signal
store = SqliteStore(path)
store.acquire("limited", lambda lease: None)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 50_000, hard))
written, errors = 0, []
while not errors:
    one = batch(journal=[entry(written + 1, 1, os.urandom(5_000))])
    store.commit(one, lambda error: errors.append(error) if error else None)
    written += not errors
print(type(errors[0]).__name__)
positions = []
store.position(positions.append)
assert positions[0].seq == written
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
store.commit(batch(journal=[entry(written + 1, 1)]), print)
store.close()
"""
)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="the system has no limit for file sizes")
def test_a_write_error_of_the_system_fails_the_commit_and_leaves_the_store_usable(path):
    said, _ = child(LIMITED, path).communicate(timeout=60)

    assert said.split() == ["StoreFailed", "None"]


def test_a_torn_log_loses_only_the_torn_commit(path, store, tmp_path):
    """The file and its log as they were at any moment: what opens is a prefix of what was committed."""
    sizes = []
    for n in range(1, 9):
        commit(store, batch(journal=[entry(n, n, b"x" * 500 * n)], heads=[head(n)]))
        sizes.append(os.path.getsize(f"{path}-wal"))
    shutil.copy(path, tmp_path / "copy.db")
    log = Path(f"{path}-wal").read_bytes()

    for cut in [*range(sizes[0], len(log), 1111), len(log)]:
        (tmp_path / "copy.db-wal").write_bytes(log[:cut])
        torn = shutil.copy(tmp_path / "copy.db", tmp_path / "torn.db")
        shutil.copy(tmp_path / "copy.db-wal", tmp_path / "torn.db-wal")
        opened = SqliteStore(torn)
        now(opened.acquire, "after the cut")
        count = now(opened.position).seq
        assert count == sum(size <= cut for size in sizes)
        assert ask(opened.journal(0, 100)) == [entry(n, n, b"x" * 500 * n) for n in range(1, count + 1)]
        assert [row.id for row in ask(opened.heads(Filter()))] == list(range(count, 0, -1))
        opened.close()


def test_the_same_large_body_is_stored_once(store):
    rows = [entry(n, 1, b"x" * 100_000) for n in range(1, 6)]
    commit(store, batch(journal=rows))

    assert store._connection.execute("SELECT count(*), sum(length(body)) FROM large_bodies").get == (1, 100_005)
    assert store._connection.execute("SELECT max(length(body)) FROM journal").get == 33
    assert ask(store.journal(0, 10)) == rows


def test_a_lost_large_body_is_corruption(store):
    commit(store, batch(journal=[entry(1, 1, b"x" * 100_000)], heads=[head(1)]))
    store._connection.execute("DELETE FROM large_bodies")

    with pytest.raises(Corrupt, match="there is no large body"):
        ask(store.history(1))
    assert any("there is no large body" in problem for problem in ask(store.check()))


def test_a_byte_of_a_blob_that_changed_in_the_file_is_noticed(path, store):
    body = b"The bytes of a blob, as they lie in the file. " * 20
    digest, whole = ask(store.put_blobs([body, b"whole"], at=7))
    store.release()
    store.close()  # the last connection: the WAL is in the file now
    content = bytearray(path.read_bytes())
    content[content.index(body) + 400] ^= 1
    path.write_bytes(content)

    with closing(SqliteStore.open_client(path)) as client:
        with pytest.raises(Corrupt, match=f"blob sha256:{digest.hex()} do not match"):
            ask(client.blob(digest))
        assert ask(client.blob(whole)) == b"whole"
        assert [problem for problem in ask(client.check()) if digest.hex() in problem]


def test_another_process_puts_a_blob_while_an_engine_runs(path, store):
    code = """
import asyncio, sys
from perdure.stores.sqlite import SqliteStore
client = SqliteStore.open_client(sys.argv[1])
print(asyncio.run(client.put_blobs([b"from elsewhere"], at=7))[0].hex())
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=60
    )

    assert ask(store.blob(bytes.fromhex(run.stdout))) == b"from elsewhere"
    assert commit(store, batch(journal=[entry(1, 1)], heads=[head(1)])) is None


def test_many_blobs_are_many_short_transactions_so_that_the_engine_gets_in_between(store):
    ask(store.put_blobs([b"first"], at=7))
    commits = count(1)
    store._writing.set_commit_hook(lambda: next(commits) < 0)  # False: go on

    ask(store.put_blobs([b"%d" % n * 100_000 for n in range(40)], at=7))
    ask(store.put_blobs([b"%d" % n for n in range(5000)], at=7))

    assert next(commits) > 7 + 10


def test_a_read_of_a_closed_store_says_so(path):
    store = SqliteStore(path)
    now(store.acquire, "first")
    store.close()
    store.close()

    with pytest.raises(StoreFailed):
        ask(store.head(1))


# ---- opening -----------------------------------------------------------------------------------------------


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(CannotOpen, match=r"there is no directory .*/nowhere; create it"):
        SqliteStore(tmp_path / "nowhere" / "test.db")


def test_a_directory_is_no_database(tmp_path):
    with pytest.raises(CannotOpen, match="is a directory"):
        SqliteStore(tmp_path)


def test_something_else_than_a_file_is_no_database(path):
    os.mkfifo(path)

    with pytest.raises(CannotOpen, match="not a regular file"):
        SqliteStore(path)


def test_missing_permissions_are_named():
    with tempfile.TemporaryDirectory() as directory:  # not `tmp_path`: what is above that is closed to others
        path = Path(directory) / "test.db"
        store = SqliteStore(path)  # here: whoever has no rights may not be able to read our own files either
        now(store.acquire, "first")
        store.close()

        def story() -> None:
            for target, mode in ((path, 0o400), (path, 0o000), (path.parent, 0o500)):
                before = target.stat().st_mode
                target.chmod(mode)
                with pytest.raises(CannotOpen, match="may not be"):
                    SqliteStore(path)
                target.chmod(before)

        if os.geteuid() == 0:  # root may do everything: be somebody else
            for file in (path.parent, *path.parent.iterdir()):
                os.chown(file, NOBODY, NOBODY)
            assert as_nobody(story) == 0
        else:
            story()


NOBODY = 65534


def as_nobody(story: Callable[[], None]) -> int:
    """The exit status of a child process that runs `story` without rights."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            story()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("content", [b"hello", b"hello " * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_left_alone(path, content):
    path.write_bytes(content)

    for opening in (SqliteStore, SqliteStore.open_client):
        with pytest.raises(NotADatabase):
            opening(path)

    assert path.read_bytes() == content
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_of_somebody_else_is_left_alone(path, mode):
    other = apsw.Connection(str(path))
    other.pragma("journal_mode", mode)
    other.execute("CREATE TABLE theirs (x)")
    other.pragma("user_version", 1)
    other.close()
    before = path.read_bytes()

    with pytest.raises(NotADatabase, match="not one of perdure"):
        SqliteStore(path)

    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_file_whose_checkpoint_was_cut_is_whole(path, store, tmp_path):
    """A kill in the middle of a checkpoint: the first page tells of pages that stand in the WAL only."""
    for seq in range(1, 400):
        assert commit(store, batch(journal=[entry(seq, 1, b"x" * 500)], heads=[head(1)] if seq == 1 else [])) is None
    cut = tmp_path / "cut.db"
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{cut}{end}")
    shutil.copy(path, tmp_path / "whole.db")
    shutil.copy(f"{path}-wal", tmp_path / "whole.db-wal")
    whole = apsw.Connection(str(tmp_path / "whole.db"))
    assert whole.execute("SELECT count(*) FROM journal").get == 399
    whole.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
    first_page = (tmp_path / "whole.db").read_bytes()[:PAGE_BYTES]
    whole.close()
    with open(cut, "r+b") as file:
        file.write(first_page)
    assert int.from_bytes(first_page[28:32], "big") * PAGE_BYTES > os.stat(cut).st_size, "this proves nothing"

    again = SqliteStore(cut)
    now(again.acquire, "second")

    assert now(again.position).seq == 399
    again.close()


def test_a_newer_schema_is_left_alone(path, store):
    store._connection.pragma("user_version", 99)
    store.close()
    before = path.read_bytes()

    for opening in (SqliteStore, SqliteStore.open_client):
        with pytest.raises(NewerSchema, match=r"schema 99.*upgrade"):
            opening(path)

    assert path.read_bytes() == before


def test_a_damaged_file_says_so(path, store):
    for n in range(1, 50):
        commit(store, batch(journal=[entry(n, n, b"x" * 1000)], heads=[head(n)]))
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xff" * (len(content) - 4096 * 3)
    path.write_bytes(content)

    with pytest.raises((Corrupt, NotADatabase, StoreFailed)) as caught:
        broken = SqliteStore(path)
        now(broken.acquire, "first")
        ask(broken.journal(0, 100))
    assert str(path) in str(caught.value)


def test_an_empty_file_becomes_a_database(path):
    path.touch()
    store = SqliteStore(path)
    now(store.acquire, "first")

    assert commit(store, batch(journal=[entry(1, 1)])) is None
    store.close()


def test_a_client_makes_no_database(path):
    with pytest.raises(CannotOpen, match="there is no database"):
        SqliteStore.open_client(path)
    assert not path.exists()

    path.touch()
    with pytest.raises(CannotOpen, match="open it with an engine once"):
        SqliteStore.open_client(path)


def test_odd_names_are_only_names(tmp_path):
    path = tmp_path / "a b?mode=memory&x=%20#é.db"
    store = SqliteStore(path)
    now(store.acquire, "first")
    commit(store, batch(journal=[entry(1, 1)]))
    store.close()

    again = SqliteStore(path)
    now(again.acquire, "again")
    assert now(again.position).seq == 1
    again.close()
    assert path.exists()


def test_a_zombie_is_fenced_even_when_locks_do_not_work(path, store):
    os.rename(f"{path}-lease", f"{path}-elsewhere")  # as on a file system without locks
    second = SqliteStore(path)
    now(second.acquire, "second")

    assert isinstance(commit(store, batch(journal=[entry(1, 1)])), Fenced)
    assert commit(second, batch(journal=[entry(1, 1)])) is None
    second.close()


async def test_an_event_in_the_inbox_that_cannot_be_read_stops_nobody(path):
    @perdure.flow
    async def flow(ctx: perdure.Context) -> object:
        return (await ctx.receive("go")).body

    async with perdure.open(path, workflows=[flow]) as engine:
        await engine.start(flow, key="k")
    other = apsw.Connection(str(path))
    for n, body in enumerate((seal(b"\x93\xa1s\x05\x05"), seal(b"no event"), b"not even sealed")):
        other.execute(
            "INSERT INTO inbox (id, workflow, key, instance, at, body) VALUES (?, 'flow', 'k', 0, 1, ?)",
            (bytes([n]) * 16, body),
        )
    other.close()

    async with perdure.open(path, workflows=[flow]) as engine:
        async with perdure.connect(path) as client:
            await client.handle("flow", "k").send("go", "well")
        assert await engine.handle(flow, "k").result(60) == "well"


async def test_after_its_engine_was_closed_a_handle_says_so(path):
    @perdure.flow
    async def flow(ctx: perdure.Context) -> None: ...

    async with perdure.open(path, workflows=[flow]) as engine:
        handle = await engine.start(flow)

    with pytest.raises(perdure.EngineClosed):
        await handle.status()


def test_another_process_hears_what_the_engine_measures(tmp_path):
    path = tmp_path / "engine.db"
    store = SqliteStore(path)
    store.acquire("the engine", lambda lease: None)
    store.measure(lambda: Figures(0.25, 0.5, {"images": (1, 2, 3)}))
    with closing(SqliteStore.open_client(path)) as other:
        before = ask(other.shards())

        store.commit(batch(journal=[entry(1, 1)], heads=[head(1)]), lambda error: None)
        heard = ask(other.shards())
        store.release()
        left = ask(other.shards())
    store.close()

    assert before[0].figures == Figures()
    assert heard[0].figures == Figures(0.25, 0.5, {"images": (1, 2, 3)})
    assert left[0].figures == Figures()


def test_figures_are_written_about_once_a_second_and_not_with_each_commit(tmp_path):
    told = []

    def figures() -> Figures:
        told.append(1)
        return Figures()

    store = SqliteStore(tmp_path / "engine.db")
    store.acquire("the engine", lambda lease: None)
    store.measure(figures)

    for seq in range(1, 51):
        store.commit(batch(journal=[entry(seq, 1)], heads=[head(1)] if seq == 1 else []), lambda error: None)
    store.close()

    assert 1 <= len(told) < 50
