"""The expressions of playbooks: Jinja's syntax in texts and guards. jinja2 parses, and evaluates nothing.

    "{{ ctx.rows }}"                  keeps the type of its value
    "{{ ctx.name }}: {{ ctx.rows }}"  is a text, with values as JSON
    when: ctx.rows | length > 3       is a guard, with or without braces

A missing member is an error unless `default()` or `is defined` meets it; `Scope.v10` makes it null. The
caller says by a `Scope` what a name means and which paths are secrets.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import msgspec

from perdure.codec import is_text
from perdure.errors import BadExpression, NotInstalled

from .budget import BITS_MAX, PLAYBOOK, At
from .compile import Expression, Place
from .functions import FUNCTIONS
from .nodes import (
    Array,
    Call,
    Choice,
    Const,
    Defined,
    Fallback,
    Get,
    Guard,
    Key,
    Logic,
    Member,
    Missing,
    Node,
    Not,
    Object,
    Over,
    Repeat,
    SecretPart,
    Text,
)
from .problem import Problem, line_and_column, meant
from .values import ABSENT

try:
    import jinja2
    from jinja2 import nodes as ast
    from jinja2.lexer import TokenStream
except ImportError:
    raise NotInstalled("a playbook", "playbooks") from None


class Scope(msgspec.Struct, frozen=True):
    """What is known at a place of a playbook."""

    bind: Callable[[str], tuple[Key, ...] | None]  # the path, from a root, that a bare name means; None: it is unknown
    secret: Callable[[tuple[Key, ...]], str | None] | None = None  # the secret at a path; None: no secrets here
    secrets: str = "keychain"  # the root whose members are secrets
    optional: Callable[[tuple[Key, ...]], bool] | None = None  # whether a path is null where what it is of is null
    v10: bool = False  # missing members are null, guards may be texts, and filters of texts take what is none


FILTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {  # the function, and the names of further arguments
    "int": ("int", ("default",)),
    "float": ("float", ("default",)),
    "string": ("text", ()),
    "lower": ("lower", ()),
    "upper": ("upper", ()),
    "trim": ("trim", ()),
    "replace": ("replace", ("old", "new")),
    "split": ("split", ("sep",)),
    "join": ("join", ("d",)),
    "length": ("length", ()),
    "first": ("first", ()),
    "last": ("last", ()),
    "sum": ("sum", ("start",)),
    "min": ("min", ()),
    "max": ("max", ()),
    "sort": ("sort", ("reverse",)),
    "unique": ("unique", ()),
    "reverse": ("reverse", ()),
    "round": ("round", ("precision",)),
    "abs": ("abs", ()),
    "list": ("list", ()),
    "keys": ("keys", ()),
    "values": ("values", ()),
    "items": ("items", ()),
    "tojson": ("tojson", ()),
    "fromjson": ("fromjson", ()),
    "b64encode": ("b64encode", ()),
    "b64decode": ("b64decode", ()),
    "sha256": ("sha256", ()),
}
SPECIAL_FILTERS: Final = ("default", "map", "selectattr", "rejectattr")
TESTS: Final = {
    "none": "is_none",
    "string": "is_string",
    "number": "is_number",
    "mapping": "is_mapping",
    "sequence": "is_sequence",
}
CALLS: Final = ("now", "random", "uuid", "range")

_COMPARISONS: Final = {"eq": "eq", "ne": "ne", "lt": "lt", "lteq": "le", "gt": "gt", "gteq": "ge"}
_ATTRIBUTE_TESTS: Final = {
    **{"equalto": "eq", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"},
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
_OPERATORS: Final[dict[type[ast.Node], str]] = {
    ast.Add: "plus",
    ast.Sub: "sub",
    ast.Mul: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
}
_TOP_LEVEL_ONLY: Final = "a secret is the whole value or a part of a text"


def compile_value(value: Any, scope: Scope) -> Expression:
    """The expression of a field: plain data with templates in its texts. Raises `BadExpression` with all problems."""
    reader = _Reader(scope)
    return reader.finish(reader.value(value, ()))


def compile_guard(value: str | bool, scope: Scope) -> Expression:
    """The expression of a guard: its value is a boolean. Raises `BadExpression`."""
    reader = _Reader(msgspec.structs.replace(scope, secret=None))
    return reader.finish(Guard(item=reader.guard(value), lenient=scope.v10))


# ---- jinja2 as a parser ----------------------------------------------------------------------------------------


class _Environment(jinja2.Environment):
    """Tokens carry their offset in the place of their line, so every node knows its column."""

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        return TokenStream(self.lexer.wrap(self._offsets(source, state), name, filename), name, filename)

    def _offsets(self, source: str, state: str | None) -> Iterator[tuple[int, str, str]]:
        offset = 0
        try:
            for _, token, value in self.lexer.tokeniter(source, None, None, state):
                offset = max(source.find(value, offset), offset)
                yield offset, token, value
                offset += len(value)
        except jinja2.TemplateSyntaxError as error:
            raise jinja2.TemplateSyntaxError(error.message or "no template", offset) from None


_ENVIRONMENT: Final = _Environment(keep_trailing_newline=True, autoescape=False, cache_size=0)


FRAMES: Final = 4_000
"""What the parser may use: it takes about thirteen calls for a level, and the caller may stand deep already."""


def _parsed(source: str) -> ast.Template:
    try:
        return _ENVIRONMENT.parse(source)
    except RecursionError:
        if _nesting(source) > PLAYBOOK.depth:
            raise
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, FRAMES))
    try:
        return _ENVIRONMENT.parse(source)
    finally:
        sys.setrecursionlimit(before)


def _nesting(source: str) -> int:
    """How deep brackets stand in brackets."""
    depth = most = 0
    for _, token, value in _ENVIRONMENT._offsets(source, None):
        if token == "operator":
            depth += (value in "([{") - (value in ")]}")
            most = max(most, depth)
    return most


class _Bad(Exception):
    def __init__(self, offset: int, text: str, hint: str = "", code: str = "bad-expression") -> None:
        super().__init__(text)
        self.offset, self.text, self.hint, self.code = offset, text, hint, code


def _refuse(node: ast.Node, text: str, hint: str = "", code: str = "bad-expression") -> NoReturn:
    raise _Bad(node.lineno, text, hint, code)


class _Reader:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.problems: list[Problem] = []
        self.texts: list[tuple[tuple[Key, ...], str, int]] = []  # path, text, characters put before it
        self.bases: list[int] = []  # where the offsets of each text begin
        self.base = 0
        self.end = 0
        self.depth = 0
        self.size = 0
        self.locals: list[str] = []

    def finish(self, node: Node) -> Expression:
        if self.problems:
            raise BadExpression(tuple(self.problems))
        texts, bases = self.texts, self.bases

        def place(at: At) -> Place:
            offset = at if isinstance(at, int) else 0
            if not texts:
                return "", "", 0, 0
            index = max(bisect_right(bases, offset) - 1, 0)
            path, text, ahead = texts[index]
            line, column = line_and_column(text, min(max(offset - bases[index] - ahead, 0), len(text)))
            return text, "".join(f"/{key}" for key in path), line, column

        return Expression(node, PLAYBOOK, place, {})

    # ---- values and texts

    def value(self, value: Any, path: tuple[Key, ...]) -> Node:
        if isinstance(value, str):
            return self.text(value, path) if any(mark in value for mark in ("{{", "{%", "{#")) else Const(value=value)
        if not isinstance(value, list | dict):
            return Const(value=value)
        if len(path) > PLAYBOOK.depth:
            self.problems.append(Problem("bad-expression", f"the value has more than {PLAYBOOK.depth} levels"))
            return Const(value=None)
        if isinstance(value, list):
            items = tuple(self.value(item, (*path, index)) for index, item in enumerate(value))
            return Const(value=value) if all(isinstance(item, Const) for item in items) else Array(items=items)
        pairs = tuple((key, self.value(item, (*path, key))) for key, item in value.items())
        return Const(value=value) if all(isinstance(item, Const) for _, item in pairs) else Object(pairs=pairs)

    def text(self, text: str, path: tuple[Key, ...]) -> Node:
        return self.located(text, path, 0, self.template)

    def guard(self, value: str | bool) -> Node:
        if isinstance(value, bool):
            return Const(value=value)
        if not value.strip():
            self.problems.append(Problem("bad-expression", "a guard is an expression", "write when: ctx.ready"))
            return Const(value=None)
        bare = not any(mark in value for mark in ("{{", "{%", "{#"))
        source = f"{{{{{value}}}}}" if bare else value.strip()
        return self.located(source, (), 2 if bare else 0, self.single)

    def located(self, source: str, path: tuple[Key, ...], ahead: int, read: Callable[[list[ast.Node]], Node]) -> Node:
        """Read one text; its problems get their place in it."""
        text = source[ahead : len(source) - ahead]
        self.base = self.end
        self.end += len(source) + 1
        self.texts.append((path, text, ahead))
        self.bases.append(self.base)
        self.depth = 0
        try:
            return read(_parsed(source).body)
        except _Bad as bad:
            offset, code, reason, hint = bad.offset, bad.code, bad.text, bad.hint
        except jinja2.TemplateSyntaxError as error:
            offset, code, reason, hint = error.lineno, "bad-expression", error.message or "no template", ""
        except RecursionError:
            offset, code, reason, hint = 0, "bad-expression", "the text is nested too deeply", "split it"
        except ValueError as error:  # a number with thousands of digits
            offset, code, reason, hint = 0, "bad-expression", str(error), ""
        line, column = line_and_column(text, min(max(offset - ahead, 0), len(text)))
        self.problems.append(Problem(code, reason, hint, path, line, column))
        return Const(value=None)

    def single(self, body: list[ast.Node]) -> Node:
        match body:
            case [ast.Output(nodes=[ast.Expr() as found])] if not isinstance(found, ast.TemplateData):
                return self.expression(found)
            case _:
                raise _Bad(0, "a guard is one expression", "write it without braces, or as one {{ … }}")

    def template(self, body: list[ast.Node]) -> Node:
        match body:
            case [ast.Output(nodes=[found])] if not isinstance(found, ast.TemplateData):
                return self.output(found)
            case _:
                return self.parts(body)

    def parts(self, body: list[ast.Node]) -> Node:
        parts: list[Node] = []
        for node in body:
            match node:
                case ast.Output(nodes=found):
                    for one in found:
                        is_data = isinstance(one, ast.TemplateData)
                        parts.append(Const(value=one.data) if is_data else self.output(one))  # type: ignore[attr-defined]
                case ast.If():
                    parts.append(self.choice(node))
                case ast.For():
                    parts.append(self.repeat(node))
                case _:
                    hint = "in texts only if and for are known" + (
                        "; use set: of the step" * isinstance(node, ast.Assign)
                    )
                    _refuse(node, f"{{% {type(node).__name__.lower()} %}} is not known", hint)
        at = parts[0].at if parts else 0
        return Text(parts=tuple(parts), at=at)

    def choice(self, node: ast.If) -> Node:
        other = self.parts(node.else_)
        for one in (*reversed(node.elif_), node):
            other = Choice(
                test=self.expression(one.test), then=self.parts(one.body), other=other, strict=False, at=self.at(one)
            )
        return other

    def repeat(self, node: ast.For) -> Node:
        match node.target:
            case ast.Name(name=name):
                names = [name]
            case ast.Tuple(items=items) if all(isinstance(item, ast.Name) for item in items):
                names = [item.name for item in items]  # type: ignore[attr-defined]
            case _:
                _refuse(node, "a loop has a name, or several with commas")
        if node.recursive:
            _refuse(node, "a loop cannot be recursive")
        source = self.expression(node.iter)
        before = len(self.locals)
        self.locals += names
        test = None if node.test is None else self.expression(node.test)
        self.locals.append("loop")
        body = self.parts(node.body)
        del self.locals[before:]
        slots = tuple(range(before, before + len(names)))
        other = self.parts(node.else_)
        loop = before + len(names)
        return Repeat(source=source, slots=slots, loop=loop, test=test, body=body, other=other, at=self.at(node))

    def output(self, node: ast.Node) -> Node:
        path = self.static(node)
        if path is None or path[0] != self.scope.secrets:
            return self.expression(node)
        if self.scope.secret is None:
            _refuse(node, "a secret stands here", "secrets are for the fields of tools", "secret-use")
        name = self.scope.secret(path)
        if name is None:
            spelled = ".".join(map(str, path))
            _refuse(node, f"{spelled} names no secret", f"declare it under {self.scope.secrets}", "secret-use")
        return SecretPart(name=name, at=self.at(node))

    # ---- expressions

    def at(self, node: ast.Node) -> int:
        return self.base + node.lineno

    def expression(self, node: ast.Node, missing: Missing | None = None) -> Node:
        """One node of jinja2 as ours. `missing` says what an absent member is where the caller takes one."""
        self.size += 1
        self.depth += 1
        if self.depth > PLAYBOOK.depth or self.size > PLAYBOOK.size:
            _refuse(node, f"the expression has more than {PLAYBOOK.depth} levels, or too many parts", "split it")
        try:
            return self.converted(node, missing or ("lenient" if self.scope.v10 else "error"))
        finally:
            self.depth -= 1

    def converted(self, node: ast.Node, missing: Missing) -> Node:
        at = self.at(node)
        match node:
            case ast.Const(value=value):
                return self.constant(node, value)
            case ast.Name() | ast.Getattr() | ast.Getitem():
                return self.access(node, missing)
            case ast.List(items=items) | ast.Tuple(items=items):
                return Array(items=tuple(self.expression(item) for item in items), at=at)
            case ast.Dict(items=pairs):
                if not all(isinstance(pair.key, ast.Const) and isinstance(pair.key.value, str) for pair in pairs):
                    _refuse(node, "the keys of a map are texts in quotes")
                return Object(pairs=tuple((pair.key.value, self.expression(pair.value)) for pair in pairs), at=at)  # type: ignore[attr-defined]
            case ast.BinExpr(left=left, right=right) if type(node) in _OPERATORS:
                return Call(name=_OPERATORS[type(node)], args=(self.expression(left), self.expression(right)), at=at)
            case ast.Neg(node=item):
                return Call(name="neg", args=(self.expression(item),), at=at)
            case ast.Concat(nodes=items):
                return Text(parts=tuple(self.expression(item) for item in items), at=at)
            case ast.Compare():
                return self.comparison(node)
            case ast.And(left=left, right=right) | ast.Or(left=left, right=right):
                both = (self.expression(left), self.expression(right))
                return Logic(word="and" if isinstance(node, ast.And) else "or", items=both, strict=False, at=at)
            case ast.Not(node=item):
                return Not(item=self.expression(item), strict=False, at=at)
            case ast.CondExpr(test=test, expr1=then, expr2=other):
                branch = Const(value=None) if other is None else self.expression(other, missing)
                chosen = self.expression(then, missing)
                return Choice(test=self.expression(test), then=chosen, other=branch, strict=False, at=at)
            case ast.Test():
                return self.test(node)
            case ast.Filter():
                return self.filter(node)
            case ast.Call():
                return self.call(node)
            case _:
                _refuse(node, f"{type(node).__name__} is no part of the language of expressions")

    def constant(self, node: ast.Node, value: Any) -> Node:
        if isinstance(value, str) and not is_text(value):
            _refuse(node, "the text has half a surrogate pair in it")
        if isinstance(value, int) and value.bit_length() > BITS_MAX:
            _refuse(node, f"the number has more than {BITS_MAX:,} bits")
        if isinstance(value, float) and abs(value) == float("inf"):
            _refuse(node, "the number is too large")
        return Const(value=value, at=self.at(node))

    def chain(self, node: ast.Node) -> tuple[ast.Node, tuple[Key, ...]]:
        """What a chain of constant members begins with, and those members."""
        keys: list[Key] = []
        while True:
            match node:
                case ast.Getattr(node=target, attr=name):
                    if name.startswith("__"):
                        _refuse(node, f"the member {name} begins with two underscores", "no data is named so")
                    keys.append(name)
                case ast.Getitem(node=target, arg=ast.Const(value=value)) if type(value) in (str, int):
                    keys.append(value)
                case _:
                    return node, tuple(reversed(keys))
            node = target
            if len(keys) > PLAYBOOK.depth:
                _refuse(node, f"the path has more than {PLAYBOOK.depth} steps")

    def static(self, node: ast.Node) -> tuple[Key, ...] | None:
        """The path from a root that a node means, if it is one."""
        start, keys = self.chain(node)
        if not isinstance(start, ast.Name) or start.name in self.locals:
            return None
        bound = self.scope.bind(start.name)
        return None if bound is None else (*bound, *keys)

    def access(self, node: ast.Node, missing: Missing) -> Node:
        at = self.at(node)
        start, keys = self.chain(node)
        if isinstance(start, ast.Name):
            if start.name in self.locals:
                slot = len(self.locals) - 1 - self.locals[::-1].index(start.name)
                return Get(root=slot, keys=keys, missing=missing, at=at)
            path = self.static(node)
            if path is None:
                return self.unknown(start, missing)
            if path[0] == self.scope.secrets:
                _refuse(node, _TOP_LEVEL_ONLY, "leave the filter or operator away", "secret-use")
            if missing == "error" and self.scope.optional is not None and self.scope.optional(path):
                found: Node = Get(root=str(path[0]), keys=path[1:], missing="absent", at=at)
                return Fallback(item=found, other=Const(value=None), empty=False, at=at)
            return Get(root=str(path[0]), keys=path[1:], missing=missing, at=at)
        if isinstance(start, ast.Getitem) and start is node:
            if isinstance(start.arg, ast.Slice):
                _refuse(node, "slices are no part of the language of expressions", "use first or last")
            target = self.expression(start.node, "absent")
            return Member(target=target, key=self.expression(start.arg), missing=missing, at=at)
        found = self.expression(start, "absent")
        for index, key in enumerate(keys, 1):
            mode: Missing = missing if index == len(keys) else "absent"
            found = Member(target=found, key=Const(value=key), missing=mode, at=at)
        return found

    def unknown(self, node: ast.Name, missing: Missing) -> Node:
        if node.name.startswith("_"):
            _refuse(node, f"the name {node.name} begins with an underscore", "no data is named so")
        if not self.scope.v10:
            _refuse(node, f"the name {node.name} is not known here", "", "unknown-name")
        return Const(value=ABSENT if missing == "absent" else None, at=self.at(node))

    def comparison(self, node: ast.Compare) -> Node:
        at, pairs = self.at(node), []
        left = self.expression(node.expr)
        for operand in node.ops:
            right = self.expression(operand.expr)
            if operand.op in ("in", "notin"):
                found: Node = Call(name="contains", args=(right, left), at=at)
                pairs.append(found if operand.op == "in" else Not(item=found, strict=False, at=at))
            else:
                pairs.append(Call(name=_COMPARISONS[operand.op], args=(left, right), at=at))
            left = right
        return pairs[0] if len(pairs) == 1 else Logic(word="and", items=tuple(pairs), strict=False, at=at)

    def test(self, node: ast.Test) -> Node:
        at = self.at(node)
        if node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
            _refuse(node, f"the test {node.name} takes no arguments", "compare with == or in")
        if node.name in ("defined", "undefined"):
            found = Defined(item=self.expression(node.node, "absent"), at=at)
            return found if node.name == "defined" else Not(item=found, strict=False, at=at)
        if node.name not in TESTS:
            _refuse(node, f"there is no test {node.name}", meant(node.name, ("defined", "undefined", *TESTS)))
        return Call(name=TESTS[node.name], args=(self.expression(node.node),), at=at)

    def call(self, node: ast.Call) -> Node:
        match node.node:
            case ast.Name(name=name) if name in CALLS and not (node.kwargs or node.dyn_args or node.dyn_kwargs):
                args = tuple(self.expression(arg) for arg in node.args)
                made = self.checked(node, name, args)
                return Call(name="text", args=(made,), at=self.at(node)) if name in ("now", "uuid") else made
            case ast.Getattr(attr=name):
                hint = f"use the filter: | {name}" if name in FILTERS else "use a filter"
                _refuse(node, f"{name}() is a method, and methods are not called", hint)
            case _:
                _refuse(node, f"only {', '.join(CALLS)} can be called", "use a filter")

    def checked(self, node: ast.Node, name: str, args: tuple[Node, ...]) -> Node:
        function = FUNCTIONS[name]
        if len(args) < function.least or (function.most is not None and len(args) > function.most):
            _refuse(node, f"{getattr(node, 'name', name)} has the wrong number of arguments")
        return Call(name=name, args=args, at=self.at(node))

    def filter(self, node: ast.Filter) -> Node:
        if node.node is None or node.dyn_args or node.dyn_kwargs:
            _refuse(node, f"the filter {node.name} cannot stand so")
        if node.name == "default":
            return self.default(node)
        if node.name in ("map", "selectattr", "rejectattr"):
            return self.attributes(node)
        if node.name not in FILTERS:
            _refuse(node, f"there is no filter {node.name}", meant(node.name, (*FILTERS, *SPECIAL_FILTERS)))
        name, names = FILTERS[node.name]
        given = {str(pair.key): pair.value for pair in node.kwargs}
        attribute = given.pop("attribute", None) if name in ("sum", "join", "sort", "unique") else None
        args = [self.expression(arg) for arg in node.args]
        for index, word in enumerate(names):
            if word in given and len(args) == index:
                args.append(self.expression(given.pop(word)))
        if given or len(args) > len(names):
            _refuse(node, f"the filter {node.name} takes {', '.join(names) or 'no arguments'}")
        source = self.expression(node.node)
        if self.scope.v10 and name in ("lower", "upper", "trim", "replace"):
            source = Call(name="text", args=(source,), at=self.at(node))
        if attribute is not None:
            body = self.attribute(node, attribute, len(self.locals))
            if name in ("sort", "unique"):
                slot = len(self.locals)
                return Over(name=name, source=source, slot=slot, body=body, args=tuple(args), at=self.at(node))
            source = Over(name="map", source=source, slot=len(self.locals), body=body, at=self.at(node))
        if name == "join":
            slot = len(self.locals)
            element = Get(root=slot, keys=(), missing="error")
            source = Over(name="map", source=source, slot=slot, body=Text(parts=(element,)), at=self.at(node))
        return self.checked(node, name, (source, *args))

    def default(self, node: ast.Filter) -> Node:
        given = [*node.args, *(pair.value for pair in node.kwargs if pair.key in ("default_value", "boolean"))]
        empty = given[1].value if len(given) > 1 and isinstance(given[1], ast.Const) else len(given) > 1
        if len(given) > 2 or type(empty) is not bool or len(given) != len(node.args) + len(node.kwargs):
            _refuse(node, "default takes a value, and true to replace false values too")
        other = self.expression(given[0]) if given else Const(value="")
        item = self.expression(node.node, "absent")  # type: ignore[arg-type]
        return Fallback(item=item, other=other, empty=empty, at=self.at(node))

    def attribute(self, node: ast.Node, given: ast.Node, slot: int, missing: Missing | None = None) -> Get:
        if not isinstance(given, ast.Const) or type(given.value) not in (str, int):
            _refuse(node, "an attribute is a text in quotes")
        keys = tuple(int(key) if key.isdecimal() else key for key in str(given.value).split(".")[: PLAYBOOK.depth])
        return Get(
            root=slot, keys=keys, missing=missing or ("lenient" if self.scope.v10 else "error"), at=self.at(node)
        )

    def attributes(self, node: ast.Filter) -> Node:
        """map(attribute=), selectattr and rejectattr: loops over a list."""
        at, slot, body = self.at(node), len(self.locals), None
        source = self.expression(node.node)  # type: ignore[arg-type]
        self.locals.append("")  # the element: it has a slot and no name
        given = {str(pair.key): pair.value for pair in node.kwargs}
        match node.name, node.args:
            case "map", [] if "attribute" in given and given.keys() <= {"attribute", "default"}:
                body = self.mapped(node, given, slot)
            case (("selectattr" | "rejectattr"), [name, *test]) if not given:
                body = self.selected(node, name, test, slot)
            case _:
                _refuse(node, f"{node.name} cannot stand so", "write map(attribute='x'), selectattr('x', 'eq', 3)")
        self.locals.pop()
        return Over(name="map" if node.name == "map" else "filter", source=source, slot=slot, body=body, at=at)

    def mapped(self, node: ast.Filter, given: dict[str, ast.Expr], slot: int) -> Node:
        if "default" not in given:
            return self.attribute(node, given["attribute"], slot)
        item = self.attribute(node, given["attribute"], slot, "absent")
        return Fallback(item=item, other=self.expression(given["default"]), empty=False, at=self.at(node))

    def selected(self, node: ast.Filter, name: ast.Node, test: list[ast.Expr], slot: int) -> Node:
        at = self.at(node)
        words = [one.value if isinstance(one, ast.Const) else None for one in test[:1]]
        found: Node
        match words, test[1:]:
            case [], []:
                found = Not(item=Not(item=self.attribute(node, name, slot), strict=False), strict=False, at=at)
            case ["defined" | "undefined" as word], []:
                found = Defined(item=self.attribute(node, name, slot, "absent"), at=at)
                found = found if word == "defined" else Not(item=found, strict=False, at=at)
            case [str(word)], [] if word in TESTS:
                found = Call(name=TESTS[word], args=(self.attribute(node, name, slot),), at=at)
            case [str(word)], [other] if word in _ATTRIBUTE_TESTS:
                both = (self.attribute(node, name, slot), self.expression(other))
                found = Call(name=_ATTRIBUTE_TESTS[word], args=both, at=at)
            case ["in"], [other]:
                found = Call(name="contains", args=(self.expression(other), self.attribute(node, name, slot)), at=at)
            case _:
                _refuse(node, f"{node.name} does not know this test", f"known: {', '.join(_ATTRIBUTE_TESTS)}, in")
        return Not(item=found, strict=False, at=at) if node.name == "rejectattr" else found
