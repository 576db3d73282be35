"""No package but the dialects names one in its code: identifiers and strings. Docstrings may give examples.

In packages that speak with people, texts may give examples too: "put @perdure.flow above it".

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
    ("runtime/client.py", " is not a cell; did you forget @perdure.cell?"): "the usual mistake",
    ("runtime/arguments.py", "did you forget @perdure.flow?"): "the usual mistake",
}

ALLOWED_ABOVE = {
    ("app/engine.py", "playbook"): "the definitions of `engine.playbooks`, which is public",
    ("app/engine.py", "playbooks"): "the definitions of playbooks; public",
    ("cli/commands/code.py", "flow"): "a field of the document of `perdure check --json`",
    ("cli/commands/code.py", "flows"): "a field of the document of `perdure check --json`",
    ("cli/commands/code.py", "MODULE[:FLOW]"): "a text that people read",
    ("cli/commands/run.py", "MODULE:FLOW|FILE"): "a text that people read",
    **{("server/logins.py", word): "the code flow of OpenID" for word in ("flow", "_flow", "_no_flow", "FLOW_SECONDS")},
    ("server/auth/oidc.py", "flow"): "the code flow of OpenID",
    ("server/auth/oidc.py", "CodeFlow"): "the code flow of OpenID",
    ("server/logins.py", "CodeFlow"): "the code flow of OpenID",
    ("server/problems.py", "BadPlaybook"): "an error of the public list, by its name",
    ("server/routes.py", "/cells"): "a path of the public API",
    ("server/routes.py", "/cells/{id}"): "a path of the public API",
    ("server/routes.py", "/cells/{id}/-/tail"): "a path of the public API",
    ("server/routes.py", "/playbooks/simulate"): "a path of the public API",
    ("server/api/world.py", "cells"): "a field of the documents of world snapshots",
    ("server/api/definitions.py", "playbook"): "the definitions of `client.playbooks`, which is public",
    ("server/api/definitions.py", "playbooks"): "the definitions of playbooks; public",
}

WIRING = "app/ours.py"
"""The one file that lists our dialects, and reads their files."""


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


def named(*packages: str) -> set[tuple[str, str]]:
    """By file, the words of its code that name a dialect."""
    return {
        (str(path.relative_to(SOURCE)), word)
        for package in packages
        for path in (SOURCE / package).rglob("*.py")
        for word in words(ast.parse(path.read_text()))
        if DIALECT.search(re.sub("(?<=[a-z])(?=[A-Z])", " ", word.replace("_", " ")))
    }


def test_kernel_and_runtime_name_no_dialect():
    assert named("kernel", "runtime") == set(ALLOWED)


def test_the_packages_above_and_beside_the_dialects_name_none():
    found = named("app", "cli", "server", "stores", "verbs", "views")

    assert {(file, word) for file, word in found if file != WIRING and " " not in word} == set(ALLOWED_ABOVE)


def test_no_package_looks_for_a_slash_in_the_name_of_a_workflow():
    """`"/" in name` was how cells were known. The client takes an id apart, which is `workflow/key`."""
    packages = ("kernel", "runtime", "app", "cli", "stores", "verbs", "views")
    found = [
        str(path.relative_to(SOURCE))
        for package in packages
        for path in (SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(isinstance(each, ast.In | ast.NotIn) for each in node.ops)
        and isinstance(node.left, ast.Constant)
        and node.left.value == "/"
    ]

    assert found == ["runtime/client.py"]
