"""Whether a graph decides now what it decided then, and in words, where it does not.

What a decision opens, withdraws, ends and results in must be the same. Texts may change: goals, reasons and notes.
"""

from __future__ import annotations

from itertools import zip_longest

from perdure.kernel.decision import Decision
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import attempt_of

ENDED = "graph/ended@1"


def differs(recorded: Decision, current: Decision) -> bool:
    if len(recorded.open) != len(current.open) or recorded.withdraw != current.withdraw:
        return True
    if _result(recorded) != _result(current) or _changed_ends(recorded, current):
        return True
    return any(
        type(then) is not type(now) or then.location != now.location or attempt_of(then) != attempt_of(now)
        for then, now in zip(recorded.open, current.open, strict=True)
    )


def explain(difference: Difference) -> Explanation:
    recorded, current = difference.recorded, difference.current
    pairs = zip_longest(
        [each.location for each in recorded.open], [each.location for each in current.open], fillvalue=""
    )
    was, now = next(((a, b) for a, b in pairs if a != b), ("", ""))
    advice = "give the changed graph another version, and keep this one"
    if was or now:
        told = f"the graph opened {was or 'nothing'} then and opens {now or 'nothing'} now"
        return Explanation(source=(now or was).partition("/")[0], advice=f"{told}: {advice}")
    for name, then, end in _changed_ends(recorded, current):
        told = f"the node {name} {then or 'had not ended'} then, and {end or 'does not end'} now"
        return Explanation(then or "nothing more", end or "nothing more", name, name, f"{told}: {advice}")
    return Explanation(advice=f"the result of the graph is another one now: {advice}")


def _result(decision: Decision) -> object:
    outcome = decision.outcome
    return None if outcome is None else (outcome.status, outcome.value)


def _changed_ends(recorded: Decision, current: Decision) -> list[tuple[str, str, str]]:
    """Nodes that end otherwise, with the end of then and of now."""
    if recorded.announce == current.announce:
        return []
    then, now = _ends(recorded), _ends(current)
    found = []
    for name in dict.fromkeys([*then, *now]):
        (was, value_then), (is_now, value_now) = then.get(name, ("", "")), now.get(name, ("", ""))
        if was == is_now and value_then and value_now and value_then != value_now:
            found.append((name, f"{was} with {value_then}", f"{is_now} with {value_now}"))
        elif was != is_now:
            found.append((name, was, is_now))
    return found


def _ends(decision: Decision) -> dict[str, tuple[str, str]]:
    """The outcome of each node that ended, and of a reduce, whose value no receipt brings, what that begins with."""
    facts = [fact.value for fact in decision.announce if fact.name == ENDED]
    return {each["node"]: (each["outcome"], each.get("value", "")) for fact in facts for each in fact["nodes"]}
