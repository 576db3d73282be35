"""A tool that another package brings: playbooks check and run it like ours."""

import json
import os
import subprocess
import sys

TOOL = '''
import msgspec
from perdure.tools import Told, Tool

class Params(msgspec.Struct):
    """Ask the depot for a shelf."""
    shelf: str
    floor: int = 5

async def run(params, call):
    return Told(f"{params.shelf}/{params.floor}")

DEPOT = Tool("depot", Params, run)
'''
BOOK = """
apiVersion: perdure/v1
kind: Playbook
metadata: {name: p}
workflow: [{step: a, tool: {kind: depot, shelf: '{{ instance.key }}', %s}}]
"""


def perdure(*words, site):
    command = [sys.executable, "-m", "perdure", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": site})


def test_a_package_brings_a_tool(tmp_path):
    site = tmp_path / "site"
    about = site / "depot-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: depot\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[perdure.tools]\ndepot = depot_tool:DEPOT\n")
    (site / "depot_tool.py").write_text(TOOL)
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(BOOK % "floor: 3")
    bad.write_text(BOOK % "flor: 3")

    refused = perdure("check", str(bad), site=str(site))
    ran = perdure("run", str(good), "--key", "k", "--json", site=str(site))

    assert refused.returncode == 1
    assert "action has no key flor; did you mean floor?" in refused.stdout
    assert json.loads(ran.stdout)["result"] == "k/3", ran.stderr
