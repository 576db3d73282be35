"""Samples of the stack of the main thread, every few milliseconds of processor time, and a flame graph of them.

A signal of the system's profiling timer interrupts the interpreter between two instructions. Each sample weighs the
processor time of this thread since the last one: what waits weighs nothing, and a long call into C counts in full. What
the floor of a workload does is left out.

The interpreter looks for signals when a function begins and when a loop goes round, so what is seen is where C code led
to next: own times of small functions are blurred. Times with everything below them are right, and so is a flame graph
from some distance. Where it matters which of two small functions it is, ask cProfile.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from html import escape
from pathlib import Path
from types import FrameType
from typing import Final, Self

EVERY_SECONDS: Final = 0.001
"""Asked for; the system gives no more than one per tick of its clock."""

ROOT: Final = Path(__file__).parents[1]
FLOORS: Final = {str(ROOT / "bench" / name) for name in ("floor.py", "floor_postgres.py")}
HARNESS: Final = ("bench", "<frozen runpy>")

Frame = tuple[str, str]
"""File, function."""


class Samples:
    def __init__(self) -> None:
        self.stacks: Counter[tuple[Frame, ...]] = Counter()  # from the outermost to the innermost, in microseconds
        self.count = 0
        self._last = 0.0

    def __enter__(self) -> Self:
        self._last = time.thread_time()
        signal.signal(signal.SIGPROF, self._take)
        signal.setitimer(signal.ITIMER_PROF, EVERY_SECONDS, EVERY_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def _take(self, _signal: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        stack: list[Frame] = []
        while frame is not None:
            code = frame.f_code
            stack.append((code.co_filename, code.co_qualname))
            frame = frame.f_back
        if not any(file in FLOORS for file, _ in stack):
            self.stacks[tuple(reversed(stack))] += round((now - self._last) * 1e6)
            self.count += 1
        self._last = time.thread_time()  # the walk is not part of what is measured

    @property
    def total(self) -> float:
        return self.stacks.total() / 1e6

    def by_function(self) -> list[tuple[float, str]]:
        """The share of each function, with all that it calls."""
        functions: Counter[str] = Counter()
        for stack, weight in self.stacks.items():
            for name in {f"{function} ({short(file)})" for file, function in stack if package(file) not in HARNESS}:
                functions[name] += weight
        return self._shares(functions)

    def by_package(self) -> list[tuple[float, str]]:
        packages: Counter[str] = Counter()
        for stack, weight in self.stacks.items():
            packages[package(stack[-1][0])] += weight
        return self._shares(packages)

    def _shares(self, weights: Counter[str]) -> list[tuple[float, str]]:
        total = self.stacks.total() or 1
        return [(weight / total, name) for name, weight in weights.most_common()]


def short(file: str) -> str:
    """A file's name, without where things are installed."""
    for mark in ("/src/perdure/", "/site-packages/", "/lib/python3"):
        _, found, rest = file.rpartition(mark)
        if found:
            return rest if mark != "/lib/python3" else rest.partition("/")[2]
    return file.removeprefix(f"{ROOT}/")


def package(file: str) -> str:
    """What a file belongs to: a part of perdure, another package, or the harness."""
    name = short(file)
    if "/src/perdure/" in file:
        parts = name.split("/")
        return "/".join(["perdure", *parts[: 2 if parts[0] == "stores" else 1]])
    return name.partition("/")[0]


# ---- the flame graph ---------------------------------------------------------------------------------------------

WIDTH: Final = 1200
ROW: Final = 17
LEAST: Final = 0.002
"""What has a smaller share is left out."""

COLOURS: Final = {
    "perdure/kernel": "#e4572e",
    "perdure/runtime": "#f3a712",
    "perdure/flows": "#76b041",
    "perdure/executors": "#a8c686",
    "perdure/stores/sqlite": "#669bbc",
    "perdure/stores/postgres": "#669bbc",
    "perdure/codec": "#c77dff",
    "asyncio": "#bdbdbd",
    "asyncpg": "#8ecae6",
}
OTHER: Final = "#dedede"


class Node:
    def __init__(self, file: str, function: str) -> None:
        self.file, self.function = file, function
        self.weight = 0
        self.below: dict[tuple[str, str], Node] = {}


def flame_graph(samples: Samples, title: str) -> str:
    """An SVG: as wide as its share of the time, callers above what they call. Point at a box to read it."""
    root = _tree(samples)
    boxes: list[str] = []
    depth = _draw(root, 0.0, WIDTH / (root.weight or 1), 0, root.weight * LEAST, boxes)
    height = (depth + 3) * ROW
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="4" y="13">{escape(title)}: {samples.total:.2f} s</text>',
        *boxes,
        "</svg>\n",
    ])  # fmt: skip


def _tree(samples: Samples) -> Node:
    root = Node("", "all")
    for stack, weight in samples.stacks.items():
        root.weight += weight
        node = root
        for file, function in stack:
            if not node.below and node is root and package(file) in HARNESS:
                continue
            node = node.below.setdefault((file, function), Node(file, function))
            node.weight += weight
    return root


def _draw(node: Node, x: float, scale: float, depth: int, least: float, boxes: list[str]) -> int:  # noqa: PLR0917
    """Draw a box and what is below it; the answer is how deep that goes."""
    width, y = node.weight * scale, (depth + 1) * ROW
    name = node.function if not node.file else f"{node.function} ({short(node.file)})"
    text = escape(name if len(name) * 6.7 < width else name[: max(0, int(width / 6.7) - 1)])
    share = node.weight * scale / WIDTH
    boxes.append(
        f'<g><title>{escape(name)} {share:.1%}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" '
        f'fill="{COLOURS.get(package(node.file), OTHER)}"/><text x="{x + 2:.1f}" y="{y + 12}">{text}</text></g>'
    )
    deepest = depth
    for child in sorted(node.below.values(), key=lambda child: -child.weight):
        if child.weight >= least:
            deepest = max(deepest, _draw(child, x, scale, depth + 1, least, boxes))
        x += child.weight * scale
    return deepest
