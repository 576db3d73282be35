"""The table of statuses, spelled out a second time: whoever changes one must mean it."""

import pytest

from perdure.kernel.status import FINAL, LEGAL, Status, change

TABLE = """
            running waiting stuck completed failed cancelled
running     yes     yes     yes   yes       yes    yes
waiting     yes     yes     yes   yes       yes    yes
stuck       yes     yes     yes   yes       yes    yes
completed   -       -       -     -         -      -
failed      yes     yes     yes   yes       -      -
cancelled   -       -       -     -         -      -
"""

COLUMNS, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
PAIRS = [(row[0], after, cell == "yes") for row in ROWS for after, cell in zip(COLUMNS, row[1:], strict=True)]


def test_the_table_of_legal_changes_is_this_one():
    expected = {(before, after) for before, after, legal in PAIRS if legal}

    assert {(before.value, after.value) for before, afters in LEGAL.items() for after in afters} == expected


def test_every_status_has_a_row_and_the_final_ones_lead_nowhere():
    assert set(LEGAL) == set(Status)
    assert {status for status, afters in LEGAL.items() if not afters} == FINAL


@pytest.mark.parametrize(("before", "after", "legal"), PAIRS)
def test_a_change_is_made_or_refused_as_the_table_says(before, after, legal):
    if legal:
        assert change(Status(before), Status(after)) is Status(after)
    else:
        with pytest.raises(ValueError, match=f"no instance goes from {before} to {after}"):
            change(Status(before), Status(after))
