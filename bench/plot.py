"""bench/results.svg: how many times as fast as its peers perdure was, on a logarithmic scale.

Written as text, so that it needs nothing; readable on light and on dark pages.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from bench.measure import Workload
from bench.peers.environments import TITLES
from bench.report import text, times_of, workloads_of
from bench.results import Part

WIDTH: Final = 860
LEFT: Final = 330
RIGHT: Final = 90
BAR: Final = 13
GAP: Final = 10
HEAD: Final = 46
FOOT: Final = 30

STORES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}

STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.quiet { fill: #57606a; font-size: 12px; }
.head { font-weight: 600; }
.grid { stroke: #8c959f; stroke-opacity: 0.35; }
.one { stroke: #24292f; stroke-width: 1.5; }
.dbos { fill: #0969da; }
.langgraph { fill: #bf8700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .one { stroke: #e6edf3; }
  .dbos { fill: #4493f8; }
  .langgraph { fill: #d29922; }
}
"""

Line = tuple[Workload, Mapping[str, float]]


def svg(parts: Mapping[str, Part]) -> str:
    lines = {STORES[name]: list(_lines(parts[name])) for name in STORES if name in parts}
    found = [times for each in lines.values() for _, peers in each for times in peers.values()]
    low = min([0, *(math.floor(math.log10(each)) for each in found)])
    high = max([1, *(math.ceil(math.log10(each)) for each in found)])
    body: list[str] = []
    top = HEAD
    for store, each in lines.items():
        body.append(f'<text class="head" x="10" y="{top + 4}">{store}</text>')
        top += 16
        for workload, peers in each:
            body += _line(workload, peers, top, low, high)
            top += max(1, len(peers)) * (BAR + 2) + GAP
        top += 14
    return "\n".join([_head(top + FOOT), *_grid(top, low, high), *body, "</svg>", ""])


def _lines(part: Part) -> Iterator[Line]:
    for workload in workloads_of(part):
        if workload.versus is not None:
            times = {peer: times_of(part, workload, peer) for peer in workload.peers}
            yield workload, {peer: statistics.median(values) for peer, values in times.items() if values}


def _head(height: int) -> str:
    names = "".join(
        f'<rect class="{name}" x="{LEFT + 200 * n}" y="14" width="{BAR}" height="{BAR}"/>'
        f'<text x="{LEFT + 200 * n + BAR + 6}" y="25">against {escape(TITLES[name])}</text>'
        for n, name in enumerate(("dbos", "langgraph"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="How many times as fast as its peers perdure is">\n<style>{STYLE}</style>\n{names}'
    )


def _grid(bottom: int, low: int, high: int) -> Iterator[str]:
    for power in range(low, high + 1):
        x = _x(10.0**power, low, high)
        name = f"{10**power:,} x" if power >= 0 else f"1/{10**-power:,} x"
        line = "one" if power == 0 else "grid"
        yield f'<line class="{line}" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 6}" y2="{bottom - 10}"/>'
        yield f'<text class="quiet" text-anchor="middle" x="{x:.1f}" y="{bottom + 6}">{name}</text>'
    yield f'<text class="quiet" x="10" y="{bottom + 6}">so many times as fast is perdure</text>'


def _line(workload: Workload, peers: Mapping[str, float], top: int, low: int, high: int) -> Iterator[str]:
    assert workload.versus is not None
    name = f"{workload.name.removeprefix('postgres-')} {workload.title}"
    middle = top + max(1, len(peers)) * (BAR + 2) / 2 + 3
    yield f'<text x="10" y="{middle:.1f}">{escape(name)}</text>'
    one = _x(1, low, high)
    for n, (peer, times) in enumerate(peers.items()):
        x, y = _x(times, low, high), top + n * (BAR + 2)
        yield f'<rect class="{peer}" x="{min(x, one):.1f}" y="{y}" width="{abs(x - one):.1f}" height="{BAR}"/>'
        yield f'<text class="quiet" x="{max(x, one) + 5:.1f}" y="{y + BAR - 2}">{text(times, "x")}</text>'


def _x(times: float, low: int, high: int) -> float:
    return LEFT + (math.log10(times) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
