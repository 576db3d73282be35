"""The state of one running graph: plain values that a snapshot holds. Only a turn changes them (`turn.py`)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from perdure.codec import decode, encode

from .bracket import Round
from .model import AXES, NodeSpec

NodeStatus = Literal["blocked", "ready", "open", "ended"]
RequestStatus = Literal["called", "rated", "backoff", "asked", "waits", "step", "held", "answered"]
"""`called`: a tool runs. `rated`: it waits for its time. `backoff`: it is tried again later. `asked`: a person is
asked. `waits`: for nodes. `step`: the run itself performs it. `held`: the answer is there, and the run waits for a
place to hear it."""

WAITING = ("asked", "waits")
"""While a request is one of these its run holds no place."""

Usage = dict[str, int | float]


class Request(msgspec.Struct):
    """What a run has asked. `id` names equal requests: kind, name, arguments, and the how many-th of these it is."""

    id: str
    kind: str
    name: str
    status: RequestStatus
    location: str = ""
    attempt: int = 1
    args: Any = None
    edited: bool = False
    reserve: Usage = {}
    names: tuple[str, ...] = ()  # of `results`: the nodes that it asked for
    left: int = 0
    answer: bytes = b""
    keep: bool = False  # a retry after an error hears this answer again
    errors: list[list[str]] = []  # type and message of each attempt that failed
    intent: bytes = b""


class Run(msgspec.Struct):
    """The run of a node, or of one iteration of it, through all its attempts, rests and repairs."""

    location: str
    attempt: int = 0  # how often its call was opened: the attempt of the kernel
    failures: int = 0
    repaired: int = 0
    intent: bytes = b""  # of the open call; empty: none is open
    delivery: int = 0
    place: bool = False
    resting: bool = False
    queued: bool = False  # it waits for a place
    waiting: int = 0  # requests that wait for a person or for nodes
    requests: dict[str, Request] = {}
    uses: dict[str, int] = {}
    notes: int = 0  # how many notes of its node it began with
    told: int = 0  # how many it has heard by now
    budget: dict[str, Any] | None = None
    over_budget: bool = False
    opened_at: int = 0
    rest_timer: bytes = b""
    wall_timer: bytes = b""
    timers: int = 0


class NodeState(msgspec.Struct):
    """One node. `index` is its place among all; `spec` is None in the snapshot of a declared one: that is code."""

    name: str
    index: int
    spec: NodeSpec | None
    depth: int = 0
    submitter: str = ""
    controller: str = ""  # the tournament that it is an entrant or a judge of
    declared: bool = True
    status: NodeStatus = "blocked"
    outcome: str = ""
    reason: str = ""
    detail: str = ""
    value: bytes = b""
    missing: int = 0  # dependencies that must still end well
    any_left: int = 0  # of those with any_success, how many may still complete
    any_in: int = 0  # and how many of them no choice has left out
    any_met: bool = False
    doomed: bool = False  # a dependency ended in a way that the policy does not take
    others: int = 0  # dependencies that are not left out by a choice
    approved: bool = False
    done: bool = False  # it had ended before the start
    iteration: int = 0
    previous: bytes = b""
    run: Run | None = None
    last: Run | None = None  # of a failed run: what a retry hears again
    attempts: int = 0
    used: Usage = {}
    reserved: Usage = {}
    notes: list[str] = []
    children: list[str] = []  # nodes that it submitted, or that a tournament made
    rounds: list[Round] = []
    left: str = ""  # of a judge: its candidates
    right: str = ""
    intent: bytes = b""  # of a child, or of the question whether it may begin
    opened_at: int = 0
    ended_at: int = 0
    group: int = -1  # the submitted graph that it belongs to: an index of `State.groups`
    height: int = 0  # nodes on the longest path behind it, under order="critical"
    untrusted: bool = False  # it passes on what it has read of a node that is not trusted

    @property
    def the(self) -> NodeSpec:
        assert self.spec is not None, "specs are bound when a machine is made"
        return self.spec

    @property
    def trusted(self) -> bool:
        return self.the.trust != "quarantined" and not self.untrusted


Entry = tuple[int, int, int, str]
"""A node in the queue: its priority, turned round; when it became ready, less where its path is longer; its index and
its name."""


class Group(msgspec.Struct):
    """The nodes of a submitted graph that has a limit of its own for places. `parent`: the group of its submitter."""

    limit: int
    parent: int = -1
    running: int = 0
    parked: list[Entry] = []  # nodes that wait for a place of this group: nothing behind them waits for it


Target = tuple[str, str, str]
"""What an intent is for: a kind, a node, and a request of its run."""


class State(msgspec.Struct):
    """The whole graph. Nodes stand in the order in which they were added."""

    id: int = 0
    key: str = ""
    workflow: str = ""
    generation: int = 1
    life: int = 0
    seed: bytes = b""
    actor: str = ""
    input: bytes = b""
    nodes: dict[str, NodeState] = {}
    alive: int = 0  # nodes that have not ended
    running: int = 0  # runs that hold a place
    open_runs: int = 0  # runs whose call is open
    weight: int = 0
    intents: dict[bytes, Target] = {}
    queue: list[Entry] = []
    ready_count: int = 0
    waiters: dict[str, list[tuple[str, str]]] = {}
    used: Usage = {}
    reserved: Usage = {}
    denials: list[dict[str, Any]] = []
    outputs: tuple[str, ...] = ()
    slices: int = 0
    slice_timer: bytes = b""
    wall_since: int = 0
    wall_timer: bytes = b""
    wall_timers: int = 0
    wall_over: bool = False
    cancelled: bool = False
    outcome: str = ""
    groups: list[Group] = []
    listening: dict[str, list[bytes]] = {}  # by name of a message: intents that wait for it, and some that did
    received: list[str] = []  # names that runs have asked for
    mail: list[tuple[str, bytes]] = []  # messages that came before there was a wait for them
    rates: dict[str, list[int]] = {}  # by glob: when the latest calls began, or will begin


def answer_of(state: State, request: Request) -> bytes:
    """What a run hears. The values of nodes that it asked for are not in the recorded answer: the nodes keep them."""
    if not request.names:
        return request.answer
    payload = decode(request.answer)
    if "r" not in payload:
        nodes = [state.nodes[name] for name in request.names]
        payload["r"] = [
            [each.name, decode(each.value) if each.value else None, each.outcome, each.trusted, each.reason]
            for each in nodes
        ]
    return encode(payload)


def add(to: Usage, amounts: Usage, sign: int = 1) -> Usage:
    """A new sum: the default of a field is shared, so nothing is changed in place."""
    found = dict(to)
    for axis, amount in amounts.items():
        total = found.get(axis, 0) + sign * amount
        if sign < 0 and abs(total) < 1e-12:
            found.pop(axis, None)
        else:
            found[axis] = total
    return found


def usage_problem(usage: Any) -> str:
    """What is wrong with the usage that came with a result; empty: nothing."""
    if not isinstance(usage, dict):
        return f"usage has numbers by axis, found {usage!r:.200}"
    for axis, amount in usage.items():
        if axis not in AXES or axis == "wall":
            return f"usage has tokens, cost and calls, found {axis!r:.40}"
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < 2**53:
            return f"{axis} is a number that is not negative, found {amount!r:.40}"
    return ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


def save(state: State) -> bytes:
    """A snapshot. Equal states have equal bytes: members stand in the order in which they came."""
    specs = {name: node.spec for name, node in state.nodes.items() if node.declared}
    for name in specs:
        state.nodes[name].spec = None
    try:
        return _encoder.encode(state)
    finally:
        for name, spec in specs.items():
            state.nodes[name].spec = spec


def load(data: bytes, declared: dict[str, NodeSpec]) -> State:
    state = _decoder.decode(data)
    for node in state.nodes.values():
        if node.declared:
            node.spec = declared.get(node.name) or NodeSpec(node.name)
    return state
