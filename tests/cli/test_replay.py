"""`perdure replay --against`: which running instances would go on with new code."""

import json
from functools import partial

from tests.cli.world import World, eventually

OLD = """
import perdure

async def note(text: str) -> str:
    return text

@perdure.flow
async def order(ctx: perdure.Context, wait: bool) -> str:
    if wait:
        await ctx.receive("begin")
    await ctx.step("charge", note, "x")
    await ctx.receive("go")
    return "done"
"""


def waits(world: World, key: str, wait: str) -> bool:
    """Let the old code run for a moment; whether the instance has come to a wait."""
    run = world.perdure("run", "old:order", "--input", wait, "--key", key, "--db", "shop.db", "--timeout", "0.5")
    assert run.exit_code == 5
    return bool(world.json("show", f"order/{key}")["status"] == "waiting")


def test_it_says_how_many_are_safe_and_where_the_others_diverge(world: World) -> None:
    for name, code in (("old", OLD), ("same", OLD), ("new", OLD.replace('"charge"', '"charge the card"'))):
        (world.directory / f"{name}.py").write_text(code)
    for key, wait in (("early", "true"), ("late", "false")):
        eventually(partial(waits, world, key, wait))

    same = world.perdure("replay", "--against", "same", "--db", "shop.db")
    new = world.perdure("replay", "--against", "new:order", "--db", "shop.db", "--json")

    assert (same.exit_code, new.exit_code) == (0, 1)
    assert "2 instances replayed: 2 safe, 0 would be stuck" in same.stdout
    told = json.loads(new.stdout)
    assert (told["replayed"], told["safe"]) == (2, 1)
    assert [each["id"] for each in told["unsafe"]] == ["order/late"]
    assert "charge the card" in told["unsafe"][0]["divergence"]
    assert "new.py" in told["unsafe"][0]["divergence"]


def test_an_instance_is_replayed_on_its_own_version_if_the_module_has_it(world: World) -> None:
    (world.directory / "old.py").write_text(OLD)
    newer = OLD[OLD.index("@perdure") :].replace("@perdure.flow", '@perdure.flow(name="order", version="2")')
    newer = newer.replace("def order", "def newer").replace('"charge"', '"charge the card"')
    (world.directory / "both.py").write_text(OLD + newer)
    eventually(partial(waits, world, "k", "false"))

    both = world.json("replay", "--against", "both", "--db", "shop.db")
    only = world.json("replay", "--against", "both:newer", "--db", "shop.db", exit=1)

    assert (both["safe"], len(both["unsafe"])) == (1, 0)
    assert (only["safe"], [each["id"] for each in only["unsafe"]]) == (0, ["order/k"])


def test_without_a_module_it_says_what_is_missing(world: World) -> None:
    answer = world.perdure("replay", "--db", "shop.db")

    assert answer.exit_code == 2
    assert "--against" in answer.stderr
