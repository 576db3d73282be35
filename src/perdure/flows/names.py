"""Which operations the source of a flow has, by kind and name: what tells a removed operation from one that moved.

Read are the flow's function and the functions that it names. A name that is not written down where it is used (an
f-string, a variable) leaves its kind open: of that kind, anything may be there.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Final

from .author import Flow, StepFunction
from .source import Definition, outer, parse

VERBS: Final = {
    "step": ("step",),
    "attempt": ("step", "attempt"),  # of a function it is a step, of a block an attempt
    "sleep": ("sleep",),
    "sleep_until": ("sleep",),
    "receive": ("receive",),
    "receive_many": ("receive",),
    "child": ("child",),
    "task": ("child",),
    "join": ("join",),
    "race": ("race",),
    "map": ("map",),
    "loop": ("loop",),
    "checkpoint": ("checkpoint",),
    "version": ("version",),
    "send": ("send",),
}
KINDS: Final = {kind for kinds in VERBS.values() for kind in kinds}


class Names:
    """The operations of a flow, as far as its source tells."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._known: set[tuple[str, str]] = set()
        self._open: set[str] = set()  # kinds with a name that is not written down
        self._perhaps: set[str] = set()  # names that are given to something that may ask for an operation
        self._read_all(inspect.unwrap(function))

    def has(self, kind: str, name: str) -> bool | None:
        """None: perhaps."""
        if (kind, name) in self._known:
            return True
        return None if kind in self._open or name in self._perhaps or kind not in KINDS else False

    def _read_all(self, flow: Callable[..., Any]) -> None:
        ahead, seen = [flow], {flow}
        while ahead:
            function = ahead.pop()
            parsed = parse(function) if isinstance(function, FunctionType) else None
            if not isinstance(function, FunctionType) or parsed is None:
                self._open |= KINDS  # who knows what it asks for
                continue
            definition, _ = parsed
            for other in self._read(_Function(function, definition), definition):
                if other not in seen:
                    seen.add(other)
                    ahead.append(other)

    def _read(self, function: _Function, definition: Definition) -> Iterator[FunctionType]:
        """Read one function; the functions that it names."""
        for node in ast.walk(definition):
            if isinstance(node, ast.Call):
                self._call(function, node)
            if isinstance(node, ast.Name | ast.Attribute):
                named = function.object(node)
                if type(named) is FunctionType:
                    yield named

    def _call(self, function: _Function, call: ast.Call) -> None:
        named = function.object(call.func)
        match call.func:
            case _ if type(named) is StepFunction:
                self._known.add(("step", named.__name__))
            case _ if named is partial or type(named) is FunctionType:
                pass
            case ast.Attribute(value=ast.Name(id=owner), attr=verb) if verb in VERBS and not function.is_outside(owner):
                self._operation(function, verb, call)
            case ast.Attribute(value=ast.Name(), attr="removed"):
                self._removed(call)
            case ast.Call(func=ast.Attribute(attr="options")):
                self._operation(function, "step", call)
            case ast.Name(id=called) if called in function.nested:
                pass
            case ast.Name() | ast.Attribute() if named is None:
                self._something(function, call)

    def _operation(self, function: _Function, verb: str, call: ast.Call) -> None:
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "name")]
        match verb, given:
            case "receive" | "receive_many", names:
                texts = [name.value for name in names if isinstance(name, ast.Constant)]
                name = "+".join(map(str, texts)) if len(texts) == len(names) else None
            case "child", [ast.Name() | ast.Attribute() as workflow, *_]:
                child = function.object(workflow)
                name = child.name if isinstance(child, Flow) else None
            case ("send", [_, ast.Constant(value=str(name)), *_]) | (_, [ast.Constant(value=str(name)), *_]):
                pass
            case _:
                name = None
        for kind in VERBS[verb]:
            if name is None:
                self._open.add(kind)
            else:
                self._known.add((kind, name))

    def _removed(self, call: ast.Call) -> None:
        match call.args:
            case [ast.Constant(value=str(name)), ast.Constant(value=str(kind))]:
                self._known.add((kind, name))
            case _:
                self._open |= KINDS

    def _something(self, function: _Function, call: ast.Call) -> None:
        """A call of an unknown function: a variable that holds `ctx.step`, a method that is given the context."""
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            self._perhaps.add(first.value)
        if any(isinstance(each, ast.Name) and each.id == function.context for each in call.args):
            self._open |= KINDS


class _Function:
    """What names mean in a function."""

    def __init__(self, function: FunctionType, definition: Definition) -> None:
        nodes = list(ast.walk(definition))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        self._function = function
        self.nested = {node.name for node in functions if node is not definition}
        self._bound = self.nested | {
            *(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)),
            *(node.arg for node in nodes if isinstance(node, ast.arg)),
        }
        self.context = definition.args.args[0].arg if definition.args.args else ""

    def object(self, node: ast.AST) -> Any:
        """What an expression means, if it is a name from outside of the function, or of a module."""
        match node:
            case ast.Name(id=name) if name not in self._bound:
                return outer(self._function, name)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if self.is_outside(module):
                return vars(outer(self._function, module)).get(name)
            case _:
                return None

    def is_outside(self, name: str) -> bool:
        return name not in self._bound and type(outer(self._function, name)) is ModuleType
