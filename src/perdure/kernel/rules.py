"""Rules: data that one instance, the ruler, has published, and that hold for its whole shard.

They say which definition new instances of a workflow run on, which instances migrate to it, and what they hear. They
are in the journal, change with an entry like everything else, and a rebuilt index finds them again. The ruler has
checked them.
"""

from typing import Final
from uuid import UUID

import msgspec

from .events import Address

RULER: Final = Address("sys/world", "main")
"""The instance whose rules hold. Any workflow may be registered under its name."""

IN_FORCE: Final = "manifest"
"""The name under which the ruler publishes the rules. They hold from the next entry on."""

DEFINITIONS: Final = "definitions"
"""The name under which the ruler publishes what it takes from outside, for callers who have no code."""

AUDIT: Final = "sys/audit"
"""The message that tells the ruler of something that was refused: who wanted what, and why not."""

RULING: Final = "sys/"
"""Messages to the ruler whose names begin so may change the rules: nothing is decided beside them."""


class FactRoute(msgspec.Struct, frozen=True, array_like=True):
    """Facts of this name go to the workflow's instance whose key stands at `key_path`; empty: to its only one."""

    fact: str
    workflow: str
    key_path: str = ""


class Rules(msgspec.Struct, frozen=True, array_like=True):
    """`versions` names, of each governed workflow, the definition that new instances run on."""

    hash: str = ""
    versions: dict[str, str] = {}
    routes: tuple[FactRoute, ...] = ()
    migrating: dict[str, tuple[str, ...]] = {}
    """Of a workflow, the earlier definitions whose instances migrate to the current one, each when it is next used."""

    def outdated(self, workflow: str, definition: str) -> bool:
        return workflow in self.migrating and definition in self.migrating[workflow]

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


NO_RULES: Final = Rules()

_decoder = msgspec.msgpack.Decoder(Rules)


def decode_rules(body: bytes | None) -> Rules:
    return NO_RULES if body is None else _decoder.decode(body)


def key_text(value: object) -> str | None:
    """How a key stands in the name of an instance; None: it is no key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return None
    return str(value) if isinstance(value, int | UUID) else None
