"""Secrets by reference: a workflow names a secret, and only the executor that needs it ever sees its value.

A reference is an object of its own type, the built-in record `sys/Secret@1`. Text and maps of users are never taken for
one, whatever they hold: who can send data must not be able to ask for a secret.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

import msgspec

from perdure.codec.record import Record
from perdure.errors import BadCall

SCHEMA: Final = "sys/Secret@1"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Secret(Record, name=SCHEMA):
    """The text `prefix` and then the secret of this name: `Secret("stripe-key", prefix="Bearer ")`.

    With a `digest` (`sha256:` and the hash of its UTF-8 bytes) only that very value will do. A digest is recorded with
    the reference: leave it out for a secret that could be guessed.
    """

    name: str
    digest: str | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):  # type: ignore[redundant-expr]
            raise BadCall("the name of a secret has up to 128 of the characters A-Z a-z 0-9 . _ -, not . _ - first")
        digest: object = self.digest
        if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            raise BadCall(f"the digest of the secret {self.name} is not sha256: and 64 hex digits in lower case")


class SecretParts(msgspec.Struct, frozen=True):
    """A text with secrets in it, as an executor puts it together."""

    parts: tuple[str | Secret, ...]


class Secrets(Protocol):
    def get(self, name: str) -> str:
        """The value, as it is now; `SecretMissing` if there is none. Names are as `Secret` has checked them."""
        ...
