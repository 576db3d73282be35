"""Ordinary asyncio inside a flow: it works, it is durable, and its order is the same in every process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import perdure
from perdure import Context
from perdure.kernel.effects import Timer
from perdure.kernel.events import ReceiptArrived
from perdure.kernel.receipt import DONE

from .conftest import Stage, until
from .rig import SECOND, START, Rig, same_in_every_rebuild

ROOT = Path(__file__).parents[2]


async def echo(value: Any) -> Any:
    return value


async def fail(text: str) -> None:
    raise perdure.Fatal(text)


# ---- each of them, hot and rebuilt after every entry; the first ones in engines too -----------------------


@perdure.flow
async def gathers(ctx: Context) -> list[Any]:
    return list(await asyncio.gather(*(ctx.step("s", echo, n) for n in range(4))))


def test_gather() -> None:
    rig = same_in_every_rebuild(gathers, drive=Rig.run)

    assert rig.result == [0, 1, 2, 3]
    assert rig.calls == ["&1/s", "&2/s", "&3/s", "&4/s"]


@perdure.flow
async def groups(ctx: Context) -> list[Any]:
    async def named(n: int) -> Any:
        first = await ctx.step("s", echo, n)
        return first + await ctx.step("s", echo, 10)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(named(n)) for n in range(3)]
    return [task.result() for task in tasks]


def test_task_group() -> None:
    assert same_in_every_rebuild(groups, drive=Rig.run).result == [10, 11, 12]


def test_a_task_group_gives_an_exception_group_and_cancels_the_others() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        found: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                for n in range(40):
                    group.create_task(sleeper(ctx, n))
                group.create_task(ctx.step("bad", fail, "boom"))
        except* perdure.StepFailed as failed:
            found += [str(error) for error in failed.exceptions]
        return found

    async def sleeper(ctx: Context, n: int) -> None:
        try:
            await ctx.sleep("long", 1000)
        finally:
            await ctx.step("clean up", echo, n)

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == ["step 'bad' was tried once; last error: Fatal: boom"]
    assert sorted(rig.calls[1:]) == sorted(f"&{n}/clean up" for n in range(1, 41))


@perdure.flow
async def times_out(ctx: Context, unit: float) -> list[tuple[str, float]]:
    """What was cut, and when."""
    found: list[tuple[str, float]] = []

    def note(name: str) -> None:
        found.append((name, asyncio.get_running_loop().time()))

    try:
        async with asyncio.timeout(5 * unit):
            await ctx.sleep("long", 100 * unit)
    except TimeoutError:
        note("outer")
    try:
        async with asyncio.timeout(50 * unit):
            try:
                async with asyncio.timeout(5 * unit):
                    await ctx.receive("never")
            except TimeoutError:
                note("inner")
            async with asyncio.timeout(1000 * unit):
                await asyncio.sleep(100 * unit)
    except TimeoutError:
        note("both")
    async with asyncio.timeout(None), asyncio.timeout(10_000 * unit):
        await ctx.step("quick", echo, 1)
    return found


def test_timeout() -> None:
    rig = same_in_every_rebuild(times_out, 1.0, drive=Rig.run)

    assert rig.result == [("outer", 5), ("inner", 10), ("both", 55)]


async def test_timeout_in_an_engine(stage: Stage) -> None:
    found = await stage.result_of(times_out, 0.002)

    assert [name for name, _ in found] == ["outer", "inner", "both"]
    assert all(at >= least for (_, at), least in zip(found, (0.010, 0.020, 0.110), strict=True)), found


def test_wait_for() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        found = [await asyncio.wait_for(ctx.step("quick", echo, 1), 5)]
        try:
            await asyncio.wait_for(ctx.receive("never"), 5)
        except TimeoutError:
            found.append("late")
        return found

    assert same_in_every_rebuild(flow, drive=Rig.run).result == [1, "late"]


@perdure.flow
async def waits_for_the_first(ctx: Context, unit: float) -> list[Any]:
    fast = asyncio.create_task(ctx.sleep("fast", unit), name="fast")
    slow = asyncio.create_task(ctx.sleep("slow", 2 * unit), name="slow")
    done, pending = await asyncio.wait({fast, slow}, return_when=asyncio.FIRST_COMPLETED)
    first = [task.get_name() for task in done]
    await asyncio.wait(pending)
    return [first, [task.get_name() for task in pending], slow.done()]


def test_wait_first_completed() -> None:
    rig = same_in_every_rebuild(waits_for_the_first, 1.0, drive=Rig.run)

    assert rig.result == [["fast"], ["slow"], True]


def test_as_completed() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def later(seconds: int) -> int:
            await ctx.sleep("s", seconds)
            return seconds

        found: list[Any] = [await task for task in asyncio.as_completed([later(3), later(1), later(2)])]
        tasks = [asyncio.create_task(later(n)) for n in (3, 1, 2)]
        found += [await task for task in asyncio.as_completed(tasks)]
        try:
            for task in asyncio.as_completed([later(9), later(1)], timeout=5):
                found.append(await task)
        except TimeoutError:
            found.append("late")
            await asyncio.sleep(10)
        return found

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == [1, 2, 3, 1, 2, 3, 1, "late"]
    assert rig.entries[0][2].open[0].location == "&1/s"
    assert [effect.due for effect in rig.entries[0][2].open] == [START + n * SECOND for n in (3, 1, 2)]  # type: ignore[union-attr]


def test_as_completed_takes_only_what_has_an_order() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            for task in asyncio.as_completed({ctx.step("s", echo, n) for n in range(3)}):
                await task
        except perdure.BadCall as error:
            return str(error)
        return "not refused"

    assert "needs a list" in Rig(flow).result


@perdure.flow
async def queues(ctx: Context) -> list[Any]:
    queue: asyncio.Queue[int | None] = asyncio.Queue(maxsize=2)
    found = []

    async def produce() -> None:
        for n in range(5):
            await queue.put(await ctx.step("make", echo, n))
        await queue.put(None)

    async def consume() -> None:
        while (item := await queue.get()) is not None:
            found.append(await ctx.step("use", echo, item * 10))

    await asyncio.gather(produce(), consume())
    return found


def test_queue_between_tasks() -> None:
    assert same_in_every_rebuild(queues, drive=Rig.run).result == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("flow", "args", "result"),
    [
        (gathers, (), [0, 1, 2, 3]),
        (groups, (), [10, 11, 12]),
        (waits_for_the_first, (0.01,), [["fast"], ["slow"], True]),
        (queues, (), [0, 10, 20, 30, 40]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_ordinary_asyncio_in_an_engine(stage: Stage, flow: Any, args: tuple[Any, ...], result: list[Any]) -> None:
    assert await stage.result_of(flow, *args) == result


def test_lock_event_condition_semaphore_and_barrier() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        slots, barrier = asyncio.Semaphore(2), asyncio.Barrier(3)
        found: list[str] = []

        async def worker(n: int) -> None:
            async with slots:
                await ctx.step("work", echo, n)
            async with lock:
                found.append(f"locked {n}")
                await ctx.sleep("hold", 1)
            await barrier.wait()
            async with condition:
                await condition.wait_for(event.is_set)
            found.append(f"free {n}")

        async def opener() -> None:
            await ctx.sleep("open", 60)
            event.set()
            async with condition:
                condition.notify_all()

        await asyncio.gather(*(worker(n) for n in range(3)), opener())
        return found

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result[:3] == ["locked 0", "locked 1", "locked 2"]
    assert sorted(rig.result[3:]) == ["free 0", "free 1", "free 2"]


def test_shield() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        inner: asyncio.Task[Any] = asyncio.create_task(ctx.step("safe", echo, 7))
        try:
            async with asyncio.timeout(1):
                await asyncio.shield(inner)
        except TimeoutError:
            pass
        return ["cut", await inner]

    def act(rig: Rig) -> Any:
        rig.pass_time(1)
        assert rig.locations == ["&1/safe"]
        return rig.run()

    assert same_in_every_rebuild(flow, drive=act).result == ["cut", 7]


def test_async_generators_and_async_with() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        found: list[Any] = []

        async def numbers() -> AsyncIterator[int]:
            for n in range(3):
                yield await ctx.step("n", echo, n)

        @asynccontextmanager
        async def room() -> AsyncIterator[str]:
            await ctx.step("enter", echo, None)
            try:
                yield "room"
            finally:
                await ctx.step("leave", echo, None)

        async for n in numbers():
            found.append(n)
        async for _ in numbers():
            break
        async with room() as name:
            found.append(name)
        found += [n async for n in numbers()]
        return found

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == [0, 1, 2, "room", 0, 1, 2]
    assert rig.calls[4:6] == ["enter", "leave"]


def test_context_variables_belong_to_the_flow_and_its_tasks() -> None:
    variable = contextvars.ContextVar("variable", default="outside")

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        found = [variable.get()]
        variable.set("flow")

        async def task() -> None:
            found.append(variable.get())
            variable.set("task")
            await ctx.step("s", echo, None)
            found.append(variable.get())

        await asyncio.gather(task(), task())
        found.append(variable.get())
        fresh = contextvars.Context()
        await asyncio.create_task(task(), context=fresh)
        return found

    variable.set("engine")
    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == ["outside", "flow", "flow", "task", "task", "flow", "outside", "task"]
    assert rig.calls == ["&1/s", "&2/s", "&3/s"]


def test_a_flow_that_catches_everything_never_catches_the_engine() -> None:
    caught: list[str] = []

    @perdure.flow
    async def flow(ctx: Context) -> str:
        for n in range(3):
            try:
                try:
                    await ctx.step("s", echo, n)
                finally:
                    await ctx.step("finally", echo, n)
            except Exception as error:
                caught.append(repr(error))
        return "end"

    assert same_in_every_rebuild(flow, drive=Rig.run).result == "end"
    assert caught == []


# ---- order -----------------------------------------------------------------------------------------------

ORDER = """
import asyncio, sys
sys.path[:0] = [{root!r}, {src!r}]
import perdure
from tests.flows.rig import Rig

