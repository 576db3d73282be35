"""What runs ask of their graph while they run: `submit`, `use`, `step` and its end `done`, `results`.

`sleep` and `receive` are in `waits.py`.

A request is recorded before it is acted on. Its id names equal requests, so one that comes again, after a crash or a
rest, finds the answer of the first one, or joins it.
"""

from __future__ import annotations

from typing import Any, Final

from perdure.codec import decode, encode
from perdure.codec.converters.frame import did_you_mean
from perdure.kernel.effects import Call, Timer
from perdure.kernel.location import escape
from perdure.kernel.moment import TIME_MAX
from perdure.kernel.receipt import Receipt

from . import gate, life, opening, waits
from .growth import submit
from .model import Permit, fits, lower
from .opening import DELIVERIES
from .state import NodeState, Request, Run, Usage, answer_of, usage_problem
from .turn import SECOND, Turn

LIVE: Final = ("inline", "thread")
"""Executors that get a tool's function itself; the others find it by its name."""

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "sleep": {"seconds": int | float},
    "receive": {"name": str},
    "use": {"tool": str, "arguments": dict},
    "step": {"name": str},
    "done": {"step": str},
}


def requested(turn: Turn, node: NodeState, id: str, kind: str, body: bytes) -> None:
    """One request of the open run of a node."""
    run = node.run
    assert run is not None
    known = run.requests.get(id)
    if known is not None and kind != "done":
        if known.status == "answered":
            turn.answers.append((run.intent, id, answer_of(turn.state, known)))
        elif known.status == "step":
            turn.answers.append((run.intent, id, encode({"go": True})))
        return
    asked = decode(body)
    if problem := _misshapen(kind, asked):
        turn.answer(node, _new(run, id, kind, kind), turn.deny(node, kind, "arguments", problem))
        return
    match kind:
        case "use":
            _use(turn, node, run, id, asked)
        case "step":
            _step(turn, node, run, id, asked)
        case "done":
            _done(turn, node, run, id, asked)
        case "submit":
            request = _new(run, id, "submit", "submit")
            request.keep = True
            turn.answer(node, request, submit(turn, node, run, asked))
        case "results":
            _results(turn, node, run, id, asked)
        case "sleep":
            waits.sleep(turn, node, run, _new(run, id, kind, kind), asked["seconds"])
        case "receive":
            waits.receive(turn, node, run, _new(run, id, kind, asked["name"]), asked["name"])
        case "budget":
            turn.answer(node, _new(run, id, kind, kind), {"v": turn.budget()})
        case _:
            request = _new(run, id, kind, kind)
            known_kinds = "submit, use, step, results, sleep, receive"
            payload = turn.deny(node, kind, "arguments", f"a graph takes these requests: {known_kinds}")
            turn.answer(node, request, payload)


def _misshapen(kind: str, asked: Any) -> str:
    """What is wrong with the body of a request that was not made by a `Node`; empty: nothing."""
    for name, expected in SHAPES.get(kind, {}).items():
        if not isinstance(asked, dict) or not isinstance(asked.get(name), expected):
            return f"{kind} takes {', '.join(SHAPES[kind])}: call node.{kind}(...); found {asked!r:.80}"
    if kind == "results" and not isinstance(asked, list):
        return f"results takes a list of names, found {asked!r:.80}"
    if kind == "sleep" and not 0 <= asked["seconds"] < 9e9:
        return f"sleep takes seconds, not negative, found {asked['seconds']!r:.80}"
    if kind == "receive":
        return waits.wrong_message(asked["name"])
    return ""


def _new(run: Run, id: str, kind: str, name: str, args: Any = None) -> Request:
    request = run.requests[id] = Request(id, kind, name, "called", args=args)
    return request


# ---- tools -----------------------------------------------------------------------------------------------------------


