"""Pictures as Mermaid text, for tools that draw it themselves: the nodes, frames and lines, without coordinates."""

from typing import Final

from perdure.drawing.measure import clean
from perdure.drawing.model import Picture, Placed, State

_SHAPES: Final = {
    "start": ("((", "))"), "end": ("(((", ")))"), "fail": ("(((", ")))"), "timer": ("((", "))"), "receive": (">", "]"),
    "decision": ("{", "}"), "parallel": ("{{", "}}"), "join": ("{{", "}}"), "task": ("(", ")"), "agent": ("[/", "\\]"),
    "subprocess": ("[[", "]]"), "continue": ("([", "])"), "event": ("([", "])"),
}  # fmt: skip
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,-_/:+=?!")
_COLOURS: Final[dict[State, str]] = {
    "not reached": "stroke:#8b8474,stroke-dasharray:4 3",
    "running": "stroke:#1d52a8,stroke-width:2px",
    "open": "stroke:#74541a,stroke-width:2px",
    "done": "stroke:#27683c",
    "failed": "stroke:#a1133f,stroke-width:2px",
    "stuck": "stroke:#ad360a,stroke-width:3px",
    "dropped": "stroke:#625f58,stroke-dasharray:1 3",
    "undone": "stroke:#625f58",
}


def mermaid(picture: Picture) -> str:
    lines = [f"flowchart {picture.direction}"]
    _write(picture, lines, list(enumerate(picture.nodes)), 0)
    for line in picture.lines:
        arrow = "-.->" if line.dashed else "==>" if line.went else "-->"
        label = f'|"{_text(line.label)}"|' if line.label else ""
        lines.append(f"  n{line.source} {arrow}{label} n{line.target}")
    for state, look in _COLOURS.items():
        marked = ",".join(f"n{number}" for number, placed in enumerate(picture.nodes) if placed.node.state == state)
        if marked:
            name = "s_" + state.replace(" ", "_")
            lines += [f"  classDef {name} {look}", f"  class {marked} {name}"]
    return "\n".join(lines) + "\n"


def _write(picture: Picture, lines: list[str], nodes: list[tuple[int, Placed]], depth: int) -> None:
    """The nodes directly in a frame, and the frames in it as subgraphs, in the order in which they were drawn."""
    pad = "  " * (depth + 1)
    inner: dict[int, list[tuple[int, Placed]]] = {}
    for number, placed in nodes:
        if len(placed.frames) > depth:
            inner.setdefault(placed.frames[depth], []).append((number, placed))
        else:
            lines.append(f"{pad}n{number}{_shape(placed)}")
    for number, held in inner.items():
        repeat = picture.frames[number].repeat
        status = " · ".join(_text(part) for part in (repeat.title, repeat.state or "", repeat.note) if part)
        lines.append(f'{pad}subgraph f{number}["{status}"]')
        _write(picture, lines, held, depth + 1)
        lines.append(f"{pad}end")


def _shape(placed: Placed) -> str:
    node = placed.node
    begin, end = _SHAPES.get(node.kind, ("[", "]"))
    tokens = node.tokens_text
    texts = [_text(part) for part in (node.title, node.subtitle, node.badge, node.status, tokens) if part]
    return f'{begin}"{"<br/>".join(texts) or " "}"{end}'


def _text(text: str) -> str:
    """Everything but plain characters as a number, so that no title can be read as Mermaid or as HTML."""
    return "".join(sign if sign in _PLAIN else f"#{ord(sign)};" for sign in clean(text))
