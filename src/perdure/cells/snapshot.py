"""World snapshots: all that a journal has come to by one of its entries, as blobs under one hash.

A world snapshot is a small record that names five indexes by their roots, each a `CellIndex`:

    cells        per workflow: the key of each cell, and its state
    instances    the id of every instance, and what is kept of it: see `Kept`
    histories    of instances that are not cells: their rows, a segment of so many in one blob
    published    what instances have published, and what they answered
    blobs        the blobs that entries name

Everything in it follows from the entries up to its own, and from nothing else: it does not matter when it was taken,
by whom, or what earlier one it began from. What has not changed since then it has as the same nodes and blobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec

from perdure.codec import decode, encode
from perdure.errors import Corrupt, PerdureError
from perdure.kernel.batch import HeadRow, InboxRow, JournalRow, SnapshotRow
from perdure.kernel.effects import Call
from perdure.kernel.entry import Entry as JournalEntry
from perdure.kernel.events import Event, ReceiptArrived
from perdure.kernel.instance import Instance
from perdure.kernel.rows import offer_of
from perdure.kernel.snapshot import restore, write
from perdure.kernel.status import TERMINAL

from .effects import BLOB_GET
from .index import EMPTY, Blobs, CellIndex, reachable
from .machine import join

T = TypeVar("T")

FORMAT: Final = 1

SEGMENT: Final = 256
"""How many rows of a history one blob has. What came later changes the last blob only."""


class WorldSnapshot(msgspec.Struct, frozen=True):
    """See the module. `world` is the id of the world's own instance, 0: there is none; `open` counts open intents."""

    seq: int = 0
    at: int = 0
    world: int = 0
    manifest: str = ""
    governance: bytes = b""
    open: int = 0
    cells: dict[str, bytes] = {}
    instances: bytes = EMPTY
    histories: bytes = EMPTY
    published: bytes = EMPTY
    blobs: bytes = EMPTY

    def encode(self) -> bytes:
        return encode({"format": FORMAT, **msgspec.structs.asdict(self)})

    @property
    def hash(self) -> bytes:
        return sha256(self.encode()).digest()

    @property
    def roots(self) -> list[bytes]:
        return [*self.cells.values(), self.instances, self.histories, self.published, self.blobs]


GENESIS: Final = WorldSnapshot()
"""Before the first entry."""


class Kept(msgspec.Struct, frozen=True):
    """What a snapshot has of an instance. One that has ended for good is its head alone.

    `body` is what the kernel writes of an instance. The state of a cell is not in it, but a blob of its own. An
    instance that is no cell has `segments` of its history instead: its machine is rebuilt from that, as ever.
    """

    head: HeadRow
    seq: int
    body: bytes | None = None
    state: bytes = b""
    segments: int | None = None

    def encode(self) -> bytes:
        return encode({**msgspec.structs.asdict(self), "head": _written(self.head)})

    def instance(self) -> Instance:
        assert self.body is not None, "of what has ended for good nothing goes on"
        return restore(SnapshotRow(self.head.id, self.seq, self.body))

    def row(self, blobs: Blobs) -> SnapshotRow | None:
        """The row from which an engine goes on; None: it does not need one."""
        if self.body is None or self.segments is not None:
            return None
        if not self.state:
            return SnapshotRow(self.head.id, self.seq, self.body)
        instance = self.instance()
        machine = join(found(blobs, self.state, "state"), instance.snapshot_at or b"")
        return SnapshotRow(self.head.id, self.seq, write(instance, machine))

    def history(self, blobs: Blobs, index: CellIndex) -> list[JournalRow]:
        """All its rows, if it is no cell."""
        rows: list[JournalRow] = []
        for number in range(self.segments or 0):
            rows += segment(blobs, index, self.head.id, number)
        return rows


def found(blobs: Blobs, digest: bytes, what: str) -> bytes:
    """A blob that must be there, whole."""
    body = blobs.get(digest)
    if body is None:
        raise Corrupt(f"there is no {what} {name_of(digest)}")
    if sha256(body).digest() != digest:
        raise Corrupt(f"the {what} {name_of(digest)} does not match its hash")
    return body


def read_snapshot(blobs: Blobs, hash: bytes) -> WorldSnapshot:
    data = _read(blobs, hash, "world snapshot")
    if data.pop("format", None) != FORMAT:
        raise Corrupt(f"{name_of(hash)} is not a world snapshot that this version can read")
    return _as(WorldSnapshot, data, hash)


def read_kept(blobs: Blobs, digest: bytes) -> Kept:
    data = _read(blobs, digest, "instance")
    return _as(Kept, {**data, "head": _head(*data["head"])}, digest)


