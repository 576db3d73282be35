"""Layout of trees: a sequence is a row, a choice or a parallel is a stack of rows, a repeat is a frame.

First every part says how much room it needs, from the leaves upwards. Then each part is placed. A line that waits for
its next node goes from part to part. All lines that leave a part end at one point: branches meet before the next node.
"""

from dataclasses import dataclass, replace
from typing import Final

from perdure.drawing.canvas import Canvas
from perdure.drawing.measure import LINE, label_width, text_width
from perdure.drawing.model import (
    ENDS,
    SMALL,
    Branch,
    Choice,
    Direction,
    Guarded,
    Line,
    Node,
    Parallel,
    Part,
    Picture,
    Point,
    Repeat,
    Row,
    Side,
)

GAP: Final = 32  # between two parts of a row
TURN: Final = 16  # between a node and the place where lines turn
ROWS: Final = 20  # between two rows of a stack
STEM: Final = 12  # between two stems below one node


@dataclass(frozen=True, slots=True)
class _Room:
    """A part with the room it needs: `main` along the row, `before` and `after` its line."""

    part: Part
    main: int
    before: int
    after: int
    inner: tuple["_Room", ...] = ()
    rows: tuple[int, ...] = ()  # of the inner parts that are stacked: how far below the line
    start: int = 0  # where the stacked parts begin
    end: int = 0  # where their lines meet


@dataclass(frozen=True, slots=True)
class _Open:
    """A line that waits for the node it leads to."""

    source: int
    points: tuple[Point, ...]
    label: str = ""
    label_at: Point = (0, 0)
    dashed: bool = False
    taken: bool | None = None
    side: bool = False  # leaves its node by a side branch

    def via(self, *points: Point) -> "_Open":
        return replace(self, points=self.points + points)


def tree_picture(tree: Part, direction: Direction = "LR") -> Picture:
    layout = _Layout(Canvas(direction))
    layout.place(layout.measure(tree), 0, 0, [])
    return layout.canvas.picture()


