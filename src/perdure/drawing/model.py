"""What a dialect says about a picture, and what a layout makes of it. Nothing here knows a dialect.

A dialect gives a tree of parts (`Row`, `Choice`, `Parallel`, `Repeat`, `Guarded`, `Node`) or a free `Graph`. A layout
turns either into a `Picture`: nodes, frames and lines at whole numbers. The writers (SVG, Mermaid, JSON) read pictures
only.
"""

from dataclasses import dataclass
from typing import Final, Literal

Direction = Literal["LR", "TB"]
Kind = Literal[
    "start", "end", "fail",  # circles; nothing follows `end` and `fail`
    "decision", "parallel", "join", "timer", "receive",  # small shapes with their text beside them
    "task", "call", "set", "subprocess", "continue",  # boxes
    "step", "agent", "cell", "event",  # boxes of nets, graphs and routing
]  # fmt: skip
State = Literal["not reached", "running", "open", "done", "failed", "stuck", "dropped", "undone"]
Point = tuple[int, int]

SMALL: Final = frozenset({"start", "end", "fail", "decision", "parallel", "join", "timer", "receive"})
ENDS: Final = frozenset({"end", "fail"})
_UNREACHED: Final = frozenset({None, "not reached", "dropped"})


@dataclass(frozen=True, slots=True)
class Node:
    """One shape. State, note, badge and tokens never change its size: two pictures of one definition are congruent."""

    kind: Kind
    title: str
    location: str = ""  # `data-location` of the shape, and the name of the node in a graph
    subtitle: str = ""
    state: State | None = None
    note: str = ""  # follows the word of the state: "3 turns", "4 attempts"
    badge: str = ""  # a short text on the border: "join all", "12 live"
    tokens: int = 0
    gate: Literal["", "open", "closed"] = ""  # a bar where edges enter

    @property
    def reached(self) -> bool:
        return self.state not in _UNREACHED

    @property
    def status(self) -> str:
        return ", ".join(word for word in (self.state or "", self.note) if word)

    @property
    def tokens_text(self) -> str:
        return "1 token" if self.tokens == 1 else f"{self.tokens} tokens" if self.tokens else ""


@dataclass(frozen=True, slots=True)
class Row:
    """Parts one after the other."""

    parts: tuple["Part", ...] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    label: str
    body: Row = Row()
    taken: bool | None = None  # None: taken if both ends of its line were reached


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the branches; the first one goes straight on."""

    head: Node
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """All branches side by side, between two nodes."""

    head: Node
    branches: tuple[Branch, ...]
    join: Node


@dataclass(frozen=True, slots=True)
class Repeat:
    """A frame around what is repeated."""

    title: str
    body: Row
    location: str = ""
    state: State | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """A dashed branch beside the main line: failure, timeout, undo. `joins=False`: it does not come back."""

    label: str
    body: Row = Row()
    joins: bool = True


@dataclass(frozen=True, slots=True)
class Guarded:
    """A node or a parallel with its dashed side branches."""

    body: Node | Parallel
    sides: tuple[Side, ...]


Part = Node | Row | Choice | Parallel | Repeat | Guarded


@dataclass(frozen=True, slots=True)
class Edge:
    source: str  # location of a node
    target: str
    label: str = ""
    dashed: bool = False
    went: bool = False  # an instance went this way


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes with unique locations and edges between them, cycles included. `entries` get a start marker."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    entries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A node with the rectangle of its shape, and the frames around it, outermost first."""

    node: Node
    x: int
    y: int
    width: int
    height: int
    frames: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    repeat: Repeat
    x: int
    y: int
    width: int
    height: int
    title_x: int  # its title begins here, beside the line that enters


@dataclass(frozen=True, slots=True)
class Line:
    """An edge from the border of one node to the border of another, in horizontal and vertical pieces."""

    source: int
    target: int
    points: tuple[Point, ...]
    label: str = ""
    label_at: Point = (0, 0)  # left end of the text's base line
    dashed: bool = False
    went: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    direction: Direction
    width: int
    height: int
    nodes: tuple[Placed, ...]
    frames: tuple[Frame, ...]
    lines: tuple[Line, ...]
