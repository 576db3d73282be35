"""The kernel and expressions are pure: no async, no I/O, no clock, no randomness.

import-linter holds the imports too, also the indirect ones. This test reads the syntax tree, so it sees what
an import graph cannot: `async def`, a call of `print`, a `datetime.now()`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = [ROOT / "src" / "perdure" / name for name in ("kernel", "expressions")]

STORES = {"apsw", "asyncpg", "sqlite3"}
CONCURRENCY = {"asyncio", "concurrent", "multiprocessing", "selectors", "signal", "threading"}
OUTSIDE = {"importlib", "io", "os", "pathlib", "shutil", "socket", "subprocess", "sys", "tempfile"}
CLOCK_AND_DICE = {"random", "secrets", "time"}

IMPURE_MODULES = STORES | CONCURRENCY | OUTSIDE | CLOCK_AND_DICE
ALLOWED = {"src/perdure/expressions/jinja.py imports sys"}
"""jinja2 parses a level with thirteen calls: 100 levels need more of them than Python allows by itself."""

IMPURE_BUILTINS = {"__import__", "eval", "exec", "input", "open", "print"}
IMPURE_METHODS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "uuid.uuid1",
    "uuid.uuid4",
}


@pytest.mark.parametrize("package", PURE, ids=lambda package: package.name)
def test_a_pure_package_does_nothing_but_compute(package: Path):
    files = sorted(package.rglob("*.py"))
    assert files, f"nothing to look at in {package.relative_to(ROOT)}"

    found = [offence for file in files for offence in offences(file.read_text(), str(file.relative_to(ROOT)))]
    found = [each for each in found if f"{each.partition(':')[0]}{each.rpartition(':')[2]}" not in ALLOWED]

    assert not found, f"{package.name} must stay pure:\n" + "\n".join(found)


def test_an_impure_import_is_found_with_its_line():
    assert list(offences("import json\nimport os.path as p\nfrom time import monotonic\n", "k.py")) == [
        "k.py:2: imports os.path",
        "k.py:3: imports time",
    ]


def test_async_code_is_found():
    code = "async def f(x):\n    async with x:\n        await x\n        return [i async for i in x]\n"

    lines = [offence.split(":")[1] for offence in offences(code, "k.py")]

    assert lines == ["1", "2", "3", "4"]


def test_input_output_clock_and_dice_are_found():
    code = "print(1)\nopen('f')\ndatetime.datetime.now()\nuuid.uuid4()\n"

    assert list(offences(code, "k.py")) == [
        "k.py:1: calls print",
        "k.py:2: calls open",
        "k.py:3: calls datetime.now",
        "k.py:4: calls uuid.uuid4",
    ]


def test_the_kernels_own_names_are_left_alone():
    assert not list(offences("from . import time\nfrom .open import now\nself.open(moment.now)\n", "k.py"))


def offences(code: str, name: str) -> Iterator[str]:
    nodes = [node for node in ast.walk(ast.parse(code)) if line_of(node)]
    for node in sorted(nodes, key=line_of):
        for what in offences_of(node):
            yield f"{name}:{line_of(node)}: {what}"


def line_of(node: ast.AST) -> int:
    if isinstance(node, ast.comprehension):  # the one node we look at that has no line of its own
        return node.target.lineno
    return getattr(node, "lineno", 0)


def offences_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"imports {alias.name}" for alias in names if is_impure(alias.name))
        case ast.ImportFrom(module=str(module), level=0) if is_impure(module):
            yield f"imports {module}"
        case ast.AsyncFunctionDef(name=name):
            yield f"async def {name}"
        case ast.AsyncFor() | ast.AsyncWith() | ast.Await():
            yield f"{type(node).__name__} in code that has no colour"
        case ast.comprehension(is_async=1):
            yield "async comprehension in code that has no colour"
        case ast.Call(func=ast.Name(id=called)) if called in IMPURE_BUILTINS:
            yield f"calls {called}"
        case ast.Call(func=ast.Attribute() as func) if (called := last_two(func)) in IMPURE_METHODS:
            yield f"calls {called}"


def is_impure(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in IMPURE_MODULES


def last_two(func: ast.Attribute) -> str:
    """`datetime.datetime.now` -> `datetime.now`"""
    return ".".join(ast.unparse(func).split(".")[-2:])