junk = [bytearray(n * 37 % 501) for n in range({junk})]  # other addresses in each process

async def echo(value):
    return value

@perdure.flow
async def flow(ctx):
    found = []
    async def later(n):
        await ctx.sleep("s", 1 + n % 3)
        found.append(n)
        return n
    tasks = [asyncio.create_task(later(n), name=str(n)) for n in range(23)]
    done, _ = await asyncio.wait(tasks)
    found += [task.get_name() for task in done]
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(9)]
    numbers = {{future: n for n, future in enumerate(futures)}}
    for future in futures:
        future.set_result(None)
    done, _ = await asyncio.wait(futures)
    found += [numbers[future] for future in done]
    async def sleeper(n):
        try:
            await ctx.sleep("long", 1000)
        finally:
            found.append(f"cancelled {{n}}")
            await ctx.step("clean up", echo, n)
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(17):
                group.create_task(sleeper(n))
            await asyncio.sleep(0)
            raise KeyError
    except* KeyError:
        pass
    found += [await task for task in asyncio.as_completed([later(n) for n in range(11)])]
    return found

rig = Rig(flow)
print(rig.run(), rig.calls, [e.location for _, _, d in rig.entries for e in d.open])
"""


def test_the_order_of_tasks_in_sets_is_equal_in_every_process() -> None:
    told = set()
    for junk in (0, 1000, 33_333):
        code = ORDER.format(root=str(ROOT), src=os.path.dirname(os.path.dirname(perdure.__file__)), junk=junk)
        environment = {**os.environ, "PYTHONHASHSEED": str(junk + 1)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        told.add(done.stdout)

    assert len(told) == 1
    assert "cancelled 16" in told.pop()


def test_the_order_of_tasks_in_sets_does_not_depend_on_what_a_pruned_loop_did_before() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def body(ctx: Context, n: int) -> perdure.Continue[int] | perdure.Break[list[Any]]:
            async def one(m: int) -> Any:
                return await ctx.step("s", echo, m)

            tasks = [asyncio.create_task(one(m), name=str(m)) for m in range(5)]
            done, _ = await asyncio.wait(tasks)
            order = [await ctx.step(f"after {task.get_name()}", echo, task.get_name()) for task in done]
            return perdure.Continue(n + 1) if n < 30 else perdure.Break(order)

        return await ctx.loop("loop", body, 0, keep=1, prune_every=1)

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.snapshots > 20
    assert rig.replayed_max < 100


# ---- time, dice ------------------------------------------------------------------------------------------


@perdure.flow
async def rolls(ctx: Context, unit: float) -> list[Any]:
    """Each roll is the name of a step too: another one would be a divergence."""
    found: list[Any] = []
    for n in range(3):
        rolled = [ctx.now(), ctx.random.randrange(10**9), ctx.uuid(), asyncio.get_running_loop().time()]
        await ctx.step(f"note {rolled}", echo, n)
        await asyncio.sleep(unit)
        found += rolled
    return found


def test_time_and_random_are_equal_on_replay() -> None:
    result = same_in_every_rebuild(rolls, 1.0, drive=Rig.run).result

    assert len(set(map(str, result))) == len(result)
    assert result[2].version == 4


async def test_time_and_random_are_equal_in_an_engine(stage: Stage) -> None:
    async with stage.open(rolls) as engine:
        one, two = [await engine.start(rolls, 0.001) for _ in range(2)]
        found = [await one.result(60), await two.result(60)]
        steps = [line.location for line in await one.history() if "note" in (line.location or "")]

    dice = [{value for value in each if isinstance(value, UUID | int)} for each in found]
    assert not dice[0] & dice[1], "each instance rolls its own"
    assert steps == [f"note {found[0][n : n + 4]}" for n in (0, 4, 8)], "what the flow saw before the crash and after"


# ---- what does not work, and says so ---------------------------------------------------------------------


async def foreign_future() -> None:
    future: asyncio.Future[None] = asyncio.new_event_loop().create_future()
    await future


class Foreign:
    def __await__(self) -> Any:
        yield "something of trio"


async def foreign_awaitable() -> None:
    await Foreign()


async def in_thread() -> None:
    await asyncio.to_thread(print)


async def executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


async def socket() -> None:
    await asyncio.open_connection("localhost", 80)


async def process() -> None:
    await asyncio.create_subprocess_exec("true")


async def resolve() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


async def from_a_thread() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(print)


async def blocking_loop() -> None:
    asyncio.get_running_loop().run_forever()


@pytest.mark.parametrize(
    ("foreign", "call"),
    [
        (foreign_future, "awaiting _asyncio.Future of another event loop"),
        (foreign_awaitable, "awaiting builtins.str of another event loop"),
        (in_thread, "loop.run_in_executor()"),
        (executor, "loop.run_in_executor()"),
        (socket, "loop.create_connection()"),
        (process, "loop.subprocess_exec()"),
        (resolve, "loop.getaddrinfo()"),
        (from_a_thread, "loop.call_soon_threadsafe()"),
        (blocking_loop, "loop.run_forever()"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_foreign_awaitable_is_not_durable(stage: Stage, foreign: Any, call: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        await ctx.step("before", echo, 1)
        try:
            await foreign()
        except Exception:
            return "a broad except does not make it an answer"
        return "no error"

    line = r"test_asyncio\.py:\d+ needs a real event loop"
    message = rf"NotDurable: {re.escape(call)} at .*{line}.*move it into a step"
    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        with pytest.raises(perdure.InstanceFailed, match=message):
            await handle.result(60)


@pytest.mark.parametrize("foreign", [foreign_future, in_thread, socket])
def test_an_author_who_names_the_error_handles_it(foreign: Any) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await foreign()
        except perdure.NotDurable as error:
            return str(error)
        return "no error"

    rig = Rig(flow)

    assert rig.result.startswith(("loop.", "awaiting"))
    assert "move it into a step" in rig.result


def test_the_call_of_the_author_is_named_too() -> None:
    @perdure.flow
    async def flow(ctx: Context, number: int) -> None:
        await (socket, in_thread, process)[number]()

    for number, call in enumerate(("open_connection", "to_thread", "create_subprocess_exec")):
        assert f"; asyncio.{call}() called it: move it into a step" in Rig(flow, number).result


def test_a_future_of_a_thread_is_a_deadlock_not_a_hang() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await asyncio.wrap_future(concurrent.futures.Future())

    with pytest.raises(perdure.Deadlock, match=r"test_asyncio\.py:\d+"):
        Rig(flow)


async def test_waiting_for_nothing_is_reported_as_a_deadlock(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await asyncio.Event().wait()

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)

        assert await handle.status() == "stuck"
        assert "test_asyncio.py" in str(await handle.error())


async def test_a_flow_that_spins_is_stopped(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.flows.loop.TURNS_MAX", 1000)
    monkeypatch.setattr("perdure.flows.iterations.TURNS_MAX", 1000)

    @perdure.flow
    async def spin(ctx: Context) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    @perdure.flow
    async def spin_in_loop(ctx: Context) -> None:
        async def body(ctx: Context) -> None:
            pass

        await ctx.loop("loop", body)

    async with memory.open(spin, spin_in_loop) as engine:
        assert await (await engine.start(spin)).status() == "stuck"
        with pytest.raises(perdure.InstanceFailed, match="spins"):
            await (await engine.start(spin_in_loop)).result(60)


async def test_un_awaited_task_is_reported(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        async def background() -> None:
            await ctx.sleep("long", 60)

        task = asyncio.create_task(background(), name="forgotten")
        await ctx.step("main", echo, 1)
        assert not task.done()
        return "end"

    async with stage.open(flow) as engine:
        with pytest.raises(perdure.InstanceFailed, match=r"NotAwaited.*forgotten.*test_asyncio\.py"):
            await (await engine.start(flow)).result(60)


@perdure.flow
async def careless(ctx: Context) -> str:
    async def background() -> None:
        raise ValueError("boom")

    asyncio.create_task(background(), name="forgotten")  # noqa: RUF006
    await ctx.step("main", echo, 1)
    return "end"


async def test_a_task_that_failed_and_was_never_awaited_is_told_as_asyncio_does(
    memory: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The flow ends as it would in asyncio. Log, history and `why` name the task and its error."""
    async with memory.open(careless) as engine:
        handle = await engine.start(careless)

        assert await handle.result(60) == "end"
        last = (await handle.history())[-1]
        assert [(fact.name, fact.value) for fact in last.facts] == [
            ("flow/task-failed@1", {"task": "forgotten", "error": "ValueError", "message": "boom"})
        ]
        await until(lambda: "the task forgotten failed, and nothing awaited it: ValueError: boom" in caplog.text)


