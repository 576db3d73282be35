"""Every dialect on two engine processes that share four shards: what one is told, the other runs too."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.app.ours import load_playbook
from perdure.processes import (
    Activate,
    Call,
    Complete,
    Process,
    Receive,
    SubProcess,
    Task,
    python,
    result,
    service,
    start,
)
from tests.fleet import dialects
from tests.fleet.dialects import LONG
from tests.fleet.leases import owners
from tests.fleet.processes import Process as EngineProcess
from tests.fleet.processes import until
from tests.postgres import OwnServer

KEYS = [f"k-{n}" for n in range(12)]
ANN = perdure.Actor("ann", roles=["editor"])


class OtherEngine(EngineProcess):
    ready = "ready\n"


@pytest.fixture(scope="module")
def shared(own: OwnServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database with four shards, on which another engine runs."""
    with own.schema(shards=4) as url:
        other = OtherEngine(tmp_path_factory.mktemp("other") / "said", "tests.fleet.dialects", url)
        try:
            asyncio.run(until_ready(other))
            yield url
        finally:
            other.kill()
            print(other.words)


async def until_ready(process: EngineProcess) -> None:
    await until(lambda: process.is_ready)


@asynccontextmanager
async def fleet(url: str) -> AsyncIterator[perdure.Engine]:
    """This engine has two of the shards, and the other one has the rest."""
    async with dialects.engine(url) as engine:
        await until(lambda: is_shared(url, os.getpid()))
        yield engine


async def is_shared(url: str, *pids: int) -> bool:
    found = await owners(url)
    return found.keys() >= set(pids) and sorted(found.values()) == [2, 2]


async def on_all_shards(handles: list[Any]) -> None:
    ids = [(await handle.summary()).id for handle in handles]
    assert len({id >> 48 for id in ids}) == 4


async def tasks(engine: perdure.Engine, count: int) -> list[Any]:
    found: list[Any] = []

    async def there() -> bool:
        found[:] = await engine.tasks.list(by=ANN, candidate=True, limit=100)
        return len(found) == count

    await until(there)
    return found


async def results(handles: list[Any]) -> list[Any]:
    return await asyncio.gather(*(handle.result(60) for handle in handles))


async def test_flows(shared: str) -> None:
    async with fleet(shared) as engine:
        handles = [await engine.start(dialects.parent, key=key) for key in KEYS]
        answers = await asyncio.gather(*(handle.ask("ask", handle.key, timeout=60) for handle in handles))
        assert answers == [f"{key}!" for key in KEYS]
        assert await results(handles) == [6 * LONG] * 12
        await on_all_shards(handles)


async def test_processes(shared: str) -> None:
    inner = Process(
        "inner", version="1.0.0", steps=[Call("c", service("erp", "inner"), result="c"), Complete(result.c)]
    )
    process = Process(
        "buy",
        version="1.0.0",
        tasks=[Task("approve", roles=["editor"])],
        steps=[
            Call("ask", service("erp", "outer"), result="asked"),
            Call("long", python("tests.fleet.dialects:stretched"), {"text": start.text}, result="long"),
            Activate("approve"),
            Receive("m", "go", result="m"),
            SubProcess("kid", "inner", result="kid"),
            Complete([result.asked, result.long, result.m, result.kid]),
        ],
    )
    async with fleet(shared) as engine:
        await engine.processes.put(inner)
        await engine.processes.put(process)
        handles = [await engine.start("buy", key=key, text="y") for key in KEYS]
        for task in await tasks(engine, 12):
            await engine.tasks.complete(task.id, by=ANN)
        await asyncio.gather(*(handle.send("go", handle.key) for handle in handles))
        assert await results(handles) == [["outer done", "y" * LONG, key, "inner done"] for key in KEYS]
        await on_all_shards(handles)


BOOK = f"""
apiVersion: perdure/v1
kind: Playbook
metadata: {{name: stock}}
keychain: [{{name: k, map: {{word: word}}}}]
executor: {{spec: {{ctx: {{go: {{init: false}}}}}}}}
workflow:
  - step: a
    tool:
      - {{name: big, kind: python, code: "result = ['x' * 100] * {LONG // 100}"}}
      - {{name: told, kind: shell, argv: [echo, "{{{{ keychain.k.word }}}}"]}}
    next: b
  - step: b
    spec:
      policy:
        admit: {{rules: [{{when: ctx.go, then: {{allow: true}}}}, {{else: {{then: {{allow: false}}}}}}]}}
    tool: {{kind: noop, result: "{{{{ a }}}}"}}
"""


async def test_playbooks(shared: str) -> None:
    async with fleet(shared) as engine:
        await engine.playbooks.put(load_playbook(BOOK))
        handles = [await engine.start("stock", key=key) for key in KEYS]
        for handle in handles:
            assert await handle.ask("ctx", {"set": {"go": True}}, timeout=60) == {"ctx_version": 1}
        assert await results(handles) == ["<secret word>"] * 12
        await on_all_shards(handles)


async def test_graphs(shared: str) -> None:
    async with fleet(shared) as engine:
        handles = [await engine.start(dialects.desk, key=key) for key in KEYS]
        for task in await tasks(engine, 12):
            await engine.tasks.complete(task.id, {"outcome": "approve"}, by=ANN)
        assert await results(handles) == [f"published {[LONG, 1]}"] * 12
        await on_all_shards(handles)


async def test_cells(shared: str) -> None:
    async with fleet(shared) as engine:
        for key in KEYS:
            await engine.send(dialects.Ordered(key))
        handles = [engine.handle(dialects.order, key) for key in KEYS]

        async def have_been_charged() -> bool:
            heads = await engine.instances(workflow=dialects.order, status="completed")
            return {head.key for head in heads} == set(KEYS)

        await until(have_been_charged)
        assert [await handle.read("charged") for handle in handles] == [LONG] * 12


async def test_an_agent_whose_engine_is_killed_between_two_tools_goes_on_elsewhere(
    own: OwnServer, tmp_path: Path
) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    ledger.touch()

    def lines() -> list[list[str]]:
        return [line.split() for line in ledger.read_text().splitlines()]

    with own.schema(shards=4) as url:
        victim, heir = (OtherEngine(tmp_path / f"said{n}", "tests.fleet.dialects", url) for n in range(2))
        try:
            await until(lambda: victim.is_ready and heir.is_ready)
            await until(lambda: is_shared(url, victim.pid, heir.pid))
            async with perdure.connect(url, workflows=[dialects.talk]) as client:
                handles = [await client.start(dialects.talk, [str(ledger), str(gate)], key=key) for key in KEYS]
                await until(lambda: len({line[1] for line in lines() if line[0] == "hold"}) == 12)
                await on_all_shards(handles)
                victim.kill()
                gate.touch()
                assert await results(handles) == [["thought 1", "thought 2"]] * 12
        finally:
            victim.kill()
            heir.kill()
            print(victim.words, heir.words)
    assert len({(word, instance, key) for word, instance, key, _ in lines()}) == 5 * 12, "each has one key"
    assert any(pid == str(victim.pid) for *_, pid in lines()), "the victim ran nothing"
