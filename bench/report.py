"""What was found, as text: tables for RESULTS.md and for a terminal. Everything is made from `bench.results`.

A workload with peers is a table with a column for each system; one without is a table of figures and bars.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench import floor
from bench.measure import Bar, Curve, Figure, Measures, Pass, Store, Unit, Workload
from bench.peers.environments import TITLES
from bench.results import Part, Run
from bench.workloads import BY_NAME

SCALES: Final[dict[Unit, tuple[float, str]]] = {
    "/s": (1, " /s"),
    "µs": (1e6, " µs"),
    "ms": (1e3, " ms"),
    "s": (1, " s"),
    "KB": (1e-3, " KB"),
    "MB": (1e-6, " MB"),
    "%": (100, " %"),
    "x": (1, " x"),
    "commits": (1, ""),
    "": (1, ""),
}
SIGNS: Final = {">=": "≥", "<=": "≤", "<": "<"}
BAR_LENGTH: Final = 12

BUSY: Final = 1.5
"""A floor that varies by more than this within one run measures the neighbours."""

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The first row is the head. `notes` stand below it."""

    title: str
    rows: list[Row]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A bar, and what was measured."""

    workload: Workload
    label: str
    unit: Unit
    bar: Bar
    value: float

    @property
    def met(self) -> bool:
        return self.bar.met(self.value)

    @property
    def how(self) -> str:
        """Met, or missed by so much of the bar."""
        if self.met:
            return "met"
        if self.bar.value == 0:
            return "missed"
        return f"missed by {abs(self.value / self.bar.value - 1):.0%}".replace("%", " %")


def verdicts(part: Part) -> Iterator[Verdict]:
    """Each bar of which there is a measurement, in the order of the workloads."""
    for workload in workloads_of(part):
        ours = part.of(workload.name, "perdure")
        for figure in workload.figures:
            values = figure.values(ours.passes) if ours and figure.bar else []
            if values and figure.bar:
                yield Verdict(workload, figure.label, figure.unit, figure.bar, statistics.median(values))
        versus = workload.versus
        for peer, bar in versus.bars.items() if versus else ():
            times = times_of(part, workload, peer)
            if times and versus:
                yield Verdict(workload, f"{versus.label}, times {TITLES[peer]}", "x", bar, statistics.median(times))


def workloads_of(part: Part) -> list[Workload]:
    """Those that were measured, as far as they still exist."""
    return [BY_NAME[name] for name in dict.fromkeys(run.workload for run in part.runs) if name in BY_NAME]


def times_of(part: Part, workload: Workload, peer: str) -> list[float]:
    """How many times as fast as this peer perdure was, pass by pass."""
    ours, theirs = part.of(workload.name, "perdure"), part.of(workload.name, peer)
    if workload.versus is None or ours is None or theirs is None:
        return []
    pairs = zip(ours.passes, theirs.passes, strict=False)  # a peer may have failed in a later pass
    return [workload.versus.times(one.measures, other.measures) for one, other in pairs]


def tables(part: Part) -> Iterator[Table]:
    for store, found in part.floors.items():
        yield _of_figures("floor", *_floor_of(store), [Pass(measures, {}) for measures in found])
    for workload in workloads_of(part):
        ours = part.of(workload.name, "perdure")
        if ours is not None:
            peers = [run for run in part.runs if run.workload == workload.name and run.system != "perdure"]
            yield (
                _side_by_side(part, workload, ours, peers)
                if peers
                else _of_figures(workload.name, workload.title, workload.figures, ours.passes)
            )
            if workload.curve is not None and ours.passes:
                yield _along(workload, workload.curve, ours.passes[0].measures)


def _floor_of(store: Store) -> tuple[str, tuple[Figure, ...]]:
    if store == "sqlite":
        return "raw SQLite and the disk", floor.FIGURES
    from bench import floor_postgres

    return "raw PostgreSQL, one connection", floor_postgres.FIGURES


def _of_figures(name: str, title: str, figures: Sequence[Figure], passes: Sequence[Pass]) -> Table:
    rows: list[Row] = [("", "median", "range", "bar")]
    for figure in figures:
        values = figure.values(passes)
        median = text(statistics.median(values), figure.unit) if values else "not measured"
        rows.append((figure.label, median, _range(values, figure.unit), _bar(figure.bar, figure.unit, values)))
    return Table(f"{name}: {title}", rows)


def _side_by_side(part: Part, workload: Workload, ours: Run, peers: Sequence[Run]) -> Table:
    absent = [name for name in workload.remarks if name in TITLES and part.of(workload.name, name) is None]
    systems = [ours, *peers]
    rows: list[Row] = [("", *(_heading(run) for run in systems), *(TITLES[name] for name in absent), "bar")]
    for figure in workload.figures:
        values = [figure.values(run.passes) for run in systems]
        bar = _bar(figure.bar, figure.unit, values[0])
        rows.append((figure.label, *(_cell(each, figure.unit) for each in values), *("" for _ in absent), bar))
    if workload.versus is not None:
        times = [times_of(part, workload, run.system) for run in peers]
        bars = [_bar(workload.versus.bars.get(run.system), "x", found) for run, found in zip(peers, times, strict=True)]
        told = "; ".join(f"{TITLES[run.system]} {bar}" for run, bar in zip(peers, bars, strict=True) if bar)
        label = f"perdure is so many times as fast ({workload.versus.label})"
        rows.append((label, "", *(_cell(each, "x") for each in times), *("" for _ in absent), told))
    return Table(f"{workload.name}: {workload.title}", rows, tuple(_notes(workload, peers)))


def _heading(run: Run) -> str:
    return f"{TITLES[run.system]} ({run.style})" if run.style else TITLES[run.system]


def _notes(workload: Workload, peers: Sequence[Run]) -> Iterator[str]:
    for name, remark in workload.remarks.items():
        yield f"{TITLES[name]}: {remark}."
    for run in peers:
        if run.missing:
            yield f"{TITLES[run.system]} is missing: {run.missing}."
        if run.tried and workload.versus:
            figure = next(each for each in workload.figures if each.measure == workload.versus.measure)
            tried = ", ".join(f"{text(value, figure.unit)} with {style}" for style, value in run.tried.items())
            runs = workload.peers[run.system].trial_runs
            small = f", with {runs:,} runs" if runs != workload.peers[run.system].runs else ""
            yield f"{TITLES[run.system]}, both styles in the first pass ({figure.label}{small}): {tried}."


def _along(workload: Workload, curve: Curve, measures: Measures) -> Table:
    rows: list[Row] = [(curve.along, *(figure.label for figure in curve.figures))]
    columns = [_column(curve, figure, measures) for figure in curve.figures]
    return Table(f"{workload.name}, along it", rows + list(zip(curve.points.values(), *columns, strict=True)))


def _column(curve: Curve, figure: Figure, measures: Measures) -> list[str]:
    """The values, each with a bar as long as its share of the highest."""
    values = [measures.get(f"{figure.measure}@{point}", 0.0) for point in curve.points]
    highest = max(values) or 1
    return [f"{text(value, figure.unit)} {'▇' * round(BAR_LENGTH * value / highest)}" for value in values]


def text(value: float, unit: Unit) -> str:
    scale, name = SCALES[unit]
    scaled = value * scale
    digits = 0 if scaled >= 100 or scaled == int(scaled) else 1 if scaled >= 10 else 2
    return f"{scaled:,.{0 if unit == '%' else digits}f}{name}"


def _cell(values: Sequence[float], unit: Unit) -> str:
    if not values:
        return ""
    spread = f" ({_range(values, unit)})" if len(values) > 1 else ""
    return f"{text(statistics.median(values), unit)}{spread}"


def _range(values: Sequence[float], unit: Unit) -> str:
    return f"{text(min(values), unit)} to {text(max(values), unit)}" if len(values) > 1 else ""


def _bar(bar: Bar | None, unit: Unit, values: Sequence[float]) -> str:
    if bar is None:
        return ""
    wanted = wanted_text(bar, unit)
    return f"{wanted}: {'met' if bar.met(statistics.median(values)) else 'missed'}" if values else wanted


def wanted_text(bar: Bar, unit: Unit) -> str:
    return f"{SIGNS[bar.sign]} {text(bar.value, unit)}"


def busy(part: Part) -> str:
    """A warning, when the load at the beginning or the floor itself says that others used the machine."""
    load = part.noise["load before"]
    if load > part.noise["cores"]:
        return f"The load was {load:.1f} when this began: others used this machine. Do not quote these numbers."
    for found in part.floors.values():
        rates = [one["commits"] for one in found]
        if max(rates) >= BUSY * min(rates):
            return (
                f"The floor itself varied from {min(rates):,.0f} to {max(rates):,.0f} commits/s: "
                "others used this machine. Do not quote these numbers."
            )
    return ""


def noise(part: Part) -> str:
    """How quiet the machine was, in a line."""
    loads = (
        f"load {part.noise['load before']:.1f} before and {part.noise['load after']:.1f} after (perdure's own included)"
    )
    rates = {store: [one["commits"] for one in found] for store, found in part.floors.items() if found}
    spreads = [f"floor of {store} within {max(each) / min(each):.2f} x" for store, each in rates.items()]
    return "; ".join([loads, *spreads])


def as_text(part: Part) -> str:
    """For a terminal."""
    blocks = ["\n".join([table.title, _aligned(table.rows), *table.notes]) for table in tables(part)]
    return "\n\n".join([*blocks, *filter(None, [busy(part)])])


def _aligned(rows: Sequence[Row]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def as_markdown(rows: Sequence[Row]) -> str:
    head, *rest = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|---" + "|---:" * (len(rows[0]) - 2) + "|---|", *rest])
