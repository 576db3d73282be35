"""Bulk work: one verb on many instances, recorded, resumed after a kill, and repeated nowhere."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import BulkRunning, CallerError, SelectionChanged, TooBroad
from perdure.verbs.bulk import (
    BulkId,
    BulkListParams,
    BulkParams,
    Selection,
    bulk_cancel,
    bulk_ls,
    bulk_show,
    bulk_start,
)
from perdure.views import lists
from perdure.views.where import parse
from tests.stages import LONG


@perdure.flow
async def order(ctx):
    while True:
        message = await ctx.receive("touch")
        ctx.publish("touched", message.body)


@perdure.flow
async def other(ctx):
    await ctx.receive("touch")


def wanted(verb="send", q="workflow:order", **more):
    params = {"name": "touch", "body": 1} if verb == "send" else {}
    return BulkParams(verb, Selection(q), **{"params": params, "rate": 10_000, **more})


async def ended(client, answer):
    handle = client.handle("perdure.bulk", answer.id)
    async for _ in handle._connection.changes(0):
        shown = await bulk_show(client, BulkId(answer.id))
        if shown.status in ("completed", "failed", "cancelled", "stuck"):
            return shown
    return None


async def touches(engine, key, workflow="order"):
    lines = await engine.handle(workflow, key).history()
    return sum(line.event == "message" for line in lines)


async def test_a_bulk_acts_on_each_instance_of_its_selection_once():
    async with perdure.open(":memory:", workflows=[order, other]) as engine:
        for n in range(30):
            await engine.start(order, key=f"o-{n}", tags={"third": str(n % 3)})
        await engine.start(other, key="alone")

        answer = await begun(engine, wanted(q="workflow:order tag.third:1", by="ann", reason="bank is back"))
        shown = await ended(engine, answer)

        assert (shown.status, shown.total, shown.done, shown.left, shown.refused) == ("completed", 10, 10, 0, [])
        assert [await touches(engine, f"o-{n}") for n in range(30)] == [int(n % 3 == 1) for n in range(30)]
        assert [each.id for each in (await bulk_ls(engine, BulkListParams())).items] == [answer.id]


async def test_a_dry_run_tells_what_would_happen_and_records_nothing():
    async with perdure.open(":memory:", workflows=[order]) as engine:
        for n in range(25):
            await (await engine.start(order, key=f"o-{n}")).until("waiting")
        before = await engine.queries.height()

        plan = await begun(engine, wanted("cancel", dry_run=True))

        assert (plan.count, len(plan.sample), await engine.queries.height()) == (25, 20, before)
        assert plan.sample[0].would == ["end the wait receive:touch", "end the instance as cancelled"]
        await engine.start(order, key="o-25")
        with pytest.raises(SelectionChanged, match="25 instances, and not for the 26"):
            await begun(engine, wanted("cancel", plan=plan.plan))
        again = await begun(engine, wanted("cancel", dry_run=True))
        assert (await ended(engine, await begun(engine, wanted("cancel", plan=again.plan)))).done == 26


async def test_a_bulk_stops_after_its_errors_and_names_them():
    async with perdure.open(":memory:", workflows=[order]) as engine:
        for n in range(40):
            await engine.start(order, key=f"o-{n}")

        shown = await ended(engine, await begun(engine, wanted("retry", errors_max=5)))

        assert (shown.status, len(shown.refused), shown.done, shown.left) == ("failed", 5, 0, 35)
        assert shown.error == "TooManyErrors"
        assert {each.code for each in shown.refused} == {"not-stuck"}
        assert shown.refused[0].id == "order/o-0"


async def test_a_cancelled_bulk_leaves_the_rest_alone():
    async with perdure.open(":memory:", workflows=[order]) as engine:
        for n in range(10):
            await engine.start(order, key=f"o-{n}")

        answer = await begun(engine, wanted(rate=0.001))
        async for _ in engine.changes():
            if (await bulk_show(engine, BulkId(answer.id))).done == 1:
                break
        await bulk_cancel(engine, BulkId(answer.id))
        shown = await ended(engine, answer)

        assert (shown.status, shown.done, shown.left) == ("cancelled", 1, 9)
        assert sum([await touches(engine, f"o-{n}") for n in range(10)]) == 1


async def test_an_actor_has_two_bulks_at_once():
    async with perdure.open(":memory:", workflows=[order]) as engine:
        for n in range(3):
            await engine.start(order, key=f"o-{n}")
        for _ in range(2):
            await begun(engine, wanted(rate=0.001, by="ann"))

        with pytest.raises(BulkRunning, match="ann has 2 bulks"):
            await begun(engine, wanted(by="ann"))
        assert (await ended(engine, await begun(engine, wanted(by="bob")))).done == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (wanted(q=""), "a selection is a filter"),
        (wanted(rate=0), "rate is more than 0"),
        (wanted(errors_max=0), "errors_max is 1"),
        (wanted(params={"nme": "touch"}), "no parameter 'nme'"),
        (wanted(params={}), "parameters of send"),
        (wanted(params={"id": "order/o-1", "name": "touch"}), "no 'id'"),
        (wanted(q="stats:stuck"), "did you mean 'status'"),
    ],
)
async def test_what_a_bulk_does_not_take(given, says):
    async with perdure.open(":memory:", workflows=[order]) as engine:
        with pytest.raises(CallerError, match=says):
            await begun(engine, given)
        assert await engine.instances(workflow="perdure.bulk") == []


async def test_a_selection_has_an_end():
    async with perdure.open(":memory:", workflows=[order]) as engine:
        for n in range(3):
            await engine.start(order, key=f"o-{n}")
        with pytest.raises(TooBroad, match="more than 2 instances"):
            await lists.select(engine.queries, parse("workflow:order"), lambda _: True, 2)


CHILD = """
import asyncio, sys
import perdure
sys.path.insert(0, sys.argv[2])
from tests.bulk.test_bulk import order, ended, wanted
from perdure.verbs.bulk import BulkAnswer

