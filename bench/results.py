"""What a run found, and the file in which the last one of each part is kept: bench/results.json.

Everything that is shown is made from this file: see `bench/render.py`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.measure import Measures, Pass, Store, Style

FILE: Final = Path(__file__).parent / "results.json"
DIGITS: Final = 6


@dataclass
class Run:
    """One workload on one system."""

    workload: str
    system: str
    passes: list[Pass] = field(default_factory=list)
    style: Style | None = None  # of a peer: the faster one, which went on
    tried: dict[str, float] = field(default_factory=dict)  # what each style gave in the first pass
    missing: str = ""  # why it has no passes, or fewer


@dataclass
class Part:
    """One part of a run: on SQLite, on PostgreSQL, or growth."""

    settings: dict[str, str]
    noise: dict[str, float]
    floors: dict[Store, list[Measures]]
    runs: list[Run]

    def of(self, workload: str, system: str) -> Run | None:
        return next((run for run in self.runs if (run.workload, run.system) == (workload, system)), None)


def load(file: Path = FILE) -> dict[str, Part]:
    if not file.exists():
        return {}
    return {name: _part(data) for name, data in json.loads(file.read_text("utf-8")).items()}


def save(parts: dict[str, Part], file: Path = FILE) -> None:
    text = json.dumps({name: _rounded(asdict(part)) for name, part in parts.items()}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", "utf-8")


def as_data(part: Part) -> dict[str, Any]:
    data: dict[str, Any] = _rounded(asdict(part))
    return data


def _part(data: dict[str, Any]) -> Part:
    runs = [Run(**{**run, "passes": [Pass(**one) for one in run["passes"]]}) for run in data.pop("runs")]
    return Part(**data, runs=runs)


def _rounded(value: Any) -> Any:
    """More digits than anybody can measure only make the file longer."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
        case _:
            return value
