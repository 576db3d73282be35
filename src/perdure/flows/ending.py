"""The end of a flow: its outcome, the rollback before it, and the clean-up that it waits for."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.codec import encode
from perdure.errors import BadCall, NotAwaited, PerdureError, RollBack, StepFailed
from perdure.kernel.decision import Fact, Outcome
from perdure.kernel.effects import Timer
from perdure.kernel.moment import TIME_MAX
from perdure.kernel.problem import Problem
from perdure.kernel.receipt import Failure, causes_of, failure_of
from perdure.kernel.status import Status

from .author import limited
from .failures import failed_at
from .loop import FlowTask, source_of
from .scope import Scope
from .undo import roll_back

if TYPE_CHECKING:
    from .machine import FlowMachine

log = logging.getLogger("perdure")

TASK_FAILED: Final = "flow/task-failed@1"
"""The fact that a task failed and was never awaited."""

CLEANUP: Final = "&cleanup"
"""The timer that bounds what `finally` blocks may do after a cancel, or after the flow has returned."""


def outcome(machine: FlowMachine) -> Outcome | None:
    main = machine.main
    assert main is not None
    if not machine.forced and machine.losers:
        return None
    if machine.cancel_reason is not None:
        return _cancelled(machine, "; its clean-up took too long and was cut" if machine.forced else "")
    if main.cancelled():
        return _failed(machine, BadCall("the flow raised CancelledError, but nobody cancelled it"))
    error = main.exception()
    if isinstance(error, RollBack):
        _refuse_unknown_checkpoint(machine, error)
    if error is not None:
        return _failed(machine, error)
    if machine.loop.refused is not None:
        return _failed(machine, machine.loop.refused)
    leaked = [task for task in machine.loop.others() if task not in machine.losers and task is not machine.rollback]
    if leaked:
        return _failed(machine, NotAwaited([f"{t.get_name()} ({_describe(t)})" for t in leaked]))
    try:
        plain = machine.flow.signature.result_to_plain(main.result())
        value = limited(encode(plain), f"the result of {machine.flow.name}")
    except PerdureError as unusable:
        return _failed(machine, unusable)
    return Outcome(Status.COMPLETED, value)


def _refuse_unknown_checkpoint(machine: FlowMachine, error: RollBack) -> None:
    """Undo nothing, rather than everything. Older versions did that, and their journals are replayed so."""
    if error.to is None or error.reached or machine.rollback is not None or machine.moment.recorded is not None:
        return
    known = ", ".join(map(repr, machine.undos.checkpoints)) or "none"
    raise BadCall(
        f"RollBack(to={error.to!r}) was raised outside of a checkpoint of that name, so nothing was undone; "
        f"the flow has come to these checkpoints: {known}"
    ) from error


def _failed(machine: FlowMachine, error: BaseException) -> Outcome:
    failure = failure_of(error)
    if isinstance(error, StepFailed):
        failure = msgspec.structs.replace(failure, causes=causes_of(error.errors))  # type: ignore[arg-type]
    again = failed_at(error)
    entry, timer = machine.fired
    if not again and entry == machine.moment.number:
        again = {timer}
    if machine.forced:
        again.add(CLEANUP)
    return Outcome(Status.FAILED, error=failure, again=tuple(sorted(again)))


def rolled_back(machine: FlowMachine, outcome: Outcome) -> Outcome | None:
    """How the flow ends, once what it did is undone; None: that is under way."""
    if outcome.status is Status.COMPLETED or (outcome.status is Status.CANCELLED and not machine.cancel_undo):
        return outcome
    if machine.rollback is None:
        scope = Scope("", False, machine)
        machine.rollback = machine.loop.spawn(roll_back(machine, 0, ""), scope, Context(), "undo")
        machine.loop.drain()
    if not machine.rollback.done():
        return None
    machine.rollback.result()
    if outcome.status is Status.FAILED:
        again = (*outcome.again, *machine.undone_at, *machine.rollback_opened)
        outcome = msgspec.structs.replace(outcome, again=again, renew=machine.undone_at + machine.rollback_opened)
    return outcome


def _cancelled(machine: FlowMachine, note: str) -> Outcome:
    return Outcome(Status.CANCELLED, error=Failure("Cancelled", (machine.cancel_reason or "") + note))


def lost_failures(machine: FlowMachine) -> tuple[Fact, ...]:
    """Tell of tasks that failed and were never awaited: asyncio logs them, and the flow itself did not notice."""
    facts = []
    for task in machine.loop.failed():
        if machine.log is not None and machine.log.forgotten(task.path):
            continue  # a flow that is rebuilt does not have it
        failure = failure_of(task.exception() or AssertionError())
        machine.report((_log,), "flow", task.get_name(), 1, failure)
        told = {"task": task.get_name(), "error": failure.type, "message": failure.message}
        facts.append(Fact(TASK_FAILED, encode(told)))
    return tuple(facts)


async def _log(problem: Problem) -> None:
    """A hook, so that it is told live and once, when it is durable."""
    log.error(
        "%s: the task %s failed, and nothing awaited it: %s\n%s",
        problem.instance,
        problem.location,
        problem.error,
        problem.error.traceback,
    )


def cut(machine: FlowMachine, tasks: Iterable[FlowTask]) -> None:
    """Cancel what still runs, without waiting for it; the flow ends only after its clean-up."""
    for task in tasks:
        if not task.done():
            task.cancel()
            wait_for(machine, task)


def wait_for(machine: FlowMachine, task: FlowTask) -> None:
    if task not in machine.losers:
        machine.losers[task] = None
        task.add_done_callback(lambda done: machine.losers.pop(done, None))


def bound_cleanup(machine: FlowMachine) -> None:
    id = machine.intent(CLEANUP, 1)
    if id not in machine.operations and not machine.forced:
        due = min(TIME_MAX, machine.moment.at + round(machine.flow.cleanup * 1e9))
        machine.open(Timer(CLEANUP, due), fire=machine.force_end)


def _describe(task: FlowTask) -> str:
    coro = task.get_coro()
    place = source_of(coro)
    frame = getattr(coro, "cr_frame", None)
    if not place and frame is not None and "name" in frame.f_locals:  # an operation of the context, as it is
        return f"{frame.f_code.co_name.lstrip('_')} {frame.f_locals['name']!r}"
    return f"{getattr(coro, '__qualname__', coro)}{' at ' + place if place else ''}"
