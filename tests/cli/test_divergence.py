"""A divergence on the command line: what has changed, and what mends it, wherever it is told."""

import json

import pytest

from tests.cli.world import World, eventually

OLD = """
import perdure


async def note(text: str) -> str:
    return text


@perdure.flow
async def order(ctx: perdure.Context) -> str:
    await ctx.step("charge", note, "x")
    await ctx.receive("go")
    return "done"
"""
NEW = OLD.replace("    await ctx.receive", '    await ctx.step("notify", note, "x")\n    await ctx.receive')

WHAT = "entry 2: recorded is receive go, but the code now asks for step notify at "
ADVICE = [
    "If step notify is new:",
    '    if ctx.version("notify", 2) >= 2:',
    '        await ctx.step("notify", ...)',
    "If step notify came after receive go, put the old order back instead.",
]


@pytest.fixture
def diverged(world: World) -> World:
    """An instance that waited with the old code, and met the new one."""
    for name, code in (("old", OLD), ("new", NEW)):
        (world.directory / f"{name}.py").write_text(code)

    def waits() -> bool:
        assert world.perdure("run", "old:order", "--key", "k", "--timeout", "0.5").exit_code == 5
        return bool(world.json("show", "k")["status"] == "waiting")

    eventually(waits)
    assert world.perdure("send", "k", "go").exit_code == 0
    return world


def stuck(world: World) -> str:
    result = world.perdure("run", "new:order", "--key", "k")
    assert result.exit_code == 1
    return result.stderr


def text_of(advice: list[str], margin: int) -> str:
    return "\n".join(" " * margin + line for line in advice)


def test_replay_shows_the_advice_below_the_instance(diverged: World) -> None:
    told = diverged.perdure("replay", "--against", "new")
    document = diverged.json("replay", "--against", "new", exit=1)

    assert told.stdout.startswith(f"order/k: {WHAT}")
    assert text_of(ADVICE, 4) in told.stdout
    (unsafe,) = document["unsafe"]
    assert unsafe["divergence"].splitlines()[1:] == ADVICE


def test_run_shows_the_advice_and_how_to_go_on(diverged: World) -> None:
    told = stuck(diverged)

    assert f"order/k is stuck at receive:go: Divergence: order/k, {WHAT}" in told
    assert text_of(ADVICE, 4) + "\nput right what is wrong, then\n  perdure retry order/k" in told


def test_show_keeps_the_advice_in_its_column(diverged: World) -> None:
    stuck(diverged)

    shown = diverged.perdure("show", "k").stdout

    line = next(line for line in shown.splitlines() if line.startswith("error"))
    assert text_of(ADVICE, line.index("Divergence")) in shown
    assert diverged.json("show", "k")["error"]["message"].splitlines()[1:] == ADVICE


def test_why_says_what_to_do_and_then_to_retry(diverged: World) -> None:
    stuck(diverged)

    said = diverged.perdure("why", "k").stdout
    reason = diverged.json("why", "k")["reasons"][0]

    assert WHAT in said.splitlines()[1]
    assert text_of([*ADVICE, "put that right, then check: perdure replay --against MODULE"], 4) in said
    assert reason["kind"] == "stuck" and "\n" not in reason["text"]
    look, *advice, check, retry = reason["todo"].splitlines()
    assert advice == ADVICE
    assert "perdure debug order/k" in look and "perdure replay" in check and "perdure retry order/k" in retry


def test_whoever_follows_the_advice_can_retry(diverged: World) -> None:
    stuck(diverged)
    mended = NEW.replace(
        '    await ctx.step("notify"', '    if ctx.version("notify", 2) >= 2:\n        await ctx.step("notify"'
    )
    (diverged.directory / "mended.py").write_text(mended)

    assert diverged.json("replay", "--against", "mended")["safe"] == 1
    assert diverged.perdure("retry", "k").exit_code == 0

    assert json.loads(diverged.perdure("run", "mended:order", "--key", "k").stdout) == "done"
