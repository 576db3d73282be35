"""The closed set of nodes: all that an expression can be made of, as data.

Both readers make these nodes and `compile.py` makes closures of them. The languages differ in the nodes that their
readers choose: `missing` says what an absent member is, `strict` whether a condition must be a boolean. `at` is where
the node stands: a path in a tree, or an offset in a text.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from .budget import At

Missing: TypeAlias = Literal["null", "error", "absent", "lenient"]
"""What an absent member is. null: null, and a step into a scalar is an error. error: an error. absent: the value
`ABSENT`, which only `Fallback` and `Defined` take. lenient: null, whatever the value is."""

Key: TypeAlias = str | int


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    at: At = 0


class Const(_Node, frozen=True, kw_only=True):
    value: Any


class Get(_Node, frozen=True, kw_only=True):
    """A static path from a root (a name) or from the variable of a loop (the number of its slot)."""

    root: str | int
    keys: tuple[Key, ...]
    missing: Missing


class Member(_Node, frozen=True, kw_only=True):
    target: Node
    key: Node
    missing: Missing


class Array(_Node, frozen=True, kw_only=True):
    items: tuple[Node, ...]


class Object(_Node, frozen=True, kw_only=True):
    pairs: tuple[tuple[str, Node], ...]


class Call(_Node, frozen=True, kw_only=True):
    name: str
    args: tuple[Node, ...]


class Over(_Node, frozen=True, kw_only=True):
    """A function over a list that evaluates `body` for each element: map, filter, any, all, or a key of sort..."""

    name: str
    source: Node
    slot: int
    body: Node
    args: tuple[Node, ...] = ()


class Logic(_Node, frozen=True, kw_only=True):
    word: Literal["and", "or"]
    items: tuple[Node, ...]
    strict: bool


class Not(_Node, frozen=True, kw_only=True):
    item: Node
    strict: bool


class Choice(_Node, frozen=True, kw_only=True):
    test: Node
    then: Node
    other: Node
    strict: bool


class Coalesce(_Node, frozen=True, kw_only=True):
    items: tuple[Node, ...]


class Fallback(_Node, frozen=True, kw_only=True):
    """`other` if `item` is absent or, with `empty`, false."""

    item: Node
    other: Node
    empty: bool


class Defined(_Node, frozen=True, kw_only=True):
    item: Node


class Text(_Node, frozen=True, kw_only=True):
    """Parts put together: texts as they are, other values as JSON."""

    parts: tuple[Node, ...]


class Repeat(_Node, frozen=True, kw_only=True):
    """`body` for each element of a list or key of an object, as one text; `other` if there is none."""

    source: Node
    slots: tuple[int, ...]  # more than one: each element is a list with as many items
    loop: int  # the slot of {index, index0, first, last, length}
    test: Node | None
    body: Node
    other: Node


class SecretPart(_Node, frozen=True, kw_only=True):
    name: str


class Guard(_Node, frozen=True, kw_only=True):
    """A boolean. A text is an error, or with `lenient` read as a word."""

    item: Node
    lenient: bool


Node: TypeAlias = (
    Const
    | Get
    | Member
    | Array
    | Object
    | Call
    | Over
    | Logic
    | Not
    | Choice
    | Coalesce
    | Fallback
    | Defined
    | Text
    | Repeat
    | SecretPart
    | Guard
)
