"""The life of a node: it is added, becomes ready, and ends once. What follows from its end is in the same entry."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from perdure.codec import decode, digest, encode, from_plain, to_plain
from perdure.errors import PerdureError

from . import goals
from .bracket import champion, first_round, next_round
from .model import NodeSpec, Result
from .ready import give_place_back, measure, push
from .state import NodeState, Run
from .turn import SECOND, Turn

WITHOUT_RUN: Final = ("reduce", "tournament")


def add_node(
    turn: Turn, spec: NodeSpec, *, depth: int = 0, submitter: str = "", controller: str = "", declared: bool = False
) -> NodeState:
    state = turn.state
    node = NodeState(spec.name, len(state.nodes), spec, depth, submitter, controller, declared)
    state.nodes[spec.name] = node
    state.alive += 1
    return node


def link(turn: Turn, nodes: list[NodeState]) -> None:
    """Count what new nodes wait for, and begin with those that wait for nothing."""
    if turn.model.order:
        measure(turn.state, nodes)
    for node in nodes:
        turn.waits.link(node)
    for node in nodes:
        consider(turn, node)


def consider(turn: Turn, node: NodeState) -> None:
    """A blocked node, after something has changed for it."""
    if node.status != "blocked":
        return
    verdict = turn.waits.verdict(node)
    if verdict == "ready":
        make_ready(turn, node)
    elif verdict != "wait":
        end(turn, node, "skipped", verdict)


def make_ready(turn: Turn, node: NodeState) -> None:
    node.status = "ready"
    if node.the.kind in WITHOUT_RUN and not node.the.approve:
        begin_without_run(turn, node)
    else:
        push(turn.state, node)


def begin_without_run(turn: Turn, node: NodeState) -> None:
    """A reduce is computed here; a tournament becomes its entrants."""
    if node.the.kind == "reduce":
        _reduce(turn, node)
    else:
        _fan_out(turn, node)


def spread(turn: Turn) -> None:
    """Tell everybody who waits for nodes that have ended, until nothing follows any more. Each edge once."""
    state, waits = turn.state, turn.waits
    while turn.todo:
        ended = turn.todo.popleft()
        if ended.controller:
            _contestant_ended(turn, state.nodes[ended.controller], ended)
        for name, request_id in state.waiters.pop(ended.name, ()):
            _result_is_there(turn, state.nodes[name], request_id)
        for name in waits.of(ended.name):
            dependent = state.nodes[name]
            if dependent.status == "blocked":
                waits.ended(dependent, ended)
                consider(turn, dependent)


# ---- the end of a node -----------------------------------------------------------------------------------------------


def end(  # noqa: PLR0917  # what an end consists of
    turn: Turn, node: NodeState, outcome: str, reason: str = "", value: bytes = b"", detail: str = ""
) -> None:
    """The one end of a node. `reason` is a word, `detail` a sentence for people."""
    if node.status == "ended":
        return
    run = node.run
    close_run(turn, node)
    if outcome in ("completed", "partial"):
        taint(turn, node, [name for _, name in node.the.after])
    if outcome == "failed" and run is not None:
        kept = {id: each for id, each in run.requests.items() if each.status == "answered" and each.keep}
        node.last = Run(run.location, requests=kept, uses=run.uses) if kept or run.uses else None
    if node.intent:
        turn.withdraw(node.intent)
        node.intent = b""
    node.status, node.outcome, node.reason, node.detail = "ended", outcome, reason, detail
    node.value = value or (encode(None) if outcome in ("completed", "partial") else b"")
    node.ended_at = turn.now
    node.previous = b""
    turn.state.alive -= 1
    said: dict[str, Any] = {"node": node.name, "outcome": outcome}
    if reason:
        said["reason"] = reason
    if detail:
        said["detail"] = detail
    if not node.trusted:
        said["trusted"] = False
    if node.the.kind == "reduce" and value and not node.done:  # no receipt brings it: a replay compares this
        said["value"] = digest(value)[:23]
    turn.fact("ended", said)
    turn.todo.append(node)


def taint(turn: Turn, node: NodeState, names: Iterable[str]) -> None:
    """The node reads these: what is not trusted makes it untrusted under `taint="strict"`, and a reduce always."""
    if node.untrusted or not (turn.model.taint or node.the.kind == "reduce"):
        return
    nodes = turn.state.nodes
    if untrusted := [name for name in names if nodes[name].value and not nodes[name].trusted]:
        node.untrusted = True
        turn.fact("tainted", {"node": node.name, "inputs": untrusted})


def cancel(turn: Turn, node: NodeState, reason: str) -> None:
    """End a node, what it submitted, its entrants and judges."""
    todo = [node]
    while todo:
        each = todo.pop()
        todo += [turn.state.nodes[name] for name in each.children]
        end(turn, each, "cancelled", reason)


def close_run(turn: Turn, node: NodeState) -> None:
    """Let go of all that the run of a node has open."""
    run = node.run
    if run is None:
        return
    close_call(turn, node, run, withdraw=True)
    for request in run.requests.values():
        if request.status != "answered":
            if request.intent:
                turn.withdraw(request.intent)
            if request.reserve:
                turn.release(node, request)
                turn.spend(node, {"calls": 1})
    give_place_back(turn.state, node, run)
    run.queued = False
    node.run = None


def close_call(turn: Turn, node: NodeState, run: Run, *, withdraw: bool) -> None:
    """The call of a run is no longer open."""
    state = turn.state
    for timer in (run.rest_timer, run.wall_timer):
        if timer:
            turn.withdraw(timer)
    run.rest_timer = run.wall_timer = b""
    if not run.intent:
        return
    node.used = {**node.used, "wall": node.used.get("wall", 0) + turn.wall_of(node)}
    if withdraw:
        turn.withdraw(run.intent)
    else:
        state.intents.pop(run.intent, None)
    run.intent = b""
    state.open_runs -= 1
    if state.open_runs == 0:
        state.used = {**state.used, "wall": state.used.get("wall", 0) + max(0, turn.now - state.wall_since) / SECOND}
        if state.wall_timer:
            turn.withdraw(state.wall_timer)
            state.wall_timer = b""


# ---- data ------------------------------------------------------------------------------------------------------------


def result_of(turn: Turn, name: str) -> Result:
    """What is known of a node that has ended, with its value as its type has it."""
    return read_result(turn.graph, turn.state.nodes[name])


def read_result(graph: Any, node: NodeState) -> Result:
    value = decode(node.value) if node.value else None
    kind = graph.type_of(node.the)
    if kind is not None and value is not None and node.the.kind not in ("classify", "tournament"):
        with suppress(PerdureError):  # else the type was changed since: the recorded value counts
            value = from_plain(value, kind)
    return Result(node.name, value, node.outcome, node.trusted, node.reason)  # type: ignore[arg-type]


def plain_input(turn: Turn, node: NodeState, alias: str) -> Any:
    """The recorded value of a dependency, for a goal."""
    name = next((name for each, name in node.the.after if each == alias), None)
    found = None if name is None else turn.state.nodes[name]
    if found is None or not found.value:
        raise goals.NoValue(f"inputs.{alias}", "that node has no value" if found is not None else "no such input")
    return decode(found.value)


def filled_goal(turn: Turn, node: NodeState) -> str:
    return filled(turn, node, node.the.goal)


def filled(turn: Turn, node: NodeState, text: str) -> str:
    """A text of a node with its references filled."""
    if "$" not in text:
        return text
    return goals.fill(text, decode(turn.state.input), lambda alias: plain_input(turn, node, alias))


def inputs_of(turn: Turn, node: NodeState) -> dict[str, Any]:
    """Recorded values by alias, of the dependencies that have one."""
    nodes = turn.state.nodes
    return {alias: decode(nodes[name].value) for alias, name in node.the.after if nodes[name].value}


def _reduce(turn: Turn, node: NodeState) -> None:
    node.opened_at = turn.now
    try:
        found = turn.graph.reducers[node.the.reducer](inputs_of(turn, node))
        value = encode(to_plain(found, turn.graph.type_of(node.the)))
    except Exception as error:  # of an author's function, or of the data
        end(turn, node, "failed", "error", detail=f"{type(error).__name__}: {error}"[:1000])
        return
    end(turn, node, "completed", value=value)


def _result_is_there(turn: Turn, node: NodeState, request_id: str) -> None:
    run = node.run
    request = None if run is None else run.requests.get(request_id)
    if request is None or request.status != "waits":
        return
    request.left -= 1
    if request.left == 0:
        taint(turn, node, request.names)
        turn.answer(node, request, {})


# ---- tournaments -----------------------------------------------------------------------------------------------------


def _fan_out(turn: Turn, node: NodeState) -> None:
    """A tournament runs nothing itself: its entrants are nodes of their own."""
    from . import gate

    the = node.the
    verdict = gate.opening(
        the, node.depth, msgspec.structs.replace(turn.model.limits, running=None), 0, turn.accounts(node), approved=True
    )
    if verdict.word == "deny":
        turn.deny(node, node.name, verdict.stage, verdict.reason)
        end(turn, node, "failed", "denied", detail=verdict.reason)
        return
    node.status, node.opened_at = "open", turn.now
    for name, goal in the.entrants.items():
        full = f"{node.name}/entrant/{name}"
        spec = msgspec.structs.replace(
            the, name=full, kind="node", goal=goal or the.goal, isolation="read_only", entrants={}, approve="", needs={}
        )
        _add_contestant(turn, node, spec)
    turn.fact("added", {"node": node.name, "entrants": [f"{node.name}/entrant/{name}" for name in the.entrants]})


def _add_contestant(turn: Turn, controller: NodeState, spec: NodeSpec) -> NodeState:
    added = add_node(turn, spec, depth=controller.depth, submitter=controller.submitter, controller=controller.name)
    added.group, added.height = controller.group, controller.height
    controller.children.append(spec.name)
    make_ready(turn, added)
    return added


def _contestant_ended(turn: Turn, controller: NodeState, ended: NodeState) -> None:
    if controller.status != "open":
        return
    if ended.left:
        _judged(turn, controller, ended)
    else:
        match_entrants(turn, controller)


def match_entrants(turn: Turn, controller: NodeState) -> None:
    """Begin the first round, once every entrant has ended."""
    entrants = [turn.state.nodes[f"{controller.name}/entrant/{name}"] for name in controller.the.entrants]
    if any(each.status != "ended" for each in entrants):
        return
    names = [each.name for each in entrants if each.outcome in ("completed", "partial")]
    if not names:
        end(turn, controller, "failed", "no_candidates", detail="no entrant completed")
        return
    controller.rounds = [first_round(names)]
    _next_matches(turn, controller)


def _judged(turn: Turn, controller: NodeState, judge: NodeState) -> None:
    if judge.outcome != "completed":
        for name in controller.children:
            if turn.state.nodes[name].status != "ended":
                cancel(turn, turn.state.nodes[name], "no_verdict")
        end(
            turn,
            controller,
            "failed",
            "no_verdict",
            detail=f"{judge.name} {judge.outcome}: {judge.detail or judge.reason}",
        )
        return
    meeting = next(
        each for each in controller.rounds[-1].meetings if (each.left, each.right) == (judge.left, judge.right)
    )
    meeting.winner = judge.left if decode(judge.value) == "left" else judge.right
    turn.fact("bracket", {"node": controller.name, "judge": judge.name, "winner": meeting.winner})
    if controller.rounds[-1].decided:
        _next_matches(turn, controller)


def _next_matches(turn: Turn, controller: NodeState) -> None:
    last = controller.rounds[-1]
    if last.decided and not champion(last):
        last = next_round(last)
        controller.rounds.append(last)
    if winner := champion(last):
        won = turn.state.nodes[winner]
        controller.untrusted = not won.trusted
        end(turn, controller, won.outcome, won.reason, won.value)
        return
    number = len(controller.rounds) - 1
    for place, meeting in enumerate(last.meetings):
        spec = msgspec.structs.replace(
            controller.the,
            name=f"{controller.name}/judge/~{number}/~{place}",
            kind="node",
            role="verify",
            isolation="read_only",
            context="none",
            entrants={},
            approve="",
            output="",
            needs={},
        )
        judge = _add_contestant(turn, controller, spec)
        judge.left, judge.right = meeting.left, meeting.right
