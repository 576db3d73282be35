"""A sixth dialect in a package of its own: nothing in `src` knows of it, and all that others have works for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.errors import CallerError, InstanceCancelled, InstanceStuck
from perdure.testing import World, crash_test
from tests.dialects.countdown import Countdown
from tests.server.site import Site
from tests.server.site import run as site_story


@pytest.fixture(autouse=True)
def entry_point(tmp_path, monkeypatch):
    """As if its package had been installed."""
    installed = tmp_path / "site" / "countdown-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: countdown\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[perdure.dialects]\ncountdown = tests.dialects.countdown:DIALECT\n")
    monkeypatch.syspath_prepend(str(installed.parent))


def command(*words: str, exit: int = 0, **env: str) -> str:
    """What a command of another process says, which has no code of the dialect."""
    argv = [sys.executable, "-m", "perdure", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **env})
    assert done.returncode == exit, done.stderr
    return done.stdout


async def test_it_starts_takes_messages_and_has_a_result(tmp_path):
    async with perdure.open(tmp_path / "a.db", workflows=[Countdown("launch")]) as engine:
        handle = await engine.start("launch", 2, key="moon")
        await handle.send("tick")
        await handle.send("tick")

        assert await handle.result() == "0"
        assert [line.event for line in await handle.history()] == ["started", "message", "message", "receipt"]


async def test_without_its_entry_point_it_is_not_known(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.endswith("site")])

    with pytest.raises(CallerError, match="is not a workflow"):
        async with perdure.open(tmp_path / "a.db", workflows=[Countdown("launch")]):
            pass


async def test_it_goes_on_after_a_restart_and_can_be_cancelled(tmp_path):
    async with perdure.open(tmp_path / "a.db", workflows=[Countdown("launch")]) as engine:
        await (await engine.start("launch", 3, key="moon")).send("tick")
    async with perdure.open(tmp_path / "a.db", workflows=[Countdown("launch")]) as engine:
        handle = engine.handle("launch", "moon")
        await handle.cancel("rain")

        with pytest.raises(InstanceCancelled):
            await handle.result()


async def test_a_stuck_one_is_retried_with_mended_code(tmp_path):
    async with perdure.open(tmp_path / "a.db", workflows=[Countdown("launch")]) as engine:
        handle = await engine.start("launch", 1, key="moon")
        await handle.send("hold")
        with pytest.raises(InstanceStuck):
            await handle.until("completed")
    async with perdure.open(tmp_path / "a.db", workflows=[Countdown("launch", forgiving=True)]) as engine:
        handle = engine.handle("launch", "moon")
        await handle.retry()
        await handle.send("tick")

        assert await handle.result() == "0"


async def test_its_policy_holds_for_clients_that_have_no_code(tmp_path):
    async with perdure.open(tmp_path / "a.db", workflows=[Countdown("launch")]) as engine:
        handle = await engine.start("launch", 1, key="moon")
        for asked in (handle.rewind("next"), handle.fork("next"), handle.wake()):
            with pytest.raises(CallerError, match="launch is a countdown"):
                await asked
    async with perdure.connect(tmp_path / "a.db") as client:
        with pytest.raises(CallerError, match="launch is a countdown: it goes one way"):
            await client.handle("launch", "moon").rewind("next")


async def test_the_command_line_tells_of_it(tmp_path):
    url = str(tmp_path / "a.db")
    async with perdure.open(url, workflows=[Countdown("launch")]) as engine:
        await engine.start("launch", 1, key="moon")

    assert "launch/moon" in command("ls", "--db", url)
    assert json.loads(command("show", "launch/moon", "--json", "--db", url))["status"] == "waiting"
    assert "started" in command("history", "launch/moon", "--db", url)
    assert "It waits for a message tick" in command("why", "launch/moon", "--db", url)
    assert "asked" in command("cancel", "launch/moon", "--db", url)


async def test_where_it_is_installed_why_is_told_in_its_own_words(tmp_path):
    url = str(tmp_path / "a.db")
    async with perdure.open(url, workflows=[Countdown("launch")]) as engine:
        await (await engine.start("launch", 3, key="moon")).send("tick")
    installed = os.pathsep.join([str(tmp_path / "site"), str(Path(__file__).parents[2])])

    told = command("why", "launch/moon", "--db", url, PYTHONPATH=installed)

    assert f"2 to go.\n    perdure send launch/moon tick --db {url}" in told


def test_where_it_is_installed_the_command_line_runs_and_replays_it(tmp_path):
    (tmp_path / "launches.py").write_text(
        "from tests.dialects.countdown import Countdown\nlaunch = Countdown('launch')\n"
    )
    installed = os.pathsep.join([str(tmp_path), str(tmp_path / "site"), str(Path(__file__).parents[2])])
    database = ("--db", str(tmp_path / "a.db"))
    given = ("--input", '{"ticks": 1}', "--key", "moon")
    command("run", "launches:launch", *given, "--timeout", "0", *database, exit=5, PYTHONPATH=installed)

    command("send", "moon", "tick", *database)

    assert "1 safe" in command("replay", "--against", "launches", *database, PYTHONPATH=installed)
    assert command("run", "launches:launch", *given, *database, PYTHONPATH=installed) == '"0"\n'


def test_a_world_of_tests_runs_it():
    with World(Countdown("launch")) as world:
        handle = world.start("launch", 1, key="moon")
        handle.send("tick")

        assert handle.result() == "0"


@pytest.mark.parametrize("cache", [0, 4096])
def test_it_survives_a_crash_everywhere(cache):
    launch = Countdown("launch").workflow

    report = crash_test(launch, 2, messages=[("tick", None), ("tick", None)], cache=cache, pairs=20, random=5)

    assert report.singles > 5


async def test_a_fleet_runs_it(postgres):
    async with perdure.open(postgres, workflows=[Countdown("launch")]) as engine:
        handle = await engine.start("launch", 1, key="moon")
        await handle.send("tick")

        assert await handle.result() == "0"


def test_the_server_starts_it_tells_of_it_and_acts_on_it():
    """All that a page of the web UI asks for an instance and a workflow is there, in the words of the dialect."""

    async def story(site: Site) -> None:
        client = await site.login()
        said = {"workflow": "launch", "key": "moon", "input": {"ticks": 2}}
        assert (await client.post("/api/v1/instances", json=said)).status_code == 201
        one = "/api/v1/instances/launch/moon"
        assert (await client.post(f"{one}/-/messages", json={"name": "tick"})).status_code == 200
        await site.engine.handle("launch/moon").until("waiting", 60)

        shown = (await client.get(one)).json()
        assert (shown["workflow"], shown["status"], shown["input"]) == ("launch", "waiting", 2)
        assert shown["may"]["send"] == "" and "a countdown: it goes one way" in shown["may"]["rewind"]
        (reason,) = (await client.get(f"{one}/-/why")).json()["reasons"]
        assert reason["text"] == "1 to go."
        entries = (await client.get(f"{one}/-/history")).json()["history"]
        assert [each["event"] for each in entries] == ["started", "message"]
        views = {"waiting": 200, "children": 200, "operations": 200, "at/1": 200, "result": 202, "drawing": 409}
        assert {name: (await client.get(f"{one}/-/{name}")).status_code for name in views} == views
        why_not = (await client.get(f"{one}/-/drawing")).json()["detail"]
        assert why_not == "launch/moon cannot be drawn here: register its workflow, if that can be drawn"
        lists = (
            "instances",
            "instances/facets",
            "instances/groups",
            "instances/rates",
            "workflows",
            "workflows/launch",
        )
        for name in lists:
            found = await client.get(f"/api/v1/{name}")
            assert found.status_code == 200 and ("launch" in found.text or name == "instances/rates"), name

        assert (await client.post(f"{one}/-/messages", json={"name": "hold"})).status_code == 200
        with pytest.raises(InstanceStuck):
            await site.engine.handle("launch/moon").until("completed", 60)
        assert (await client.get(one)).json()["status"] == "stuck"
        assert (await client.post(f"{one}/-/retry", json={})).status_code == 200
        refused = await client.post(f"{one}/-/rewind", json={"location": "next"})
        assert refused.status_code == 422 and "a countdown: it goes one way" in refused.json()["detail"]
        assert (await client.post(f"{one}/-/cancel", json={"reason": "rain"})).status_code == 200
        assert (await client.get(f"{one}/-/result?wait=60")).json()["status"] == "cancelled"

    site_story(story, workflows=[Countdown("launch")])


def test_it_uses_only_what_a_dialect_may_use():
    source = (Path(__file__).parent / "countdown" / "__init__.py").read_text("utf-8")
    imported = {line.split()[1].split(".")[1] for line in source.splitlines() if line.startswith("from perdure.")}

    assert imported <= {"kernel", "ports", "codec", "expressions"}
