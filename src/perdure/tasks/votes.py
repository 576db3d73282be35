"""Votes: whether the people who voted on a task have decided it. Pure functions of the votes and the quorum."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from .model import Quorum

NO_QUORUM: Final = "no-quorum"
"""The outcome of a task that no vote can decide any more."""


class Vote(msgspec.Struct, frozen=True):
    by: str
    outcome: str
    answer: Any
    at: Any  # a datetime


def decided(votes: Sequence[Vote], quorum: Quorum, outcomes: Iterable[str] | None) -> str | None:
    """The outcome that the votes decide for; None: not decided yet. `outcomes`: those that there can be, None: any."""
    count = Counter(vote.outcome for vote in votes)
    for outcome in dict.fromkeys(vote.outcome for vote in reversed(votes)):  # the newest vote decides first
        if count[outcome] >= threshold(quorum, outcome):
            return outcome
    if quorum.of is None:
        return None
    left = max(0, quorum.of - len(votes))
    possible = {*count, *outcomes} if outcomes is not None else {*count, *quorum.veto, ""}  # "": one without a vote yet
    if any(count[outcome] + left >= threshold(quorum, outcome) for outcome in possible):
        return None
    return NO_QUORUM


def threshold(quorum: Quorum, outcome: str) -> int:
    """How many votes decide for an outcome."""
    return min(quorum.needed, quorum.veto.get(outcome, quorum.needed))
