"""What ACCEPTANCE.md says of the tests is true of the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TEXT = (HERE / "ACCEPTANCE.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w./]+\.py)::(\w+)`")


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(TEXT)

    assert len(named) == TEXT.count("::") > 40
    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []


def functions(path: str) -> set[str]:
    tree = ast.parse((HERE / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
