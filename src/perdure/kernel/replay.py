"""Replay: rebuild a machine from recorded entries, and notice when it changed its mind.

Replay only applies: it never opens an effect. What the machine decides now is compared with what it decided then;
a difference is a `Divergence` with both sides and the location, never a silent second run.
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from perdure.errors import Divergence

from .apply import apply, apply_run
from .batch import JournalRow, SnapshotRow
from .decision import Decision, Send
from .effects import Effect, attempt_of
from .entry import Entry, decode
from .events import KERNEL_ONLY, Address, Event, Retried
from .instance import Instance
from .location import Patterns
from .machine import Machine, Workflow
from .past import Past
from .snapshot import restore


def fold(address: Address, snapshot: SnapshotRow | None, rows: Iterable[JournalRow]) -> Instance:
    """The state of an instance, from its snapshot and the rows after it. Its machine is built when needed."""
    instance = restore(snapshot) if snapshot is not None else Instance(address)
    reader = Patterns(instance.patterns.texts())
    tail: list[Entry] = []
    applied = size = 0
    for seq, id, at, body in rows:
        entry = decode(seq, id, at, body, reader)
        size += len(body)
        if not entry.plain:
            apply_run(instance, tail[applied:])
            apply(instance, entry)
            applied = len(tail) + 1
        tail.append(entry)
    apply_run(instance, tail[applied:])
    instance.tail = tail
    instance.tail_size += size
    return instance


def rebuild(instance: Instance, workflow: Workflow) -> Machine:
    """The live machine of a folded instance, by delivering again what was delivered."""
    machine = workflow.machine(str(instance.address), instance.snapshot_at)
    if not instance.tail:
        return machine
    try:
        past = Past(instance.seed, deliveries(instance.tail))
        while (delivery := past.take()) is not None:
            current = machine.deliver(*delivery)
            if workflow.differs(past.entry.decision, current):
                raise _divergence(instance, workflow, machine, past.entry, current)
    except BaseException:
        machine.dispose()
        raise
    return machine


def deliveries(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Event]]:
    """Which event each entry delivered to the machine: kept events count when their retry succeeded."""
    kept: Event | None = None
    for entry in entries:
        event = entry.event
        if entry.plain:
            yield entry, event
            continue
        if entry.decision.stuck is not None and entry.decision.stuck.kept:
            kept = kept if type(event) is Retried and kept is not None else event
            continue
        if type(event) is Retried and kept is not None:
            event, kept = kept, None
        if type(event) not in KERNEL_ONLY:
            yield entry, event


def _divergence(
    instance: Instance, workflow: Workflow, machine: Machine, entry: Entry, current: Decision
) -> Divergence:
    then, found = _first_difference(entry.decision, current)
    effect = found if isinstance(found, Effect) else None
    return Divergence(
        instance=str(instance.address),
        entry=entry.number,
        recorded=_name(then) or _ending(entry.decision),
        current=_name(found) or _ending(current),
        location=_location(then or found),
        source=workflow.where(machine, effect),
    )


def _first_difference(recorded: Decision, current: Decision) -> tuple[Effect | str | None, Effect | str | None]:
    """The first operation that is not the same: an effect, a note, or None where there is no more."""
    for then, now in (
        *zip_longest(recorded.open, current.open),
        *zip_longest(recorded.noted, current.noted),
        *zip_longest(map(_sent, recorded.send), map(_sent, current.send)),
    ):
        if _name(then) != _name(now):
            return then, now
    return None, None


def _sent(send: Send) -> str:
    return f"send {send.name} to {send.to}"


def _location(operation: Effect | str | None) -> str:
    return operation.location if isinstance(operation, Effect) else (operation or "").partition(" ")[2]


def _name(effect: Effect | str | None) -> str:
    if effect is None or isinstance(effect, str):
        return effect or ""
    attempt = attempt_of(effect)
    suffix = f" (attempt {attempt})" if attempt > 1 else ""
    return f"{type(effect).__name__.lower()} {effect.location}{suffix}"


def _ending(decision: Decision) -> str:
    if decision.outcome is not None:
        error = decision.outcome.error
        return f"the end ({decision.outcome.status}{f': {error}' if error is not None else ''})"
    if decision.withdraw:
        return f"{len(decision.withdraw)} operations withdrawn"
    return "nothing more"
