"""Runs in the child process of the tool `python`, and imports nothing of perdure.

It reads one JSON document (what to run, and the args) from its input and writes one (the result, or the error) to the
file that it is told. What the code prints goes to the output, which is not read.
"""

import ast
import importlib
import json
import sys
import traceback
from collections.abc import Iterator
from typing import Any


def main() -> None:
    asked = json.load(sys.stdin)
    try:
        told: dict[str, Any] = {"result": perform(asked)}
        text = json.dumps(told, default=plain)
    except BaseException as error:
        told = {
            "error": {"exception": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
        }
        text = json.dumps(told)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(text)


def perform(asked: Any) -> Any:
    args = asked["args"]
    if asked["call"]:
        module, _, name = asked["call"].partition(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return finished(found(**args))
    names: dict[str, Any] = {
        **args,
        "args": args,
        "input_data": args,
        "__name__": "__playbook__",
        "__file__": asked["file"],
    }
    names["libs"] = {alias: imported(named) for alias, named in asked["libs"].items()}
    names.update(names["libs"])
    tree = ast.parse(asked["code"], asked["file"])
    if any(isinstance(node, ast.Return) for node in outer(tree)):
        body = ast.parse("def __playbook__():\n    pass")
        body.body[0].body = [*(ast.parse("result = None").body), *tree.body]  # type: ignore[attr-defined]
        exec(compile(ast.fix_missing_locations(body), asked["file"], "exec"), names)
        return finished(names["__playbook__"]())
    exec(compile(tree, asked["file"], "exec"), names)
    if "result" in names and "result" not in args:
        return finished(names["result"])
    if callable(names.get("main")):
        return finished(names["main"](**args))
    return names.get("result")


def imported(named: str) -> Any:
    """A module, or `module:name` of it."""
    module, _, name = named.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def outer(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a module that are in no function or class of it."""
    ahead: list[ast.AST] = list(tree.body)
    while ahead:
        node = ahead.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            ahead.extend(ast.iter_child_nodes(node))


def finished(value: Any) -> Any:
    if hasattr(value, "__await__"):
        import asyncio

        async def wait() -> Any:
            return await value

        return asyncio.run(wait())
    return value


def plain(value: Any) -> Any:
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    for method in ("to_dict", "tolist", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    return str(value)


if __name__ == "__main__":
    main()