HEAD_FIELDS: Final = 12
"""The fields of a head that a snapshot has. The others follow from them, and from the instance: so a snapshot has the
hash that it would have had before there were others."""


def _written(head: HeadRow) -> list[Any]:
    """The root is added where it is not the parent."""
    plain = head.root == (head.parent or head.id)
    return [*head[:HEAD_FIELDS], *(() if plain else (head.root,))]


def _head(*fields: Any) -> HeadRow:
    """What it waits for is said by the instance: here it is left out."""
    plain = HeadRow(*(*fields[:HEAD_FIELDS], 0, 0, ""))
    root = fields[HEAD_FIELDS] if len(fields) > HEAD_FIELDS else plain.parent or plain.id
    return plain._replace(root=root, ended_at=plain.changed_at if plain.status in TERMINAL else 0)


def _read(blobs: Blobs, digest: bytes, what: str) -> dict[str, Any]:
    try:
        data = decode(found(blobs, digest, what))
    except Corrupt:
        raise
    except PerdureError:
        data = None
    if not isinstance(data, dict):
        raise Corrupt(f"{name_of(digest)} is not a {what}")
    return data


def _as(kind: type[T], data: dict[str, Any], digest: bytes) -> T:
    try:
        return kind(**data)
    except TypeError:
        raise Corrupt(f"{name_of(digest)} has other fields than it should") from None


def instance_key(id: int) -> bytes:
    return encode(id)


def cell_key(key: str) -> bytes:
    return encode(key)


def published_key(id: int, name: str) -> bytes:
    return encode([id, name])


def segment_key(id: int, number: int) -> bytes:
    return encode([id, number])


def segment(blobs: Blobs, index: CellIndex, id: int, number: int) -> list[JournalRow]:
    entry = index.get(segment_key(id, number))
    if entry is None:
        raise Corrupt(f"there is no segment {number} of the history of instance {id} in {name_of(index.root)}")
    return [JournalRow(*row) for row in decode(found(blobs, entry.state, "part of a history"))]


def write_rows(rows: Iterable[JournalRow] | Iterable[InboxRow]) -> bytes:
    """Rows as a blob."""
    return encode([list(row) for row in rows])


def read_inbox(body: bytes) -> list[InboxRow]:
    return [InboxRow(*row) for row in decode(body)]


def named_blobs(entry: JournalEntry) -> Iterator[bytes]:
    """The blobs that an entry refers to: one that was put, by the receipt of that; one that is asked for."""
    yield from _blobs_of(entry.event)
    for effect in entry.decision.open:
        if type(effect) is Call and effect.params is not None:
            match _plain(effect.params):
                case {"effect": effect_name, "params": {"hash": str(hash)}} if effect_name == BLOB_GET:
                    yield from _digest_in(hash)


def blobs_in_inbox(rows: Iterable[InboxRow]) -> Iterator[bytes]:
    """The same for events that wait: a cell that is stuck hears later that its blob was put."""
    for row in rows:
        yield from _blobs_of(offer_of(row).event)


def _blobs_of(event: Event) -> Iterator[bytes]:
    if type(event) is ReceiptArrived and event.receipt.status == "ok" and event.receipt.value:
        match _plain(event.receipt.value):
            case {"hash": str(hash), "size": int(), **rest} if not rest:
                yield from _digest_in(hash)
    yield from stored_values(event)


def stored_values(event: Event) -> Iterator[bytes]:
    """The large result of a tool, which any dialect may have asked for."""
    if type(event) is ReceiptArrived and event.receipt.status == "ok" and event.receipt.value:
        match _plain(event.receipt.value):
            case {"ref": {"blob": {"hash": str(hash)}}}:
                yield from _digest_in(hash)
            case _:
                pass


def _plain(body: bytes) -> Any:
    try:
        return decode(body)
    except PerdureError:
        return None


def _digest_in(hash: str) -> Iterator[bytes]:
    kind, _, digits = hash.partition(":")
    if kind == "sha256" and len(digits) == 64:
        yield bytes.fromhex(digits)


def reached(blobs: Blobs, snapshots: Iterable[bytes]) -> Iterator[bytes]:
    """The digests of all blobs that these snapshots need; what they share is read once."""
    roots: list[bytes] = []
    for hash in snapshots:
        snapshot = read_snapshot(blobs, hash)
        yield hash
        if snapshot.governance:
            yield snapshot.governance
        roots += snapshot.roots
    yield from reachable(blobs, roots)


def name_of(digest: bytes) -> str:
    return f"sha256:{digest.hex()}"
