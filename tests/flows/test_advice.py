"""The advice of a divergence: it says what has happened to which operation, and whoever follows it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest

import perdure
from perdure import Break, Context, Continue, Divergence
from perdure.flows.names import Names
from perdure.kernel.difference import Difference
from perdure.kernel.replay import divergence

from .conftest import Stage, becomes
from .rig import Rig, changed

Body = Callable[[Context], Awaitable[Any]]
Drive = Callable[[Rig], Any]


async def note(text: str) -> str:
    return text


async def fail() -> None:
    raise ValueError("no")


@perdure.step
async def pack(what: str) -> str:
    return what


def after(entries: int) -> Drive:
    return lambda rig: rig.run_some(entries)


def diverges(old: Any, new: Any, drive: Drive | None = None) -> Divergence:
    """What a replay finds when an instance that the old code has driven so far meets the new code."""
    rig = Rig(perdure.flow(name="f")(old))
    (drive or after(3))(rig)
    flow = perdure.flow(name="f")(new)
    machine = flow.machine("f/k", None)
    for number, (event, moment, recorded) in enumerate(rig.entries):
        current = machine.deliver(event, msgspec.structs.replace(moment, recorded=recorded))
        if flow.differs(recorded, current):
            later = tuple(decision for _, _, decision in rig.entries[number + 1 :])
            return divergence("f/k", moment.number, flow, machine, Difference(recorded, current, later))
    raise AssertionError("the new code does what the old one did")


def in_source(line: str, body: Any) -> bool:
    """Whether a line of an advice stands in the source of a function; `...` may be anything."""
    pattern = re.escape(line.partition("  #")[0].strip()).replace(re.escape("..."), ".*")
    return any(re.search(pattern, each) for each in inspect.getsource(body).splitlines())


# ---- the flows: as it was, as it is now, and as the advice has it ------------------------------------------


async def three(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def inserted(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.step("notify", note, "notify")
    found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def inserted_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    if ctx.version("notify", 2) >= 2:
        await ctx.step("notify", note, "notify")
    found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def removed(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def removed_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.removed("pack", "step")
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def only_the_last(ctx: Context) -> list[str]:
    return [await ctx.step("ship", note, "ship")]


async def only_the_last_mended(ctx: Context) -> list[str]:
    await ctx.removed("charge", "step")
    await ctx.removed("pack", "step")
    return [await ctx.step("ship", note, "ship")]


async def ends(ctx: Context) -> list[str]:
    return [await ctx.step("charge", note, "charge")]


async def ends_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.removed("pack", "step")
    await ctx.removed("ship", "step")
    return found


async def renamed(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    found.append(await ctx.step("wrap up", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def renamed_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    wrapped = await ctx.step("wrap up" if ctx.version("wrap up", 2) >= 2 else "pack", note, "pack")
    found.append(wrapped)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def replaced_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    if ctx.version("wrap up", 2) >= 2:
        await ctx.step("wrap up", note, "pack")
    else:
        await ctx.removed("pack", "step")
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def reordered(ctx: Context) -> list[str]:
    found = [await ctx.step("pack", note, "pack")]
    found.append(await ctx.step("charge", note, "charge"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def reordered_mended(ctx: Context) -> list[str]:
    if ctx.version("pack", 2) >= 2:
        found = [await ctx.step("pack", note, "pack"), await ctx.step("charge", note, "charge")]
    else:
        found = [await ctx.step("charge", note, "charge"), await ctx.step("pack", note, "pack")]
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def slept_instead(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.sleep("pack", 10)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def slept_instead_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    if ctx.version("pack", 2) >= 2:
        await ctx.sleep("pack", 10)
    else:
        await ctx.removed("pack", "step")
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def with_checkpoint(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    async with ctx.checkpoint("packing"):
        found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def with_checkpoint_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    async with ctx.checkpoint("packing") if ctx.version("packing", 2) >= 2 else contextlib.nullcontext():
        found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def without_checkpoint_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.removed("packing", "checkpoint")
    found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def into_block(ctx: Context) -> list[str]:
    async def block(ctx: Context) -> None:
        found.append(await ctx.step("pack", note, "pack"))

    found = [await ctx.step("charge", note, "charge")]
    await ctx.attempt("packing", block)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def into_block_mended(ctx: Context) -> list[str]:
    async def block(ctx: Context) -> None:
        found.append(await ctx.step("pack", note, "pack"))

    found = [await ctx.step("charge", note, "charge")]
    if ctx.version("pack", 2) >= 2:
        await ctx.attempt("packing", block)
    else:
        found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def with_join(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.join("both", {"a": lambda: ctx.step("x", note, "x"), "b": lambda: ctx.step("y", note, "y")})
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def without_join_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.removed("both", "join")
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def with_timer(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await asyncio.sleep(3)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def without_timer_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    if ctx.version("timer", 2) < 2:
        await asyncio.sleep(3)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def with_send(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    ctx.send("other/k", "hello", 1)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def with_send_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    if ctx.version("hello", 2) >= 2:
        ctx.send("other/k", "hello", 1)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def without_send_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    if ctx.version("hello", 2) < 2:
        ctx.send("other/k", "hello", 1)
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def without_version_mended(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    await ctx.removed("notify", "version")
    await ctx.removed("notify", "step")
    found.append(await ctx.step("pack", note, "pack"))
    found.append(await ctx.step("ship", note, "ship"))
    return found


async def gathered(ctx: Context) -> list[str]:
    return list(await asyncio.gather(ctx.step("x", note, "x"), ctx.step("y", note, "y"), ctx.step("z", note, "z")))


async def gathered_without(ctx: Context) -> list[str]:
    return list(await asyncio.gather(ctx.step("y", note, "y"), ctx.step("z", note, "z")))


async def gathered_without_mended(ctx: Context) -> list[str]:
    async def x() -> None:
        await ctx.removed("x", "step")

    _, y, z = await asyncio.gather(x(), ctx.step("y", note, "y"), ctx.step("z", note, "z"))
    return [y, z]


class Case(NamedTuple):
    old: Body
    new: Body
    mended: Body
    advice: list[str]  # its first lines; an indented one is code


OLD_CODE = ["        ...  # as it is now", "    else:", "        ...  # as it was"]

CASES = {
    "inserted": Case(
        three,
        inserted,
        inserted_mended,
        [
            "step notify is new. Instances that are past its place go without it:",
            '    if ctx.version("notify", 2) >= 2:',
            '        await ctx.step("notify", ...)',
        ],
    ),
    "removed": Case(
        three,
        removed,
        removed_mended,
        ["step pack is gone. Write before step ship:", '    await ctx.removed("pack", "step")'],
    ),
    "several removed": Case(
        three,
        only_the_last,
        only_the_last_mended,
        [
            "step charge and step pack are gone. Write before step ship:",
            '    await ctx.removed("charge", "step")',
            '    await ctx.removed("pack", "step")',
        ],
    ),
    "removed at the end": Case(
        three,
        ends,
        ends_mended,
        [
            "step pack and step ship are gone. Write in their place:",
            '    await ctx.removed("pack", "step")',
            '    await ctx.removed("ship", "step")',
        ],
    ),
    "renamed": Case(
        three,
        renamed,
        renamed_mended,
        [
            "If step pack is called wrap up now, keep the old name for instances that have begun it:",
            '    await ctx.step("wrap up" if ctx.version("wrap up", 2) >= 2 else "pack", ...)',
        ],
    ),
    "another kind": Case(
        three,
        slept_instead,
        slept_instead_mended,
        [
            "sleep pack stands in place of step pack:",
            '    if ctx.version("pack", 2) >= 2:',
            '        await ctx.sleep("pack", ...)',
            "    else:",
            '        await ctx.removed("pack", "step")',
        ],
    ),
    "reordered": Case(
        three,
        reordered,
        reordered_mended,
        [
            "step charge came before step pack: their order has changed, or a condition has. "
            "Put it back, or keep the old code for older instances:",
            '    if ctx.version("pack", 2) >= 2:',
            *OLD_CODE,
        ],
    ),
    "a new checkpoint": Case(
        three,
        with_checkpoint,
        with_checkpoint_mended,
        [
            "checkpoint packing is new. Instances that are past its place go without it:",
            '    async with ctx.checkpoint("packing") if ctx.version("packing", 2) >= 2 else contextlib.nullcontext():',
            "        ...",
        ],
    ),
    "a checkpoint gone": Case(
        with_checkpoint,
        three,
        without_checkpoint_mended,
        ["checkpoint packing is gone. Write in its place:", '    await ctx.removed("packing", "checkpoint")'],
    ),
    "into a block": Case(
        three,
        into_block,
        into_block_mended,
        [
            "step pack has moved: it is step pack in packing now. "
            "Put it back, or keep the old code for older instances:",
            '    if ctx.version("pack", 2) >= 2:',
            *OLD_CODE,
        ],
    ),
    "a join gone": Case(
        with_join,
        removed,
        without_join_mended,
        ["join both is gone. Write before step ship:", '    await ctx.removed("both", "join")'],
    ),
    "a timer of asyncio gone": Case(
        with_timer,
        removed,
        without_timer_mended,
        [
            "a timer of asyncio is gone. Keep it for older instances:",
            '    if ctx.version("timer", 2) < 2:',
            "        ...  # a timer of asyncio",
        ],
    ),
    "a new message": Case(
        removed,
        with_send,
        with_send_mended,
        [
            "send hello to other/k is new. Instances that are past its place go without it:",
            '    if ctx.version("hello", 2) >= 2:',
            '        ctx.send("other/k", "hello", ...)',
        ],
    ),
    "a message gone": Case(
        with_send,
        removed,
        without_send_mended,
        [
            "send hello to other/k is gone. Keep it for older instances:",
            '    if ctx.version("hello", 2) < 2:',
            '        ctx.send("other/k", "hello", ...)',
        ],
    ),
    "a version gone": Case(
        inserted_mended,
        three,
        without_version_mended,
        [
            "version notify and step notify are gone. Write before step pack:",
            '    await ctx.removed("notify", "version")',
            '    await ctx.removed("notify", "step")',
        ],
    ),
    "a task gone": Case(
        gathered,
        gathered_without,
        gathered_without_mended,
        ["step x in &1 is gone. Write in its place:", '    await ctx.removed("x", "step")'],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_divergence_says_what_has_changed_and_what_mends_it(case: str) -> None:
    old, new, mended, advice = CASES[case]

    error = diverges(old, new, after(1 if case in ("a new message", "a message gone") else 3))

    assert error.advice.splitlines()[: len(advice)] == advice
    assert all(in_source(line, mended) for line in advice if line.startswith(" ")), "this is what the next test follows"


@pytest.mark.parametrize("entries", range(6))
@pytest.mark.parametrize("case", CASES)
def test_whoever_follows_the_advice_goes_on_wherever_the_instance_stands(case: str, entries: int) -> None:
    old, _, mended, _ = CASES[case]
    rig = Rig(perdure.flow(name="f")(old))  # type: ignore[arg-type]
    rig.run_some(entries)
    if rig.outcome is None:
        found = changed(old, mended, after(entries))

        assert found[-1] in ("ship", "z") or case == "removed at the end"


@pytest.mark.parametrize("entries", range(4))
def test_an_operation_in_place_of_another_is_the_other_advice_for_a_new_name(entries: int) -> None:
    second = diverges(three, renamed).advice.splitlines()[2:]

    assert second == [
        "If step wrap up stands in place of step pack:",
        '    if ctx.version("wrap up", 2) >= 2:',
        '        await ctx.step("wrap up", ...)',
        "    else:",
        '        await ctx.removed("pack", "step")',
    ]
    assert all(in_source(line, replaced_mended) for line in second[1:])
    assert changed(three, replaced_mended, after(entries))[-1] == "ship"


# ---- where it is not certain, both are told ----------------------------------------------------------------


def test_what_the_instance_has_not_come_to_may_be_old() -> None:
    assert diverges(three, removed, after(1)).advice.splitlines() == [
        "If step pack is gone, write before step ship:",
        '    await ctx.removed("pack", "step")',
        "If step pack is called ship now, keep the old name for instances that have begun it:",
        '    await ctx.step("ship" if ctx.version("ship", 2) >= 2 else "pack", ...)',
        "If step ship stands in place of step pack:",
        '    if ctx.version("ship", 2) >= 2:',
        '        await ctx.step("ship", ...)',
        "    else:",
        '        await ctx.removed("pack", "step")',
    ]
    assert diverges(three, inserted, after(1)).advice.splitlines() == [
        "If step notify is new:",
        '    if ctx.version("notify", 2) >= 2:',
        '        await ctx.step("notify", ...)',
        "If step notify came after step pack, put the old order back instead.",
    ]


def test_a_name_that_is_not_written_down_may_be_anywhere() -> None:
    async def skips(ctx: Context) -> None:
        for name in ("charge", "ship", "pack"):
            await ctx.step(name, note, name)

    async def has_new(ctx: Context) -> None:
        for name in ("charge", "new", "pack", "ship"):
            await ctx.step(name, note, name)

    assert diverges(three, skips).advice.splitlines() == [
        "If step pack is gone, write before step ship:",
        '    await ctx.removed("pack", "step")',
        "If step pack comes after step ship now, put the old order back instead.",
    ]
    told = diverges(three, has_new).advice.splitlines()
    assert [line for line in told if not line.startswith(" ")] == [
        "If step new is new:",
        "If step pack is gone, write before step new:",
        "If step pack is called new now, keep the old name for instances that have begun it:",
        "If step new stands in place of step pack:",
    ]


def test_a_name_that_is_used_again_does_not_tell_which_one_is_gone() -> None:
    async def twice(ctx: Context) -> None:
        await ctx.step("pack", note, "x")
        await ctx.step("ship", note, "x")
        await ctx.step("pack", note, "x")
        await ctx.step("end", note, "x")

    async def once(ctx: Context) -> None:
        await ctx.step("wrap", note, "x")
        await ctx.step("ship", note, "x")
        await ctx.step("pack", note, "x")
        await ctx.step("end", note, "x")

    told = diverges(twice, once).advice.splitlines()

    assert told[0] == "If step wrap is new:" and told[3].startswith("If step pack is called wrap now")


# ---- other differences -------------------------------------------------------------------------------------


async def tries_once(ctx: Context) -> None:
    with contextlib.suppress(perdure.StepFailed):
        await ctx.step.options(retries=0)("try", fail)
    await ctx.step("ship", note, "ship")


async def tries_more(ctx: Context) -> None:
    with contextlib.suppress(perdure.StepFailed):
        await ctx.step("try", fail)
    await ctx.step("ship", note, "ship")


async def fails(ctx: Context) -> None:
    await ctx.step("charge", note, "charge")
    raise KeyError("a bug")


async def conditional(ctx: Context) -> list[str]:
    found = [await ctx.step("charge", note, "charge")]
    if ctx.key == "another":
        found.append(await ctx.step("pack", note, "pack"))
        found.append(await ctx.step("ship", note, "ship"))
    return found


async def joins(ctx: Context) -> None:
    await ctx.join("both", {"a": lambda: ctx.step("x", note, "x"), "b": lambda: ctx.step("y", note, "y")})


async def joins_in_another_order(ctx: Context) -> None:
    await ctx.join("both", {"b": lambda: ctx.step("y", note, "y"), "a": lambda: ctx.step("x", note, "x")})


async def naps(ctx: Context) -> None:
    await ctx.sleep("nap", 5)
    await ctx.step("ship", note, "ship")


async def naps_no_more(ctx: Context) -> None:
    await ctx.sleep("nap", 0)
    await ctx.step("ship", note, "ship")


@pytest.mark.parametrize(
    ("old", "new", "recorded", "current", "advice"),
    [
        (
            tries_more,
            tries_once,
            "the pause before attempt 2 of step try",
            "step ship",
            "How often step try is tried has changed. Put its retries, backoff, retry_if and retry_on_timeout back.",
        ),
        (
            tries_once,
            tries_more,
            "step ship",
            "the pause before attempt 2 of step try",
            "How often step try is tried has changed.",
        ),
        (three, fails, "step pack", "the end (failed: KeyError: 'a bug')", "The code fails now where it went on then"),
        (three, conditional, "step pack", "the end (completed)", "The code no longer comes to step pack"),
        (
            joins,
            joins_in_another_order,
            "step x in both/a",
            "step y in both/b",
            "step x in both/a came before step y in both/b: their order has changed. Put it back, or",
        ),
        (naps, naps_no_more, "sleep nap", "sleep nap (over at once)", "sleep nap waited then, and does not now."),
        (naps_no_more, naps, "sleep nap (over at once)", "sleep nap", "sleep nap did not wait then, and does now."),
    ],
)
def test_other_changes_are_told_too(old: Body, new: Body, recorded: str, current: str, advice: str) -> None:
    error = diverges(old, new)

    assert (error.recorded, error.current) == (recorded, current)
    assert error.advice.startswith(advice)


def test_names_are_told_as_the_author_wrote_them() -> None:
    async def old(context: Context) -> None:
        await context.step('a/b "c"', note, "x")
        await context.receive_many("go", "b/c", limit=1, timeout=5)
        await context.step("ship", note, "x")

    async def new(context: Context) -> None:
        await context.step("ship", note, "x")

    error = diverges(old, new, after(2))  # it has not come to the end: what the code has now may have come next

    assert error.recorded == 'step a/b "c"'
    assert error.advice.splitlines() == [
        'step a/b "c" and receive go+b/c are gone. Write before step ship:',
        """    await context.removed('a/b "c"', "step")""",
        '    await context.removed("go+b/c", "receive")',
    ]


def test_a_version_that_the_code_has_is_not_proposed_again() -> None:
    async def new(ctx: Context) -> list[str]:
        found = [await ctx.step("charge", note, "charge")]
        await ctx.step("notify", note, "notify")
        found.append(await ctx.step("pack", note, "pack"))
        if ctx.version("notify", 3) > 1:
            found.append(await ctx.step("ship", note, "ship"))
        return found

    assert 'ctx.version("notify 2", 2)' in diverges(three, new).advice


# ---- what the source tells ---------------------------------------------------------------------------------


async def helper(ctx: Context) -> None:
    await ctx.sleep("in a helper", 1)


def test_the_names_of_a_flow_are_read_from_its_source_and_its_helpers() -> None:
    async def flow(ctx: Context, others: Any) -> None:
        async def branch(ctx: Context) -> None:
            await ctx.receive("a", "b")

        await ctx.step("written", note, "an argument")
        await ctx.step.options(retries=0)("with options", note, "x")
        await pack("x")
        await ctx.join("both", {"a": branch, "b": lambda: ctx.child(the_child)})
        await helper(ctx)
        ctx.send("other/k", "hello")
        others.unknown("given away")
        ", ".join(["a"])

    names = Names(flow)

    for kind, name in [
        ("step", "written"),
        ("step", "with options"),
        ("step", "pack"),
        ("receive", "a+b"),
        ("join", "both"),
        ("child", "a child"),
        ("sleep", "in a helper"),
        ("send", "hello"),
    ]:
        assert names.has(kind, name) is True, name
    assert names.has("step", "an argument") is False
    assert names.has("sleep", "written") is False
    assert names.has("step", "given away") is None
    assert names.has("timer", "") is None


@perdure.flow(name="a child")
async def the_child(ctx: Context) -> None:
    pass


def test_a_context_that_is_given_away_leaves_everything_open() -> None:
    async def flow(ctx: Context, others: Any) -> None:
        await others.work(ctx)

    async def computed(ctx: Context) -> None:
        await ctx.step(f"charge {ctx.key}", note, "x")

    namespace: dict[str, Any] = {}
    exec("async def unreadable(ctx): pass", namespace)

    assert Names(flow).has("step", "x") is None
    assert Names(computed).has("step", "x") is None and Names(computed).has("sleep", "x") is False
    assert Names(namespace["unreadable"]).has("step", "x") is None


# ---- in an engine ------------------------------------------------------------------------------------------


def looping(second: str, *, new: bool) -> perdure.Flow[Any, Any]:
    async def body(ctx: Context) -> int:
        async def each(ctx: Context, n: int) -> Continue[int] | Break[int]:
            await ctx.step("first", note, "x")
            if new:
                async with ctx.checkpoint("between"):
                    pass
            await ctx.step("second", note, second)
            return Continue(n + 1) if n < 9 else Break(n)

        return await ctx.loop("days", each, 0, keep=2, prune_every=2)

    return perdure.flow(name="f")(body)


def test_a_divergence_of_a_snapshot_is_told_as_well_as_that_of_a_journal() -> None:
    rig = Rig(looping("x", new=False), rebuild="snapshot")
    rig.run_some(13)
    assert rig.snapshot is not None

    with pytest.raises(Divergence) as found:
        looping("x", new=True).machine("f/k", rig.snapshot)

    error = found.value
    assert error.recorded == "nothing more" and error.current.startswith("checkpoint between in days/~")
    assert error.source.startswith(__file__)
    assert error.advice.splitlines()[1:] == [
        '    async with ctx.checkpoint("between") if ctx.version("between", 2) >= 2 else contextlib.nullcontext():',
        "        ...",
    ]


async def test_the_advice_is_recorded_and_whoever_follows_it_goes_on(disk: Stage) -> None:
    async def old(ctx: Context) -> str:
        await ctx.step("charge", note, "charge")
        await ctx.receive("go")
        return "done"

    async def new(ctx: Context) -> str:
        await ctx.step("charge the card", note, "charge")
        await ctx.receive("go")
        return "done"

    async def mended(ctx: Context) -> str:
        await ctx.step("charge the card" if ctx.version("charge the card", 2) >= 2 else "charge", note, "charge")
        await ctx.receive("go")
        return "done"

    flows = [perdure.flow(name="f")(body) for body in (old, new, mended)]
    async with disk.open(flows[0]) as engine:
        await becomes(await engine.start(flows[0], key="k"), "waiting")
    async with disk.open(flows[1], replay=False) as engine:
        handle = engine.handle(flows[1], "k")
        await handle.send("go")
        with pytest.raises(perdure.InstanceStuck) as stuck:
            await handle.result(60)
    advice = str(stuck.value).splitlines()[1:]
    assert advice[1].strip() == (
        'await ctx.step("charge the card" if ctx.version("charge the card", 2) >= 2 else "charge", ...)'
    )
    assert advice[-1] == "Put it right, then retry or cancel it"
    assert in_source(advice[1], mended)

    async with disk.open(flows[2], replay=False) as engine:
        await engine.handle(flows[2], "k").retry()
        assert await engine.handle(flows[2], "k").result(60) == "done"
