"""The database goes away and comes back, under load, in every way that a network and a server have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import perdure
from perdure.runtime.client import Client
from tests.fleet.conftest import StartEngine
from tests.fleet.flows import FLOWS, collect, family, ledger_of, walk
from tests.fleet.leases import shared
from tests.fleet.processes import until
from tests.fleet.verdict import verdict
from tests.postgres import OwnServer
from tests.proxy import Proxy


@asynccontextmanager
async def load(client: Client, ledger: Path) -> AsyncIterator[None]:
    """Flows of every kind run while this is entered, and all come to their right end after it."""
    walkers = [await client.start(walk, str(ledger), 30, 0.05, key=f"w{n}") for n in range(20)]
    parents = [await client.start(family, str(ledger), 10, 0.05, key=f"p{n}") for n in range(5)]
    basket = await client.start(collect, str(ledger), key="b")
    sent: list[int] = []

    async def send() -> None:
        while True:
            await basket.send("item", len(sent))
            sent.append(len(sent))
            await asyncio.sleep(0.01)  # a load beside the flows, not all that the machine has

    sending = asyncio.create_task(send())
    try:
        await until(lambda: len(ledger_of(ledger)) > 50)
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert sending.cancelled(), "the sender failed"
    assert [await walker.result(timeout=120) for walker in walkers] == [sum(range(30))] * 20
    assert [await parent.result(timeout=120) for parent in parents] == [2 * sum(range(10)) + 1] * 5
    await basket.send("end")
    collected = await basket.result(timeout=120)
    # What was not acknowledged when the sender was stopped may have arrived all the same.
    assert collected[: len(sent)] == sent and len(collected) <= len(sent) + 1
    found = await verdict(client.queries, ledger)
    assert not found.violations


async def more(ledger: Path, lines: int) -> None:
    """Wait until so many more steps have run."""
    seen = len(ledger_of(ledger))
    await until(lambda: len(ledger_of(ledger)) >= seen + lines)


async def test_terminated_backends_lose_nothing(own: OwnServer, url: str, engine: StartEngine, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    first, second = engine(), engine()
    await shared(url, first, second)
    async with perdure.connect(url, workflows=FLOWS) as client, load(client, ledger):
        for _ in range(5):
            await own.terminate_backends()
            await more(ledger, 20)
    assert "does not answer" in first.words and "does not answer" in second.words


async def test_a_server_that_crashes_loses_nothing(
    own: OwnServer, url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    first, second = engine(), engine()
    await shared(url, first, second)
    async with perdure.connect(url, workflows=FLOWS) as client, load(client, ledger):
        for _ in range(2):
            await asyncio.to_thread(own.restart)
            await more(ledger, 20)
    assert "does not answer" in first.words and "does not answer" in second.words


async def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_made_twice(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with Proxy(url) as proxy:
        await shared(url, engine(proxy.url), engine(proxy.url))
        async with perdure.connect(url, workflows=FLOWS) as client, load(client, ledger):
            for number in range(1, 21):
                proxy.lose_commits = 1
                await until(lambda: proxy.commits_lost == number)  # noqa: B023
            proxy.delay = 0.05
            await more(ledger, 10)
            proxy.delay = 0.0
            for _ in range(3):
                proxy.refusing, proxy.refused = True, 0
                proxy.cut()
                await until(lambda: proxy.refused > 2)
                proxy.refusing = False
                await more(ledger, 10)


async def test_a_commit_that_arrives_after_the_shard_was_taken_over_is_refused(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with Proxy(url) as proxy:
        cut_off, heir = engine(proxy.url), engine()
        await shared(url, cut_off, heir)
        async with perdure.connect(url, workflows=FLOWS) as client, load(client, ledger):
            proxy.stand_still()
            await shared(url, heir)
            proxy.flow()
            await until(lambda: cut_off.refusals() > 0)
            await shared(url, cut_off, heir)


async def test_an_engine_can_be_sent_home_while_its_database_is_away(
    url: str, engine: StartEngine, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with Proxy(url) as proxy:
        leaving, heir = engine(proxy.url), engine()
        await shared(url, leaving, heir)
        async with perdure.connect(url, workflows=FLOWS) as client, load(client, ledger):
            proxy.refusing = True
            proxy.stand_still()
            await until(lambda: proxy.waiting >= 4)  # among them are commits, of which nobody will ever hear
            proxy.cut()

            leaving.terminate()

            assert await leaving.ended() == 0
