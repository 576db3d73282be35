"""The run queue: who opens, in which order, and how many at once."""

from __future__ import annotations

import pytest

from perdure.graphs import Graph, Limits
from perdure.graphs.model import NodeSpec
from perdure.graphs.ready import measure
from perdure.graphs.state import NodeState, State
from perdure.kernel.receipt import Receipt

from .rig import Rig, echo, run


def sides(count: int, **options) -> Graph:
    graph = Graph("wide", runner=echo, **options)
    for number in range(count):
        graph.node(f"n{number}", goal=str(number))
    return graph


def test_a_dependent_of_the_fast_node_starts_while_its_slow_sibling_runs():
    graph = Graph("skew", runner=echo)
    graph.node("slow", goal="s")
    graph.node("fast", goal="f")
    graph.node("after_fast", goal="a", after=["fast"])
    rig = Rig(graph)
    slow, fast = rig.open

    rig._begin(fast)

    assert rig.opened() == ["slow", "fast", "after_fast"]
    assert slow in rig.open


def test_fan_outs_and_chains_open_in_declared_order():
    graph = Graph("order", runner=echo)
    graph.node("root", goal="r")
    for name in ("c", "a", "b"):
        graph.node(name, goal=name, after=["root"])
        graph.node(f"{name}2", goal=name, after=[name])

    assert run(graph).opened() == ["root", "c", "a", "b", "c2", "a2", "b2"]


def test_higher_priorities_open_first():
    graph = Graph("urgent", runner=echo, limits=Limits(running=1))
    for name, priority in (("a", 0), ("b", 5), ("c", 9), ("d", 5)):
        graph.node(name, goal=name, priority=priority)

    assert run(graph).opened() == ["c", "b", "d", "a"]


def test_two_places_never_run_three_nodes():
    rig = run(sides(9, limits=Limits(running=2)))

    assert rig.most == 2
    assert rig.outcome.status == "completed"


def test_a_freed_place_opens_the_next_node_in_that_entry():
    rig = Rig(sides(3, limits=Limits(running=1)))
    first = next(iter(rig.open))

    rig._begin(first)

    _, _, decision = rig.journal[-1]
    assert [effect.location for effect in decision.open] == ["n1"]


def test_the_fact_of_an_opening_has_each_field_that_is_not_as_usual():
    graph = Graph("g", runner=echo)
    graph.node("a", role="verify", goal="x", retries=2, timeout=9, labels={"k": "v"}, limits=Limits(tokens=5))

    [told] = run(graph).facts("opened")

    assert told["retries"] == 2
    assert told["timeout"] == 9
    assert told["labels"] == {"k": "v"}
    assert told["limits"] == {"tokens": 5}
    assert (told["isolation"], told["context"]) == ("read_only", "none")
    assert "priority" not in told


@pytest.mark.parametrize("rebuild", [False, True])
def test_the_critical_path_goes_first(rebuild):
    """Given one place and two sides, when the longer one is declared last, then it is opened first."""
    graph = Graph("g", runner=echo, limits=Limits(running=1), order="critical")
    graph.node("short")
    graph.node("urgent", priority=1)
    graph.node("one")
    graph.node("two", after=["one"])
    graph.node("three", after=["two"])
    graph.node("pair")
    graph.node("end", after=["pair"])

    rig = Rig(graph, rebuild=rebuild).run()

    assert rig.ran == ["urgent", "one", "pair", "two", "short", "end", "three"]


def test_submitted_nodes_have_their_place_on_the_critical_path():
    async def runner(node):
        if node.name == "plan":
            chain = [{"name": "z", "after": ["y"]}, {"name": "x"}, {"name": "y"}]
            await node.submit([*chain, {"name": "last", "after": ["late"]}])

    graph = Graph("g", runner=runner, limits=Limits(running=1), order="critical")
    graph.node("plan", priority=1)
    graph.node("early", after=["plan"])
    graph.node("late", after=["plan"])

    assert run(graph).ran == ["plan", "plan/y", "late", "plan/x", "early", "plan/z", "plan/last"]


def test_appending_costs_its_own_edges_alone():
    """Given a chain that waits, when nodes are added to its end one by one, then no node before the last is touched."""
    state = State()
    for number in range(3):
        after = ((f"n{number - 1}",) * 2,) if number else ()
        state.nodes[f"n{number}"] = NodeState(f"n{number}", number, NodeSpec(f"n{number}", after=after))
        measure(state, [state.nodes[f"n{number}"]])

    assert [node.height for node in state.nodes.values()] == [1, 1, 0]


def test_zero_places_deny_and_the_instance_ends():
    rig = run(sides(3, limits=Limits(running=0)))

    assert set(rig.outcomes().values()) == {"failed(denied)"}
    assert rig.outcome.status == "failed"


def test_a_loop_of_100_delays_a_peer_by_one_iteration():
    graph = Graph("fair", runner=echo, limits=Limits(running=1))
    graph.loop("long", goal="x", max_iters=100)
    graph.node("peer", goal="p")

    assert run(graph).ran[:3] == ["long/~0", "peer", "long/~1"]


def test_20_000_ready_nodes_open_in_slices():
    rig = Rig(sides(20_000))
    assert len(rig.open) == 1001, "a thousand runs, and the timer of the next slice"

    rig.fire(0)

    assert len(rig.open) == 20_000
    assert max(len(decision.open) for _, _, decision in rig.journal) <= 1001


def test_the_end_is_told_once_and_names_every_node():
    rig = run(sides(3))

    assert rig.facts("finished") == [{"completed": ["n0", "n1", "n2"]}]
    assert len(rig.facts("ended")) == 3


def test_an_unknown_outcome_fails_the_node():
    rig = Rig(sides(1))
    rig._receipt(next(iter(rig.open)), Receipt("unknown"))

    assert rig.outcomes() == {"n0": "failed(unknown)"}


def test_a_once_node_is_delivered_once():
    graph = Graph("once", runner=echo)
    graph.node("a", once=True)
    graph.node("b")

    assert [effect.deliveries_max for effect in Rig(graph).open.values()] == [1, 4]  # type: ignore[union-attr]
