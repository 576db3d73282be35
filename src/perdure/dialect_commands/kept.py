"""Definitions that are data, as a database keeps them: read from it, or asked of a server."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from perdure.app.ours import FileKind
from perdure.cli.console import Console
from perdure.definitions.model import Register, Registered
from perdure.errors import UnknownVersion, UnknownWorkflow
from perdure.kernel.moment import at_of
from perdure.runtime.arguments import unknown

ADVICE = "put it there first"


def registers(console: Console, kind: FileKind) -> list[tuple[str, Register]]:
    """The names of all definitions of a kind, each with its versions."""
    if console.server is None:
        return console.ask(lambda client: kind.kept(client).list())
    listed = console.request("workflow ls", oldest=True).items
    found = [(each.name, _told(kind, each.versions)) for each in listed if each.noun == kind.noun]
    return [(name, register) for name, register in found if register.versions]


def register_of(console: Console, kind: FileKind, name: str) -> Register:
    found = dict(registers(console, kind))
    if name not in found:
        raise UnknownWorkflow(unknown(kind.noun, name, found, ADVICE))
    return found[name]


def definition_of(console: Console, kind: FileKind, name: str, version: str) -> tuple[str, str]:
    """A version of a definition that a server has, by default the active one, and its text in JSON."""
    register = register_of(console, kind, name)
    if version and register.find(version) is None:
        known = [each.version for each in register.versions]
        raise UnknownVersion(unknown(f"version of {name}", version, known, ADVICE))
    asked = console.request("version export", name=name, version=version or register.active, format="json")
    return version or register.active, asked.text


def _told(kind: FileKind, versions: list[Any]) -> Register:
    """The register as a server tells it: the active version is known, and not why it is."""
    told = sorted([each for each in versions if each.put_at is not UNSET], key=lambda each: each.put_at)
    found = {
        (number := each.version.partition("+")[0]): Registered(number, each.digest, each.put_by, at_of(each.put_at))
        for each in told
    }
    active = next((each.version.partition("+")[0] for each in told if each.active), "")
    return Register(kind.noun, "highest", tuple(found.values()), active)