class _Layout:
    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas
        self.across = canvas.direction == "LR"
        self.frames: tuple[int, ...] = ()  # around what is placed now, outermost first

    # --- how much room -------------------------------------------------------------------------

    def measure(self, part: Part) -> _Room:
        match part:
            case Node():
                room = self.canvas.room(part)
                return _Room(part, room.main, room.before, room.after)
            case Row():
                return self._measure_row(part)
            case Choice():
                return self._measure_stack(part, part.head, None)
            case Parallel():
                return self._measure_stack(part, part.head, part.join)
            case Repeat():
                return self._measure_frame(part)
            case Guarded():
                return self._measure_guarded(part)

    def _measure_row(self, row: Row) -> _Room:
        inner = tuple(self.measure(part) for part in row.parts)
        main = sum(room.main for room in inner) + GAP * max(len(inner) - 1, 0)
        return _Room(
            row, main, max((r.before for r in inner), default=0), max((r.after for r in inner), default=0), inner
        )

    def _labelled(self, branch: Branch | Side) -> _Room:
        """A branch's row, with room for the label beside its line."""
        room = self._measure_row(branch.body)
        before, after = (LINE + 4, 4) if self.across else (4, label_width(branch.label) + 12 if branch.label else 4)
        return replace(room, before=max(room.before, before), after=max(room.after, after))

    def _label_length(self, branches: tuple[Branch, ...] | tuple[Side, ...]) -> int:
        if not any(branch.label for branch in branches):
            return 0
        return max(label_width(branch.label) for branch in branches) + 4 if self.across else LINE + 4

    def _measure_stack(self, part: Choice | Parallel, head: Node, join: Node | None) -> _Room:
        first = self.canvas.room(head)
        bodies = tuple(self._labelled(branch) for branch in part.branches)
        rows = _stacked(bodies, 0)
        if join is not None and rows:
            middle = (rows[0] + rows[-1]) // 2
            rows = tuple(row - middle for row in rows)
        start = first.main + TURN + self._label_length(part.branches) + TURN
        end = start + max((body.main for body in bodies), default=0) + TURN
        last = None if join is None else self.canvas.room(join)
        before = max([first.before, *(body.before - row for body, row in zip(bodies, rows, strict=True))])
        after = max([first.after, *(body.after + row for body, row in zip(bodies, rows, strict=True))])
        if last is None:
            return _Room(part, end, before, after, bodies, rows, start, end)
        before, after = max(before, last.before), max(after, last.after)
        return _Room(part, end + TURN + last.main, before, after, bodies, rows, start, end)

    def _measure_frame(self, repeat: Repeat) -> _Room:
        body = self._measure_row(repeat.body)
        title = min(text_width(repeat.title) + 160, 420)
        if self.across:
            return _Room(
                repeat,
                max(body.main + 40, title),
                max(body.before, 12) + 30,
                max(body.after, 12) + 10,
                (body,),
                start=20,
            )
        after = max(body.after + 20, title)
        return _Room(repeat, body.main + 64, body.before + 20, after, (body,), start=42)

    def _measure_guarded(self, part: Guarded) -> _Room:
        body = self.measure(part.body)
        sides = tuple(self._labelled(side) for side in part.sides)
        rows = _stacked(sides, body.after + ROWS // 2)
        stems = self._stems(part, body.main)
        start = max(stems, default=body.main) + self._label_length(part.sides) + TURN
        end = max([body.main, *(start + side.main for side in sides)]) + TURN
        after = max([body.after, *(side.after + row for side, row in zip(sides, rows, strict=True))])
        return _Room(part, end, body.before, after, (body, *sides), rows, start, end)

    def _stems(self, part: Guarded, main: int) -> list[int]:
        """Where lines of side branches go down: below a box, the lowest leftmost; to the right of a small shape."""
        if isinstance(part.body, Parallel) or part.body.kind in SMALL:
            return [main + TURN // 2] * len(part.sides)
        room = self.canvas.room(part.body)
        return [room.lead + room.shape - TURN - STEM * number for number in range(len(part.sides))]

    # --- where ---------------------------------------------------------------------------------

    def place(self, room: _Room, main: int, cross: int, opened: list[_Open]) -> list[_Open]:
        """Draw a part that begins at `main` on the line `cross`; the lines that leave it."""
        match room.part:
            case Node():
                opened = self._place_node(room.part, main, cross, opened)
            case Row():
                for inner in room.inner:
                    opened = self.place(inner, main, cross, opened)
                    main += inner.main + GAP
            case Choice():
                opened = self._place_stack(room, room.part, main, cross, opened)
            case Parallel():
                opened = self._place_stack(room, room.part, main, cross, opened)
                opened = self._place_node(room.part.join, main + room.end + TURN, cross, opened)
            case Repeat():
                around = self.frames
                sides = (room.before, room.after)
                self.frames += (self.canvas.add_frame(room.part, main, cross, room.main, sides),)
                opened = self.place(room.inner[0], main + room.start, cross, opened)
                self.frames = around
            case Guarded():
                opened = self._place_guarded(room, room.part, main, cross, opened)
        return opened

    def _place_node(self, node: Node, main: int, cross: int, opened: list[_Open]) -> list[_Open]:
        room = self.canvas.room(node)
        number = self.canvas.add_node(node, main, cross, self.frames)
        for line in opened:
            source = self.canvas.nodes[line.source].node
            left = source.reached if line.side else source.state in ("done", "undone")
            went = left and node.reached and line.taken is not False
            points = (*line.points, (main + room.lead, cross))
            self.canvas.add_line(Line(line.source, number, points, line.label, line.label_at, line.dashed, went))
        return [] if node.kind in ENDS else [_Open(number, ((main + room.lead + room.shape, cross),))]

    def _place_stack(
        self, room: _Room, part: Choice | Parallel, main: int, cross: int, opened: list[_Open]
    ) -> list[_Open]:
        ways = self._place_node(part.head, main, cross, opened)
        turn = main + self.canvas.room(part.head).main + TURN
        left: list[_Open] = []
        for branch, body, row in zip(part.branches, room.inner, room.rows, strict=True):
            at = (turn + 4, cross + row) if self.across else (turn + LINE - 2, cross + row)
            for way in ways:
                line = replace(way, label=branch.label, label_at=at, taken=branch.taken).via(
                    (turn, cross), (turn, cross + row)
                )
                ends = self.place(body, main + room.start, cross + row, [line])
                left += [end.via((main + room.end, cross + row), (main + room.end, cross)) for end in ends]
        return left

    def _place_guarded(self, room: _Room, part: Guarded, main: int, cross: int, opened: list[_Open]) -> list[_Open]:
        body, *sides = room.inner
        left = self.place(body, main, cross, opened)
        source = len(self.canvas.nodes) - 1
        for side, inner, row, stem in zip(part.sides, sides, room.rows, self._stems(part, body.main), strict=True):
            points = (*self._side_begin(source, main + stem, cross), (main + stem, cross + row))
            at = (main + stem + (6 if self.across else LINE), cross + row)
            line = _Open(source, points, side.label, at, dashed=True, side=True)
            ends = self.place(inner, main + room.start, cross + row, [line])
            if side.joins:
                meet = ((main + room.end, cross + row), (main + room.end, cross))
                left += [replace(end, dashed=True).via(*meet) for end in ends]
        return left

    def _side_begin(self, source: int, stem: int, cross: int) -> tuple[Point, ...]:
        """Where a side branch leaves its node: below a box, or on the main line behind a small shape."""
        placed = self.canvas.nodes[source]
        room = self.canvas.room(placed.node)
        if placed.node.kind not in SMALL:
            return ((stem, cross + room.half),)
        return (((placed.x if self.across else placed.y) + room.shape, cross), (stem, cross))


def _stacked(rooms: tuple[_Room, ...], top: int) -> tuple[int, ...]:
    """How far below the line each row is: the first on it (`top` is 0), or all below `top`."""
    rows: list[int] = []
    below = top
    for number, room in enumerate(rooms):
        row = 0 if number == 0 and top == 0 else below + room.before
        rows.append(row)
        below = row + room.after + ROWS
    return tuple(rows)
