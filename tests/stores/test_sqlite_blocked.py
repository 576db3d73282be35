"""A process that is stopped while it talks to a database: when it has the write lock, and what is told of it."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from perdure.ports.store import Posted
from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteQueries, SqliteStore
from perdure.testing.stores import ask, batch, entry, head, message

HOLDER = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "test.db"
    store = SqliteStore(path)
    now(store.acquire, "first")
    written = batch(journal=[entry(1, 1)], heads=[head(1), head(2, status="completed")])
    store.commit(written, lambda error: None)
    store.close()
    return path


def writing(client: SqliteQueries) -> apsw.Connection:
    """The connection of a client that has posted something."""
    assert client._writing is not None
    return client._writing


def test_while_a_client_judges_what_it_posts_others_can_write(path):
    client, other = SqliteStore.open_client(path), apsw.Connection(str(path))
    assert ask(client.post(message(b"first", 1))) == Posted()
    told: list[str] = []

    def is_free(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        other.execute("BEGIN IMMEDIATE; ROLLBACK")  # waits for nothing: raises if the client has the lock
        told.append(statement.split(maxsplit=1)[0])
        return True

    writing(client).exec_trace = is_free
    assert ask(client.post(message(b"second", 1))) == Posted()
    assert ask(client.post(message(b"third", 2))).refused == "ended"
    ask(client.put_blobs([], at=1))
    client.close()

    assert told.count("INSERT") == 1 and told.count("SELECT") > 3
    other.close()


def test_what_is_judged_by_a_state_that_has_changed_meanwhile_is_judged_again(path):
    client, other = SqliteStore.open_client(path), apsw.Connection(str(path))
    ask(client.post(message(b"first", 1)))
    changes = iter(["UPDATE instances SET status = 'cancelled' WHERE id = 1"])

    def change(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        if statement.startswith("INSERT"):
            other.execute(next(changes, "SELECT 1"))
        return True

    writing(client).exec_trace = change

    assert ask(client.post(message(b"second", 1))).refused == "ended"
    assert [row.id for row in ask(client.undelivered())] == [b"first"]
    client.close()
    other.close()


def test_an_instance_that_runs_or_waits_by_turns_takes_messages_at_once(path):
    client, other = SqliteStore.open_client(path), apsw.Connection(str(path))
    ask(client.post(message(b"first", 1)))
    inserts: list[str] = []

    def change(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        if statement.startswith("INSERT"):
            inserts.append(statement)
            other.execute("UPDATE instances SET status = iif(status = 'running', 'waiting', 'running') WHERE id = 1")
        return True

    writing(client).exec_trace = change

    assert ask(client.post(message(b"second", 1))) == Posted()
    assert len(inserts) == 1
    client.close()
    other.close()


def test_the_engine_tells_which_process_it_waits_for(path):
    async def run() -> None:
        store = SqliteStore(path, call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe)
        now(store.acquire, "engine")
        store._patience.tell_seconds = 0.0
        holder = stopped_holder(path)
        told = asyncio.Event()
        heard = Told(told)
        logging.getLogger("perdure").addHandler(heard)
        answer: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        store.commit(batch(journal=[entry(2, 1)]), answer.set_result)
        await asyncio.wait_for(told.wait(), 60)
        assert not answer.done()
        holder.send_signal(signal.SIGCONT)
        holder.communicate()

        assert await asyncio.wait_for(answer, 60) is None
        assert heard.text.startswith(f"{path}: the engine has waited for 0 s because another process is writing")
        if sys.platform == "linux":
            assert f"pid {holder.pid} (" in heard.text and ", stopped)" in heard.text
        logging.getLogger("perdure").removeHandler(heard)
        store.close()

    asyncio.run(run())


def stopped_holder(path: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "holds\n"
    holder.send_signal(signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)
    return holder


class Told(logging.Handler):
    def __init__(self, told: asyncio.Event) -> None:
        super().__init__()
        self._told = told
        self._loop = asyncio.get_running_loop()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        self._loop.call_soon_threadsafe(self._told.set)
