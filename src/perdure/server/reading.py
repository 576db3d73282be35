"""What a request says: strict JSON, query parameters, and their conversion to the parameters of a verb."""

from __future__ import annotations

import difflib
import json
import re
import types
from collections.abc import Iterable, Mapping
from functools import cache
from math import isfinite, isinf
from typing import Any, Final, Literal, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from perdure.verbs.act import by_own_names

from .limits import DEPTH_MAX, VALUES_MAX
from .problems import HttpProblem

DIGITS_MAX: Final = 1000
TOO_DEEP: Final = f"is nested deeper than {DEPTH_MAX}"
PLACED_MAX: Final = 256 * 1024
"""Characters of a body that are searched for what is wrong, token by token."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+')
_NAMED: Final = re.compile(r"\s*:")

_NO_CHOICE: Final = re.compile(r"Invalid enum value '(.*)'", re.S)
_MISFIT: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}

JSON: Final = "application/json"
YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")


def read_json(body: bytes) -> Any:
    """The value of a body: strict JSON in UTF-8, each name once, no NaN, not nested too deeply."""
    text = read_text(body)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_each_once,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        raise _malformed(f"is not JSON: {error.msg}", text, error.pos) from None
    except _NotStrict as error:
        raise _malformed(f"is not strict JSON: {error}", text, _offence(text)) from None
    except RecursionError:
        raise _malformed(TOO_DEEP, text, _offence(text)) from None
    _check_size(value, text)
    if "\\ud" in text.lower() and not _is_text(value):
        raise _malformed("has a text with a lone surrogate", text, _offence(text))
    return value


def read_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        before = body[: error.start].decode()
        raise _malformed(f"is not UTF-8 at byte {error.start}", before, len(before)) from None


def _malformed(what: str, text: str, at: int | None) -> HttpProblem:
    """`at` is the character that is wrong; the problem has its line and column."""
    if at is None:
        return HttpProblem(400, "malformed", f"the body {what}")
    where = f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"
    return HttpProblem(400, "malformed", f"the body {what}, at {where}", where=where)


def _is_text(value: Any) -> bool:
    """A lone surrogate is no text: it could neither be recorded nor be told."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _offence(text: str) -> int | None:
    """Where JSON is not strict: the parser does not tell. None: not in the first part of a large body."""
    inside: list[set[str] | None] = []  # the names of each object around; None of a list
    for token in _TOKEN.finditer(text, 0, PLACED_MAX):
        said = token[0]
        if said in "{[":
            inside.append(set() if said == "{" else None)
            if len(inside) > DEPTH_MAX:
                return token.start()
        elif said in "}]":
            inside.pop()
        elif said[0] == '"':
            value = json.loads(said)
            if not _is_text(value):
                return token.start()
            if inside and (names := inside[-1]) is not None and _NAMED.match(text, token.end()):
                if value in names:
                    return token.start()
                names.add(value)
        else:
            try:
                json.loads(said, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_integer)
            except _NotStrict:
                return token.start()
    return None


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


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise _NotStrict(f"the number {text:.40}… has more than {DIGITS_MAX} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise _NotStrict(f"the number {text:.40} is too large")
    return value


def _check_size(value: Any, text: str) -> None:
    level, depth, count = [value], 0, 1
    while level:
        depth += 1
        count += sum(len(each) for each in level if isinstance(each, dict | list))
        if count > VALUES_MAX:
            raise HttpProblem(413, "too-large", f"the body has more than {VALUES_MAX:,} values")
        if depth > DEPTH_MAX:
            raise _malformed(TOO_DEEP, text, _offence(text))
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


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name[:200], names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"no {kind} is named {name!r:.80}{meant} (there are: {', '.join(names) or 'none'})"


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a verb's parameters, by their names in a request. msgspec evaluates the annotations each time."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def to_struct(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> Any:
    """The parameters of a verb. Names that it does not have are refused, within its objects as well."""
    fields = fields_of(kind)
    given = by_own_names(kind, given)
    _refuse_unknown(kind, given, "")
    try:
        return msgspec.convert(given, kind, strict=True)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        pointer = where.rstrip("`").replace("[...]", "").replace(".", "/").replace("[", "/").replace("]", "")
        field = fields.get(pointer.split("/")[1]) if pointer else None
        choices = [] if field is None else choices_of(field.type)
        if choices and (wrong := _NO_CHOICE.fullmatch(text)):
            text = no_such(pointer.split("/")[1], wrong[1], choices)
        else:
            text = in_words(text, pointer.lstrip("/"))
            text += f"; it is one of {', '.join(choices)}" if choices else ""
        raise HttpProblem(
            422, "bad-request", text, where=pointer or "/", errors=[{"pointer": pointer, "detail": text}]
        ) from None


def in_words(text: str, name: str) -> str:
    """A message of msgspec about the value of this name, in words."""
    if found := _MISFIT.fullmatch(text):
        wanted = [_TYPES.get(each, each) for each in found[1].split(" | ")]
        wanted = [each for each in wanted if each != "null"] or wanted
        return f"{name or 'it'} is {' or '.join(wanted)}, found {_TYPES.get(found[2], found[2])}"
    if text == "Invalid RFC3339 encoded datetime":
        return f"{name or 'it'} is a time such as 2026-11-16T09:00:00Z"
    if found := _MISSING.fullmatch(text):
        return f"{found[1]} is missing" + (f" in {name}" if name else "")
    return text


def _refuse_unknown(kind: Any, given: Any, where: str) -> None:
    """Names that no object of this type has: what was misspelled would be left at its default."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for option in parts:
            _refuse_unknown(option, given, where)
    elif origin in (list, tuple) and isinstance(given, list):
        for number, each in enumerate(given):
            _refuse_unknown(parts[0], each, f"{where}/{number}")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(given, Mapping):
        fields = fields_of(kind)
        for name, value in given.items():
            if name not in fields:
                raise HttpProblem(422, "bad-request", no_such("field", name, fields), where=f"{where}/{name:.200}")
            _refuse_unknown(fields[name].type, value, f"{where}/{name}")


def choices_of(kind: Any) -> list[str]:
    """The texts that a type names one by one."""
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [each for part in get_args(kind) for each in choices_of(part)]


def from_text(kind: Any, texts: list[str], name: str) -> Any:
    """A query parameter as the type of its field: lists repeat, numbers and booleans are read, objects are JSON."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    origins = [get_origin(option) or option for option in options]
    if any(origin in (list, tuple, set, frozenset) for origin in origins):
        return texts
    if len(texts) > 1:
        raise HttpProblem(422, "bad-request", f"{name} is given {len(texts)} times; it is one value", where=f"/{name}")
    text = texts[0]
    if int in origins and text.lstrip("-").isdigit() and text.isascii() and len(text) <= DIGITS_MAX:
        return int(text)
    if bool in origins and text in ("true", "false", "1", "0", ""):
        return text in ("true", "1", "")
    if float in origins:
        try:
            return float(text) if isfinite(float(text)) else text
        except ValueError:
            return text
    if dict in origins or Any in options:
        try:
            return read_json(text.encode())
        except HttpProblem:
            return text
    return text
