"""A form on a terminal: each field of a JSON Schema is asked for, in order, until the answer fits."""

from __future__ import annotations

import json
from typing import Any

import click

from perdure.codec.jsonschema import read
from perdure.errors import Misfit

from .text import shown

YES_NO = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


def ask_form(title: str, form: dict[str, Any]) -> Any:
    """The answer of the person at the terminal. Questions go to stderr."""
    _say(title)
    fields = form.get("properties")
    while True:
        answer = _whole(form) if not isinstance(fields, dict) else _fields(fields, list(form.get("required", ())))
        try:
            read(form, answer)
            return answer
        except Misfit as misfit:
            for problem in misfit.problems:
                _say(f"{problem.where or '/'}: {problem.text}")


def _whole(form: dict[str, Any]) -> Any:
    return _value("answer", form, required=True)


def _fields(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """What is required comes first, in its order: a definition that is data keeps no order of names."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys((*(each for each in required if each in fields), *fields)):
        field = fields[name]
        value = _value(name, field if isinstance(field, dict) else {}, required=name in required)
        if value is not None or name in required:
            found[name] = value
    return found


def _value(name: str, field: dict[str, Any], *, required: bool) -> Any:
    """What was typed, as the type of the field; None: nothing was."""
    kind, choices = field.get("type"), field.get("enum")
    text = str(field.get("title") or name)
    if field.get("description"):
        _say(f"{text}: {field['description']}")
    hint = f" ({', '.join(map(str, choices))})" if choices else " (yes, no)" if kind == "boolean" else ""
    default = field.get("default")
    shown_default = None if default is None else default if isinstance(default, str) else json.dumps(default)
    while True:
        typed = click.prompt(
            shown(f"{text}{hint}"),
            default="" if not required and shown_default is None else shown_default,
            show_default=bool(shown_default),
            err=True,
        )
        if typed == "" and not required:
            return default
        try:
            return _typed(typed, kind, choices)
        except ValueError as error:
            _say(str(error))


def _typed(typed: str, kind: Any, choices: list[Any] | None) -> Any:
    if choices is not None:
        found = [choice for choice in choices if str(choice) == typed]
        if not found:
            raise ValueError(f"choose one of {', '.join(map(str, choices))}")
        return found[0]
    if kind == "string":
        return typed
    if kind == "boolean":
        if typed.lower() not in YES_NO:
            raise ValueError("answer yes or no")
        return YES_NO[typed.lower()]
    try:
        return json.loads(typed)
    except ValueError:
        if kind in ("integer", "number", "array", "object"):
            raise ValueError(f"type JSON of the type {kind}") from None
        return typed


def _say(text: str) -> None:
    click.echo(shown(text), err=True)
