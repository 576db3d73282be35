"""Who may begin: dependencies with their policies, and the run queue. No layers: a node is ready in the entry whose
receipt met its policy.

Each edge is looked at twice: when it is added, and when its dependency ends.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from .model import Policy
from .state import Group, NodeState, Run, State

HEIGHT_BITS: Final = 40
"""Of a number that has the length of a path above a place in the queue."""

Answer = Literal["met", "never", "out"]
"""Of one dependency that has ended: fine, it can no longer be met, or a choice has left it out."""


def policy_of(node: NodeState, name: str) -> Policy:
    return node.the.needs.get(name, "all_success")


def answer(dependency: NodeState, policy: Policy) -> Answer:
    """What the end of a dependency means under a policy."""
    if dependency.outcome == "skipped" and dependency.reason == "not_chosen":
        return "out"
    good = {
        "all_success": ("completed",),
        "any_success": ("completed",),
        "accept_partial": ("completed", "partial"),
    }.get(policy)
    return "met" if good is None or dependency.outcome in good else "never"


class Dependencies:
    """Who waits for whom. Made from the nodes; a snapshot does not hold it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dependents: dict[str, list[str]] = {}
        for node in state.nodes.values():
            if node.status == "blocked":
                self._remember(node)

    def _remember(self, node: NodeState) -> None:
        for _, name in node.the.after:
            self._dependents.setdefault(name, []).append(node.name)

    def of(self, name: str) -> list[str]:
        return self._dependents.get(name, [])

    def link(self, node: NodeState) -> None:
        """Count what a new node waits for. What has ended already counts at once."""
        self._remember(node)
        self.count(node)

    def count(self, node: NodeState) -> None:
        nodes = self._state.nodes
        node.missing = node.any_left = node.any_in = node.others = 0
        node.any_met = node.doomed = False
        for _, name in node.the.after:
            policy = policy_of(node, name)
            node.others += 1
            if policy == "any_success":
                node.any_left += 1
                node.any_in += 1
            elif policy != "optional":
                node.missing += 1
        for _, name in node.the.after:
            if nodes[name].status == "ended":
                self.ended(node, nodes[name])

    def ended(self, node: NodeState, dependency: NodeState) -> None:
        """Count the end of one dependency."""
        policy = policy_of(node, dependency.name)
        found = answer(dependency, policy)
        node.others -= found == "out"
        if policy == "any_success":
            node.any_left -= 1
            node.any_in -= found == "out"
            node.any_met = node.any_met or found == "met"
        elif policy != "optional":
            node.missing -= 1
            node.doomed = node.doomed or found == "never"

    def verdict(self, node: NodeState) -> Literal["ready", "wait", "upstream", "not_chosen"]:
        """What a blocked node may do now."""
        if node.others == 0 and node.the.after:
            return "not_chosen"
        if node.doomed or (node.any_in and not node.any_met and not node.any_left):
            return "upstream"
        if node.missing or (node.any_in and not node.any_met):
            return "wait"
        return "ready"


def push(state: State, node: NodeState) -> None:
    """Put a node at the end of those of its priority."""
    state.ready_count += 1
    turn = state.ready_count - (node.height << HEIGHT_BITS)
    heapq.heappush(state.queue, (-node.the.priority, turn, node.index, node.name))


def measure(state: State, nodes: Sequence[NodeState]) -> None:
    """The longest path behind each of a batch, at the cost of its edges: of older nodes only those next to it."""
    batch = {node.name for node in nodes}
    behind: Counter[str] = Counter(name for node in nodes for _, name in node.the.after if name in batch)
    ahead = [node for node in nodes if not behind[node.name]]
    while ahead:
        node = ahead.pop()
        for _, name in node.the.after:
            before = state.nodes[name]
            before.height = max(before.height, node.height + 1)
            behind[name] -= 1
            if name in batch and not behind[name]:
                ahead.append(before)


def pop(state: State) -> str:
    return heapq.heappop(state.queue)[3]


# ---- places ----------------------------------------------------------------------------------------------------------


def groups_of(state: State, node: NodeState) -> Iterator[Group]:
    """The submitted graphs with a limit for places that a node belongs to, from the innermost one on."""
    number = node.group
    while number >= 0:
        group = state.groups[number]
        yield group
        number = group.parent


def take_place(state: State, node: NodeState, run: Run) -> None:
    run.place = True
    state.running += 1
    for group in groups_of(state, node):
        group.running += 1


def give_place_back(state: State, node: NodeState, run: Run) -> None:
    if run.place:
        run.place = False
        state.running -= 1
        for group in groups_of(state, node):
            group.running -= 1
        unpark(state, node)


def park(state: State, full: Group) -> None:
    """The first of the queue waits for a place of its group. What stands behind it does not wait for that."""
    heapq.heappush(full.parked, heapq.heappop(state.queue))


def unpark(state: State, node: NodeState) -> None:
    """Where groups of a node have a place, the next one that waits for it is in the queue again, where it stood."""
    for group in groups_of(state, node):
        if group.parked and group.running < group.limit:
            heapq.heappush(state.queue, heapq.heappop(group.parked))
