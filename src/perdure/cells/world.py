"""The world's own instance: every event from outside comes in here, and the manifest in force is its state.

It is an instance like any other: what it takes and decides is in the journal, so the order of events and of changes to
the manifest is the journal's order. Events become facts, which the kernel routes by the manifest in force.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.codec import decode, encode
from perdure.codec.canonical import Form
from perdure.codec.schema import Ref
from perdure.errors import BadDefinition, BadManifest, PerdureError
from perdure.kernel.decision import NOTHING, Decision, Fact, Reply
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.events import Event, Message, Started
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.manifest import DEFINITIONS, MANIFEST, RULES, WORLD
from perdure.kernel.moment import Moment
from perdure.kernel.routing import Subscription

from .manifest import Manifest, read


class _Snapshot(msgspec.Struct, array_like=True):
    manifest: bytes


_snapshot_decoder = msgspec.msgpack.Decoder(_Snapshot)


class WorldWorkflow:
    """The workflow of which there is one instance: `sys/world/main`."""

    name = WORLD.workflow
    version = "1"
    defaults = encode({})
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return WorldMachine(snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation()


class WorldMachine:
    def __init__(self, snapshot: bytes | None) -> None:
        self._manifest = Manifest()
        self._forms: dict[str, Form] = {}
        if snapshot is not None:
            self._manifest = read(decode(_snapshot_decoder.decode(snapshot).manifest))

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(input=manifest):
                return self._enforce(manifest)
            case Message(name=name) if name.startswith(RULES):
                return self._rule(event)
            case Message():
                return self._take(event)
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes | None:
        return msgspec.msgpack.encode(_Snapshot(self._manifest.bytes))

    def dispose(self) -> None:
        pass

    def _take(self, event: Message) -> Decision:
        """An event from outside. Its sender has checked it by a manifest, whose hash it names; perhaps an older one."""
        if event.sender != self._manifest.hash:
            try:
                self._form(event.name).decode(event.body)
            except PerdureError as error:
                return _refused(f"{event.name}: {error}")
        return Decision(announce=(Fact(event.name, event.body, event.id, event.correlation),))

    def _form(self, name: str) -> Form:
        form = self._forms.get(name)
        if form is None:
            form = self._forms[name] = Form(Ref(name), self._manifest.known_schemas)
        return form

    # ---- rules ---------------------------------------------------------------------------------------------------

    def _rule(self, event: Message) -> Decision:
        body: Any = decode(event.body)
        match event.name:
            case "sys/apply":
                return self._enforce(body["manifest"])
            case _:
                return _refused(f"the world knows no {event.name}")

    def _enforce(self, data: bytes) -> Decision:
        from .bind import in_force

        try:
            manifest = read(decode(data))
            force = in_force(manifest)
        except (BadDefinition, BadManifest) as error:
            return _refused(str(error))
        self._manifest, self._forms = manifest, {}
        return Decision(publish=((MANIFEST, force.encode()), (DEFINITIONS, manifest.bytes)))


def _refused(reason: str) -> Decision:
    """Recorded, so that the sender's answer and the journal agree; nothing else changes."""
    return Decision(reply=Reply(refused=reason))
