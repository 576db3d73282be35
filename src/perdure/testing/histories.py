"""Histories as files: written by `perdure export`, kept beside the tests, replayed on today's code.

A file has one line for each entry: the recorded bytes, and beside them what they say, for people and for diffs.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.app.dialects import gather
from perdure.codec import decode
from perdure.codec.visible import visible_numbers
from perdure.errors import NotAHistory, PerdureError, UnknownWorkflow
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.decision import Decision, Outcome
from perdure.kernel.effects import Effect, due_of
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Address, CancelAsked, Rewound, Started
from perdure.kernel.instance import Instance
from perdure.kernel.location import Patterns
from perdure.kernel.machine import Workflow
from perdure.kernel.moment import Moment, when
from perdure.kernel.replay import deliveries, fold, rebuild
from perdure.runtime.arguments import unknown
from perdure.runtime.history import Line, Reader

FORMAT: Final = "perdure history 1"
VALUE_MAX: Final = 200


class _Line(msgspec.Struct, omit_defaults=True):
    number: int
    at: int
    told: str
    body: str
    seq: int = 0  # of a cell, which may know it


class _File(msgspec.Struct):
    format: str
    workflow: str
    key: str
    generation: int
    version: str
    status: str
    entries: list[_Line]


# ---- writing and reading -------------------------------------------------------------------------------


def text_of(head: HeadRow, rows: Sequence[JournalRow]) -> str:
    """The file of a history: JSON, with a line for each entry. The same history gives the same text everywhere."""
    about = {
        "format": FORMAT,
        "workflow": head.workflow,
        "key": head.key,
        "generation": head.generation,
        "version": head.version,
        "status": head.status,
    }
    lines = [f"{_json(name)}: {_json(value)}," for name, value in about.items()]
    entries = []
    cell = _is_cell(rows)
    for line, row in zip(Reader().read(rows), rows, strict=True):
        told = f"{when(row.at):%Y-%m-%d %H:%M:%S} {words(line)}"
        seq = row.seq if cell else 0
        entries.append(_json(_Line(line.number, row.at, told, b64encode(row.body).decode(), seq)))
    return "\n".join(["{", *lines, '"entries": [', ",\n".join(entries), "]", "}", ""])


def _is_cell(rows: Sequence[JournalRow]) -> bool:
    """A cell was made by its first event. Its code may ask for the places of its entries in the journal."""
    event = decode_entry(*rows[0], Patterns()).event if rows else None
    return isinstance(event, Started) and event.first is not None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def words(line: Line) -> str:
    """An entry on one line: what came, and what it led to. Long values are cut."""
    said = [line.location, line.status] if line.event == "receipt" else [line.event, line.location]
    if line.value is not None:
        value = _json(visible_numbers(line.value))
        said.append(value if len(value) <= VALUE_MAX else value[:VALUE_MAX] + "…")
    if line.error is not None and line.outcome != "completed":
        said.append(str(line.error).strip().partition("\n")[0])
    led_to = ", ".join([*line.opened, *filter(None, [line.outcome])])
    return " ".join(filter(None, said)) + (f" → {led_to}" if led_to else "")


def write(path: str | os.PathLike[str], head: HeadRow, rows: Sequence[JournalRow]) -> None:
    Path(path).write_text(text_of(head, rows), encoding="utf-8")


def read(path: str | os.PathLike[str]) -> tuple[Address, list[JournalRow]]:
    """The name of an instance and its rows. Those of a cell have the places that they had; others are counted from 1:
    which rows stood between them is not kept."""
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
        rows = [
            JournalRow(line.seq or line.number, 1, line.at, b64decode(line.body, validate=True))
            for line in file.entries
        ]
    except (msgspec.DecodeError, ValueError) as error:
        raise NotAHistory(f"{path} is not an exported history: {error}") from None
    except OSError as error:
        raise NotAHistory(f"{path} cannot be read: {error.strerror}") from None
    if file.format != FORMAT:
        raise NotAHistory(f"{path} has the format {file.format!r}; this perdure reads {FORMAT!r}")
    if [line.number for line in file.entries] != list(range(1, len(rows) + 1)) or not rows:
        raise NotAHistory(f"{path} is not whole: its entries are not numbered from 1 on")
    return Address(file.workflow, file.key), rows


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


def changed_mind(address: Address, rows: Sequence[JournalRow], workflow: Workflow) -> str:
    """What a replay decides otherwise, to the last value; an empty text: nothing. Code that has not changed must not.

    An engine compares operations only, because values may change with the code.
    """
    instance = _folded(address, rows)
    assert instance.tail is not None
    machine = workflow.machine(str(address), None)
    try:
        for entry, event in deliveries(instance.tail):
            if type(event) is Rewound:
                machine.dispose()
                machine = workflow.machine(str(address), None)
            current = machine.deliver(
                event, Moment(entry.clock, instance.seed, entry.number, entry.decision, None, entry.seq, entry.at)
            )
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
