"""The commands that change a manifest, asked of an engine of this process; once from processes of their own."""

import asyncio
import importlib
import json

import pytest

import perdure
from perdure.cells.author import Cell

SHOP = """
import perdure
from perdure import Next


class Placed(perdure.Record, name="shop/Placed@1"):
    order: str
    cents: perdure.Nat


class Order(perdure.Record, name="shop/Order@1"):
    cents: perdure.Nat


class Priced(perdure.Record, name="shop/Order@2"):
    cents: perdure.Nat
    currency: str


def in_euros(old: Order) -> Priced:
    return Priced(old.cents, "EUR")


@perdure.cell("shop/order@1", key="order", effects=[])
def order(state: Order | None, event: Placed) -> Next:
    return Next(Order((state.cents if state else 0) + event.cents))


@perdure.cell("shop/order@2", key="order", effects=[], migrate=in_euros)
def order_2(state: Priced | None, event: Placed) -> Next:
    return Next(Priced((state.cents if state else 0) + event.cents, "EUR"))
"""


@pytest.fixture
def running(world, monkeypatch):
    """Calls a coroutine function with an engine on version 1 that also has the code of version 2, and one order."""
    (world.directory / "till_2.py").write_text(SHOP)
    monkeypatch.syspath_prepend(world.directory)
    import till_2 as code  # type: ignore[import-not-found]

    async def main(test, more):
        others = [cell for name in more for cell in vars(importlib.import_module(name)).values()]
        cells = {id(cell): cell for cell in [code.order, code.order_2, *others] if isinstance(cell, Cell)}
        async with perdure.open(world.db, workflows=list(cells.values())) as engine:
            await perdure.Governance(engine).apply(perdure.manifest(code.order))
            await engine.send(code.Placed("o-1", 5))
            return await test(engine, code)

    return lambda test, *more: asyncio.run(main(test, more))


async def typed(world, *words, exit=0):
    done = await asyncio.to_thread(world.perdure, "manifest", *words)
    assert done.exit_code == exit, done.stderr
    return done.stdout if exit == 0 else done.stderr


def test_a_proposal_goes_its_way(world, running):
    async def typed(world, *words, exit=0):
        code, out, errors = await asyncio.to_thread(world.call, "manifest", *words, PERDURE_DB=world.db)
        assert code == exit, errors
        return out if exit == 0 else errors

    async def test(engine, code):
        assert "proposal 1\n  - schema shop/Order@1\n" in await typed(world, "propose", "till_2:order_2")
        assert "to be approved it must be shadowed" in await typed(world, "approve", "1", exit=4)
        told = await typed(world, "shadow", "1", "--against", "till_2", "--mode", "migrate")
        assert "1 cells have another state" in told and "not predicted" in told
        assert await typed(world, "approve", "1") == "proposal 1 is approved\n"
        assert (await typed(world, "apply", "1", "--mode", "migrate")).startswith("in force (migrate): sha256:")
        assert await typed(world, "migrate") == "1 cells were told to go over\n"
        assert await typed(world, "proposals") == "1  applied  migrate\n"
        await engine.send(code.Placed("o-1", 1))
        assert await engine.state(code.order_2, "o-1") == code.Priced(6, "EUR")

    running(test)


BAKER = """
import perdure
from perdure import Next, ReceiptOf
from perdure.cells.effects import Alarm


class Asked(perdure.Record, name="baker/Asked@1"):
    bread: str


class Bake(perdure.Effect, name="baker/bake@1", outside="oven"):
    loaves: int

    class Receipt(perdure.Record):
        loaves: int


class Bread(perdure.Record, name="baker/Bread@1"):
    told: str


@perdure.cell("baker/bread@1", key="bread", effects=[Bake, Alarm])
def bread(state: Bread | None, event: Asked | ReceiptOf[Bake] | ReceiptOf[Alarm]) -> Next:
    if isinstance(event, Asked):
        return Next(Bread("asked"), effects=[Bake(1)])
    if isinstance(event.params, Bake):
        assert event.value.loaves > 0, "nothing came out of the oven"
        return Next(Bread("baked"), effects=[Alarm(after=60_000_000_000)])
    return Next(Bread("stale"))
"""


def test_a_shadow_run_is_told_answers_and_a_horizon_and_fails_with_an_exit_code(world, monkeypatch):
    (world.directory / "baker.py").write_text(BAKER)
    monkeypatch.syspath_prepend(world.directory)
    import baker as code  # type: ignore[import-not-found]

    async def shadow(*options, exit=0):
        words = ("manifest", "shadow", "baker", *options, "--json")
        done = await asyncio.to_thread(world.perdure, *words)
        assert done.exit_code == exit, done.stderr
        return [state["after"] for state in json.loads(done.stdout)["states"]] if exit < 2 else done.stderr

    async def main():
        async with perdure.open(world.db, workflows=[code.bread]) as engine:
            await engine.send(code.Asked("rye"))
            ok = '{"baker/bake@1": {"loaves": 2}}'
            assert await shadow() == []
            assert await shadow("--receipts", ok) == [{"told": "stale"}]
            assert await shadow("--receipts", ok, "--horizon", "59") == [{"told": "baked"}]
            await shadow("--receipts", ok.replace("2", "0"), exit=1)
            assert "receipts are given by effect" in await shadow("--receipts", "[1]", exit=2)
            assert "a horizon is 0 to" in await shadow("--horizon", "nan", exit=2)

            (asked,) = await engine.open_effects()
            await engine.answer(asked.intent, executor="oven", ok={"loaves": 1})
            await engine.send(code.Asked("oat"))
            assert await shadow("--recorded", "--horizon", "0") == [{"told": "baked"}]

    asyncio.run(main())