def test_a_lost_failure_is_told_alike_in_every_rebuild() -> None:
    rig = same_in_every_rebuild(careless, drive=Rig.run)

    assert rig.result == "end"
    assert [fact.value["task"] for fact in rig.entries[-1][2].announce] == ["forgotten"]


@pytest.mark.parametrize("name", ["gather", "group", "wait", "shield", "later", "cancelled", "race"])
def test_a_failure_that_is_asked_for_is_no_lost_one(name: str) -> None:
    async def boom(ctx: Context) -> None:
        await ctx.step.options(retries=0)("boom", fail, "boom")

    @perdure.flow
    async def flow(ctx: Context) -> str:
        match name:
            case "gather":
                with pytest.raises(perdure.StepFailed):
                    await asyncio.gather(boom(ctx), boom(ctx))
                await ctx.sleep("rest", 1)
            case "group":
                with pytest.raises(ExceptionGroup):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(boom(ctx))
                        group.create_task(boom(ctx))
            case "wait":
                done, _ = await asyncio.wait([asyncio.ensure_future(boom(ctx))])
                assert done.pop().exception() is not None
            case "shield":
                with pytest.raises(perdure.StepFailed):
                    await asyncio.shield(boom(ctx))
            case "later":
                task = asyncio.create_task(boom(ctx))
                await ctx.sleep("rest", 1)
                with pytest.raises(perdure.StepFailed):
                    await task
            case "cancelled":
                asyncio.create_task(ctx.sleep("rest", 60)).cancel()
            case _:
                await ctx.race("race", {"boom": boom, "sleep": lambda: ctx.sleep("rest", 1)})
        return "end"

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == "end"
    assert rig.entries[-1][2].announce == ()


