"""The index of a workflow's cells: which keys there are and the state of each, under one hash.

A trie over the SHA-256 of the keys. Its nodes are blobs that name each other by the SHA-256 of their bytes:

    leaf      {"leaf": [[key, state, size, last active], ...]}    up to 32 entries, in the order of their paths
    branch    {"branch": [[node, count] or null, ...]}            16 children, one for each next digit of the path

The path of a key is the SHA-256 of its bytes, in hex. Up to 32 entries below one beginning of a path are a leaf, more
are a branch, whatever was there before. So the root depends on the content alone, not on its history, and what two
indexes have in common they have as the same nodes. The counts in a branch tell when it must be a leaf again.

Every node is checked against its name when it is read. One that is missing or damaged is `Corrupt`: an index never
shows less than it holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import groupby, islice
from typing import Final, NamedTuple, Protocol

import msgspec

from perdure.codec import decode, encode
from perdure.errors import Corrupt, PerdureError

FAN_OUT: Final = 16
LEAF_MAX: Final = 32
"""Measured: a million entries are 70,000 nodes, and one change writes five of them, 3.5 kB. With a fan-out of 32 those
are 5 kB. With leaves of 16 there are 340,000 nodes, because a leaf that splits becomes sixteen with one entry each."""


class Blobs(Protocol):
    """Bytes by their SHA-256."""

    def get(self, digest: bytes, /) -> bytes | None: ...

    def put(self, body: bytes, /) -> bytes:
        """Keep these bytes; the answer is their digest. They can be got at once."""
        ...


class Entry(NamedTuple):
    """What the index knows of a cell: the SHA-256 of its state, the state's size in bytes, and when it last changed."""

    state: bytes
    size: int
    last_active: int


Difference = tuple[bytes, Entry | None, Entry | None]
"""A key, its entry before, its entry after. None: it was not there."""


class _Item(NamedTuple):
    path: str
    key: bytes
    entry: Entry


class _Change(NamedTuple):
    path: str
    key: bytes
    entry: Entry | None


class _Child(NamedTuple):
    """A written subtree: its node, and how many entries are in it."""

    digest: bytes
    size: int


class _Leaf(NamedTuple):
    items: Sequence[_Item]


class _Branch(NamedTuple):
    children: Sequence[_Child | None]


_Node = _Leaf | _Branch
_Subtree = _Child | _Leaf | None
"""While an update goes on, a leaf is written last: it may still be made a part of a larger one."""


