"""The machine of a graph: its state is a value, and each event is one turn.

    deliver -> what the event changes (`requests`, `outcomes`, `growth`) -> what is ready opens (`opening`) -> decision

Nothing here does I/O or reads a clock. A run's own code lives outside: see `runs.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.codec import decode, encode
from perdure.codec.converters.frame import did_you_mean
from perdure.errors import BadGraph, PerdureError
from perdure.kernel.decision import NOTHING, Decision, Outcome, Reply
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Requested, Rewound, Started
from perdure.kernel.identity import Identity
from perdure.kernel.moment import Moment
from perdure.kernel.past import read
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.status import Status

from . import life, opening, outcomes, requests, waits
from .growth import begin, submit
from .model import Model
from .ready import Dependencies, measure, push
from .report import FAILED, REPORT, failure_data, report_of
from .retry import reset
from .runs import work
from .state import NodeState, State, load, save
from .turn import Turn

if TYPE_CHECKING:
    from .author import Graph

BAD_GRAPH = "BadGraph"


class GraphMachine:
    def __init__(self, graph: Graph, address: str, snapshot: bytes | None) -> None:
        self.graph = graph
        self.state = State()
        workflow, _, key = address.partition("/")
        self._address = Address(workflow, key)
        self._model: Model | None = None
        self._waits = Dependencies(self.state)
        self._identity = Identity(self._address, 1)
        if snapshot is not None:
            self._restore(snapshot)

    def _restore(self, snapshot: bytes) -> None:
        self.state = load(snapshot, self.graph.specs)
        self._waits = Dependencies(self.state)
        self._identity = Identity(self._address, self.state.generation, self.state.seed, self.state.life)

    @property
    def model(self) -> Model:
        if self._model is None:
            self._model = self.graph.model
        return self._model

    # ---- the contract (perdure.kernel.machine.Machine) -------------------------------------------------------------

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started():
                return self._start(event, moment)
            case ReceiptArrived(intent=intent, receipt=receipt):
                return self._received(self._turn(moment), intent, receipt)
            case Requested():
                return self._requested(self._turn(moment), event)
            case Message():
                return self._heard(self._turn(moment), event)
            case CancelAsked(reason=reason):
                return self._cancel(self._turn(moment), reason)
            case Rewound():
                return self._go_back(event, moment)
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return work(self, intent)

    def snapshot(self) -> bytes | None:
        return save(self.state)

    def dispose(self) -> None:
        pass

    def goal(self, node: NodeState) -> str:
        """The goal of a node with its references filled."""
        text = node.the.goal
        return life.filled_goal(self._turn(Moment(0, self.state.seed, 0)), node) if "$" in text else text

    def _turn(self, moment: Moment) -> Turn:
        return Turn(self.graph, self.model, self.state, self._waits, self._identity, moment)

    # ---- the beginning ---------------------------------------------------------------------------------------------

    def _start(self, event: Started, moment: Moment) -> Decision:
        plain = decode(event.input) if event.input else {}
        begun = begin(self.graph, plain)
        if begun.problems:  # started by name, from where it could not be checked
            error = BadGraph(self.graph.name, tuple(begun.problems))
            return Decision(outcome=Outcome(Status.FAILED, error=Failure(BAD_GRAPH, str(error), retry=False)))
        state = self.state
        state.id, state.key, state.workflow = moment.seq, event.key, event.workflow
        state.generation, state.seed = event.generation, event.seed
        state.actor = f"agent:{event.workflow}/{event.key}"
        state.input = encode(plain.get("input"))
        self._identity = Identity(Address(event.workflow, event.key), event.generation, event.seed)
        turn = self._turn(moment)
        done = plain.get("done") or {}
        nodes = [life.add_node(turn, spec, declared=True) for spec in self.model.nodes]
        for spec, depth, submitter in begun.nodes:
            nodes.append(life.add_node(turn, spec, depth=depth, submitter=submitter))
        state.weight = sum(node.the.weight for node in nodes)
        state.outputs = self._outputs(nodes)
        for node in nodes:
            if node.name in done:
                node.done = True
                life.end(turn, node, "completed", "done", encode(done[node.name]))
        for node in nodes:
            if node.done and node.the.kind == "classify":
                outcomes.choose(turn, node, done[node.name])
        if turn.model.order:
            measure(state, nodes)
        for node in nodes:
            if node.status != "ended":
                turn.waits.link(node)
        turn.todo.clear()  # what was done or left out is counted by `link`
        for node in nodes:
            life.consider(turn, node)
        return self._go_on(turn)

    def _outputs(self, nodes: list[NodeState]) -> tuple[str, ...]:
        """Those of the author, else the nodes at the top that no other waits for."""
        if self.graph.outputs is not None:
            return self.model.outputs
        waited = {name for node in nodes for _, name in node.the.after}
        return tuple([node.name for node in nodes if node.name not in waited and not node.submitter])

    # ---- what comes ------------------------------------------------------------------------------------------------

    def _received(self, turn: Turn, intent: bytes, receipt: Receipt) -> Decision:
        state = self.state
        kind, name, request_id = state.intents.pop(intent)
        node = state.nodes.get(name)
        if kind == "slice":
            state.slice_timer = b""
        elif kind == "wall" and node is None:
            self._wall_is_over(turn)
        elif node is not None and node.status != "ended":
            self._answered(turn, node, kind, request_id, receipt)
        return self._go_on(turn)

    def _answered(self, turn: Turn, node: NodeState, kind: str, request_id: str, receipt: Receipt) -> None:
        match kind:
            case "run":
                outcomes.run_answered(turn, node, receipt)
            case "child":
                outcomes.child_answered(turn, node, receipt)
            case "wait":
                waits.node_answered(turn, node, receipt)
            case "backoff":
                node.intent = b""
                push(turn.state, node)
            case "rest":
                waits.rest(turn, node)
            case "wall":
                outcomes.cut(turn, node, "wall", "its run was open for longer than limits.wall")
            case "ask" if not request_id:
                self._may_begin(turn, node, receipt)
            case _:
                run = node.run
                request = None if run is None else run.requests.get(request_id)
                if request is None:
                    return
                if kind == "use":
                    requests.tool_answered(turn, node, request, receipt)
                elif kind == "again":
                    requests.tool_again(turn, node, request)
                elif kind == "rated":
                    requests.its_time_has_come(turn, node, request)
                elif kind == "slept":
                    waits.slept(turn, node, request)
                else:
                    requests.person_answered(turn, node, request, receipt)

    def _may_begin(self, turn: Turn, node: NodeState, receipt: Receipt) -> None:
        """A person has said whether a node may begin."""
        node.intent = b""
        verdict, _ = opening.read_answer(receipt)
        turn.fact("answered", {"node": node.name, "subject": "begin", "stage": verdict.stage, "outcome": verdict.word})
        if verdict.word == "deny":
            turn.deny(node, node.name, verdict.stage, verdict.reason)
            life.end(turn, node, "failed", "denied", detail=f"{verdict.stage}: {verdict.reason}")
            return
        node.approved = True
        push(turn.state, node)

    def _wall_is_over(self, turn: Turn) -> None:
        state = self.state
        state.wall_timer, state.wall_over = b"", True
        for node in [node for node in state.nodes.values() if node.run is not None and node.run.intent]:
            outcomes.cut(turn, node, "wall", "runs of the graph were open for longer than limits.wall")

    def _requested(self, turn: Turn, event: Requested) -> Decision:
        kind, name, _ = self.state.intents.get(event.intent, ("", "", ""))
        node = self.state.nodes.get(name)
        if kind == "run" and node is not None and node.run is not None:
            node.run.delivery = event.delivery
            requests.requested(turn, node, event.id, event.name, event.body)
        return self._go_on(turn)

    def _heard(self, turn: Turn, message: Message) -> Decision:
        try:
            body = decode(message.body) if message.body else None
        except PerdureError as error:
            turn.reply = Reply(refused=str(error))
            return turn.decision()
        match message.name:
            case "submit":
                turn.respond.append((message.id, encode(_public(submit(turn, None, None, body)))))
            case "cancel":
                self._cancel_node(turn, message, body)
            case "note":
                self._note(turn, message, body)
            case _:
                waits.heard(turn, message)
        return self._go_on(turn)

    def _named(self, turn: Turn, body: Any) -> NodeState | None:
        """The node that a message names; None: the message is refused."""
        name = body.get("node") if isinstance(body, dict) else None
        node = self.state.nodes.get(name) if isinstance(name, str) else None
        if node is None:
            known = ", ".join(list(self.state.nodes)[:20])
            hint = did_you_mean(name, self.state.nodes)
            turn.reply = Reply(refused=f"there is no node {name!r:.80}{hint}; there are: {known}")
        return node

    def _cancel_node(self, turn: Turn, message: Message, body: Any) -> None:
        node = self._named(turn, body)
        if node is not None:
            life.cancel(turn, node, "asked")
            turn.respond.append((message.id, encode({"node": node.name, "outcome": node.outcome})))

    def _note(self, turn: Turn, message: Message, body: Any) -> None:
        node = self._named(turn, body)
        if node is None:
            return
        text = body.get("text")
        if not isinstance(text, str):
            turn.reply = Reply(refused=f"a note has a text, found {text!r:.80}")
            return
        turn.tell(node, text)

    def _cancel(self, turn: Turn, reason: str) -> Decision:
        self.state.cancelled = True
        for node in list(self.state.nodes.values()):
            life.end(turn, node, "cancelled", "instance")
        turn.todo.clear()
        turn.publish.append((REPORT, encode(report_of(self.state))))
        turn.outcome = Outcome(Status.CANCELLED, error=Failure("Cancelled", reason))
        return turn.decision()

    # ---- a failure is retried ----------------------------------------------------------------------------------------

    def _go_back(self, event: Rewound, moment: Moment) -> Decision:
        """Live through the past of a graph that has failed, and run what failed. A retry in that past is one too."""
        past = read(event.past)
        if past.base:
            self._restore(past.base)
        for item in past.items:
            self.deliver(item.event, Moment(item.at, item.seed, item.number, item.decision))
        return self._retry(moment)

    def _retry(self, moment: Moment) -> Decision:
        state = self.state
        state.life = moment.number
        state.intents, state.queue, state.waiters = {}, [], {}
        state.listening = {}
        for group in state.groups:
            group.parked = []
        state.wall_over, state.slice_timer, state.wall_timer = False, b"", b""
        self._identity = self._identity.in_life(moment.number)
        again = reset(state)
        self._waits = Dependencies(state)
        turn = self._turn(moment)
        for node in again:
            if node.status == "blocked":
                self._waits.count(node)
        for node in again:
            if node.status == "open":
                life.match_entrants(turn, node)
            else:
                life.consider(turn, node)
        return self._go_on(turn)

    # ---- what follows ----------------------------------------------------------------------------------------------

    def _go_on(self, turn: Turn) -> Decision:
        opening.open_ready(turn)
        if turn.opened_runs:
            budget = turn.budget()
            for node in turn.opened_runs:
                if node.run is not None:
                    node.run.budget = budget
        if self.state.alive == 0:
            self._finish(turn)
        return turn.decision()

    def _finish(self, turn: Turn) -> None:
        state = self.state
        ended: dict[str, list[str]] = {}
        for node in state.nodes.values():
            ended.setdefault(node.outcome, []).append(node.name)
        turn.fact("finished", ended)
        turn.publish.append((REPORT, encode(report_of(state))))
        outputs = [state.nodes[name] for name in state.outputs]
        bad = [node for node in outputs if node.outcome not in ("completed", "partial") and node.reason != "not_chosen"]
        if bad:
            text = "; ".join(_told(node) for node in [*bad[:10], *self._causes(bad)])
            error = Failure(FAILED, text, encoded=encode(failure_data(state)), retry=False)
            turn.outcome = Outcome(Status.FAILED, error=error)
            return
        values = {node.name: decode(node.value) for node in outputs if node.value}
        result = values if len(outputs) != 1 else next(iter(values.values()), None)
        turn.outcome = Outcome(Status.COMPLETED, encode(result))

    def _causes(self, bad: list[NodeState]) -> list[NodeState]:
        """The first nodes that failed, where outputs were only skipped because of them."""
        if not any(node.reason == "upstream" for node in bad):
            return []
        nodes = self.state.nodes.values()
        return [node for node in nodes if node.outcome in ("failed", "cancelled") and node not in bad][:5]


def _told(node: NodeState) -> str:
    why = f" ({node.reason})" if node.reason else ""
    return f"{node.name} {node.outcome}{why}{': ' + node.detail if node.detail else ''}"


def _public(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer to a person who submitted nodes."""
    if "d" in answer:
        subject, stage, reason = answer["d"]
        return {"denied": {"subject": subject, "stage": stage, "reason": reason}}
    return {"names": answer["v"]}
