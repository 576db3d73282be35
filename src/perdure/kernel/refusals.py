"""Refusals: why an event is not recorded, and what its sender hears instead.

Pure functions of an instance, an event, what is registered here and what is in force. An answer is a refusal, or that
the event is stale, or that it was recorded before; None: it is to be recorded. Nothing is changed, counted or
told here: that is the kernel's. Receipts from outside are judged in `outside.py`, decisions in `check.py`.
"""

from typing import Final

from .apply import content, input_hash
from .effects import Call
from .events import (
    OF_AN_INTENT,
    CancelAsked,
    Event,
    Message,
    Migrated,
    Parent,
    Released,
    Requested,
    Retried,
    Rewound,
    Settled,
    Started,
    Streamed,
    Tagged,
    Woken,
    asked_of,
    id_of,
)
from .instance import Instance, Intent
from .limits import FRAMES_MAX
from .machine import Choosy, Successor, Workflow
from .mailbox import STALE, Accepted, Answer, Refused
from .past import still_running
from .policy import ANY, Policy, Verb
from .rules import Rules
from .status import FINAL, Status, ended
from .workflows import Workflows

VERBS: Final[dict[type[Event], Verb]] = {Woken: "wake", CancelAsked: "cancel"}
"""What a policy may refuse from any sender. A message it refuses from outside only."""

NOT_HERE: Final = frozenset({"unknown-workflow", "unknown-version"})
"""Refusals of this engine alone: another may have the code."""


def refusal(
    instance: Instance, event: Event, workflows: Workflows[Workflow], rules: Rules, *, heard: bool
) -> Answer | None:
    """The answer to an event that is not recorded; None: record it. `heard`: its sender waits for the answer."""
    if type(event) is Started:
        # A start that was acknowledged before is no longer refused for a version that is gone, nor is a fork: it gets
        # the newest, as any instance does.
        policy = _policy(workflows, event.workflow)
        asked = (heard and event.forked is None) or policy.exact
        against = _no_start(event, workflows.refusal(event.workflow, event.version, exact=asked), policy)
        return against or _misfit(event, workflows) if instance.id == 0 else _start_of_another(instance, event, against)
    policy = _policy(workflows, instance.address.workflow)
    if instance.id == 0:
        if type(event) in OF_AN_INTENT:
            return STALE
        return Refused("unknown-instance", f"there is no instance {instance.address}")
    if type(event) in OF_AN_INTENT:
        intent = instance.open.get(event.intent)  # type: ignore[union-attr]
        if intent is None or (type(event) is Released and not intent.held):
            return STALE
        if type(event) is Requested and (intent.held or event.delivery != intent.delivery):
            return STALE
        if type(event) is Streamed and not _is_next(intent, event):
            return STALE
    elif (answer := _control_refusal(instance, event, rules, policy)) is not None:
        return answer
    workflow = instance.address.workflow
    unknown = workflows.refusal(workflow, instance.definition, exact=policy.exact)
    if unknown is None and type(event) is Migrated and event.version:
        unknown = workflows.refusal(workflow, event.version)
        if unknown is None and not isinstance(workflows.exactly(workflow, event.version), Successor):
            unknown = Refused("refused", f"{workflow} is a {policy.noun}, which migrates to no version by name")
    if unknown is None and rules.outdated(workflow, instance.definition) and not instance.ended:
        unknown = workflows.refusal(workflow, rules.versions[workflow])
    return unknown


def missing(instance: Instance, event: Event, workflows: Workflows[Workflow]) -> tuple[str, str]:
    """The name and the version that an event needs and that this engine has not."""
    name = instance.address.workflow
    named = type(event) is Started or (type(event) is Migrated and workflows.exactly(name, instance.definition))
    return name, event.version if named else instance.definition  # type: ignore[union-attr]


def _policy(workflows: Workflows[Workflow], name: str) -> Policy:
    workflow = workflows.newest(name)
    return ANY if workflow is None else workflow.policy


def _is_next(intent: Intent, frame: Streamed) -> bool:
    """Whether a frame is recorded: its call has such frames, and it comes after the last one."""
    taken = type(intent.effect) is Call and intent.effect.frames
    return taken and intent.frames < frame.number <= FRAMES_MAX


def _no_start(event: Started, unknown: Refused | None, policy: Policy) -> Refused | None:
    """Why nothing can be started of this name and key, whether it exists or not."""
    made_by = "" if event.first is None else event.first.sender
    if not made_by and policy.created == "message":
        return Refused("refused", f"{event.workflow} is {policy.refuses('start')}")
    if policy.only and event.key != policy.only:
        return Refused("refused", f"there is one {policy.noun}: {event.workflow}/{policy.only}")
    return unknown


def _misfit(event: Started, workflows: Workflows[Workflow]) -> Refused | None:
    """Why a workflow does not take this input, where its sender hears of the start alone."""
    if event.parent is None or not event.parent.detached or not event.parent.intent:
        return None
    workflow = workflows.of(event.workflow, event.version)
    against = workflow.refuse_input(event.input) if isinstance(workflow, Choosy) else ""
    return Refused("refused", against) if against else None


