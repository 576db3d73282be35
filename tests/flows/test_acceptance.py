"""What ACCEPTANCE.md says of the tests is true of the tests."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

HERE = Path(__file__).parent
TEXT = (HERE / "ACCEPTANCE.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w./]+\.py)::(\w+)`")
STORES = {"stage", "disk"}

NOT_ON_STORES = {
    "input: each of these, typed by people (no command takes a version)": "commands have a file and a process",
}
"""Sentences that no test with `stage` or `disk` holds, each with the reason."""


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(TEXT)

    assert len(named) == TEXT.count("::") > 150
    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []


def test_every_rule_has_its_line() -> None:
    assert re.findall(r"^\| (F\d+) \| \S", TEXT, re.MULTILINE) == [f"F{n}" for n in range(1, 47)]


def test_every_sentence_is_held_on_the_stores() -> None:
    held = {
        sentence: any(STORES & functions(path)[name] for path, name in NAMED.findall(tests))
        for sentence, tests in sentences()
    }

    assert len(held) == len(sentences()) > 70
    assert {sentence for sentence, on_stores in held.items() if not on_stores} == set(NOT_ON_STORES)


def sentences() -> list[tuple[str, str]]:
    """Each with its group, as `steps: runs in order`, and its tests."""
    found, group = [], ""
    for line in TEXT.partition("## Sentences")[2].partition("\n## ")[0].splitlines():
        match [cell.strip() for cell in line.strip().strip("|").split("|")]:
            case [title, ""]:
                group = title
            case [sentence, tests] if "::" in tests:
                found.append((f"{group}: {sentence}", tests))
    return found


@functools.cache
def functions(path: str) -> dict[str, set[str]]:
    """The functions of a file of tests, each with the names of its arguments."""
    tree = ast.parse((HERE / path).read_text(encoding="utf-8"))
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: {argument.arg for argument in node.args.args} for node in defined}
