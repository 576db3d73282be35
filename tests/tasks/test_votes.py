"""Quorum: when the people who voted on a task have decided it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import BadCall
from perdure.tasks.model import Quorum
from perdure.tasks.votes import NO_QUORUM, Vote, decided

AT = datetime(2026, 1, 1, tzinfo=UTC)
YES_NO = ("approve", "reject")


def votes(text: str) -> list[Vote]:
    """`a` approves, `r` rejects, each by another person."""
    words = {"a": "approve", "r": "reject"}
    return [Vote(f"p{place}", words[letter], None, AT) for place, letter in enumerate(text)]


@pytest.mark.parametrize(
    ("quorum", "given", "expected"),
    [
        (Quorum(2), "a", None),
        (Quorum(2), "ar", None),
        (Quorum(2), "ara", "approve"),
        (Quorum(2, veto={"reject": 1}), "ar", "reject"),
        (Quorum(1, veto={"reject": 3}), "r", "reject"),
        (Quorum("majority", of=4), "aa", None),
        (Quorum("majority", of=4), "aaa", "approve"),
        (Quorum("majority", of=4), "aar", None),
        (Quorum("majority", of=4), "aarr", NO_QUORUM),
        (Quorum("all", of=3), "aa", None),
        (Quorum("all", of=3), "aaa", "approve"),
        (Quorum("all", of=3), "ar", NO_QUORUM),
        (Quorum("all", of=3, veto={"reject": 1}), "aar", "reject"),
        (Quorum(3, of=3), "ar", NO_QUORUM),
    ],
)
def test_what_votes_decide(quorum: Quorum, given: str, expected: str | None):
    assert decided(votes(given), quorum, YES_NO) == expected


def test_an_outcome_that_no_vote_has_yet_may_still_decide():
    assert decided(votes("ar"), Quorum(2, of=4), None) is None
    assert decided(votes("ar"), Quorum(2, of=3), ("approve", "reject", "later")) is None


@given(st.integers(1, 7), st.data())
def test_a_quorum_of_known_size_is_decided_by_the_last_vote_at_the_latest(of: int, data: st.DataObject):
    need: Any = data.draw(st.one_of(st.integers(1, of), st.sampled_from(["majority", "all"])))
    given = data.draw(st.text("ar", min_size=of, max_size=of))
    verdicts = [decided(votes(given[:count]), Quorum(need, of=of), YES_NO) for count in range(of + 1)]

    assert verdicts[0] is None
    assert verdicts[-1] is not None
    if NO_QUORUM in verdicts:  # it is said as soon as it is certain, and never taken back
        first = verdicts.index(NO_QUORUM)
        assert verdicts[:first] == [None] * first and set(verdicts[first:]) == {NO_QUORUM}


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Quorum(0),
        lambda: Quorum(True),
        lambda: Quorum("most", of=3),  # type: ignore[arg-type]
        lambda: Quorum("majority"),
        lambda: Quorum(4, of=3),
        lambda: Quorum(1, of=0),
        lambda: Quorum(1, of=3, veto={"reject": 0}),
        lambda: Quorum(1, of=3, veto={"reject": 4}),
        lambda: Quorum(1, veto=["reject"]),  # type: ignore[arg-type]
    ],
)
def test_a_quorum_that_cannot_be_is_refused(bad):
    with pytest.raises(BadCall, match="quorum"):
        bad()