class CellIndex:
    """One state of an index. It does not change: `update` gives another one.

    A key is the canonical bytes of a cell's key. Orders are those of the keys' hashes.
    """

    def __init__(self, blobs: Blobs, root: bytes | None = None) -> None:
        self._blobs = blobs
        self.root = EMPTY if root is None else root

    def count(self) -> int:
        return _count(self._node(self.root))

    def get(self, key: bytes) -> Entry | None:
        *_, (_, last) = self._down(_path(key))
        return _find(last, key)

    def walk(self, after: bytes | None = None, limit: int | None = None) -> Iterator[tuple[bytes, Entry]]:
        """Keys and entries in order. A page begins after the key that the last one ended with, even if that is gone."""
        items = self._items(self._node(self.root), 0, "" if after is None else _path(after))
        return ((item.key, item.entry) for item in islice(items, limit))

    def proof(self, key: bytes) -> list[bytes]:
        """The nodes that show, for a known root, which entry a key has, or that it has none: see `verify`."""
        return [body for body, _ in self._down(_path(key))]

    def update(self, changes: Iterable[tuple[bytes, Entry | None]]) -> CellIndex:
        """The index with these entries set and, where None is given, removed. The last change of a key counts.

        Nodes that stay as they are are not put again: keep the old root until the new one is recorded, or garbage
        collection may take what they share.
        """
        asked = {key: _Change(_path(key), key, entry) for key, entry in changes}
        assert all(change.entry is None or len(change.entry.state) == 32 for change in asked.values()), "not a SHA-256"
        root = _Child(self.root, 0)  # how many entries a root has stands in its node
        changed = self._change(root, 0, sorted(asked.values()))
        return CellIndex(self._blobs, EMPTY if changed is None else self._written(changed).digest)

    # ---- reading -------------------------------------------------------------------------------------------

    def _node(self, digest: bytes) -> _Node:
        return _parse(digest, self._body(digest))

    def _body(self, digest: bytes) -> bytes:
        if digest == EMPTY:
            return _EMPTY_BODY
        body = self._blobs.get(digest)
        if body is None:
            raise Corrupt(f"there is no index node {_name(digest)}")
        return body

    def _down(self, path: str) -> Iterator[tuple[bytes, _Node]]:
        """The nodes on the way to a path, from the root to the leaf or to the branch that has no child there."""
        digest: bytes | None = self.root
        for depth in range(len(path)):
            if digest is None:
                return
            body = self._body(digest)
            node = _parse(digest, body)
            yield body, node
            digest = _next(node, path, depth)

    def _items(self, node: _Node, depth: int, after: str) -> Iterator[_Item]:
        if isinstance(node, _Leaf):
            yield from (item for item in node.items if item.path > after)
            return
        first = _digit(after, depth) if after else -1
        for digit, child in enumerate(node.children):
            if child is not None and digit >= first:
                yield from self._items(self._node(child.digest), depth + 1, after if digit == first else "")

    # ---- writing -------------------------------------------------------------------------------------------

    def _change(self, child: _Child | None, depth: int, changes: Sequence[_Change]) -> _Subtree:
        """The subtree after the changes; the same child if they change nothing."""
        node = _Leaf(()) if child is None else self._node(child.digest)
        if isinstance(node, _Leaf):
            items = {item.path: item for item in node.items}
            for change in changes:
                if change.entry is None:
                    items.pop(change.path, None)
                else:
                    items[change.path] = _Item(change.path, change.key, change.entry)
            now = sorted(items.values())
            return child if now == list(node.items) else self._grown(now, depth)
        children: list[_Subtree] = list(node.children)
        for digit, group in groupby(changes, lambda change: change.path[depth]):
            at = int(digit, FAN_OUT)
            children[at] = self._change(node.children[at], depth + 1, list(group))
        return child if children == list(node.children) else self._joined(children)

    def _grown(self, items: Sequence[_Item], depth: int) -> _Subtree:
        """New items as a subtree: a leaf, or as many branches as it takes."""
        if len(items) <= LEAF_MAX:
            return _Leaf(items) if items else None
        children: list[_Subtree] = [None] * FAN_OUT
        for digit, group in groupby(items, lambda item: item.path[depth]):
            children[int(digit, FAN_OUT)] = self._grown(list(group), depth + 1)
        return self._joined(children)

    def _joined(self, children: Sequence[_Subtree]) -> _Subtree:
        """These children as one subtree: a branch, or one leaf when they have become so few."""
        if sum(map(_size, children)) > LEAF_MAX:
            return self._put_branch([None if child is None else self._written(child) for child in children])
        items: list[_Item] = []
        for child in children:
            if child is not None:
                leaf = self._node(child.digest) if isinstance(child, _Child) else child
                assert isinstance(leaf, _Leaf), "so few entries are a leaf"
                items += leaf.items
        return _Leaf(items) if items else None

    def _written(self, subtree: _Child | _Leaf) -> _Child:
        if isinstance(subtree, _Child):
            return subtree
        rows = [[item.key, *item.entry] for item in subtree.items]
        return _Child(self._put({"leaf": rows}), len(rows))

    def _put_branch(self, children: Sequence[_Child | None]) -> _Child:
        rows = [None if child is None else list(child) for child in children]
        return _Child(self._put({"branch": rows}), sum(map(_size, children)))

    def _put(self, node: dict[str, object]) -> bytes:
        body = encode(node)
        digest = self._blobs.put(body)
        assert digest == sha256(body).digest(), "blobs are named by the SHA-256 of their bytes"
        return digest


