"""The decoded entries of one instance, for tests that look at a journal as it is."""

from collections.abc import Iterable

from perdure.kernel.batch import JournalRow
from perdure.kernel.entry import Entry, decode
from perdure.kernel.location import Patterns


def entries_of(rows: Iterable[JournalRow]) -> list[Entry]:
    """`rows` from the first one on: each entry may name patterns that later ones use."""
    patterns = Patterns()
    return [decode(row.seq, row.instance, row.at, row.body, patterns) for row in rows]
