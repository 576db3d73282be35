"""The table, for people and for RESULTS.md, and the settings that belong to every table."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import apsw

from bench import floor
from bench.measure import Bar, Curve, Figure, Measures, Pass, Ratio, Store, Unit, Workload

COLUMNS: Final = ("", "figure", "median", "range", "bar")
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

BAR_LENGTH: Final = 12

BUSY: Final = 1.5
"""A floor that varies by more than this within one run measures the neighbours."""

TITLES: Final[dict[Store, str]] = {"sqlite": "# Results", "postgres": "# Results on PostgreSQL"}
AGAIN: Final[dict[Store, tuple[str, str]]] = {
    "sqlite": (
        "make bench",
        "`make bench` (all), `make bench-quick` (W1 to W3, R1 and R2 in small: a minute), "
        "`python -m bench W2 --passes 9`\n(some).",
    ),
    "postgres": (
        "python -m bench postgres",
        "`python -m bench postgres` (all), `python -m bench postgres-W2 --passes 9` (some).",
    ),
}

Row = tuple[str, ...]
Runs = Sequence[tuple[Workload, str, Sequence[Pass]]]
"""Workload, system, passes."""


def rows(floors: Sequence[Pass], runs: Runs, store: Store) -> Iterator[Row]:
    if store == "sqlite":
        yield from _rows("floor", "raw SQLite and the disk", floor.FIGURES, floors)
    else:
        from bench import floor_postgres

        yield from _rows("floor", "raw PostgreSQL, one connection", floor_postgres.FIGURES, floors)
    for workload, system, passes in runs:
        title = workload.title if system == "perdure" else f"{workload.title}, {system}"
        several = len(workload.systems) > 1  # then each figure may be of one of them only
        yield from _rows(workload.name, title, workload.figures, passes, leave_out=several)
        for ratio in workload.ratios:
            peers = [(each, its) for each, its, _ in runs if each is workload]
            if system == ratio.peer and (workload, "perdure") in peers:
                ours = next(each for found, its, each in runs if found is workload and its == "perdure")
                yield _ratio(ratio, ours, passes)


def _ratio(ratio: Ratio, ours: Sequence[Pass], theirs: Sequence[Pass]) -> Row:
    values = [
        one.measures[ratio.measure] / other.measures[ratio.measure] for one, other in zip(ours, theirs, strict=True)
    ]
    figure = Figure(f"perdure against {ratio.peer}, {ratio.label}", ratio.measure, "x", bar=ratio.bar)
    return _row(figure, values)


def _rows(
    name: str, title: str, figures: Sequence[Figure], passes: Sequence[Pass], leave_out: bool = False
) -> Iterator[Row]:
    yield (name, title, "", "", "")
    for figure in figures:
        values = figure.values(passes)
        if values:
            yield _row(figure, values)
        elif not leave_out:
            yield ("", figure.label, "not measured", "", _bar(figure, None))


def _row(figure: Figure, values: Sequence[float]) -> Row:
    middle = statistics.median(values)
    spread = f"{_text(min(values), figure.unit)} to {_text(max(values), figure.unit)}" if len(values) > 1 else ""
    return ("", figure.label, _text(middle, figure.unit), spread, _bar(figure, middle))


def _text(value: float, unit: Unit) -> str:
    scale, name = SCALES[unit]
    scaled = value * scale
    digits = 0 if scaled >= 100 or scaled == int(scaled) else 1 if scaled >= 10 else 2
    return f"{scaled:,.{0 if unit == '%' else digits}f}{name}"


def _bar(figure: Figure, value: float | None) -> str:
    bar: Bar | None = figure.bar
    if bar is None:
        return ""
    sign = {">=": "≥", "<=": "≤", "<": "<"}[bar.sign]
    text = f"{sign} {_text(bar.value, figure.unit)}"
    if bar.following is not None:
        text += f", then {_text(bar.following, figure.unit)}"
    return text if value is None else f"{text}: {'met' if bar.met(value) else 'missed'}"


def busy(floors: Sequence[Pass], load: float) -> str:
    """A warning, when the load at the beginning or the floor itself says that others used the machine."""
    if load > (os.cpu_count() or 1):
        return f"The load was {load:.1f} when this began: others used this machine. Do not quote these numbers."
    rates = [one.measures["commits"] for one in floors]
    if max(rates) < BUSY * min(rates):
        return ""
    return (
        f"The floor itself varied from {min(rates):,.0f} to {max(rates):,.0f} commits/s: "
        "others used this machine. Do not quote these numbers."
    )


def as_text(table: Sequence[Row]) -> str:
    widths = [max(len(row[n]) for row in [COLUMNS, *table]) for n in range(len(COLUMNS))]
    widths[1] = max(len(row[1]) for row in table if not row[0])  # titles may run over
    lines = []
    for row in [COLUMNS, *table]:
        cells = [
            cell.ljust(width) if n != 2 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_markdown(table: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---:|---|---|"]
    for name, figure, *rest in table:
        cells = (f"**{name}**", f"**{figure}**", *rest) if name else (name, figure, *rest)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def curves(runs: Runs) -> Iterator[tuple[str, list[Row]]]:
    """For each workload with a curve, a title and its lines, the first of them the heads of the columns."""
    for workload, system, passes in runs:
        curve = workload.curve
        if curve is not None and passes:
            lines = [(curve.along, *(figure.label for figure in curve.figures))]
            columns = [_column(curve, figure, passes[0].measures) for figure in curve.figures]
            lines += zip(curve.points.values(), *columns, strict=True)
            yield f"{workload.name}: {workload.title}, {system}", lines


def _column(curve: Curve, figure: Figure, measures: Measures) -> list[str]:
    """The values, each with a bar as long as its share of the highest."""
    values = [measures.get(f"{figure.measure}@{point}", 0.0) for point in curve.points]
    highest = max(values) or 1
    return [f"{_text(value, figure.unit)} {'▇' * round(BAR_LENGTH * value / highest)}" for value in values]


def curve_as_text(lines: Sequence[Row]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def curve_as_markdown(lines: Sequence[Row]) -> str:
    head, *rest = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([head, "|---:" + "|---" * (len(lines[0]) - 1) + "|", *rest])


def as_data(floors: Sequence[Pass], runs: Runs, settings: dict[str, str]) -> dict[str, Any]:
    return {
        "settings": settings,
        "floor": [one.measures for one in floors],
        "workloads": [
            {
                "name": workload.name,
                "system": system,
                "passes": [{"measures": one.measures, "floor": one.floor} for one in passes],
                "figures": [
                    {
                        "label": f.label,
                        "unit": f.unit,
                        "values": f.values(passes),
                        "bar": f.bar and f.bar.value,
                    }
                    for f in workload.figures
                ],
            }
            for workload, system, passes in runs
        ],
    }


def settings(place: Path, passes: int, store: Store) -> dict[str, str]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        **(_sqlite(place) if store == "sqlite" else _postgres()),
        "perdure": _version("perdure"),
        "Python": f"{platform.python_version()}, asyncio's own event loop",
        "other packages": ", ".join(f"{name} {_version(name)}" for name in ("msgspec", "cbor2")),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.release()}",
        "load when it began": f"{os.getloadavg()[0]:.1f}",
        "passes": f"{passes}, in turns; the floor before and after each",
    }


def _sqlite(place: Path) -> dict[str, str]:
    library = f"{apsw.sqlite_lib_version()} through apsw {apsw.apsw_version()}"
    return {"durability": _durability(place), "SQLite": library}


def _postgres() -> dict[str, str]:
    from bench import server
    from bench.peers import environments

    environments.python_of("dbos")
    return {
        "durability": "an answer is given only after the server has flushed its log to the disk",
        **server.settings(),
        "the same server for all": f"over a Unix socket on this machine; perdure: {server.SHARDS} shards",
        "DBOS": f"{environments.version_of('dbos')}; its defaults, log_level=ERROR; each workload is written with def "
        "and with async def, and the faster one counts",
    }


def _durability(place: Path) -> str:
    """What perdure's own connections are set to, asked of one."""
    from perdure.stores.sqlite.connection import connect, enter_wal

    with tempfile.TemporaryDirectory(dir=place) as directory:
        file = str(Path(directory, "asked.db"))
        connection, _ = connect(file, create=True)
        enter_wal(connection, file)
        mode, level = connection.pragma("journal_mode"), connection.pragma("synchronous")
        connection.close()
    names = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
    return f"journal_mode={mode}, synchronous={names[level]}: an answer is given only after fdatasync"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def document(before: str, section: str, store: Store) -> str:
    """The file: one section per store, of which this run has made one anew."""
    sections = dict(zip(TITLES, before.partition(f"\n{TITLES['postgres']}\n")[::2], strict=True))
    sections["postgres"] = f"{TITLES['postgres']}\n{sections['postgres']}" if sections["postgres"] else ""
    sections[store] = section
    return "\n".join(text for text in sections.values() if text)


def section(table: Sequence[Row], runs: Runs, settings: dict[str, str], warning: str, store: Store) -> str:
    along = "".join(f"\n## {title}\n\n{curve_as_markdown(lines)}\n" for title, lines in curves(runs))
    loud = f"\n**{warning}**\n" if warning else ""
    facts = "\n".join(f"- {name}: {value}" for name, value in settings.items())
    again = AGAIN[store]
    return f"""{TITLES[store]}

Written by `{again[0]}`. Read the ratios: absolute numbers belong to this machine and this hour. What each
workload is for stands at the top of its file in `bench/workloads/`; how to read the numbers, in
`docs/explanation/performance.md`.
{loud}
{facts}

{as_markdown(table)}

Median and range are over the passes. A ratio is taken within a pass, against the floor measured right before
and right after it.
{along}
Again: {again[1]}
"""
