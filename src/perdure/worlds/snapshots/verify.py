"""A replay of the world that is compared with what was recorded, up to the first difference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.cells.index import CellIndex, diff
from perdure.cells.replay import Parted, WorldReplay, as_json
from perdure.cells.snapshot import WorldSnapshot, name_of, read_snapshot
from perdure.codec import decode
from perdure.errors import PerdureError, UnknownVersion
from perdure.kernel.batch import JournalRow
from perdure.kernel.events import Address
from perdure.kernel.workflows import Workflows
from perdure.ports.store import WorldSnapshotRow

from .blobs import StoredBlobs


class WorldDifference(msgspec.Struct, frozen=True):
    """The first entry at which the code, or what was kept, says something else than the journal. States are JSON."""

    entry: int
    cell: str
    recorded: str
    current: str
    recorded_state: Any = None
    current_state: Any = None
    advice: str = ""


class Verified(msgspec.Struct, frozen=True):
    """A replay of the world. `unread`: workflows without code here; their instances were not replayed."""

    begin: int
    entry: int
    entries: int
    snapshots: int  # whose roots were compared
    unread: list[str]
    difference: WorldDifference | None = None


class Check:
    """A replay that is compared with what was recorded, up to the first difference."""

    def __init__(
        self,
        replay: WorldReplay,
        blobs: StoredBlobs,
        workflows: Workflows[Any],
        marks: dict[int, WorldSnapshotRow],
    ) -> None:
        self._replay = replay
        self._blobs = blobs
        self._workflows = workflows
        self._marks = marks
        self.compared = 0
        self.difference: WorldDifference | None = None

    def take_all(self, rows: Iterable[JournalRow]) -> None:
        for row in rows:
            try:
                self._replay.take(row)
            except Parted as parted:
                self.difference = self._parted(parted)
            except UnknownVersion as error:
                cell = self._replay.address(row)
                self.difference = WorldDifference(row.seq, cell, "a decision", "no code", advice=str(error))
            if self.difference is None and row.seq in self._marks:
                self._compare(self._marks[row.seq])
            if self.difference is not None:
                return

    def _parted(self, parted: Parted) -> WorldDifference:
        error = parted.error
        advice = f"{error.source}: {error.advice}" if error.source else error.advice
        return WorldDifference(
            parted.seq,
            str(parted.address),
            error.recorded,
            error.current,
            self._json(parted.address, self._kept(parted.recorded)),
            self._json(parted.address, parted.state),
            advice,
        )

    def _compare(self, row: WorldSnapshotRow) -> None:
        now = self._replay.snapshot()
        self.compared += 1
        if now.hash == row.hash:
            return
        try:
            self.difference = self._found(read_snapshot(self._blobs, row.hash), now)
        except PerdureError as error:
            self.difference = WorldDifference(row.seq, "", name_of(row.hash), name_of(now.hash), advice=str(error))

    def _found(self, then: WorldSnapshot, now: WorldSnapshot) -> WorldDifference:
        """Where a recorded snapshot says something else: the first cell, or the first part."""
        empty = CellIndex(self._blobs).root
        for workflow in sorted(then.cells.keys() | now.cells.keys()):
            indexes = [CellIndex(self._blobs, each.cells.get(workflow, empty)) for each in (then, now)]
            for key, before, after in diff(*indexes):
                address = Address(workflow, str(decode(key)))
                states = [b"" if entry is None else self._kept(entry.state) for entry in (before, after)]
                names = ["no cell" if entry is None else f"state {entry.state.hex()[:12]}" for entry in (before, after)]
                return WorldDifference(now.seq, str(address), *names, *[self._json(address, state) for state in states])
        for field in WorldSnapshot.__struct_fields__:
            before, after = getattr(then, field), getattr(now, field)
            if before != after:
                return WorldDifference(now.seq, "", f"{field} {_shown(before)}", f"{field} {_shown(after)}")
        return WorldDifference(now.seq, "", name_of(then.hash), name_of(now.hash))

    def _kept(self, digest: bytes) -> bytes:
        try:
            return (self._blobs.get(digest) if digest else None) or b""
        except PerdureError:
            return b""

    def _json(self, address: Address, state: bytes) -> Any:
        """A state as people read it; None: it is not known."""
        if not state:
            return None
        for version in reversed(self._workflows.versions(address.workflow)):
            try:
                return as_json(self._workflows, address, version, state)
            except (PerdureError, TypeError, ValueError, KeyError):
                continue
        return None


def _shown(value: Any) -> str:
    return name_of(value) if isinstance(value, bytes) else str(value)
