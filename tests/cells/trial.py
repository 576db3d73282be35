"""The crash test of a world of cells: what it runs again and again, and what must be the same in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

from perdure.cells.replay import WorldReplay, value_workflows
from perdure.cells.snapshot import GENESIS, read_snapshot
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.outside import Verify, unsigned
from perdure.kernel.rules import AUDIT, RULING
from perdure.kernel.workflows import Workflows
from perdure.runtime.history import Reader
from perdure.testing.cells import state_of_instance
from perdure.testing.crashes import Schedule, Trial, TroubledSimulation
from perdure.testing.user_simulation import UserSimulation
from perdure.testing.world import World
from perdure.worlds.snapshots.verify import Check


class WorldTrial(Trial):
    """A world of cells, and what people do to it: `story` does one thing after the other, and waits for each.

    `may_break` names cells whose reducers raise on purpose. Everything must be at rest in the end. The auditor compares
    all of memory with a replay after every commit, and the whole world is replayed when it is over; not so if it is not
    `thorough`, where another run has shown that.
    """

    def __init__(
        self,
        story: Callable[[World], object],
        workflows: Sequence[Any],
        *,
        handlers: Sequence[Any] = (),
        verify: Verify = unsigned,
        may_break: Sequence[str] = (),
        thorough: bool = True,
        cache: int = 4096,
        reset: Callable[[], object] | None = None,
        observe: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(cache=cache, reset=reset, observe=observe)
        self.name = story.__name__
        self.story = story
        self._workflows = workflows
        self._handlers = handlers
        self._verify = verify
        self._may_break = may_break
        self._thorough = thorough

    def _simulation(self, schedule: Schedule, **options: Any) -> UserSimulation:
        options["faults"].away = self.cache == 0  # so that there is a commit between an event and who hears of it
        kind = UserSimulation if schedule.random is None else TroubledSimulation
        simulation = kind(
            *self._workflows, handlers=self._handlers, ours=self._thorough, verify=self._verify, **options
        )
        simulation.auditor.may_break |= set(self._may_break)
        return simulation

    def _live(self, simulation: UserSimulation, schedule: Schedule) -> None:
        world = World._on(simulation)
        while simulation.asks("begin the world"):
            simulation.pass_until(simulation.next_at())
        self.story(world)
        simulation.one_healthy_process()
        simulation.pass_until(None)
        simulation.auditor.finish()

    def _wrong(self, simulation: UserSimulation) -> str:
        return _not_verified(simulation) if self._thorough else ""

    def _changed_mind(self, simulation: UserSimulation, head: HeadRow, workflow: Any) -> str:
        if self._thorough:
            simulation.auditor.replay(head.id, whole=False)  # the whole of everything comes in the end
        return ""

    def _end(self, simulation: UserSimulation, head: HeadRow) -> dict[str, Any]:
        return {
            **super()._end(simulation, head),
            "state": state_of_instance(simulation, head),
            "heard": _heard(simulation.database.histories[head.id]),
        }


def _heard(rows: Sequence[JournalRow]) -> list[str]:
    """All that an instance was told, in any order, but for what a crash leads to by right."""
    told: Counter[str] = Counter()
    for line in Reader().read(rows):
        if line.event in OF_CRASHES:
            continue
        counted = line.event == "message" and line.location.startswith(RULING)  # what else lived then, and the like
        value = line.location if counted and line.location != AUDIT else line.value
        told[f"{line.event} {line.status} {value!r}"] += 1
        if line.location == AUDIT:
            told[f"{line.event} {line.status} {value!r}"] = 1  # offered again after a crash, it is refused again
    return sorted(told.elements())


OF_CRASHES: Final = ("redelivered", "parked", "released")
"""Entries that are there because of a crash, of which no cell hears."""


def _not_verified(simulation: UserSimulation) -> str:
    """What `perdure replay --verify` says of the world, from its first entry and from every snapshot."""
    database, code = simulation.database, Workflows([*simulation.workflows, *value_workflows(simulation.workflows)])
    blobs: Any = _Blobs({digest: body for digest, (_, body) in database.blobs.items()})
    marks = database.world_snapshots
    for base in (GENESIS, *(read_snapshot(blobs, row.hash) for row in marks.values())):
        later = {seq: row for seq, row in marks.items() if seq > base.seq}
        replay = WorldReplay(blobs, code, base)
        check = Check(replay, blobs, simulation.workflows, later)
        check.take_all(row for row in database.journal if row.seq > base.seq)
        replay.close()
        if check.difference is not None:
            return f"a replay of the world from entry {base.seq} on finds: {check.difference}"
    return ""


class _Blobs(dict[bytes, bytes]):
    def put(self, body: bytes) -> bytes:
        digest = sha256(body).digest()
        self[digest] = body
        return digest
