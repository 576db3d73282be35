"""JSON that people give: on the command line, in a file (`@file`), or on stdin (`-`)."""

import json
import sys
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
