"""The register of one name: its versions, which of them is active, and what the machine publishes of it."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.kernel.events import Address
from perdure.kernel.workflows import in_order

WORKFLOW: Final = "perdure.definition"
REGISTER: Final = "register"
"""The name under which the register is published."""

PUT: Final = "put"
ACTIVATE: Final = "activate"

Rule = Literal["highest", "last"]
"""Which version is active if no person activated one: the highest, or the one registered last."""


class Registered(msgspec.Struct, frozen=True):
    """One version: the digest of its bytes, the actor that registered it and the time, in nanoseconds."""

    version: str
    digest: str
    by: str = ""
    at: int = 0


class Register(msgspec.Struct, frozen=True):
    """All versions of a name, in the order of their registration. `activated`: by a person; empty: none was."""

    dialect: str
    rule: Rule = "highest"
    versions: tuple[Registered, ...] = ()
    activated: str = ""

    @property
    def active(self) -> str:
        """The version that a start without a version takes; empty if there is none."""
        if self.activated or not self.versions:
            return self.activated
        if self.rule == "last":
            return self.versions[-1].version
        return max((each.version for each in self.versions), key=in_order)

    def find(self, version: str) -> Registered | None:
        return next((each for each in self.versions if each.version == version), None)

    def encode(self) -> bytes:
        return encode(to_plain(self, Register))

    @classmethod
    def read(cls, data: bytes) -> Register:
        found: Register = from_plain(decode(data), cls)
        return found


def address(name: str) -> Address:
    return Address(WORKFLOW, name)


def published_as(version: str) -> str:
    """The name under which the bytes of a version are published."""
    return f"version {version}"


def first_input(dialect: str, rule: Rule) -> bytes:
    """The input with which the instance of a name is started. It is the same at every start: the key is used once."""
    return encode({"dialect": dialect, "rule": rule})


def put_body(version: str, definition: bytes, *, activate: bool = False) -> bytes:
    return encode({"version": version, "definition": definition, "activate": activate})


def activate_body(version: str) -> bytes:
    return encode({"version": version})


def put_id(version: str, digest: str, *, activate: bool = False) -> str:
    """The id of the message: the same bytes are registered once, however many engines open with them."""
    return f"{ACTIVATE if activate else PUT} {version} {digest}"


# ---- conflicts -----------------------------------------------------------------------------------------------------


def first_difference(stored: Any, given: Any, path: str = "") -> str:
    """Where two definitions differ first, as `path: stored, found other`; empty if they are equal."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in sorted({*stored, *given}, key=str):
            place = f"{path}.{key}" if path else str(key)
            if key not in given:
                return f"{place}: {stored[key]!r:.80} is stored, and missing now"
            if key not in stored:
                return f"{place}: {given[key]!r:.80} is new"
            if found := first_difference(stored[key], given[key], place):
                return found
        return ""
    if isinstance(stored, list) and isinstance(given, list):
        for index, (one, other) in enumerate(zip(stored, given, strict=False)):
            if found := first_difference(one, other, f"{path}[{index}]"):
                return found
        if len(stored) != len(given):
            return f"{path}: {len(stored)} elements are stored, found {len(given)}"
        return ""
    same = type(stored) is type(given) and stored == given
    return "" if same else f"{path}: {stored!r:.80} is stored, found {given!r:.80}"


def next_free(version: str, known: Register) -> str:
    """The next version `MAJOR.MINOR.PATCH` above this one that is not registered; empty for other versions."""
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return ""
    major, minor, patch = map(int, parts)
    while known.find(found := f"{major}.{minor}.{patch}") is not None or found == version:
        patch += 1
    return found
