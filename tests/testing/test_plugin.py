"""The pytest plugin loads by itself, and brings no engine with it before its fixture is used."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

TEST = """
import sys
import perdure

HEAVY = {"msgspec", "apsw", "perdure.kernel", "perdure.flows", "perdure.testing.world"}
AT_COLLECTION = HEAVY & set(sys.modules)

@perdure.flow
async def nap(ctx: perdure.Context, days: int) -> str:
    await ctx.sleep("nap", days * 24 * 3600)
    return "rested"

def test_nothing_heavy_was_imported():
    assert AT_COLLECTION == set()

def test_a_week(world):
    handle = world.start(nap, 7)
    world.run()
    assert handle.result() == "rested"

def test_each_test_has_a_world_of_its_own(world):
    assert world.start(nap, 7).status == "waiting"
"""


def installed(directory: Path) -> Path:
    """What an installer makes of `pyproject.toml`: the environment of these tests may be older than that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = directory / f"perdure-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: perdure\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["pytest11"].items()]
    (about / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]) + "\n")
    return directory


def test_the_plugin_loads_by_itself_and_lightly(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "test_nap.py").write_text(TEST)
    path = os.pathsep.join([str(installed(site)), str(ROOT / "src")])

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nap.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_importing_perdure_loads_nothing_of_the_kit():
    code = "import sys, perdure; print([name for name in sys.modules if name.startswith('perdure.testing')])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_kit_needs_no_pytest():
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from perdure.testing import CrashReport, Run, World, WorldHandle, crash_test, replay\n"
        "with World() as world: print(world.runs())"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
