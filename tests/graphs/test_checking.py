"""Checking: every problem at once, each with its place; code and data are one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure.graphs import BadGraph, Graph, Limits, Permit, tool
from perdure.kernel.backoff import Backoff

from .rig import echo


@tool(writes=True)
async def publish(text: str) -> str:
    """Put the page online."""
    return text


def problems(*nodes: dict[str, Any], **options) -> list[str]:
    graph = Graph("g", runner=echo, tools=[publish], **options)
    graph.add(*nodes)
    return [str(each) for each in graph.problems]


def only(*nodes: dict[str, Any], **options) -> str:
    found = problems(*nodes, **options)
    assert len(found) == 1, found
    return found[0]


def test_all_problems_come_at_once():
    graph = Graph("g", runner=echo, outputs=["nobody"])
    graph.node("Bad Name")
    graph.node("a", rolle="plan")
    graph.node("b", after=["c"])
    with pytest.raises(BadGraph) as error:
        _ = graph.model
    assert len(error.value.problems) == 4
    assert "did you mean 'role'?" in str(error.value)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([{"name": "use"}], "this name is taken"),
        ([{"name": "a"}, {"name": "a"}], "another node of this name"),
        ([{"name": "9"}], "a name is a to z"),
        ([{"name": "a" * 65}], "a name is a to z"),
        ([{"goal": "x"}], "found None"),
        ([{"name": "a", "kind": "loup"}], "did you mean 'loop'?"),
        ([{"name": "a", "role": "planner"}], "role is one of explore"),
        ([{"name": "a"}, {"name": "b", "after": ["a"], "needs": "all_succes"}], "did you mean 'all_success'?"),
        ([{"name": "a"}, {"name": "b", "after": ["a"], "needs": {"x": "optional"}}], "which is not in after"),
        ([{"name": "a", "runner": "x"}], "unknown runner 'x'"),
        ([{"name": "a", "tools": ["publsh"]}], "did you mean 'publish'?"),
        ([{"name": "b"}, {"name": "a", "kind": "reduce", "reducer": "concatt", "after": ["b"]}], "mean 'concat'?"),
        ([{"name": "a", "output": "string"}], "unknown output type"),
        ([{"name": "a", "output": 3}], "expected the name of the output type, found 3"),
        ([{"name": "a", "output": [str]}], "expected the name of the output type"),
        ([{"name": "a", "limits": {"tokns": 1}}], "did you mean 'tokens'?"),
        ([{"name": "a", "approve": "before"}], "no role may answer"),
        ([{"name": "a", "after": ["b"]}], "there is no such node"),
        ([{"name": "a", "after": ["a"]}], "names the node itself"),
        ([{"name": "a", "needs": "any_succes"}], "needs has the unknown policy 'any_succes'"),
        ([{"name": "a", "kind": "loop", "max_iters": 0}], "max_iters is a whole number of at least 1"),
        ([{"name": "a", "kind": "loop"}], "a loop needs max_iters="),
        ([{"name": "a", "kind": "tournament", "entrants": {"x": ""}}], "2 entrants at least"),
        ([{"name": "a", "kind": "reduce", "reducer": "count"}], "a reduce needs after="),
        ([{"name": "a", "kind": "classify", "branches": {"x": ["b"]}}], "names 'b', and there is no such node"),
        ([{"name": "a", "kind": "classify", "branches": {"x": ["a"]}}], "the classifier itself"),
        ([{"name": "a", "kind": "classify", "branches": {"x": ["b"]}}, {"name": "b"}], "does not come after it"),
        (
            [
                {"name": "a", "kind": "classify", "branches": {"x": ["b"]}, "default": "y"},
                {"name": "b", "after": ["a"]},
            ],
            "default is 'y'",
        ),
        ([{"name": "a", "limits": {"tokens": -1}}], "not negative"),
        ([{"name": "a", "limits": {"running": 1}}], "running is a limit of the graph"),
        ([{"name": "a", "isolation": "remote"}], "needs queue="),
        ([{"name": "a", "trust": "quarantined"}], "read_only"),
        ([{"name": "a", "goal": "${inputs.b}"}], "names no dependency"),
        ([{"name": "a", "goal": "${now}"}], "is no reference"),
        ([{"name": "a", "goal": "${input"}], "is no reference"),
        ([{"name": "a", "timeout": 0}], "seconds, more than 0"),
        ([{"name": "a", "retries": -1}], "retries is a whole number"),
        ([{"name": "a", "labels": {"x": 1}}], "texts by name"),
        (["a"], "expected a node"),
    ],
)
def test_each_wrong_thing_is_told(nodes, text):
    assert text in only(*nodes)


def test_no_nodes_is_a_problem():
    assert "needs a node" in only()


def test_a_cycle_is_printed():
    text = only({"name": "a", "after": ["c"]}, {"name": "b", "after": ["a"]}, {"name": "c", "after": ["b"]})
    assert "a -> b -> c -> a" in text or "b -> c -> a -> b" in text or "c -> a -> b -> c" in text


def test_a_name_twice_in_one_after_counts_once():
    graph = Graph("g", runner=echo)
    graph.node("a")
    graph.node("b", after=["a", "a"])
    assert graph.model.nodes[1].after == (("a", "a"),)


def test_options_of_the_graph_are_checked_too():
    assert "not negative" in only({"name": "a"}, limits={"running": -1})
    assert "ask for publish" in only({"name": "a"}, permits=[Permit("publish", "ask")])
    assert "did you mean 'deny'?" in only({"name": "a"}, permits=[Permit("publish", "denny")])  # type: ignore[arg-type]
    assert "did you mean 'text'?" in only({"name": "a"}, permits=[Permit("publish", "deny", where={"txt": {"max": 1}})])
    assert "unknown condition" in only({"name": "a"}, permits=[Permit("**", "deny", where={"x": {"above": 1}})])
    assert "regular expression" in only({"name": "a"}, permits=[Permit("**", "deny", where={"x": {"matches": "("}})])
    assert "is no node" in only({"name": "a"}, outputs=["b"])
    assert "the graph has 2" in only({"name": "a"}, {"name": "b"}, limits=Limits(nodes=1))


def test_a_graph_without_a_runner_is_told():
    graph = Graph("g")
    graph.node("a")
    assert "has no runner=" in str(graph.problems[0])


@dataclass
class Page:
    title: str
    words: int


@pytest.mark.parametrize(
    "rate", [{"publish": 5}, {"publish": (0, 1)}, {"publish": (1, 0)}, {"publish": (1.5, 1)}, {1: (1, 1)}, [1]]
)
def test_a_rate_is_a_number_of_calls_and_seconds(rate):
    graph = Graph("g", runner=echo, tools=[publish], rate=rate)
    graph.node("a")

    assert [each.where for each in graph.problems] == ["rate"]


def test_code_and_data_give_one_hash():
    code = Graph("g", runner=echo, tools=[publish], limits=Limits(running=2), permits=[Permit("publish", "allow")])
    first = code.node("a", role="plan", goal="x", output=Page)
    code.loop("b", after=[first], max_iters=3, timeout=5, limits=Limits(tokens=10))
    data = Graph(
        "g", runner=echo, tools=[publish], limits={"running": 2}, permits=[{"glob": "publish", "verdict": "allow"}]
    )
    data.add({"name": "a", "role": "plan", "goal": "x", "output": Page})
    data.add({"name": "b", "kind": "loop", "after": ["a"], "max_iters": 3, "timeout": 5.0, "limits": {"tokens": 10}})

    assert code.model == data.model
    assert code.model.hash == data.model.hash
    other = Graph("g", runner=echo)
    other.node("a")
    assert other.model.hash != code.model.hash


@pytest.mark.parametrize(
    "usual",
    [
        {"role": "".join(["cus", "tom"]), "trust": "".join(["trust", "ed"]), "approve": None},
        {"limits": None, "backoff": Backoff(), "labels": {}, "output": None},
        {"limits": Limits(), "tools": None, "needs": "all_success", "timeout": None},
    ],
)
def test_a_field_that_is_given_as_it_is_by_default_leaves_the_hash_as_it_is(usual):
    """Given the same node with and without its defaults, as a file has them, then both graphs have one hash."""
    short, long = Graph("g", runner=echo), Graph("g", runner=echo, limits=Limits(), version="".join(["1"]))
    short.node("a")
    long.add({"name": "a", **usual})

    assert long.model.hash == short.model.hash


def test_a_role_sets_isolation_and_context_and_a_given_field_beats_it():
    graph = Graph("g", runner=echo)
    for role in ("explore", "verify", "plan", "implement", "custom"):
        graph.node(role, role=role)
    graph.node("mine", role="verify", context="full")
    found = {spec.name: (spec.isolation, spec.context) for spec in graph.model.nodes}
    assert found == {
        "explore": ("read_only", "system_only"),
        "verify": ("read_only", "none"),
        "plan": ("shared", "full"),
        "implement": ("worktree", "full"),
        "custom": ("shared", "none"),
        "mine": ("read_only", "full"),
    }


def test_warnings_name_what_is_seldom_meant():
    graph = Graph("g", runner=echo, tools=[publish], veto=["publsh"])
    graph.node("v", role="verify", context="full")
    texts = [str(each) for each in graph.warnings]
    assert len(texts) == 4
    assert "publish" in texts[1]
    assert texts[2] == "veto: 'publsh' fits no tool of the graph; did you mean 'publish'?"
