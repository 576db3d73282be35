"""A module with two versions of a flow, on the command line."""

import json

import pytest

from tests.cli.world import World

BOTH = """
import perdure


@perdure.flow(name="order", version="9")
async def order_v9(ctx: perdure.Context, n: int = 1) -> str:
    await ctx.receive("go")
    return f"nine {n}"


@perdure.flow(name="order", version="10")
async def order_v10(ctx: perdure.Context, n: int = 2) -> str:
    await ctx.receive("go")
    return f"ten {n}"
"""


@pytest.fixture
def both(world: World) -> World:
    (world.directory / "both.py").write_text(BOTH)
    return world


def start(world: World, flow: str, key: str) -> None:
    assert world.perdure("run", f"both:{flow}", "--key", key, "--timeout", "0").exit_code == 5


def test_a_flow_is_named_by_its_variable_or_by_its_name_which_means_the_newest(both: World) -> None:
    for flow, key in (("order_v9", "a"), ("order_v10", "b"), ("order", "c")):
        start(both, flow, key)
        assert both.perdure("send", key, "go").exit_code == 0

    results = {key: both.perdure("run", f"both:{flow}", "--key", key).stdout for flow, key in (("order_v9", "a"),)}
    results |= {key: both.perdure("run", "both:order", "--key", key).stdout for key in "bc"}

    assert {key: json.loads(text) for key, text in results.items()} == {"a": "nine 1", "b": "ten 2", "c": "ten 2"}


def test_the_version_of_each_instance_is_shown(both: World) -> None:
    start(both, "order_v9", "old")
    start(both, "order", "new")

    assert [both.json("show", key)["version"] for key in ("old", "new")] == ["9", "10"]
    listed = both.json("ls", "--workflow", "order")["instances"]
    assert {each["key"]: each["version"] for each in listed} == {"old": "9", "new": "10"}


def test_a_start_by_name_takes_the_newest_version_and_its_defaults(both: World) -> None:
    start(both, "order_v9", "old")
    assert both.perdure("start", "order", "--key", "k").exit_code == 0
    assert both.perdure("send", "k", "go").exit_code == 0

    assert json.loads(both.perdure("run", "both:order_v10", "--key", "k").stdout) == "ten 2"
    assert both.json("show", "k")["version"] == "10"


def test_doctor_tells_every_version(both: World) -> None:
    start(both, "order_v9", "old")

    workflows = both.json("doctor")["database"]["workflows"]

    assert sorted((each["name"], each["version"]) for each in workflows) == [("order", "10"), ("order", "9")]
