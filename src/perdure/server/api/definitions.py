"""Definitions that are data, over HTTP: check one, keep it, choose the version that new instances run on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from perdure.app.ours import SCHEMAS, kind_of_text
from perdure.errors import AuthorError
from perdure.expressions.functions import described

from ..calling import Calling
from ..problems import HttpProblem, rows_of
from ..reading import unknown
from .instances import Nothing


class DefinitionText(msgspec.Struct, frozen=True):
    """`text` is a playbook in YAML, or a process in YAML or JSON."""

    text: str


class DefinitionProblem(msgspec.Struct, frozen=True):
    """`pointer` is a place in the definition, or line:column of its text."""

    pointer: str
    detail: str
    code: str = ""
    hint: str = ""


class CheckedDefinition(msgspec.Struct, frozen=True):
    """`ok`: it can be put. `noun` says what it is: a process or a playbook."""

    ok: bool
    noun: str
    name: str
    version: str
    problems: list[DefinitionProblem]


async def check(calling: Calling, given: DefinitionText) -> CheckedDefinition:
    kind = kind_of_text(given.text)
    try:
        found = await asyncio.to_thread(_valid, kind, given.text)
    except AuthorError as error:
        rows = rows_of(error)
        return CheckedDefinition(False, kind.noun, "", "", [DefinitionProblem(**row) for row in rows])
    return CheckedDefinition(True, kind.noun, found.name, found.stored.version, [])


class DefinitionParams(msgspec.Struct, frozen=True):
    """`activate`: new instances run on it, whatever its version."""

    text: str
    activate: bool = False


class KeptDefinition(msgspec.Struct, frozen=True):
    noun: str
    name: str
    version: str


async def put(calling: Calling, given: DefinitionParams) -> KeptDefinition:
    """The same bytes again write nothing; other bytes under a version that is kept are refused."""
    kind = kind_of_text(given.text)
    found = await asyncio.to_thread(_valid, kind, given.text)
    calling.check(found.name, f"workflow {found.name[:80]!r}")
    kept = kind.kept(calling.engine)
    version = await kept.put(found, activate=given.activate, by=calling.login.actor)
    return KeptDefinition(kind.noun, found.name, version)


class ActivateParams(msgspec.Struct, frozen=True):
    name: str
    version: str


async def activate(calling: Calling, given: ActivateParams) -> KeptDefinition:
    calling.check(given.name, f"workflow {given.name[:80]!r}")
    client = calling.engine
    names = [name for name, _ in await client.processes.list()]
    noun, kept = ("process", client.processes) if given.name in names else ("playbook", client.playbooks)
    await kept.activate(given.name, given.version, by=calling.login.actor)
    return KeptDefinition(noun, given.name, given.version)


class DialectName(msgspec.Struct, frozen=True):
    dialect: str


class SchemaAnswer(msgspec.Struct, frozen=True):
    """The JSON Schema of a definition: its fields and kinds of steps. `check` says what they mean together."""

    dialect: str
    schema: dict[str, Any]


async def schema(calling: Calling, given: DialectName) -> SchemaAnswer:
    if given.dialect not in SCHEMAS:
        raise HttpProblem(404, "not-found", unknown("schema", given.dialect, SCHEMAS))
    return SchemaAnswer(given.dialect, await asyncio.to_thread(SCHEMAS[given.dialect]))


class FunctionItem(msgspec.Struct, frozen=True):
    """A function of expressions: the kind of value that it gives, and what it does."""

    name: str
    gives: str
    text: str


class FunctionList(msgspec.Struct, frozen=True):
    functions: list[FunctionItem]


async def functions(calling: Calling, given: Nothing) -> FunctionList:
    """Functions of users are not among them."""
    return FunctionList([FunctionItem(*each) for each in described()])


def _valid(kind: Any, text: str) -> Any:
    found = kind.of_text(text)
    if hasattr(found, "require_valid"):
        found.require_valid()
    return found
