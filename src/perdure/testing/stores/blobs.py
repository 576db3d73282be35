"""Data that is kept by its SHA-256."""

from hashlib import sha256

import pytest

from perdure.errors import Corrupt
from perdure.ports.store import BlobRow

from .harness import BIG, Harness, OneStore, Waiting, ask, commit
from .rows import batch, entry, head


class Blobs(OneStore):
    def test_a_blob_is_found_by_the_hash_of_its_bytes(self, store: Waiting) -> None:
        bodies = [b"", b"small", b"x" * BIG * 3]

        digests = ask(store.put_blobs(bodies, at=7))

        assert digests == [sha256(body).digest() for body in bodies]
        assert [ask(store.blob(digest)) for digest in digests] == bodies
        assert ask(store.blob(sha256(b"never put").digest())) is None
        assert ask(store.check()) == []

    def test_a_blob_that_was_put_is_there_for_every_later_connection(self, harness: Harness, store: Waiting) -> None:
        (digest,) = ask(store.put_blobs([b"body"], at=7))
        store.release()
        store.close()

        again = Waiting(harness)
        again.acquire("second")

        assert ask(again.blob(digest)) == b"body"
        again.close()

    def test_blobs_are_put_and_deleted_without_the_lease(self, harness: Harness, store: Waiting) -> None:
        other = Waiting(harness)

        kept, gone = ask(other.put_blobs([b"kept", b"gone"], at=7))
        assert ask(other.delete_blobs([gone], before=8)) == 1

        assert (ask(store.blob(kept)), ask(store.blob(gone))) == (b"kept", None)
        assert commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)])) is None
        other.close()

    def test_the_same_bytes_are_kept_once_with_the_time_they_were_last_put(self, store: Waiting) -> None:
        first = ask(store.put_blobs([b"body", b"body"], at=7))
        second = ask(store.put_blobs([b"body"], at=9))
        ask(store.put_blobs([b"body"], at=8))  # by a process whose clock is behind

        assert first == [*second, *second]
        assert ask(store.blobs()) == [BlobRow(second[0], 9, 4)]

    def test_blobs_are_listed_in_pages_in_the_order_of_their_digests(self, store: Waiting) -> None:
        bodies = [b"%d" % n * n for n in range(1, 26)]
        ask(store.put_blobs(bodies, at=7))
        pages: list[list[BlobRow]] = []

        while page := ask(store.blobs(after=pages[-1][-1].digest if pages else b"", limit=10)):
            pages.append(page)

        assert [len(page) for page in pages] == [10, 10, 5]
        expected = sorted((sha256(body).digest(), 7, len(body)) for body in bodies)
        assert [(row.digest, row.at, row.size) for page in pages for row in page] == expected

    def test_many_blobs_are_put_and_deleted_in_order(self, store: Waiting) -> None:
        """More than one transaction takes: by number, and by size."""
        bodies = [b"%d" % n for n in range(1200)] + [b"%d" % n * BIG for n in range(40)]

        digests = ask(store.put_blobs(bodies, at=7))

        assert digests == [sha256(body).digest() for body in bodies]
        assert len(ask(store.blobs(limit=2000))) == 1240
        assert ask(store.delete_blobs(digests, before=8)) == 1240
        assert ask(store.blobs()) == []

    def test_only_what_was_last_put_before_a_time_is_deleted(self, store: Waiting) -> None:
        old, again, young = ask(store.put_blobs([b"old", b"again"], at=5)) + ask(store.put_blobs([b"young"], at=10))
        ask(store.put_blobs([b"again"], at=10))

        assert ask(store.delete_blobs([old, again, young, b"unknown", old], before=10)) == 1

        assert {row.digest for row in ask(store.blobs())} == {again, young}

    def test_deleting_blobs_leaves_the_large_bodies_of_the_journal_alone(
        self, harness: Harness, store: Waiting
    ) -> None:
        rows = [entry(1, 1, b"x" * BIG * 2)]
        commit(harness, store, batch(journal=rows, heads=[head(1)]))
        assert ask(store.blobs()) == []
        (digest,) = ask(store.put_blobs([rows[0].body], at=1))  # the very same bytes

        assert ask(store.delete_blobs([digest], before=2)) == 1

        assert ask(store.journal(0, 10)) == rows

    @pytest.mark.parametrize("size", [1, 100, BIG * 2])
    def test_a_flipped_bit_of_a_blob_is_noticed(self, harness: Harness, store: Waiting, size: int) -> None:
        digest, whole = ask(store.put_blobs([b"x" * size, b"whole"], at=7))

        harness.damage_blob(digest)

        with pytest.raises(Corrupt, match=digest.hex()):
            ask(store.blob(digest))
        assert ask(store.blob(whole)) == b"whole"
        (problem,) = ask(store.check())
        assert digest.hex() in problem
