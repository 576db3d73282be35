"""The live machines of instances: how they are made, exchanged and given up. What they decide is not looked at here.

A machine is made when an event comes for its instance, from the rows that were read (`replay.py`). A new one comes when
the instance gets another past, and by another definition when the rules say so. One that raised is not used again.
"""

from perdure.errors import Divergence, UnknownVersion

from .decision import Decision, Stuck
from .events import Migrated
from .instance import Instance
from .machine import Machine, Workflow
from .moment import Moment
from .receipt import failure_of
from .replay import migrated, rebuild
from .workflows import Workflows


def make(instance: Instance, version: str, workflows: Workflows[Workflow]) -> Machine:
    """The machine of an instance that has none: new, or told again what it was told before."""
    workflow = workflows.of(instance.address.workflow, version)
    assert workflow is not None, "an event for an unknown workflow is refused"
    instance.workflow = workflow
    instance.machine = machine = rebuild(instance, workflow)
    instance.tail = instance.snapshot_at = None
    return machine


def make_anew(instance: Instance, workflows: Workflows[Workflow]) -> Machine:
    """A machine without a past: it is about to be told another."""
    if instance.machine is not None:
        instance.machine.dispose()
    workflow = instance.workflow = workflows.of(instance.address.workflow, instance.definition)
    assert workflow is not None, "an event for an unknown workflow is refused"
    instance.machine = machine = workflow.machine(str(instance.address), None)
    instance.tail = instance.snapshot_at = None
    return machine


def migrate(
    instance: Instance, machine: Machine, to: Migrated, moment: Moment, workflows: Workflows[Workflow]
) -> Decision:
    """The machine of another definition, made from what this one holds."""
    workflow = workflows.exactly(instance.address.workflow, to.version)
    if workflow is None:
        raise UnknownVersion(f"{instance.address} goes over to version {to.version}, which is not registered here")
    instance.machine, decision = migrated(str(instance.address), machine, to, moment, workflow)
    machine.dispose()
    instance.workflow = workflow
    return decision


def spoil(instance: Instance, error: Exception) -> Decision:
    """Poison does not spread: this instance stops with its event kept; its machine is rebuilt before a retry."""
    if instance.machine is not None:
        instance.machine.dispose()
    instance.machine = instance.tail = None
    location = version = ""
    if isinstance(error, Divergence):
        location, version = error.location, "" if instance.workflow is None else instance.workflow.version
    return Decision(stuck=Stuck(failure_of(error), location, kept=True, version=version))


def has_other_code(instance: Instance, workflows: Workflows[Workflow]) -> bool:
    """Whether an instance is stuck by a divergence, and would now run on another version than the one that diverged."""
    stuck = instance.stuck
    if stuck is None or not stuck.kept or stuck.error.type != Divergence.__name__:
        return False
    workflow = workflows.of(instance.address.workflow, instance.definition)
    return workflow is not None and workflow.version != stuck.version
