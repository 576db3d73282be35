"""From one step to the next: sequences that end, turns, branches side by side and their joins, errors on their way out.

`run` goes on until every branch waits, has stopped or has ended. All of that is one slice, so one entry.
"""

from __future__ import annotations

from typing import Any

from perdure.codec import encode
from perdure.kernel.decision import Outcome
from perdure.kernel.status import Status

from . import steps, undo
from .branches import Branch, Fork, Frame, Scope, Stop, Turns
from .compile import Op
from .life import Life, StepError, failure_of_error


def run(life: Life) -> None:
    slice = life.slice
    while slice.ready and slice.outcome is None:
        branch = slice.ready.popleft()
        while branch.frames and branch.wait is None and branch.stop is None and branch.fork is None:
            if slice.outcome is not None:
                return
            try:
                _advance(life, branch)
            except StepError as error:
                fail(life, branch, error)


def _advance(life: Life, branch: Branch) -> None:
    frame = branch.frame
    limit = life.program.limits["slice_steps"]
    if not life.slice.step(branch, limit):
        raise StepError("expression", "slice-limit", f"one slice has more than {limit:,} steps: does a loop end?").to()
    if frame.at < 0:
        _turn_begins(life, branch)
    elif frame.at >= len(frame.seq.ops):
        _sequence_ends(life, branch)
    else:
        op = frame.op
        match op.kind:
            case "repeat":
                _repeat(life, branch, op)
            case "parallel":
                _fork(life, branch, Fork(sorted(_branches(op), reverse=True), _needed(op, len(_branches(op)))), 10_000)
            case "complete":
                complete(life, life.value(branch, "output") if "output" in op.e else None, branch)
                life.slice.noted.append(f"end {branch.location}")
            case "fail":
                message = life.value(branch, "message") if "message" in op.e else ""
                error = {"class": "transport", "code": op.data["code"], "message": str(message), "data": None}
                life.slice.noted.append(f"failed {branch.location}")
                undo.begin(life, Outcome(Status.FAILED, error=failure_of_error(error)))
            case _:
                steps.begin(life, branch, op)


def go_on(branch: Branch) -> None:
    """The step is done: the next one follows."""
    branch.frame.at += 1
    branch.again = None
    branch.settled = {}


def enter(branch: Branch, segment: str, error: Any = None) -> None:
    """Go into a sequence of the step that the branch is at."""
    op = branch.op
    frame = Frame(op.s[segment], f"{branch.location}/{segment}/", "side")
    frame.error = error
    branch.again = None
    branch.settled = {}
    branch.frames.append(frame)


def _sequence_ends(life: Life, branch: Branch) -> None:
    match branch.frame.role:
        case "main":
            complete(life, None, branch)
        case "turn":
            _turn_ends(life, branch)
        case "branch":
            _branch_ends(life, branch)
        case "undo":
            undo.follow(life)
        case _:
            branch.frames.pop()
            go_on(branch)


def complete(life: Life, output: Any, branch: Branch) -> None:
    try:
        value = life.fits(life.program.data.get("output"), output, f"{branch.location}/output", "output")
    except StepError as error:
        error.field = "output"
        raise
    life.slice.outcome = Outcome(Status.COMPLETED, encode(value))


# ---- turns ---------------------------------------------------------------------------------------------------------


def _repeat(life: Life, branch: Branch, op: Op) -> None:
    items: list[Any] | None = None
    count: int | None = None
    if "over" in op.e:
        items = life.value(branch, "over") or []
        if not isinstance(items, list):
            raise StepError("expression", "value", f"a repeat goes over a list, found {items!r:.80}", items, "over")
        count = len(items)
    elif "times" in op.e:
        count = life.value(branch, "times") or 0
        if type(count) is not int or count < 0:
            raise StepError(
                "expression", "value", f"times is a whole number from 0, found {count!r:.80}", count, "times"
            )
    _limited(life, op, -1 if count is None else count - 1)
    if count == 0:
        _loop_ends(branch, op, [])
    elif op.get("at_once") > 1:
        assert count is not None
        fork = Fork([str(index) for index in reversed(range(count))], _needed(op, count))
        fork.turns = Turns(items, count)
        _fork(life, branch, fork, op.get("at_once"))
    else:
        outer = branch.scope
        frame = Frame(op.s["steps"], "", "turn")
        branch.frames.append(frame)
        _begin_turn(frame, op, Turns(items, count), outer, branch.frames[-2].prefix)


def _begin_turn(frame: Frame, op: Op, turns: Turns, outer: Scope, prefix: str) -> None:
    frame.turns = turns
    frame.scope = Scope(outer)
    frame.prefix = f"{prefix}{op.name}/~{turns.index}/"
    frame.at = -1 if "while" in op.e else 0


def _limited(life: Life, op: Op, index: int) -> None:
    limit = op.data.get("limit") or life.program.limits["iterations"]
    if index >= limit:
        raise StepError("expression", "iteration-limit", f"a repeat has at most {limit:,} turns").to()


def _turn_begins(life: Life, branch: Branch) -> None:
    frame = branch.frame
    owner, turns = frame.seq.owner, frame.turns
    assert owner is not None and turns is not None
    if life.condition(branch, "while"):
        _limited(life, owner, turns.index)
        frame.at = 0
        branch.again = None
    else:
        branch.frames.pop()
        _loop_ends(branch, owner, turns.collected)


