"""`perdure playbooks test`: `*.test.yaml`, on stubs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from perdure.testing.playbooks import cases_of

from ...console import Console
from ...console import command as define
from ...exits import Exit, Stopped
from ...text import joined


@define("playbooks test", db="none")
@click.argument("files", metavar="FILE|FOLDER...", nargs=-1, type=click.Path(exists=True))
def command(console: Console, files: tuple[str, ...]) -> None:
    """A FOLDER means all its files that end in .test.yaml; without any, the current one."""
    found = [each for given in files or (".",) for each in _files(Path(given))]
    if not found:
        raise Stopped("there is no file that ends in .test.yaml")
    results = [(case, case.run()) for file in found for case in cases_of(file)]
    bad = [(case, problems) for case, problems in results if problems]
    document = {
        "tests": [{"file": str(case.file), "name": case.name, "problems": problems} for case, problems in results],
        "ok": not bad,
    }
    lines = [f"{case.file}: {case.name}: {problem}" for case, problems in bad for problem in problems]
    lines.append(f"{len(results) - len(bad)} of {len(results)} tests passed")
    console.answer(document, joined(lines))
    sys.exit(Exit.FAILED if bad else Exit.OK)


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.test.yaml")) if path.is_dir() else [path]
