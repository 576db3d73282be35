"""One delivery to a graph: what it changes, opens, withdraws, answers and announces.

A turn is made for each event and becomes one decision. Everything that changes the state of a graph goes through it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec import encode
from perdure.errors import Denied
from perdure.kernel.decision import Decision, Fact, Outcome, Reply
from perdure.kernel.effects import Call, Effect, Timer
from perdure.kernel.moment import TIME_MAX, Moment

from .gate import Account
from .model import AXES, Limits, Model, NodeSpec
from .state import NodeState, Request, Run, State, Target, Usage, add, answer_of

if TYPE_CHECKING:
    from perdure.kernel.identity import Identity

    from .author import Graph
    from .ready import Dependencies

SECOND: Final = 1_000_000_000
UNLIMITED: Final = Limits()
TOLD: Final = {
    name: getattr(NodeSpec(""), name)
    for name in (
        *("kind", "runner", "queue", "model", "labels", "tools", "veto", "output", "repairs", "retries", "backoff"),
        *("timeout", "once", "limits", "priority", "rest", "approve", "max_iters"),
    )
}
"""Fields that the fact of an opening has where they are not as usual. `after` and `needs` are edges, and told once."""


class Turn:
    def __init__(  # noqa: PLR0917  # all that a turn works on
        self, graph: Graph, model: Model, state: State, waits: Dependencies, identity: Identity, moment: Moment
    ) -> None:
        self.graph = graph
        self.model = model
        self.state = state
        self.waits = waits
        self.moment = moment
        self.now = moment.at
        self.todo: deque[NodeState] = deque()  # nodes that have ended, and whose dependents have not heard of it
        self.opened_runs: list[NodeState] = []
        self.answers: list[tuple[bytes, str, bytes]] = []
        self.respond: list[tuple[str, bytes]] = []
        self.reply: Reply | None = None
        self.outcome: Outcome | None = None
        self.publish: list[tuple[str, bytes]] = []
        self._identity = identity
        self._opened: dict[bytes, Effect] = {}
        self._withdrawn: list[bytes] = []
        self._facts: dict[str, list[Any]] = {}

    # ---- effects -------------------------------------------------------------------------------------------------

    def open(self, effect: Effect, target: Target) -> bytes:
        attempt = effect.attempt if type(effect) is Call else 1
        id = self._identity.intent(effect.location, attempt)
        self.state.intents[id] = target
        self._opened[id] = effect
        return id

    def withdraw(self, id: bytes) -> None:
        """No part of the graph waits for this any more. What was opened in this very turn was never asked for."""
        if self.state.intents.pop(id, None) is None:
            return
        if self._opened.pop(id, None) is None:
            self._withdrawn.append(id)

    def timer(self, location: str, seconds: float, target: Target) -> bytes:
        due = min(TIME_MAX, self.now + round(seconds * SECOND))
        return self.open(Timer(location, due), target)

    def reopen(self) -> None:
        """Everything open is opened again under new ids: the instance was retried."""
        self._withdrawn.clear()

    # ---- words ---------------------------------------------------------------------------------------------------

    def fact(self, kind: str, item: Any) -> None:
        self._facts.setdefault(kind, []).append(item)

    def deny(self, node: NodeState | None, subject: str, stage: str, reason: str) -> dict[str, Any]:
        """A denial is a fact, and a note for the node and its submitter. Gives the answer for the asker."""
        state = self.state
        whose = "" if node is None else node.name
        record = {"node": whose, "subject": subject, "stage": stage, "reason": reason, "at": self.now}
        self.fact("denied", record)
        state.denials.append(record)
        sentence = Denied(subject, stage, reason).note
        if node is not None:
            self.tell(node, sentence)
            if stage == "budget" and node.run is not None:
                node.run.over_budget = True
            submitter = state.nodes.get(node.submitter)
            if submitter is not None and submitter.status != "ended":
                self.tell(submitter, sentence)
        return {"d": [subject, stage, reason]}

    def tell(self, node: NodeState, sentence: str) -> None:
        node.notes.append(sentence)

    # ---- requests of runs ----------------------------------------------------------------------------------------

    def answer(self, node: NodeState, request: Request, payload: dict[str, Any]) -> None:
        """The answer to a request. A run without a place gets one in turn before it hears it."""
        run = node.run
        assert run is not None, "a node without a run has no requests"
        waited = request.status in ("asked", "waits")
        new = node.notes[run.told :]
        run.told = len(node.notes)
        request.answer = encode({**payload, "n": new} if new else payload)
        self.release(node, request)
        run.waiting -= waited
        if run.resting or (not run.place and run.waiting == 0):
            request.status = "held"
            self.want_place(node, run)
            return
        request.status = "answered"
        self.answers.append((run.intent, request.id, answer_of(self.state, request)))

    def want_place(self, node: NodeState, run: Run) -> None:
        from .ready import push

        if not run.queued:
            run.queued = True
            push(self.state, node)

    def release(self, node: NodeState, request: Request) -> None:
        if request.reserve:
            node.reserved = add(node.reserved, request.reserve, -1)
            self.state.reserved = add(self.state.reserved, request.reserve, -1)
            request.reserve = {}

    def reserve(self, node: NodeState, request: Request, amounts: Usage) -> None:
        request.reserve = amounts
        node.reserved = add(node.reserved, amounts)
        self.state.reserved = add(self.state.reserved, amounts)

    def spend(self, node: NodeState, amounts: Usage) -> None:
        if amounts:
            node.used = add(node.used, amounts)
            self.state.used = add(self.state.used, amounts)

    # ---- budgets -------------------------------------------------------------------------------------------------

    def accounts(self, node: NodeState) -> list[Account]:
        """What counts for a node, and for the instance. Only what has a limit is looked at."""
        found: list[Account] = []
        if _bounds(node.the.limits):
            wall = self.wall_of(node)
            used = add(node.used, {"wall": wall}) if wall else node.used
            found.append(Account(f"the node {node.name}", node.the.limits, used, node.reserved))
        if _bounds(self.model.limits):
            found.append(Account("the graph", self.model.limits, self.instance_used(), self.state.reserved))
        return found

    def instance_used(self) -> Usage:
        """What the instance has used, with the time for which a run is open now."""
        state = self.state
        since = (self.now - state.wall_since) / SECOND if state.open_runs and self.now > state.wall_since else 0
        return add(state.used, {"wall": since}) if since else state.used

    def wall_of(self, node: NodeState) -> float:
        """Seconds for which the run of a node is open now."""
        run = node.run
        return max(0, self.now - run.opened_at) / SECOND if run is not None and run.intent else 0.0

    def budget(self) -> dict[str, Any] | None:
        """Used, limit and left of each axis that has a limit. None: there is no limit."""
        limits, state = self.model.limits, self.state
        if limits == UNLIMITED:
            return None
        amounts = {**self.instance_used(), "running": state.running, "nodes": state.weight}
        found: dict[str, Any] = {}
        for axis in ("running", "nodes", *AXES):
            limit = getattr(limits, axis)
            if limit is not None:
                used = amounts.get(axis, 0) + state.reserved.get(axis, 0)
                found[axis] = {"used": used, "limit": limit, "left": max(0, limit - used)}
        return found or None

    # ---- the end -------------------------------------------------------------------------------------------------

    def decision(self) -> Decision:
        facts = tuple([Fact(f"graph/{kind}@1", encode(body)) for kind, body in self._said()])
        return Decision(
            open=tuple(self._opened.values()),
            withdraw=tuple(self._withdrawn),
            announce=facts,
            publish=tuple(self.publish),
            reply=self.reply,
            outcome=self.outcome,
            intents=tuple(self._opened),
            respond=tuple(self.respond),
            answers=tuple(self.answers),
        )

    def _said(self) -> list[tuple[str, Any]]:
        """One fact for each kind, in the order in which the first of each kind came."""
        said: list[tuple[str, Any]] = []
        for kind, items in self._facts.items():
            body: dict[str, Any] = {"nodes": items}
            if kind == "opened":
                if (budget := self.budget()) is not None:
                    body["budget"] = budget
            elif kind in ("denied", "asked", "answered", "finished"):
                body = {"items": items}
            said.append((kind, body))
        return said


def _bounds(limits: Limits) -> bool:
    return not (limits.tokens is None and limits.cost is None and limits.calls is None and limits.wall is None)


def manifest(node: NodeState, spec: NodeSpec, goal: str) -> dict[str, Any]:
    """What the fact of an opening says of a node: its resolved fields, without those that are as usual."""
    found: dict[str, Any] = {"node": node.name, "goal": goal, "role": spec.role, "isolation": spec.isolation}
    found |= {"context": spec.context, "trust": spec.trust}
    if node.run is not None:
        found["run"] = node.run.location
        found["attempt"] = node.run.attempt
    for name, usual in TOLD.items():
        if (value := getattr(spec, name)) != usual:
            found[name] = msgspec.to_builtins(value)
    return found
