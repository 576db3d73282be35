"""Leases: how processes share the shards of a database. The database's clock decides what has expired.

An engine has one lease, and with it all shards whose owner it is. The epoch of each shard says which of them it still
is: time only decides who may take one, the epoch who may write.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from perdure.kernel.events import Ref


class LeaseStanding(msgspec.Struct, frozen=True):
    """How the shards are shared, as it was when the database was asked."""

    held: Mapping[int, int]  # those of the asker, with their epochs: his lease was extended just now
    free: tuple[int, ...]  # without an owner, or with one whose lease has expired; in order
    engines: int  # that have given a sign of life lately, the asker included


class Leases(Protocol):
    """What a fleet of processes asks of its database."""

    @property
    def shards(self) -> int:
        """How many there are. It was decided when the database was made."""
        ...

    def shard_of(self, ref: Ref) -> int:
        """On which shard an instance is, or will be."""
        ...

    @property
    def lease(self) -> float:
        """Seconds that a lease lasts unless it is renewed."""
        ...

    async def renew(self, owner: str, held: Mapping[int, int]) -> LeaseStanding:
        """Extend the lease of an engine, and tell which of these shards are still its own, by their epochs.

        The epoch is 0 where it has asked for a shard and not been answered. What is the owner's and not among these is
        given back. This waits for no commit: else a slow disk would cost an engine its lease.
        """
        ...

    async def leave(self, owner: str) -> None:
        """No sign of life will come from this owner any more."""
        ...

    def listen(self, heard: Callable[[str], None]) -> None:
        """Who hears hints of other processes. Hints may be lost: a waiting process still looks now and then."""
        ...

    def hint(self, *words: str) -> None:
        """Tell other processes that it is worth a look. Equal hints of a moment are told once."""
        ...
