"""A definition or a history as SVG, Mermaid or JSON. See `model.py` for what a dialect gives."""

from perdure.drawing.draw import as_data, draw, lay_out
from perdure.drawing.model import Branch, Choice, Edge, Graph, Guarded, Node, Parallel, Part, Picture, Repeat, Row, Side

__all__ = [
    "Branch",
    "Choice",
    "Edge",
    "Graph",
    "Guarded",
    "Node",
    "Parallel",
    "Part",
    "Picture",
    "Repeat",
    "Row",
    "Side",
    "as_data",
    "draw",
    "lay_out",
]
