"""What people are told of the shards of a database and of the engines that have them. Nothing decides by it."""

from __future__ import annotations

import msgspec


class Owner(msgspec.Struct, frozen=True):
    """The engine that runs on a database, for people. `since` is unix seconds; 0 and "": not known."""

    name: str
    pid: int = 0
    host: str = ""
    since: int = 0

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid} on {self.host})" if self.pid else self.name


class ShardRow(msgspec.Struct, frozen=True):
    """A shard, for people. `expires`: when the lease of its owner ends unless it is renewed, in unix seconds; 0: it
    lasts as long as the process of its owner, or there is none.
    """

    shard: int
    epoch: int
    owner: Owner | None
    expires: float = 0.0
