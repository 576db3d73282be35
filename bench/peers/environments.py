"""The virtual environments of peers, and how a workload runs in one."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from bench.measure import Measures

CHECKOUT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = CHECKOUT / "bench" / ".venvs"


def python_of(package: str) -> Path:
    """The interpreter of an environment that has this package, its newest release when the environment was made."""
    environment = ENVIRONMENTS / package
    python = environment / "bin" / "python"
    if not (environment / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        subprocess.run(install, check=True, stdout=sys.stderr)
        (environment / ".ready").touch()
    return python


def run(package: str, workload: str, *arguments: str) -> Measures:
    command = [str(python_of(package)), "-m", f"bench.peers.{package}", workload, *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
    measures: Measures = json.loads(done.stdout.splitlines()[-1])
    return measures


def version_of(package: str) -> str:
    """Of the release that was measured."""
    packages = ENVIRONMENTS.glob(f"{package}/lib/*/site-packages")
    found = (each.version for path in packages for each in distributions(name=package, path=[str(path)]))
    return next(found, "?")
