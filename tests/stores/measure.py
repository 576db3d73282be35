"""How fast the SQLite store is, against what it stands on: `python -m tests.stores.measure [directory]`.

Read the ratio, not the numbers: both its sides are measured in turns, in the same run, on the same disk.
The raw side is apsw with the same pragmas and the same journal table, and nothing else.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

import apsw

from perdure.codec import seal
from perdure.kernel.batch import Batch, JournalRow
from perdure.kernel.events import Address
from perdure.ports.store import BEGINNING
from perdure.stores.answers import now
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.connection import connect
from perdure.testing.stores import head

BODY = seal(b"x" * 215)
INSERT = "INSERT INTO journal VALUES (?, ?, ?, ?)"


def raw_commits(directory: Path) -> Callable[[int], None]:
    """One row per transaction, by hand: the floor."""
    connection, _ = connect(str(directory / "raw.db"), create=True)
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE journal (seq INTEGER PRIMARY KEY, instance, at, body)")
    connection.execute("CREATE INDEX journal_by_instance ON journal (instance)")
    numbers = count(1)

    def run(times: int) -> None:
        for _ in range(times):
            seq = next(numbers)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(INSERT, (seq, seq % 50, seq, BODY))
            connection.execute("COMMIT")

    return run


def store_commits(store: SqliteStore, size: int) -> Callable[[int], None]:
    numbers = count(now(store.position).seq + 1)

    def run(times: int) -> None:
        for _ in range(times):
            batch = Batch()
            batch.journal = [JournalRow(seq, seq % 50, seq, BODY) for seq, _ in zip(numbers, range(size), strict=False)]
            store.commit(batch, fail)

    return run


def fail(error: Exception | None) -> None:
    if error is not None:
        raise error


def rate(run: Callable[[int], None], times: int) -> float:
    began = time.perf_counter()
    run(times)
    return times / (time.perf_counter() - began)


def microseconds(run: Callable[[int], object], times: int = 3000) -> float:
    def once() -> float:
        began = time.perf_counter()
        for n in range(times):
            run(n)
        return (time.perf_counter() - began) / times * 1e6

    return min(once() for _ in range(5))


def commits(directory: Path, store: SqliteStore) -> None:
    raw, ours = raw_commits(directory), store_commits(store, 1)
    raw(200)
    ours(200)
    pairs = [(rate(raw, 100), rate(ours, 100)) for _ in range(60)]
    print(f"raw single-row commits/s        {median(a for a, _ in pairs):10,.0f}")
    print(f"store, batches of 1 entry       {median(b for _, b in pairs):10,.0f}")
    print(f"ratio                           {median(b / a for a, b in pairs):10.2f}")
    for size in (50, 500):
        run = store_commits(store, size)
        print(f"rows/s in batches of {size:3}        {median(rate(run, 40) * size for _ in range(5)):10,.0f}")


def stalls(store: SqliteStore) -> None:
    """How long single commits take, checkpoints included."""
    run = store_commits(store, 1)
    times = sorted(1 / rate(run, 1) * 1e3 for _ in range(4000))
    print(f"commit ms: median, p99, longest {times[2000]:10.2f} {times[3960]:.2f} {times[-1]:.2f}")


def loads(store: SqliteStore) -> None:
    first = now(store.position).seq + 1
    batch = Batch()
    for n in range(2000):
        id = first + 5 * n
        batch.journal += [JournalRow(id + k, id, id, BODY) for k in range(5)]
        batch.heads[id] = head(id, f"key-{n}")
    store.commit(batch, fail)

    def nothing(*_: object) -> None:
        pass

    def by_name(n: int) -> None:
        store.load([Address("puppet", f"key-{n % 2000}")], nothing)

    def by_id(n: int) -> None:
        store.load([first + 5 * (n % 2000)], nothing)

    def missing(n: int) -> None:
        store.load([Address("puppet", f"none-{n}")], nothing)

    print(f"load by name, 5 entries, µs     {microseconds(by_name):10.1f}")
    print(f"load by id, 5 entries, µs       {microseconds(by_id):10.1f}")
    print(f"load of a new name, µs          {microseconds(missing):10.1f}")
    print(f"look into a quiet inbox, µs     {microseconds(lambda n: now(store.inbox, 100)):10.1f}")
    print(f"ask for due work, none, µs      {microseconds(lambda n: now(store.due, 0, 100, BEGINNING)):10.1f}")


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        directory = Path(name)
        store = SqliteStore(directory / "store.db")
        now(store.acquire, "measure")
        print(f"SQLite {apsw.sqlite_lib_version()} in {directory}")
        commits(directory, store)
        stalls(store)
        loads(store)
        store.close()


if __name__ == "__main__":
    main()
