"""What people give on the command line: JSON (also in a file, `@file`, or on stdin, `-`), tags, times."""

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from math import isinf
from pathlib import Path
from typing import Any

from .exits import Stopped


def read_json(text: str, what: str) -> Any:
    """The value of an argument. `what` names it in errors, which say where the text stops being JSON."""
    source, text = _read(text, what)
    try:
        return json.loads(text, object_pairs_hook=_each_once, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Stopped(f"{source} is not JSON: {error.msg} at {place}; {_advice(source == what, text)}") from error
    except _Twice as error:
        raise Stopped(f"{source} has the name {error.args[0]!r:.60} twice in one object; remove one of them") from error
    except RecursionError as error:
        raise Stopped(f"{source} is nested too deeply; flatten it") from error
    except ValueError as error:
        reason = str(error).partition(";")[0]  # after it Python says what a programmer could do
        raise Stopped(f"{source} cannot be used: {reason}; write it as text, or null") from error


def read_tags(texts: Iterable[str], option: str = "--tag") -> dict[str, Any]:
    """NAME=VALUE is a text; NAME:=JSON a number, a bool, or a time."""
    tags: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        typed = name.endswith(":")
        name = name.removesuffix(":")
        if not name or not sign:
            raise Stopped(f"{option} {text!r} is no NAME=VALUE")
        tags[name] = read_json(value, f"{option} {name}") if typed else value
    return tags


def with_sets(value: Any, sets: Iterable[str]) -> Any:
    """The input with single values over it: `floor=3`, `a.b=text`. A value is JSON, or else a text."""
    sets = list(sets)
    if not sets:
        return value
    if value is not None and not isinstance(value, dict):
        raise Stopped("--set goes over an object, and --input is none")
    made: dict[str, Any] = json.loads(json.dumps(value or {}))
    for text in sets:
        path, sign, given = text.partition("=")
        if not path or not sign:
            raise Stopped(f"--set {text!r} is no PATH=VALUE")
        *keys, last = path.split(".")
        at = made
        for key in keys:
            if not isinstance(at.get(key), dict):
                at[key] = {}
            at = at[key]
        at[last] = json_or_text(given)
    return made


def json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text


def secrets_of(texts: Iterable[str]) -> dict[str, Any]:
    """Connections: the name of each, and the secret that it is."""
    from perdure.ports.secrets import Secret

    found: dict[str, Any] = {}
    for text in texts:
        name, sign, secret = text.partition("=")
        if not name or not sign or not secret:
            raise Stopped(f"--connection {text!r} is no NAME=SECRET")
        found[name] = Secret(secret)
    return found


def read_time(text: str, what: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Stopped(f"{what} {text!r} is no time; write it like 2026-11-16T09:00:00Z") from None
    return found if found.tzinfo is not None else found.astimezone()  # as the clock of this machine shows it


def _read(text: str, what: str) -> tuple[str, str]:
    """Where the text comes from, in words, and the text itself."""
    if text != "-" and not text.startswith("@"):
        return what, text
    source = f"{what} (stdin)" if text == "-" else f"{what} ({text[1:]})"
    try:
        return source, sys.stdin.read() if text == "-" else Path(text[1:]).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise Stopped(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Stopped(f"{source} cannot be read: {reason}; name a file that can be") from error


def _advice(typed: bool, text: str) -> str:
    """What to do about text that is not JSON. `typed`: it stands on the command line itself."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return """text needs quotes inside quotes: '"text"'"""
    return """in a shell it stands in single quotes: '{"name": 1}'""" if typed else "correct it there"


class _Twice(Exception):
    """Python would take the last of the two, and not tell."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


def _finite(text: str) -> float:
    if isinf(number := float(text)):
        raise ValueError(f"the number {text:.20} is too large")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
