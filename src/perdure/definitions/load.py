"""Reading definitions where they are kept, and what is to be sent to keep one more.

Reads go through `Queries`, so they work in an engine, in `perdure.connect` and on a copy of a database alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from perdure.codec import digest
from perdure.errors import Corrupt, DefinitionConflict
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Ref
from perdure.ports.dialect import Stored

from .model import REGISTER, Register, address, first_difference, next_free, published_as


class Reads(Protocol):
    """What this needs of `ports.store.Queries`."""

    async def head(self, ref: Ref) -> HeadRow | None: ...

    async def published(self, instance: int, name: str) -> bytes | None: ...


async def register_of(queries: Reads, name: str) -> Register | None:
    """The versions of a name; None: no definition has that name."""
    head = await queries.head(address(name))
    data = None if head is None else await queries.published(head.id, REGISTER)
    return None if data is None else Register.read(data)


async def stored(queries: Reads, name: str, version: str = "") -> Stored | None:
    """A version of a definition, by default the active one; None: there is none. Its bytes are checked."""
    head = await queries.head(address(name))
    data = None if head is None else await queries.published(head.id, REGISTER)
    if head is None or data is None:
        return None
    register = Register.read(data)
    found = register.find(version or register.active)
    if found is None:
        return None
    definition = await queries.published(head.id, published_as(found.version))
    if definition is None or digest(definition) != found.digest:
        raise Corrupt(f"the definition {name} {found.version} does not match its digest {found.digest}")
    return Stored(name, found.version, register.dialect, definition, found.digest, register.rule)


def is_new(
    register: Register | None,
    before: Stored | None,
    given: Stored,
    data: Callable[[bytes], Any],
) -> bool:
    """Whether a definition must be put; False: it is kept already. Other bytes of its version are a conflict.

    `before` is what is kept under the same version. `data` makes plain data of a definition's bytes: the first
    difference is told.
    """
    if register is None:
        return True
    if register.dialect != given.dialect:
        difference = f"the name belongs to a {register.dialect}, found a {given.dialect}"
        raise DefinitionConflict(given.name, given.version, difference, "")
    if before is None:
        return True
    if before.digest == given.digest:
        return False
    difference = first_difference(data(before.definition), data(given.definition))
    raise DefinitionConflict(given.name, given.version, difference, next_free(given.version, register))
