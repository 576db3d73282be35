"""What the suite cannot ask of every store: lost answers, take-overs, hints, many shards, and the texts of failures."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from perdure.errors import CallerError, CannotOpen, EngineRunning, Fenced, NewerSchema, StoreError, StoreFailed
from perdure.kernel.batch import Batch, PublishedRow, WorkflowRow, WorkRow
from perdure.kernel.events import Address
from perdure.kernel.placement import first_seq, place
from perdure.ports.store import BEGINNING, Filter
from perdure.stores.postgres import PostgresDatabase, PostgresStore, upgrade
from perdure.stores.postgres.connections import SETTINGS, Connections
from perdure.stores.postgres.database import ENGINE_CONNECTIONS
from perdure.stores.postgres.schema import VERSION
from perdure.testing.stores import batch, entry, head, message
from tests.postgres import Server, changed
from tests.proxy import Proxy


async def answer(question: Callable[..., None], *arguments: Any) -> Any:
    """What a store calls back with."""
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    question(*arguments, found.set_result)
    async with asyncio.timeout(30):
        return await found


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresDatabase]:
    database = await PostgresDatabase.open(url, **options)
    try:
        yield database
    finally:
        await database.close()


async def leased(database: PostgresDatabase, shard: int = 0, owner: str = "first") -> PostgresStore:
    store = database.store(shard)
    await answer(store.acquire, owner)
    return store


async def execute(database: PostgresDatabase, sql: str, *arguments: Any) -> Any:
    connection = await asyncpg.connect(database.place.dsn)
    try:
        return await connection.fetch(sql.replace("perdure.", f"{database.place.namespace}."), *arguments)
    finally:
        await connection.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# ---- answers that are lost ----------------------------------------------------------------------------------------

FIRST = entry(1, 1)
ENTRIES = batch(journal=[entry(2, 1), entry(3, 1)], heads=[head(1)], opened=[WorkRow(b"i", 1, "timer", 5)])
LONE = batch(journal=[entry(2, 1)])
HEADED = batch(journal=[entry(2, 1)], heads=[head(1, status="waiting")])
NO_ENTRIES = batch(added=[message(b"m", 1)], removed=[b"n"])
KINDS = pytest.mark.parametrize(
    "written", [ENTRIES, LONE, HEADED, NO_ENTRIES], ids=["entries", "one entry", "entry and head", "no entries"]
)


async def warmed(database: PostgresDatabase) -> PostgresStore:
    """A store whose statements are prepared: the next thing that it sends is a commit, and nothing else."""
    store = await leased(database)
    assert await answer(store.commit, batch(journal=[entry(0, 1)], heads=[head(1)])) is None
    assert await answer(store.commit, batch(journal=[FIRST])) is None
    assert await answer(store.commit, batch(removed=[b"none"])) is None
    return store


@KINDS
async def test_a_commit_whose_answer_was_lost_is_found_and_not_made_again(postgres: str, written: Batch):
    async with Proxy(postgres) as proxy, opened(proxy.url) as database:
        store = await warmed(database)
        proxy.lose_answers = True

        assert await answer(store.commit, written) is None

        (lost,) = proxy.lost
        assert b"SELECT 1" in lost or b"INSERT 0 1" in lost  # the server was done
        assert await database.queries.journal(1, 10) == written.journal
        assert await database.queries.undelivered() == list(written.inbox_added.values())
        assert await database.queries.head(1) == written.heads.get(1, head(1))
        assert await answer(store.commit, batch(journal=[entry(4, 1)])) is None


@KINDS
async def test_a_commit_that_arrives_after_it_was_given_up_is_refused(postgres: str, written: Batch):
    """It is sent again meanwhile, and what it wrote is gone already when the first one arrives."""
    async with Proxy(postgres) as proxy, opened(proxy.url) as database:
        store = await warmed(database)
        proxy.keep_back = True
        assert await answer(store.commit, written) is None
        (kept,) = proxy.kept
        assert kept.startswith(b"B")  # a statement with its values
        assert await database.queries.journal(1, 10) == written.journal
        assert await database.queries.undelivered() == list(written.inbox_added.values())
        gone = batch(removed=list(written.inbox_added), closed=list(written.work_opened))
        assert await answer(store.commit, gone) is None

        await proxy.release()

        assert await database.queries.journal(1, 10) == written.journal
        assert await database.queries.undelivered() == []
        assert await answer(store.due, 10, 10, BEGINNING) == []


async def test_a_back_end_that_is_killed_in_the_middle_of_a_commit_costs_nothing(postgres: str):
    async with opened(postgres) as database:
        store = await leased(database)
        blocker = await asyncpg.connect(database.place.dsn)
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute(f"SELECT FROM {database.place.namespace}.shards FOR UPDATE")
        committed = asyncio.ensure_future(answer(store.commit, ENTRIES))

        async def killed() -> bool:
            rows = await execute(
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND query LIKE $1",
                "SELECT %.commit($1%",
            )
            return bool(rows)

        await until(killed)
        await transaction.rollback()

        assert await committed is None
        assert await database.queries.journal(0, 10) == ENTRIES.journal
        await blocker.close()


async def test_connections_that_are_cut_are_made_again(postgres: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "perdure")
    async with Proxy(postgres) as proxy, opened(proxy.url) as database:
        store = await leased(database)
        for number in range(1, 6):
            proxy.cut()
            assert await answer(store.commit, batch(journal=[entry(number, 1)])) is None
            assert await database.queries.height() == number
            assert (await answer(store.position)).seq == number


async def test_who_waits_for_a_connection_comes_before_those_who_ask_later(postgres: str):
    order: list[str] = []

    async def use(name: str) -> None:
        async with connections.one():
            order.append(name)

    async with opened(postgres) as database:
        connections = Connections(database.place, SETTINGS, 1)
        async with connections.one():
            first = asyncio.create_task(use("first"))
            given_up = asyncio.create_task(use("given up"))
            await asyncio.sleep(0)
            given_up.cancel()
        await use("later")  # the connection is free again, and the first has not been told yet
        await first
        await use("last")
        await connections.close()

    assert order == ["first", "later", "last"]


async def test_leases_are_renewed_while_all_connections_are_busy(postgres: str):
    async with opened(postgres) as database:
        store = await leased(database)
        assert store._lease is not None
        async with AsyncExitStack() as busy:
            for _ in range(ENGINE_CONNECTIONS):
                await busy.enter_async_context(database.engine.one())

            standing = await asyncio.wait_for(database.renew("first", {0: store._lease.epoch}), 30)

        assert standing.held == {0: store._lease.epoch}


async def test_what_lasts_longer_than_the_patience_is_an_error_that_names_the_database(postgres: str):
    async with Proxy(postgres) as proxy, opened(proxy.url) as database:
        proxy.close()

        with pytest.raises(StoreFailed, match=r"^postgresql://.*: the connection was lost"):
            await database.clients.ask(lambda connection: connection.fetch("SELECT"), patience=0.2)


async def test_after_a_lost_answer_a_take_over_is_noticed(postgres: str):
    async with Proxy(postgres) as proxy, opened(proxy.url) as database:
        store = await warmed(database)
        await execute(database, "UPDATE perdure.shards SET epoch = epoch + 1, owner = 'usurper' WHERE shard = 0")
        proxy.keep_back = True

        error = await answer(store.commit, ENTRIES)

        assert isinstance(error, Fenced)
        assert "usurper took over: epoch 2 follows 1 of first" in str(error)
        assert await database.queries.journal(1, 10) == []


# ---- leases -------------------------------------------------------------------------------------------------------


@KINDS
async def test_a_commit_is_refused_too_when_the_new_owner_has_left_already(postgres: str, written: Batch):
    async with opened(postgres) as database:
        first = await leased(database)
        await database.leave("first")
        second = await leased(database, owner="second")
        second.release()
        await database.rest()

        refused = await answer(first.commit, written)

        assert await database.queries.journal(0, 10) == []
        assert await database.queries.heads(Filter()) == []
        assert isinstance(refused, Fenced)
        assert "another engine took over: epoch 2 follows 1 of first" in str(refused)


@asynccontextmanager
async def committing(database: PostgresDatabase, *shards: int) -> AsyncIterator[None]:
    """Commits of the first owner of these shards are being made, and come to their end when this does."""
    owner = await asyncpg.connect(database.place.dsn)
    try:
        async with owner.transaction():
            for shard in shards:
                number = first_seq(shard) + 1
                assert await owner.fetch(database.sql.commit_lone, shard, 1, 0, *entry(number, number))
            yield
    finally:
        await owner.close()


async def taken_after(database: PostgresDatabase, shard: int, owner: str) -> "asyncio.Future[Any]":
    """A take-over that waits for a commit; the answer comes when that has ended."""
    taking = asyncio.ensure_future(answer(database.store(shard).acquire, owner))

    async def waits() -> bool:
        return bool(await execute(database, "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"))

    await until(waits)
    assert not taking.done()
    return taking


async def expire(database: PostgresDatabase, owner: str) -> None:
    await execute(database, "UPDATE perdure.engines SET expires = now() - interval '1 second' WHERE name = $1", owner)


async def test_a_take_over_waits_for_the_commit_that_is_being_made(postgres: str):
    async with opened(postgres, lease=0) as database:
        store = await leased(database)
        async with committing(database, 0):
            taking = await taken_after(database, 0, "second")

        assert (await taking).epoch == 2
        assert (await answer(database.store(0).position)).seq == 1
        assert isinstance(await answer(store.commit, batch(journal=[entry(2, 1)])), Fenced)


async def test_a_renewal_does_not_wait_for_commits_that_are_being_made(postgres: str):
    async with opened(postgres) as database:
        for shard in range(16):
            await leased(database, shard)
        held = dict.fromkeys(range(16), 1)

        async with committing(database, *range(16)), asyncio.timeout(30):
            standing = await database.renew("first", held)

        assert standing.held == held


async def test_who_renews_his_lease_while_a_take_over_waits_keeps_the_shard(postgres: str):
    async with opened(postgres, lease=60) as database:
        store = await leased(database)
        await expire(database, "first")
        async with committing(database, 0):
            taking = await taken_after(database, 0, "second")

            assert (await database.renew("first", {0: 1})).held == {0: 1}

        assert isinstance(await taking, EngineRunning)
        assert await answer(store.commit, batch(journal=[entry(2, 1)])) is None


async def test_who_renews_his_lease_after_a_take_over_is_told_and_cannot_write(postgres: str):
    async with opened(postgres, lease=60) as database:
        stores = [await leased(database, shard) for shard in (0, 1)]
        await expire(database, "first")
        await leased(database, 0, "second")

        assert (await database.renew("first", {0: 1, 1: 1})).held == {1: 1}

        assert isinstance(await answer(stores[0].commit, LONE), Fenced)
        number = first_seq(1) + 1
        assert await answer(stores[1].commit, batch(journal=[entry(number, number)])) is None


async def test_an_engine_that_takes_a_shard_lives_though_it_has_never_renewed(postgres: str):
    async with opened(postgres, lease=60) as database:
        await leased(database, 0)
        assert isinstance(await answer(database.store(0).acquire, "second"), EngineRunning)
        await execute(database, "DELETE FROM perdure.engines")  # as it is done with those that are silent for an hour

        await leased(database, 1)

        for shard in (0, 1):  # it lives again, and what nobody took meanwhile is still its own
            assert isinstance(await answer(database.store(shard).acquire, "second"), EngineRunning)


async def test_an_engine_can_be_renewed_while_it_waits_for_a_shard(postgres: str):
    async with opened(postgres, lease=60) as database:
        await leased(database, 0, "dead")
        await expire(database, "dead")
        await database.renew("heir", {})
        async with committing(database, 0), asyncio.timeout(30):
            taking = await taken_after(database, 0, "heir")

            standing = await database.renew("heir", {0: 0})

        assert standing.free == tuple(range(16))
        assert (await taking).epoch == 2
        assert (await database.renew("heir", {0: 2})).held == {0: 2}


async def test_shards_that_an_engine_has_by_name_only_are_given_back_by_its_renewal(postgres: str):
    """It fell there, or did not hear that it has them: while it lives no time frees them."""
    async with opened(postgres, lease=60) as database:
        for shard in range(4):
            await leased(database, shard)
        await leased(database, 4, "other")
        async with committing(database, 1), asyncio.timeout(30):  # that one must wait
            standing = await database.renew("first", {2: 1, 3: 0})  # one is being taken

        assert standing.held == {2: 1}
        assert standing.free == (0, *range(5, 16))
        assert (await database.renew("first", {2: 1, 3: 1})).held == {2: 1, 3: 1}
        assert (await database.renew("other", {4: 1})).free == (0, 1, *range(5, 16))
        await leased(database, 0, "other")


async def test_a_shard_that_is_released_leaves_the_others(postgres: str):
    async with opened(postgres, lease=60) as database:
        stores = [await leased(database, shard) for shard in (0, 1, 2)]

        stores[1].release()
        await database.rest()

        assert (await database.renew("first", {0: 1, 2: 1})).held == {0: 1, 2: 1}
        await leased(database, 1, "second")
        assert isinstance(await answer(database.store(2).acquire, "second"), EngineRunning)


async def test_a_lease_that_lives_is_not_taken_and_one_that_expired_is(postgres: str):
    async with opened(postgres, lease=60) as database, opened(postgres) as other:
        await leased(database)

        refused = await answer(other.store(0).acquire, "second")
        assert isinstance(refused, EngineRunning)
        assert "first (pid " in str(refused)

        await expire(database, "first")
        assert (await answer(other.store(0).acquire, "second")).epoch == 2


async def test_one_lease_is_for_all_shards_of_an_engine(postgres: str):
    async with opened(postgres, lease=60) as database:
        for shard in (0, 3, 5):
            await leased(database, shard)
        await leased(database, 7, "other")
        await database.renew("other", {7: 1})
        assert (await database.renew("other", {7: 1})).free == (1, 2, 4, 6, *range(8, 16))
        await expire(database, "first")
        standing = await database.renew("other", {7: 1})
        assert standing.free == tuple(shard for shard in range(16) if shard != 7)
        assert standing.engines == 1
        await leased(database, 5, "other")

        standing = await database.renew("first", {0: 1, 3: 1, 5: 1})

        assert standing.held == {0: 1, 3: 1}
        assert standing.free == (1, 2, 4, 6, *range(8, 16))
        assert standing.engines == 2
        assert 0 not in (await database.renew("other", {5: 2, 7: 1})).free

        await database.leave("first")

        standing = await database.renew("other", {5: 2, 7: 1})
        assert (standing.held, standing.engines) == ({5: 2, 7: 1}, 1)
        assert standing.free == tuple(shard for shard in range(16) if shard not in (5, 7))


# ---- many shards --------------------------------------------------------------------------------------------------


async def test_a_shard_counts_from_its_own_first_number_and_sees_only_its_own(postgres: str):
    async with opened(postgres) as database:
        stores = [await leased(database, shard) for shard in (0, 1, 15)]
        assert [(await answer(store.position)).seq for store in stores] == [first_seq(shard) for shard in (0, 1, 15)]

        for store in stores:
            id = first_seq(store.shard) + 1
            written = batch(
                journal=[entry(id, id)],
                heads=[head(id, f"key-{store.shard}")],
                opened=[WorkRow(b"%d" % store.shard, id, "timer", 5)],
                added=[message(b"m%d" % store.shard, id)],
            )
            assert await answer(store.commit, written) is None

        for store in stores:
            id = first_seq(store.shard) + 1
            position = await answer(store.position)
            assert (position.seq, position.running) == (id, (id,))
            assert [row.instance for row in await answer(store.due, 10, 10, BEGINNING)] == [id]
            assert [row.instance for row in await answer(store.inbox, 10)] == [id]
            assert (await answer(store.census)).instances == (("puppet", "1", "running", 1),)
        assert len(await database.queries.heads(Filter())) == 3


async def test_events_for_other_shards_are_in_their_inboxes(postgres: str):
    to = Address("puppet", "elsewhere")
    async with opened(postgres) as database:
        shard = place(to, 16)
        own, other = await leased(database, (shard + 1) % 16), await leased(database, shard)
        assert await answer(other.inbox, 10) == []
        first = first_seq(own.shard) + 1
        written = batch(journal=[entry(first, first)], heads=[head(first)])
        written.outbox = [message(b"m", to)]

        assert await answer(own.commit, written) is None

        assert await answer(other.inbox, 10) == written.outbox
        assert await answer(own.inbox, 10) == []


async def test_what_is_posted_is_found_by_the_shard_of_its_name_at_once(postgres: str):
    async with opened(postgres) as engine, opened(postgres) as client:
        heard: asyncio.Queue[str] = asyncio.Queue()
        engine.listen(heard.put_nowait)
        await engine.listening()
        stores = [await leased(engine, shard) for shard in range(16)]
        names = [Address("puppet", f"key-{number}") for number in range(20)]
        for number, name in enumerate(names):
            row = message(b"%d" % number, name)
            shard = place(name, 16)
            id = (await answer(stores[shard].position)).seq + 1
            await answer(stores[shard].commit, batch(journal=[entry(id, id)], heads=[head(id, name.key)]))
            for store in stores:
                await answer(store.inbox, 100)
            while not heard.empty():
                heard.get_nowait()

            assert not (await client.queries.post(row)).refused

            async with asyncio.timeout(60):
                assert await heard.get() == f"shard {shard}"
            assert row in await answer(stores[shard].inbox, 100)


async def test_what_no_hint_told_of_is_found_by_a_poll(postgres: str):
    name = Address("puppet", "key")
    async with opened(postgres) as engine, opened(postgres) as client:  # the engine does not listen
        stores = [await leased(engine, shard) for shard in range(16)]
        store = stores[place(name, 16)]
        id = (await answer(store.position)).seq + 1
        await answer(store.commit, batch(journal=[entry(id, id)], heads=[head(id, "key")]))
        assert [await answer(each.inbox, 100) for each in stores] == [[]] * 16

        row = message(b"1", name)
        await client.queries.post(row)

        async def found() -> bool:
            return row in await answer(store.inbox, 100)

        await until(found)


async def test_one_look_is_enough_for_all_shards(postgres: str):
    async with opened(postgres) as engine:
        engine.engine = counting = Counting(engine.place, SETTINGS, 1)
        stores = [await leased(engine, shard) for shard in range(16)]
        counting.asked = 0

        assert await asyncio.gather(*(answer(store.lost, 100) for store in stores)) == [[]] * 16
        assert counting.asked == 1
        assert await answer(stores[0].lost, 100) == []
        assert counting.asked == 2, "who asks again wants to know it anew"


class Counting(Connections):
    asked = 0

    async def ask(self, *arguments: Any) -> Any:
        self.asked += 1
        return await super().ask(*arguments)


async def test_a_listener_comes_back_and_tells_to_look_everywhere(postgres: str):
    async with Proxy(postgres) as proxy, opened(proxy.url) as database:
        heard: asyncio.Queue[str] = asyncio.Queue()
        database.listen(heard.put_nowait)
        await database.listening()
        first = [heard.get_nowait() for _ in range(16)]
        before = database.changes()

        proxy.cut()

        async with asyncio.timeout(60):
            again = [await heard.get() for _ in range(16)]
        assert first == again == [f"shard {number}" for number in range(16)]
        assert database.changes() > before


async def test_hints_of_a_moment_are_told_once(postgres: str):
    async with opened(postgres) as database, opened(postgres) as other:
        heard: asyncio.Queue[str] = asyncio.Queue()
        other.listen(heard.put_nowait)
        await other.listening()
        while not heard.empty():
            heard.get_nowait()

        for _ in range(50):
            database.hint("shard 3", "ended")
        await database.rest()
        database.hint("last")

        words = []
        async with asyncio.timeout(60):
            while (word := await heard.get()) != "last":
                words.append(word)
        assert set(words) == {"shard 3", "ended"}
        assert len(words) <= 4


async def test_two_posts_of_one_start_with_other_inputs_never_both_succeed(postgres: str):
    from perdure.kernel.apply import input_hash
    from perdure.kernel.events import Started
    from perdure.kernel.rows import inbox_row

    async with opened(postgres) as database, opened(postgres) as other:
        store = await leased(database)
        await answer(store.register, [WorkflowRow("puppet", "1", b"")])

        async def post(queries: Any, key: str, input: bytes) -> str:
            row = inbox_row(key.encode() + input, Address("puppet", key), Started("puppet", key, input, b"s" * 16), 7)
            return str((await queries.post(row, start=input_hash(input))).refused)

        for number in range(30):
            key = f"key-{number}"
            both = [post(database.queries, key, b"a"), post(other.queries, key, b"b")]
            assert sorted(await asyncio.gather(*both)) == ["", "key-in-use"]


async def test_texts_that_postgresql_has_no_place_for_do_no_harm(postgres: str):
    async with opened(postgres) as database:
        store = await leased(database)
        written = batch(
            journal=[entry(1, 1)],
            heads=[head(1, tags='{"a":"\\u0000{\\"b\\":"}')],
            published=[PublishedRow(1, "na\x00me", b"value")],
        )

        assert await answer(store.commit, written) is None

        assert await database.queries.published(1, "na\x00me") == b"value"
        assert [row.id for row in await database.queries.heads(Filter(tags={"a": '\x00{"b":'}))] == [1]
        assert await database.queries.heads(Filter(tags={"b": "x"})) == []
        assert await database.queries.head(Address("puppet", "no\x00body")) is None
        assert (
            await database.queries.post(message(b"m", Address("puppet", "no\x00body")))
        ).refused == "unknown-instance"


async def test_bodies_of_any_size_are_the_same_bytes_for_readers(postgres: str):
    async with opened(postgres) as database:
        store = await leased(database)
        rows = [
            entry(number, 1, bytes([number]) * size) for number, size in enumerate((0, 2_000, 70_000, 9_000_000), 1)
        ]

        assert await answer(store.commit, batch(journal=rows, heads=[head(1)])) is None

        assert await database.queries.journal(0, 10) == rows


async def test_the_sessions_are_set_up_for_small_commits_that_last(postgres: str):
    async with opened(changed(postgres, synchronous_commit="off")) as database, database.engine.one() as connection:
        for setting, value in (("synchronous_commit", "on"), ("jit", "off"), ("enable_seqscan", "off")):
            assert await connection.fetchval(f"SHOW {setting}") == value


# ---- what is said when it fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("mysql://localhost/x", "is not a URL of PostgreSQL"),
        ("postgresql://a:se/cret@localhost/x", "the host or port of this URL cannot be read"),
        ("postgresql://a@127.0.0.1:1/x", "nobody answers there"),
        ("postgresql://a@/x?host=/no/such/directory", "nobody answers there"),
        ("postgresql://a:secret@127.0.0.1:1/x?sslmode=wrong", "`sslmode` parameter must be one of"),
        ("postgresql://a@127.0.0.1:1/x?schema=" + "x" * 64, "is no name of a schema"),
        ("postgresql://a@127.0.0.1:1/x?schema=a$$b", "and no $$, { or }"),
        ("postgresql://a@127.0.0.1:1/x?schema={a}", "is no name of a schema"),
        ("postgresql://a@127.0.0.1:1/x?schema=a%0Ab", "is no name of a schema"),
    ],
)
async def test_a_url_that_leads_nowhere(url: str, text: str):
    with pytest.raises(CannotOpen) as raised:
        await PostgresDatabase.open(url)

    assert text in str(raised.value)
    assert "secret" not in str(raised.value) and "cret" not in str(raised.value)


async def test_a_database_or_a_user_that_does_not_exist(postgres_server: Server):
    for url, text in (
        (changed(postgres_server.url, database="nowhere"), 'database "nowhere" does not exist; create it first'),
        (changed(postgres_server.url, user="nobody"), "user"),
    ):
        with pytest.raises(CannotOpen, match=text):
            await PostgresDatabase.open(url)


async def test_a_database_without_the_schema_names_the_command_that_makes_it(postgres_server: Server):
    with pytest.raises(
        CannotOpen, match=r"has no perdure schema 'nothing' yet; make it: perdure db upgrade postgresql://"
    ):
        await PostgresDatabase.open(postgres_server.url, "nothing")


@pytest.mark.parametrize(
    ("version", "error", "text"),
    [
        (0, CannotOpen, "make it: perdure db upgrade"),
        (1, CannotOpen, f"has schema 1, this perdure {VERSION}; stop its engines, then: perdure db upgrade"),
        (1000, NewerSchema, "has schema 1000, of a newer perdure"),
    ],
)
async def test_an_older_and_a_newer_schema_are_refused(postgres: str, version: int, error: type[StoreError], text: str):
    async with opened(postgres) as database:
        await execute(database, "DELETE FROM perdure.migrations")
        await execute(database, "INSERT INTO perdure.migrations (version) VALUES ($1)", version)

    with pytest.raises(error, match=text):
        await PostgresDatabase.open(postgres)


async def test_a_wrong_password_is_told_and_never_shown(postgres_server: Server, postgres: str):
    if postgres_server.data is None:
        pytest.skip("the rules of this server are not ours")
    rules = postgres_server.data / "pg_hba.conf"
    if "locked" not in rules.read_text():
        rules.write_text("local all locked scram-sha-256\n" + rules.read_text())
    async with opened(postgres) as database:
        await execute(database, "DROP ROLE IF EXISTS locked")
        await execute(database, "CREATE ROLE locked LOGIN PASSWORD 'right'")
        await execute(database, "SELECT pg_reload_conf()")

        async def refused() -> bool:
            with pytest.raises(CannotOpen) as raised:
                await PostgresDatabase.open(changed(postgres, user="locked:wrong"))
            assert "wrong" not in str(raised.value)
            return "the server refuses the password or the user" in str(raised.value)

        await until(refused)
        await execute(database, "DROP ROLE locked")


async def test_missing_privileges_are_told(postgres: str):
    async with opened(postgres) as database:
        name = database.place.namespace
        await execute(database, f"CREATE ROLE {name} LOGIN")
        try:
            url = changed(postgres, user=name)
            with pytest.raises(CannotOpen, match="permission denied"):
                await upgrade(url.replace(f"schema={name}", "schema=mine"))
            with pytest.raises(CannotOpen, match=rf"permission denied for schema {name}.*; grant this user the right"):
                await PostgresDatabase.open(url)

            await execute(database, f"GRANT USAGE ON SCHEMA {name} TO {name}")
            await execute(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {name}")
            async with opened(url) as reader:
                assert await reader.queries.height() == 0
                error = await answer(reader.store(0).acquire, "reader")
                assert isinstance(error, StoreFailed)
                assert "permission denied for table shards; nothing was written: grant this user the right" in str(
                    error
                )
        finally:
            await execute(database, f"DROP OWNED BY {name}")
            await execute(database, f"DROP ROLE {name}")


async def test_too_many_connections_are_told_at_the_door_and_waited_for_inside(postgres: str):
    async with opened(postgres) as database:
        name = database.place.namespace
        await execute(database, f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 1")
        await execute(database, f"GRANT ALL ON SCHEMA {name} TO {name}")
        await execute(database, f"GRANT ALL ON ALL TABLES IN SCHEMA {name} TO {name}")
        url = changed(postgres, user=name)
        try:
            async with opened(url) as limited:
                await limited.queries.height()
                with pytest.raises(CannotOpen, match="the server takes no more connections"):
                    await PostgresDatabase.open(url)
                leasing = asyncio.ensure_future(leased(limited))
                await until(lambda: _true(limited.engine._lost))
                await limited.clients.close()
                await leasing
        finally:
            await execute(database, f"DROP OWNED BY {name}")
            await execute(database, f"DROP ROLE {name}")


async def _true(value: bool) -> bool:
    return value


async def test_a_schema_that_was_dropped_under_an_engine_is_told(postgres: str):
    async with opened(postgres) as database:
        store = await leased(database)
        await execute(database, f"DROP SCHEMA {database.place.namespace} CASCADE")

        error = await answer(store.commit, ENTRIES)

        assert isinstance(error, StoreFailed)
        assert "perdure db upgrade" in str(error)


async def test_rows_that_contradict_each_other_are_an_error_of_ours(postgres: str):
    async with opened(postgres) as database:
        store = await leased(database)
        assert await answer(store.commit, LONE) is None

        error = await answer(store.commit, LONE)

        assert isinstance(error, StoreFailed)
        assert "nothing was written: this is an error in perdure" in str(error)


async def test_the_number_of_shards_is_given_once(postgres: str):
    assert (await upgrade(postgres, shards=16)).before == VERSION

    with pytest.raises(CallerError, match="has 16 shards, and not 4"):
        await upgrade(postgres, shards=4)