def verify(root: bytes, key: bytes, entry: Entry | None, proof: Iterable[bytes]) -> bool:
    """Whether these nodes show that the index of this root has this entry for the key (None: that it has none)."""
    path = _path(key)
    awaited: bytes | None = root
    last: _Node | None = None
    for depth, body in enumerate(proof):
        if awaited is None:
            return False  # more nodes than the path has
        try:
            last = _parse(awaited, body)
        except Corrupt:
            return False
        awaited = _next(last, path, depth)
    return last is not None and awaited is None and _find(last, key) == entry


def diff(before: CellIndex, after: CellIndex) -> Iterator[Difference]:
    """What differs between two indexes, in order. What they have in common is not read."""
    return _diff(before, before.root, after, after.root, 0)


def _diff(
    before: CellIndex, old: bytes | None, after: CellIndex, new: bytes | None, depth: int
) -> Iterator[Difference]:
    if old == new:
        return
    was = _Leaf(()) if old is None else before._node(old)
    now = _Leaf(()) if new is None else after._node(new)
    if isinstance(was, _Branch) and isinstance(now, _Branch):
        for left, right in zip(was.children, now.children, strict=True):
            yield from _diff(before, _digest(left), after, _digest(right), depth + 1)
    else:
        yield from _compare(before._items(was, depth, ""), after._items(now, depth, ""))


def _compare(before: Iterable[_Item], after: Iterable[_Item]) -> Iterator[Difference]:
    both = heapq.merge(((item.path, 0, item) for item in before), ((item.path, 1, item) for item in after))
    for _, found in groupby(both, lambda side: side[0]):
        entries: list[Entry | None] = [None, None]
        for _, side, item in found:
            entries[side] = item.entry
        if entries[0] != entries[1]:
            yield item.key, entries[0], entries[1]


def reachable(blobs: Blobs, roots: Iterable[bytes]) -> Iterator[bytes]:
    """The digests of all nodes and all states of these indexes; what they share is read once."""
    seen = {EMPTY}
    ahead = list(roots)
    index = CellIndex(blobs)
    while ahead:
        digest = ahead.pop()
        if digest in seen:
            continue
        seen.add(digest)
        yield digest
        node = index._node(digest)
        if isinstance(node, _Leaf):
            yield from (item.entry.state for item in node.items)
        else:
            ahead += [child.digest for child in node.children if child is not None]


# ---- nodes -------------------------------------------------------------------------------------------------


def _path(key: bytes) -> str:
    return sha256(key).hexdigest()


def _digit(path: str, depth: int) -> int:
    return int(path[depth], FAN_OUT)


def _next(node: _Node, path: str, depth: int) -> bytes | None:
    """The node that follows on this path; None: the path ends here."""
    if isinstance(node, _Leaf):
        return None
    return _digest(node.children[_digit(path, depth)])


def _digest(child: _Child | None) -> bytes | None:
    return None if child is None else child.digest


def _find(node: _Node, key: bytes) -> Entry | None:
    if isinstance(node, _Branch):
        return None
    return next((item.entry for item in node.items if item.key == key), None)


def _count(node: _Node) -> int:
    return len(node.items) if isinstance(node, _Leaf) else sum(map(_size, node.children))


def _size(subtree: _Subtree) -> int:
    if subtree is None:
        return 0
    return subtree.size if isinstance(subtree, _Child) else len(subtree.items)


def _parse(digest: bytes, body: bytes) -> _Node:
    if sha256(body).digest() != digest:
        raise Corrupt(f"the index node {_name(digest)} does not match its hash")
    try:
        match decode(body):
            case {"leaf": rows}:
                found = msgspec.convert(rows, list[tuple[bytes, bytes, int, int]])
                return _Leaf([_Item(_path(key), key, Entry(state, size, at)) for key, state, size, at in found])
            case {"branch": [*rows]} if len(rows) == FAN_OUT:
                return _Branch(msgspec.convert(rows, list[_Child | None]))
    except (PerdureError, msgspec.ValidationError):
        pass
    raise Corrupt(f"{_name(digest)} is not a node of an index")


def _name(digest: bytes) -> str:
    return f"sha256:{digest.hex()}"


_EMPTY_BODY: Final = encode({"leaf": []})
EMPTY: Final = sha256(_EMPTY_BODY).digest()
"""The root of the index without entries. It stands in no store."""
