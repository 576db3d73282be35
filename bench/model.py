"""A model of throughput on PostgreSQL, from a few measured numbers. docs/operate/sizing.md explains it, and shows how
far off it was.

F flows under way are spread over K shards by chance, and what waits on a shard shares a commit: b entries. One engine
is one thread, which takes `engine(b) / share` for an entry; and a flow cannot go on before its commit is durable. So
one round, in which each flow does one step, takes

    max(F * engine(b) / share, commit + b * row + b * engine(b) / share)

whatever is longer: the engine at work all the time, or a shard that waits for its commit. All shards of an engine have
`CONNECTIONS` connections, so there are no more than so many commits under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONNECTIONS: Final = 8  # as in perdure/stores/postgres/database.py


@dataclass(frozen=True)
class Costs:
    """In seconds. `share` is how much of a core the engine's thread gets when it is busy: 1 on a machine of its own."""

    commit: float  # one row by itself, as one connection sees it
    row: float  # each further row of the same commit
    engine_entry: float  # processor time
    engine_commit: float
    share: float = 1.0

    def engine(self, batch: float) -> float:
        return (self.engine_entry + self.engine_commit / batch) / self.share


def batch_of(flows: int, shards: int) -> float:
    """Entries per commit: flows per shard that has any."""
    return flows / (shards * (1 - (1 - 1 / shards) ** flows))


def entries_per_second(costs: Costs, flows: int, shards: int) -> float:
    batch = batch_of(flows, shards)
    commit = costs.commit + (batch - 1) * costs.row
    engine = costs.engine(batch)
    round_of_all = max(flows * engine, commit + batch * engine)
    return min(flows / round_of_all, CONNECTIONS * batch / commit)


def per_entry_and_commit(alone: float, shared: float, batch: float) -> tuple[float, float]:
    """What an entry and a commit cost, from the cost per entry of one flow alone and of many that share commits."""
    commit = max(0.0, (alone - shared) / (1 - 1 / batch))
    return max(0.0, alone - commit), commit
