"""The roots of expressions in Python: `state.amount < 500` builds a tree, it does not compute.

An `Expr` holds a tree of `expressions/python.py`. Attributes and items go down a path, operators and `fn` make calls.
`tree_of` makes a tree of any plain value with expressions in it.
"""

from __future__ import annotations

import base64
import enum
import inspect
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from keyword import iskeyword
from typing import Any, Final, NoReturn
from uuid import UUID

from perdure.codec import to_plain
from perdure.expressions import Tree, text
from perdure.expressions.values import scalar_text

_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (Decimal, "decimal"),
    (datetime, "datetime"),  # before date: a datetime is one
    (date, "date"),
    (timedelta, "duration"),
    (UUID, "uuid"),
)
_MADE: Final = "_perdure_tree"


class Expr:
    """An expression. Its attributes are members of its value: `start.customer.name`; `start["class"]` is the same."""

    __slots__ = (_MADE,)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tree: Tree) -> None:
        object.__setattr__(self, _MADE, tree)

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_"):
            raise AttributeError(f"{name}: write [{name!r}] for a member whose name begins with an underscore")
        return Expr(_member(self, name))

    def __getitem__(self, key: Any) -> Expr:
        if isinstance(key, slice):
            raise TypeError("an expression has no slices: use fn.slice(list, start, end)")
        return Expr(_member(self, key))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise TypeError(f"{self!r} is an expression and does not change: Set({name!r}, ...) is a step")

    def __repr__(self) -> str:
        return text(tree_of(self))

    # ---- operators make calls --------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _call("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _call("ne", self, other)

    def __lt__(self, other: Any) -> Expr:
        return _call("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return _call("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _call("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _call("ge", self, other)

    def __add__(self, other: Any) -> Expr:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _call("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _call("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _call("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _call("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _call("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _call("div", other, self)

    def __mod__(self, other: Any) -> Expr:
        return _call("mod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _call("mod", other, self)

    def __neg__(self) -> Expr:
        return _call("neg", self)

    def __and__(self, other: Any) -> Expr:
        return _call("and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _call("and", other, self)

    def __or__(self, other: Any) -> Expr:
        return _call("or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return _call("or", other, self)

    def __invert__(self) -> Expr:
        return _call("not", self)

    # ---- what Python would compute at once -------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no truth value before it runs: write & for and, | for or, ~ for not, "
            "(a < b) & (b < c) for a < b < c, fn.if_(test, a, b) for a if test else b, Decide(...) for if"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError(f"`in` is computed at once: write fn.contains({self!r}, ...)")

    def __len__(self) -> NoReturn:
        raise TypeError(f"len() is computed at once: write fn.length({self!r})")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError(f"a text is made at once: write fn.concat(..., {self!r}) for f'...{{{self!r}}}'")

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no elements before it runs: use Repeat(over=...), or fn.map(list, lambda x: ...)"
        )

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(f"{self!r} is a value: a function is called by its name in fn, as fn.upper(x)")


def _member(target: Expr, key: Any) -> Tree:
    tree = getattr(target, _MADE)
    if isinstance(tree, dict) and "get" in tree and type(key) in (str, int):
        return {"get": [*tree["get"], key]}
    return {"call": ["at", tree, tree_of(key)]}


def _call(name: str, *args: object) -> Expr:
    return Expr({"call": [name, *map(tree_of, args)]})


class Function:
    """A function of expressions by its name: `fn.upper(x)`, `fn.shop.discount(x)`; `fn.if_` where Python has a word."""

    __slots__ = ("_name",)

    def __init__(self, name: str = "") -> None:
        self._name = name

    def __getattr__(self, name: str) -> Function:
        if name.startswith("__"):
            raise AttributeError(name)
        plain = name.removesuffix("_") if iskeyword(name.removesuffix("_")) else name
        return Function(f"{self._name}.{plain}" if self._name else plain)

    def __call__(self, *args: Any) -> Expr:
        if not self._name:
            raise TypeError("fn has the functions of expressions: fn.upper(x)")
        return Expr({"call": [self._name, *(_each(arg) if inspect.isfunction(arg) else tree_of(arg) for arg in args)]})

    def __repr__(self) -> str:
        return f"fn.{self._name}" if self._name else "fn"


def _each(function: Callable[[Expr], Any]) -> Tree:
    """A `lambda` of Python, called once with an expression that stands for the element."""
    names = list(inspect.signature(function).parameters)
    if len(names) != 1:
        raise TypeError(f"the function for each element has one parameter, found {len(names)}: lambda x: x.count > 2")
    return {"each": [names[0], tree_of(function(Expr({"get": [names[0]]})))]}


def tree_of(value: Any) -> Tree:
    """The tree of an expression, or of plain data with expressions in it."""
    if isinstance(value, Expr):
        return getattr(value, _MADE)
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return tree_of(value.value)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the keys of an object are texts, found {key!r:.80}")
        return {"object": {key: tree_of(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return {"list": [tree_of(item) for item in value]}
    if isinstance(value, bytes):
        return {"value": ["bytes", base64.b64encode(value).decode()]}
    for kind, name in _KINDS:
        if isinstance(value, kind):
            if isinstance(value, datetime) and value.utcoffset() is None:
                raise TypeError(f"{value!r} has no time zone: give it tzinfo=UTC")
            return {"value": [name, scalar_text(value)]}
    if isinstance(value, Function):
        raise TypeError(f"{value!r} is a function: call it")
    plain = to_plain(value)
    return tree_of(plain)


def _root(name: str) -> Expr:
    return Expr({"get": [name]})


fn: Final = Function()
start: Final = _root("start")
state: Final = _root("state")
result: Final = _root("result")
payload: Final = _root("payload")
task: Final = _root("task")
tasks: Final = _root("tasks")
message: Final = _root("message")
item: Final = _root("item")
index: Final = _root("index")
loop: Final = _root("loop")
error: Final = _root("error")
reference: Final = _root("reference")
meta: Final = _root("meta")

ROOTS: Final = (
    "start", "state", "result", "payload", "task", "tasks", "message", "item", "index", "loop", "error", "reference",
    "meta",
)  # fmt: skip
