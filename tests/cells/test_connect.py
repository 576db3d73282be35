"""Cells from another process: events go through the inbox, and are checked before they are posted."""

import os

import pytest

import perdure
from perdure.codec import encode
from perdure.kernel.events import Address, CancelAsked, Event, Message, Rewound, Started, Woken
from perdure.kernel.rows import inbox_row
from perdure.kernel.rules import RULER
from tests.cells.shop import Order, Placed, book, order
from tests.cells.test_bad_input import picky


async def test_an_event_from_another_process_is_delivered(disk):
    async with disk.open(order, book) as live, perdure.connect(disk.url) as client:
        await client.send(Placed("o-1"), id="e-1")
        await client.send_json("com.acme/Placed@1", {"order": "o-2", "cents": 2}, correlation="c")

        await live.until(order, "o-1", Order("charging"))
        await live.until(order, "o-2", Order("charging"))


async def test_events_wait_for_the_next_engine_and_the_same_id_is_taken_once(disk):
    async with disk.open(order, book):
        pass
    async with perdure.connect(disk.url) as client:
        for _ in range(2):
            await client.send(Placed("o-1"), id="e-1")
    async with disk.open(order, book) as live:
        await live.until(order, "o-1", Order("charging"))

        assert len(await live.entries(order, "o-1")) == 1


async def test_what_is_no_event_is_refused_before_it_is_posted(disk):
    async with disk.open(order, book) as live, perdure.connect(disk.url) as client:
        before = await live.journal()
        with pytest.raises(perdure.SchemaMismatch):
            await client.send(Placed("o-1", -1))
        with pytest.raises(perdure.UnknownEvent):
            await client.send_json("com.acme/Nobody@1", {})
        with pytest.raises(perdure.KeyMismatch):
            await client.send(Placed("o-1"), key="o-2")

        assert await live.journal() == before


async def test_a_database_without_cells_says_so(disk):
    async with disk.open(), perdure.connect(disk.url) as client:
        with pytest.raises(perdure.CallerError, match="this database has no cells: open it with"):
            await client.send(Placed("o-1"))
        with pytest.raises(perdure.CallerError, match=r"<function .* is not a cell; did you forget @perdure.cell\?"):
            await client.state(test_a_database_without_cells_says_so)  # type: ignore[arg-type]


async def test_a_cell_is_cancelled_and_retried_from_another_process(disk):
    async with disk.open(order, book) as live, perdure.connect(disk.url) as client:
        await live.send(Placed("o-1"))
        await client.handle("com.acme/order", "o-1").cancel()
        await live.until(order, "o-1", None)

        assert await client.handle("com.acme/order", "o-1").status() == "cancelled"


async def test_what_is_none_for_a_cell_is_refused_by_the_engine_too(disk):
    o_1 = Address("com.acme/order", "o-1")
    posts: list[tuple[Address, Event]] = [
        (o_1, Message("com.acme/Dropped@1", encode({"order": "o-1"}), "m-1")),
        (o_1, Started(o_1.workflow, o_1.key, b"", b"", reuse="always")),
        (o_1, Rewound(b"", "charge/~1#1")),
        (o_1, Woken()),
        (RULER, CancelAsked("why not")),
    ]
    async with disk.open(order, book) as live, perdure.connect(disk.url) as client:
        await live.send(Placed("o-1"))
        for to, event in posts:  # as a client would post it that does not know what cells are
            await client.queries.post(inbox_row(os.urandom(16), to, event, 1))
        await client.send(Placed("o-2"))
        await live.until(order, "o-2", Order("charging"))

        assert len(await live.entries(order, "o-1")) == 1
        assert live.engine.counts["refused"] == len(posts)
        assert await live.head(book) is None


async def test_who_asks_a_cell_for_what_it_does_not_do_hears_it_at_once(disk):
    async with disk.open(order, book) as live, perdure.connect(disk.url) as client:
        await live.send(Placed("o-1"))
        handle = client.handle("com.acme/order", "o-1")
        before = await live.journal()

        with pytest.raises(perdure.CallerError, match=r"is a cell: the first event .* makes it"):
            await client.start("com.acme/order", key="o-3")
        for ask in (handle.send("x"), handle.rewind("y"), handle.wake()):
            with pytest.raises(perdure.CallerError, match="is a cell"):
                await ask
        assert await live.journal() == before
        assert await client.queries.undelivered() == []


async def test_what_the_types_of_a_reducer_cannot_hold_makes_no_cell_stuck(disk):
    async with disk.open(picky) as live, perdure.connect(disk.url) as client:
        await client.send_json("com.acme/Even@1", {"order": "o-1", "number": 7})
        await client.send_json("com.acme/Even@1", {"order": "o-1", "number": 8})
        await live.until(picky, "o-1", Order("seen"))

        assert len(await live.entries(picky, "o-1")) == 1
