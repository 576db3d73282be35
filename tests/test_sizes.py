"""Sizes and names of the source: what a reader can hold in mind. Exceptions are named here, with their reason."""

import ast
import gc
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "perdure"

LINES_MAX = 500
METHODS_MAX = 35
FUNCTION_LINES_MAX = 60

DIALECTS = ("cells", "flows", "graphs", "playbooks", "processes")

LONG_FILES = {
    "cells/author.py": "all that an author of cells writes, with the checks that speak of it",
    "codec/canonical.py": "one format: its writer and its readers change together",
    "codec/record.py": "one class of authors, and what its fields may be",
    "codec/schema.py": "one type for each word of a schema",
    "expressions/compile.py": "one case for each node",
    "expressions/functions.py": "one short function for each function of expressions",
    "expressions/jinja.py": "one reader of one syntax",
    "playbooks/pipeline.py": "one pass over the actions of a step",
    "playbooks/read.py": "one method for each part of a playbook",
    "runtime/handle.py": "what callers may do with an instance: a docstring for each",
    "stores/memory.py": "one store: the smallest that does what a store must do",
    "testing/crashes.py": "one search for schedules, and what it tells",
    "testing/simulation.py": "one world: processes, requests and faults on one clock",
    "testing/world.py": "the tests' world for users: a docstring for each method",
}

LARGE_CLASSES = {
    "ports/store.py Queries": "the contract itself: one method for each question",
    "playbooks/read.py Reader": "one method for each part of a playbook",
    "runtime/handle.py Handle": "one method for each thing that callers may do with an instance",
    "stores/memory.py MemoryStore": "one method for each question of the contract of stores",
    "stores/postgres/queries.py PostgresQueries": "one method for each question of the contract of queries",
    "stores/sqlite/queries.py SqliteQueries": "one method for each question of the contract of queries",
    "testing/simulation.py Simulation": "one method for each thing that a world can do",
}

LONG_FUNCTIONS = {
    "app/engine.py open": "a signature with many options, and a sentence for each of them",
}

VOCABULARIES = (*DIALECTS, "drawing", "expressions")
"""Packages that speak of something of their own: what authors write, shapes, nodes. They do not know each other."""

REPEATED = {
    "Found": ("", "the rows that a tool found; the instance that a view found"),
    "Handle": ("", "the simulation's handle is what a test has in place of the real one"),
    "OpenEffect": ("", "the world of tests shows what the engine shows"),
    "Problem": ("", "what is wrong with an input; what a hook hears of. Both are public"),
    "Reply": ("", "of a model; of a machine to a message"),
    "Run": ("", "of a step in tests, which is public; of the command of that name"),
    "Scope": ("processes", "of a check; of what runs"),
    "ToolCall": ("", "a model wants a tool; an executor performs it"),
}
"""By name: in which vocabulary it is repeated, and why it may be."""

FILES = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


@cache
def trees() -> dict[str, ast.Module]:
    """Not at the import of this file, which each process of a test run pays for."""
    gc.disable()  # it would look at a million nodes again and again: three quarters of the time
    try:
        return {name: ast.parse(text) for name, text in FILES.items()}
    finally:
        gc.enable()


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each


def methods(node: ast.ClassDef) -> int:
    """Its methods; the signatures of an overloaded one count once."""
    return len({each.name for each in functions(node)})


@cache
def statements() -> list[tuple[str, ast.stmt]]:
    """All statements with their file. Expressions hold no functions and no classes: they are not looked at."""
    return [(name, node) for name, tree in trees().items() for node in within(tree)]


def within(node: ast.AST) -> Iterator[ast.stmt]:
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            if isinstance(each, ast.stmt):
                yield each
            yield from within(each)


def test_a_file_has_at_most_500_lines():
    long = {name for name, text in FILES.items() if len(text.splitlines()) > LINES_MAX}

    assert long == set(LONG_FILES)


def test_a_class_has_at_most_35_methods():
    large = {
        f"{name} {node.name}"
        for name, node in statements()
        if isinstance(node, ast.ClassDef) and methods(node) > METHODS_MAX
    }

    assert large == set(LARGE_CLASSES)


def test_a_function_has_at_most_60_lines():
    long = {
        f"{name} {node.name}"
        for name, node in statements()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    }

    assert long == set(LONG_FUNCTIONS)


def class_names(*, vocabulary: str | None) -> Counter[str]:
    """How often each name stands for a class of a module: of a vocabulary, or of all that they share.

    Private classes are known to their file alone. The conformance suite names a class after what it tests.
    """
    found: Counter[str] = Counter()
    for name, tree in trees().items():
        package = name.partition("/")[0]
        if (package if package in VOCABULARIES else None) != vocabulary or name.startswith("testing/stores/"):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name] += 1
    return found


@pytest.mark.parametrize("vocabulary", [None, *VOCABULARIES])
def test_a_class_name_is_unique(vocabulary: str | None):
    """Within a vocabulary, or in all that they share. An author may write a word of the kernel: it means the same."""
    repeated = {name for name, count in class_names(vocabulary=vocabulary).items() if count > 1}

    assert repeated == {name for name, (where, _) in REPEATED.items() if where == (vocabulary or "")}
