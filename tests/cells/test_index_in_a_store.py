"""An index whose nodes are blobs of a real store: what garbage collection leaves is what the index needs."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from perdure.cells.index import CellIndex, Entry, diff, reachable
from perdure.codec import encode
from perdure.errors import Corrupt
from perdure.stores.answers import now
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores import FullStore, ask


class StoredBlobs:
    def __init__(self, store: FullStore, now: int) -> None:
        self.store = store
        self.now = now

    def get(self, digest: bytes) -> bytes | None:
        return ask(self.store.blob(digest))

    def put(self, body: bytes) -> bytes:
        (digest,) = ask(self.store.put_blobs([body], self.now))
        return digest

    def entry(self, state: bytes) -> Entry:
        return Entry(self.put(state), len(state), self.now)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path: Path) -> Iterator[FullStore]:
    store: FullStore = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "test.db")
    now(store.acquire, "test")
    yield store
    store.close()


def key(n: int) -> bytes:
    return encode(f"order-{n}")


def collect(store: FullStore, roots: list[bytes], before: int) -> int:
    kept = set(reachable(StoredBlobs(store, 0), roots))
    garbage = [row.digest for row in ask(store.blobs(limit=10_000)) if row.digest not in kept]
    return ask(store.delete_blobs(garbage, before))


def test_collecting_garbage_frees_an_old_index_and_keeps_the_new_one_whole(store):
    blobs = StoredBlobs(store, now=10)
    old = CellIndex(blobs).update((key(n), blobs.entry(b"old %d" % n)) for n in range(100))
    new = old.update((key(n), blobs.entry(b"new %d" % n)) for n in range(5))

    assert collect(store, [old.root, new.root], before=20) == 0
    assert collect(store, [new.root], before=20) > 5

    assert [store_state(store, entry) for _, entry in new.walk()] == [True] * 100
    assert ask(store.blob(sha256(b"old 1").digest())) is None
    with pytest.raises(Corrupt, match="no index node"):
        list(diff(old, new))


def test_what_is_young_is_not_garbage_yet(store):
    """An index is written before anything refers to it: a collection meanwhile must not take it away."""
    blobs = StoredBlobs(store, now=10)
    first = CellIndex(blobs).update((key(n), blobs.entry(b"%d" % n)) for n in range(100))
    blobs.now = 30
    again = CellIndex(blobs).update((key(n), blobs.entry(b"%d" % n)) for n in range(50))
    younger = again.update((key(n), first.get(key(n))) for n in range(50, 100))

    collect(store, [], before=30)

    assert len(list(younger.walk())) == 100


def store_state(store: FullStore, entry: Entry) -> bool:
    body = ask(store.blob(entry.state))
    return body is not None and len(body) == entry.size
