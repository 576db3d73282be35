"""What ACCEPTANCE.md says of the tests is true of the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TEXT = (HERE / "ACCEPTANCE.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", TEXT)
    defined = {path: functions(HERE / path) for path in {path for path, _ in named}}

    assert len(named) == TEXT.count("::") > 80
    assert [f"{path}::{name}" for path, name in named if name not in defined[path]] == []


def test_every_line_has_a_test_or_says_that_there_is_none() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.endswith("| |")]

    assert [line for line in lines if "::" not in line and "not yet" not in line] == []


def test_every_rule_has_its_line() -> None:
    assert re.findall(r"^\| (C\d+) \|", TEXT, re.MULTILINE) == [f"C{n}" for n in range(1, 36)]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
