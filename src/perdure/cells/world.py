"""The world's own instance: every event from outside comes in here, and the manifest in force is its state.

It is an instance like any other: what it takes and decides is in the journal, so the order of events and of changes to
the manifest is the journal's order. Events become facts, which the kernel routes by the manifest in force. Rules
(messages named `sys/...`) are answered: the caller reads the answer by the id of the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.codec import decode, encode
from perdure.codec.canonical import Form
from perdure.codec.schema import Ref, parse_name
from perdure.errors import PerdureError
from perdure.kernel.decision import NOTHING, Decision, Fact, Reply
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.events import Event, Message, Started
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import Moment
from perdure.kernel.routing import Router, Subscription
from perdure.kernel.rules import AUDIT, DEFINITIONS, IN_FORCE, RULER, RULING, Rules

from .bound_manifest import Definition, called, in_force
from .manifest import Manifest
from .policy import WORLD_POLICY
from .proposals import KeptProposal, Proposals, Refusal, read_manifest

PROPOSALS: Final = "proposals"
"""The name under which the world publishes what becomes of proposals."""


class _Snapshot(msgspec.Struct, array_like=True):
    manifest: bytes
    in_force: Rules
    proposals: list[KeptProposal]


_snapshot_decoder = msgspec.msgpack.Decoder(_Snapshot)


class WorldWorkflow:
    """The workflow of which there is one instance: `sys/world/main`. `cells`: the definitions that have code here."""

    name = RULER.workflow
    version = "1"
    parameters = b""
    policy = WORLD_POLICY
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def __init__(self, cells: Iterable[Definition] = ()) -> None:
        self._cells = {(cell.name, cell.version): cell for cell in cells}

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        raise Refusal("reserved", "the world of a database begins by itself")

    def encode_plain_input(self, value: Any) -> bytes:
        return self.encode_input((), {})

    def decode_result(self, value: bytes) -> Any:
        return decode(value)

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return WorldMachine(snapshot, self._cells)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        """That something was refused counts, and by which code. The words for it may be others in another version."""
        return recorded != current and _without_words(recorded) != _without_words(current)

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation()


class WorldMachine:
    def __init__(self, snapshot: bytes | None, cells: Mapping[tuple[str, str], Definition] | None = None) -> None:
        self._cells = cells or {}
        self._wary: dict[str, list[Definition]] = {}
        self._manifest = Manifest()
        self._in_force = Rules()
        self._router = Router()
        self._proposals = Proposals()
        self._forms: dict[str, Form] = {}
        if snapshot is not None:
            kept = _snapshot_decoder.decode(snapshot)
            self._manifest = read_manifest(kept.manifest)
            self._in_force = kept.in_force
            self._router.enforce(kept.in_force)
            self._proposals = Proposals(kept.proposals)

    @property
    def state(self) -> bytes:
        """Manifest and proposals, as canonical bytes."""
        return encode({"manifest": self._manifest.data(), "proposals": self._told()})

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(input=manifest):
                return self._begin(manifest)
            case Message(name=name) if name == AUDIT:
                return NOTHING  # that it is recorded is all
            case Message(name=name) if name.startswith(RULING):
                return self._rule(event)
            case Message():
                return self._take(event, moment.recorded)
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes | None:
        proposals = list(self._proposals.by_number.values())
        return msgspec.msgpack.encode(_Snapshot(self._manifest.bytes, self._in_force, proposals))

    def dispose(self) -> None:
        pass

    # ---- events --------------------------------------------------------------------------------------------------

    def _take(self, event: Message, then: Decision | None) -> Decision:
        """An event from outside. Its sender has checked it by a manifest, whose hash it names; perhaps an older one."""
        fact = Fact(event.name, event.body, event.id, event.correlation)
        if event.sender != self._manifest.hash:
            try:
                self._form(event.name).decode(event.body)
            except PerdureError as error:
                return Decision(reply=Reply(refused=f"{event.name}: {error}"))
            objection = self._router.objection(fact)
            if objection:
                return Decision(reply=Reply(refused=objection))
        refused = self._refusal(event) if then is None else then.reply and then.reply.refused
        return Decision(reply=Reply(refused=refused)) if refused else Decision(announce=(fact,))

    def _refusal(self, event: Message) -> str:
        """Why the types of a reducer in force cannot hold an event. A replay has the answer of that day's code."""
        wary = self._wary.get(event.name)
        if wary is None:
            workflows = {route.workflow for route in self._in_force.routes if route.fact == event.name}
            versions = [(name, version) for name, version in self._in_force.versions.items() if name in workflows]
            found = [self._cells[each] for each in versions if each in self._cells]
            wary = self._wary[event.name] = [cell for cell in found if cell.refuses(event.name)]
        for cell in wary:
            try:
                called(cell.event, event.name, decode(event.body))
            except PerdureError as error:
                return f"{event.name}: the reducer of {cell.cell.name} cannot take it: {error}"
        return ""

    def _form(self, name: str) -> Form:
        form = self._forms.get(name)
        if form is None:
            form = self._forms[name] = Form(Ref(name), self._manifest.known_schemas)
        return form

    # ---- rules ---------------------------------------------------------------------------------------------------

    def _begin(self, manifest: bytes) -> Decision:
        return Decision(publish=self._enforce(read_manifest(manifest), "pinned"))

    def _rule(self, message: Message) -> Decision:
        """What is asked is done, or refused with a code; both are recorded, and answered."""
        if message.sender:
            return _refused(message, "bad-rule", f"{message.sender} is an instance: rules are asked by people")
        try:
            body = decode(message.body)
            publish, answer = self._ruled(message.name.removeprefix(RULING), body if isinstance(body, dict) else {})
        except Refusal as refusal:
            return _refused(message, refusal.code, refusal.text)
        except Exception:  # not worth more words, but all other events wait behind this one: it must not be stuck
            return _refused(message, "bad-rule", f"{message.name} makes no sense with what it was sent with")
        publish = (*publish, (PROPOSALS, encode(self._told())))
        return Decision(publish=publish, respond=((message.id, encode(answer)),))

    def _ruled(self, verb: str, body: dict[str, Any]) -> tuple[tuple[tuple[str, bytes], ...], dict[str, Any]]:
        proposals = self._proposals
        match verb:
            case "propose":
                return (), _told(proposals.propose(self._manifest, body))
            case "shadow":
                return (), _told(proposals.shadow(body))
            case "approve":
                return (), _told(proposals.approve(body))
            case "reject":
                return (), _told(proposals.reject(body))
            case "apply":
                return self._apply(body)
            case _:
                raise Refusal("unknown-rule", f"the world knows no {verb!r}")

    def _apply(self, body: dict[str, Any]) -> tuple[tuple[tuple[str, bytes], ...], dict[str, Any]]:
        mode = body.get("mode", "pinned")
        if body.get("counted", self._manifest.hash) != self._manifest.hash:
            raise Refusal("applied-meanwhile", "somebody else put a manifest into force at the same time: ask again")
        counts = body.get("counts") or {}
        self._check_counts(mode, counts)
        if "manifest" in body:
            publish = self._enforce(read_manifest(body["manifest"]), mode, counts.get("left"))
            return publish, {"hash": self._manifest.hash, "mode": mode}
        proposal, manifest = self._proposals.approved(self._manifest, body)
        publish = self._enforce(manifest, mode, counts.get("left"))
        proposal.status, proposal.mode = "applied", mode
        return publish, _told(proposal)

    def _check_counts(self, mode: str, counts: dict[str, int]) -> None:
        """What the engine counted at this very place of the journal, before anything else could happen."""
        if mode not in ("strict", "pinned", "migrate"):
            raise Refusal("unknown-mode", f'a manifest is applied "strict", "pinned" or "migrate", not {mode!r}')
        if counts.get("unmigrated"):  # counted by an engine that knew no way to go on from there
            text = f"an earlier migration is not finished: {counts['unmigrated']} cells are left"
            mend = (
                "`perdure manifest migrate` finishes it; what is stuck must be mended and retried, or cancelled, first"
            )
            raise Refusal("migrating", f"{text}; {mend}")
        busy = {name: counts.get(name, 0) for name in ("instances", "intents", "queued")}
        if mode == "strict" and any(busy.values()):
            told = ", ".join(f"{name}: {count}" for name, count in busy.items())
            raise Refusal("blocked", f"the world is not empty: {told}; strict changes only an empty world")

    def _enforce(
        self, manifest: Manifest, mode: str, left: dict[str, int] | None = None
    ) -> tuple[tuple[str, bytes], ...]:
        """From the next entry on this manifest is in force. `left`: how many cells remain to be migrated, of which."""
        force = in_force(manifest)
        self._refuse_to_strand(force, mode, left or {})
        under_way = self._in_force.migrating if left is not None else {}
        force = msgspec.structs.replace(force, migrating=self._migrating(manifest, force, mode, under_way))
        self._manifest, self._in_force, self._forms, self._wary = manifest, force, {}, {}
        self._router.enforce(force)
        return ((IN_FORCE, force.encode()), (DEFINITIONS, manifest.bytes))

    def _refuse_to_strand(self, force: Rules, mode: str, left: dict[str, int]) -> None:
        """Cells that remain to be migrated must have a way: to the same definition, or to the one that replaces it."""
        for workflow, count in sorted(left.items()):
            version = force.versions.get(workflow)
            if version == self._in_force.versions[workflow] or (version is not None and mode == "migrate"):
                continue
            text = f"an earlier migration is not finished: {count} cells of {workflow} are left"
            mend = "`perdure manifest migrate` lets them go over"
            other = f"applied in mode migrate, a manifest with another {workflow} takes them over to that"
            raise Refusal("migrating", f"{text}; {mend}; {other}")

    def _migrating(
        self, manifest: Manifest, force: Rules, mode: str, under_way: dict[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """Which cells migrate from here on: those that remain and, in mode migrate, those whose definition changed.

        They migrate by the function that the new definition names, also those that failed with another one before.
        """
        migrating: dict[str, tuple[str, ...]] = {}
        by_workflow = {parse_name(name).workflow: cell for name, cell in manifest.cells.items()}
        for workflow, version in force.versions.items():
            before, earlier = self._in_force.versions.get(workflow), under_way.get(workflow, ())
            if before == version and earlier:
                migrating[workflow] = earlier
            elif mode == "migrate" and before is not None and before != version:
                if not by_workflow[workflow].migrate:
                    raise Refusal("no-migration", f"{by_workflow[workflow].name} changed and has no migrate function")
                migrating[workflow] = tuple([each for each in dict.fromkeys((*earlier, before)) if each != version])
        return migrating

    def _told(self) -> list[dict[str, Any]]:
        return [_told(proposal) for proposal in self._proposals.by_number.values()]


def _refused(message: Message, code: str, text: str) -> Decision:
    return Decision(respond=((message.id, encode({"refused": code, "text": text})),))


def _without_words(decision: Decision) -> Decision:
    reply = decision.reply and Reply("refused" if decision.reply.refused else "", decision.reply.value)
    answers = [(id, decode(answer)) for id, answer in decision.respond]
    codes = tuple([(id, encode(answer | {"text": ""} if "refused" in answer else answer)) for id, answer in answers])
    return msgspec.structs.replace(decision, reply=reply, respond=codes)


def _told(proposal: KeptProposal) -> dict[str, Any]:
    return {
        "proposal": proposal.number,
        "status": proposal.status,
        "base": proposal.base,
        "patch": decode(proposal.patch),
        "report": decode(proposal.report) if proposal.report else None,
        "reason": proposal.reason,
        "mode": proposal.mode,
    }
