"""W7, install: what an import takes in time and memory, and what an install brings in packages and bytes.

All are paid by everybody, in every command and every test run. Each system is installed into a new virtual environment,
with what it needs for a file of SQLite and nothing else, and imported there by fresh interpreters. `import perdure`
alone loads little: names are imported when they are first used. Compared is what a program with a workflow loads.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import venv
from functools import partial
from pathlib import Path
from typing import Final

from bench.measure import Bar, Figure, Lost, Measures, Peer, Style, Versus, Workload, resident, verify

INTERPRETERS: Final = 10
CHECKOUT: Final = Path(__file__).parents[2]

INSTALLED: Final = {
    "perdure": (str(CHECKOUT),),
    "dbos": ("dbos",),
    "langgraph": ("langgraph", "langgraph-checkpoint-sqlite"),
}
PROGRAMS: Final = {
    "perdure": "import perdure, perdure.stores.sqlite; perdure.open, perdure.flow, perdure.Context",
    "dbos": "from dbos import DBOS, DBOSConfig",
    "langgraph": "from langgraph.graph import StateGraph; from langgraph.checkpoint.sqlite import SqliteSaver",
}
"""What a program with one workflow imports, as the documentation of each begins."""

COUNT: Final = """
import importlib.metadata
for each in importlib.metadata.distributions():
    files = [file.locate() for file in each.files or ()]
    print(each.name, sum(file.stat().st_size for file in files if file.is_file()))
"""
TOOLS: Final = {"pip", "setuptools", "wheel"}


def on_perdure(place: Path) -> Measures:
    """Where nothing can be installed, the environment of this run is imported from, and packages are not counted."""
    try:
        python = _install("perdure", place)
        counted = _packages("perdure", python)
    except Lost as lost:
        print(f"    packages are not counted: {lost}", file=sys.stderr)
        python, counted = Path(sys.executable), {}
    return {**_import("perdure", python), **counted, "bare": _above_empty(python, "import perdure")}


def _on_peer(name: str, place: Path, style: Style, runs: int) -> Measures:
    python = _install(name, place)
    return {**_import(name, python), **_packages(name, python)}


def _import(name: str, python: Path) -> Measures:
    program = PROGRAMS[name]
    return {"import": _above_empty(python, program), **_memory(python, program)}


def _install(name: str, place: Path) -> Path:
    """The interpreter of a new environment."""
    venv.create(place / "venv", with_pip=True)
    python = place / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *INSTALLED[name]]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Lost(f"could not be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return python


def _above_empty(python: Path, program: str) -> float:
    """Seconds, in turns with an empty interpreter, whose time is taken off."""
    empty, loaded = [], []
    for _ in range(INTERPRETERS):
        empty.append(_seconds(python, "pass"))
        loaded.append(_seconds(python, program))
    return statistics.median(loaded) - statistics.median(empty)


def _seconds(python: Path, program: str) -> float:
    began = time.perf_counter()
    _run(python, program)
    return time.perf_counter() - began


def _memory(python: Path, program: str) -> Measures:
    """Of an interpreter that has imported that and nothing else; nothing where there is no /proc."""
    if not Path("/proc/self/status").exists():
        return {}
    return {"rss": resident(_run(python, f"{program}; print(open('/proc/self/status').read(), end='')"))["rss"]}


def _packages(name: str, python: Path) -> Measures:
    told = _run(python, COUNT)
    sizes = {name: int(size) for name, size in map(str.split, told.splitlines()) if name not in TOOLS}
    verify(name in sizes, f"{name} was not installed: {sizes}")
    return {"packages": len(sizes), "size": sum(sizes.values())}


def _run(python: Path, program: str) -> str:
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout


WORKLOAD = Workload(
    "W7-install",
    "import and install",
    (
        Figure("what a program with a workflow imports, above an empty interpreter", "import", "ms"),
        Figure("`import perdure` alone", "bare", "ms", bar=Bar("<", 0.150)),
        Figure("memory after that import, before anything is used", "rss", "MB"),
        Figure("packages of an install for SQLite, itself included", "packages", bar=Bar("<=", 10)),
        Figure("their size, bytecode included", "size", "MB"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
    peers={name: Peer(partial(_on_peer, name), 0, 0, styled=False) for name in INSTALLED if name != "perdure"},
    versus=Versus("import", "import", "time"),
)
