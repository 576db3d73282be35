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


class Figures(msgspec.Struct, frozen=True):
    """What an engine has measured of its own work. `p50` and `p95`: the seconds that half, and 95 of 100, of its last
    commits took at most; None: it has made none. `ended`: by queue a minute since 1970, how many jobs ended in it, and
    in the minute before.
    """

    p50: float | None = None
    p95: float | None = None
    ended: dict[str, tuple[int, int, int]] = {}

    def per_minute(self, queue: str, now: float) -> float:
        """The jobs of a queue that ended in the last 60 seconds, if those of a minute came evenly."""
        minute, ended, before = self.ended.get(queue, (0, 0, 0))
        passed = now / 60 - minute
        return ended + before * (1 - passed) if passed < 1 else ended * max(0.0, 2 - passed)


class ShardRow(msgspec.Struct, frozen=True):
    """A shard, for people. `expires`: when the lease of its owner ends unless it is renewed, in unix seconds; 0: it
    lasts as long as the process of its owner, or there is none. `figures` are of the whole engine. `undelivered` events
    are in the inbox, the oldest since `oldest`, in nanoseconds.
    """

    shard: int
    epoch: int
    owner: Owner | None
    expires: float = 0.0
    figures: Figures = Figures()
    undelivered: int = 0
    oldest: int = 0


def write_figures(figures: Figures) -> str:
    return msgspec.json.encode(figures).decode()


def read_figures(text: str) -> Figures:
    return msgspec.json.decode(text, type=Figures) if text else Figures()
