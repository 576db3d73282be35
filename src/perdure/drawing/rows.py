"""The rows of a layered graph: where each node and bend lies across the layers. The other steps are in `layers.py`."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

GRID: Final = 8  # rows lie on multiples of it
JOG: Final = 40  # a smaller step in a line is taken out if there is room


@dataclass(slots=True)
class Item:
    """A node (`number` in the graph) or a bend of an edge, in a layer."""

    layer: int
    before: int = 4
    after: int = 4
    main: int = 0
    number: int | None = None
    up: list[int] = field(default_factory=list)  # neighbours in the layer before
    down: list[int] = field(default_factory=list)
    place: int = 0  # in its layer
    row: int = 0


def _distance(upper: Item, lower: Item) -> int:
    """The least distance of two neighbours in a layer."""
    gap = 16 if upper.number is None or lower.number is None else 24
    return -(-(upper.after + lower.before + gap) // GRID) * GRID


class Rows:
    """The row of each item, by Brandes and Köpf: four extreme alignments, and the middle of them.

    An alignment makes blocks of items that lie on one row, along the middle neighbours; pieces between two bends come
    first, so a long edge is straight. Then blocks move together as near as their neighbours let them.
    """

    def __init__(self, items: list[Item], layers: list[list[int]]) -> None:
        self.items, self.layers = items, layers
        self.distance = {
            lower: _distance(items[upper], items[lower]) for layer in layers for upper, lower in pairwise(layer)
        }  # from the item above it in its layer
        self.refused = self._conflicts()

    def rows(self) -> list[int]:
        found = [self._compact(*self._align(down, left), left) for down in (True, False) for left in (True, False)]
        if not self.items:
            return []
        widths = [max(rows) - min(rows) for rows in found]
        narrow = found[widths.index(min(widths))]
        for number, rows in enumerate(found):
            shift = min(narrow) - min(rows) if number % 2 == 0 else max(narrow) - max(rows)
            found[number] = [row + shift for row in rows]
        middle = (sorted(four)[1:3] for four in zip(*found, strict=True))
        return [(low + high) // (2 * GRID) * GRID for low, high in middle]

    def _conflicts(self) -> set[tuple[int, int]]:
        """Pieces that cross a piece between two bends: they are not made straight."""
        items, refused = self.items, set()
        for upper, lower in pairwise(self.layers):
            low = begin = 0
            for place, number in enumerate(lower):
                inner = [n for n in items[number].up if items[n].number is None] if items[number].number is None else []
                if not inner and place < len(lower) - 1:
                    continue
                high = items[inner[0]].place if inner else len(upper)
                for other in lower[begin : place + 1]:
                    for near in items[other].up:
                        outer = items[near].number is not None or items[other].number is not None
                        if outer and not low <= items[near].place <= high:
                            refused.add((near, other))
                begin, low = place + 1, high
        return refused

    def _align(self, down: bool, left: bool) -> tuple[list[int], list[list[int]]]:
        """Blocks: of each item the first item of its block; and the layers as they were gone through."""
        items = self.items
        first, following = list(range(len(items))), list(range(len(items)))
        layers = [layer if left else layer[::-1] for layer in self.layers]
        for layer in layers if down else layers[::-1]:
            limit = -1 if left else len(items)
            for number in layer:
                near = sorted(items[number].up if down else items[number].down, key=lambda n: items[n].place)
                for middle in ((len(near) - 1) // 2, len(near) // 2)[:: 1 if left else -1] if near else ():
                    other = near[middle]
                    pair = (other, number) if down else (number, other)
                    place = items[other].place
                    if (
                        following[number] == number
                        and pair not in self.refused
                        and (limit < place if left else place < limit)
                    ):
                        following[other] = number
                        first[number] = following[number] = first[other]
                        limit = place
        return first, layers

    def _compact(self, first: list[int], layers: list[list[int]], left: bool) -> list[int]:
        """Rows of the blocks: as near to the first side as possible, then towards the neighbours behind."""
        after: dict[int, list[tuple[int, int]]] = {}
        missing = [0] * len(first)
        for layer in layers:
            for one, two in pairwise(layer):
                after.setdefault(first[one], []).append((first[two], self.distance[two if left else one]))
                missing[first[two]] += 1
        order = [number for number in range(len(first)) if first[number] == number and not missing[number]]
        row = [0] * len(first)
        for block in order:
            for other, distance in after.get(block, ()):
                row[other] = max(row[other], row[block] + distance)
                missing[other] -= 1
                if not missing[other]:
                    order.append(other)
        for block in reversed(order):
            if block in after:
                row[block] = max(row[block], min(row[other] - distance for other, distance in after[block]))
        return [row[block] if left else -row[block] for block in first]


def settle(items: list[Item], layers: list[list[int]], ways: list[list[int]], back: list[int]) -> None:
    """Take small steps out of lines, and pull edges that lead back near to the nodes beside them.

    What lies on one row and hangs together moves together, so no straight line is broken.
    """
    near: dict[int, list[int]] = {}
    for way in ways:
        for one, two in pairwise(way):
            near.setdefault(one, []).append(two)
            near.setdefault(two, []).append(one)

    def block(number: int) -> list[int]:
        found, seen = [number], {number}
        for one in found:
            for other in near.get(one, ()):
                if (
                    other not in seen
                    and items[other].row == items[number].row
                    and items[other].layer != items[one].layer
                ):
                    seen.add(other)
                    found.append(other)
        return found

    def room(moving: list[int], down: bool) -> int | None:
        """How far a block can move; None: nothing is in the way."""
        inside, least = set(moving), None
        for number in moving:
            layer, place = layers[items[number].layer], items[number].place + (1 if down else -1)
            if 0 <= place < len(layer) and layer[place] not in inside:
                upper, lower = (number, layer[place]) if down else (layer[place], number)
                free = items[lower].row - items[upper].row - _distance(items[upper], items[lower])
                least = free if least is None else min(least, free)
        return least

    def move(number: int, by: int, wholly: bool) -> bool:
        moving = block(number)
        free = room(moving, by > 0)
        far = abs(by) if free is None else min(abs(by), free)
        if far <= 0 or (wholly and far < abs(by)):
            return False
        for one in moving:
            items[one].row += far if by > 0 else -far
        return True

    for number in back:
        source, first, *_, target = ways[number]
        ends = (items[source].row, items[target].row)
        row = items[first].row
        if row < min(ends):
            move(first, min(ends) - row, False)
        elif row > max(ends):
            move(first, max(ends) - row, False)
    for way in ways:
        for one, two in pairwise(way):
            step = items[one].row - items[two].row
            if 0 < abs(step) <= JOG and items[one].layer != items[two].layer and not move(two, step, True):
                move(one, -step, True)
