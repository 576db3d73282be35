"""The messages that a flow receives with a type, as its source has them: forms are made from their schemas.

Only what stands in the flow's own function counts, with a constant name and a type that a global name means. What is
not certain is left out: then a message is sent without a form, and the flow says whether it fits.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

from perdure.codec.jsonschema import schema_of

RECEIVES: Final = ("receive", "receive_many")


@functools.lru_cache(maxsize=512)
def messages_of(function: Callable[..., Any]) -> dict[str, list[dict[str, Any]]]:
    """By name: the schema of each receive; an empty one takes anything."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for call in _receives(tree):
        annotation = next((each.value for each in call.keywords if each.arg == "type"), None)
        schema = {} if annotation is None else _schema(annotation, inspect.unwrap(function))
        for name in call.args:
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.setdefault(name.value, []).append(schema)
    return found


def _receives(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RECEIVES:
            yield node


def _schema(annotation: ast.expr, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return schema_of(_named(annotation, function))
    except Exception:  # whatever it is, it has no schema
        return {}


def _named(annotation: ast.expr, function: Callable[..., Any]) -> Any:
    """What a name means: in the function's closure, its module, or among the built-in ones."""
    match annotation:
        case ast.Name(id=name):
            known = inspect.getclosurevars(function)
            return next(names[name] for names in (known.nonlocals, known.globals, known.builtins) if name in names)
        case ast.Attribute(value=value, attr=name):
            return getattr(_named(value, function), name)
        case _:
            raise LookupError(ast.dump(annotation))