def test_an_un_awaited_operation_is_reported_by_its_name() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        asyncio.create_task(ctx.step("mail", echo, 1))  # noqa: RUF006

    assert "still ran: &1 (step 'mail')" in Rig(flow).result


def test_a_cancelled_task_may_clean_up_before_the_flow_ends() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        async def careful() -> None:
            try:
                await ctx.sleep("long", 100)
            finally:
                await ctx.step("clean up", echo, 1)

        try:
            async with asyncio.timeout(1):
                await asyncio.gather(ctx.sleep("other", 100), careful())
        except TimeoutError:
            return "timeout"
        return "no timeout"

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == "timeout"
    assert rig.calls == ["&2/clean up"]


def test_a_task_without_a_name_is_named_by_its_place() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        async def who() -> str:
            task = asyncio.current_task()
            assert task is not None
            return task.get_name()

        return [await who(), *await asyncio.gather(who(), asyncio.create_task(who()))]

    assert [Rig(flow).result for _ in range(2)] == [["flow", "&2", "&1"]] * 2


def test_nothing_runs_on_after_the_flow_has_returned() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        async def background() -> None:
            await ctx.step("s", echo, 1)
            await ctx.step("too late", echo, 2)

        task = asyncio.create_task(background())
        await ctx.step("main", echo, 3)
        task.cancel()
        return "end"

    def drive(rig: Rig) -> Any:
        rig.answer("main")
        return rig.result

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == "end"
    assert rig.calls == ["main"]


