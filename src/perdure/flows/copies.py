"""Copies of the arguments of steps. What a step changes in its arguments, its flow does not see.

A flow that is rebuilt does not run its completed steps again, so it could not have their changes. Arguments that are
plain data are therefore copied for each attempt; others (a client, a file) are not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final
from uuid import UUID

import msgspec

SCALARS: Final = frozenset(
    {NoneType, bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, frozenset}
)
"""What cannot be changed needs no copy. This is the common case, and the only one that is on the hot path."""

_IMMUTABLE: Final = (int, float, str, bytes, date, time, timedelta, Decimal, UUID, frozenset, Enum)


class _NotPlain(Exception):
    """The argument has a part that is no plain data."""


def for_step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for value in args:
        if type(value) not in SCALARS:
            memo: dict[int, Any] = {}  # by id: a list that is passed twice is one list for the step, too
            return tuple([_argument(each, memo) for each in args]), _named(kwargs, memo)
    return args, _named(kwargs, {}) if kwargs else kwargs


def _named(kwargs: dict[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
    return {name: _argument(value, memo) for name, value in kwargs.items()}


def _argument(value: Any, memo: dict[int, Any]) -> Any:
    try:
        return _copy(value, memo)
    except (_NotPlain, RecursionError):
        return value


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in SCALARS:
        return value
    known = memo.get(id(value))
    if known is not None:
        return known
    special = _COPIES.get(kind)
    if special is not None:
        copied = special(value, memo)
    elif isinstance(value, _IMMUTABLE):
        return value
    elif isinstance(value, tuple) and hasattr(kind, "_make"):
        copied = kind._make([_copy(item, memo) for item in value])
    else:
        copied = _record(value, memo)
    memo[id(value)] = copied
    return copied


def _list(value: list[Any], memo: dict[int, Any]) -> list[Any]:
    copied = memo[id(value)] = value.copy()
    if not SCALARS.issuperset(map(type, value)):
        copied[:] = [_copy(item, memo) for item in value]
    return copied


def _dict(value: dict[Any, Any], memo: dict[int, Any]) -> dict[Any, Any]:
    copied = memo[id(value)] = value.copy()
    if not SCALARS.issuperset(map(type, value.values())):
        for key, item in value.items():
            copied[key] = _copy(item, memo)
    return copied


def _tuple(value: tuple[Any, ...], memo: dict[int, Any]) -> tuple[Any, ...]:
    return value if SCALARS.issuperset(map(type, value)) else tuple([_copy(item, memo) for item in value])


_COPIES: Final[Mapping[type, Callable[[Any, dict[int, Any]], Any]]] = {
    list: _list,
    dict: _dict,
    tuple: _tuple,
    set: lambda value, memo: value.copy(),
    bytearray: lambda value, memo: value.copy(),
}


def _record(value: Any, memo: dict[int, Any]) -> Any:
    """A dataclass, a msgspec struct or a pydantic model, without running its `__init__` again."""
    kind = type(value)
    put: Callable[[Any, str, Any], None] = object.__setattr__
    if isinstance(value, msgspec.Struct):
        names, put = value.__struct_fields__, msgspec.structs.force_setattr
    elif hasattr(kind, "__dataclass_fields__"):
        names = tuple(kind.__dataclass_fields__)
    elif hasattr(kind, "model_copy"):
        names = tuple(vars(value))
    else:
        raise _NotPlain
    copied = memo[id(value)] = copy.copy(value)
    for name in names:
        if hasattr(value, name):
            put(copied, name, _copy(getattr(value, name), memo))
    return copied
