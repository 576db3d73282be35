"""SVG, Mermaid and JSON: shapes and marks, hostile text, equal bytes."""

import json
import os
import re
import subprocess
import sys
from typing import get_args
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.drawing import Edge, Graph, Node, Repeat, Row, draw
from perdure.drawing.measure import clean, shorten, text_width
from perdure.drawing.model import Kind, State
from perdure.errors import BadCall
from tests.drawing import samples
from tests.drawing.shapes import graphs, trees

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</title></svg><script>alert(1)</script><svg onload="x" \'"&]]>'


def nodes_of(text: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(text).iter(SVG + "g") if "g-node" in element.get("class", "")]


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_shape_has_a_title_and_its_location(kind: Kind):
    [node] = nodes_of(draw(Node(kind, "charge", "loop/~3/charge", "a call")))

    assert node.get("data-location") == "loop/~3/charge"
    assert node[0].tag == SVG + "title" and node[0].text == "charge\na call\nloop/~3/charge"


def test_kinds_differ_in_their_outline_or_icon():
    drawn = {kind: re.sub(r'data-kind="\w+"', "", draw(Node(kind, "x"), style="none")) for kind in get_args(Kind)}

    assert len(set(drawn.values())) == len(drawn)


@pytest.mark.parametrize("state", get_args(State))
def test_a_state_is_shown_by_word_mark_and_class(state: State):
    [node] = nodes_of(draw(Node("call", "order", state=state, note="twice")))

    assert f"{state}, twice" in [text.text for text in node.iter(SVG + "text")]
    assert [mark for mark in node.iter(SVG + "g") if mark.get("class") == "mark"]
    assert node.get("data-state") == state


def test_marks_of_states_differ_without_colour():
    marks = set()
    for state in get_args(State):
        [node] = nodes_of(draw(Node("call", "order", state=state)))
        [mark] = [found for found in node.iter(SVG + "g") if found.get("class") == "mark"]
        marks.add(tuple(path.get("d") for path in mark))

    assert len(marks) == len(get_args(State))


def test_tokens_gates_and_badges_are_shown_and_named():
    [node] = nodes_of(draw(Node("step", "load", badge="join all", tokens=12, gate="closed")))

    assert "12 tokens" in (node[0].text or "") and "gate closed" in (node[0].text or "")
    assert {"12", "join all"} <= {text.text for text in node.iter(SVG + "text")}
    assert len([dot for dot in nodes_of(draw(Node("step", "load", tokens=3)))[0].iter(SVG + "circle")]) == 3


def test_a_long_title_is_shortened_and_its_full_text_is_the_title_of_the_shape():
    long = "a-title-that-no-box-could-ever-hold-because-it-goes-on"

    [node] = nodes_of(draw(Node("call", long)))

    shown = next(text.text or "" for text in node.iter(SVG + "text") if text.get("class") == "name")
    assert shown.endswith("…") and long.startswith(shown[:-1])
    assert (node[0].text or "").startswith(long)


@pytest.mark.parametrize("style", ["embedded", "none"])
def test_hostile_text_stays_text(style):
    node = Node("task", HOSTILE, HOSTILE, HOSTILE, "done", HOSTILE, HOSTILE)
    for drawing in (
        Row((Repeat(HOSTILE, Row((node,)), HOSTILE, "done", HOSTILE),)),
        Graph((node,), (Edge(HOSTILE, HOSTILE, HOSTILE),)),
    ):
        text = draw(drawing, title=HOSTILE, style=style)

        root = ElementTree.fromstring(text)
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "title", "style", "g", "rect", "path", "circle", "text"}
        assert ("style" in tags) == (style == "embedded")
        attributes = {name for element in root.iter() for name in element.attrib}
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "id", "href")]
        assert any(element.get("data-location") == HOSTILE for element in root.iter())
        assert HOSTILE not in text and "<script" not in text


def test_direction_marks_and_control_characters_are_made_visible():
    hostile = "pay\u202e\u2066\u200f\x00\x1b[31m\ud800\ufeff\u2028\nnow\tor\rnever\uffff"

    cleaned = clean(hostile)

    assert cleaned == "pay\ufffd\ufffd\ufffd\ufffd\ufffd[31m\ufffd\ufffd\ufffd now or never\ufffd"
    for format in ("svg", "mermaid", "json"):
        draw(Node("call", hostile, hostile), format).encode()
    ElementTree.fromstring(draw(Node("call", hostile, hostile)))


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=60))
def test_any_text_gives_well_formed_svg_and_json(text):
    drawing = Graph((Node("step", text, text, text),), (Edge(text, text, text),))

    ElementTree.fromstring(draw(drawing).encode())
    json.loads(draw(drawing, "json").encode())
    assert re.fullmatch(r"[\x20-\x7e\n·]*", draw(drawing, "mermaid"))


@settings(deadline=None, max_examples=60)
@given(trees | graphs())
def test_coordinates_are_whole_numbers(drawing):
    assert not re.search(r'[ ="MLHVQAZ,]-?\d+\.\d', draw(drawing, style="none").replace("…", ""))


def test_mermaid_has_every_node_edge_and_frame():
    text = draw(samples.process(), "mermaid", "TB")

    assert text.startswith("flowchart TB\n")
    assert 'subgraph f0["lines: for each start.lines · done · 3 turns"]' in text
    assert text.count("subgraph") == text.count("\n    end") + text.count("\n  end") == 2
    assert '-.->|"failure"|' in text


def test_mermaid_cannot_be_left_by_a_title():
    text = draw(Node("call", 'x"]; click n0 "a(1)" %%{init}%% `end`'), "mermaid")

    shown = "x#34;#93;#59; click n0 #34;a#40;1#41;#34; #37;#37;#123;init#125;#37;#37; #96;end#96;"
    assert text == f'flowchart LR\n  n0["{shown}"]\n'


def test_json_has_sizes_points_and_locations():
    data = json.loads(draw(samples.net(), "json"))

    assert {"direction", "width", "height", "nodes", "frames", "edges"} == set(data)
    scan = data["nodes"][0]
    assert (scan["location"], scan["state"], scan["note"]) == ("scan", "done", "3 runs")
    edge = data["edges"][2]
    assert edge["points"][0][0] == scan["x"] + scan["width"]


def test_a_format_that_does_not_exist_is_refused():
    with pytest.raises(BadCall, match="format of a drawing is 'png'; use one of svg, mermaid, json"):
        draw(Row(), "png")  # type: ignore[arg-type]


def test_equal_input_gives_equal_bytes_in_every_process(tmp_path):
    outputs = []
    for seed in ("0", "1", "4242"):
        directory = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "tests.drawing.samples", str(directory)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        outputs.append({path.name: path.read_bytes() for path in sorted(directory.iterdir())})

    assert len(outputs[0]) == 12
    assert outputs[0] == outputs[1] == outputs[2]


def test_text_is_measured_by_a_fixed_table():
    assert [text_width("il"), text_width("mm"), text_width("結"), text_width("ab", mono=True)] == [7, 23, 13, 16]
    assert shorten("abcdefghij", 40, mono=True) == "abcd…"