def _use(turn: Turn, node: NodeState, run: Run, id: str, asked: dict[str, Any]) -> None:
    name, arguments = asked["tool"], asked["arguments"]
    request = _new(run, id, "use", name, arguments)
    wanted = {"calls": 1, **(asked.get("reserve") or {})}
    last = id.rpartition(" ")[2]
    verdict = judge_use(turn, node, name, arguments, wanted, nth=int(last) if last.isdecimal() else 1)
    if verdict.word == "deny":
        turn.answer(node, request, turn.deny(node, name, verdict.stage, verdict.reason))
        return
    tool = turn.graph.tools[name]
    request.args = tool.bind(arguments)
    request.keep = tool.writes
    turn.reserve(node, request, wanted)
    number = run.uses[name] = run.uses.get(name, 0) + 1
    request.location = f"{run.location}/use/{escape(name)}#{number}"
    if verdict.permit is None:
        _call_in_time(turn, node, request)
        return
    _ask(turn, node, request, verdict.permit, arguments)
    waits.begin_waiting(turn, node, run)


def _ask(turn: Turn, node: NodeState, request: Request, permit: Permit, arguments: Any) -> None:
    """Ask the people whom a permit names whether a tool may be called with these arguments."""
    name, run = request.name, node.run
    assert run is not None
    location = f"{run.location}/ask/{escape(name)}#{run.uses[name]}"
    data = {"node": node.name, "goal": life.filled_goal(turn, node), "tool": name, "arguments": arguments}
    if is_tainted(turn, node):
        data["untrusted"] = True
    request.status = "asked"
    request.intent = opening.ask(
        turn,
        location,
        f"May {node.name} use {name}?",
        data,
        ("ask", node.name, request.id),
        node=node,
        roles=permit.roles,
        users=permit.users,
        within=permit.within,
        edits=turn.graph.tools[name].schema,
    )
    turn.fact("asked", {"node": node.name, "location": location, "subject": name})


def judge_use(
    turn: Turn,
    node: NodeState,
    name: str,
    arguments: dict[str, Any],
    wanted: Usage,
    *,
    approved: Permit | None = None,
    nth: int = 0,
) -> gate.Verdict:
    """`nth`: the how many-th equal call of its run this is; 0: that does not count, because it was allowed before."""
    life.taint(turn, node, [name for _, name in node.the.after])
    return gate.use(
        node.the,
        name,
        arguments,
        tools=turn.graph.tools_of(node.the),
        permits=turn.model.permits,
        veto=turn.model.veto,
        accounts=turn.accounts(node),
        wanted=wanted,
        approved=approved,
        tainted=is_tainted(turn, node),
        nth=nth,
        repeats=lower(turn.model.limits.repeats, node.the.limits.repeats) if nth else None,
    )


def is_tainted(turn: Turn, node: NodeState) -> bool:
    return bool(turn.model.taint) and not node.trusted


def _call_in_time(turn: Turn, node: NodeState, request: Request) -> None:
    """Call a tool now, or as soon as the rates of the graph allow it."""
    due, run = _next_time(turn, request.name), node.run
    if due <= turn.now:
        _call(turn, node, request)
        return
    assert run is not None
    request.status = "rated"
    location = f"{request.location}/rate#{request.attempt}"
    request.intent = turn.open(Timer(location, min(due, TIME_MAX)), ("rated", node.name, request.id))
    waits.begin_waiting(turn, node, run)


def _next_time(turn: Turn, name: str) -> int:
    """When a tool may be called. That time is taken."""
    rates = {glob: rate for glob, rate in turn.model.rate.items() if fits(glob, name)}
    taken, due = turn.state.rates, turn.now
    for glob, (calls, seconds) in rates.items():
        if len(times := taken.get(glob, [])) == calls:
            due = max(due, times[0] + round(seconds * SECOND))
    for glob, (calls, _) in rates.items():
        taken[glob] = sorted([*taken.get(glob, ()), due])[-calls:]
    return due


