"""Histories as files (`views/export.py`), kept beside the tests, replayed on today's code."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.app.dialects import gather
from perdure.codec import decode
from perdure.errors import NotAHistory, PerdureError, UnknownWorkflow
from perdure.kernel.batch import JournalRow
from perdure.kernel.decision import Decision, Outcome
from perdure.kernel.effects import Effect, due_of
from perdure.kernel.entry import event_of
from perdure.kernel.events import Address, CancelAsked, Migrated, Rewound, Started
from perdure.kernel.instance import Instance
from perdure.kernel.machine import Workflow
from perdure.kernel.moment import when
from perdure.kernel.replay import deliver_again, deliveries, fold, rebuild
from perdure.runtime.arguments import unknown
from perdure.views.export import read

# ---- replaying -----------------------------------------------------------------------------------------


def replay(history: str | os.PathLike[str], *workflows: Any) -> list[str]:
    """Replay an exported history on today's code; a directory: all of its `.json` files. No step runs.

    Raises the `Divergence` that an engine would meet, or whatever else the code raises; of a directory, all of them as
    an `ExceptionGroup`. The answer is which instances were replayed.
    """
    path = Path(history)
    if not path.is_dir():
        return [_replay(path, workflows)]
    files = sorted(path.rglob("*.json"))
    if not files:
        raise NotAHistory(f"{path} has no exported histories: no file there ends in .json")
    names, errors = [], []
    for file in files:
        try:
            names.append(_replay(file, workflows))
        except Exception as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(files)} histories in {path} do not go on with this code", errors)
    return names


def _replay(path: Path, workflows: Sequence[Any]) -> str:
    address, rows = read(path)
    by_name = {workflow.name: workflow for workflow in gather(workflows)[0]}
    try:
        if address.workflow not in by_name:
            advice = "pass it: replay(path, workflow, ...)"
            raise UnknownWorkflow(unknown("workflow", address.workflow, by_name.keys(), advice))
        rebuild(_folded(address, rows), by_name[address.workflow]).dispose()
    except Exception as error:
        error.add_note(f"while {path} was replayed")
        raise
    return str(address)


def _folded(address: Address, rows: Sequence[JournalRow]) -> Instance:
    instance = fold(address, None, rows)
    tail = instance.tail
    assert tail is not None
    stuck = tail[-2].decision.stuck if len(tail) > 1 else None
    if stuck is not None and stuck.kept and isinstance(tail[-1].event, CancelAsked):
        tail.pop()  # that end was the kernel's own decision: the machine was not asked
    return instance


# ---- comparing every word ------------------------------------------------------------------------------


def without_advice(divergence: str) -> str:
    """The text of a divergence where no code has changed: how to change code is of no use."""
    said, found, _ = divergence.partition("; nothing was run\n")
    if not found:
        return divergence
    return f"{said}; the code has not changed: it looks at something that is not recorded, such as a clock or dice"


def changed_mind(
    address: Address, rows: Sequence[JournalRow], workflow: Workflow, code: Callable[[str, str], Workflow | None]
) -> str:
    """What a replay decides otherwise, to the last value; an empty text: nothing. Code that has not changed must not.

    An engine compares operations only, because values may change with the code. `workflow` is that of the last entry,
    `code` has the versions that an instance ran on before it migrated.
    """
    instance = _folded(address, rows)
    assert instance.tail is not None
    started = event_of(rows[0].body)
    workflow = (code(address.workflow, started.version) if isinstance(started, Started) else None) or workflow
    machine = workflow.machine(str(address), None)
    try:
        for entry, event in deliveries(instance.tail):
            if type(event) is Rewound:
                machine.dispose()
                machine = workflow.machine(str(address), None)
            elif type(event) is Migrated:
                workflow = code(address.workflow, event.version) or workflow
            machine, current = deliver_again(instance, entry, event, machine, workflow, recorded=entry.decision)
            if _comparable(current) != _comparable(entry.decision):
                rebuild(_folded(address, rows), workflow).dispose()  # another operation is told best by its Divergence
                said = next(_differences(entry.decision, current), "it decides otherwise")
                return f"{address}, entry {entry.number}: {said}"
    except PerdureError as error:
        return without_advice(str(error))
    except Exception as error:  # of the workflow's own code
        return f"{address} raises {type(error).__name__} on replay: {error}"
    finally:
        machine.dispose()
    return ""


def _comparable(decision: Decision) -> Decision:
    """Without the places in memory that texts of errors may name, and without tracebacks, which do."""
    outcome = decision.outcome
    if outcome is not None and outcome.error is not None:
        error = outcome.error
        plain = msgspec.structs.replace(error, message=without_places(error.message), traceback="", causes=())
        outcome = msgspec.structs.replace(outcome, error=plain)
    return msgspec.structs.replace(decision, intents=(), answers=(), outcome=outcome)


def without_places(text: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]{6,}", "0x...", text)


def _differences(recorded: Decision, current: Decision) -> Iterator[str]:
    for then, now in zip(recorded.open, current.open, strict=False):
        if then != now:
            yield f"{then.location} {_asked(then)} when it ran, and {_asked(now)} on replay"
    for (name, old), (_, new) in zip(recorded.publish, current.publish, strict=False):
        if old != new:
            yield f"it published {name} = {decode(old)!r} when it ran, and publishes {decode(new)!r} on replay"
    for sent, sends in zip(recorded.send, current.send, strict=False):
        if sent != sends:
            yield (
                f"it sent {sent.name} {decode(sent.body)!r} to {sent.to} when it ran, "
                f"and sends {decode(sends.body)!r} to {sends.to} on replay"
            )
    for (_, old), (_, new) in zip(recorded.respond, current.respond, strict=False):
        if old != new:
            yield f"it answered {decode(old)!r} when it ran, and answers {decode(new)!r} on replay"
    if recorded.outcome != current.outcome:
        yield f"it ended with {_end(recorded.outcome)} when it ran, and with {_end(current.outcome)} on replay"


def _asked(effect: Effect) -> str:
    due = due_of(effect)
    return f"was due at {when(due):%Y-%m-%d %H:%M:%S.%f}" if due is not None else f"was {effect}"


def _end(outcome: Outcome | None) -> str:
    if outcome is None:
        return "nothing"
    if outcome.error is not None:
        return str(outcome.error)
    return repr(None if outcome.value is None else decode(outcome.value))
