"""The bracket of a tournament: single elimination among entrants in declared order.

Neighbours meet. An odd last one has a bye and stands last in the next round.
"""

from __future__ import annotations

import msgspec


class Meeting(msgspec.Struct, array_like=True):
    """One match of a round. `winner` is empty until its judge has said so."""

    left: str
    right: str
    winner: str = ""


class Round(msgspec.Struct, array_like=True):
    meetings: list[Meeting]
    bye: str = ""

    @property
    def decided(self) -> bool:
        return all(meeting.winner for meeting in self.meetings)


def first_round(names: list[str]) -> Round:
    pairs = [Meeting(left, right) for left, right in zip(names[::2], names[1::2], strict=False)]
    return Round(pairs, names[-1] if len(names) % 2 else "")


def next_round(done: Round) -> Round:
    """The round after one that is decided."""
    winners = [meeting.winner for meeting in done.meetings]
    return first_round([*winners, done.bye] if done.bye else winners)


def champion(last: Round) -> str:
    """The name of the winner; empty: there is another round."""
    if not last.decided:
        return ""
    if len(last.meetings) + bool(last.bye) > 1:
        return ""
    return last.bye or last.meetings[0].winner