def its_time_has_come(turn: Turn, node: NodeState, request: Request) -> None:
    """A call that its rate held back begins."""
    assert node.run is not None
    node.run.waiting -= 1
    _call(turn, node, request)


def _call(turn: Turn, node: NodeState, request: Request) -> None:
    """Open the call of a tool, for the first time or once more."""
    tool = turn.graph.tools[request.name]
    request.status = "called"
    params = None
    if tool.executor not in LIVE:
        call = f"{tool.function.__module__}:{tool.function.__qualname__}"
        params = encode({"call": call, "args": [], "kwargs": request.args})
    timeout = None if tool.timeout is None else round(tool.timeout * SECOND)
    deliveries = 1 if tool.once else DELIVERIES
    effect = Call(request.location, request.attempt, tool.executor, timeout, deliveries, params)
    request.intent = turn.open(effect, ("use", node.name, request.id))


def tool_answered(turn: Turn, node: NodeState, request: Request, receipt: Receipt) -> None:
    """The receipt of a tool's call: an answer, or another attempt after a pause."""
    tool = turn.graph.tools[request.name]
    request.intent = b""
    if receipt.status == "ok":
        found: Any = decode(receipt.value) if receipt.value else None
        value, usage = found if tool.executor in LIVE else (found, {})
        _spend(turn, node, request, usage)
        turn.answer(node, request, {"v": value})
        return
    error = receipt.error
    request.errors.append([receipt.status, ""] if error is None else [error.type, error.message[:2000]])
    retry = receipt.status == "error" and error is not None and error.retry and request.attempt <= tool.retries
    if retry:
        seconds = tool.backoff.seconds(request.attempt, lambda: _dice(turn))
        request.status = "backoff"
        location = f"{request.location}/backoff#{request.attempt}"
        request.intent = turn.timer(location, seconds, ("again", node.name, request.id))
        return
    _spend(turn, node, request, {})
    request.keep = request.keep and receipt.status == "unknown"
    word = {"timeout": "t", "unknown": "u"}.get(receipt.status, "f")
    turn.answer(node, request, {word: [request.name, request.attempt, request.errors]})


def tool_again(turn: Turn, node: NodeState, request: Request) -> None:
    request.attempt += 1
    _call_in_time(turn, node, request)


def person_answered(turn: Turn, node: NodeState, request: Request, receipt: Receipt) -> None:
    """A person has answered for a tool's call, or no person has in time."""
    request.intent = b""
    verdict, edited = opening.read_answer(receipt)
    said = {"node": node.name, "subject": request.name, "stage": verdict.stage, "outcome": verdict.word}
    turn.fact("answered", said)
    if verdict.word == "deny":
        payload = turn.deny(node, request.name, verdict.stage, verdict.reason)
        turn.answer(node, request, payload)
        return
    arguments = edited if edited is not None else request.args
    wanted = request.reserve
    turn.release(node, request)  # judged again as if nothing was reserved
    tool = turn.graph.tools[request.name]
    tainted = is_tainted(turn, node) and tool.writes
    answered = gate.permit_for(request.name, request.args, turn.model.permits, tainted=tainted)
    again = judge_use(turn, node, request.name, arguments, wanted, approved=answered)
    if again.word == "deny":
        turn.answer(node, request, turn.deny(node, request.name, again.stage, again.reason))
        return
    turn.reserve(node, request, wanted)
    request.args = tool.bind(arguments)
    run = node.run
    assert run is not None
    if again.permit is not None:  # the edited arguments are for other people to decide
        run.uses[request.name] += 1
        _ask(turn, node, request, again.permit, arguments)
        return
    run.waiting -= 1
    _call_in_time(turn, node, request)


# ---- steps -----------------------------------------------------------------------------------------------------------


