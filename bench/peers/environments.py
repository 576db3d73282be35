"""The virtual environments of peers, and how a workload runs in one."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from bench.measure import Lost, Measures, Peer, Store

CHECKOUT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = CHECKOUT / "bench" / ".venvs"

PACKAGES: Final = {
    "dbos": ("dbos",),
    "langgraph": (
        "langgraph",
        "langgraph-checkpoint-sqlite",
        "langgraph-checkpoint-postgres",
        "psycopg[binary,pool]",
    ),
}
"""What is installed for each peer: newest releases. The first one gives the version that is quoted."""

TITLES: Final = {"perdure": "perdure", "dbos": "DBOS", "langgraph": "LangGraph"}

SETTINGS: Final[dict[str, dict[Store, str]]] = {
    "dbos": {
        "sqlite": "its defaults, but a pool_timeout of 10 minutes, log_level=ERROR, no admin server; a file that was "
        "put into WAL mode before, in its favour (its own default, journal_mode=delete, is slower); synchronous=FULL, "
        "asked of its connection; it looks for messages every ms, the shortest wait it allows",
        "postgres": "its defaults (a pool of 20), but a pool_timeout of 10 minutes, log_level=ERROR, no admin server; "
        "synchronous_commit=on, asked of its connection; notifications are held back for 1 ms, the shortest time it "
        "allows",
    },
    "langgraph": {
        "sqlite": 'durability="sync"; journal_mode=wal and synchronous=FULL, asked of its connection; one node that '
        "leads back to itself, recursion_limit as high as the runs are long",
        "postgres": 'durability="sync"; synchronous_commit=on, asked of its connection; a pool of 20; one node that '
        "leads back to itself, recursion_limit as high as the runs are long",
    },
}


def peers(
    workload: str, store: Store, runs: int = 0, *, trial_runs: int = 0, of: tuple[str, ...] = tuple(PACKAGES)
) -> dict[str, Peer]:
    """This workload on each of these peers. `runs`: where the workload is about many at once."""
    return {name: Peer(partial(_run, name, workload, store), runs, trial_runs or runs) for name in of}


def _run(name: str, workload: str, store: Store, place: Path, *style_and_runs: str | int) -> Measures:
    if store == "sqlite":
        return _in_its_environment(name, workload, place, f"sqlite:///{place / 'peer.db'}", *style_and_runs)
    from bench import server

    with server.database(f"{name}_{workload.lower()}") as url:
        return _in_its_environment(name, workload, place, url, *style_and_runs)


def _in_its_environment(name: str, workload: str, *arguments: object) -> Measures:
    command = [str(_python(name)), "-m", f"bench.peers.{name}", workload, *map(str, arguments)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        raise Lost((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    measures: Measures = json.loads(done.stdout.splitlines()[-1])
    return measures


def prepare(name: str) -> str:
    """Make the environment, unless it is there; what stands in the way, or nothing."""
    ready = ENVIRONMENTS / name / ".ready"
    if ready.exists() and ready.read_text() == " ".join(PACKAGES[name]):
        return ""
    make = [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENTS / name)]
    install = [str(_python(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[name]]
    for command in (make, install):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            return f"could not be installed: {(done.stdout.strip().splitlines() or ['?'])[-1]}"
    ready.write_text(" ".join(PACKAGES[name]))
    return ""


def version_of(name: str) -> str:
    """Of the release that was measured."""
    packages = ENVIRONMENTS.glob(f"{name}/lib/*/site-packages")
    found = (each.version for path in packages for each in distributions(name=PACKAGES[name][0], path=[str(path)]))
    return next(found, "?")


def _python(name: str) -> Path:
    return ENVIRONMENTS / name / "bin" / "python"
