"""The expressions of processes: trees of plain data, and their text, a subset of Python's expressions.

A tree is a JSON scalar or an object with one key:

    {"get": ["state", "amount"]}         state.amount
    {"call": ["lt", a, b]}               a < b
    {"list": [a, b]}                     [a, b]
    {"object": {"k": a}}                 {"k": a}
    {"each": ["x", body]}                lambda x: body          (the last argument of map, filter, any, all, sort)
    {"value": ["decimal", "1.50"]}       value("decimal", "1.50")

`parse(text(tree)) == tree`. Text is parsed to Python's syntax tree and never evaluated as Python. The rules of values:
a missing member is null, conditions are booleans, nothing is converted.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection
from keyword import iskeyword
from math import isfinite
from typing import Any, Final, TypeAlias

from perdure.codec import is_text
from perdure.errors import BadExpression

from .budget import BITS_MAX, PROCESS, At
from .compile import Expression, Place, Users, certain_kind, takes
from .functions import FUNCTIONS
from .nodes import Array, Call, Choice, Coalesce, Const, Get, Logic, Node, Not, Object, Over
from .problem import Problem, meant
from .values import LITERALS

Tree: TypeAlias = Any
Path: TypeAlias = tuple[str | int, ...]

LAZY: Final = {"and": (2, None), "or": (2, None), "not": (1, 1), "if": (3, 3), "coalesce": (1, None)}
"""Functions that do not evaluate all arguments, or whose name is a word of Python, and how many arguments they take."""

NAMES: Final = frozenset((*LAZY, *(name for name, function in FUNCTIONS.items() if function.processes)))
_ORDER: Final = frozenset(("lt", "le", "gt", "ge"))
_TEXT_MAX: Final = 65_536
_UNKNOWN: Final = Get(root="", keys=(), missing="null")  # in the place of what has a problem: its kind is not certain


def check(tree: Tree, roots: Collection[str], functions: Users | None = None) -> list[Problem]:
    """All problems of a tree, given the roots that may stand here and the functions of users."""
    return _read(tree, roots, functions or {})[1]


def compile_tree(tree: Tree, functions: Users | None = None, roots: Collection[str] | None = None) -> Expression:
    """The expression of a tree. Raises `BadExpression` with all problems."""
    node, problems = _read(tree, roots, functions or {})
    if problems:
        raise BadExpression(tuple(problems))

    def place(at: At) -> Place:
        path = at if isinstance(at, tuple) else ()
        part = tree
        for key in path:
            part = part[key]
        return text(part), "".join(f"/{key}" for key in path) or "/", 0, 0

    return Expression(node, PROCESS, place, functions or {})


# ---- trees to nodes --------------------------------------------------------------------------------------------


class _Stop(Exception):
    pass


def _read(tree: Tree, roots: Collection[str] | None, users: Users) -> tuple[Node, list[Problem]]:
    reader = _Reader(roots, users)
    try:
        return reader.node(tree, (), 1), reader.problems
    except _Stop:
        return _UNKNOWN, reader.problems


class _Reader:
    def __init__(self, roots: Collection[str] | None, users: Users) -> None:
        self.roots = roots
        self.users = users
        self.problems: list[Problem] = []
        self.size = 0
        self.variables: list[str] = []

    def node(self, tree: Tree, path: Path, depth: int) -> Node:
        self.size += 1
        if depth > PROCESS.depth or self.size > PROCESS.size:
            limit = f"{PROCESS.depth} levels" if depth > PROCESS.depth else f"{PROCESS.size:,} nodes"
            self.problem("PD017", path, f"the expression has more than {limit}", "split it, or write a function")
            raise _Stop
        if not isinstance(tree, dict):
            return self.scalar(tree, path)
        if len(tree) != 1:
            return self.wrong(path, f"an object with {len(tree)} keys", "it has one of get, call, list, object, value")
        ((word, given),) = tree.items()
        path = (*path, word)
        match word, given:
            case "get", [str(root), *keys]:
                return self.get(root, keys, path)
            case "call", [str(name), *args]:
                return self.call(name, args, path, depth)
            case "list", list():
                items = [self.node(item, (*path, index), depth + 1) for index, item in enumerate(given)]
                return Array(items=tuple(items), at=path[:-1])
            case "object", dict() if all(is_text(key) for key in given):
                pairs = [(key, self.node(item, (*path, key), depth + 1)) for key, item in given.items()]
                return Object(pairs=tuple(pairs), at=path[:-1])
            case "value", [str(kind), str(spelled)] if kind in LITERALS:
                try:
                    return Const(value=LITERALS[kind](spelled), at=path[:-1])
                except (ValueError, ArithmeticError) as error:
                    return self.wrong(path, f"{spelled[:60]!r} is no {kind}", str(error)[:100])
            case "each", _:
                return self.wrong(path, "each stands here", "it is the last argument of map, filter, any, all or sort")
            case _:
                hint = meant(str(word), ("get", "call", "list", "object", "value"))
                return self.wrong(path, f"{str(word)[:60]!r} is no expression, or its parts are wrong", hint)

    def scalar(self, value: Any, path: Path) -> Node:
        match value:
            case None | bool():
                pass
            case int() if value.bit_length() <= BITS_MAX:
                pass
            case float() if isfinite(value):
                pass
            case str() if is_text(value):
                pass
            case _:
                return self.wrong(path, f"a {type(value).__name__} is no JSON scalar", "see the forms of a tree")
        return Const(value=value, at=path)

    def get(self, root: str, keys: list[Any], path: Path) -> Node:
        if not all(type(key) is int or is_text(key) for key in keys) or not _is_name(root):
            return self.wrong(path, "a path has a name, then texts and whole numbers", "")
        if len(keys) > PROCESS.depth:
            self.problem("PD017", path, f"the path has more than {PROCESS.depth} steps", "use at()")
        at, found = path[:-1], tuple(keys)
        if root in self.variables:
            slot = len(self.variables) - 1 - self.variables[::-1].index(root)
            return Get(root=slot, keys=found, missing="null", at=at)
        if self.roots is not None and root not in self.roots:
            known = [*self.roots, *self.variables]
            hint = meant(root, known) or f"known here: {', '.join(sorted(known))}"
            self.problem("PD012", path, f"there is no root {root} here", hint)
        return Get(root=root, keys=found, missing="null", at=at)

    def call(self, name: str, args: list[Any], path: Path, depth: int) -> Node:
        at = path[:-1]
        each = args.pop() if args and isinstance(args[-1], dict) and args[-1].keys() == {"each"} else None
        nodes = [self.node(arg, (*path, index), depth + 1) for index, arg in enumerate(args, 1)]
        body = None if each is None else self.each(name, each["each"], (*path, len(args) + 1, "each"), depth + 1)
        if name not in NAMES and name not in self.users:
            self.problem("PD014", path, f"there is no function {name[:60]}", meant(name, (*NAMES, *self.users)))
            return _UNKNOWN
        if not self.fits(name, len(args), body is not None, path):
            return _UNKNOWN
        self.kinds(name, nodes, path)
        match name:
            case "and" | "or":
                return Logic(word=name, items=tuple(nodes), strict=True, at=at)
            case "not":
                return Not(item=nodes[0], strict=True, at=at)
            case "if":
                return Choice(test=nodes[0], then=nodes[1], other=nodes[2], strict=True, at=at)
            case "coalesce":
                return Coalesce(items=tuple(nodes), at=at)
            case _:
                pass
        if body is not None:
            slot = len(self.variables)
            return Over(name=name, source=nodes[0], slot=slot, body=body, args=tuple(nodes[1:]), at=at)
        return Call(name=name, args=tuple(nodes), at=at)

    def each(self, name: str, given: Any, path: Path, depth: int) -> Node:
        if not (isinstance(given, list) and len(given) == 2 and _is_name(given[0])):
            return self.wrong(path, "each has a name and a body", "")
        if name not in NAMES or name in LAZY or not FUNCTIONS[name].each:
            return self.wrong(path, f"{name[:60]} takes no body for each element", "")
        self.variables.append(given[0])
        body = self.node(given[1], (*path, 1), depth + 1)
        self.variables.pop()
        return body

    def fits(self, name: str, count: int, has_body: bool, path: Path) -> bool:
        least, most = _arity(name, self.users)
        if least <= count and (most is None or count <= most) and (has_body or name not in ("map", "filter")):
            return True
        wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        wanted += " and a body for each element" if name in ("map", "filter") else ""
        self.problem("PD015", path, f"{name} takes {wanted} argument{'' if wanted == '1' else 's'}, found {count}", "")
        return False

    def kinds(self, name: str, nodes: list[Node], path: Path) -> None:
        """Only what is certain before anything runs is a problem here."""
        found = [certain_kind(node) for node in nodes]
        for index, kind in enumerate(found):
            if name in ("and", "or", "not") or (name == "if" and index == 0):
                wanted: frozenset[str] | None = frozenset(("boolean",))
            else:
                wanted = takes(FUNCTIONS[name], index) if name in FUNCTIONS and name not in self.users else None
            if kind is not None and wanted is not None and kind not in wanted:
                text = f"{name} takes {' or '.join(sorted(wanted))} here, not {kind}"
                self.problem("PD016", (*path, index + 1), text, "nothing is converted by itself")
        if name in _ORDER and None not in found and found[0] != found[1]:
            self.problem("PD016", path, f"a {found[0]} and a {found[1]} have no order", "")

    def problem(self, code: str, path: Path, text: str, hint: str) -> None:
        self.problems.append(Problem(code, text, hint, path))

    def wrong(self, path: Path, text: str, hint: str) -> Node:
        self.problem("PD003", path, text, hint)
        return _UNKNOWN


def _arity(name: str, users: Users) -> tuple[int, int | None]:
    if name in LAZY:
        return LAZY[name]
    if name not in users:
        return FUNCTIONS[name].least, FUNCTIONS[name].most
    try:
        given = list(inspect.signature(users[name]).parameters.values())
    except (TypeError, ValueError):
        return 0, None
    places = [one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    least = sum(one.default is one.empty for one in places)
    return least, None if any(one.kind is one.VAR_POSITIONAL for one in given) else len(places)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and name.isascii() and not iskeyword(name)


# ---- trees to text ---------------------------------------------------------------------------------------------

_OPERATORS: Final = {  # sign, strength, least strength of the left and of the right operand
    "or": ("or", 1, 2, 2),
    "and": ("and", 2, 3, 3),
    "eq": ("==", 4, 5, 5),
    "ne": ("!=", 4, 5, 5),
    "lt": ("<", 4, 5, 5),
    "le": ("<=", 4, 5, 5),
    "gt": (">", 4, 5, 5),
    "ge": (">=", 4, 5, 5),
    "add": ("+", 5, 5, 6),
    "sub": ("-", 5, 5, 6),
    "mul": ("*", 6, 6, 7),
    "div": ("/", 6, 6, 7),
    "mod": ("%", 6, 6, 7),
}
_ATOM: Final = 9


def text(tree: Tree) -> str:
    """The text of a tree that `check` finds no structural problem in."""
    return _write(tree, 0)


def _write(tree: Tree, least: int) -> str:
    written, strength = _written(tree)
    return written if strength >= least else f"({written})"


def _written(tree: Tree) -> tuple[str, int]:
    match tree:
        case {"get": [root, *keys]}:
            return str(root) + "".join(f".{key}" if _is_name(key) else f"[{key!r}]" for key in keys), _ATOM
        case {"list": items}:
            return f"[{', '.join(_write(item, 0) for item in items)}]", _ATOM
        case {"object": pairs}:
            return "{" + ", ".join(f"{key!r}: {_write(item, 0)}" for key, item in pairs.items()) + "}", _ATOM
        case {"value": [kind, spelled]}:
            return f"value({kind!r}, {spelled!r})", _ATOM
        case {"each": [name, body]}:
            return f"lambda {name}: {_write(body, 0)}", 0
        case {"call": ["if", test, then, other]}:
            return f"{_write(then, 1)} if {_write(test, 1)} else {_write(other, 0)}", 0
        case {"call": ["not", item]}:
            return f"not {_write(item, 3)}", 3
        case {"call": ["neg", item]} if isinstance(item, dict):
            return f"-{_write(item, 7)}", 7
        case {"call": [("and" | "or") as name, *items]}:
            sign, strength, left, _ = _OPERATORS[name]
            return f" {sign} ".join(_write(item, left) for item in items), strength
        case {"call": [name, one, two]} if name in _OPERATORS:
            sign, strength, left, right = _OPERATORS[name]
            return f"{_write(one, left)} {sign} {_write(two, right)}", strength
        case {"call": [name, *args]}:
            return f"{name}({', '.join(_write(arg, 0) for arg in args)})", _ATOM
        case _:
            negative = isinstance(tree, int | float) and repr(tree).startswith("-")
            return repr(tree), 7 if negative else _ATOM


# ---- text to trees ---------------------------------------------------------------------------------------------

_CALLED: Final[dict[type[ast.AST], str]] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Mod: "mod",
    ast.And: "and",
    ast.Or: "or",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.Not: "not",
    ast.Invert: "not",
    ast.USub: "neg",
}
_INSTEAD: Final[dict[type[ast.AST], str]] = {
    ast.JoinedStr: "use concat(...) and text(...)",
    ast.ListComp: "use map(list, lambda x: ...) or filter(list, lambda x: ...)",
    ast.GeneratorExp: "use map(list, lambda x: ...), any(...) or all(...)",
    ast.FloorDiv: "use floor(a / b)",
    ast.Is: "use ==",
    ast.IsNot: "use !=",
    ast.Slice: "use slice(list, start, end)",
    ast.Lambda: "it is the last argument of map, filter, any, all or sort",
}


def parse(text: str) -> Tree:
    """The tree of a text. Raises `BadExpression` with the place of what is no part of the language."""
    if len(text) > _TEXT_MAX:
        raise BadExpression((Problem("PD017", f"the text has more than {_TEXT_MAX:,} characters", "split it"),))
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        column = error.offset or len(text.strip().rpartition("\n")[2]) + 1  # 0: at the end
        found = f"expected an expression, such as state.amount > 5: {error.msg}"
        problem = Problem("PD003", found, "", (), error.lineno or 1, column)
        raise BadExpression((problem,)) from None
    except (MemoryError, RecursionError, ValueError):
        raise BadExpression((Problem("PD017", "the text is nested too deeply, or has a null character"),)) from None
    return _tree(body, 1)


def _refuse(node: ast.AST, text: str, hint: str = "", code: str = "PD003") -> BadExpression:
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    return BadExpression((Problem(code, text, hint, (), line, column),))


def _tree(node: ast.AST, depth: int) -> Tree:
    if depth > 2 * PROCESS.depth:  # the tree of a text may be flatter; `check` counts its levels
        raise _refuse(node, "the text is nested too deeply", "split it", "PD017")

    def down(part: ast.AST) -> Tree:
        return _tree(part, depth + 1)

    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
            if isinstance(value, float) and not isfinite(value):
                raise _refuse(node, "the number is too large")
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
            type(value) is not bool
        ):
            return -value
        case ast.Name(id=name):
            return {"get": [name]}
        case ast.Attribute(value=target, attr=name):
            return _step(down(target), name)
        case ast.Subscript(value=target, slice=key) if not isinstance(key, ast.Slice | ast.Tuple):
            return _step(down(target), down(key))
        case ast.List(elts=items):
            return {"list": [down(item) for item in items]}
        case ast.Dict(keys=keys, values=values):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
                raise _refuse(node, "the keys of an object are texts, each once")
            return {"object": {name: down(value) for name, value in zip(names, values, strict=True)}}
        case ast.IfExp(test=test, body=then, orelse=other):
            return {"call": ["if", down(test), down(then), down(other)]}
        case ast.BoolOp(op=op, values=values):
            return {"call": [_CALLED[type(op)], *(down(value) for value in values)]}
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _comparison(op, node, down(left), down(right))
        case ast.Compare():
            raise _refuse(node, "comparisons are chained", "write a < b and b < c")
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _CALLED:
            return {"call": [_CALLED[type(op)], down(left), down(right)]}
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _CALLED:
            return {"call": [_CALLED[type(op)], down(operand)]}
        case ast.Call(func=func, args=args, keywords=[]):
            return _called(node, func, args, down)
        case _:
            inner = getattr(node, "op", getattr(node, "slice", node))
            hint = _INSTEAD.get(type(inner), "")
            raise _refuse(node, f"{type(inner).__name__} is no part of the language of expressions", hint)


def _step(target: Tree, key: Tree) -> Tree:
    match target:
        case {"get": [*path]} if type(key) in (str, int):
            return {"get": [*path, key]}
        case _:
            return {"call": ["at", target, key]}


def _comparison(op: ast.cmpop, node: ast.AST, left: Tree, right: Tree) -> Tree:
    if isinstance(op, ast.In | ast.NotIn):
        found = {"call": ["contains", right, left]}
        return found if isinstance(op, ast.In) else {"call": ["not", found]}
    if type(op) not in _CALLED:
        raise _refuse(node, f"{type(op).__name__} is no comparison here", _INSTEAD.get(type(op), ""))
    return {"call": [_CALLED[type(op)], left, right]}


def _called(node: ast.Call, func: ast.AST, args: list[ast.expr], down: Callable[[ast.AST], Tree]) -> Tree:
    name = _dotted(func)
    if name is not None:
        name = name.removeprefix("fn.")  # as Python sources write it
    if name is None:
        raise _refuse(node, "only functions can be called", "a method is written as a function: upper(x)")
    if name == "value":
        spelled = [arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if len(args) != 2 or len(spelled) != 2:
            raise _refuse(node, "value() has two texts: a kind and how it is spelled")
        return {"value": spelled}
    parts = []
    for index, arg in enumerate(args):
        match arg:
            case ast.Lambda(args=given, body=body) if index == len(args) - 1 and _has_one_name(given):
                parts.append({"each": [given.args[0].arg, down(body)]})
            case _:
                parts.append(down(arg))
    return {"call": [name, *parts]}


def _dotted(func: ast.AST) -> str | None:
    names: list[str] = []
    while isinstance(func, ast.Attribute):
        names.append(func.attr)
        func = func.value
    return ".".join([func.id, *reversed(names)]) if isinstance(func, ast.Name) else None


def _has_one_name(arguments: ast.arguments) -> bool:
    others = (arguments.posonlyargs, arguments.kwonlyargs, arguments.defaults, arguments.vararg, arguments.kwarg)
    return len(arguments.args) == 1 and not any(others)
