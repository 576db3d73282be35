"""What people give on the command line: JSON (also in a file, `@file`, or on stdin, `-`), tags, times."""

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from .exits import Stopped


def read_json(text: str, what: str) -> Any:
    """The value of an argument. `what` names it in errors, which say where the text stops being JSON."""
    source, text = _read(text, what)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        advice = "" if text.lstrip()[:1] in '{["' else """; text needs quotes inside quotes: '"text"'"""
        raise Stopped(f"{source} is not JSON: {error.msg} at {place}{advice}") from error
    except (ValueError, RecursionError) as error:
        raise Stopped(f"{source} cannot be used: {error}") from error


def read_tags(texts: Iterable[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise Stopped(f"--tag {text!r} is no NAME=VALUE")
        tags[name] = value
    return tags


def read_time(text: str, what: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Stopped(f"{what} {text!r} is no time; write it like 2026-11-16T09:00:00Z") from None
    return found if found.tzinfo is not None else found.astimezone()  # as the clock of this machine shows it


def _read(text: str, what: str) -> tuple[str, str]:
    try:
        if text == "-":
            return f"{what} (stdin)", sys.stdin.read()
        if text.startswith("@"):
            return f"{what} ({text[1:]})", Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Stopped(f"{what} cannot be read: {error}") from error
    return what, text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
