"""What a request says: strict JSON, query parameters, and their conversion to the parameters of a verb."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import isinf
from typing import Any, Final, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from .limits import DEPTH_MAX
from .problems import HttpProblem

JSON: Final = "application/json"


def read_json(body: bytes) -> Any:
    """The value of a body: strict JSON in UTF-8, each name once, no NaN, not nested too deeply."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise HttpProblem(400, "malformed", f"the body is not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, object_pairs_hook=_each_once, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise HttpProblem(400, "malformed", f"the body is not JSON: {error.msg} at {place}", where=place) from None
    except _NotStrict as error:
        raise HttpProblem(400, "malformed", f"the body is not strict JSON: {error}") from None
    except RecursionError:
        raise HttpProblem(400, "malformed", f"the body is nested deeper than {DEPTH_MAX}") from None
    _check_depth(value)
    return value


class _NotStrict(ValueError):
    pass


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _NotStrict(f"the name {twice!r:.60} stands twice in one object")
    return found


def _refuse_constant(name: str) -> Any:
    raise _NotStrict(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise _NotStrict(f"the number {text:.40} is too large")
    return value


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise HttpProblem(400, "malformed", f"the body is nested deeper than {DEPTH_MAX}")
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += [value for value in each.values() if isinstance(value, dict | list)]
            elif isinstance(each, list):
                below += [value for value in each if isinstance(value, dict | list)]
        level = below


def read_query(query: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        for name, value in parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict"):
            found.setdefault(name, []).append(value)
    except ValueError:
        raise HttpProblem(400, "malformed", "the query of the URL is not UTF-8 in percent form") from None
    return found


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"no {kind} is named {name!r:.80}{meant} (there are: {', '.join(names) or 'none'})"


def to_struct(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """The parameters of a verb. Names that it does not have are refused."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in given:
        if name not in fields:
            raise HttpProblem(422, "bad-request", unknown("field", name, fields), where=f"/{name}")
    try:
        return msgspec.convert(given, kind, strict=True)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        pointer = where.rstrip("`").replace(".", "/").replace("[", "/").replace("]", "")
        raise HttpProblem(
            422, "bad-request", text, where=pointer or "/", errors=[{"pointer": pointer, "detail": text}]
        ) from None


def from_text(kind: Any, texts: list[str], name: str) -> Any:
    """A query parameter as the type of its field: lists repeat, numbers and booleans are read, objects are JSON."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    origins = [get_origin(option) or option for option in options]
    if any(origin in (list, tuple, set, frozenset) for origin in origins):
        return texts
    if len(texts) > 1:
        raise HttpProblem(422, "bad-request", f"{name} is given {len(texts)} times; it is one value", where=f"/{name}")
    text = texts[0]
    if int in origins and text.lstrip("-").isdigit() and text.isascii():
        return int(text)
    if bool in origins and text in ("true", "false", "1", "0", ""):
        return text in ("true", "1", "")
    if float in origins:
        try:
            return float(text)
        except ValueError:
            return text
    if dict in origins or Any in options:
        try:
            return read_json(text.encode())
        except HttpProblem:
            return text
    return text


def iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
