"""Kernel and runtime name no dialect in their code: identifiers and strings. Docstrings may give examples.

`process` is not asked for: it is a word of operating systems too. Imports are held by `import-linter`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "perdure"
DIALECT = re.compile(r"(?<![a-z])(cell|flow|playbook|graph)s?(?![a-z])", re.IGNORECASE)

ALLOWED = {
    ("kernel/problem.py", "flow"): "what a hook hears of; the value is public",
    ("runtime/client.py", "playbook"): "the definitions of `client.playbooks`, which is public",
    ("runtime/client.py", "playbooks"): "the definitions of playbooks; public",
    ("runtime/client.py", " is not a workflow; did you forget @perdure.flow?"): "the usual mistake",
}


def words(tree: ast.AST) -> Iterator[str]:
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in texts:
                yield text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.ImportFrom(module=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case _:
                pass


def test_kernel_and_runtime_name_no_dialect():
    found = {
        (str(path.relative_to(SOURCE)), word)
        for package in ("kernel", "runtime")
        for path in (SOURCE / package).rglob("*.py")
        for word in words(ast.parse(path.read_text()))
        if DIALECT.search(word.replace("_", " "))
    }

    assert found == set(ALLOWED)
