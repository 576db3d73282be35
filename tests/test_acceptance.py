"""What the files ACCEPTANCE.md say of the tests is true of the tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMED = re.compile(r"`([\w./]+\.py)::(\w+)`")
LEAST = {"graphs": 90, "playbooks": 120, "processes": 40, "server": 30, "tasks": 40}


@pytest.mark.parametrize(("package", "least"), LEAST.items())
def test_every_test_that_is_named_exists(package: str, least: int) -> None:
    text = (HERE / package / "ACCEPTANCE.md").read_text(encoding="utf-8")
    named = NAMED.findall(text)

    assert len(named) == text.count("::") > least
    assert [f"{path}::{name}" for path, name in named if name not in functions(HERE / package / path)] == []


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
