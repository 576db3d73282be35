"""The inbox of a shard: each row is delivered once, however late the answers of the store come."""

import asyncio
from collections.abc import Callable

import perdure
from perdure.codec import encode
from perdure.executors.inline import InlineExecutor
from perdure.kernel.batch import InboxRow
from perdure.kernel.events import Message
from perdure.kernel.workflows import Workflows
from perdure.runtime.client import Client
from perdure.runtime.clock import SystemClock
from perdure.runtime.connections import LocalConnection, RemoteConnection
from perdure.runtime.shard import Shard
from perdure.stores.memory import MemoryStore


class LateStore(MemoryStore):
    """Answers with all rows that its inbox had when it was asked, but only when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Callable[[], None]] = []

    def inbox(self, limit: int, done: Callable[[list[InboxRow] | Exception], None]) -> None:
        rows = [row for _, row in self.database.inbox.values()]
        self.answers.append(lambda: done(rows))

    def answer(self) -> None:
        self.answers.pop(0)()


@perdure.flow
async def hears(ctx: perdure.Context) -> list[str]:
    heard: list[str] = []
    while (message := await ctx.receive("word", "end")).name == "word":
        heard.append(message.body)
    return heard


async def test_an_answer_of_the_store_that_is_older_than_a_commit_delivers_nothing_twice() -> None:
    store, clock = LateStore(), SystemClock(asyncio.get_running_loop())
    connection = LocalConnection(store, lambda report: None)
    shard = Shard(store, clock, [InlineExecutor()], [hears], owner="test", listener=connection, poll=10**18)
    connection.lead_to(lambda ref: shard)
    shard.open(lambda error: None)
    handle = await Client(connection, Workflows([hears])).start(hears, key="k")
    store.answer()  # of the look at the opening

    await RemoteConnection(store).put(handle.address, Message("word", encode("once")))  # it has no id
    shard.look()
    store.answer()  # the row is in memory now
    shard.look()  # and still in the table when this is asked
    while store.database.inbox:  # noqa: ASYNC110  # the commit is made by the loop
        await asyncio.sleep(0)
    store.answer()
    await handle.send("end")

    assert await handle.result(60) == ["once"]
    shard.release()
