"""Engines come, go, die and faint; what they ran goes on elsewhere."""

import time
from pathlib import Path

import perdure
from tests.fleet.conftest import StartEngine
from tests.fleet.flows import FLOWS, collect, faint, family, gated, ledger_of, walk
from tests.fleet.leases import owners, renewed, shared
from tests.fleet.processes import until
from tests.fleet.verdict import verdict
from tests.proxy import Proxy
from tests.stages import LONG

TAKEN_OVER_SECONDS = 10.0
"""What is promised of instances whose process was killed, with the default lease."""

"""Only there the time is measured: a busy machine may be slow."""


async def test_engines_that_come_get_a_fair_share(url: str, engine: StartEngine) -> None:
    first = engine()
    await shared(url, first)

    second = engine()
    await shared(url, first, second)

    third = engine()
    await shared(url, first, second, third)


async def test_an_engine_with_a_slow_network_takes_its_shards_and_keeps_them(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    async with Proxy(url) as proxy, perdure.connect(url, workflows=FLOWS) as client:
        proxy.delay = 0.15
        slow = engine(proxy.url)
        await shared(url, slow)
        await renewed(url)

        flows = [await client.start(walk, str(tmp_path / "ledger"), 2, key=f"w{n}") for n in range(4)]

        assert [await flow.result(timeout=60) for flow in flows] == [1] * 4
        assert "not renewed in time" not in slow.words


async def test_what_a_killed_engine_ran_goes_on_elsewhere_in_ten_seconds(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    victim, heir = engine(), engine()
    await shared(url, victim, heir)
    async with perdure.connect(url, workflows=FLOWS) as client:
        flows = [await client.start(gated, str(ledger), str(gate), key=f"g{n}") for n in range(40)]
        await until(lambda: len({line.key for line in ledger_of(ledger) if line.step == "gate"}) == 40)
        half_done = {line.instance for line in ledger_of(ledger) if line.pid == victim.pid}
        assert half_done, "the victim ran nothing: the test proves nothing"

        victim.kill()
        gate.touch()
        killed = time.monotonic()
        assert [await flow.result(timeout=60) for flow in flows] == ["through"] * 40
        assert not LONG or time.monotonic() - killed < TAKEN_OVER_SECONDS

        found = await verdict(client.queries, ledger)
    assert not found.violations
    after = {line.instance: line.pid for line in ledger_of(ledger) if line.step == "after"}
    assert {after[instance] for instance in half_done} == {heir.pid}


async def test_an_engine_that_slept_through_its_lease_writes_nothing_when_it_wakes(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger, marker = tmp_path / "ledger", tmp_path / "marker"
    sleeper = engine()
    await shared(url, sleeper)
    async with perdure.connect(url, workflows=FLOWS) as client:
        flow = await client.start(faint, str(ledger), str(marker), key="f")
        await until(marker.exists)
        heir = engine()
        await shared(url, heir)
        assert await flow.result(timeout=60) == "awake"

        sleeper.go_on()

        await until(lambda: sleeper.refusals() > 0)
        await shared(url, sleeper, heir)  # it is one of the fleet again
        walker = await client.start(walk, str(ledger), 3, key="w")
        assert await walker.result(timeout=60) == 3
        found = await verdict(client.queries, ledger)
    assert not found.violations
    assert [line.pid for line in ledger_of(ledger) if line.step == "after"] == [heir.pid]


async def test_an_engine_that_is_asked_to_end_leaves_no_shard_behind(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    leaving, heir = engine(), engine()
    await shared(url, leaving, heir)
    async with perdure.connect(url, workflows=FLOWS) as client:
        flows = [await client.start(gated, str(ledger), str(gate), key=f"g{n}") for n in range(20)]
        await until(lambda: len({line.key for line in ledger_of(ledger) if line.step == "gate"}) == 20)

        leaving.terminate()
        assert await leaving.ended() == 0
        assert leaving.pid not in await owners(url)
        gate.touch()

        assert [await flow.result(timeout=60) for flow in flows] == ["through"] * 20
        found = await verdict(client.queries, ledger)
    assert not found.violations
    assert found.redelivered == found.parked > 0, "what was cut in good order lost an attempt"


async def test_families_live_on_several_shards_and_engines(url: str, engine: StartEngine, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    first, second = engine(), engine()
    await shared(url, first, second)
    async with perdure.connect(url, workflows=FLOWS) as client:
        parents = [await client.start(family, str(ledger), 3, 0.01, key=f"p{n}") for n in range(10)]

        assert [await parent.result(timeout=60) for parent in parents] == [7] * 10

        found = await verdict(client.queries, ledger)
    assert not found.violations
    assert {line.pid for line in ledger_of(ledger)} == {first.pid, second.pid}


async def test_a_client_that_owns_nothing_sends_cancels_and_hears(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    await shared(url, engine(), engine())
    async with perdure.connect(url, workflows=FLOWS) as client:
        baskets = [await client.start(collect, str(ledger), key=f"b{n}") for n in range(10)]
        for number in range(5):
            for basket in baskets:
                await basket.send("item", number)
        for basket in baskets[5:]:
            await basket.cancel("no longer wanted")
        for basket in baskets[:5]:
            await basket.send("end")

        assert [await basket.result(timeout=60) for basket in baskets[:5]] == [[0, 1, 2, 3, 4]] * 5
        for basket in baskets[5:]:
            try:
                await basket.result(timeout=60)
            except perdure.InstanceCancelled:
                continue
            raise AssertionError("it was cancelled, and says that it was not")
        found = await verdict(client.queries, ledger)
    assert not found.violations


async def test_messages_of_a_process_do_not_overtake_each_other_when_a_shard_comes_to_it(
    url: str, tmp_path: Path
) -> None:
    async with perdure.open(url, workflows=FLOWS) as engine:
        basket = await engine.start(collect, str(tmp_path / "ledger"), key="b")
        connection = engine._running.connection
        for number in range(0, 20, 2):
            shard = connection._shard_of(basket._to())
            connection.lead_to(lambda ref: None)
            await basket.send("item", number)  # by the inbox, as to any other process
            connection.lead_to(lambda ref: shard)  # noqa: B023
            await basket.send("item", number + 1)
        await basket.send("end")

        assert await basket.result(timeout=60) == list(range(20))
