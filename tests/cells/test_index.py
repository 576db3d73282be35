"""The index of cells: one content, one root; small changes touch little; nothing false is believed."""

from collections.abc import Iterable
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.cells.index import EMPTY, LEAF_MAX, CellIndex, Entry, diff, reachable, verify
from perdure.codec import decode, encode
from perdure.errors import Corrupt


class Blobs:
    """A dict that counts."""

    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}
        self.reads = 0
        self.written: list[bytes] = []

    def get(self, digest: bytes) -> bytes | None:
        self.reads += 1
        return self.bodies.get(digest)

    def put(self, body: bytes) -> bytes:
        digest = sha256(body).digest()
        self.bodies[digest] = body
        self.written.append(digest)
        return digest


def key(n: int) -> bytes:
    return encode(f"order-{n}")


def entry(n: int) -> Entry:
    return Entry(sha256(encode(n)).digest(), n % 1000, 1_700_000_000_000_000_000 + n)


def made(numbers: Iterable[int], blobs: Blobs | None = None) -> CellIndex:
    return CellIndex(blobs or Blobs()).update((key(n), entry(n)) for n in numbers)


def neighbours(count: int, digits: int) -> list[int]:
    """Numbers whose keys have paths with the same beginning, so that their entries lie deep."""
    beginning = sha256(key(0)).hexdigest()[:digits]
    found: list[int] = []
    n = 0
    while len(found) < count:
        if sha256(key(n)).hexdigest().startswith(beginning):
            found.append(n)
        n += 1
    return found


def root_by_the_book(content: dict[bytes, Entry]) -> bytes:
    """The rules of the module in their shortest form, to compare with."""

    def node(items: list[tuple[bytes, Entry]], depth: int) -> bytes:
        if len(items) <= LEAF_MAX:
            return sha256(encode({"leaf": [[key, *entry] for key, entry in items]})).digest()
        below = [
            [item for item in items if sha256(item[0]).hexdigest()[depth] == digit] for digit in "0123456789abcdef"
        ]
        return sha256(
            encode({"branch": [[node(part, depth + 1), len(part)] if part else None for part in below]})
        ).digest()

    return node(sorted(content.items(), key=lambda pair: sha256(pair[0]).digest()), 0)


def by_path(numbers: Iterable[int]) -> list[bytes]:
    return sorted(map(key, numbers), key=lambda key: sha256(key).digest())


# ---- one content, one root -----------------------------------------------------------------------------------


def test_the_empty_index_has_a_fixed_root_and_needs_no_blob():
    index = CellIndex(Blobs())

    assert index.root == EMPTY == sha256(encode({"leaf": []})).digest()
    assert (index.count(), index.get(key(1)), list(index.walk())) == (0, None, [])


def test_the_form_of_a_node_stays_as_it_is():
    """A root that was recorded is compared with one that is computed, perhaps years later."""
    assert made([]).root.hex()[:12] == "1b39767cabae"
    assert made([1]).root.hex()[:12] == "46df3fcf024c"
    assert made(range(1000)).root.hex()[:12] == "c0752053748b"


def test_what_was_set_is_found_and_what_was_not_is_not():
    index = made(range(1000))

    assert index.count() == 1000
    assert all(index.get(key(n)) == entry(n) for n in range(1000))
    assert [index.get(key(n)) for n in range(1000, 1100)] == [None] * 100


def test_an_index_does_not_change_when_another_is_made_from_it():
    before = made(range(100))

    after = before.update([(key(5), None), (key(6), entry(7))])

    assert (before.get(key(5)), before.get(key(6)), before.count()) == (entry(5), entry(6), 100)
    assert (after.get(key(5)), after.get(key(6)), after.count()) == (None, entry(7), 99)


