"""Sentences of the acceptance list that need an engine: crashes around a call, families, ends, several engines."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.testing
from perdure.kernel.events import ReceiptArrived
from perdure.kernel.receipt import Receipt
from perdure.processes import (
    Activate,
    Call,
    Complete,
    ContinueWith,
    Parallel,
    Process,
    Receive,
    Request,
    Set,
    SetReference,
    SubProcess,
    Task,
    Timer,
    TransportError,
    error,
    queue,
    result,
    service,
    start,
    state,
    transport,
)
from tests.processes import shop
from tests.proxy import Proxy

ANN = perdure.Actor("ann", ["manager"])
Open = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    else:
        yield ":memory:" if request.param == "memory" else str(tmp_path / "p.db")


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that outlives its engine."""
    yield request.getfixturevalue("postgres") if request.param == "postgres" else str(tmp_path / "p.db")


def small(*steps: Any, name: str = "small", **fields: Any) -> Process:
    return Process(name, version="1.0.0", steps=list(steps), **fields)


async def until(condition: Any) -> Any:
    async with asyncio.timeout(30):
        while not (found := await condition()):  # noqa: ASYNC110  # it is in the database
            await asyncio.sleep(0.01)
        return found


class Slow:
    """A transport whose first call never answers."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.called = asyncio.Event()

        @transport("erp")
        async def erp(request: Request) -> str:
            self.keys.append(request.idempotency_key)
            self.called.set()
            if len(self.keys) == 1:
                await asyncio.Event().wait()
            return "answered"

        self.handler = erp


# ---- calls and crashes ---------------------------------------------------------------------------------------------


async def test_a_call_is_journaled_before_it_is_sent(url: str):
    seen: list[list[str]] = []
    engines: list[perdure.Client] = []

    @transport("erp")
    async def erp(request: Request) -> None:
        handle = engines[0].handle("small", "a")
        seen.append([open.location for open in await handle.waiting()])

    process = small(Call("first", service("erp", "x")), Call("second", service("erp", "x")))
    async with perdure.open(url, workflows=[process], handlers=[erp]) as engine:
        engines.append(engine)
        await (await engine.start(process, key="a")).result(timeout=60)

    assert seen == [["first"], ["second"]]


async def test_a_crash_between_send_and_receipt_repeats_under_the_same_key(kept: str):
    slow = Slow()
    process = small(Call("a", service("erp", "x"), result="a"), Complete(result.a))
    async with perdure.open(kept, workflows=[process], handlers=[slow.handler], drain=0) as engine:
        await engine.start(process, key="a")
        await slow.called.wait()
    async with perdure.open(kept, workflows=[process], handlers=[slow.handler]) as engine:
        assert await engine.handle(process, "a").result(timeout=60) == "answered"

    assert len(slow.keys) == 2 and len(set(slow.keys)) == 1


async def test_a_once_call_in_doubt_is_unknown_and_not_repeated(kept: str):
    slow = Slow()
    process = small(Call("a", service("erp", "x"), once=True, on_unknown=[Complete(["in doubt", error.code])]))
    async with perdure.open(kept, workflows=[process], handlers=[slow.handler], drain=0) as engine:
        await engine.start(process, key="a")
        await slow.called.wait()
    async with perdure.open(kept, workflows=[process], handlers=[slow.handler]) as engine:
        assert (await engine.handle(process, "a").result(timeout=60))[0] == "in doubt"

    assert len(slow.keys) == 1


def test_a_pause_survives_restart():
    @transport("erp")
    async def erp(request: Request) -> str:
        if request.attempt == 1:
            raise TransportError("busy")
        return "fine"

    backoff = perdure.Backoff(base=20)
    process = small(Call("a", service("erp", "x"), result="a", backoff=backoff), Complete(result.a))
    with perdure.testing.World(process, handlers=[erp]) as world:
        handle = world.start(process, key="a")
        world.crash()
        assert [open.location for open in handle.waiting()] == ["a/backoff#1"]
        world.advance(timedelta(seconds=19))
        assert len(world.runs("a")) == 1
        world.crash()
        world.advance(timedelta(seconds=1))
        assert handle.result() == "fine"


async def test_a_late_reply_is_stale(url: str):
    slow = Slow()
    late = Call(
        "a", service("erp", "x"), retries=0, attempt_timeout=timedelta(seconds=0.2), on_timeout=[Receive("m", "go")]
    )
    process = small(late, Complete("in time"))
    async with perdure.open(url, workflows=[process], handlers=[slow.handler]) as engine:
        handle = await engine.start(process, key="a")
        await slow.called.wait()
        (call,) = await handle.waiting()
        await until(lambda: _waits_for(handle, "a/on_timeout/m"))
        entries = len(await handle.history())
        await engine._connection.put(handle._to(), ReceiptArrived(bytes.fromhex(call.intent), Receipt("ok", b"\xf6")))
        assert len(await handle.history()) == entries
        await handle.send("go")
        assert await handle.result(timeout=60) == "in time"


async def _waits_for(handle: perdure.Handle[Any], location: str) -> bool:
    return location in [open.location for open in await handle.waiting()]


# ---- references, families, ends ------------------------------------------------------------------------------------


async def test_reference_and_new_task_appear_together(url: str):
    process = small(SetReference("o-9"), Activate("approve"), tasks=[Task("approve", roles=["manager"])])
    async with perdure.open(url, workflows=[process]) as engine:
        handle = await engine.start(process, key="a")
        (task,) = await until(lambda: engine.tasks.list(reference="o-9"))
        assert [each.key for each in await engine.instances(reference="o-9")] == ["a"]
        assert len(await handle.history()) == 1, "one entry has both"
        await engine.tasks.complete(task.id, None, by=ANN)
        await handle.result(timeout=60)


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
async def test_a_child_without_waits_commits_with_its_parent(url: str):
    """On a server the name of the child is looked up first: its start is in the inbox, in the parent's transaction."""
    kid = small(Complete(start.n), name="kid")
    process = small(SubProcess("s", kid, {"n": 7}, result="s"), Complete(result.s))
    async with perdure.open(url, workflows=[process, kid]) as engine:
        before = engine.counts["commits"]
        handle = await engine.start(process, key="a")
        assert await handle.result(timeout=60) == 7
        assert engine.counts["commits"] == before + 1


