"""One pass of one workload, in a process of its own: no pass inherits the memory or the warm code of another.

    python -m bench.once W1 perdure DIRECTORY
    python -m bench.once W1 dbos DIRECTORY async 1000

prints the measures as JSON. A peer goes on from here into the interpreter of its own environment, in that style and
with so many runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.measure import Lost, Measures
from bench.workloads import BY_NAME


def main(name: str, system: str, place: str, *style_and_runs: str) -> None:
    try:
        print(json.dumps(_measures(name, system, Path(place), *style_and_runs)))
    except Lost as lost:
        sys.exit(f"{name} on {system}: {lost}")


def _measures(name: str, system: str, place: Path, style: str = "", runs: str = "") -> Measures:
    workload = BY_NAME[name]
    if system in workload.systems:
        return workload.systems[system](place)
    return workload.peers[system].run(place, "async" if style == "async" else "def", int(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