def _start_of_another(instance: Instance, event: Started, against: Refused | None) -> Answer | None:
    """The answer to a start under a name that an instance bears already."""
    again = instance.ended and (
        event.reuse == "always"
        or (event.reuse == "failed" and instance.status is not Status.COMPLETED)
        or _of_a_later_generation(event.parent, instance.parent)
    )
    if again or (against is not None and against.code in ("unknown-workflow", "refused")):
        return against
    if event.parent is not None and event.parent.intent and event.parent != instance.parent:
        return Refused("key-in-use", f"{instance.address} exists already; a child needs a key of its own")
    if input_hash(event.input) != instance.input_hash or event.forked is not None:
        return Refused("key-in-use", f"{instance.address} exists already, with another input")
    return Accepted(instance.id, instance.address, fresh=False)


def _of_a_later_generation(parent: Parent | None, before: Parent | None) -> bool:
    """Whether a parent that was started again asks for a child, and the key is that of a child of another instance.

    Only the id of the earlier parent is looked at: the head of an instance that has ended has no more of it.
    """
    if parent is None or before is None or not parent.intent:
        return False
    return parent.generation > 1 and parent.instance != before.instance


def _control_refusal(instance: Instance, event: Event, rules: Rules, policy: Policy) -> Answer | None:
    """The answer to what callers and other instances send."""
    if against := _refused(policy, event):
        return Refused("refused", f"{instance.address.workflow} is {against}")
    id, said = id_of(event), asked_of(event)
    if id in instance.seen:
        counted = type(event) is Message and event.name == policy.counted  # counts were added: other content each time
        if not counted and instance.seen[id] not in (None, content(event)):
            text = f"{instance.address} has taken another message with the id {id!r:.80}: an id names one message"
            return Refused("refused", f"{text}; send this one with an id of its own")
        return Accepted(instance.id, instance.address, fresh=False)
    # One that has ended may be loaded without its history, as version 0: that it has ended says enough.
    if said is not None and said.if_entry is not None and instance.version and said.if_entry != instance.version:
        text = f"the last entry of {instance.address} is {instance.version}, not {said.if_entry}"
        return Refused("version-conflict", text)
    match event:
        case Message(intent=intent) if intent and intent not in instance.open:
            return STALE
        case CancelAsked(intent=asked) if asked and (instance.parent is None or instance.parent.intent != asked):
            return STALE
        case CancelAsked() if instance.ended or (instance.cancelled and instance.stuck is None):
            return Accepted(instance.id, instance.address, fresh=False)
        case Rewound():
            return rewind_refusal(instance, event)
        case Retried() | Settled() if instance.stuck is None:
            return Refused("not-stuck", f"{instance.address} is {instance.status}, not stuck")
        case Settled() if instance.stuck is not None and instance.stuck.kept:
            return Refused("refused", f"{instance.address} stopped at an event, not at an effect: retry or cancel")
        case Settled(location=at) if instance.stuck is not None and instance.stuck.location != at:
            return Refused("refused", f"{instance.address} is not stuck at {at!r}: {instance.stuck.location!r}")
        case Migrated(version="") if not _goes_over(instance, rules):
            return STALE
        case Migrated(version=version) if version == instance.definition:
            return Accepted(instance.id, instance.address, fresh=False)
        case Migrated(version=version) if version and instance.halted:
            return Refused(
                "refused", f"{instance.address} stopped at an event, and migrates after that: retry or cancel"
            )
        case _ if instance.ended:
            retry = " before a retry" if instance.status is Status.FAILED and policy.retry else ""
            return Refused("ended", f"{instance.address} {ended(instance.status)} and takes no {_word(event)}{retry}")
        case _:
            return None


def _goes_over(instance: Instance, rules: Rules) -> bool:
    """Whether an instance migrates now. A stuck one has an event that comes first, unless it is stuck at that."""
    if instance.stuck is not None:
        return type(instance.kept) is Migrated
    return not instance.ended and rules.outdated(instance.address.workflow, instance.definition)


def _refused(policy: Policy, event: Event) -> str:
    """Why an event that others take is none for an instance of this policy; empty: it is."""
    if type(event) is Message:
        return "" if event.sender else policy.refuses("send")
    if type(event) is Rewound:
        return policy.refuses("rewind" if event.to else "retry")
    verb = VERBS.get(type(event))
    if type(event) is Rewound and not event.to:  # what failed is done again
        verb = "retry"
    return "" if verb is None else policy.refuses(verb)


def rewind_refusal(instance: Instance, event: Rewound) -> Refused | None:
    if instance.cancelled or instance.status in FINAL:
        word = ended(Status.CANCELLED if instance.cancelled else instance.status)
        return Refused("ended", f"{instance.address} {word}, and stays so: fork it")
    if not instance.version:
        return Refused("ended", f"{instance.address} {ended(instance.status)}, and retention has removed its history")
    if event.after != instance.rewound:
        return Refused("refused", f"{instance.address} was rewound by somebody else meanwhile: look again")
    return still_running(instance, event)


_NOUNS: Final = {
    CancelAsked: "cancel",
    Woken: "wake",
    Retried: "retry",
    Settled: "settle",
    Rewound: "rewind",
    Tagged: "tag",
}


def _word(event: Event) -> str:
    return _NOUNS.get(type(event), type(event).__name__.lower())
