"""Every example runs, and prints what its docstring says."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, links

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "demo.py")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_prints_what_it_says(example: Path, tmp_path: Path):
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    _, promised, said = docstring.partition("Prints:\n")
    assert promised, f"{example.name} does not say what it prints"

    done = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == textwrap.dedent(said).strip()
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_there_are_twenty_small_examples():
    small = [path for path in EXAMPLES if len(path.read_text().splitlines()) <= 65]

    assert len(small) == len(EXAMPLES) >= 20


def test_the_table_of_examples_has_each_of_them():
    table = [link for link in links(ROOT / "examples" / "README.md") if link.endswith(".py")]

    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(table)
