"""`python -m bench`: run workloads in turns and print a table. `--help` says what can be chosen."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Final

from bench import floor, report
from bench.measure import Measures, Pass, Workload
from bench.workloads import BY_NAME, GROWTH, POSTGRES, QUICK, STANDARD

CHECKOUT: Final = Path(__file__).parents[1]
RESULTS: Final = CHECKOUT / "bench" / "RESULTS.md"
NO_FLOOR: Final[Measures] = {}


def main() -> int:
    options = _options()
    chosen = _chosen(options)
    if len({workload.store for workload in chosen}) > 1:
        sys.exit("one run is on SQLite or on PostgreSQL, not on both: python -m bench, python -m bench postgres")
    place = Path(options.dir) if options.dir else CHECKOUT / "build" / "bench"  # `make clean` knows build/
    place.mkdir(parents=True, exist_ok=True)
    if chosen[0].store == "postgres":
        from bench import server

        with server.running(place):
            return _run(options, chosen, place)
    return _run(options, chosen, place)


def _run(options: argparse.Namespace, chosen: list[Workload], place: Path) -> int:
    load = os.getloadavg()[0]
    store = chosen[0].store
    settings = report.settings(place, options.passes, store)
    floors: list[Pass] = []
    found: dict[tuple[str, str], list[Pass]] = {}
    for number in range(options.passes):
        _say(f"pass {number + 1} of {options.passes}: floor")
        floors.append(Pass(_floor_of(store).whole(place), NO_FLOOR))
        for workload in chosen:
            if workload.once and number > 0:
                continue
            for system in workload.systems:
                _say(f"pass {number + 1} of {options.passes}: {workload.name} on {system}")
                one = _pass(workload, system, place)
                if one is None:
                    return 1
                found.setdefault((workload.name, system), []).append(one)
    runs = [(BY_NAME[name], system, passes) for (name, system), passes in found.items()]
    table = list(report.rows(floors, runs, store))
    if options.json:
        print(json.dumps(report.as_data(floors, runs, settings), indent=1))
    else:
        print(report.as_text(table))
        for title, lines in report.curves(runs):
            print(f"\n{title}\n{report.curve_as_text(lines)}")
    warning = report.busy(floors, load)
    _say(warning)
    if chosen in (list(STANDARD), list(POSTGRES)) and not options.json:
        before = RESULTS.read_text("utf-8") if RESULTS.exists() else ""
        section = report.section(table, runs, settings, warning, store)
        RESULTS.write_text(report.document(before, section, store), "utf-8")
        _say(f"written to {RESULTS}")
    return 0


def _pass(workload: Workload, system: str, place: Path) -> Pass | None:
    """One pass between two looks at the floor; None: the workload lost something, or could not run."""
    before = _floor_of(workload.store).beside(place) if workload.needs_floor else NO_FLOOR
    with tempfile.TemporaryDirectory(dir=place) as directory:
        command = [sys.executable, "-m", "bench.once", workload.name, system, directory]
        done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        _say(f"FAILED: {workload.name} on {system}; nothing is reported")
        return None
    after = _floor_of(workload.store).beside(place) if workload.needs_floor else NO_FLOOR
    return Pass(json.loads(done.stdout), floor.mean(before, after))


def _floor_of(store: str) -> ModuleType:
    if store == "sqlite":
        return floor
    from bench import floor_postgres

    return floor_postgres


def _chosen(options: argparse.Namespace) -> list[Workload]:
    """Names are beginnings: `W7` is both parts of it."""
    if options.names:
        chosen = [w for name, w in BY_NAME.items() if name.lower().startswith(tuple(map(str.lower, options.names)))]
        if not chosen:
            sys.exit(f"no workload is named {' '.join(options.names)}; there are: {', '.join(BY_NAME)}")
        return chosen
    chosen = list(QUICK if options.quick else STANDARD)
    return chosen + list(GROWTH) if options.growth else chosen


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure perdure against the floor of its store."
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="workloads, such as W2; postgres: all on PostgreSQL (default: W1 to W7, R1, R2, C1)",
    )
    parser.add_argument("--quick", action="store_true", help="W1 to W3, R1 and R2 in small, 3 passes: a minute")
    parser.add_argument("--growth", action="store_true", help="W8, C2 and C3 as well: how costs grow")
    parser.add_argument("--passes", type=int, help="how often (default 5)")
    parser.add_argument("--dir", help="where databases are made: names the disk (default: build/bench of the checkout)")
    parser.add_argument("--json", action="store_true", help="every measure of every pass, as JSON")
    options = parser.parse_args()
    options.passes = options.passes or (3 if options.quick else 5)
    return options


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
