"""What every converter is, and where the built ones are kept.

A converter has two directions: `to` plain data and `read` from it. What does not fit raises `Mismatch`, to
which the containers add the path on its way out.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Coroutine, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn
from uuid import UUID

from perdure.codec.values import encode, join, type_name
from perdure.errors import NotConvertible, NotPlain


class Converter:
    """Converts between the values of one annotation and plain data."""

    # How errors and ambiguous unions name the annotation; the same in every process.
    label: str = "Any"
    # The types of plain data that it reads, for finding out which arms of a union could be confused.
    kinds: frozenset[type] = frozenset()

    def to(self, value: Any) -> Any:
        raise NotImplementedError

    def read(self, plain: Any, json: bool) -> Any:
        raise NotImplementedError

    def refuse(self, found: Any, note: str = "") -> NoReturn:
        raise Mismatch(self.label, described(found) + note)


class Mismatch(Exception):
    """A part of a value does not fit. Its path is added on the way out: the good case pays nothing."""

    def __init__(self, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        self.path: list[Any] = []

    def at(self, part: Any) -> Mismatch:
        self.path.append(part)
        return self

    def error(self, where: str = "") -> NotConvertible:
        path = "$"
        for part in reversed(self.path):
            path = join(path, part)
        return NotConvertible(path, self.expected, self.found, where)


def converter(annotation: Any) -> Converter:
    """The converter of an annotation, built at its first use."""
    try:
        return _CONVERTERS[annotation]
    except KeyError:
        made = built(annotation)
        if len(_CONVERTERS) >= _CONVERTERS_MAX:  # annotations made at run time: start over rather than grow for ever
            _CONVERTERS.clear()
        return _CONVERTERS.setdefault(annotation, made)
    except TypeError:  # unhashable, such as Annotated[int, []]
        return built(annotation)


_CONVERTERS: Final[dict[Any, Converter]] = {}
_CONVERTERS_MAX: Final = 4096


def built(annotation: Any) -> Converter:
    from perdure.codec.converters.table import (
        build,  # the table names every converter, and they all start here
    )

    return build(annotation)


def deeper(error: Mismatch | NotPlain, part: Any) -> Exception:
    if isinstance(error, Mismatch):
        return error.at(part)
    return NotPlain(join("$", part) + error.path[1:], error.found, error.advice)


def sorted_by_bytes(items: list[Any]) -> list[Any]:
    if len(items) < 2:
        return items
    return [item for _, item in sorted(((encode(item), item) for item in items), key=_first)]


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, Coroutine):
        return f"{type_name(value)}: an await is missing"
    if isinstance(value, int) and int.bit_length(value) > 200:
        return f"{type_name(value)} of {int.bit_length(value)} bits"  # Python refuses to write very many digits
    text = repr(value) if isinstance(value, str | int | float | Decimal | UUID | date | enum.Enum) else ""
    return f"{type_name(value)} {text[:60]}".rstrip()


ABSENT: Final = object()
PLAIN_SCALARS: Final = frozenset((type(None), bool, int, float, str, bytes, datetime, date, timedelta, Decimal, UUID))
