"""How an instance begins: by a start, or by its first message."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from .events import Event, Message, Started
from .identity import Identity
from .instance import Instance
from .machine import Governed

if TYPE_CHECKING:
    from .kernel import Kernel


def made_by(kernel: Kernel, instance: Instance, message: Message) -> Event:
    """A message to an instance that does not exist, or no longer, makes it, if its policy says so.

    It runs on the definition that the rules name. A workflow that no rules can govern runs on its newest version.
    """
    workflow, key = instance.address.workflow, instance.address.key
    newest = kernel.workflows.newest(workflow)
    if newest is None or newest.policy.created != "message":
        return message
    version = kernel.router.rules.versions.get(workflow, "")
    if not version and isinstance(newest, Governed):
        return message
    name = f"{kernel.seq}\x00{instance.address}".encode()
    seed = blake2b(name, key=kernel.salt, digest_size=16).digest()
    input = kernel.router.rules.hash.encode()
    return Started(workflow, key, input, seed, version, reuse="always", first=message)


def new_instance(kernel: Kernel, before: Instance, event: Started) -> tuple[Instance, Started]:
    """A start of a terminal key is a new generation: another instance under the same name."""
    instance = before
    if before.id != 0:
        instance = kernel.cache.next_generation(before)
        instance.queued = True  # until its first entry is recorded
    workflow = kernel.workflows.of(event.workflow, event.version)
    assert workflow is not None, "a start of an unknown workflow is refused"
    generation = before.generation + 1
    event = msgspec.structs.replace(event, generation=generation, version=workflow.version, reuse="")
    if event.forked is not None:
        instance.version = event.forked.after  # it goes on counting where its past ends
    # Known before `apply`, because a decision is checked before it is applied.
    life = 0 if event.forked is None else instance.version + 1
    instance.identity = Identity(instance.address, event.generation, event.seed, life)
    return instance, event
