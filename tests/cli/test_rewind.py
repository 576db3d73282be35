"""`retry` of what failed, `rewind`, `fork`: by another process, while no engine runs, and then one does."""

from __future__ import annotations

import json
import subprocess
from collections import Counter

import pytest

from tests.cli.world import World, eventually


@pytest.fixture
def failed(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """`parts/p` has its wheel and failed for want of a frame."""
    monkeypatch.chdir(world.directory)
    (world.directory / "wheel").touch()
    assert world.perdure("run", "flows:parts", "--key", "p").exit_code == 1
    for name in ("frame", "bell"):
        (world.directory / name).touch()
    return world


def evidence(world: World) -> list[str]:
    return (world.directory / "evidence").read_text().split()


def test_retry_of_a_failed_flow_does_what_failed(failed: World) -> None:
    assert failed.json("retry", "p") == {"id": "parts/p", "retry": "asked"}

    assert failed.json("run", "flows:parts", "--key", "p")["result"] == ["WHEEL", "FRAME", "BELL"]
    assert evidence(failed) == ["wheel", "frame", "bell"]
    assert [line["event"] for line in failed.json("history", "p")["history"]].count("retry") == 1


def test_rewind_does_an_operation_anew_and_what_came_after(failed: World) -> None:
    assert failed.json("rewind", "p", "wheel") == {"id": "parts/p", "rewind": "wheel"}

    assert failed.perdure("run", "flows:parts", "--key", "p").exit_code == 0
    assert evidence(failed) == ["wheel", "wheel", "frame", "bell"]


def test_fork_goes_on_in_another_instance_with_edited_values(failed: World) -> None:
    forked = failed.json("fork", "p", "frame", "--edit", 'wheel="gold"', "--key", "q")
    assert forked == {"id": "parts/q", "workflow": "parts", "key": "q", "forked": "p"}

    assert failed.perdure("run", "flows:order", "--input", '{"order_id": "o"}').exit_code == 0
    assert failed.json("run", "flows:parts", "--key", "q")["result"] == ["gold", "FRAME", "BELL"]
    assert failed.json("show", "p")["status"] == "failed"


@pytest.mark.parametrize(
    ("command", "exit", "kind"),
    [
        (("rewind", "p", "gone"), 3, "UnknownLocation"),
        (("fork", "p", "gone"), 3, "UnknownLocation"),
        (("fork", "p", "frame", "--edit", "bell=1"), 3, "UnknownLocation"),
        (("fork", "p", "frame", "--edit", "bell"), 2, ""),
        (("fork", "p", "frame", "--edit", "wheel={"), 2, ""),
        (("fork", "p", "frame", "--key", "p"), 4, "KeyInUse"),
        (("rewind", "nobody", "frame"), 3, "UnknownInstance"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_recorded(
    failed: World, command: tuple[str, ...], exit: int, kind: str
) -> None:
    before = failed.json("history", "p")

    error = failed.json(*command, exit=exit)["error"]

    assert kind in ("", error["type"])
    assert failed.json("history", "p") == before
    assert len(failed.json("ls")["instances"]) == 1


def test_what_is_running_is_dropped_only_by_force(world: World) -> None:
    engine = world.process("run", "flows:three", "--key", "k", "--db", "shop.db")
    eventually(lambda: world.evidence() == ["first", "second"])
    before = world.json("history", "k")

    refused = world.json("rewind", "k", "first", exit=4)["error"]

    assert refused["type"] == "StillRunning"
    assert (
        "three/k: what would be dropped is running: second; wait for it, or drop it with --force" in refused["message"]
    )
    assert world.json("history", "k") == before
    world.perdure("rewind", "k", "second", "--force")
    eventually(lambda: world.evidence() == ["first", "second", "second"])
    (world.directory / "go").touch()
    code, out = world.ended(engine)
    assert (code, json.loads(out)) == (0, ["FIRST", "THIRD"])


HELD = """
import asyncio
from pathlib import Path

import perdure


async def held(name: str) -> str:
    info = perdure.step_info()
    with open("evidence", "a") as file:
        file.write(f"{info.instance}:{name}:{info.idempotency_key}\\n")
    while not Path(f"go-{name}").exists():
        await asyncio.sleep(0.005)
    return name


@perdure.flow
async def order(ctx: perdure.Context) -> list[str]:
    return [await ctx.step(name, held, name) for name in "abc"]
"""


def test_killed_in_a_rewind_and_in_a_fork_only_what_was_dropped_or_in_flight_is_done_again(world: World) -> None:
    (world.directory / "held.py").write_text(HELD)
    for name in "ab":
        (world.directory / f"go-{name}").touch()

    def ran() -> list[str]:
        return [":".join(line.split(":")[:2]) for line in world.evidence()]

    def engine(*done: str) -> subprocess.Popen[str]:
        process = world.process("run", "held:order", "--key", "k", "--db", "shop.db")
        eventually(lambda: sorted(ran()) == sorted(done))
        return process

    first = engine("order/k:a", "order/k:b", "order/k:c")
    (world.directory / "go-b").unlink()
    world.perdure("rewind", "k", "b", "--force")
    eventually(lambda: ran()[3:] == ["order/k:b"])
    first.kill()
    first.wait()
    assert world.json("fork", "k", "b", "--edit", 'a="A"', "--key", "f")["id"] == "order/f"
    before = ran()
    second = engine(*before, "order/k:b", "order/f:b")
    (world.directory / "go-b").touch()
    eventually(lambda: sorted(ran()[6:]) == ["order/f:c", "order/k:c"])
    second.kill()
    second.wait()
    assert world.json("replay", "--against", "held") == {"replayed": 2, "safe": 2, "unsafe": [], "left": {}}
    (world.directory / "go-c").touch()

    assert world.json("run", "held:order", "--key", "k")["result"] == ["a", "b", "c"]
    assert world.json("run", "held:order", "--key", "f")["result"] == ["A", "b", "c"]
    times: dict[str, list[int]] = {}
    for line, count in Counter(world.evidence()).items():  # a line is one work: instance, step, idempotency key
        times.setdefault(line.rpartition(":")[0], []).append(count)
    assert times == {
        "order/k:a": [1],
        "order/k:b": [1, 2],  # dropped by the rewind; then killed and run again
        "order/k:c": [1, 2],
        "order/f:b": [1],
        "order/f:c": [2],
    }
    assert world.perdure("doctor").exit_code == 0
    assert "- rewind b" in world.perdure("diff", "k", "f").stdout
    for key in "kf":
        assert "The code does what it did." in world.perdure("debug", key, "--against", "held", input="c\n").stdout


def test_a_rewind_that_waits_for_an_engine_is_not_followed_by_another(failed: World) -> None:
    failed.perdure("rewind", "p", "frame")
    again = failed.json("rewind", "p", "frame")
    other = failed.json("rewind", "p", "wheel", exit=2)["error"]["message"]

    assert again == {"id": "parts/p", "rewind": "frame"}
    assert other == "parts/p was asked to go back to 'frame' and has not done so yet; wait until it has"
    assert failed.perdure("run", "flows:parts", "--key", "p").exit_code == 0
    assert evidence(failed) == ["wheel", "frame", "bell"]
    assert [line["event"] for line in failed.json("history", "p")["history"]].count("rewound") == 1


def test_what_has_completed_stays_so(failed: World) -> None:
    failed.perdure("run", "flows:order", "--input", '{"order_id": "o"}', "--key", "o")

    assert failed.json("rewind", "o", "charge", exit=4)["error"]["type"] == "InstanceEnded"


def test_debug_opens_what_was_rewound_and_what_was_forked(failed: World) -> None:
    failed.perdure("rewind", "p", "wheel")
    failed.perdure("fork", "p", "frame", "--key", "q")
    failed.perdure("run", "flows:parts", "--key", "p")

    for key, last in (("p", 7), ("q", 5)):
        history = failed.json("history", key)["history"]
        assert history[-1]["number"] == last, history
        shown = failed.perdure("debug", key, "--against", "flows", input="c\n")
        assert shown.exit_code == 0, shown.output
        assert "The code does what it did." in shown.stdout, shown.output
        for entry in history:
            again = failed.perdure("debug", key, "--against", "flows", "--at", str(entry["number"]), input="c\n")
            assert "The code does what it did." in again.stdout, (entry, again.output)


def test_diff_aligns_a_fork_with_its_source(failed: World) -> None:
    failed.perdure("fork", "p", "frame", "--edit", 'wheel="gold"', "--key", "q")
    failed.perdure("run", "flows:parts", "--key", "q")

    result = failed.perdure("diff", "p", "q")

    assert result.exit_code == 1
    assert "frame" in result.stdout


def test_diff_tells_of_a_rewind_and_of_what_it_dropped(failed: World) -> None:
    failed.perdure("fork", "p", "wheel", "--key", "q")
    failed.perdure("rewind", "p", "wheel")
    for key in "pq":
        failed.perdure("run", "flows:parts", "--key", key)

    told = failed.json("diff", "p", "q", exit=1)

    assert [(each["what"], each["location"]) for each in told["differences"]] == [("rewind", "wheel")]
