"""Both layouts, on random input: nothing overlaps, no edge crosses a node, nothing moves with the state."""

import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.drawing import Branch, Choice, Edge, Graph, Guarded, Node, Repeat, Row, Side, lay_out
from perdure.drawing.model import Direction, Picture
from tests.drawing import samples
from tests.drawing.shapes import check, check_apart, graphs, trees
from tests.stages import LONG

directions = st.sampled_from(["LR", "TB"])
both = pytest.mark.parametrize("direction", ["LR", "TB"])


@settings(deadline=None, max_examples=300 if LONG else 100)
@given(trees, directions)
def test_no_node_of_a_tree_overlaps_another_and_no_line_crosses_a_node(tree, direction):
    check(lay_out(tree, direction))


@settings(deadline=None, max_examples=300 if LONG else 100)
@given(graphs(), directions)
def test_no_node_of_a_graph_overlaps_another_and_no_line_crosses_a_node(graph, direction):
    check(lay_out(graph, direction))


@settings(deadline=None, max_examples=300 if LONG else 100)
@given(graphs(), directions)
def test_lines_of_a_graph_that_share_no_end_can_be_told_apart(graph, direction):
    check_apart(lay_out(graph, direction))


@both
@pytest.mark.parametrize(
    "drawing", [samples.process(), samples.net(), samples.agents()], ids=["process", "net", "agents"]
)
def test_the_samples_keep_the_rules(drawing, direction: Direction):
    check(lay_out(drawing, direction))


@both
def test_nothing_moves_with_the_state_of_a_graph(direction: Direction):
    graph = samples.net()
    bare = replace(
        graph, nodes=tuple(replace(n, state=None, note="", badge="", tokens=0, gate="") for n in graph.nodes)
    )

    assert geometry(lay_out(graph, direction)) == geometry(lay_out(bare, direction))


@both
def test_nothing_moves_with_the_state_of_a_tree(direction: Direction):
    def tree(state, note):
        call = Guarded(
            Node("call", "order", state=state, note=note), (Side("failure", Row((Node("task", "repair"),))),)
        )
        return Repeat("lines", Row((call, Node("timer", "wait", state=state, note=note))), state=state, note=note)

    assert geometry(lay_out(tree(None, ""), direction)) == geometry(lay_out(tree("failed", "4 attempts"), direction))


def test_every_edge_of_a_graph_is_drawn_once_from_its_source_to_its_target():
    graph = samples.net()

    picture = lay_out(graph)

    drawn = [(picture.nodes[n.source].node.location, picture.nodes[n.target].node.location) for n in picture.lines]
    assert drawn == [("", "scan"), ("", "truck-arrives"), *((edge.source, edge.target) for edge in graph.edges)]


def test_an_edge_that_leads_back_leaves_to_the_right_and_enters_from_the_left():
    picture = lay_out(
        Graph((Node("step", "a", "a"), Node("step", "b", "b")), (Edge("a", "b"), Edge("b", "a", "again")))
    )

    back = picture.lines[1]
    assert back.points[0][0] < back.points[1][0]
    assert back.points[-2][0] < back.points[-1][0]
    assert back.points[-1][0] < back.points[0][0]


def test_an_edge_from_a_node_to_itself_goes_around_it():
    picture = lay_out(Graph((Node("step", "a", "a"),), (Edge("a", "a", "more"),)))

    check(picture)
    assert len(picture.lines[0].points) == 6


def test_lines_that_change_rows_with_each_other_make_a_detour():
    made = tuple(Node("step", name, name) for name in "uvwxyz")

    picture = lay_out(Graph(made, (Edge("w", "v"), Edge("y", "x"), Edge("y", "v"), Edge("w", "x"))))

    check_apart(picture)
    assert max(len(line.points) for line in picture.lines) == 6


def test_a_chain_is_one_straight_row():
    names = "abcdefgh"
    graph = Graph(tuple(Node("step", n, n) for n in names), tuple(Edge(a, b) for a, b in pairwise(names)))

    assert {len(line.points) for line in lay_out(graph).lines} == {2}


def test_nothing_follows_an_end():
    tree = Row(
        (
            Choice(Node("decision", "ok"), (Branch("yes"), Branch("no", Row((Node("fail", "refused"),))))),
            Node("end", "end"),
        )
    )

    picture = lay_out(tree)

    assert [(line.source, line.target, line.label) for line in picture.lines] == [(0, 1, "no"), (0, 2, "yes")]


def test_a_line_was_gone_only_if_the_instance_went_it():
    order = Guarded(
        Node("call", "order", state="failed"), (Side("failure", Row((Node("task", "repair", state="done"),))),)
    )

    picture = lay_out(Row((order, Node("end", "end", state="done"))))

    gone = {(line.source, line.target): line.went for line in picture.lines}
    assert gone == {(0, 1): True, (0, 2): False, (1, 2): True}


def test_an_empty_graph_and_an_empty_row_are_empty_pictures():
    assert lay_out(Graph(())).nodes == () and lay_out(Row()).nodes == ()


def test_an_edge_to_an_unknown_node_is_refused_by_name():
    with pytest.raises(ValueError, match="'b'; no node has this location"):
        lay_out(Graph((Node("step", "a", "a"),), (Edge("a", "b"),)))


def test_two_nodes_with_one_location_are_refused():
    with pytest.raises(ValueError, match="two nodes of the graph have one location"):
        lay_out(Graph((Node("step", "a", "a"), Node("step", "b", "a"))))


def test_a_tree_of_a_hundred_levels_is_drawn():
    tree = Row((Node("call", "inner"),))
    for level in range(100):
        tree = Row((Repeat(f"level {level}", tree),))

    assert len(lay_out(tree).frames) == 100


def test_the_work_grows_with_the_graph_and_not_with_its_square():
    small, large = work(250), work(1000)

    assert large < 6 * small


def work(count: int) -> int:
    """How many calls a layout makes for a wide, branching graph with cycles."""
    made = tuple(Node("step", f"s{n}", f"s{n}") for n in range(count))
    forth = [Edge(f"s{n}", f"s{n + 1 + n * 7 % 5}") for n in range(count - 6)]
    more = [Edge(f"s{n}", f"s{n + 3}", "if" if n % 9 == 0 else "") for n in range(count - 6)]
    back = [Edge(f"s{n}", f"s{n - 4}") for n in range(10, count, 25)]
    calls = 0

    def seen(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        lay_out(Graph(made, (*forth, *more, *back)))
    finally:
        sys.setprofile(None)
    return calls


def geometry(picture: Picture) -> object:
    return (
        picture.width,
        picture.height,
        [(n.x, n.y, n.width, n.height) for n in picture.nodes],
        [(f.x, f.y, f.width, f.height, f.title_x) for f in picture.frames],
        [(n.points, n.label_at) for n in picture.lines],
    )