def _step(turn: Turn, node: NodeState, run: Run, id: str, asked: dict[str, Any]) -> None:
    request = _new(run, id, "step", asked["name"])
    reserve = asked.get("reserve") or {}
    problem = usage_problem(reserve)
    wanted = {"calls": 1, **({} if problem else reserve)}
    verdict = gate.deny("arguments", f"reserve: {problem}") if problem else gate.budget(turn.accounts(node), wanted)
    if verdict.word == "deny":
        turn.answer(node, request, turn.deny(node, request.name, verdict.stage, verdict.reason))
        return
    turn.reserve(node, request, wanted)
    request.status = "step"
    turn.answers.append((run.intent, id, encode({"go": True})))


def _done(turn: Turn, node: NodeState, run: Run, id: str, asked: dict[str, Any]) -> None:
    """The run has performed a step. Its result is the answer that an equal request hears from now on."""
    request = run.requests.get(asked["step"])
    if request is not None and request.status == "step":
        if "f" in asked:
            _spend(turn, node, request, {})
            payload: dict[str, Any] = {"f": [request.name, 1, [asked["f"]]]}
        else:
            _spend(turn, node, request, asked.get("usage") or {})
            payload = {"v": asked.get("v")}
        turn.release(node, request)
        request.answer, request.status = encode(payload), "answered"
    new = node.notes[run.told :]
    run.told = len(node.notes)
    turn.answers.append((run.intent, id, encode({"n": new} if new else {})))


def _spend(turn: Turn, node: NodeState, request: Request, usage: Any) -> None:
    """Count what a request cost, once. A usage that makes no sense counts as what was reserved."""
    usage = usage or {}
    if problem := usage_problem(usage):
        turn.deny(node, request.name, "usage", f"{problem}; what was reserved counts")
        usage = {axis: amount for axis, amount in request.reserve.items() if axis != "calls"}
    turn.spend(node, {**usage, "calls": usage.get("calls", 1)})


# ---- results ---------------------------------------------------------------------------------------------------------


def _results(turn: Turn, node: NodeState, run: Run, id: str, asked: Any) -> None:
    state = turn.state
    request = _new(run, id, "results", "results")
    names = tuple(dict.fromkeys(str(name) for name in asked))
    unknown = next((name for name in names if name not in state.nodes), None)
    if unknown is not None:
        known = ", ".join(list(state.nodes)[:20])
        reason = f"there is no node {unknown!r:.80}{did_you_mean(unknown, state.nodes)}; there are: {known}"
        turn.answer(node, request, turn.deny(node, "results", "arguments", reason))
        return
    endless = next((name for name in names if _waits_for(turn, name, node.name)), None)
    if endless is not None:
        reason = f"{endless} waits for {node.name} itself: the two would wait for each other"
        turn.answer(node, request, turn.deny(node, "results", "arguments", reason))
        return
    request.names = names
    open_names = [name for name in names if state.nodes[name].status != "ended"]
    if not open_names:
        life.taint(turn, node, names)
        turn.answer(node, request, {} if names else {"r": []})
        return
    request.status, request.left = "waits", len(open_names)
    for name in open_names:
        state.waiters.setdefault(name, []).append((node.name, id))
    waits.begin_waiting(turn, node, run)


def _waits_for(turn: Turn, name: str, asker: str) -> bool:
    """Whether a node cannot end before the asker has: by its dependencies, or by results that its run waits for."""
    nodes = turn.state.nodes
    todo, seen = [name], set()
    while todo:
        each = todo.pop()
        if each == asker:
            return True
        if each in seen:
            continue
        seen.add(each)
        found = nodes[each]
        if found.status == "ended":
            continue
        if found.status == "blocked":
            todo += [other for _, other in found.the.after if found.the.needs.get(other) != "optional"]
        todo += [other for other in found.children if nodes[other].controller == each]
        run = found.run
        if run is not None:
            todo += [other for request in run.requests.values() if request.status == "waits" for other in request.names]
    return False


def _dice(turn: Turn) -> float:
    return int.from_bytes(turn.moment.entropy()[:7], "big") / 2**56