async def main():
    async with perdure.open(sys.argv[1], workflows=[order]) as engine:
        print("open", flush=True)
        await ended(engine, BulkAnswer("send", 0, sys.argv[3]))
        print("ended", flush=True)

asyncio.run(main())
"""
ROOT = Path(__file__).parents[2]


async def begun(client, given):
    answer: Any = await bulk_start(client, given)
    return answer


async def killed_and_resumed(path, instances, kills):
    """A bulk runs in one process after the other; each but the last is killed while it works."""
    async with perdure.open(path, workflows=[order]) as engine:
        for n in range(0, instances, 500):
            await asyncio.gather(*(engine.start(order, key=f"o-{m}") for m in range(n, min(n + 500, instances))))
    async with perdure.connect(path) as client:
        answer = await begun(client, wanted())
    command = [sys.executable, "-c", CHILD, str(path), str(ROOT), answer.id]
    for kill in range(kills):
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        async with perdure.connect(path) as client:
            goal = instances * (kill + 1) // (kills + 2)
            async for _ in client.changes():
                if process.returncode is not None or await sent(client, instances) >= goal:
                    break
        process.send_signal(signal.SIGKILL)
        await process.wait()
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0
    async with perdure.connect(path) as client:
        return await bulk_show(client, BulkId(answer.id)), await all_touches(client, instances)


async def sent(client, instances):
    return await client.queries.height() - instances


async def all_touches(client, instances):
    return {await touches(client, f"o-{n}") for n in range(instances)}


async def test_a_bulk_survives_a_kill_and_repeats_nothing(tmp_path):
    instances = 10_000 if LONG else 300

    shown, found = await killed_and_resumed(tmp_path / "a.db", instances, 4 if LONG else 2)

    assert (shown.status, shown.done, shown.refused) == ("completed", instances, [])
    assert found == {1}
