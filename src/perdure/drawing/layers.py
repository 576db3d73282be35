"""Layout of free graphs in layers: cycles cut, layers, crossings reduced in a fixed number of sweeps, rows, tracks.

The steps are those of Sugiyama; `rows.py` has the coordinates across the layers. A long edge is a chain of *bends*, one
a layer. An edge that leads back runs beside the nodes from its source's layer to its target's; one more bend before and
one behind keep room for its turns. A label is the first bend of its edge, so it has room of its own. Vertical pieces
(in "LR") lie on tracks between the layers, horizontal pieces in rows that no node touches: an edge cannot cross a node.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

from perdure.drawing.canvas import Canvas
from perdure.drawing.measure import LINE, label_width
from perdure.drawing.model import Direction, Edge, Graph, Line, Node, Picture, Point
from perdure.drawing.rows import Item, Rows, settle

DETOUR: Final = 12  # from a row; no multiple of GRID, so no item has that row
TRACK: Final = 12  # between two tracks
SWEEPS: Final = 8
SWEEPS_LARGE: Final = 3  # with more items than
LARGE: Final = 6000


@dataclass(slots=True)
class _Net:
    """Lines between two layers that share a track: all that leave one node, or one piece of another edge."""

    start: int  # row that decides the order of tracks
    left: set[int] = field(default_factory=set)  # rows of its ends in the layer before
    right: set[int] = field(default_factory=set)
    track: int = 0
    detours: dict[int, tuple[int, "_Net"]] = field(default_factory=dict)  # row: the row beside it, the net from there
    waits: int = 0

    @property
    def straight(self) -> bool:
        return len(self.left | self.right) == 1


_Piece = tuple[int, int, int, "_Net"]  # of an edge: channel, row it comes from, row it goes to, its net


def graph_picture(graph: Graph, direction: Direction = "LR") -> Picture:
    layout = _Layout(graph, Canvas(direction))
    return layout.picture()


def _numbered(graph: Graph) -> tuple[list[Node], list[tuple[int, int, Edge]]]:
    """Nodes with the start markers, and edges by the numbers of their ends."""
    known = {node.location: number for number, node in enumerate(graph.nodes)}
    if len(known) != len(graph.nodes):
        raise ValueError("two nodes of the graph have one location; give each node its own")
    for name in [*(end for edge in graph.edges for end in (edge.source, edge.target)), *graph.entries]:
        if name not in known:
            raise ValueError(f"an edge or entry of the graph names {name!r}; no node has this location")
    nodes = list(graph.nodes)
    edges = []
    for entry in graph.entries:
        reached = graph.nodes[known[entry]].reached
        edges.append((len(nodes), known[entry], Edge("", entry, went=reached)))
        nodes.append(Node("start", "start", state="done" if reached else None))
    return nodes, edges + [(known[edge.source], known[edge.target], edge) for edge in graph.edges]


class _Layout:
    def __init__(self, graph: Graph, canvas: Canvas) -> None:
        self.canvas = canvas
        self.nodes, self.edges = _numbered(graph)
        self.items: list[Item] = []
        self.layers: list[list[int]] = []
        self.chains: list[list[int]] = []  # of each edge: its bends, from source to target
        self.turns: set[int] = set()  # bends that keep room for the turns of edges that lead back
        self.labels: dict[int, int] = {}  # edge: the bend that carries its label

    def picture(self) -> Picture:
        back = _back_edges(len(self.nodes), [(s, t) for s, t, _ in self.edges])
        self._fill(
            _assign_layers(len(self.nodes), [(s, t) for n, (s, t, _) in enumerate(self.edges) if n not in back]), back
        )
        self._reduce_crossings()
        for item, row in zip(self.items, Rows(self.items, self.layers).rows(), strict=True):
            item.row = row
        self._drop_turns()
        if len(self.items) <= LARGE:
            settle(
                self.items,
                self.layers,
                [[s, *self.chains[n], t] for n, (s, t, _) in enumerate(self.edges)],
                sorted(back),
            )
        self._draw(back)
        return self.canvas.picture()

    # --- items ---------------------------------------------------------------------------------

    def _fill(self, layer_of: list[int], back: set[int]) -> None:
        """Make an item of each node and each bend. Short edges with labels get one more layer for them."""
        gaps = {
            layer_of[s]
            for n, (s, t, e) in enumerate(self.edges)
            if e.label and n not in back and layer_of[t] - layer_of[s] == 1
        }
        extra = [0]
        for gap in range(max(layer_of, default=0)):
            extra.append(extra[-1] + (gap in gaps))
        for number, node in enumerate(self.nodes):
            room = self.canvas.room(node)
            layer = 1 + layer_of[number] + extra[layer_of[number]]
            self.items.append(Item(layer, room.before, room.after, room.main, number))
        for number, (source, target, edge) in enumerate(self.edges):
            low, high = self.items[source].layer, self.items[target].layer
            if number in back:
                bends = [self._bend(layer) for layer in range(low + 1, high - 2, -1)]
                self._link(source, bends[0])
                for late, early in pairwise(bends):
                    self._link(early, late)
                self._link(bends[-1], target)
                chain = bends[1:-1]
                self.turns |= {bends[0], bends[-1]}
            else:
                chain = [self._bend(layer) for layer in range(low + 1, high)]
                for early, late in pairwise([source, *chain, target]):
                    self._link(early, late)
            self.chains.append(chain)
            if edge.label:
                self.labels[number] = chain[0]
                item, width = self.items[chain[0]], label_width(edge.label)
                item.before, item.after, item.main = (
                    (LINE + 4, 4, width + 8) if self.canvas.direction == "LR" else (4, width + 16, LINE)
                )
        self.layers = [[] for _ in range(2 + max((item.layer for item in self.items), default=0))]

    def _bend(self, layer: int) -> int:
        self.items.append(Item(layer))
        return len(self.items) - 1

    def _link(self, early: int, late: int) -> None:
        self.items[early].down.append(late)
        self.items[late].up.append(early)

    # --- order in layers -----------------------------------------------------------------------

    def _reduce_crossings(self) -> None:
        """Sort each layer by where its neighbours are, forth and back; keep the order with the fewest crossings."""
        self._first_order()
        best, fewest = [list(layer) for layer in self.layers], self._crossings()
        for sweep in range(SWEEPS if len(self.items) <= LARGE else SWEEPS_LARGE):
            if not fewest:
                break
            down = sweep % 2 == 0
            for layer in self.layers if down else reversed(self.layers):
                self._sort(layer, down)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(layer) for layer in self.layers], crossings
        self.layers = best
        self._number()

    def _first_order(self) -> None:
        """Depth first from the first layers, so that what hangs together lies together."""
        seen = [False] * len(self.items)
        for first in sorted(range(len(self.items)), key=lambda n: self.items[n].layer):
            stack = [first]
            while stack:
                number = stack.pop()
                if not seen[number]:
                    seen[number] = True
                    self.layers[self.items[number].layer].append(number)
                    stack += reversed(self.items[number].down)
        self._number()

    def _number(self) -> None:
        for layer in self.layers:
            for place, number in enumerate(layer):
                self.items[number].place = place

    def _sort(self, layer: list[int], down: bool) -> None:
        keys = {}
        for place, number in enumerate(layer):
            item = self.items[number]
            near = item.up if down else item.down
            keys[number] = sum(self.items[n].place for n in near) * 64 // len(near) if near else place * 64
        layer.sort(key=keys.__getitem__)
        for place, number in enumerate(layer):
            self.items[number].place = place

    def _crossings(self) -> int:
        total = 0
        for layer in self.layers:
            seen: list[int] = []
            for number in layer:
                ends = sorted(self.items[n].place for n in self.items[number].down)
                for end in ends:
                    total += len(seen) - bisect_right(seen, end)
                for end in ends:
                    seen.insert(bisect_right(seen, end), end)
        return total

    def _drop_turns(self) -> None:
        """The turns have shaped the order; they are drawn on tracks, so their room in the layers is free again."""
        self.layers = [[number for number in layer if number not in self.turns] for layer in self.layers]
        self._number()

    # --- tracks --------------------------------------------------------------------------------

    def _draw(self, back: set[int]) -> None:
        pieces, channels = self._pieces(back)
        starts, ends, main = [], [], 0  # of each layer
        for number, layer in enumerate(self.layers):
            starts.append(main)
            ends.append(main + max((self.items[n].main for n in layer), default=0))
            tracks = _lay_tracks(channels[number])
            main = ends[-1] + (40 + TRACK * max(tracks - 1, 0) if channels[number] else 0)
        for number, node in enumerate(self.nodes):
            self.canvas.add_node(node, starts[self.items[number].layer], self.items[number].row)
        for number, (source, target, edge) in enumerate(self.edges):
            line = [self._port(source, starts, leaving=True)]
            for channel, come, go, net in pieces[number]:
                line += _through(net, come, go, ends[channel] + 4)
            line.append(self._port(target, starts, leaving=False))
            at = (0, 0)
            if number in self.labels:
                item = self.items[self.labels[number]]
                at = (starts[item.layer] + (4 if self.canvas.direction == "LR" else LINE // 2), item.row)
            self.canvas.add_line(Line(source, target, tuple(line), edge.label, at, edge.dashed, edge.went))

    def _port(self, number: int, starts: list[int], leaving: bool) -> Point:
        room = self.canvas.room(self.nodes[number])
        item = self.items[number]
        return starts[item.layer] + room.lead + (room.shape if leaving else 0), item.row

    def _pieces(self, back: set[int]) -> tuple[list[list[_Piece]], list[list[_Net]]]:
        """Each edge as pieces between two layers, and the nets of each channel. Channel n lies behind layer n."""
        channels: list[list[_Net]] = [[] for _ in self.layers]
        leaving: dict[int, _Net] = {}
        pieces: list[list[_Piece]] = []
        for number, (source, target, _) in enumerate(self.edges):
            mine: list[_Piece] = []
            way = [source, *self.chains[number], target]
            for early, late in pairwise(way):
                come, go = self.items[early].row, self.items[late].row
                net = leaving.get(early) if early == source else None
                if net is None:
                    net = _Net(come)
                    if early == source:
                        leaving[source] = net
                first, last = early == source, late == target
                channel = self.items[late].layer - (0 if number in back and not last else 1)
                if net.track == 0:
                    channels[channel].append(net)
                    net.track = 1
                (net.right if number in back and not first else net.left).add(come)
                (net.left if number in back and not last else net.right).add(go)
                mine.append((channel, come, go, net))
            pieces.append(mine)
        return pieces, channels


def _through(net: _Net, come: int, go: int, main: int) -> list[Point]:
    """The turns of one piece in its channel, whose first track is at `main` + TRACK."""
    if come == go:
        return []
    x = main + TRACK * net.track
    if go not in net.detours:
        return [(x, come), (x, go)]
    beside, other = net.detours[go]
    y = main + TRACK * other.track
    return [(x, come), (x, beside), (y, beside), (y, go)]


def _lay_tracks(nets: list[_Net]) -> int:
    """Give each net of a channel a track, such that no two lie on each other; how many tracks.

    Where one net leaves a row to the left and another reaches the same row at the right, the first one needs the
    earlier track. Nets that wait for each other in a circle are parted by a detour beside the row.
    """
    moving = [net for net in nets if not net.straight]
    owner = {row: net for net in moving for row in net.left}
    followers: dict[int, list[_Net]] = {}
    for net in moving:
        for row in sorted(net.right):
            if owner.get(row, net) is not net:
                followers.setdefault(id(owner[row]), []).append(net)
                net.waits += 1
    numbers = {id(net): number for number, net in enumerate(moving)}
    rows = sorted({row + d for net in moving for row in net.left | net.right for d in (-DETOUR, 0, DETOUR)})
    index = {row: number for number, row in enumerate(rows)}
    sky = [0] * len(rows)
    left = {id(net): net for net in moving}
    ready = [(_order(net), numbers[id(net)]) for net in moving if not net.waits]
    everyone = list(moving)
    by_order = sorted((_order(net), numbers[id(net)]) for net in moving)
    cursor = 0
    heapify(ready)
    while left:
        if not ready:
            while id(everyone[by_order[cursor][1]]) not in left:
                cursor += 1
            stuck = everyone[by_order[cursor][1]]
            for row in sorted(stuck.right):
                before = owner.get(row, stuck)
                if before is not stuck and id(before) in left:
                    beside = row + (DETOUR if stuck.start > row else -DETOUR)
                    other = _Net(beside, right={beside, row}, waits=1)
                    stuck.detours[row] = (beside, other)
                    followers[id(before)].append(other)
                    numbers[id(other)] = len(everyone)
                    everyone.append(other)
                    left[id(other)] = other
            ready = [(_order(stuck), numbers[id(stuck)])]
        net = everyone[heappop(ready)[1]]
        if left.pop(id(net), None) is None:
            continue
        spans = {net.detours[row][0] if row in net.detours else row for row in net.left | net.right}
        low, high = index[min(spans)], index[max(spans)] + 1
        net.track = 1 + max(sky[low:high])
        sky[low:high] = [net.track] * (high - low)
        for follower in followers.get(id(net), []):
            follower.waits -= 1
            if not follower.waits and id(follower) in left:
                heappush(ready, (_order(follower), numbers[id(follower)]))
    return max(sky, default=0)


def _order(net: _Net) -> int:
    """Lines that go down take their tracks from the lowest on, lines that go up from the highest: fewest crossings."""
    rows = net.left | net.right
    return -net.start if max(rows) - net.start > net.start - min(rows) else net.start


def _back_edges(count: int, edges: list[tuple[int, int]]) -> set[int]:
    """The numbers of the edges that close a cycle, found depth first from the nodes that nothing leads to."""
    out: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    entered = [False] * count
    for number, (source, target) in enumerate(edges):
        out[source].append((target, number))
        entered[target] = entered[target] or source != target
    back: set[int] = set()
    state = [0] * count  # 1: on the way, 2: left
    for first in sorted(range(count), key=entered.__getitem__):
        if state[first]:
            continue
        state[first] = 1
        stack = [(first, iter(out[first]))]
        while stack:
            node, rest = stack[-1]
            for target, number in rest:
                if state[target] == 1:
                    back.add(number)
                elif state[target] == 0:
                    state[target] = 1
                    stack.append((target, iter(out[target])))
                    break
            else:
                state[node] = 2
                stack.pop()
    return back


def _assign_layers(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Longest path from the start; then nodes with more edges out than in move towards their targets."""
    out: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for source, target in edges:
        out[source].append(target)
        missing[target] += 1
    entering = list(missing)
    order = [node for node in range(count) if not missing[node]]
    layer = [0] * count
    for node in order:
        for target in out[node]:
            layer[target] = max(layer[target], layer[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    for node in reversed(order):
        if len(out[node]) > entering[node]:
            layer[node] = min(layer[target] for target in out[node]) - 1
    return layer
