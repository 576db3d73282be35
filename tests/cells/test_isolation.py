"""No cell sees another's receipt, ever; and cells take turns."""

import asyncio
import random

import perdure
from perdure import Next, ReceiptOf
from tests.cells.shop import Order, Placed, order

CELLS = 1000


class Ask(perdure.Effect, name="com.acme/ask@1"):
    order: str

    class Receipt(perdure.Record):
        auth: str


@perdure.cell("com.acme/asker@1", key="order", effects=[Ask])
def asker(state: Order | None, event: Placed | ReceiptOf[Ask], ctx: perdure.CellContext) -> Next:
    before = state or Order()
    if isinstance(event, Placed):
        return Next(before, effects=[Ask(event.order), Ask(event.order)])
    assert (event.key, event.cell) == (ctx.key, ctx.cell)
    assert event.params == Ask(ctx.key)
    return Next(Order("paid", [*before.auths, event.value.auth]))


async def test_1_000_cells_with_concurrent_receipts_never_cross(stage):
    dice = random.Random(7)
    waiting: list[tuple[str, asyncio.Future[None]]] = []

    @perdure.effect_handler(Ask)
    async def answer(params: Ask, call: perdure.Call) -> Ask.Receipt:
        turn = asyncio.get_running_loop().create_future()
        waiting.append((call.key, turn))
        await turn
        return Ask.Receipt(f"{call.key} {params.order}")

    async with stage.open(asker, handlers=[answer]) as live:
        await asyncio.gather(*(live.engine.send(Placed(f"o-{n}")) for n in range(CELLS)))
        async with asyncio.timeout(60):
            while len(waiting) < 2 * CELLS:  # noqa: ASYNC110  # the engine asks when it is durable
                await asyncio.sleep(0.001)
        dice.shuffle(waiting)
        for _, turn in waiting:
            turn.set_result(None)

        for n in range(CELLS):
            key = f"o-{n}"
            await live.until(asker, key, Order("paid", [f"{key} {key}"] * 2))


async def test_cells_take_turns(stage):
    """A cell with a full mailbox does not keep others waiting: one event each, in the order of arrival."""
    async with stage.open(order) as live:
        await asyncio.gather(*(live.engine.send(Placed(key)) for key in ["busy"] * 5 + ["a", "b"]))
        await live.rest()

        names = {head.id: head.key for head in await live.engine.instances(workflow="com.acme/order")}
        turns = [names[row.instance] for row in await live.journal() if row.instance in names]
        loaded_at_once = stage.cache > 0 and not str(stage.url).startswith("postgres")
        assert set(turns[:3]) == {"busy", "a", "b"} or not loaded_at_once
        assert sorted(turns) == ["a", "b", *["busy"] * 5]
