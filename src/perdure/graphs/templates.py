"""Shapes of graphs that come again and again, as lists of nodes: for `graph.add(*...)`, `node.submit(...)`, a start.

graph.add(*fanout_synthesize({"facts": "What is known?", "doubts": "What is doubted?"}, "Write the report"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Nodes = list[dict[str, Any]]


def fanout_synthesize(goals: Mapping[str, str], synthesis: str, *, name: str = "synthesize") -> Nodes:
    """A node for each goal, side by side, then one that makes one thing of what they found."""
    nodes: Nodes = [{"name": each, "goal": goal, "role": "explore"} for each, goal in goals.items()]
    last = {"name": name, "goal": synthesis, "role": "plan", "after": list(goals), "needs": "all_terminal"}
    return [*nodes, last]


def generate_and_filter(goal: str, filter: str, *, count: int = 3, name: str = "candidate") -> Nodes:
    """The same thing `count` times, then one that keeps what is good."""
    names = [f"{name}-{number}" for number in range(1, max(1, count) + 1)]
    nodes: Nodes = [{"name": each, "goal": goal} for each in names]
    return [*nodes, {"name": "filter", "goal": filter, "role": "verify", "after": names, "needs": "all_terminal"}]


def verify_rules(subject: str, rules: Sequence[str], *, after: Sequence[str] = ()) -> Nodes:
    """A verifier for each rule, and a skeptic who looks for what no rule names. Without rules the skeptic is alone."""
    nodes: Nodes = [
        {
            "name": f"rule-{number}",
            "role": "verify",
            "goal": f"{subject}\nDoes it keep this rule: {rule}",
            "after": list(after),
        }
        for number, rule in enumerate(rules, 1)
    ]
    skeptic = f"{subject}\nLook for what is wrong with it that nobody has asked about."
    nodes.append({"name": "skeptic", "role": "verify", "goal": skeptic, "after": list(after)})
    names = [node["name"] for node in nodes]
    return [
        *nodes,
        {"name": "verdicts", "kind": "reduce", "reducer": "collect", "after": names, "needs": "all_terminal"},
    ]


def gen_eval(goal: str, evaluation: str, *, iterations: int = 3) -> Nodes:
    """A loop that improves what it made before, one iteration at least, then one that judges the last."""
    improve = {
        "name": "generate",
        "kind": "loop",
        "goal": f"{goal}\nIt is judged by this: {evaluation}\nImprove what you made before; say so when it is good.",
        "max_iters": max(1, iterations),
    }
    judge = {"name": "evaluate", "role": "verify", "goal": evaluation, "after": ["generate"], "needs": "accept_partial"}
    return [improve, judge]