def test_deep_nesting() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        async def level(n: int) -> int:
            if n == 0:
                return int(await ctx.step("leaf", echo, 1))
            results = await ctx.join("j", {"a": lambda: level(n - 1)})
            _, value = await ctx.race("r", {"b": lambda: in_loop(n, results["a"])})
            return int(value)

        async def in_loop(n: int, value: int) -> int:
            async def body(ctx: Context, i: int) -> perdure.Continue[int] | perdure.Break[int]:
                got = await asyncio.gather(ctx.step("x", echo, value))
                return perdure.Break(got[0] + 1) if i else perdure.Continue(1)

            value_after: int = await ctx.loop("l", body, 0)
            return value_after

        return await level(12)

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == 13
    assert "/".join(["j/a"] * 12) + "/leaf" in rig.calls


# ---- the loop's own time ---------------------------------------------------------------------------------


@perdure.flow
async def rings(ctx: Context) -> list[bool]:
    """Whether each alarm rings at its time or after it."""
    loop, punctual = asyncio.get_running_loop(), []
    for when in (0.1 + 0.2, 1.1 + 2.2, 1e7 + 0.1, 1e9 + 0.7):
        rung = asyncio.Event()
        loop.call_at(when, rung.set)
        await rung.wait()
        punctual.append(loop.time() >= when)
    return punctual