NUMBERS = st.integers(0, 150) | st.sampled_from(neighbours(60, 2))
STEPS = st.lists(st.lists(st.tuples(NUMBERS, st.none() | st.integers(0, 3)), max_size=80), max_size=6)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_the_root_depends_on_the_content_alone(steps):
    blobs = Blobs()
    index, content = CellIndex(blobs), dict[bytes, Entry]()
    for step in steps:
        changes = [(key(n), None if value is None else entry(value)) for n, value in step]
        index = index.update(changes)
        for changed, value in changes:
            if value is None:
                content.pop(changed, None)
            else:
                content[changed] = value

    assert index.root == CellIndex(Blobs()).update(content.items()).root == root_by_the_book(content)
    assert list(index.walk()) == sorted(content.items(), key=lambda pair: sha256(pair[0]).digest())
    assert index.count() == len(content)
    assert all(index.get(key) == value for key, value in content.items())


@settings(max_examples=50, deadline=None)
@given(st.permutations(neighbours(40, 2)))
def test_the_order_of_single_inserts_does_not_matter(order):
    index = CellIndex(Blobs())
    for n in order:
        index = index.update([(key(n), entry(n))])

    assert index.root == made(order).root


def test_the_same_changes_in_one_batch_or_in_many_give_the_same_root():
    one = made(range(500))

    many = CellIndex(Blobs())
    for n in reversed(range(500)):
        many = many.update([(key(n), entry(n))])

    assert one.root == many.root


def test_of_two_changes_of_a_key_in_one_batch_the_last_counts():
    index = CellIndex(Blobs()).update([(key(1), entry(1)), (key(2), entry(2)), (key(1), entry(3)), (key(2), None)])

    assert list(index.walk()) == [(key(1), entry(3))]


# ---- splits and merges ---------------------------------------------------------------------------------------


def nodes(index: CellIndex) -> list[dict[str, list[object]]]:
    found = reachable(index._blobs, [index.root])
    bodies = [index._blobs.get(digest) for digest in found]
    return [decode(body) for body in bodies if body is not None]


def test_a_leaf_splits_when_it_is_full_and_merges_when_one_entry_goes():
    full = made(range(LEAF_MAX))
    assert [list(node) for node in nodes(full)] == [["leaf"]]

    split = full.update([(key(LEAF_MAX), entry(LEAF_MAX))])
    assert sorted(name for node in nodes(split) for name in node)[:2] == ["branch", "leaf"]

    merged = split.update([(key(LEAF_MAX), None)])
    assert merged.root == full.root


def test_entries_with_a_long_common_path_lie_below_a_chain_of_branches_that_goes_away_with_them():
    deep = neighbours(LEAF_MAX + 1, 3)
    index = made(deep)

    branches = [node["branch"] for node in nodes(index) if "branch" in node]
    assert len(branches) >= 4
    assert [len([child for child in branch if child]) for branch in branches[:3]] == [1, 1, 1]

    assert index.update([(key(deep[0]), None)]).root == made(deep[1:]).root
    assert index.update((key(n), None) for n in deep).root == EMPTY


def test_deleting_leads_back_to_every_previous_root():
    index = CellIndex(Blobs())
    roots = [index.root]
    for n in range(300):
        index = index.update([(key(n), entry(n))])
        roots.append(index.root)

    for n in reversed(range(300)):
        assert index.root == roots.pop()
        index = index.update([(key(n), None)])

    assert index.root == EMPTY


# ---- costs ---------------------------------------------------------------------------------------------------


def test_one_change_reads_and_writes_the_nodes_of_one_path():
    blobs = Blobs()
    index = made(range(20_000), blobs)
    blobs.reads, blobs.written = 0, []

    changed = index.update([(key(77), entry(78))])

    depth = len(changed.proof(key(77)))
    assert len(blobs.written) == depth <= 5
    assert blobs.reads <= 2 * depth  # of the update, and of the proof


def test_a_change_that_changes_nothing_writes_nothing():
    blobs = Blobs()
    index = made(range(1000), blobs)
    blobs.written = []

    assert index.update([(key(5), entry(5)), (key(5000), None)]).root == index.root
    assert index.update([]).root == index.root
    assert blobs.written == []


