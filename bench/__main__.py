"""`python -m bench`: measure perdure and its peers in turns, and write down what was found.

`--help` says what can be chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Final

from bench import floor, render, report, results
from bench.measure import Lost, Measures, Pass, Store, Style, Workload
from bench.peers import environments
from bench.results import Part, Run
from bench.settings import settings
from bench.workloads import BY_NAME, PARTS, QUICK

CHECKOUT: Final = Path(__file__).parents[1]
PASSES: Final = 3
STYLES: Final[tuple[Style, ...]] = ("def", "async")


def main() -> int:
    options = _options()
    place = Path(options.dir) if options.dir else CHECKOUT / "build" / "bench"  # `make clean` knows build/
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"no databases can be made in {place}: {error}")
    load = os.getloadavg()[0]  # before any of this: a part makes a load for the next one
    for name, workloads in _chosen(options.names):
        began = time.monotonic()
        try:
            part = _measure(workloads, place, options.passes, load, alone=options.alone or name == "quick")
        except Lost as lost:
            _say(f"FAILED: {lost}; nothing of this part is reported")
            return 1
        _say(f"took {(time.monotonic() - began) / 60:.1f} minutes")
        print(json.dumps(results.as_data(part), indent=1) if options.json else report.as_text(part))
        if name in PARTS and not options.alone:
            results.save({**results.load(), name: part})
            render.main()
    return 0


def _measure(workloads: Sequence[Workload], place: Path, passes: int, load: float, *, alone: bool) -> Part:
    stores: list[Store] = [store for store in ("sqlite", "postgres") if any(each.store == store for each in workloads)]
    peers = [] if alone else list(dict.fromkeys(name for workload in workloads for name in workload.peers))
    missing = {name: reason for name in peers if (reason := _prepare(name))}
    with ExitStack() as stack:
        if "postgres" in stores:
            from bench import server

            stack.enter_context(server.running(place))
        noise = {"cores": os.cpu_count() or 1, "load before": load}
        part = Part(settings(place, passes, stores, peers), noise, {store: [] for store in stores}, [])
        for number in range(passes):
            for store in stores if number == 0 or not all(each.once for each in workloads) else ():
                _say(f"pass {number + 1} of {passes}: floor of {store}")
                part.floors[store].append(_floor_of(store).whole(place))
            for workload in workloads:
                if number == 0 or not workload.once:
                    for run in _runs(part, workload, peers, missing):
                        _say(f"pass {number + 1} of {passes}: {workload.name} on {environments.TITLES[run.system]}")
                        _pass(run, workload, place)
        part.noise["load after"] = os.getloadavg()[0]
    return part


def _prepare(peer: str) -> str:
    _say(f"environment of {environments.TITLES[peer]}")
    reason = environments.prepare(peer)
    if reason:
        _say(f"    {reason}; it is left out")
    return reason


def _runs(part: Part, workload: Workload, peers: Sequence[str], missing: dict[str, str]) -> Iterator[Run]:
    """perdure and its peers, as far as they can run this workload; what they found goes into the part."""
    for system in ("perdure", *(peer for peer in peers if peer in workload.peers)):
        run = part.of(workload.name, system)
        if run is None:
            run = Run(workload.name, system, missing=missing.get(system, ""))
            part.runs.append(run)
        if not run.missing:
            yield run


def _pass(run: Run, workload: Workload, place: Path) -> None:
    """One more pass of this run, between two looks at the floor."""
    beside = _floor_of(workload.store).beside
    before = beside(place) if workload.needs_floor else {}
    try:
        measures = _once(run, place) if run.system == "perdure" else _once_of_peer(run, workload, place)
    except Lost as lost:
        if run.system == "perdure":
            raise
        _say(f"    {lost}; it is left out")
        run.missing = str(lost)
        return
    after = beside(place) if workload.needs_floor else {}
    run.passes.append(Pass(measures, floor.mean(before, after)))


def _once_of_peer(run: Run, workload: Workload, place: Path) -> Measures:
    peer, versus = workload.peers[run.system], workload.versus
    assert versus is not None
    if run.style is not None or not peer.styled:
        return _once(run, place, run.style or STYLES[0], peer.runs)
    tried = dict(_in_each_style(run, place, peer.trial_runs))
    first = next(iter(tried.values()))
    style = max(tried, key=lambda each: versus.times(tried[each], first))
    run.style = style
    run.tried = {each: measures[versus.measure] for each, measures in tried.items()}
    return tried[style] if peer.trial_runs == peer.runs else _once(run, place, style, peer.runs)


def _in_each_style(run: Run, place: Path, runs: int) -> Iterator[tuple[Style, Measures]]:
    """As far as they come through: one of them must."""
    failed: list[Lost] = []
    for style in STYLES:
        try:
            yield style, _once(run, place, style, runs)
        except Lost as lost:
            failed.append(lost)
            _say(f"    with {style}: {lost}")
    if len(failed) == len(STYLES):
        raise failed[0]


def _once(run: Run, place: Path, *style_and_runs: str | int) -> Measures:
    with tempfile.TemporaryDirectory(dir=place) as directory:
        command = [sys.executable, "-m", "bench.once", run.workload, run.system, directory, *map(str, style_and_runs)]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        raise Lost((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    measures: Measures = json.loads(done.stdout)
    return measures


def _floor_of(store: Store) -> ModuleType:
    if store == "sqlite":
        return floor
    from bench import floor_postgres

    return floor_postgres


def _chosen(names: Sequence[str]) -> Iterator[tuple[str, Sequence[Workload]]]:
    """Parts by their names; workloads by the beginnings of theirs, all together: `W7` is both halves of it."""
    if names == ["quick"]:
        yield "quick", QUICK
        return
    for name in names or PARTS:
        if name in PARTS:
            yield name, PARTS[name]
    starts = tuple(name.lower() for name in names if name not in PARTS)
    some = [workload for name, workload in BY_NAME.items() if starts and name.lower().startswith(starts)]
    if starts and not some:
        sys.exit(f"nothing is named {' '.join(starts)}; there are: {', '.join((*PARTS, 'quick', *BY_NAME))}")
    if some:
        yield "some", some


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure perdure and its peers, side by side, and against the floor of their store.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a part (sqlite, postgres, growth, server), which is written to bench/results.json and RESULTS.md; or "
        "workloads, such as W2, or quick (W1 to W3 on SQLite, perdure alone), which are printed only. Default: all",
    )
    parser.add_argument("--alone", action="store_true", help="perdure without its peers; nothing is written")
    parser.add_argument("--passes", type=int, default=PASSES, help=f"how often (default {PASSES})")
    parser.add_argument("--dir", help="where databases are made: names the disk (default: build/bench of the checkout)")
    parser.add_argument("--json", action="store_true", help="every measure of every pass, as JSON")
    options = parser.parse_args()
    if options.passes < 1:
        parser.error("--passes: one pass is the least")
    return options


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
