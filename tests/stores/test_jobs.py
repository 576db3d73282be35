"""Jobs are the same in memory and on PostgreSQL: claims are exclusive, fenced, and run out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import pytest

from perdure.codec import seal
from perdure.kernel.batch import Batch, InboxRow, JobRow
from perdure.ports.frame import Frame
from perdure.ports.jobs import CLAIM, Claim, Jobs
from perdure.ports.store import Queries, Store
from perdure.stores.answers import asked
from perdure.stores.memory import MemoryDatabase, MemoryJobs, MemoryStore
from perdure.stores.postgres import PostgresDatabase
from perdure.testing.stores import entry
from tests.postgres import Server

KNOWN = ["m:f", "m:g"]


class Place:
    """A store that has the lease, workers, and a clock on which claims run out."""

    def __init__(
        self,
        store: Store,
        workers: Callable[[], Jobs],
        expire: Callable[[], Coroutine[Any, Any, None]],
        queries: Queries,
    ):
        self.store = store
        self.queries = queries
        self.workers = workers
        self.expire = expire
        self._seq = 0

    async def commit(
        self, *opened: JobRow, closed: list[bytes] | None = None, removed: list[bytes] | None = None
    ) -> None:
        batch = Batch()
        self._seq += 1
        batch.journal = [entry(self._seq, 1)]
        batch.jobs_opened = {row.intent: row for row in opened}
        batch.jobs_closed = dict.fromkeys(closed or [], "images")
        batch.inbox_removed = removed or []
        await asked(lambda done: self.store.commit(batch, done))

    async def lost(self) -> list[tuple[int, bytes]]:
        return sorted(await asked(lambda done: self.store.lost(100, done)))

    async def inbox(self) -> list[InboxRow]:
        found: list[InboxRow] = await asked(lambda done: self.store.inbox(100, done))
        return found


@asynccontextmanager
async def in_memory() -> AsyncIterator[Place]:
    passed = 0
    database = MemoryDatabase(workers=True, now=lambda: passed)
    store = MemoryStore(database)
    store.acquire("first", lambda lease: None)

    async def expire() -> None:
        nonlocal passed
        passed += CLAIM

    yield Place(store, lambda: MemoryJobs(database), expire, cast(Queries, store))


@asynccontextmanager
async def on_postgres(url: str) -> AsyncIterator[Place]:
    database = await PostgresDatabase.open(url)
    store = database.store(0)
    await asked(lambda done: store.acquire("first", done))

    async def expire() -> None:
        async with database.clients.one() as connection:
            space = database.place.namespace
            await connection.execute(f"UPDATE {space}.jobs SET expires = now() WHERE expires > '-infinity'")

    yield Place(store, lambda: database.jobs, expire, database.queries)
    await database.close()


Told = Callable[[Place], Coroutine[Any, Any, None]]


@pytest.fixture(params=["memory", "postgres"])
def tell(request: pytest.FixtureRequest) -> Iterator[Callable[[Told], None]]:
    @contextmanager
    def place() -> Iterator[Any]:
        if request.param == "memory":
            yield in_memory()
        else:
            server: Server = request.getfixturevalue("postgres_server")
            with server.schema(shards=1) as url:
                yield on_postgres(url)

    with place() as made:

        def tell(story: Told) -> None:
            async def run() -> None:
                async with made as found:
                    await story(found)

            asyncio.run(run())

        yield tell


def job(name: str, *, queue: str = "q", function: str = "m:f", delivery: int = 1, at: int = 1) -> JobRow:
    return JobRow(name.encode(), 1, queue, function, delivery, at, seal(name.encode()))


def receipt(claim: Claim, body: bytes = b"done") -> tuple[Claim, InboxRow]:
    return claim, InboxRow(claim.id, "", "", claim.job.instance, 7, seal(body))


def test_the_oldest_of_the_known_functions_are_claimed_and_each_once(tell: Callable[[Told], None]) -> None:
    rows = [job("c", at=3), job("a", at=1), job("b", at=2), job("x", function="m:other"), job("y", queue="other")]

    async def story(place: Place) -> None:
        await place.commit(*rows)
        first, second = place.workers(), place.workers()

        one = await first.claim("one", ["q"], KNOWN, 2)
        two = await second.claim("two", ["q"], KNOWN, 5)

        assert {claim.job for claim in one} | {claim.job for claim in two} == set(rows[:3])
        assert (len(one), len(two)) == (2, 1)
        assert rows[0] in {claim.job for claim in two}
        assert await first.claim("one", ["q"], KNOWN, 5) == []
        assert [claim.job for claim in await first.claim("one", ["q", "other"], KNOWN, 5)] == [rows[4]]

    tell(story)


def test_an_answer_is_in_the_inbox_and_a_second_one_is_not(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"))
        jobs = place.workers()
        [claim] = await jobs.claim("one", ["q"], KNOWN, 5)

        assert await jobs.answer([receipt(claim)]) == []
        assert await jobs.answer([receipt(claim, b"again")]) == [claim]

        await asyncio.sleep(0)
        assert await place.inbox() == [receipt(claim)[1]]
        await place.expire()
        assert await place.lost() == []  # its answer waits

    tell(story)


def test_a_claim_that_ran_out_is_void_until_the_owner_delivers_again(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"))
        jobs = place.workers()
        [claim] = await jobs.claim("one", ["q"], KNOWN, 5)
        assert await place.lost() == []
        await place.expire()
        assert await jobs.beat("one", [claim]) == []  # late, and in time: nobody has looked
        assert await place.lost() == []

        await place.expire()

        assert await place.lost() == [(1, b"a")]
        assert await place.lost() == [(1, b"a")]  # until it is recorded
        assert await jobs.beat("one", [claim]) == [claim]
        assert await jobs.answer([receipt(claim)]) == [claim]
        assert await jobs.claim("two", ["q"], KNOWN, 5) == []
        await place.commit(job("a", delivery=2))
        assert await place.lost() == []
        [again] = await jobs.claim("one", ["q"], KNOWN, 5)
        assert (again.job.delivery, again.taken) == (2, 2)
        assert await jobs.beat("one", [claim, again]) == [claim]
        assert await jobs.answer([receipt(claim), receipt(again)]) == [claim]
        assert await place.inbox() == [receipt(again)[1]]

    tell(story)


def test_what_is_given_back_can_be_claimed_in_the_same_delivery(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"))
        jobs = place.workers()
        [claim] = await jobs.claim("one", ["q"], KNOWN, 5)

        await jobs.give_back([claim])

        assert await jobs.answer([receipt(claim)]) == [claim]
        [again] = await jobs.claim("two", ["q"], KNOWN, 5)
        assert (again.job, again.taken) == (job("a"), 2)

    tell(story)


def test_what_is_closed_is_nobody_s(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"), job("b"))
        jobs = place.workers()
        claims = await jobs.claim("one", ["q"], KNOWN, 1)

        await place.commit(closed=[b"a", b"b", b"unknown"])

        assert await jobs.beat("one", claims) == claims
        assert await jobs.answer([receipt(claims[0])]) == claims
        assert await jobs.claim("one", ["q"], KNOWN, 5) == []
        await place.expire()
        assert await place.lost() == []

    tell(story)


def test_a_refused_receipt_leaves_the_job_to_be_delivered_again(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"))
        jobs = place.workers()
        [claim] = await jobs.claim("one", ["q"], KNOWN, 5)
        await jobs.answer([receipt(claim)])

        await place.commit(removed=[claim.id])  # by an owner that did not admit it
        await place.expire()

        assert await place.lost() == [(1, b"a")]

    tell(story)


def test_frames_of_workers_reach_who_listens_if_they_are_small(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        heard: asyncio.Queue[tuple[int, bytes, int, Frame]] = asyncio.Queue()
        place.store.listen(lambda *told: heard.put_nowait(told))
        jobs = place.workers()
        jobs.listen(lambda: None)
        if isinstance(place.store, MemoryStore):
            pass
        else:
            await place.store._database.listening()  # type: ignore[attr-defined]
        await place.commit(job("a"))
        [claim] = await jobs.claim("one", ["q"], KNOWN, 5)
        frame = Frame("flow/k", "step", 1, 1, "progress", 1, 2, "half")

        await jobs.tell([(claim, frame)])

        assert await asyncio.wait_for(heard.get(), 60) == (1, b"a", 1, frame)

    tell(story)


def test_a_job_is_taken_by_its_name_and_only_if_no_worker_has_it(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"), job("b"))
        jobs = place.workers()
        [other] = await jobs.take("two", [b"b"])

        claims = await jobs.take("one", [b"a", b"b", b"gone"])

        assert [(claim.job.intent, claim.worker, claim.taken) for claim in claims] == [(b"a", "one", 1)]
        assert await jobs.beat("two", [other]) == []
        assert await jobs.answer([receipt(claims[0])]) == []
        assert await jobs.take("one", [b"a"]) == [], "its answer waits in the inbox"

    tell(story)


def test_a_worker_that_did_not_hear_of_its_claim_takes_the_job_again(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"))
        jobs = place.workers()
        [unheard] = await jobs.take("one", [b"a"])

        [second] = await jobs.take("one", [b"a"])

        assert second.taken == 2
        assert await jobs.answer([receipt(unheard)]) == [unheard]
        assert await jobs.answer([receipt(second)]) == []

    tell(story)


def test_a_claim_that_ran_out_cannot_be_taken_before_its_owner_has_decided(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"))
        jobs = place.workers()
        await jobs.take("one", [b"a"])
        await place.expire()
        assert await place.lost() == [(1, b"a")]

        assert await jobs.take("one", [b"a"]) == [] and await jobs.take("two", [b"a"]) == []
        assert await jobs.waiting([b"a"]) == {b"a": None}

        await place.commit(job("a", delivery=2))
        [again] = await jobs.take("two", [b"a"])
        assert (again.job.delivery, again.taken) == (2, 2)

    tell(story)


def test_open_jobs_are_seen_without_a_claim(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        rows = [job("c", at=3), job("a", at=1), job("b", at=2), job("x", function="m:other"), job("y", queue="other")]
        await place.commit(*rows)
        jobs = place.workers()
        await jobs.take("one", [b"a"])

        async def seen(*without: bytes, resting: tuple[str, ...] = (), limit: int = 10) -> list[bytes]:
            return [found.job.intent for found in await jobs.open_jobs("q", limit, without, resting)]

        assert await seen() == [b"x", b"b", b"c"]
        assert await seen(limit=2) == [b"x", b"b"]
        assert await seen(b"b", resting=("m:other",)) == [b"c"]
        assert await jobs.waiting([b"a", b"b", b"gone"]) == {b"a": None, b"b": 0}
        [again] = await jobs.take("one", [b"b"])
        await jobs.give_back([again])
        assert [(found.job.intent, found.taken) for found in await jobs.open_jobs("q", 1, [b"x"], [])] == [(b"b", 1)]

    tell(story)


def test_people_see_since_when_a_worker_has_a_job_and_why_none_takes_it(tell: Callable[[Told], None]) -> None:
    async def story(place: Place) -> None:
        await place.commit(job("a"), job("b", function="m:g"))
        jobs = place.workers()
        await place.expire()  # the clock of the memory begins at 0
        await jobs.note("q", "m:f", "no module m")

        noted, other = await place.queries.job(b"a"), await place.queries.job(b"b")
        await jobs.take("one", [b"a"])
        taken = await place.queries.job(b"a")

        assert noted is not None and (noted.worker, noted.claimed, noted.note) == ("", 0, "no module m")
        assert other is not None and other.note == ""
        assert taken is not None and (taken.worker, taken.note) == ("one", "") and taken.claimed > 0

    tell(story)
