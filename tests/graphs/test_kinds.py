"""Kinds of nodes, outcomes and policies."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perdure.graphs import Graph, Partial
from perdure.kernel.loops import Break, Continue
from perdure.kernel.receipt import Failure, Receipt

from .rig import Rig, echo, run


def looping(body, **fields) -> Graph:
    async def runner(node):
        return body(node)

    graph = Graph("g", runner=runner)
    graph.loop("l", max_iters=5, **fields)
    graph.node("after", after=["l"], needs="all_terminal")
    return graph


def test_a_loop_stops_early():
    rig = run(looping(lambda node: Break(node.iteration) if node.iteration == 2 else node.previous))
    assert rig.ran[:3] == ["l/~0", "l/~1", "l/~2"]
    assert rig.state.nodes["l"].value


def test_a_loop_hears_what_it_said_before_and_its_last_output_counts():
    def body(node):
        return node.name if node.name != "l" else Continue((node.previous or 0) + 1)

    rig = run(looping(body))
    assert rig.ran == [f"l/~{number}" for number in range(5)] + ["after"]
    assert run_value(rig, "l") == 5


def run_value(rig: Rig, name: str):
    from perdure.codec import decode

    return decode(rig.state.nodes[name].value)


def test_a_failed_iteration_ends_the_loop():
    def body(node):
        if node.iteration == 1:
            raise ValueError("no")
        return 1

    rig = run(looping(body))
    assert rig.outcomes()["l"] == "failed(error)"
    assert rig.ran.count("l/~2") == 0
    partial = run(looping(lambda node: Partial("x", "tired")))
    assert partial.outcomes()["l"] == "partial(tired)"


def classifier(*labels, default=None) -> Rig:
    said = list(labels)

    async def runner(node):
        return said.pop(0) if node.name == "which" else node.name

    graph = Graph("g", runner=runner)
    graph.classify("which", branches={"big": ["b"], "small": ["s", "both"], "none": []}, default=default, repairs=1)
    graph.node("b", after=["which"])
    graph.node("s", after=["which"])
    graph.node("both", after=["which"])
    graph.node("b2", after=["b"])
    graph.node("join", after=["b2", "s"])
    return run(graph)


def test_a_join_after_a_classifier_runs_with_the_chosen_side():
    rig = classifier("small")
    assert rig.outcomes() == {
        "which": "completed",
        "b": "skipped(not_chosen)",
        "s": "completed",
        "both": "completed",
        "b2": "skipped(not_chosen)",
        "join": "completed",
    }
    assert rig.facts("chosen") == [{"node": "which", "label": "small"}]
    assert rig.outcome.status == "completed"


def test_an_unknown_label_is_repaired_then_default_then_fails():
    assert classifier("huge", "big").outcomes()["join"] == "completed"
    assert classifier("huge", "vast", default="small").outcomes()["s"] == "completed"
    assert classifier("huge", "vast").outcomes()["which"] == "failed(output)"


def test_nothing_chosen_is_an_end_as_well():
    rig = classifier("none")
    assert rig.outcomes()["join"] == "skipped(not_chosen)"
    assert rig.outcome.status == "completed"


def tournament(count: int, judge=lambda node: "right", broken=()) -> Rig:
    async def runner(node):
        if node.match is not None:
            return judge(node)
        if node.goal in broken:
            raise ValueError("no")
        return node.goal

    graph = Graph("g", runner=runner)
    graph.tournament("best", entrants={f"e{number}": f"e{number}" for number in range(count)}, repairs=0)
    return run(graph)


@pytest.mark.parametrize(("count", "rounds"), [(2, 1), (3, 2), (5, 3), (8, 3)])
def test_brackets_of_2_3_5_and_8_have_one_winner(count, rounds):
    rig = tournament(count)
    assert rig.result == f"e{count - 1}"
    assert len(rig.state.nodes["best"].rounds) == rounds
    assert len(rig.facts("bracket")) == count - 1
    assert "best" not in rig.ran, "it runs nothing itself"


def test_judges_see_both_candidates_and_neighbours_meet():
    seen = []

    def judge(node):
        seen.append((node.name, node.match.left.value, node.match.right.value, node.role, node.isolation))
        return "left"

    assert tournament(3, judge).result == "e0"
    assert seen == [
        ("best/judge/~0/~0", "e0", "e1", "verify", "read_only"),
        ("best/judge/~1/~0", "e0", "e2", "verify", "read_only"),
    ]


def test_a_failed_entrant_does_not_take_part_one_alone_wins_and_none_fails():
    assert tournament(3, broken=["e2"]).result == "e1"
    assert tournament(2, broken=["e0"]).result == "e1"
    assert tournament(2, broken=["e0", "e1"]).outcomes()["best"] == "failed(no_candidates)"


def test_a_judge_without_a_verdict_fails_the_node():
    rig = tournament(4, lambda node: "both")
    assert rig.outcomes()["best"] == "failed(no_verdict)"


@pytest.mark.parametrize(
    ("reducer", "result"),
    [
        ("concat", "x\ny\nx"),
        ("dedupe_lines", "x\ny"),
        ("count", 2),
        ("collect", {"a": "x\ny", "b": "x"}),
        (list, ["a", "b"]),
    ],
)
def test_reduce_is_a_function_of_its_inputs(reducer, result):
    graph = Graph("g", runner=echo)
    graph.node("a", goal="x\ny")
    graph.node("b", goal="x")
    graph.reduce("r", reducer, after=["a", "b"])
    rig = run(graph)
    assert rig.result == result
    assert len(rig.journal) == 3, "a reduce is no entry of its own"


def test_lists_and_objects_are_merged_and_what_is_neither_fails():
    async def runner(node):
        return {"l": [1], "m": [2], "o": {"a": 1}, "p": {"a": 2, "b": 3}}[node.name]

    graph = Graph("g", runner=runner)
    for name in "lmop":
        graph.node(name)
    graph.reduce("lists", "merge_arrays", after=["l", "m"])
    graph.reduce("objects", "merge_objects", after=["o", "p"])
    graph.reduce("wrong", "merge_arrays", after=["o"])
    graph.node("end", after=["wrong"], needs="all_terminal")
    rig = run(graph)
    assert run_value(rig, "lists") == [1, 2]
    assert run_value(rig, "objects") == {"a": 2, "b": 3}
    assert rig.outcomes()["wrong"] == "failed(error)"


def test_a_child_has_a_key_of_its_own_and_its_outcome_is_the_nodes():
    graph = Graph("g", runner=echo)
    graph.child("kid", "other", input={"x": "${input.n}", "text": "n is ${input.n}"})
    rig = Rig(graph, {"n": 7})
    [effect] = rig.open.values()
    assert effect.key == "k/kid"  # type: ignore[union-attr]
    from perdure.codec import decode, encode

    assert decode(effect.input) == {"x": 7, "text": "n is 7"}  # type: ignore[union-attr]
    rig.child("kid", Receipt("ok", encode("fine")))
    assert rig.result == "fine"
    failed = Rig(graph, {"n": 7})
    failed.child("kid", Receipt("error", error=Failure("Broken", "it is")))
    assert failed.outcomes() == {"kid": "failed(child)"}
    cancelled = Rig(graph, {"n": 7})
    cancelled.child("kid", Receipt("cancelled"))
    assert cancelled.outcomes() == {"kid": "cancelled(child)"}


# ---- policies --------------------------------------------------------------------------------------------------------

ENDS = ("completed", "partial", "failed", "skipped", "cancelled")
EXPECTED = {
    "all_success": "completed",
    "accept_partial": "completed partial",
    "any_success": "completed",
    "all_terminal": "completed partial failed skipped cancelled",
    "optional": "completed partial failed skipped cancelled",
}


@pytest.mark.parametrize("policy", EXPECTED)
@pytest.mark.parametrize("end", ENDS)
def test_each_policy_against_each_outcome(policy, end):
    async def runner(node):
        if node.name == "before":
            raise ValueError
        if node.name == "dep" and end == "partial":
            return Partial(1, "half")
        if node.name == "dep" and end == "failed":
            raise ValueError
        return node.name

    graph = Graph("g", runner=runner, roles=["r"])
    graph.node("before")
    graph.node("dep", after=["before"] if end == "skipped" else [], approve="before" if end == "cancelled" else None)
    graph.node("end", after=["dep"], needs=policy)
    rig = run(graph)
    if end == "cancelled":
        rig.send("cancel", {"node": "dep"})
    fine = end in EXPECTED[policy].split()
    assert rig.outcomes()["end"] == ("completed" if fine else "skipped(upstream)")


def test_any_success_opens_at_the_first_that_completes():
    graph = Graph("g", runner=echo)
    graph.node("slow", goal="s")
    graph.node("fast", goal="f")
    graph.node("end", after=["slow", "fast"], needs="any_success", goal="e")
    rig = Rig(graph)
    rig._begin(list(rig.open)[1])
    assert "end" in rig.opened()


def test_optional_is_not_waited_for():
    graph = Graph("g", runner=echo)
    graph.node("slow", goal="s")
    graph.node("end", after={"s": "slow"}, needs="optional", goal="e")
    assert Rig(graph).opened() == ["slow", "end"]


# ---- outputs ---------------------------------------------------------------------------------------------------------


@dataclass
class Page:
    title: str
    words: int


def typed(*outputs, repairs=1, kind=Page) -> Rig:
    said = list(outputs)

    async def runner(node):
        return said.pop(0)

    graph = Graph("g", runner=runner)
    graph.node("a", output=kind, repairs=repairs)
    return run(graph)


def test_outputs_convert_and_text_is_read_as_json():
    page = {"title": "x", "words": 1}
    assert typed(Page("x", 1)).result == page
    assert typed(page).result == page
    assert typed('{"title": "x", "words": 1}').result == page
    assert typed('```json\n{"title": "x", "words": 1}\n```').result == page
    assert typed('Here it is:\n```json\n{"title": "x", "words": 1}\n```\nAnything else?').result == page
    assert typed("7", kind=int).result == 7
    assert typed("7", kind=str).result == "7"


def test_an_output_that_does_not_fit_is_repaired_within_its_bound():
    rig = typed({"title": "x"}, {"title": "x", "words": 2})
    assert rig.result["words"] == 2
    assert "words" in rig.state.nodes["a"].notes[0]
    assert typed({"title": "x"}, "no json", repairs=1).outcomes() == {"a": "failed(output)"}
    assert typed({"title": "x"}, repairs=0).outcomes() == {"a": "failed(output)"}


def test_a_missing_path_in_a_goal_fails_the_node():
    graph = Graph("g", runner=echo)
    graph.node("a", goal="${input.x.y}")
    rig = run(graph, {"x": {}})
    assert rig.outcomes() == {"a": "failed(input)"}
    assert "${input.x.y}" in rig.state.nodes["a"].detail


def test_goals_have_references_and_dollars():
    graph = Graph("g", runner=echo)
    graph.node("a", goal="$$${input.list.1} $ ${input.d}")
    assert run(graph, {"list": [1, 2], "d": {"k": [True]}}).result == '$2 $ {"k":[true]}'


def test_one_output_is_a_value_and_several_are_a_mapping():
    graph = Graph("g", runner=echo)
    graph.node("a", goal="1")
    graph.node("b", goal="2")
    assert run(graph).result == {"a": "1", "b": "2"}
    named = Graph("g", runner=echo, outputs=["a"])
    named.node("a", goal="1")
    named.node("b", goal="2", after=["a"])
    assert run(named).result == "1"


def test_a_failed_output_fails_the_graph_with_its_report():
    async def runner(node):
        raise ValueError("no")

    graph = Graph("g", runner=runner)
    graph.node("a")
    rig = run(graph)
    assert rig.outcome.status == "failed"
    assert rig.outcome.error.type == "GraphFailed"
    assert "a failed (error): ValueError: no" in rig.outcome.error.message
    assert rig.outcome.error.data["nodes"][0]["node"] == "a"


def test_a_failure_names_the_node_that_caused_it():
    async def runner(node):
        return node.goal

    graph = Graph("g", runner=runner)
    graph.node("read", goal="${input.file}")
    graph.node("log", after=["read"])
    message = run(graph, {}).outcome.error.message
    assert message.startswith("log skipped (upstream); read failed (input): ${input.file} has no value")
