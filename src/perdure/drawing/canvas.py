"""The sheet that both layouts draw on.

A layout uses `main` (the direction of reading) and `cross`; the sheet knows x and y.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from perdure.drawing.measure import Slot, label_width, shape_size, slot
from perdure.drawing.model import Direction, Frame, Line, Node, Picture, Placed, Point, Repeat

MARGIN: Final = 24


def corners(points: list[Point]) -> tuple[Point, ...]:
    """The points where a line turns, without those in the middle of a straight piece."""
    kept: list[Point] = []
    for point in points:
        if kept and kept[-1] == point:
            continue
        while len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept.pop()
        if not kept or kept[-1] != point:
            kept.append(point)
    return tuple(kept)


@dataclass
class Canvas:
    direction: Direction
    nodes: list[Placed] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    low: list[int] = field(default_factory=lambda: [0, 0])  # what is drawn so far reaches from here
    high: list[int] = field(default_factory=lambda: [0, 0])  # to here, in x and y

    def point(self, main: int, cross: int) -> Point:
        return (main, cross) if self.direction == "LR" else (cross, main)

    def reach(self, *points: Point) -> None:
        for point in points:
            for axis in (0, 1):
                self.low[axis] = min(self.low[axis], point[axis])
                self.high[axis] = max(self.high[axis], point[axis])

    def room(self, node: Node) -> Slot:
        return slot(node, self.direction)

    def add_node(self, node: Node, main: int, cross: int, frames: tuple[int, ...] = ()) -> int:
        """Place a node whose slot begins at `main`, on the line `cross`; its number."""
        room = self.room(node)
        x, y = self.point(main + room.lead, cross - room.half)
        self.nodes.append(Placed(node, x, y, *shape_size(node), frames))
        self.reach(self.point(main, cross - room.before), self.point(main + room.main, cross + room.after))
        return len(self.nodes) - 1

    def add_frame(self, repeat: Repeat, main: int, cross: int, length: int, sides: tuple[int, int]) -> int:
        before, after = sides
        (x, y), (width, height) = self.point(main, cross - before), self.point(length, before + after)
        self.frames.append(Frame(repeat, x, y, width, height, x + 8 if self.direction == "LR" else cross + 8))
        self.reach((x, y), (x + width, y + height))
        return len(self.frames) - 1

    def add_line(self, line: Line) -> None:
        """Draw a line whose points are in main and cross."""
        points = corners([self.point(*point) for point in line.points])
        x, y = self.point(*line.label_at)
        if line.label:
            x, y = (x, y - 6) if self.direction == "LR" else (x + 8, y + 4)
            self.reach((x, y - 12), (x + label_width(line.label), y + 4))
        self.reach(*points)
        self.lines.append(replace(line, points=points, label_at=(x, y)))

    def picture(self) -> Picture:
        """Everything moved so that the picture begins at 0, 0 with a margin."""
        dx, dy = MARGIN - self.low[0], MARGIN - self.low[1]
        nodes = (replace(p, x=p.x + dx, y=p.y + dy) for p in self.nodes)
        frames = (replace(f, x=f.x + dx, y=f.y + dy, title_x=f.title_x + dx) for f in self.frames)
        lines = (
            replace(
                line,
                points=tuple((x + dx, y + dy) for x, y in line.points),
                label_at=(line.label_at[0] + dx, line.label_at[1] + dy) if line.label else (0, 0),
            )
            for line in self.lines
        )
        width, height = self.high[0] + dx + MARGIN, self.high[1] + dy + MARGIN
        return Picture(self.direction, width, height, tuple(nodes), tuple(frames), tuple(lines))