def test_a_proposal_is_rejected_with_its_reason(world, running):
    async def test(engine, code):
        await typed(world, "propose", "till_2:order_2")
        await typed(world, "reject", "1", "--reason", "not now")
        assert await typed(world, "proposals") == "1  rejected    not now\n"
        assert "there is no proposal 7" in await typed(world, "apply", "7", exit=4)

    running(test)


def test_strict_says_what_stands_against_it(world, running):
    async def test(engine, code):
        assert "instances: 1" in await typed(world, "apply", "till_2:order_2", "--mode", "strict", exit=4)
        assert "name it with --against" in await typed(world, "shadow", "1", exit=2)

    running(test)


def test_without_an_engine_nobody_answers(world, running):
    async def test(engine, code):
        pass

    running(test)

    assert "no engine runs on" in asyncio.run(typed(world, "apply", "till_2:order_2", exit=4))


def test_a_cell_that_has_not_gone_over_yet_says_so_by_itself(world, running):
    async def test(engine, code):
        await typed(world, "apply", "till_2:order_2", "--mode", "migrate")

    running(test)
    bare = world.perdure("cells", "show", "shop/order", "o-1")
    with_code = world.perdure("cells", "show", "shop/order", "o-1", "--against", "till_2")

    assert bare.exit_code == 3 and "shop/order/o-1 is still of version 1-" in bare.stderr
    assert "--against MODULE" in bare.stderr and "perdure manifest migrate" in bare.stderr
    assert "is still of version 1-" in with_code.stderr and '"cents": 5' in with_code.stdout


def test_why_of_a_cell_whose_code_the_engine_lacks_says_just_that(world, running):
    async def test(engine, code):
        pass

    async def lacking():
        async with perdure.open(world.db, workflows=[]):
            return await asyncio.to_thread(world.perdure, "why", "shop/order/o-1")

    running(test)
    done = asyncio.run(lacking())

    assert done.exit_code == 0
    out = done.stdout
    assert out.splitlines()[0] == "shop/order/o-1 is waiting."
    assert "does not have the code of shop/order in version 1-" in out and "workflows=[...]" in out
    assert "routed to it" not in out


def test_debug_opens_the_migration_of_a_cell(world, running):
    async def test(engine, code):
        await typed(world, "apply", "till_2:order_2", "--mode", "migrate")
        await engine.send(code.Placed("o-1", 1))
        await engine.state(code.order_2, "o-1", at_least=6)

    running(test)
    at = ("debug", "shop/order/o-1", "--against", "till_2", "--at")
    migrated = world.perdure(*at, "2", input="p old\nc\n")
    after = world.perdure(*at, "3", input="c\n")

    assert "p old\nOrder(cents=5)" in migrated.stdout and 'state {"cents": 5, "currency": "EUR"}' in migrated.stdout
    assert 'State before: {"cents": 5, "currency": "EUR"}' in after.stdout
    assert all("The code does what it did." in each.stdout for each in (migrated, after))


def test_a_cell_that_cannot_go_over_is_explained_and_goes_over_to_another_definition(world, running):
    (world.directory / "till_3.py").write_text(
        "from till_2 import *\n"
        "def only_even(old: Order) -> Priced:\n"
        "    assert old.cents % 2 == 0\n"
        "    return in_euros(old)\n"
        '@perdure.cell("shop/order@3", key="order", effects=[], migrate=only_even)\n'
        "def order_3(state: Priced | None, event: Placed) -> Next:\n"
        "    return Next(state)\n"
    )

    async def story(engine, code):
        await typed(world, "apply", "till_3:order_3", "--mode", "migrate")
        await typed(world, "migrate")
        while (await engine.handle("shop/order", "o-1").status()) != "stuck":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        why = await asyncio.to_thread(world.perdure, "why", "o-1")
        refused = await typed(world, "apply", "till_2:order_2", exit=4)
        await typed(world, "apply", "till_2:order_2", "--mode", "migrate")
        assert await typed(world, "migrate") == "1 cells were told to go over\n"
        await engine.send(code.Placed("o-1", 1))
        return why.stdout, refused, await engine.state(code.order_2, "o-1", at_least=11)

    why, refused, state = running(story, "till_3")

    assert "It is stuck at entry 2 (migrated)" in why and "AssertionError" in why
    assert "mend its migrate function" in why and "perdure manifest migrate" in why and "--mode migrate" in why
    assert "1 cells of shop/order are left" in refused
    assert (state.cents, state.currency) == (6, "EUR")
