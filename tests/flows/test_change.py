"""Change: a flow whose code no longer does what it did is found out before anything runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from click.testing import CliRunner, Result

import perdure
from perdure import Context, Divergence
from perdure.cli import cli
from perdure.kernel.receipt import Failure

from .conftest import Stage, becomes
from .rig import Rig

ran: list[str] = []


async def note(text: str) -> str:
    ran.append(text)
    return text


Body = Callable[[Any], Coroutine[Any, Any, Any]]


async def recorded(ctx: Context) -> str:
    first = await ctx.step("first", note, "first")
    second = await ctx.step("second", note, "second")
    await ctx.receive("go")
    return first + second


async def renamed(ctx: Context) -> str:
    first = await ctx.step("first", note, "first")
    second = await ctx.step("the second", note, "again")
    await ctx.receive("go")
    return first + second


async def reordered(ctx: Context) -> str:
    second = await ctx.step("second", note, "again")
    first = await ctx.step("first", note, "again")
    await ctx.receive("go")
    return first + second


async def removed(ctx: Context) -> str:
    first = await ctx.step("first", note, "again")
    await ctx.receive("go")
    return first


async def inserted(ctx: Context) -> str:
    first = await ctx.step("first", note, "again")
    await ctx.step("between", note, "between")
    second = await ctx.step("second", note, "again")
    await ctx.receive("go")
    return first + second


async def another_kind(ctx: Context) -> str:
    await ctx.step("first", note, "again")
    await ctx.sleep("second", 100)
    return "slept"


async def ends_too_early(ctx: Context) -> str:
    await ctx.step("first", note, "again")
    return "early"


async def undoes_now(ctx: Context) -> str:
    await ctx.step.options(undo=note)("first", note, "again")
    raise KeyError("the new code has a bug")


async def fails_now(ctx: Context) -> str:
    await ctx.step("first", note, "again")
    raise KeyError("the new code has a bug")


async def other_wait(ctx: Context) -> str:
    await ctx.step("first", note, "again")
    await ctx.step("second", note, "again")
    await ctx.receive("stop")
    return "stopped"


CHANGES: dict[str, tuple[Body, str, str]] = {
    "renamed": (renamed, "step second", "step the second"),
    "reordered": (reordered, "step first", "step second"),
    "removed": (removed, "step second", "receive go"),
    "inserted": (inserted, "step second", "step between"),
    "another kind": (another_kind, "step second", "sleep second"),
    "ends too early": (ends_too_early, "step second", "the end (completed)"),
    "fails now": (fails_now, "step second", "the end (failed: KeyError: 'the new code has a bug')"),
    "undoes now": (undoes_now, "step second", "undo first"),
    "other wait": (other_wait, "receive go", "receive stop"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_operation_makes_the_instance_stuck_before_anything_runs(disk: Stage, change: str) -> None:
    body, then, now = CHANGES[change]
    old, new = perdure.flow(name="f")(recorded), perdure.flow(name="f")(body)
    async with disk.open(old) as engine:
        handle = await engine.start(old, key="k")
        await becomes(handle, "waiting")
    ran.clear()

    async with disk.open(new, replay=False) as engine:
        handle = engine.handle(new, "k")
        await handle.send("go")
        assert await handle.status() == "stuck"
        error = await handle.error()
        assert isinstance(error, Failure) and error.type == "Divergence"
        assert f"recorded is {then}, but the code now asks for {now} at " in error.message
        assert "test_change.py:" in error.message
        assert ran == []
        with pytest.raises(perdure.InstanceStuck, match="Divergence"):
            await handle.result(60)

    async with disk.open(old, replay=False) as engine:
        handle = engine.handle(old, "k")
        await handle.retry()
        assert await handle.result(60) == "firstsecond"
        assert ran == []


async def test_the_error_names_the_line_of_the_current_operation(disk: Stage) -> None:
    old, new = perdure.flow(name="f")(recorded), perdure.flow(name="f")(inserted)
    async with disk.open(old) as engine:
        handle = await engine.start(old, key="k")
        await becomes(handle, "waiting")

    async with disk.open(new, replay=False) as engine:
        await engine.handle(new, "k").send("go")
        error = await engine.handle(new, "k").error()

    line = inserted.__code__.co_firstlineno + 2
    assert isinstance(error, Failure) and f"test_change.py:{line};" in error.message


async def test_a_step_in_flight_that_was_renamed_does_not_run(disk: Stage) -> None:
    begun = asyncio.Event()

    async def hang() -> str:
        begun.set()
        await asyncio.sleep(60)
        return "never"

    async def old_body(ctx: Context) -> str:
        return await ctx.step("charge", hang)

    async def new_body(ctx: Context) -> str:
        return await ctx.step("charge card", note, "charged twice")

    old, new = perdure.flow(name="f")(old_body), perdure.flow(name="f")(new_body)
    async with disk.open(old) as engine:
        await engine.start(old, key="k")
        await begun.wait()
        disk.crash()
    ran.clear()

    async with disk.open(new, replay=False) as engine:
        handle = engine.handle(new, "k")
        await becomes(handle, "stuck")

    assert ran == []


async def test_a_stuck_instance_keeps_its_messages_and_can_be_cancelled(disk: Stage) -> None:
    old, new = perdure.flow(name="f")(recorded), perdure.flow(name="f")(renamed)
    async with disk.open(old) as engine:
        for key in "ab":
            handle = await engine.start(old, key=key)
            await becomes(handle, "waiting")
    async with disk.open(new, replay=False) as engine:
        for key in "ab":
            await engine.handle(new, key).send("noise")
            await engine.handle(new, key).send("go")
        await engine.handle(new, "b").cancel("give up")
        with pytest.raises(perdure.InstanceCancelled, match="give up"):
            await engine.handle(new, "b").result(60)
        await engine.handle(new, "a").retry()
        assert await engine.handle(new, "a").status() == "stuck", "the code is still wrong"
    async with disk.open(old, replay=False) as engine:
        await engine.handle(old, "a").retry()
        assert await engine.handle(old, "a").result(60) == "firstsecond"


async def later(ctx: Context) -> str:
    await ctx.receive("begin")
    return await recorded(ctx)


async def later_renamed(ctx: Context) -> str:
    await ctx.receive("begin")
    return await renamed(ctx)


begun, begun_renamed = perdure.flow(name="f")(later), perdure.flow(name="f")(later_renamed)


async def test_a_replay_against_new_code_reports(disk: Stage) -> None:
    async with disk.open(begun) as engine:
        await engine.start(begun, key="early")
        late = await engine.start(begun, key="late")
        await late.send("begin")
        await becomes(late, "waiting")
        before = await late.history()
    ran.clear()

    async def replay(against: str) -> Result:
        arguments = ["replay", "--against", f"{__name__}:{against}", "--db", str(disk.url)]
        return await asyncio.to_thread(CliRunner().invoke, cli, arguments)

    same, other = await replay("begun"), await replay("begun_renamed")

    assert (same.exit_code, same.stdout) == (0, "2 instances replayed: 2 safe, 0 would be stuck\n")
    assert other.exit_code == 1
    assert "f/late: entry 3: recorded is step second, but the code now asks for step the second" in other.stdout
    assert f"test_change.py:{renamed.__code__.co_firstlineno + 2}" in other.stdout
    assert "2 instances replayed: 1 safe, 1 would be stuck" in other.stdout
    assert ran == [], "no step runs"
    async with perdure.connect(disk.url) as client:
        assert await client.handle("f", "late").history() == before, "nothing is written"


def diverges(old: Body, new: Body, drive: Callable[[Rig], Any]) -> bool:
    """Whether a replay of what the old code did finds the new code out."""
    before, after = perdure.flow(name="f")(old), perdure.flow(name="f")(new)
    rig = Rig(before)
    drive(rig)
    machine = after.machine("f/k", None)
    try:
        return any(after.differs(then, machine.deliver(event, moment)) for event, moment, then in rig.entries)
    finally:
        machine.dispose()


async def with_mail(ctx: Context) -> None:
    await ctx.step("hold", note, "x")
    await ctx.receive("a")
    await ctx.step("after", note, "x")


async def without_mail(ctx: Context) -> None:
    await ctx.step("hold", note, "x")
    await ctx.step("after", note, "x")


async def other_mail(ctx: Context) -> None:
    await ctx.step("hold", note, "x")
    await ctx.receive("a", "b")
    await ctx.step("after", note, "x")


async def joins(ctx: Context) -> None:
    await ctx.join("both", {"a": lambda: ctx.sleep("z", 1), "b": lambda: ctx.sleep("z", 2)})


async def races(ctx: Context) -> None:
    await ctx.race("both", {"a": lambda: ctx.sleep("z", 1), "b": lambda: ctx.sleep("z", 2)})


async def no_nap(ctx: Context) -> None:
    await ctx.step("hold", note, "x")


async def past_nap(ctx: Context) -> None:
    await ctx.sleep("nap", 0)
    await ctx.step("hold", note, "x")


async def sends(ctx: Context) -> None:
    ctx.send("other/k", "hello")
    await ctx.step("hold", note, "x")


async def sends_more(ctx: Context) -> None:
    ctx.send("other/k", "hello")
    ctx.send("other/k", "goodbye")
    await ctx.step("hold", note, "x")


def mail_first(rig: Rig) -> None:
    rig.send("a")
    rig.answer("hold")


@pytest.mark.parametrize(
    ("old", "new", "drive"),
    [
        (with_mail, without_mail, mail_first),
        (without_mail, with_mail, mail_first),
        (with_mail, other_mail, mail_first),
        (joins, races, lambda rig: None),
        (races, joins, lambda rig: None),
        (no_nap, past_nap, lambda rig: None),
        (past_nap, no_nap, lambda rig: None),
        (sends, sends_more, lambda rig: None),
        (sends_more, no_nap, lambda rig: None),
    ],
)
def test_an_operation_that_needed_no_effect_is_found_out_too(old: Body, new: Body, drive: Any) -> None:
    assert diverges(old, new, drive)
    assert not diverges(old, old, drive)


def test_changed_options_are_no_divergence() -> None:
    def body(**options: Any) -> Body:
        async def flow(ctx: Context) -> None:
            await ctx.step.options(**options)("s", note, "x")
            await ctx.sleep("z", options["timeout"])
            await ctx.receive("m", timeout=options["timeout"])

        return flow

    def drive(rig: Rig) -> None:
        rig.answer("s")
        rig.answer("z")

    assert not diverges(body(retries=1, timeout=5), body(retries=9, timeout=7, executor="thread"), drive)


def test_a_divergence_is_an_author_error_with_both_sides() -> None:
    error = Divergence("f/k", 3, "step a", "step b", "a", "flow.py:7", "Write:\n    more")

    assert isinstance(error, perdure.AuthorError)
    assert str(error).splitlines() == [
        "f/k, entry 3: recorded is step a, but the code now asks for step b at flow.py:7; nothing was run",
        "Write:",
        "    more",
    ]


async def test_a_changed_message_is_named_in_the_divergence(disk: Stage) -> None:
    def made(name: str) -> perdure.Flow[Any, Any]:
        async def body(ctx: Context) -> None:
            ctx.send("other/k", name)
            await ctx.receive("go")

        return perdure.flow(name="f")(body)

    old, new = made("hello"), made("goodbye")
    async with disk.open(old) as engine:
        await becomes(await engine.start(old, key="k"), "waiting")
    async with disk.open(new, replay=False) as engine:
        await engine.handle(new, "k").send("go")
        with pytest.raises(perdure.InstanceStuck, match=r"send hello to other/k.*send goodbye to other/k"):
            await engine.handle(new, "k").result(60)
