"""Random graphs, random growth, random answers, crashes in between: every node ends once and nothing hangs."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from perdure.graphs import Denied, Graph, Limits, Partial, Permit, Result, tool
from perdure.kernel.effects import Child, Timer
from perdure.kernel.loops import Break
from perdure.kernel.receipt import Failure, Receipt

from .rig import Rig

ROUNDS = int(os.environ.get("GRAPHS", "300"))
"""How many graphs. 100,000 were run when this was written; a change of the machine should run as many."""

POLICIES = ("all_success", "accept_partial", "any_success", "all_terminal", "optional")


@tool
async def look(what: int) -> int:
    return what


@tool(writes=True, retries=1)
async def change(what: int) -> int:
    if what % 3 == 0:
        raise ValueError(f"no {what}")
    return what


def drawn_nodes(dice: random.Random, prefix: str, most: int, existing: list[str]) -> list[dict[str, Any]]:
    """Nodes in a random order of names, each after some of the earlier ones, or of those that exist."""
    nodes: list[dict[str, Any]] = []
    names: list[str] = []
    for number in range(dice.randint(1, most)):
        name = f"{prefix}{number}"
        pool = [*names, *existing]
        after = dice.sample(pool, min(len(pool), dice.randint(0, 3)))
        node: dict[str, Any] = {"name": name, "goal": str(dice.randint(0, 9)), "after": after}
        if after and dice.random() < 0.5:
            node["needs"] = {each: dice.choice(POLICIES) for each in after}
        match dice.randint(0, 9):
            case 0:
                node |= {"kind": "loop", "max_iters": dice.randint(1, 3)}
            case 1:
                node |= {"kind": "tournament", "entrants": {f"e{i}": "" for i in range(dice.randint(2, 5))}}
            case 2 if after:
                node |= {"kind": "reduce", "reducer": dice.choice(("count", "collect", "concat"))}
            case 3:
                node |= {"kind": "child", "workflow": "other"}
            case 4 if len(names) > 1:
                node |= {"retries": 1}
            case 5:
                node |= {"approve": "before"}
            case 6:
                node |= {"trust": "quarantined", "isolation": "read_only"}
            case _:
                pass
        nodes.append(node)
        names.append(name)
    if dice.random() < 0.3 and len(nodes) > 2:
        later = [each["name"] for each in nodes[1:] if nodes[0]["name"] in each["after"]]
        if later and "kind" not in nodes[0]:
            half = len(later) // 2
            nodes[0] |= {"kind": "classify", "branches": {"x": later[:half], "y": later[half:]}, "default": "x"}
    dice.shuffle(nodes)
    return nodes


def runner_of(seed: int):
    async def runner(node):
        dice = random.Random(f"{seed} {node.name} {node.iteration}")
        if node.match is not None:
            return dice.choice(("left", "right", "right", "neither"))
        for _ in range(dice.randint(0, 3)):
            try:
                await asked(node, dice)
            except Denied as denied:
                assert denied.note
                if dice.random() < 0.1:
                    raise
        match dice.randint(0, 11):
            case 0:
                raise ValueError("it does not work")
            case 1:
                return Partial("half", "no more time")
            case 2:
                return Break("done")
            case _:
                return dice.choice(("x", "y", "text"))

    return runner


async def asked(node, dice):
    match dice.randint(0, 5):
        case 0:
            names = await node.submit(drawn_nodes(dice, f"s{dice.randint(0, 99)}x", 3, list(node.inputs)[:0]))
            if dice.random() < 0.5:
                found = await node.results(names)
                assert all(isinstance(each, Result) for each in found.values())
        case 1:
            await node.use("look", what=dice.randint(0, 9))
        case 2:
            try:
                await node.use("change", what=dice.randint(0, 9))
            except Denied:
                raise
            except Exception as error:
                assert type(error).__name__ in ("StepFailed", "OutcomeUnknown")
        case 3:
            await node.step("think", lambda: 7, reserve={"tokens": 3}, usage={"tokens": 2})
        case 4:
            await node.results(["n0"])
        case _:
            await node.use("nothing")


def drawn(seed: int) -> Graph:
    dice = random.Random(seed)
    limits = Limits(
        running=dice.choice((None, 1, 2, 3)),
        nodes=dice.choice((None, 60)),
        depth=dice.choice((2, 1)),
        tokens=dice.choice((None, 10)),
        calls=dice.choice((None, 8)),
    )
    permits = [Permit("change", "ask", where={"what": {"min": 5}}, within=9.0)] if dice.random() < 0.5 else []
    graph = Graph(
        "g", runner=runner_of(seed), tools=[look, change], limits=limits, permits=permits, roles=["r"], rest_after=3
    )
    graph.add(*drawn_nodes(dice, "n", 8, []))
    return graph


def others(rig: Rig, dice: random.Random) -> None:
    """People, children and time do something."""
    answers = [id for id, effect in rig.open.items() if isinstance(effect, Child)]
    if answers and dice.random() < 0.8:
        id = dice.choice(answers)
        effect = rig.open[id]
        assert isinstance(effect, Child)
        if effect.workflow == "other":
            ok = dice.random() < 0.7
            rig._receipt(id, Receipt("ok") if ok else Receipt("error", error=Failure("Broken", "it is")))
        elif dice.random() < 0.8:
            rig.say(id, dice.choice(("approve", "deny")))
        else:
            rig.expire(id)
    elif any(isinstance(effect, Timer) for effect in rig.open.values()):
        rig.fire(dice.choice((1, 5)))


def ended(rig: Rig) -> bool:
    return rig.outcome is not None


def live_through(seed: int) -> Rig:
    dice = random.Random(seed * 31)
    rig = Rig(drawn(seed), rebuild=dice.random() < 0.3)
    for _ in range(5000):
        if rig.outcome is not None:
            break
        rig.run(dice, steps=dice.randint(1, 6))
        if not ended(rig) and dice.random() < 0.05:
            rig.crash()
        if not ended(rig) and not rig.hands:
            others(rig, dice)
    return rig


@pytest.mark.parametrize("part", range(4))
def test_every_node_of_a_random_graph_ends_once(part):
    for seed in range(part, ROUNDS, 4):
        rig = live_through(seed)
        assert rig.outcome is not None, f"seed {seed} hangs: {rig.outcomes()}"
        ended = [each["node"] for each in rig.facts("ended")]
        assert sorted(ended) == sorted(rig.state.nodes), f"seed {seed}"
        limit = rig.graph.model.limits.running
        assert limit is None or rig.most <= limit, f"seed {seed}"
        assert rig.state.running == rig.state.open_runs == 0, f"seed {seed}"
        assert not {axis for axis, amount in rig.state.reserved.items() if amount}, f"seed {seed}"
        rig.replayed()