async def test_a_late_child_is_stale(url: str):
    kid = small(Receive("m", "go"), name="kid")
    process = small(
        SubProcess("s", kid, timeout=timedelta(milliseconds=50), on_timeout=[Receive("w", "on")]), Complete("end")
    )
    async with perdure.open(url, workflows=[process, kid]) as engine:
        handle = await engine.start(process, key="a")
        await until(lambda: _waits_for(handle, "s/on_timeout/w"))
        child = engine.handle(kid, "a/s")
        await until(lambda: _ended(child))
        assert await child.status() == "cancelled"
        entries = len(await handle.history())
        await handle.send("on")
        assert await handle.result(timeout=60) == "end"
        assert len(await handle.history()) == entries + 1, "the answer of the child is no entry"


async def _ended(handle: perdure.Handle[Any]) -> bool:
    return (await handle.summary()).ended_at is not None


async def test_a_refused_continue_with_fails_its_step(url: str):
    after = small(Receive("m", "go"), name="after")
    process = small(ContinueWith("next", after, {"n": 2}, key="taken", on_failure=[Complete(["refused", error.code])]))
    async with perdure.open(url, workflows=[process, after]) as engine:
        await engine.start(after, n=1, key="taken")
        handle = await engine.start(process, key="a")
        assert (await handle.result(timeout=60))[0] == "refused"


def test_a_continue_with_whose_input_does_not_fit_fails_its_step_and_starts_nothing():
    after = small(Receive("m", "go"), name="after", input={"type": "object", "required": ["n"]})
    process = small(ContinueWith("next", after, {"m": 2}, key="b", on_failure=[Complete(error.message)]))
    with perdure.testing.World(process) as world:
        assert '"n" is a required property' in world.start(process, key="a").result()
        with pytest.raises(perdure.UnknownInstance):
            assert world.handle(after, "b").status


async def test_an_end_leaves_nothing_open(tmp_path: Path):
    kid = small(Receive("m", "go"), name="kid")
    slow = Slow()
    process = small(
        Parallel(
            "p",
            {
                "task": [Activate("approve")],
                "timer": [Timer("t", after=timedelta(days=1))],
                "message": [Receive("m", "never", timeout=timedelta(days=1))],
                "child": [SubProcess("s", kid, timeout=timedelta(days=1))],
                "queue": [Call("q", queue("nobody", "tests.processes.shop:reserve"))],
                "call": [Call("c", service("erp", "x"))],
                "end": [Receive("e", "end"), Complete("over")],
            },
        ),
        tasks=[Task("approve", roles=["manager"], expire=timedelta(days=9))],
    )
    database = str(tmp_path / "p.db")
    async with perdure.open(database, workflows=[process, kid], handlers=[slow.handler]) as engine:
        handle = await engine.start(process, key="a")
        await slow.called.wait()
        await until(engine.tasks.list)
        await handle.send("end")
        assert await handle.result(timeout=60) == "over"
        await until(lambda: _ended(engine.handle(kid, "a/p/child/s")))
        assert await handle.waiting() == [] and await engine.tasks.list() == []
        assert await engine.queries.check() == []
    rows = sqlite3.connect(database)
    assert [rows.execute(f"SELECT count(*) FROM {name}").fetchone() for name in ("open_work", "jobs")] == [(0,), (0,)]
    assert set(rows.execute("SELECT status FROM instances WHERE workflow <> 'perdure.definition'")) == {
        ("completed",),
        ("cancelled",),
    }


# ---- several engines, rebuilt state, pictures ----------------------------------------------------------------------


