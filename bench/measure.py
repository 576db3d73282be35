"""What all workloads share: figures and bars, percentiles, and the check that nothing was lost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal

Measures = dict[str, float]
"""What one pass of one workload found: numbers by name, times in seconds, sizes in bytes."""

System = Callable[[Path], Measures]
"""One pass of a workload on one system, with its files in an empty directory that is removed afterwards."""


class Lost(Exception):
    """A workload did its work wrongly: something was lost, doubled or changed. Its time does not count."""


def verify(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Lost(otherwise)


@dataclass(frozen=True)
class Bar:
    """What the median should reach. A bar is a wish on paper: missing it is printed and fails nothing."""

    sign: Literal[">=", "<=", "<"]
    value: float
    why: str = ""  # printed where the bar is missed: what stands in the way, and where that was found

    def met(self, value: float) -> bool:
        if self.sign == ">=":
            return value >= self.value
        return value <= self.value if self.sign == "<=" else value < self.value


NOISE: Final = Random(9).randbytes(1_000_000)

Store = Literal["sqlite", "postgres"]
Unit = Literal["/s", "µs", "ms", "s", "KB", "MB", "%", "x", "commits", ""]


@dataclass(frozen=True)
class Figure:
    """One line of the table, from one measure of each pass.

    `of`: plain; a rate as a share or multiple of the floor's rate; a time in commits of the floor. Where the workload
    found that out itself, with commits between its own pieces (`steps_share`, `p50_commits`), that counts; else the
    floor around the pass does.
    """

    label: str
    measure: str
    unit: Unit = ""
    of: Literal["plain", "rate", "commits"] = "plain"
    floor: str = "commits"  # which of the floor's rates
    bar: Bar | None = None

    def values(self, passes: Sequence[Pass]) -> list[float]:
        """One value per pass, each against the floor of that very pass."""
        return [value for one in passes if (value := self._value(one)) is not None]

    def _value(self, one: Pass) -> float | None:
        value = one.measures.get(self.measure)
        if self.of == "plain" or value is None:
            return value
        own = one.measures.get(f"{self.measure}_{'share' if self.of == 'rate' else 'commits'}")
        rate = one.floor.get(self.floor)
        if own is not None or rate is None:
            return own
        return value / rate if self.of == "rate" else value * rate


@dataclass(frozen=True)
class Pass:
    measures: Measures
    floor: Measures  # measured right before and right after


@dataclass(frozen=True)
class Curve:
    """How some figures go along a workload: of the figure `rss`, point 3 is the measure `rss@3`."""

    along: str
    points: Mapping[int, str]  # what each point is called
    figures: tuple[Figure, ...]


Style = Literal["def", "async"]
"""How the functions of a peer's workload are written. The faster one counts."""


@dataclass(frozen=True)
class Peer:
    """A workload on another engine, in one style and with so many runs; `bench.peers.environments.peers` makes them.

    Both styles are tried in the first pass, with `trial_runs`, and the faster one goes on; unless the workload has no
    functions whose style could matter.
    """

    run: Callable[[Path, Style, int], Measures]
    runs: int
    trial_runs: int
    styled: bool = True


@dataclass(frozen=True)
class Versus:
    """How many times as fast as each peer perdure is, pass by pass, by the measure that the workload is about."""

    label: str
    measure: str
    kind: Literal["rate", "time"]
    bars: Mapping[str, Bar] = field(default_factory=dict)

    def times(self, ours: Measures, theirs: Measures) -> float:
        one, other = ours[self.measure], theirs[self.measure]
        return one / other if self.kind == "rate" else other / one


@dataclass(frozen=True)
class Workload:
    """`systems`: perdure, as one function. `remarks`: what is not like for like with a peer, or why it is not there."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    systems: Mapping[str, System]
    once: bool = False  # heavy, and of a kind that a busy machine does not change: one pass is enough
    needs_floor: bool = True
    store: Store = "sqlite"  # what it runs on, and whose floor it is read against
    peers: Mapping[str, Peer] = field(default_factory=dict)
    versus: Versus | None = None
    remarks: Mapping[str, str] = field(default_factory=dict)
    curve: Curve | None = None


def payload(n: int, size: int) -> bytes:
    """So many bytes, which are those of no other number and cannot be compressed."""
    return n.to_bytes(8, "big") + NOISE[8:size]


def percentiles(seconds: Sequence[float]) -> Measures:
    """p50, p95 and p99 of at least 100 times."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def latencies(*names: str) -> tuple[Figure, ...]:
    """The usual figures of a latency, in milliseconds and in commits."""
    plain = tuple(Figure(name, name, "ms") for name in names)
    return (*plain, *(Figure(f"{name} in commits", name, "commits", of="commits") for name in names))


def in_commits(found: Measures, commit_seconds: float) -> Measures:
    """The measures, and each of them in units of a commit."""
    return {**found, **{f"{name}_commits": value / commit_seconds for name, value in found.items()}}


def memory() -> Measures:
    """Resident memory now and at its highest, in bytes; nothing where there is no /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    return resident(status.read_text())


def resident(status: str) -> Measures:
    """The same, from the text of /proc/PID/status."""
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return {name: int(lines[field].split()[0]) * 1024 for name, field in (("rss", "VmRSS"), ("peak", "VmHWM"))}
