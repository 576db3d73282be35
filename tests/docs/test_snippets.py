"""Every snippet of the documentation runs, and prints what the page says. The rules are in `pages.py`."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import OWN, ROOT, Block, blocks, name_of
from tests.postgres import server

MARK = "\x1e"  # printed after each snippet, so that what it printed can be told apart
TIMEOUT_SECONDS = 120

# A page says `sleep 2` and means "when it has begun": on a busy machine that may take longer.
PATIENCE = """
set -m
OUT=$(mktemp); trap 'rm -f $OUT' EXIT
exec 3>&1 >$OUT
sleep() { for n in {1..300}; do [ -s $OUT ] && break; command sleep 0.1; done; command sleep $1; }
"""


def with_code(page: Path) -> bool:
    return any(block.language in ("python", "console") for block in blocks(page))


@pytest.mark.parametrize("page", [page for page in OWN if with_code(page)], ids=name_of)
def test_the_snippets_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path, monkeypatch, request):
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # commands are typed in a checkout
    if page.parent.name == "operate" and "PERDURE_DB" in page.read_text():
        url = request.getfixturevalue("empty_database")
        monkeypatch.setenv("PERDURE_DB", url)
    for part in parts(blocks(page)):
        if part[0].language == "console":
            run_commands(part[0], tmp_path)
        elif part[0].file is not None:
            (tmp_path / part[0].file).write_text(part[0].text + "\n")
        else:
            run_script(part, tmp_path)


@pytest.fixture
def empty_database() -> Iterator[str]:
    """The URL of a schema that does not exist yet; it is gone afterwards, and those that begin with its name."""
    found = server()
    name = f"docs_{os.getpid()}"
    yield f"{found.url}{'&' if '?' in found.url else '?'}schema={name}"
    found.execute(*(f"DROP SCHEMA IF EXISTS {made} CASCADE" for made in (name, f"{name}_0", f"{name}_1")))


def test_a_snippet_that_does_not_run_has_a_reason():
    silent = [b.place for page in OWN for b in blocks(page) if b.not_run is not None and len(b.not_run) < 10]

    assert silent == []


def test_every_block_says_its_language():
    nameless = [block.place for page in OWN for block in blocks(page) if not block.language]

    assert nameless == []


def test_code_that_a_command_imports_calls_nothing_by_that():
    """The first snippet of the README is what a reader saves, and gives to `perdure dev`."""
    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    imported = [first]
    for page in OWN:
        commands = "\n".join(block.text for block in blocks(page) if block.language == "console")
        named = {f"{name}.py" for name in re.findall(r"(?m)^\$ perdure \w+ (\w+)(?:\.py)?\b", commands)}
        imported += [block for block in blocks(page) if block.language == "python" and block.file in named]

    calls = [
        f"{block.place}: {ast.unparse(statement)}"
        for block in imported
        for statement in ast.parse(block.text).body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    ]

    assert len(imported) > 3
    assert calls == []


def parts(found: list[Block]) -> list[list[Block]]:
    """What runs together: a page's plain Python snippets and what they print; each command block alone."""
    running = [block for block in found if block.not_run is None]
    script: list[Block] = []
    others: list[list[Block]] = []
    for block in running:
        if block.language == "console" or block.file is not None:
            others.append([block])
        elif block.language == "python" or (block.language == "text" and "prints" in block.options):
            script.append(block)
    return [*others, script] if script else others


def run_script(part: list[Block], directory: Path) -> None:
    """One file per page, with each snippet on the very lines that it has on the page."""
    page = part[0].page
    lines = [""] * (len(page.read_text().splitlines()) + 1)
    for block in part:
        if block.language == "python":
            text = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(text)] = text
            lines[block.line - 1 + len(text)] = f"print({MARK!r})"
    name = re.sub(r"\W", "_", page.stem)
    script = directory / f"{name}_page.py" if name in sys.stdlib_module_names else directory / f"{name}.py"
    script.write_text("\n".join(lines) + "\n")

    done = run([sys.executable, script.name], directory)

    assert done.returncode == 0, f"{name_of(page)} (the line numbers are those of the page):\n{done.stderr}"
    assert done.stderr == "", f"{name_of(page)} complains on stderr:\n{done.stderr}"
    printed = done.stdout.split(MARK + "\n")
    so_far = ""
    for block in part:
        if block.language == "python":
            so_far += printed.pop(0)
        else:
            assert matches(so_far, block.text), f"{block.place} says\n{block.text}\nbut printed was\n{so_far}"
            so_far = ""


def run_commands(block: Block, directory: Path) -> None:
    commands = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
    expected = "\n".join(line for line in block.text.splitlines() if not line.startswith("$ "))

    done = run(
        ["bash", "-c", "\n".join([PATIENCE, *commands]) + "\nstatus=$?; cat $OUT >&3; exit $status"],
        directory,
    )

    assert done.returncode == 0, f"{block.place}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert matches(done.stdout, expected), f"{block.place} says\n{expected}\nbut printed was\n{done.stdout}"


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def matches(printed: str, expected: str) -> bool:
    """`...` stands for anything within a line, alone on a line for any lines. Columns may be wider than on the page."""
    pattern = re.escape(expected.strip()).replace(re.escape("..."), "\x00")
    pattern = re.sub(r"(?:\\ ){2,}", " {2,}", pattern)
    pattern = re.sub(r"(?m)^\x00$", "(?:.*\n?)*?", pattern).replace("\x00", ".*?")
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    return re.fullmatch(pattern, "\n".join(lines)) is not None
