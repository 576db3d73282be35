"""Random trees and graphs, and what holds for every picture."""

from itertools import combinations, pairwise

from hypothesis import strategies as st

from perdure.drawing import Branch, Choice, Edge, Graph, Guarded, Node, Parallel, Picture, Repeat, Row, Side
from perdure.drawing.measure import label_width

STATES = ["not reached", "running", "open", "done", "failed", "stuck", "dropped", "undone", None]
TITLES = st.sampled_from(["", "a", "charge", "a-rather-long-title-of-a-step", "結果を待つ", "<b>&\"'"])
LEAVES = ["task", "call", "set", "subprocess", "continue", "timer", "receive", "fail", "end"]

nodes = st.builds(
    Node,
    st.sampled_from(LEAVES),
    TITLES,
    TITLES,
    TITLES,
    state=st.sampled_from(STATES),
    badge=TITLES,
    tokens=st.integers(0, 5),
)
boxes = st.builds(Node, st.sampled_from(["task", "call", "subprocess", "receive"]), TITLES, subtitle=TITLES)


def _inner(parts):
    rows = st.lists(parts, max_size=4).map(lambda found: Row(tuple(found)))
    branches = st.lists(st.builds(Branch, TITLES, rows), max_size=4).map(tuple)
    parallel = st.builds(Parallel, st.just(Node("parallel", "all")), branches, st.just(Node("join", "all")))
    sides = st.lists(st.builds(Side, TITLES, rows, st.booleans()), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        rows,
        st.builds(Choice, st.just(Node("decision", "which", subtitle="a < b")), branches),
        parallel,
        st.builds(Repeat, TITLES, rows),
        st.builds(Guarded, boxes | parallel, sides),
    )


trees = st.recursive(nodes, _inner, max_leaves=30)


@st.composite
def graphs(draw, size=14):
    count = draw(st.integers(0, size))
    kinds = st.sampled_from(["step", "agent", "decision", "timer", "cell"])
    tokens = st.integers(0, 4)
    made = [Node(draw(kinds), f"step-{n}", f"n{n}", draw(TITLES), tokens=draw(tokens)) for n in range(count)]
    ends = st.integers(0, count - 1).map("n{}".format) if count else st.nothing()
    edges = draw(st.lists(st.builds(Edge, ends, ends, TITLES), max_size=2 * size)) if count else []
    entries = draw(st.lists(ends, max_size=2, unique=True)) if count else []
    return Graph(tuple(made), tuple(edges), tuple(entries))


def check(picture: Picture) -> None:
    """Whole numbers; no node on another; no line through a node, crooked, loose or outside; no label on a node."""
    rectangles = [(placed.x, placed.y, placed.x + placed.width, placed.y + placed.height) for placed in picture.nodes]
    for one, two in combinations(rectangles, 2):
        assert not _overlap(one, two), (one, two)
    assert all(_within(rectangle, picture) for rectangle in rectangles)
    for line in picture.lines:
        assert all(type(value) is int for point in line.points for value in point)
        assert _touches(rectangles[line.source], line.points[0]) and _touches(rectangles[line.target], line.points[-1])
        for (ax, ay), (bx, by) in pairwise(line.points):
            assert (ax == bx) != (ay == by), "a line has only horizontal and vertical pieces"
            piece = (min(ax, bx), min(ay, by), max(ax, bx), max(ay, by))
            assert _within(piece, picture)
            for rectangle in rectangles:
                assert not _overlap(piece, rectangle), f"{line} crosses the node at {rectangle}"
        if line.label:
            x, y = line.label_at
            word = (x, y - 11, x + label_width(line.label), y + 3)
            assert _within(word, picture)
            for rectangle in rectangles:
                assert not _overlap(word, rectangle), f"the label {line.label} lies on the node at {rectangle}"


def check_apart(picture: Picture) -> None:
    """Lines that share no end never lie on each other: they can be told apart."""
    for one, two in combinations(picture.lines, 2):
        if one.source == two.source or one.target == two.target:
            continue
        for (ax, ay), (bx, by) in pairwise(one.points):
            for (cx, cy), (dx, dy) in pairwise(two.points):
                if ax == bx == cx == dx:
                    assert min(max(ay, by), max(cy, dy)) <= max(min(ay, by), min(cy, dy)), (one, two)
                if ay == by == cy == dy:
                    assert min(max(ax, bx), max(cx, dx)) <= max(min(ax, bx), min(cx, dx)), (one, two)


def _overlap(one: tuple[int, int, int, int], two: tuple[int, int, int, int]) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _within(rectangle: tuple[int, int, int, int], picture: Picture) -> bool:
    left, top, right, bottom = rectangle
    return min(left, top) >= 0 and right <= picture.width and bottom <= picture.height


def _touches(rectangle: tuple[int, int, int, int], point: tuple[int, int]) -> bool:
    left, top, right, bottom = rectangle
    x, y = point
    return left <= x <= right and top <= y <= bottom and (x in (left, right) or y in (top, bottom))
