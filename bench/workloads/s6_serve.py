"""S6: how soon `perdure serve` answers, what `perdure[server]` adds to an install, and what stays as it was.

`serve` is started as people start it, with a module that has one flow and a new database, and asked until it is ready.
Packages are those of a new virtual environment, before and after the extra.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from bench.measure import Bar, Figure, Lost, Measures, Workload, verify

from .w7_install import CHECKOUT, _above_empty, _install, _packages

TIMES: Final = 7
MODULE: Final = """
import perdure

@perdure.flow
async def order(ctx):
    pass
"""
SERVER: Final = (
    "import sys, perdure; sys.exit(any(name.startswith(('perdure.server', 'uvicorn')) for name in sys.modules))"
)


def on_perdure(place: Path) -> Measures:
    found = {"bare": _above_empty(Path(sys.executable), "import perdure")}
    loads = subprocess.run([sys.executable, "-c", SERVER], check=False).returncode
    verify(loads == 0, "`import perdure` imports the server")
    (place / "shop.py").write_text(MODULE)
    found["ready"] = statistics.median(_ready(place, n) for n in range(TIMES))
    try:
        return found | _added(place)
    except Lost as lost:
        print(f"    packages are not counted: {lost}", file=sys.stderr)
        return found


def _ready(place: Path, n: int) -> float:
    """Seconds from the command until `ready` is 200."""
    port = 20_000 + os.getpid() % 10_000 + n
    command = [sys.executable, "-m", "perdure", "serve", "shop", "--db", f"{n}.db", "--listen", f"127.0.0.1:{port}"]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.perf_counter() - began < 60:
            verify(process.poll() is None, "`perdure serve` has ended")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=10):
                    return time.perf_counter() - began
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.005)
        raise Lost("`perdure serve` was not ready after a minute")
    finally:
        process.terminate()
        process.wait()


def _added(place: Path) -> Measures:
    python = _install("perdure", place)
    before = _packages("perdure", python)
    more = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{CHECKOUT}[server]"]
    done = subprocess.run(more, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Lost(f"could not be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    after = _packages("perdure", python)
    return {name: after[name] - before[name] for name in before}


WORKLOAD = Workload(
    "S6-serve",
    "`perdure serve`, and what it brings",
    (
        Figure("until it is ready", "ready", "s", bar=Bar("<=", 1.5)),
        Figure("packages that `perdure[server]` adds", "packages", bar=Bar("<=", 8)),
        Figure("their size, bytecode included", "size", "MB", bar=Bar("<=", 6e6)),
        Figure("`import perdure` alone", "bare", "ms", bar=Bar("<", 0.150)),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