def _turn_ends(life: Life, branch: Branch) -> None:
    frame = branch.frame
    owner, turns = frame.seq.owner, frame.turns
    assert owner is not None and turns is not None and frame.scope is not None and frame.scope.outer is not None
    last = turns.count is not None and turns.index + 1 >= _needed(owner, turns.count)
    last = last or ("until" in owner.e and life.condition(branch, "until"))
    if not last and "while" not in owner.e:
        _limited(life, owner, turns.index + 1)
    if "collect" in owner.e:
        turns.collected.append(life.value(branch, "collect"))
    branch.again = None
    branch.settled = {}
    if last:
        branch.frames.pop()
        _loop_ends(branch, owner, turns.collected)
    else:
        turns.index += 1
        _begin_turn(frame, owner, turns, frame.scope.outer, branch.frames[-2].prefix)


def _loop_ends(branch: Branch, op: Op, collected: list[Any]) -> None:
    if "collect" in op.e:
        branch.scope.results[op.data["name"]] = collected
    go_on(branch)


# ---- branches side by side -----------------------------------------------------------------------------------------


def _branches(op: Op) -> list[str]:
    return [name for name in op.s if name != "on_failure"]


def _needed(op: Op, count: int) -> int:
    join = op.get("join")
    return count if join == "all" else 1 if join == "any" else min(int(join), count)


def _fork(life: Life, branch: Branch, fork: Fork, at_once: int) -> None:
    branch.fork = fork
    while fork.names and len(fork.live) < at_once:
        _begin_branch(life, branch, fork)


def _begin_branch(life: Life, parent: Branch, fork: Fork) -> None:
    name, op = fork.names.pop(), parent.op
    if fork.turns is None:
        frame = Frame(op.s[name], f"{parent.location}/{name}/", "branch")
    else:
        frame = Frame(op.s["steps"], "", "branch")
        turns = Turns(fork.turns.items, fork.turns.count, int(name))
        _begin_turn(frame, op, turns, parent.scope, parent.frame.prefix)
    child = Branch([frame], parent, name)
    child.waited = parent.waited
    fork.live[name] = child
    life.slice.ready.append(child)


def _branch_ends(life: Life, branch: Branch) -> None:
    parent = branch.parent
    assert parent is not None and parent.fork is not None
    fork, op = parent.fork, parent.op
    if fork.turns is not None and "collect" in op.e:
        fork.collected[branch.name] = life.value(branch, "collect")
    del fork.live[branch.name]
    fork.ended.append(branch.name)
    branch.frames = []
    if len(fork.ended) >= fork.needed:
        _join(life, parent, fork, op)
    elif fork.names:
        _begin_branch(life, parent, fork)
    elif not fork.live:
        _fork_fails(life, parent, fork)


def _join(life: Life, parent: Branch, fork: Fork, op: Op) -> None:
    dropped = sorted([*fork.live, *fork.names])
    for each in fork.live.values():
        life.drop(each)
    life.slice.noted.append(f"join {parent.location}")
    parent.fork = None
    if fork.turns is not None:
        _loop_ends(parent, op, [fork.collected[name] for name in sorted(fork.collected, key=int)])
    else:
        joined = {"first": fork.ended[0], "ended": fork.ended, "dropped": dropped}
        parent.scope.results[op.data["name"]] = joined
        go_on(parent)
    life.slice.ready.append(parent)


# ---- errors --------------------------------------------------------------------------------------------------------


def fail(life: Life, branch: Branch, error: StepError) -> None:
    """An error goes to a branch of its own step, to the nearest parallel that takes it, or stops the branch."""
    told = {**error.error, "location": branch.location}
    inside = 0 <= branch.frame.at < len(branch.frame.seq.ops)
    for route in error.routes if inside else ():
        if route in branch.op.s and branch.op.kind != "parallel":
            enter(branch, route, told)
            life.slice.ready.append(branch)
            return
    if life.ending is None and (life.program.fails or _is_taken(branch)):
        _leave_with(life, branch, told)
    else:
        stop(life, branch, told, error.field)


def stop(life: Life, branch: Branch, error: dict[str, Any], field: str) -> None:
    """The branch stops here until a person answers; the others go on."""
    life.count += 1
    branch.stop = Stop(error, life.count, field)
    if branch.again is not None:
        branch.stop.number, branch.stop.attempt = branch.again.number, branch.again.attempt
        branch.stop.place = branch.again.place
        branch.again = None


def _is_taken(branch: Branch) -> bool:
    """Whether a parallel around this place has a branch for errors."""
    parent = branch.parent
    while parent is not None:
        if "on_failure" in parent.op.s:
            return True
        parent = parent.parent
    return False


def _leave_with(life: Life, branch: Branch, error: dict[str, Any]) -> None:
    """A branch ends with an error: its parallel hears of it."""
    parent = branch.parent
    if parent is None:
        undo.begin(life, Outcome(Status.FAILED, error=failure_of_error(error)))
        return
    fork = parent.fork
    assert fork is not None
    life.drop(branch)
    del fork.live[branch.name]
    fork.errors.append({**error, "branch": branch.name})
    if parent.op.kind == "parallel" and parent.op.get("on_error") == "wait" and (fork.live or fork.names):
        return
    _fork_fails(life, parent, fork)


def _fork_fails(life: Life, parent: Branch, fork: Fork) -> None:
    for each in fork.live.values():
        life.drop(each)
    parent.fork = None
    error = {**fork.errors[0], "all": fork.errors}
    if "on_failure" in parent.op.s:
        enter(parent, "on_failure", error)
        life.slice.ready.append(parent)
    else:
        _leave_with(life, parent, error)
