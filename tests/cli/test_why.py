"""`perdure why`: what an instance waits for in each of its states, and the command that would move it."""

import json
import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import chdir
from itertools import takewhile
from typing import Any

import pytest
from click.testing import Result

from tests.cli.world import World, eventually

STATES = """
import asyncio
import time
from datetime import timedelta
from pathlib import Path

import perdure

PATIENT = perdure.Backoff(base=3600, max=3600)
EAGER = perdure.Backoff(base=0, max=0)


async def one() -> int:
    return 1


async def fail(*_: object) -> None:
    raise ValueError("no stock")


async def forever(*_: object) -> None:
    with open("evidence", "a") as file:
        file.write("forever\\n")
    while True:
        await asyncio.sleep(1)


async def second_time() -> None:
    if perdure.step_info().attempt == 1:
        raise ValueError("the first time")
    await forever()


def block() -> None:
    while not Path("done").exists():
        time.sleep(0.01)


@perdure.flow
async def sleeping(ctx: perdure.Context, hours: int = 3) -> None:
    await ctx.sleep("nap", timedelta(hours=hours))


@perdure.flow
async def pausing(ctx: perdure.Context) -> None:
    await asyncio.sleep(3600)


@perdure.flow
async def waiting(ctx: perdure.Context) -> object:
    return (await ctx.receive("go", "stop")).body


@perdure.flow
async def listening(ctx: perdure.Context) -> None:
    await ctx.receive()


@perdure.flow
async def hoping(ctx: perdure.Context) -> None:
    await ctx.receive("go", timeout=timedelta(days=2))


@perdure.flow
async def working(ctx: perdure.Context) -> None:
    await ctx.step.options(timeout=100)("work", forever)


@perdure.flow
async def again(ctx: perdure.Context) -> None:
    await ctx.step.options(backoff=EAGER)("work", second_time)


@perdure.flow
async def unlucky(ctx: perdure.Context) -> None:
    await ctx.step.options(backoff=PATIENT)("buy", fail)


@perdure.flow
async def parent(ctx: perdure.Context) -> None:
    await ctx.child(sleeping, key="inner")


@perdure.flow
async def crowded(ctx: perdure.Context) -> None:
    await ctx.join("crowd", {str(n): lambda: ctx.step("block", block) for n in range(33)})


@perdure.flow
async def fragile(ctx: perdure.Context) -> str:
    if not Path("mended").exists():
        await asyncio.Event().wait()
    return "mended"


@perdure.flow
async def paying(ctx: perdure.Context) -> object:
    return await ctx.step.options(once=True, retries=0)("pay", forever)


@perdure.flow
async def changed(ctx: perdure.Context) -> None:
    await ctx.step("new name", one)
    await ctx.receive("go")


@perdure.flow
async def undoing(ctx: perdure.Context) -> None:
    await ctx.join("trip", {"out": lambda: ctx.step.options(undo=forever)("book", one)})
    raise LookupError("after that")


@perdure.flow
async def regretting(ctx: perdure.Context) -> None:
    await ctx.step.options(undo=perdure.step(retries=0)(fail))("buy", one)
    raise LookupError("after that")


@perdure.flow(cleanup=3600)
async def cleaning(ctx: perdure.Context) -> None:
    try:
        await ctx.receive("go")
    finally:
        await ctx.step("tidy", forever)


@perdure.flow
async def adding(ctx: perdure.Context, a: int, b: int = 2) -> int:
    return a + b


@perdure.flow
async def careless(ctx: perdure.Context) -> None:
    asyncio.create_task(fail(), name="background")
    await ctx.step("buy", one)


@perdure.flow
async def failing(ctx: perdure.Context, what: str) -> None:
    raise LookupError(what)
"""


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An engine, and instances in every state: those with the key `told` are looked at, others are moved."""
    world = World(tmp_path_factory.mktemp("states"))
    old = world.directory / "states.py"
    old.write_text(STATES.replace('"new name"', '"old name"'))
    engine = engine_on(world)
    for name in ("paying/told", "paying/moved", "changed/told"):
        start(world, name)
    eventually(lambda: world.evidence() == ["forever"] * 2 and shown(world, "changed/told")["entries"] == 2)
    engine.kill()
    engine.wait()
    old.write_text(STATES + "\n")  # longer: of a file of the same second and size, Python takes what it compiled before
    engine_on(world)
    for name in NAMES:
        start(world, name)
    for key in ("told", "moved"):
        start(world, f"adding/{key}", '{"a": 1}')
        start(world, f"failing/{key}", '{"what": "no reason"}')
    start(world, "sleeping/later", "{}", "--delay", "3600")
    start(world, "sleeping/soon", '{"hours": 0}', "--delay", "3600")
    world.perdure("send", "changed/told", "go")
    for name in ("cleaning/told", "waiting/cancelled", "waiting/restarted"):
        eventually(lambda name=name: shown(world, name)["waiting"])  # type: ignore[misc]
        world.perdure("cancel", name, "--reason", "ordered twice")
    yield world
    world.close()


NAMES = (
    *("sleeping/told", "sleeping/moved", "pausing/told", "waiting/told", "waiting/moved", "listening/told"),
    *("hoping/told", "working/told", "again/told", "unlucky/told", "parent/told", "crowded/told", "fragile/told"),
    *("fragile/moved", "undoing/told", "regretting/told", "regretting/moved", "cleaning/told"),
    *("waiting/cancelled", "waiting/restarted", "careless/told"),
)


def engine_on(world: World) -> subprocess.Popen[str]:
    """It runs when it has said what became of its own instance."""
    process = world.process("run", "states:sleeping", "--key", "engine", "--db", "shop.db")
    eventually(lambda: re.search("timer nap|is known", world.said()))
    return process


def start(world: World, name: str, given: str = "{}", *options: str) -> None:
    workflow, _, key = name.partition("/")
    assert world.perdure("start", workflow, "--key", key, "--input", given, *options).exit_code == 0


def shown(world: World, name: str) -> dict[str, Any]:
    """Empty as long as the engine has not taken it up."""
    result = world.perdure("show", name, "--json")
    return json.loads(result.stdout) if result.exit_code == 0 else defaultdict(str)


def reasons_of(world: World, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.json("why", name)["reasons"]
    return found


def told(world: World, name: str) -> list[str]:
    """As a person sees it."""
    result = typed(world, "why", name, "--db", "shop.db")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def typed(world: World, *words: str) -> Result:
    """In the directory of the world."""
    with chdir(world.directory):
        return world.perdure(*words, db=False)


HERE = "--db shop.db"
CODE = f"--against MODULE {HERE}"


@pytest.mark.parametrize(
    ("name", "status", "kind", "text", "todo"),
    [
        ("sleeping/told", "waiting", "timer", "It sleeps at nap until", [f"perdure wake sleeping/told nap {HERE}"]),
        (
            "sleeping/later",
            "waiting",
            "timer",
            "It was started for later: it begins at",
            ["perdure wake sleeping/later"],
        ),
        ("pausing/told", "waiting", "timer", "sleep or a timeout of asyncio (&timer) until", []),
        ("waiting/told", "waiting", "wait", "for a message go or stop since", [f"send waiting/told go '{{}}' {HERE}"]),
        ("listening/told", "waiting", "wait", "for a message of any name", ["perdure send listening/told NAME '{}'"]),
        ("hoping/told", "waiting", "wait", ", at most until", ["perdure send hoping/told go '{}'"]),
        ("working/told", "running", "step", "(attempt 1, executor inline, cut after 100 s)", []),
        ("again/told", "running", "step", "(attempt 2, executor inline). The attempt before failed: ValueError", []),
        ("unlucky/told", "waiting", "backoff", "buy failed once, last with ValueError: no stock; attempt 2 begins", []),
        ("parent/told", "waiting", "child", "for its child sleeping/inner, which is waiting.", ["why sleeping/inner"]),
        (
            "fragile/told",
            "stuck",
            "stuck",
            "It is stuck at entry 1 (started) since",
            [f"debug fragile/told {CODE}", "retry"],
        ),
        (
            "changed/told",
            "stuck",
            "stuck",
            "Divergence",
            ["debug changed/told", f"replay {CODE}", "retry changed/told"],
        ),
        ("paying/told", "stuck", "stuck", "OutcomeUnknown", ["settle paying/told pay ok", "pay error", "retry"]),
        ("regretting/told", "stuck", "stuck", "UndoFailed", ["settle regretting/told buy ok", "retry regretting/told"]),
        ("undoing/told", "running", "step", "The undo of trip/out/book runs since", []),
        ("cleaning/told", "running", "cancel", "asked to cancel", []),
        ("adding/told", "completed", "completed", "with the result 3.", []),
        (
            "failing/told",
            "failed",
            "failed",
            "LookupError: no reason",
            ["debug failing/told", "retry failing/told", "--reuse failed"],
        ),
        ("waiting/cancelled", "cancelled", "cancelled", ": ordered twice", ["--reuse failed"]),
    ],
)
def test_every_state_is_explained(  # noqa: PLR0917
    states: World, name: str, status: str, kind: str, text: str, todo: list[str]
) -> None:
    eventually(lambda: reasons_of(states, name)[0]["kind"] == kind)
    eventually(lambda: text in reasons_of(states, name)[0]["text"])

    first, reason, *others = told(states, name)

    assert first == f"{name} is {status}."
    assert text in reason
    said = takewhile(lambda line: line.startswith("    "), others)
    commands = [line for line in said if "perdure " in line]  # beside them may stand what to change in the code
    assert len(commands) == len(todo)  # each on a line of its own
    assert all(command in line for command, line in zip(todo, commands, strict=True))


def test_a_step_that_the_gate_holds_says_what_would_let_it_go(states: World) -> None:
    eventually(lambda: len(reasons_of(states, "crowded/told")) == 33)

    held, others, more = told(states, "crowded/told")[-3:]

    assert held.startswith("The step crowd/32/block waits for a free place in the executor thread since")
    assert others.endswith(f"perdure ls --status running {HERE}")
    assert more.endswith("perdure.open(..., threads=N)")


def test_a_clean_up_says_why_what_runs_and_when_it_is_cut(states: World) -> None:
    eventually(lambda: len(reasons_of(states, "cleaning/told")) == 3)
    eventually(lambda: " ago " in told(states, "cleaning/told")[1])

    _, cancel, step, cut = told(states, "cleaning/told")

    assert cancel.endswith(" ago (ordered twice), and is cleaning up.")
    assert step.startswith("The step tidy runs since")
    assert cut.startswith("What is not cleaned up at") and cut.endswith(" is cut.")


@pytest.mark.parametrize(
    ("name", "verb", "after"),
    [
        ("sleeping/moved", "wake", "completed"),
        ("sleeping/soon", "wake", "completed"),
        ("waiting/moved", "send", "completed"),
        ("paying/moved", "settle", "completed"),
        ("regretting/moved", "settle", "failed"),
        ("fragile/moved", "retry", "completed"),
    ],
)
def test_the_command_that_is_told_moves_it(states: World, name: str, verb: str, after: str) -> None:
    eventually(lambda: reasons_of(states, name)[0]["todo"])
    if name == "fragile/moved":
        (states.directory / "mended").touch()

    assert typed(states, *told_command(states, name, verb)).exit_code == 0

    eventually(lambda: shown(states, name)["status"] == after)


@pytest.mark.parametrize("name", ["failing/moved", "waiting/restarted"])
def test_what_has_ended_is_started_again_by_the_command_that_is_told(states: World, name: str) -> None:
    eventually(lambda: shown(states, name)["status"] in ("failed", "cancelled"))

    assert typed(states, *told_command(states, name, "start")).exit_code == 0

    eventually(lambda: shown(states, name)["generation"] == 2)


def told_command(world: World, name: str, verb: str) -> list[str]:
    line = next(line for line in told(world, name) if f"perdure {verb} " in line)
    return shlex.split(line[line.index("perdure ") :])[1:]


def test_a_failure_that_a_flow_did_not_notice_is_told_besides_how_it_ended(states: World) -> None:
    eventually(lambda: shown(states, "careless/told")["status"] == "completed")

    assert [reason["kind"] for reason in reasons_of(states, "careless/told")] == ["completed", "task-failed"]
    assert "its task background failed: ValueError: no stock. Nothing awaited it." in told(states, "careless/told")[2]


# ---- without an engine -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flow", "then"), [("working", "it runs again."), ("paying", "its outcome will be unknown.")])
def test_a_step_that_nobody_runs_any_more_says_what_becomes_of_it(world: World, flow: str, then: str) -> None:
    (world.directory / "states.py").write_text(STATES)
    process = world.process("run", f"states:{flow}", "--key", "k", "--db", "shop.db")
    eventually(world.evidence)
    process.kill()
    process.wait()

    _, step, engine, command = told(world, "k")

    assert step.endswith(f", and nobody runs it now: when an engine does, {then}")
    assert engine == "No engine runs on shop.db: nothing moves until one does."
    assert command.endswith(f"perdure run MODULE:{flow} --key k {HERE}")


def test_a_long_input_is_not_repeated_in_a_command(world: World) -> None:
    (world.directory / "states.py").write_text(STATES)
    for key, what in (("short", "x"), ("long", "x" * 500)):
        world.perdure("run", "states:failing", "--key", key, "--input", json.dumps([what]))

    short, long = (told(world, key)[-1] for key in ("short", "long"))

    assert short.endswith(f"""perdure start failing --input '{{"what": "x"}}' --key short --reuse failed {HERE}""")
    assert long.endswith(f"perdure start failing --input @FILE --key long --reuse failed {HERE}")
