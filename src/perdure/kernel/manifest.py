"""The manifest in force: which definitions a world runs, and who hears of what.

It is data that one instance, the world's own, has published: so it is in the journal, changes with an entry like
everything else, and a rebuilt index finds it again. Whoever wrote it has checked it.
"""

from typing import Final
from uuid import UUID

import msgspec

from .events import Address

WORLD: Final = Address("sys/world", "main")
"""The instance that takes events from outside and rules over definitions."""

MANIFEST: Final = "manifest"
"""The name under which the world publishes what is in force. It holds from the next entry on."""

DEFINITIONS: Final = "definitions"
"""The name under which the world publishes the whole manifest, for those who have no code."""

APPLY: Final = "sys/apply"
"""The message that puts a manifest into force. Whoever runs the world adds what it counted: see `Census`."""

AUDIT: Final = "sys/audit"
"""The message that tells the world of something that was refused: who wanted what, and why not."""

RULES: Final = "sys/"
"""Messages to the world whose names begin so may change what is in force: nothing is decided beside them."""


class Route(msgspec.Struct, frozen=True, array_like=True):
    """Facts of this name go to the workflow's instance whose key stands at `key_path`; empty: to its only one."""

    fact: str
    workflow: str
    key_path: str = ""


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """`versions` names the definition of each governed workflow that new instances run on.

    An instance of a governed workflow is made by the first message to it, and runs on the very definition that it
    began with: no other will do.
    """

    hash: str = ""
    versions: dict[str, str] = {}
    routes: tuple[Route, ...] = ()
    migrating: dict[str, tuple[str, ...]] = {}
    """Of a workflow, the earlier definitions whose instances go over to the one in force, each when it is next used."""

    def outdated(self, workflow: str, definition: str) -> bool:
        return workflow in self.migrating and definition in self.migrating[workflow]

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


NO_MANIFEST: Final = Manifest()

_decoder = msgspec.msgpack.Decoder(Manifest)


def decode_manifest(body: bytes | None) -> Manifest:
    return NO_MANIFEST if body is None else _decoder.decode(body)


def key_text(value: object) -> str | None:
    """How a key stands in the name of an instance; None: it is no key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return None
    return str(value) if isinstance(value, int | UUID) else None
