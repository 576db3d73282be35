"""The one way in: a tree or a graph becomes text in one of three formats. Equal input gives equal bytes everywhere."""

import json
from typing import Any, Literal, get_args

from perdure.drawing.boxes import tree_picture
from perdure.drawing.layers import graph_picture
from perdure.drawing.measure import clean
from perdure.drawing.mermaid import mermaid
from perdure.drawing.model import Direction, Frame, Graph, Line, Part, Picture, Placed
from perdure.drawing.svg import Style, svg
from perdure.errors import BadCall

Format = Literal["svg", "mermaid", "json"]


def draw(
    drawing: Part | Graph,
    format: Format = "svg",
    direction: Direction = "LR",
    *,
    title: str = "",
    style: Style = "embedded",
) -> str:
    """A tree or a graph as SVG, Mermaid or JSON text. `style="none"` is for pages that bring their own style sheet."""
    for name, value, known in (
        ("format", format, get_args(Format)),
        ("direction", direction, get_args(Direction)),
        ("style", style, get_args(Style)),
    ):
        if value not in known:
            raise BadCall(f"{name} of a drawing is {value!r:.80}; use one of {', '.join(known)}")
    picture = lay_out(drawing, direction)
    match format:
        case "svg":
            return svg(picture, title=title, style=style)
        case "mermaid":
            return mermaid(picture)
        case "json":
            return json.dumps(as_data(picture), ensure_ascii=False, separators=(",", ":")) + "\n"


def lay_out(drawing: Part | Graph, direction: Direction = "LR") -> Picture:
    return graph_picture(drawing, direction) if isinstance(drawing, Graph) else tree_picture(drawing, direction)


def as_data(picture: Picture) -> dict[str, Any]:
    """The picture as plain data: a browser draws it and changes states by `location`; the layout is the server's."""
    return {
        "direction": picture.direction,
        "width": picture.width,
        "height": picture.height,
        "nodes": [_node(placed) for placed in picture.nodes],
        "frames": [_frame(frame) for frame in picture.frames],
        "edges": [_edge(line) for line in picture.lines],
    }


def _node(placed: Placed) -> dict[str, Any]:
    node = placed.node
    return {
        "kind": node.kind,
        "title": clean(node.title),
        "subtitle": clean(node.subtitle),
        "location": clean(node.location),
        "state": node.state,
        "note": clean(node.note),
        "badge": clean(node.badge),
        "tokens": node.tokens,
        "gate": node.gate,
        "x": placed.x,
        "y": placed.y,
        "width": placed.width,
        "height": placed.height,
        "frames": list(placed.frames),
    }


def _frame(frame: Frame) -> dict[str, Any]:
    repeat = frame.repeat
    return {
        "title": clean(repeat.title),
        "location": clean(repeat.location),
        "state": repeat.state,
        "note": clean(repeat.note),
        "x": frame.x,
        "y": frame.y,
        "width": frame.width,
        "height": frame.height,
    }


def _edge(line: Line) -> dict[str, Any]:
    return {
        "from": line.source,
        "to": line.target,
        "points": [list(point) for point in line.points],
        "label": clean(line.label),
        "label_at": list(line.label_at),
        "dashed": line.dashed,
        "went": line.went,
    }
