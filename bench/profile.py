"""Where the time goes: one workload under a profiler, in this process.

    python -m bench.profile W2              the 30 functions with the most time of their own (cProfile)
    python -m bench.profile W2 --by cumtime ... with the most time below them
    python -m bench.profile W2 --cpu        ... in processor time of the loop's thread: nothing that waits
    python -m bench.profile W2 --samples    shares of packages, and of functions with all that they call (samples)
    python -m bench.profile W2 --flame FILE ... and a flame graph of the same samples (SVG)
    python -m bench.profile W2 --gc         no profiler: with and without garbage collection, in turns

Workloads on PostgreSQL (postgres-W2) get a server of their own. cProfile makes functions that call many others look
worse than they are: believe it about order, not about size. Samples cost next to nothing, and are of processor time:
what waits (for the disk, for a server) is not in them. `bench/samples.py` says what they blur.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from bench.measure import Measures
from bench.samples import Samples, flame_graph
from bench.workloads import BY_NAME

TOP: Final = 30
TIMES: Final = 5
PLACE: Final = Path(__file__).parents[1] / "build" / "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description="Where the time of a workload goes.")
    parser.add_argument("name", choices=sorted(BY_NAME))
    parser.add_argument("--by", choices=("tottime", "cumtime", "ncalls"), default="tottime")
    parser.add_argument("--cpu", action="store_true", help="count processor time of this thread only")
    parser.add_argument("--samples", action="store_true", help="shares of packages and functions, by samples")
    parser.add_argument("--flame", metavar="FILE", help="write a flame graph, by samples")
    parser.add_argument("--gc", action="store_true", help="compare with the garbage collector switched off")
    parser.add_argument("--without-gc", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    with _server(options.name):
        if options.gc:
            _compare_gc(options.name)
        elif options.once:
            _once(options.name, collect=not options.without_gc)
        elif options.samples or options.flame:
            _sample(options.name, options.flame)
        else:
            _profile(options.name, options.by, cpu=options.cpu)


def _server(name: str) -> AbstractContextManager[None]:
    if BY_NAME[name].store == "sqlite":
        return nullcontext()
    from bench import server

    return server.running(PLACE)


def _run(name: str) -> Measures:
    with tempfile.TemporaryDirectory(dir=PLACE) as directory:
        return BY_NAME[name].systems["perdure"](Path(directory))


def _profile(name: str, by: str, *, cpu: bool) -> None:
    profiler = cProfile.Profile(time.thread_time) if cpu else cProfile.Profile()
    measures = profiler.runcall(_run, name)
    print({key: round(value, 4) for key, value in measures.items()})
    pstats.Stats(profiler).strip_dirs().sort_stats(by).print_stats(TOP)


def _sample(name: str, file: str | None) -> None:
    _run(name)  # imports, and code that is not warm yet
    with Samples() as samples:
        for _ in range(TIMES):
            _run(name)
    print(f"{samples.total:.2f} s of processor time on the loop's thread, {samples.count:,} samples\n")
    for title, shares in (
        ("by package, its own", samples.by_package()),
        ("by function, with all that it calls", samples.by_function()),
    ):
        print(title)
        for share, where in shares[: 2 * TOP]:
            print(f"{share:7.1%}  {where}")
        print()
    if file is not None:
        Path(file).write_text(flame_graph(samples, f"{name}: processor time of the loop's thread"), "utf-8")
        print(f"written to {file}")


def _once(name: str, *, collect: bool) -> None:
    """Print the main rate or time of one run, and what the collector did meanwhile."""
    pauses: list[float] = []
    if collect:
        _watch(pauses)
    else:
        gc.disable()
    measures = _run(name)
    print(next(iter(measures.values())), sum(pauses), len(pauses))


def _watch(pauses: list[float]) -> None:
    began = 0.0

    def told(phase: str, _info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            pauses.append(time.perf_counter() - began)

    gc.callbacks.append(told)


def _compare_gc(name: str, passes: int = 5) -> None:
    found: dict[bool, list[list[float]]] = {True: [], False: []}
    for _ in range(passes):
        for collect in (True, False):
            command = [sys.executable, "-m", "bench.profile", name, "--once"]
            done = subprocess.run(
                command + ([] if collect else ["--without-gc"]), stdout=subprocess.PIPE, text=True, check=True
            )
            found[collect].append([float(word) for word in done.stdout.split()])
    first = next(iter(BY_NAME[name].figures)).label
    on, off = (statistics.median(run[0] for run in found[collect]) for collect in (True, False))
    seconds = statistics.median(run[1] for run in found[True])
    count = statistics.median(run[2] for run in found[True])
    print(f"{name}, {first}: {on:,.4g} with gc, {off:,.4g} without ({off / on:.2f} x)")
    print(f"gc: {count:.0f} collections, {seconds * 1e3:.0f} ms in a whole run, import and opening included")


if __name__ == "__main__":
    main()
