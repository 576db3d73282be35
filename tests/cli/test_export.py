"""`perdure export`: a history as a file, from the command line to `perdure.testing.replay`."""

import json
from importlib import import_module

import pytest

from perdure import Divergence
from perdure.testing import replay
from tests.cli.world import World


def test_what_is_exported_replays_on_the_same_code_and_tells_of_changed_code(world: World) -> None:
    world.perdure("run", "flows:order", "--input", '["o-17"]', "--key", "o-17")

    done = world.perdure("export", "o-17", "-o", "o-17.json")

    assert done.stdout == "wrote 2 entries of order/o-17 to o-17.json\n"
    assert replay("o-17.json", import_module("flows").order) == ["order/o-17"]
    (world.directory / "changed.py").write_text(
        (world.directory / "flows.py").read_text().replace('ctx.step("charge"', 'ctx.step("pay"')
    )
    with pytest.raises(Divergence, match=r"step charge.*step pay at .*changed.py:\d+"):
        replay("o-17.json", import_module("changed").order)


def test_without_a_file_it_goes_to_stdout_and_is_the_same_each_time(world: World) -> None:
    world.perdure("run", "flows:order", "--input", '["o-17"]', "--key", "o-17")

    first, second = (world.perdure("export", "o-17") for _ in range(2))

    assert first.stdout == second.stdout
    assert json.loads(first.stdout)["key"] == "o-17"


def test_what_was_written_is_told_to_programs_too(world: World) -> None:
    world.perdure("run", "flows:order", "--input", '["o-17"]', "--key", "o-17")

    told = world.json("export", "o-17", "--output", "o-17.json")

    assert told == {"id": "order/o-17", "file": "o-17.json", "entries": 2}


def test_an_unknown_instance_or_a_bad_place_is_one_line(world: World) -> None:
    world.perdure("run", "flows:order", "--input", '["o-17"]', "--key", "o-17")

    assert world.json("export", "o-18", exit=3)["error"]["type"] == "UnknownInstance"
    bad = world.perdure("export", "o-17", "-o", "missing/o-17.json")
    assert bad.exit_code == 2
    assert "missing/o-17.json cannot be written" in bad.stderr
