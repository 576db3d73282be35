"""W6 for all systems: what a killed process had done, and the kill itself.

Each execution of a step leaves a record in a plain file, which survives the kill (the machine goes on). In the
process that is to be killed, the step after the first `W6_DONE` of each run never ends. So when all runs have left
the record of that step, each of them has exactly that many steps behind it that were recorded, and one under way,
which must run again.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Final

from bench.measure import verify
from bench.sizes import W6_DONE, W6_RUNS, W6_STEPS

RECORD: Final = struct.Struct("<II")
PATIENCE_SECONDS: Final = 300

_file = -1  # in the process that executes
_stops = False


def begin(place: Path, *, stops: bool) -> None:
    """Before anything is executed. `stops`: this is the process that will be killed."""
    global _file, _stops  # noqa: PLW0603  # steps take plain data only, and this is none
    _file = os.open(place / "records", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    _stops = stops


def note(run: int, step: int) -> bool:
    """Called by each step: True if it must not end."""
    os.write(_file, RECORD.pack(run, step))
    return _stops and step == W6_DONE


def kill_in_the_middle(command: list[str], place: Path, runs: int = W6_RUNS) -> None:
    """Start a process that runs them, and kill it when each has done its half."""
    child = subprocess.Popen(command)
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while _size(place) < runs * (W6_DONE + 1) * RECORD.size:
            verify(child.poll() is None, "the process ended before it could be killed")
            verify(time.monotonic() < deadline, f"half of the steps took longer than {PATIENCE_SECONDS} s")
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    done = _executed(place)
    half = {(run, step): 1 for run in range(runs) for step in range(W6_DONE + 1)}
    verify(done == half, "the runs were not all half-done when the process was killed")


def verify_all_done(place: Path, results: list[int], runs: int = W6_RUNS) -> None:
    """Each step once, and once more only what was under way."""
    verify(
        results == [run + sum(range(W6_STEPS)) for run in range(runs)], "the runs gave other results than they should"
    )
    whole = {(run, step): 2 if step == W6_DONE else 1 for run in range(runs) for step in range(W6_STEPS)}
    verify(_executed(place) == whole, "steps were lost, or ran again though they were recorded")


def _size(place: Path) -> int:
    file = place / "records"
    return file.stat().st_size if file.exists() else 0


def _executed(place: Path) -> Counter[tuple[int, ...]]:
    return Counter(RECORD.iter_unpack((place / "records").read_bytes()))
