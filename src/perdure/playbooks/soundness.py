"""Soundness: what the net can do when every guard may be true or false.

A search over markings, at most `MARKINGS` of them. It knows joins by their groups, as the machine does, and it counts
tokens: a marking that covers an earlier one on its own path means that tokens can pile up. A finding has its shortest
path.
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
            "undecided": f"{self.step} has more than {BRANCHES} arcs: not every set of them was tried"
            if self.step
            else f"more than {MARKINGS:,} markings: nothing is claimed",
        }[self.code]


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

    def run(self) -> list[Finding]:
        marking = Marking()
        self.net.enter(marking, self.net.entry)
        seen = {self.key(marking)}
        ahead: deque[tuple[Marking, tuple[str, ...], tuple[Counter[str], ...]]] = deque([(marking, (), ())])
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
        cut = any(code == "unbounded" for code, _ in self.found)  # then not everything was looked at
        wide = [name for name in self.steps if self.is_wide(name)]
        for name in wide:
            self.add(Finding("undecided", name))
        for name in () if cut or wide else self.steps:
            if name not in self.ran and name != self.final:
                self.add(Finding("dead-step", name))
        return sorted(self.found.values(), key=lambda each: (each.code, each.step))

    def add(self, finding: Finding) -> None:
        self.found.setdefault((finding.code, finding.step), finding)

    def counts(self, marking: Marking) -> Counter[str]:
        return Counter(token.step for token in marking.tokens.values())

    def piles_up(self, counts: Counter[str], before: tuple[Counter[str], ...], path: tuple[str, ...]) -> bool:
        for earlier in before:
            if earlier != counts and all(counts[step] >= number for step, number in earlier.items()):
                step = next(step for step in sorted(counts) if counts[step] > earlier[step])
                self.add(Finding("unbounded", step, path))
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
        for id, token in marking.tokens.items():
            if token.state != "ready":
                continue
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
