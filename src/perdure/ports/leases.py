"""Leases: how processes share the shards of a database. The database's clock decides what has expired."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec


class Standing(msgspec.Struct, frozen=True):
    """How the shards are shared, as it was when the database was asked."""

    held: Mapping[int, int]  # those of the asker, with their epochs: extended just now
    free: tuple[int, ...]  # without an owner, or with one whose lease has expired
    engines: int  # that have given a sign of life lately, the asker included


class Leases(Protocol):
    """What a fleet of processes asks of its database."""

    @property
    def shards(self) -> int:
        """How many there are. It was decided when the database was made."""
        ...

    @property
    def lease(self) -> float:
        """Seconds that a lease lasts unless it is renewed."""
        ...

    async def renew(self, owner: str, held: Mapping[int, int]) -> Standing:
        """Extend these leases where the epoch is still the owner's, and give a sign of life. One statement."""
        ...

    async def leave(self, owner: str) -> None:
        """No sign of life will come from this owner any more."""
        ...

    def listen(self, heard: Callable[[str], None]) -> None:
        """Who hears hints of other processes. Hints may be lost: whoever waits must look now and then all the same."""
        ...

    def hint(self, *words: str) -> None:
        """Tell other processes that it is worth a look. Equal hints of a moment are told once."""
        ...
