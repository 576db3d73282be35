"""Graphs from files, templates, pictures, and what the command line shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perdure
from perdure.graphs import BadGraph, Graph, Limits, Permit, tool
from perdure.graphs.load import from_text
from perdure.graphs.templates import fanout_synthesize, gen_eval, generate_and_filter, verify_rules

from .rig import echo, run
from .test_first import publish
from .test_first import report as code

YAML = """
name: report
limits: {running: 2, nodes: 50}
permits:
  - {glob: publish, verdict: ask, roles: [editor]}
nodes:
  plan: {role: plan, goal: "What is known of ${input}?"}
  write:
    kind: loop
    goal: Write the page
    after: [plan]
    max_iters: 3
  check: {role: verify, goal: "Is every claim supported?", after: [write], output: bool}
  ship: {goal: Publish it, after: [check, write]}
"""


def test_yaml_and_json_have_the_hash_of_the_code(tmp_path):
    found = from_text(YAML, runner=echo, tools=[publish])
    assert found.model == code().model
    assert found.model.hash == code().model.hash
    nodes = [{"name": spec.name, **fields} for spec, fields in zip(found.model.nodes, _fields(), strict=True)]
    document = {"name": "report", "limits": {"running": 2, "nodes": 50}, "nodes": nodes}
    document["permits"] = [{"glob": "publish", "verdict": "ask", "roles": ["editor"]}]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    assert perdure.load_graph(path, runner=echo, tools=[publish]).model.hash == code().model.hash


def _fields():
    return [
        {"role": "plan", "goal": "What is known of ${input}?"},
        {"kind": "loop", "goal": "Write the page", "after": ["plan"], "max_iters": 3},
        {"role": "verify", "goal": "Is every claim supported?", "after": ["write"], "output": "bool"},
        {"goal": "Publish it", "after": ["check", "write"]},
    ]


def test_problems_have_line_and_column():
    bad = YAML.replace("max_iters: 3", "max_iters: none").replace("after: [check, write]", "aftr: [check]")
    with pytest.raises(BadGraph) as error:
        from_text(bad, "report.yaml", runner=echo, tools=[publish])
    found = {problem.at: problem.text for problem in error.value.problems}
    assert "max_iters" in found["12:5"]
    assert "did you mean 'after'?" in found["14:28"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("- 1", "a graph is a mapping"),
        ("a: [", "expected"),
        ("name: x\nname: y", "there twice"),
        ("name: &a x\nnodes: {b: *a}", "anchors"),
        ("name: x\nnodes: " + "[" * 100 + "]" * 100, "nested"),
        ("x" * (1024 * 1024 + 1), "at most"),
        ("name: x\nnods: {}", "did you mean 'nodes'?"),
        ("name: x\nnodes: 7", "nodes is a list"),
        ("name: x\nnodes: {a: 7}", "a node is a mapping"),
        ("\0", "no YAML"),
    ],
)
def test_bad_documents_are_refused(text, what):
    with pytest.raises(BadGraph, match=what.replace("?", r"\?")):
        from_text(text, runner=echo)


def test_a_missing_file_is_told(tmp_path: Path):
    with pytest.raises(perdure.errors.CallerError, match="cannot be read"):
        perdure.load_graph(tmp_path / "none.yaml")


# ---- templates -------------------------------------------------------------------------------------------------------


def shape(nodes) -> dict[str, list[str]]:
    graph = Graph("t", runner=echo)
    graph.add(*nodes)
    assert run(graph).outcome.status == "completed"
    return {spec.name: [name for _, name in spec.after] for spec in graph.model.nodes}


def test_templates_have_their_shape():
    assert shape(fanout_synthesize({"a": "x", "b": "y"}, "z")) == {"a": [], "b": [], "synthesize": ["a", "b"]}
    assert list(shape(generate_and_filter("x", "y", count=2))) == ["candidate-1", "candidate-2", "filter"]
    assert list(shape(verify_rules("x", ["r", "s"]))) == ["rule-1", "rule-2", "skeptic", "verdicts"]
    assert list(shape(verify_rules("x", []))) == ["skeptic", "verdicts"], "without rules the skeptic is alone"
    assert gen_eval("x", "y", iterations=0)[0]["max_iters"] == 1
    assert shape(gen_eval("x", "y")) == {"generate": [], "evaluate": ["generate"]}


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_a_graph_is_drawn_and_equal_graphs_have_equal_pictures():
    picture = code().draw()
    assert picture.startswith("<svg")
    assert picture == from_text(YAML, runner=echo, tools=[publish]).draw()
    assert "write" in code().draw("mermaid")


async def test_an_instance_is_drawn_with_its_outcomes(tmp_path):
    @tool
    async def nothing() -> None:
        return None

    async def runner(node):
        if node.name == "a":
            await node.submit([{"name": "more"}])
        if node.name == "b":
            raise ValueError("no")
        return node.name

    graph = Graph("drawn", runner=runner, limits=Limits(nodes=9), permits=[Permit("**", "allow")], outputs=["a"])
    graph.node("a")
    graph.node("b", after=["a"])
    graph.node("c", after=["b"])
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        handle = await engine.start(graph, key="k")
        await handle.result()
        picture = await handle.draw("mermaid")
    for text in ("a/more", "failed", "dropped", "done"):
        assert text in picture


async def test_a_picture_shows_which_edges_were_gone_and_the_labels_of_a_choice(tmp_path):
    async def runner(node):
        return "long" if node.name == "kind" else node.name

    graph = Graph("ways", runner=runner)
    graph.classify("kind", branches={"long": ["essay"], "short": ["tweet"]})
    graph.node("essay", after=["kind"])
    graph.node("tweet", after=["kind"])
    graph.reduce("all", "collect", after=["essay", "tweet"])
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        handle = await engine.start(graph, key="k")
        await handle.result()
        picture = json.loads(await handle.draw("json"))
    names = [node["location"] for node in picture["nodes"]]
    went = {(names[edge["from"]], names[edge["to"]]): (edge["label"], edge["went"]) for edge in picture["edges"]}
    assert went["kind", "essay"] == ("long", True)
    assert went["kind", "tweet"] == ("short", False)
    assert (went["essay", "all"][1], went["tweet", "all"][1]) == (True, False)
