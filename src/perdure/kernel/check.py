"""What every decision must satisfy before it is recorded. Breaking a rule counts as raising.

`apply` may then trust the journal: a decision that it could not fold must never get there, or the instance
could not be loaded again.
"""

from collections.abc import Sequence

from .decision import Decision
from .events import Event, ReceiptArrived
from .instance import Instance
from .limits import refuse_excess
from .status import TERMINAL
from .task import TASK, columns


def check(instance: Instance, event: Event, decision: Decision) -> tuple[bytes, ...]:
    """The ids of the intents that a sound decision opens. `event` is what was asked, `instance` as it was before."""
    if type(decision) is not Decision:
        raise TypeError(f"a machine answers with a Decision, not with {type(decision).__name__}")
    if decision.outcome is not None:
        if decision.outcome.status not in TERMINAL:
            raise ValueError(f"an outcome is terminal; {decision.outcome.status} is not")
        if decision.stuck is not None:
            raise ValueError("a decision ends the instance or is stuck, not both")
    if decision.publish:
        _check_task(instance, decision)
    opened = decision.open
    workflow = instance.workflow
    if workflow is not None and (len(opened) > workflow.limits.effects or decision.send or decision.announce):
        refuse_excess(decision, workflow.limits)
    for tag, value in decision.tags:
        if type(tag) is not str or not (value is None or type(value) is str):
            raise TypeError(f"a tag is a text, or None to remove it, found {tag!r:.80}: {value!r:.80}")
    if decision.ids and len(decision.ids) != len(opened):
        raise ValueError(f"{len(opened)} effects have {len(decision.ids)} ids")
    if not opened and not decision.withdraw:
        return ()
    if len(opened) == 1 and not decision.withdraw and not decision.ids:  # by far the most frequent
        id = decision.intents[0] if len(decision.intents) == 1 else instance.intent_id(opened[0])
        if id in instance.open and not (type(event) is ReceiptArrived and event.intent == id):
            raise ValueError(f"two effects cannot be open at {opened[0].location!r}")
        return (id,)
    return _several(instance, event, decision)


def _check_task(instance: Instance, decision: Decision) -> None:
    """The row of a task is read when the entry is applied: what is none must not get there."""
    for name, value in decision.publish:
        if name == TASK and any(type(column) is not kind for column, kind in columns(value)):
            raise ValueError(f"{instance.address} published a row of a task that is none")


def _several(instance: Instance, event: Event, decision: Decision) -> tuple[bytes, ...]:
    closed = {event.intent} if type(event) is ReceiptArrived else set()
    for id in decision.withdraw:
        if id not in instance.open or id in closed:
            raise ValueError(f"the decision withdraws {id.hex()}, which is not open")
        closed.add(id)
    opened: dict[bytes, None] = {}
    ids: Sequence[bytes] = decision.ids or decision.intents
    if len(ids) != len(decision.open):
        ids = [instance.intent_id(effect) for effect in decision.open]
    for id, effect in zip(ids, decision.open, strict=True):
        if id in opened or (id in instance.open and id not in closed):
            raise ValueError(f"two effects cannot be open at {effect.location!r}")
        opened[id] = None
    return tuple(opened)