async def test_two_engines_never_run_a_slice_twice(postgres: str):
    calls: Counter[tuple[str, str]] = Counter()

    @transport("erp")
    async def erp(request: Request) -> str:
        calls[request.instance, request.command] += 1
        return request.command

    process = small(*(Call(name, service("erp", name)) for name in "abc"), Receive("m", "go"), Complete("end"))
    async with (
        perdure.open(postgres, workflows=[process], handlers=[erp]) as one,
        perdure.open(postgres, workflows=[process], handlers=[erp]) as two,
    ):
        handles = [await (one, two)[number % 2].start(process, key=str(number)) for number in range(24)]
        await asyncio.gather(*((two, one)[n % 2].handle(process, str(n)).send("go", id="once") for n in range(24)))
        assert [await handle.result(timeout=60) for handle in handles] == ["end"] * 24
        assert {len(await handle.history()) for handle in handles} == {5}, "start, three calls, one message"

    assert len(calls) == 72 and set(calls.values()) == {1}


async def test_a_lost_notification_delays_and_never_loses(postgres: str):
    """A client and an engine that hear no hint: start, task, message and result are found by polls."""
    process = small(
        Activate("approve"),
        Receive("m", "go", result="m"),
        Complete(result.m),
        tasks=[Task("approve", roles=["manager"])],
    )
    async with Proxy(postgres) as proxy:
        proxy.deaf = True
        async with (
            perdure.open(proxy.url, workflows=[process]) as engine,
            perdure.connect(proxy.url, workflows=[process]) as client,
        ):
            handles = [await client.start(process, key=str(number)) for number in range(5)]
            found = await until(lambda: all_tasks(client, 5))
            await asyncio.gather(*(client.tasks.complete(task.id, None, by=ANN) for task in found))
            await asyncio.gather(*(handle.send("go", int(handle.key), id="once") for handle in handles))
            assert [await handle.result(timeout=60) for handle in handles] == list(range(5))
            assert {len(await handle.history()) for handle in handles} == {3}, "start, task, message"
            assert await engine.queries.check() == []
        assert proxy.deafened >= 1, "who listens hears another channel"


async def all_tasks(client: perdure.Client, count: int) -> list[Any]:
    found = list(await client.tasks.list(limit=100))
    return found if len(found) == count else []


@pytest.mark.parametrize("cache", [4096, 0], ids=["cached", "evicted"])
def test_snapshot_plus_tail_equals_full_replay_after_every_entry(cache: int):
    """Also of live and rebuilt state: the crash test compares both after every commit."""
    perdure.testing.crash_test(
        small(
            Call("a", service("erp", "x"), result="a"),
            Parallel("p", {"t": [Timer("t", after=timedelta(hours=1))], "m": [Receive("m", "go", result="m")]}),
            Complete([result.a, result.m]),
        ),
        key="a",
        handlers=[_erp],
        messages=[("go", 5)],
        pairs=10,
        random=3,
        cache=cache,
    )


@transport("erp")
async def _erp(request: Request) -> str:
    return request.command


def test_drawings_are_byte_equal_in_every_process():
    code = "from tests.processes.shop import purchase; print(purchase.draw({0!r}, {1!r}), end='')"
    for format, direction in (("svg", "LR"), ("svg", "TB"), ("mermaid", "LR"), ("json", "TB")):
        env = {**os.environ, "PYTHONHASHSEED": "77"}
        arguments = [sys.executable, "-c", code.format(format, direction)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=env)
        assert done.stdout == shop.purchase.draw(format, direction)  # type: ignore[arg-type]


# ---- in a world ----------------------------------------------------------------------------------------------------


def test_people_do_in_a_world_what_they_do_in_an_engine():
    branches = {name: [Receive("r", "go", result=name)] for name in "ab"}
    process = small(
        Parallel("p", branches), Set("both", [result.a, result.b]), Receive("last", "go"), Complete(state.both)
    )
    with perdure.testing.World(process) as world:
        handle = world.start(process, key="a")
        (bound,) = [each.intent for each in handle.waiting() if each.location == "p/b/r"]
        with pytest.raises(perdure.VersionConflict):
            handle.send("go", 0, if_entry=99)
        handle.send("go", 1, intent=bound, by="ann")
        handle.send("go", 2, intent=bound)  # it is over
        handle.send("go", 3, if_entry=handle.history()[-1].seq)
        before, after = [line.seq for line in handle.history()][-2:]

        assert (world.state(process, "a", at=before), world.state("small", "a")) == ({}, {"both": [3, 1]})
        assert handle.draw("svg", at=before) != handle.draw() == handle.draw(at=after)
        handle.cancel("enough", by="ann")
        assert (handle.status, handle.history()[-1].event) == ("cancelled", "cancel")


def test_a_message_that_an_instance_cannot_keep_is_refused_in_a_world_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.processes.machine.MESSAGES_MAX", 2)
    process = small(Receive("first", "go"), Receive("second", "more"))
    with perdure.testing.World(process) as world:
        handle = world.start(process, key="a")
        for number in range(2):
            handle.send("more", number)
        with pytest.raises(perdure.CallerError, match="keeps 2 messages that nothing has received"):
            handle.send("more", 3)
        handle.send("go")
        assert handle.status == "completed"
