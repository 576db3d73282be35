"""Everything that is shown, made again from bench/results.json: RESULTS.md, the plot and the table of the README.

python -m bench.render
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench import plot, report, results
from bench.measure import Workload
from bench.peers.environments import TITLES
from bench.report import Row, Verdict, as_markdown
from bench.results import Part

CHECKOUT: Final = Path(__file__).parents[1]
RESULTS: Final = CHECKOUT / "bench" / "RESULTS.md"
PLOT: Final = CHECKOUT / "bench" / "results.svg"
README: Final = CHECKOUT / "README.md"

BEGIN: Final = "<!-- figures: made by `python -m bench.render` from bench/results.json -->"
END: Final = "<!-- figures: end -->"

PARTS: Final = {"sqlite": "On SQLite", "postgres": "On PostgreSQL", "growth": "Growth", "server": "The server"}


def main() -> None:
    parts = results.load()
    RESULTS.write_text(document(parts), "utf-8")
    PLOT.write_text(plot.svg(parts), "utf-8")
    README.write_text(with_figures(README.read_text("utf-8"), parts), "utf-8")


def document(parts: Mapping[str, Part]) -> str:
    """RESULTS.md."""
    sections = "\n".join(_section(name, parts[name]) for name in PARTS if name in parts)
    return f"""# Results

Written by `make bench`, from `results.json`. Read the ratios: absolute numbers belong to this machine and this hour.
What each workload is for stands at the top of its file in `bench/workloads/`; how to read the numbers, and what is
not like for like, in [docs/explanation/performance.md](../docs/explanation/performance.md).

![How many times as fast as its peers perdure is](results.svg)

## Bars

{as_markdown(list(_bars(parts)))}

{sections}
## Again

`make bench` (all), `python -m bench sqlite`, `postgres`, `growth` or `server` (a part, which replaces that part here),
`make bench-quick` (W1 to W3 on SQLite, perdure alone, in a minute), `python -m bench W2 --passes 9` (some; they are
printed only).
"""


def _bars(parts: Mapping[str, Part]) -> Iterator[Row]:
    yield ("", "bar", "measured", "", "why")
    for _, verdict in _verdicts(parts):
        label = f"{verdict.workload.name}: {verdict.label}"
        wanted = report.wanted_text(verdict.bar, verdict.unit)
        how = verdict.how if verdict.met else f"**{verdict.how}**"
        yield (label, wanted, report.text(verdict.value, verdict.unit), how, "" if verdict.met else verdict.bar.why)


def _verdicts(parts: Mapping[str, Part]) -> Iterator[tuple[str, Verdict]]:
    for name in PARTS:
        if name in parts:
            for verdict in report.verdicts(parts[name]):
                yield name, verdict


def _section(name: str, part: Part) -> str:
    facts = "\n".join(f"- {label}: {value}" for label, value in part.settings.items())
    warning = report.busy(part)
    tables = "\n".join(_table(table) for table in report.tables(part))
    return f"""## {PARTS[name]}
{f"{chr(10)}**{warning}**{chr(10)}" if warning else ""}
{facts}
- noise: {report.noise(part)}

Medians of the passes, with their ranges. A ratio is taken within a pass; a share, against the floor right before and
right after it, or between its pieces.

{tables}"""


def _table(table: report.Table) -> str:
    notes = "".join(f"\n{note}\n" for note in table.notes)
    return f"### {table.title}\n\n{as_markdown(table.rows)}\n{notes}"


def with_figures(readme: str, parts: Mapping[str, Part]) -> str:
    """The README, with its figures made anew."""
    before, _, rest = readme.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"README.md has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{figures(parts)}{END}{after}"


def figures(parts: Mapping[str, Part]) -> str:
    """What the README shows: the workloads with peers, side by side, then the other bars. It has no room for the
    server's."""
    parts = {name: part for name, part in parts.items() if name != "server"}
    blocks = [
        f"{PARTS[name]} ({_where(parts[name])}):\n\n{as_markdown(list(_side_by_side(parts[name])))}\n"
        for name in ("sqlite", "postgres")
        if name in parts
    ]
    alone = list(_alone(parts))
    if alone:
        blocks.append(f"perdure alone:\n\n{as_markdown([('', 'bars'), *alone])}\n")
    every = [verdict for _, verdict in _verdicts(parts)]
    if not every:
        return "Nothing has been measured yet.\n"
    missed = [verdict for verdict in every if not verdict.met]
    blocks.append(
        f"{len(every) - len(missed)} of {len(every)} bars are met. "
        + ("" if not missed else "[RESULTS.md](bench/RESULTS.md#bars) says by how much the others are missed, and why.")
    )
    return "\n".join(block.rstrip(" ") for block in blocks) + "\n"


def _where(part: Part) -> str:
    warning = report.busy(part)
    return (
        f"{part.settings['date']}; {part.settings['machine'].partition(',')[0]}{'; a busy machine' if warning else ''}"
    )


def _side_by_side(part: Part) -> Iterator[Row]:
    peers = [name for name in TITLES if name != "perdure"]
    yield ("", "perdure", *(TITLES[peer] for peer in peers), "bars")
    for workload in report.workloads_of(part):
        if workload.versus is not None:
            label = f"{workload.name.removeprefix('postgres-')}, {workload.title}: {workload.versus.label}"
            yield (label, *(_of_system(part, workload, system) for system in TITLES), _bars_of(part, workload))


def _alone(parts: Mapping[str, Part]) -> Iterator[Row]:
    for part in parts.values():
        for workload in report.workloads_of(part):
            bars = _bars_of(part, workload)
            if workload.versus is None and bars:
                yield (f"{workload.name}, {workload.title}", bars)


def _bars_of(part: Part, workload: Workload) -> str:
    return "; ".join(
        f"{verdict.label}: {report.text(verdict.value, verdict.unit)} "
        f"({report.wanted_text(verdict.bar, verdict.unit)}: {verdict.how})"
        for verdict in report.verdicts(part)
        if verdict.workload is workload
    )


def _of_system(part: Part, workload: Workload, system: str) -> str:
    """The median, and for a peer how many times as fast perdure was."""
    assert workload.versus is not None
    figure = next(each for each in workload.figures if each.measure == workload.versus.measure)
    run = part.of(workload.name, system)
    if run is None:
        return "not offered"
    values = figure.values(run.passes)
    if not values:
        return "missing"
    median = report.text(statistics.median(values), figure.unit)
    remark = " \\*" if workload.remarks.get(system, "").startswith("not like for like") else ""
    if system == "perdure":
        return median
    return f"{median}{remark} ({report.text(statistics.median(report.times_of(part, workload, system)), 'x')})"


if __name__ == "__main__":
    main()
