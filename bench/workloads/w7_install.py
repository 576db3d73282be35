"""W7, install: what `import perdure` takes in time and memory, and what a core install brings in packages and bytes.

All are paid by everybody, in every command and every test run. Imports are measured in fresh interpreters;
packages are counted in a new virtual environment (left out when there is no network to build one).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

from bench.measure import Bar, Figure, Measures, Workload, resident, verify

INTERPRETERS = 10
CHECKOUT = Path(__file__).parents[2]
COUNT = """
import importlib.metadata
for each in importlib.metadata.distributions():
    files = [file.locate() for file in each.files or ()]
    print(each.name, sum(file.stat().st_size for file in files if file.is_file()))
"""
MEMORY = "import perdure; print(open('/proc/self/status').read(), end='')"
TOOLS = {"pip", "setuptools", "wheel"}


def on_perdure(place: Path) -> Measures:
    return {**_imports(), **_memory(), **_packages(place)}


def _imports() -> Measures:
    """In turns with an empty interpreter, whose time is taken off."""
    empty, loaded, told = [], [], []
    for _ in range(INTERPRETERS):
        empty.append(_interpreter("-c", "pass")[0])
        loaded.append(_interpreter("-c", "import perdure")[0])
        told.append(_import_time(_interpreter("-X", "importtime", "-c", "import perdure")[1]))
    return {
        "import": statistics.median(loaded) - statistics.median(empty),
        "importtime": statistics.median(told),
        "empty": statistics.median(empty),
    }


def _interpreter(*arguments: str) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, done.stderr


def _import_time(report: str) -> float:
    """The cumulative time of the line of `perdure` itself: `import time: self | cumulative | name`, in µs."""
    for line in report.splitlines():
        columns = [column.strip() for column in line.removeprefix("import time:").split("|")]
        if columns[-1] == "perdure":
            return int(columns[1]) / 1e6
    verify(False, "the interpreter did not report the import of perdure")
    return 0.0


def _memory() -> Measures:
    """Of an interpreter that has imported perdure and nothing else; nothing where there is no /proc."""
    if not Path("/proc/self/status").exists():
        return {}
    told = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    return {"rss": resident(told)["rss"]}


def _packages(place: Path) -> Measures:
    home = place / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(CHECKOUT)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"    packages are not counted: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return {}
    told = subprocess.run([python, "-c", COUNT], capture_output=True, text=True, check=True).stdout
    sizes = {name: int(size) for name, size in map(str.split, told.splitlines()) if name not in TOOLS}
    verify("perdure" in sizes, f"perdure was not installed: {sizes}")
    return {"packages": len(sizes), "size": sum(sizes.values())}


WORKLOAD = Workload(
    "W7-install",
    "import and install",
    (
        Figure("import, wall time above an empty interpreter", "import", "ms", bar=Bar("<", 0.150)),
        Figure("import, by -X importtime", "importtime", "ms"),
        Figure("an empty interpreter", "empty", "ms"),
        Figure("memory of an interpreter that has imported it, before anything is used", "rss", "MB"),
        Figure("packages of a core install, itself included", "packages", bar=Bar("<=", 10)),
        Figure("their size, bytecode included", "size", "MB"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