def test_an_update_writes_no_node_that_the_index_does_not_have_in_the_end():
    blobs = Blobs()
    index = made(neighbours(LEAF_MAX + 5, 2), blobs)
    blobs.written = []

    merged = index.update((key(n), None) for n in neighbours(10, 2))

    assert merged.count() == LEAF_MAX - 5
    assert blobs.written == [merged.root]


# ---- walking in pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_pages_put_together_are_the_whole_in_the_order_of_hashes(size):
    index = made(range(500))
    pages: list[list[bytes]] = [[]]

    while page := [key for key, _ in index.walk(after=pages[-1][-1] if pages[-1] else None, limit=size)]:
        pages.append(page)

    assert [key for page in pages for key in page] == by_path(range(500))
    assert max(map(len, pages)) == min(size, 500)


def test_a_page_goes_on_after_a_key_that_is_gone():
    index = made(range(500))
    order = by_path(range(500))

    page = index.update([(order[99], None)]).walk(after=order[99], limit=3)

    assert [key for key, _ in page] == order[100:103]


def test_a_page_reads_only_its_own_part():
    blobs = Blobs()
    index = made(range(20_000), blobs)
    blobs.reads = 0

    assert len(list(index.walk(after=by_path(range(20_000))[10_000], limit=10))) == 10

    assert blobs.reads < 20


# ---- diff ----------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NUMBERS, st.integers(0, 3)), st.dictionaries(NUMBERS, st.integers(0, 3)))
def test_a_diff_is_what_differs_in_the_order_of_hashes(before, after):
    old = {key(n): entry(value) for n, value in before.items()}
    new = {key(n): entry(value) for n, value in after.items()}
    blobs = Blobs()

    found = list(diff(CellIndex(blobs).update(old.items()), CellIndex(blobs).update(new.items())))

    differing = [key for key in by_path(before.keys() | after.keys()) if old.get(key) != new.get(key)]
    assert found == [(key, old.get(key), new.get(key)) for key in differing]


def test_a_diff_reads_in_proportion_to_the_difference():
    blobs = Blobs()
    index = made(range(20_000), blobs)
    changed = index.update([(key(5), None), (key(6), entry(7)), (key(50_000), entry(1))])
    blobs.reads = 0

    assert len(list(diff(index, changed))) == 3
    assert blobs.reads <= 3 * 2 * 5

    blobs.reads = 0
    assert list(diff(changed, changed)) == []
    assert blobs.reads == 0


def test_a_diff_with_the_empty_index_is_everything():
    index = made(range(100))

    assert list(diff(CellIndex(Blobs()), index)) == [(key, None, value) for key, value in index.walk()]
    assert list(diff(index, CellIndex(Blobs()))) == [(key, value, None) for key, value in index.walk()]


# ---- proofs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 20, 5000])
def test_a_proof_shows_what_is_there_and_what_is_not(size):
    index = made(range(size))

    for n in [*range(min(size, 50)), *range(size, size + 50)]:
        proof = index.proof(key(n))
        there = entry(n) if n < size else None
        assert verify(index.root, key(n), there, proof)
        assert not verify(index.root, key(n), None if there else entry(n), proof)
        assert not verify(index.root, key(n), entry(n + 1), proof)


def test_a_forged_proof_is_refused():
    index = made(range(5000))
    proof = index.proof(key(7))
    forged_leaf = encode({"leaf": [[key(7), *entry(8)]]})
    flipped = bytes([proof[-1][0] ^ 1]) + proof[-1][1:]

    assert verify(index.root, key(7), entry(7), proof)
    assert not verify(index.root, key(7), entry(8), [*proof[:-1], forged_leaf])
    assert not verify(index.root, key(7), entry(8), [forged_leaf])
    assert not verify(index.root, key(7), entry(7), [*proof[:-1], flipped])
    assert not verify(made([1]).root, key(7), entry(7), proof)


