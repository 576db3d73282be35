"""Kinds: what an action can do, and which parameters it takes.

The kinds of the machine itself stand here. Kinds that an executor performs are tools; their descriptions come from
outside (`perdure.tools`), as plain data made from their structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec


class Field(msgspec.Struct, frozen=True):
    types: tuple[str, ...] = ("any",)  # of JSON Schema: string number integer boolean array object null; or any
    required: bool = False
    raw: bool = False  # its text is code and is not rendered
    split: bool = False  # its text is split into words before templates are rendered
    sql: bool = False  # templates in it are a problem: values are bound
    about: str = ""
    words: tuple[str, ...] = ()  # the texts that it takes; none: any text
    duration: bool = False


class KeyChoice(msgspec.Struct, frozen=True):
    """Keys of which an action has one, or at most one."""

    keys: tuple[str, ...]
    needed: bool = True


class Kind(msgspec.Struct, frozen=True):
    name: str
    fields: dict[str, Field]
    tool: bool = True  # an executor performs it
    about: str = ""
    one_of: tuple[KeyChoice, ...] = ()


def _machine(name: str, about: str, one_of: tuple[KeyChoice, ...] = (), **fields: Field) -> Kind:
    named = {key.rstrip("_"): field for key, field in fields.items()}
    return Kind(name, named, tool=False, about=about, one_of=one_of)


_TEXT: Final = ("string",)

OURS: Final = {
    kind.name: kind
    for kind in (
        _machine("noop", "Does nothing.", result=Field(about="the result")),
        _machine(
            "fail",
            "Fails.",
            message=Field(_TEXT, about="the text of the error"),
            error=Field(_TEXT, about="the kind of the error; `failed` if left out"),
            retryable=Field(("boolean",), about="whether a retry makes sense"),
        ),
        _machine(
            "workbook", "Runs an entry of the workbook in place.", use=Field(_TEXT, required=True, about="the entry")
        ),
        _machine(
            "workflow",
            "Starts an instance of any workflow as a child.",
            workflow=Field(_TEXT, required=True, about="the name of the workflow"),
            key=Field(_TEXT, about="the key of the child; made from the instance and the location if left out"),
            wait=Field(_TEXT, words=("result", "none"), about="`result` waits for the end; `none` goes on at once"),
            return_step=Field(_TEXT, about="of a playbook: the step whose result is given back"),
        ),
        _machine(
            "wait",
            "Waits for a time or a message.",
            (KeyChoice(("for", "until", "message")),),
            for_=Field(("string", "number"), duration=True, about="a duration"),
            until=Field(_TEXT, about="a time, in ISO 8601"),
            message=Field(_TEXT, about="the name of a message"),
            timeout=Field(("string", "number"), duration=True, about="how long a message is waited for"),
            on_timeout=Field(_TEXT, words=("error", "continue"), about="`error` or `continue`"),
        ),
        _machine(
            "task",
            "Asks a person.",
            title=Field(_TEXT, required=True, about="what the person reads first"),
            description=Field(_TEXT, about="what the person is to do"),
            data=Field(about="what the person sees"),
            answer=Field(("object",), about="the form of the answer, as JSON Schema; left out: it is done or not"),
            outcome=Field(_TEXT, about="the field of the answer that is the outcome; `outcome` if left out"),
            roles=Field(("array",), about="roles that may do it"),
            users=Field(("array",), about="persons who may do it"),
            managers=Field(("array",), about="roles that manage it"),
            assignee=Field(_TEXT, about="the person who has it from the start"),
            exclude=Field(("array",), about="persons who may not do it"),
            priority=Field(("integer",), about="0 to 100, higher is more urgent; 50 if left out"),
            labels=Field(("object",), about="texts by name, for lists"),
            due=Field(("string", "number"), about="a duration or a time: later it is late"),
            expire=Field(("string", "number"), about="a duration or a time: then it fails as `timeout`"),
            escalate=Field(("array",), about="a list of `{after roles users release priority}`"),
            quorum=Field(("object",), about="several persons decide: `{need of veto}`"),
        ),
    )
}


def tool_kinds(described: Mapping[str, Mapping[str, Any]]) -> dict[str, Kind]:
    """Kinds from the descriptions of tools: name, then `about`, `fields` and `one_of`."""
    return {name: msgspec.convert({**each, "name": name}, Kind) for name, each in described.items()}


def all_kinds(tools: Mapping[str, Kind]) -> dict[str, Kind]:
    return {**tools, **OURS}


def wrong_type(value: Any, types: Iterable[str]) -> str:
    """The type of a literal that a field does not take; empty if it does."""
    names = set(types)
    if "any" in names or value is None:
        return ""
    match value:
        case bool():
            found = {"boolean"}
        case int():
            found = {"integer", "number"}
        case float():
            found = {"number"}
        case str():
            found = {"string"}
        case list():
            found = {"array"}
        case _:
            found = {"object"}
    return "" if names & found else WORDS[sorted(found)[0]]


WORDS: Final = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "array": "list",
    "object": "map",
    "null": "null",
}
