"""What all workloads share: figures and bars, percentiles, and the check that nothing was lost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
    following: float | None = None  # the next bar, once this one is reached

    def met(self, value: float) -> bool:
        if self.sign == ">=":
            return value >= self.value
        return value <= self.value if self.sign == "<=" else value < self.value


Store = Literal["sqlite", "postgres"]
Unit = Literal["/s", "µs", "ms", "s", "KB", "MB", "%", "x", "commits", ""]


@dataclass(frozen=True)
class Figure:
    """One line of the table, from one measure of each pass.

    `of`: plain, or a rate as a share or multiple of the floor's rate.
    """

    label: str
    measure: str
    unit: Unit = ""
    of: Literal["plain", "rate"] = "plain"
    floor: str = "commits"  # which of the floor's rates
    bar: Bar | None = None

    def values(self, passes: Sequence[Pass]) -> list[float]:
        """One value per pass, each against the floor of that very pass."""
        return [self._value(one) for one in passes if self.measure in one.measures]

    def _value(self, one: Pass) -> float:
        value = one.measures[self.measure]
        return value if self.of == "plain" else value / one.floor[self.floor]


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


@dataclass(frozen=True)
class Ratio:
    """perdure against a peer, pass by pass: a rate of both."""

    label: str
    measure: str
    peer: str
    bar: Bar | None = None


@dataclass(frozen=True)
class Workload:
    """`systems`: one function per system, by its name. A peer is one more function in the workload's file."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    systems: Mapping[str, System]
    once: bool = False  # heavy, and of a kind that a busy machine does not change: one pass is enough
    needs_floor: bool = True
    store: Store = "sqlite"  # what it runs on, and whose floor it is read against
    ratios: tuple[Ratio, ...] = ()
    curve: Curve | None = None


def percentiles(seconds: Sequence[float]) -> Measures:
    """p50, p95 and p99 of at least 100 times."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def latencies(*names: str) -> tuple[Figure, ...]:
    """The usual figures of a latency, in milliseconds and in commits."""
    plain = tuple(Figure(name, name, "ms") for name in names)
    return (*plain, *(Figure(f"{name} in commits", f"{name}_commits", "commits") for name in names))


def in_commits(found: Measures, commit_seconds: float) -> Measures:
    """The measures, and each of them in units of a commit."""
    return {**found, **{f"{name}_commits": value / commit_seconds for name, value in found.items()}}


def memory() -> Measures:
    """Resident memory now and at its highest, in bytes; nothing where there is no /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return {name: int(lines[field].split()[0]) * 1024 for name, field in (("rss", "VmRSS"), ("peak", "VmHWM"))}
