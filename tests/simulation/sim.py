"""The simulation from the command line: thousands of small worlds, each from one seed.

    python -m tests.simulation.sim --seeds 20000          counts, and one line for each seed that fails
    python -m tests.simulation.sim --seed 123 --story     what happened in that world

A schedule is one workload under one profile of faults. The faults stop after a while; then everything
must come to the end that it has in a calm world.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from perdure.kernel import snapshot
from perdure.kernel.events import Address
from perdure.testing.auditor import Violation
from perdure.testing.disks import Disk
from perdure.testing.faults import FATES, MILLISECOND, Faults
from perdure.testing.simulation import Simulation, quiet_log
from tests.simulation.workers import QUEUE
from tests.simulation.workloads import WORKLOADS, Expected, Workload, verdict

CHUNK = 100
"""Worlds between two looks at the garbage, and in one piece of work for another core."""

FIRST = 21
"""How many of the workloads there were when seeds began to be written down."""

LATER = {8: slice(FIRST, 23), 7: slice(23, 24), 6: slice(24, 25), 5: slice(25, None)}
"""Those that came later, each with the tens of every hundred seeds that are theirs: eighties, then seventies, ..."""


class Verdict(NamedTuple):
    seed: int
    workload: str
    profile: str
    error: str  # empty: all is well
    counts: Counter[str]

    @property
    def summary(self) -> str:
        """The error in one line."""
        lines = self.error.strip().splitlines() or [""]
        return lines[-1] if self.error.startswith("Traceback") else lines[0]


# ---- what goes wrong in a seed -------------------------------------------------------------------------


def _calm(dice: random.Random) -> Faults:
    return Faults(late_commit=0.3, late_load=0.1)


def _one_crash(dice: random.Random) -> Faults:
    """Exactly one fault, at one commit: over many seeds, every kind at every commit."""
    return Faults(commits={dice.randrange(1, 15): dice.choice(FATES[:-1])}, late_commit=0.2)


def _storm(dice: random.Random) -> Faults:
    """A bit of everything."""
    often: tuple[float, ...] = (0.0, 0.03, 0.1)
    return Faults(
        crash_before=dice.choice(often),
        crash_after=dice.choice(often),
        crash_inside=dice.choice(often),
        false_error=dice.choice(often),
        true_error=dice.choice(often),
        late_commit=dice.choice((0.0, 0.4)),
        late_load=dice.choice((0.0, 0.0, 0.3)),
        read_error=dice.choice((0.0, 0.0, 0.02)),
        kill=dice.choice((0.0, 0.1)),
        zombie=dice.choice((0.0, 0.1)),
        restart=dice.choice((0.0, 0.0, 0.1)),
        jump=dice.choice((0.0, 0.1)),
        duplicate=dice.choice((0.0, 0.3)),
        remote=dice.choice((0.0, 0.3)),
        delay=dice.choice((0.0, 0.2)),
        lost=dice.choice((0.0, 0.1)),
    )


def _zombies(dice: random.Random) -> Faults:
    return Faults(zombie=0.3, late_commit=0.4, remote=0.2, delay=0.1)


def _post(dice: random.Random) -> Faults:
    """Slow and repetitive mail."""
    return Faults(duplicate=0.5, remote=0.5, delay=0.4, kill=0.05)


def _deaths(dice: random.Random) -> Faults:
    return Faults(kill=0.25, lost=0.15, restart=0.15, jump=0.1, crash_after=0.03)


PROFILES: tuple[tuple[str, Callable[[random.Random], Faults]], ...] = (
    ("calm", _calm),
    ("one crash", _one_crash),
    ("one crash", _one_crash),
    ("storm", _storm),
    ("storm", _storm),
    ("zombies", _zombies),
    ("mail", _post),
    ("deaths", _deaths),
)


# ---- one seed ------------------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[Workload, tuple[str, Callable[[random.Random], Faults]]]:
    """What a seed means: a workload and a profile of faults.

    Workloads that came later have some tens of every hundred, so that other seeds mean for ever what they meant.
    """
    among, tens = WORKLOADS[:FIRST], seed % 100 // 10
    if tens in LATER:
        among, seed = WORKLOADS[LATER[tens]], seed // 100 * 10 + seed % 10
    return among[seed % len(among)], PROFILES[(seed // len(among)) % len(PROFILES)]


def simulate(seed: int, story: Callable[[str], None] | None = None, disk: Disk | None = None) -> Verdict:
    """Run one world to its end."""
    dice = random.Random(seed * 7919 + 1)
    workload, (profile, make) = drawn(seed)
    faults = make(dice)
    faults.cache = dice.choice((0, 1, 4096))
    faults.snapshots = dice.random() < 0.5
    slots = {"inline": dice.choice((None, None, 2)), "thread": dice.choice((None, 1, 2))}
    if workload.workers and disk is not None:  # on a file the engine serves the queue
        slots[QUEUE] = dice.choice((1, 3))
    world: Simulation | None = None
    error = ""
    with small_snapshots(faults.snapshots), quiet_log():
        try:
            world = workload.simulation(seed=seed, faults=faults, slots=slots, story=story, disk=disk)
            if story is not None:
                story(f"workload {workload.name}, profile {profile}, {faults}, slots {slots}")
            _live(world, workload, dice)
        except Violation as violation:
            error = str(violation)
        except Exception:
            error = traceback.format_exc()
        finally:
            if world is not None:
                for process in world.processes:
                    process.die()
    counts: Counter[str] = Counter()
    if world is not None:
        counts = world.counts
        counts["steps"] = world.steps
    if error and story is not None:
        story(f"VIOLATION: {error}")
    return Verdict(seed, workload.name, profile, error, counts)


def _live(world: Simulation, workload: Workload, dice: random.Random) -> None:
    expected = workload.begin(world)
    for _ in range(dice.randrange(8, 16)):
        world.advance(dice.randrange(10, 80) * MILLISECOND / 1e9 * (10 if workload.workers else 1))
        world.mischief()
        if dice.random() < 0.05:
            world.auditor.replay_all(whole=False)
        if world.quiet:
            break
    world.run()
    check(world, expected)
    if dice.random() < 0.2:
        world.auditor.replay_all(whole=True)


def check(world: Simulation, expected: Expected) -> None:
    """Every instance has come to the end that it has in a calm world."""
    for (name, key), value in expected.items():
        workflow = world.workflows.newest(name)
        assert workflow is not None
        wrong = verdict(value, world.auditor.outcome(Address(name, key)), workflow.decode_result)
        if wrong:
            raise Violation(f"{name}/{key} {wrong}")


@contextmanager
def small_snapshots(wanted: bool) -> Iterator[None]:
    before = snapshot.SIZE_MIN
    if wanted:
        snapshot.SIZE_MIN = 100  # type: ignore[misc]
    try:
        yield
    finally:
        snapshot.SIZE_MIN = before  # type: ignore[misc]


# ---- many seeds ----------------------------------------------------------------------------------------


def survey(seeds: range, progress: Callable[[int, int], None] = lambda *_: None) -> tuple[list[Verdict], Counter[str]]:
    """Run many worlds. The answer is those that failed, and what happened in all of them together."""
    failed: list[Verdict] = []
    totals: Counter[str] = Counter()
    collecting = gc.isenabled()
    gc.disable()  # worlds die whole: collecting them every few hundred is much cheaper
    try:
        for done, seed in enumerate(seeds):
            found = simulate(seed)
            totals["schedules"] += 1
            totals.update(found.counts)
            if found.error:
                failed.append(found)
            if done % CHUNK == CHUNK - 1:
                gc.collect()
                progress(done + 1, len(failed))
    finally:
        if collecting:
            gc.enable()
    return failed, totals


def survey_in_parallel(
    seeds: range, jobs: int, progress: Callable[[int, int], None]
) -> tuple[list[Verdict], Counter[str]]:
    """The same on several cores: worlds know nothing of each other."""
    chunks = [seeds[n : n + CHUNK] for n in range(0, len(seeds), CHUNK)]
    failed: list[Verdict] = []
    totals: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        for wrong, counts in pool.map(survey, chunks):
            failed += wrong
            totals.update(counts)
            progress(totals["schedules"], len(failed))
    return failed, totals


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.sim", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=2000, help="how many worlds")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--story", action="store_true", help="tell what happens")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options.seed, options.story)
    return _many(range(options.first, options.first + options.seeds), options.jobs)


def _one(seed: int, story: bool) -> int:
    found = simulate(seed, print if story else None)
    if found.error:
        print(f"{found.workload}, {found.profile}: {found.error}")
    print("0 passed, 1 failed" if found.error else "1 passed, 0 failed")
    return 1 if found.error else 0


def _many(seeds: range, jobs: int) -> int:
    begun = time.monotonic()
    terminal = sys.stderr.isatty()

    def progress(done: int, failed: int) -> None:
        if terminal:
            rate = done / (time.monotonic() - begun)
            line = f"\r{done}/{len(seeds)} worlds, {failed} failed, {rate:.0f} a second "
            print(line, end="", file=sys.stderr, flush=True)

    many = jobs > 1 and len(seeds) > CHUNK
    failed, totals = survey_in_parallel(seeds, jobs, progress) if many else survey(seeds, progress)
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr)
    width = max(map(len, totals), default=0)
    for name in sorted(totals, key=lambda name: (name != "schedules", name)):
        print(f"{name:{width}} {totals[name]:>12,}")
    for found in failed:
        print(f"# {found.workload}, {found.profile}: {found.summary[:300]}")
        print(f"python -m tests.simulation.sim --seed {found.seed} --story")
    took = time.monotonic() - begun
    print(f"{len(seeds)} worlds in {took:.1f} s, {len(seeds) / took:.0f} a second")
    print(f"{len(seeds) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
