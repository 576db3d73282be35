"""Soundness: what the net can do when every guard may be true or false.

A search over markings, at most `MARKINGS` of them. It knows joins by their groups, as the machine does, and it counts
tokens: a marking that covers an earlier one on its own path means that tokens can pile up. That is `unbounded` if the
tokens that are more can go round again themselves. If they only wait at a join for the end of a cycle, the net is
`undecided`. Tokens that lead to no join and to no cycle end by themselves: they go first, in one order. A finding has
its shortest path.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import combinations
from typing import Final

import msgspec

from .model import Playbook, Step, net_of
from .net import Marking, Net

MARKINGS: Final = 50_000
BRANCHES: Final = 6
"""Arcs of a split beyond which only all of them, and each alone, are tried: then the net is undecided."""

Held = Counter[tuple[str, bool]]
"""How many tokens are at a step, and whether they wait there for a join."""


class Finding(msgspec.Struct, frozen=True):
    """`path` is the steps that ran before, in their order."""

    code: str  # unbounded dead-step runs-twice join-short undecided
    step: str
    path: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        way = f" after {' -> '.join(self.path)}" if self.path else ""
        return {
            "unbounded": f"tokens at {self.step} can pile up without a bound{way}",
            "dead-step": f"{self.step} can never run",
            "runs-twice": f"{self.step} can run for two tokens of one split{way}",
            "join-short": f"the join {self.step} can get fewer tokens than it needs{way}",
            "undecided": self._undecided,
        }[self.code]

    @property
    def _undecided(self) -> str:
        if self.path:
            return f"tokens at {self.step} wait for a join while a cycle goes on, after {' -> '.join(self.path)}"
        if self.step:
            return f"{self.step} has more than {BRANCHES} arcs: not every set of them was tried"
        return f"more than {MARKINGS:,} markings: nothing is claimed"


def findings(playbook: Playbook, budget: int = MARKINGS) -> list[Finding]:
    """What can go wrong in some order of events."""
    return _Search(playbook, budget).run()


class _Search:
    def __init__(self, playbook: Playbook, budget: int) -> None:
        self.net: Net = net_of(playbook)
        self.steps: dict[str, Step] = {step.name: step for step in playbook.steps}
        self.final = playbook.settings.final_step
        self.budget = budget
        self.found: dict[tuple[str, str], Finding] = {}
        self.ran: set[str] = set()
        joins = self.net.joins
        self.free: Net = Net(self.net.steps, {at: () if at in joins else to for at, to in self.net.arcs.items()})
        """The net up to its joins: where a token comes without being one of several that become one."""
        ends = [at for at in self.net.steps if self.ends(at)]
        self.order = {at: len(self.net.reach(at)) for at in ends}
        """The steps whose tokens end by themselves. A step reaches more of them than those behind it."""

    def run(self) -> list[Finding]:
        marking = Marking()
        self.net.enter(marking, self.net.entry)
        seen = {self.key(marking)}
        ahead: deque[tuple[Marking, tuple[str, ...], tuple[Held, ...]]] = deque([(marking, (), ())])
        while ahead:
            marking, path, before = ahead.popleft()
            counts = self.counts(marking)
            if self.piles_up(counts, before, path):
                continue
            for after, step in self.moves(marking, path):
                key = self.key(after)
                if key in seen:
                    continue
                seen.add(key)
                if len(seen) > self.budget:
                    return [Finding("undecided", "")]
                ahead.append((after, (*path, step), (*before[-40:], counts)))
        cut = any(code in ("unbounded", "undecided") for code, _ in self.found)  # then not everything was looked at
        wide = [name for name in self.steps if self.is_wide(name)]
        for name in wide:
            self.add(Finding("undecided", name))
        for name in () if cut or wide else self.steps:
            if name not in self.ran and name != self.final:
                self.add(Finding("dead-step", name))
        return sorted(self.found.values(), key=lambda each: (each.code, each.step))

    def add(self, finding: Finding) -> None:
        self.found.setdefault((finding.code, finding.step), finding)

    def counts(self, marking: Marking) -> Held:
        tokens = [token for token in marking.tokens.values() if token.step not in self.order]
        return Counter((token.step, token.state == "joining") for token in tokens)

    def ends(self, step: str) -> bool:
        """Whether a token at a step comes to its end without a join and without a cycle."""
        near = {step, *self.net.reach(step)}
        return not near & self.net.joins.keys() and not any(at in self.net.reach(at) for at in near)

    def piles_up(self, counts: Held, before: tuple[Held, ...], path: tuple[str, ...]) -> bool:
        for back, earlier in enumerate(reversed(before), 1):
            if earlier != counts and all(counts[at] >= number for at, number in earlier.items()):
                more = sorted({at[0] for at in counts if counts[at] > earlier[at]})
                round_ = set(path[-back:])
                again = [
                    step for step in more if step not in self.net.joins and {step, *self.free.reach(step)} & round_
                ]
                self.add(Finding("unbounded", again[0], path) if again else Finding("undecided", more[0], path))
                return True
        return False

    def moves(self, marking: Marking, path: tuple[str, ...]) -> Iterator[tuple[Marking, str]]:
        groups = self.net.ready_groups(marking)
        if not groups and (blocked := self.net.blocked_group(marking)) is not None:
            groups = [blocked]
        for group in groups[:1]:  # the machine fires joins at once
            after = _copy(marking)
            mine = msgspec.structs.replace(group, arrived=tuple(after.tokens[token.id] for token in group.arrived))
            if group.short:
                self.add(Finding("join-short", group.step, path))
            self.net.fire(after, mine)
            yield after, group.step
        if groups:
            return
        ready = [(id, token) for id, token in marking.tokens.items() if token.state == "ready"]
        ending = [each for each in ready if each[1].step in self.order]
        for id, token in [max(ending, key=lambda each: self.order[each[1].step])] if ending else ready:
            self.ran.add(token.step)
            self.twice(marking, token.id, path)
            for targets in self.targets(token.step):
                after = _copy(marking)
                self.net.route(after, after.tokens[id], targets)
                yield after, token.step

    def twice(self, marking: Marking, id: int, path: tuple[str, ...]) -> None:
        token = marking.tokens[id]
        if self.steps[token.step].join is not None or not token.generations:
            return
        for other in marking.tokens.values():
            if other.id != id and other.step == token.step and set(other.generations) & set(token.generations):
                self.add(Finding("runs-twice", token.step, path))

    def is_wide(self, name: str) -> bool:
        """Whether a split has more sets of arcs than are tried."""
        router = self.steps[name].next
        if router is None or router.mode == "exclusive":
            return False
        return len(router.arcs) > BRANCHES and sum(arc.when is not None for arc in router.arcs) > 1

    def targets(self, name: str) -> Iterator[tuple[str, ...]]:
        """The sets of arcs that a run may follow: none, one of them, or several."""
        router = self.steps[name].next
        arcs = [] if router is None else [arc.step for arc in router.arcs]
        sure = router is not None and any(arc.when is None for arc in router.arcs)
        if not sure or router is None:
            yield ()
        if router is None or router.mode == "exclusive":
            yield from ((arc,) for arc in dict.fromkeys(arcs))
            return
        sizes = range(1, len(arcs) + 1) if len(arcs) <= BRANCHES else (1, len(arcs))
        must = Counter(arc.step for arc in router.arcs if arc.when is None and arc.on != "failed")
        for size in sizes:
            for chosen in combinations(arcs, size):
                if not must - Counter(chosen):
                    yield chosen

    def key(self, marking: Marking) -> object:
        """Markings that differ in numbers alone are one."""
        names: dict[int, int] = {}
        tokens = []
        for token in sorted(marking.tokens.values(), key=lambda each: (each.step, each.state, each.generations)):
            generations = tuple(names.setdefault(number, len(names)) for number in token.generations)
            tokens.append((token.step, token.state, generations))
        return tuple(sorted(tokens))


def _copy(marking: Marking) -> Marking:
    return Marking(
        {id: msgspec.structs.replace(token) for id, token in marking.tokens.items()},
        {number: msgspec.structs.replace(each, fired=list(each.fired)) for number, each in marking.generations.items()},
        marking.made,
        marking.opened,
        dict(marking.joining),
    )