def test_a_proof_that_is_too_short_too_long_or_of_another_key_is_refused():
    index = made(range(5000))
    proof = index.proof(key(7))

    assert not verify(index.root, key(7), None, [])
    assert not verify(index.root, key(7), None, proof[:-1])
    assert not verify(index.root, key(7), entry(7), [*proof, proof[-1]])
    assert not verify(index.root, key(8), None, proof)
    one = made([1])
    assert not verify(one.root, key(1), entry(1), one.proof(key(1)) * 2)


def test_bytes_that_are_no_node_prove_nothing():
    entries = [7, [7], [[]], [[1, 2, 3, 4]], [["key", b"state", 1, 1]], [[b"key", b"state", 1]], "text", {"a": 1}]
    children = [[], [7] * 16, [[]] * 16, [["digest", 1]] * 16, [[1, 1]] * 16, "sixteen letters.", None]
    bodies = [encode({"leaf": rows}) for rows in entries] + [encode({"branch": rows}) for rows in children]

    for body in [b"", b"rubbish", encode([]), encode({"pc": "idle"}), *bodies]:
        assert not verify(sha256(body).digest(), key(1), None, [body])


# ---- what is reachable ---------------------------------------------------------------------------------------


def test_all_nodes_and_states_of_the_given_roots_are_reachable_and_nothing_else():
    blobs = Blobs()
    first = made(range(300), blobs)
    second = first.update([(key(0), entry(1000))])
    other = made(range(2000, 2100), blobs)

    found = set(reachable(blobs, [first.root, second.root, EMPTY]))

    states = {entry(n).state for n in [*range(300), 1000]}
    assert states <= found
    assert found - states == set(blobs.bodies) - set(reachable(blobs, [other.root]))


def test_what_two_roots_share_is_read_once():
    blobs = Blobs()
    first = made(range(20_000), blobs)
    second = first.update([(key(0), entry(1))])
    nodes = len(blobs.bodies)
    blobs.reads = 0

    list(reachable(blobs, [first.root, second.root]))

    assert blobs.reads == nodes


def test_a_state_that_looks_like_a_node_hides_nothing():
    """The bytes of a state are the author's. If they were taken for the node, what is below it would be freed."""
    blobs = Blobs()
    inner = made(range(300), blobs)
    outer = CellIndex(blobs).update([(key(1), Entry(inner.root, 1, 1))])

    found = set(reachable(blobs, [inner.root, outer.root]))

    assert set(reachable(blobs, [inner.root])) <= found


# ---- damage --------------------------------------------------------------------------------------------------


def test_a_missing_node_is_corruption_that_names_its_hash():
    blobs = Blobs()
    index = made(range(5000), blobs)
    lost = sha256(index.proof(key(7))[-1]).digest()
    del blobs.bodies[lost]

    for attempt in (
        lambda: index.get(key(7)),
        lambda: index.proof(key(7)),
        lambda: index.update([(key(7), None)]),
        lambda: list(index.walk()),
        lambda: list(reachable(blobs, [index.root])),
        lambda: list(diff(CellIndex(blobs), index)),
    ):
        with pytest.raises(Corrupt, match=f"no index node sha256:{lost.hex()}"):
            attempt()
    assert index.get(key(8)) == entry(8)


def test_a_missing_root_is_corruption():
    with pytest.raises(Corrupt, match="no index node"):
        CellIndex(Blobs(), made(range(3)).root).get(key(1))


def test_a_node_with_a_flipped_byte_is_refused():
    blobs = Blobs()
    index = made(range(5000), blobs)
    for body in index.proof(key(7)):
        digest = sha256(body).digest()
        for place in (0, len(body) // 2, len(body) - 1):
            blobs.bodies[digest] = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            with pytest.raises(Corrupt, match=digest.hex()):
                index.get(key(7))
        blobs.bodies[digest] = body


def test_a_blob_that_is_no_node_is_no_root():
    blobs = Blobs()
    state = blobs.put(encode({"pc": "idle"}))

    with pytest.raises(Corrupt, match=f"sha256:{state.hex()} is not a node of an index"):
        CellIndex(blobs, state).get(key(1))