def test_an_alarm_never_rings_early() -> None:
    assert same_in_every_rebuild(rings, drive=Rig.run).result == [True] * 4


def test_an_alarm_that_rang_before_the_clock_was_set_back_rang_at_its_time() -> None:
    rig = Rig(rings)
    for _ in range(4):
        ((intent, timer),) = rig.open.items()
        assert isinstance(timer, Timer)
        rig.now = timer.due - 60 * SECOND
        rig.deliver(ReceiptArrived(intent, DONE))

    assert rig.result == [True] * 4


def test_the_loops_time_goes_on_when_the_clock_is_set_back() -> None:
    @perdure.flow
    async def ticks(ctx: Context) -> list[float]:
        times = []
        for _ in range(3):
            await ctx.receive("tick")
            times.append(asyncio.get_running_loop().time())
        return times

    rig = Rig(ticks)
    for by in (5, -3600, 5):
        rig.now += by * SECOND
        rig.send("tick")

    assert rig.result == [5.0, 5.0, 10.0]


def test_code_that_schedules_itself_again_and_again_is_let_go_of() -> None:
    """As anyio does it to deliver a cancellation."""
    turns = []

    @perdure.flow
    async def flow(ctx: Context) -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            turns.append(1)
            loop.call_soon(again)

        try:
            await ctx.receive("never")
        finally:
            again()

    rig = Rig(flow)
    rig.machine.dispose()

    assert turns == [1]
