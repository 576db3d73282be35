"""Opening what is ready: the gate is asked for each node in turn, and what it allows is opened in this entry."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.errors import PerdureError
from perdure.kernel.effects import OURS, Call, Child
from perdure.kernel.moment import when
from perdure.kernel.receipt import Receipt
from perdure.tasks.model import WORKFLOW as TASK
from perdure.tasks.model import key_of, question

from . import gate, goals, life
from .author import is_async
from .ready import groups_of, park, pop, push, take_place, unpark
from .state import Group, NodeState, Run, answer_of
from .turn import SECOND, Turn, manifest

AT_ONCE: Final = 1000
"""Nodes that one decision opens. A timer that is due at once opens the next ones."""

DELIVERIES: Final = 4
ANSWER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "outcome": {"enum": ["approve", "deny"], "title": "Decision"},
        "arguments": {"type": "object", "title": "Edited arguments"},
        "reason": {"type": "string", "title": "Reason"},
    },
    "required": ["outcome"],
    "additionalProperties": False,
}
"""The form of every question that a graph asks."""


def open_ready(turn: Turn) -> None:
    """Open what is ready, by priority and then in turn, until the gate defers one or there is no more."""
    state, opened = turn.state, 0
    life.spread(turn)
    while state.queue:
        node = state.nodes[state.queue[0][3]]
        if not _wants(node):
            pop(state)
            unpark(state, node)
            continue
        if opened >= AT_ONCE:
            _go_on_later(turn)
            return
        if node.status == "open":
            if not _take_place(turn, node):
                return
        elif not _open(turn, node):
            return
        unpark(state, node)
        opened += 1
        life.spread(turn)


def _full(turn: Turn, node: NodeState) -> Group | None:
    """The submitted graph that has no place left for a node."""
    return next((each for each in groups_of(turn.state, node) if each.running >= each.limit), None)


def _wants(node: NodeState) -> bool:
    if node.status == "open":
        return node.run is not None and node.run.queued
    return node.status == "ready" and not node.intent


def _go_on_later(turn: Turn) -> None:
    state = turn.state
    if not state.slice_timer:
        state.slices += 1
        state.slice_timer = turn.timer(f"&slice#{state.slices}", 0, ("slice", "", ""))


def _take_place(turn: Turn, node: NodeState) -> bool:
    """A run that waits gets a place again, and hears its answers; one that rests is opened again."""
    state, run = turn.state, node.run
    assert run is not None
    limit = turn.model.limits.running
    if limit is not None and state.running >= limit:
        return False
    if (full := _full(turn, node)) is not None:
        park(state, full)
        return True
    pop(state)
    run.queued = False
    if run.resting or not run.waiting:
        take_place(state, node, run)
    held = [request for request in run.requests.values() if request.status == "held"]
    for request in held:
        request.status = "answered"
    if run.resting:
        run.resting = False
        open_call(turn, node, run)
    else:
        if run.rest_timer:
            turn.withdraw(run.rest_timer)
            run.rest_timer = b""
        turn.answers += [(run.intent, request.id, answer_of(state, request)) for request in held]
    return True


def _open(turn: Turn, node: NodeState) -> bool:
    """Judge and open one node. False: the gate defers it, and so all behind it."""
    state, spec = turn.state, node.the
    verdict = gate.opening(
        spec, node.depth, turn.model.limits, state.running, turn.accounts(node), approved=node.approved
    )
    if verdict.word == "defer":
        return False
    full = _full(turn, node) if verdict is gate.ALLOW and spec.kind not in gate.WITHOUT_PLACE else None
    if full is not None:
        verdict = gate.place("the submitted graph", full.limit, full.running)
        if verdict.word == "defer":
            park(state, full)
            return True
    pop(state)
    if verdict.word == "deny":
        turn.deny(node, node.name, verdict.stage, verdict.reason)
        life.end(turn, node, "failed", "denied", detail=f"{verdict.stage}: {verdict.reason}")
    elif verdict.word == "ask":
        _ask_to_begin(turn, node)
    elif spec.kind == "child":
        _open_child(turn, node)
    elif spec.kind == "wait":
        from . import waits

        waits.open_node(turn, node)
    elif spec.kind in life.WITHOUT_RUN:  # a person has let it begin
        life.begin_without_run(turn, node)
    else:
        _open_run(turn, node)
    return True


def _open_run(turn: Turn, node: NodeState) -> None:
    spec = node.the
    run = node.run
    if run is None:
        location = f"{node.name}/~{node.iteration}" if spec.kind == "loop" else node.name
        last, node.last = node.last, None
        run = node.run = last if last is not None and last.location == location else Run(location)
    try:
        goal = life.filled_goal(turn, node)
    except (goals.NoValue, ValueError) as error:
        life.end(turn, node, "failed", "input", detail=str(error))
        return
    life.taint(turn, node, [name for _, name in spec.after])
    node.status = "open"
    node.opened_at = node.opened_at or turn.now
    run.notes = run.told = len(node.notes)
    take_place(turn.state, node, run)
    node.attempts += 1
    open_call(turn, node, run)
    turn.opened_runs.append(node)
    turn.fact("opened", manifest(node, spec, goal))


def open_call(turn: Turn, node: NodeState, run: Run) -> None:
    """Open the call of a run: for the first time, after a rest, or once more."""
    state, spec = turn.state, node.the
    run.attempt += 1
    runner = turn.graph.runner_of(spec)
    executor = spec.queue or ("inline" if is_async(runner) else "thread")
    params = None
    if executor not in OURS:
        from .runs import parameters

        params = parameters(turn, node, run, runner)
    timeout = None if spec.timeout is None else round(spec.timeout * SECOND)
    call = Call(run.location, run.attempt, executor, timeout, 1 if spec.once else DELIVERIES, params)
    run.intent = turn.open(call, ("run", node.name, ""))
    run.opened_at = turn.now
    if state.open_runs == 0:
        state.wall_since = turn.now
        _bound_wall(turn)
    state.open_runs += 1
    if spec.limits.wall is not None:
        run.timers += 1
        left = max(0.0, spec.limits.wall - node.used.get("wall", 0))
        run.wall_timer = turn.timer(f"{run.location}/&wall#{run.timers}", left, ("wall", node.name, ""))


def _bound_wall(turn: Turn) -> None:
    limit = turn.model.limits.wall
    if limit is not None:
        state = turn.state
        state.wall_timers += 1
        left = max(0.0, limit - state.used.get("wall", 0))
        state.wall_timer = turn.timer(f"&wall#{state.wall_timers}", left, ("wall", "", ""))


def _open_child(turn: Turn, node: NodeState) -> None:
    spec, state = node.the, turn.state
    try:
        data = goals.fill_data(spec.input, decode(state.input), lambda alias: life.plain_input(turn, node, alias))
        given, find = turn.graph.workflows.get(spec.workflow), turn.graph.find
        workflow = given if given is not None or find is None else find(spec.workflow)
        version = "" if given is None else given.version  # by its name alone it is the active one
        if workflow is not None:
            input = workflow.encode_plain_input(data)
        else:
            input = encode(to_plain(data if isinstance(data, dict) else {} if data is None else {"input": data}))
    except (goals.NoValue, ValueError, PerdureError) as error:
        life.end(turn, node, "failed", "input", detail=str(error))
        return
    node.status, node.opened_at = "open", turn.now
    node.attempts += 1
    child = Child(node.name, spec.workflow, f"{family(turn)}/{node.name}", input, spec.detach, version)
    node.intent = turn.open(child, ("child", node.name, ""))
    turn.fact("opened", manifest(node, spec, spec.goal))


def family(turn: Turn) -> str:
    """What the keys of children begin with: another generation, and a retried instance, has other children."""
    state = turn.state
    if state.life:
        return f"{state.key}~{state.generation}.{state.life}"
    return state.key if state.generation == 1 else f"{state.key}~{state.generation}"


def _ask_to_begin(turn: Turn, node: NodeState) -> None:
    try:
        goal = life.filled_goal(turn, node)
    except (goals.NoValue, ValueError) as error:
        life.end(turn, node, "failed", "input", detail=str(error))
        return
    data = {"node": node.name, "goal": goal}
    location = f"{node.name}/ask/begin"
    node.intent = ask(turn, location, f"Begin {node.name}?", data, ("ask", node.name, ""), node=node)
    turn.fact("asked", {"node": node.name, "location": location, "subject": "begin"})


def ask(
    turn: Turn,
    location: str,
    title: str,
    data: Any,
    target: tuple[str, str, str],
    *,
    node: NodeState,
    roles: tuple[str, ...] = (),
    users: tuple[str, ...] = (),
    within: float | None = None,
    edits: dict[str, Any] | None = None,
) -> bytes:
    """Ask a person: a task of its own. Gives the intent of its answer."""
    from datetime import timedelta

    state, form = turn.state, form_of(edits)
    asked = question(
        "approve",
        workflow=state.workflow,
        key=state.key,
        location=location,
        now=when(turn.now),
        answer=form,
        title=title,
        data=data,
        roles=roles if roles or users else turn.model.roles,
        users=users,
        exclude=[state.actor] if state.actor else [],
        expire=None if within is None else timedelta(seconds=within),
        labels={"node": node.name},
    )
    key = key_of(family(turn), 1, state.workflow, location)
    return turn.open(Child(location, TASK, key, asked.encode()), target)


def read_answer(receipt: Receipt) -> tuple[gate.Verdict, dict[str, Any] | None]:
    """What a person's answer means, and the arguments as the person has edited them."""
    if receipt.status == "ok" and receipt.value:
        found = decode(receipt.value)
        answer = found.get("answer") or {}
        outcome, by = found.get("outcome") or answer.get("outcome"), found.get("by") or ""
        if outcome == "approve":
            return gate.ALLOW, answer.get("arguments")
        reason = answer.get("reason") or "no reason was given"
        return gate.deny("person", f"{by or 'a person'} said no: {reason}"), None
    error = receipt.error
    if receipt.status == "timeout" or (error is not None and error.type == "TaskExpired"):
        return gate.deny("expired", "no person answered in time"), None
    text = "" if error is None else error.message
    return gate.deny("person", f"the question was cancelled{': ' + text if text else ''}"), None


def form_of(edits: dict[str, Any] | None) -> dict[str, Any]:
    """The form of a question; `edits`: the schema of the arguments that a person may change."""
    if edits is None or b"$ref" in msgspec.json.encode(edits):  # a form in a form has no definitions
        return ANSWER
    return {**ANSWER, "properties": {**ANSWER["properties"], "arguments": edits}}


def again(turn: Turn, node: NodeState) -> None:
    """The next iteration, attempt or repair goes to the back of the queue."""
    node.status = "ready"
    push(turn.state, node)
