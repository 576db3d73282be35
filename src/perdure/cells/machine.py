"""The machine of one cell: an event goes to the reducer, and what it returns becomes a decision.

The state is kept as canonical bytes. The reducer gets objects made from them each time: whatever it does to those, the
state is what it returned. Every state is in its entry by its digest, so a reducer that changed its mind is noticed
by the first replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec import decode, digest, encode
from perdure.codec.schema import parse_name
from perdure.codec.strict import decode_strict
from perdure.errors import BadDecision, LimitExceeded, NotCanonical, PerdureError
from perdure.kernel.decision import Decision, Fact, Outcome
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait
from perdure.kernel.events import CancelAsked, Event, Message, ReceiptArrived, Requested, Started, Streamed
from perdure.kernel.location import escape
from perdure.kernel.moment import TIME_MAX, Moment, at_of, when
from perdure.kernel.outside import Outside
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.routing import key_objection
from perdure.kernel.rows import RESPONSE
from perdure.kernel.status import Status
from perdure.kernel.task import TASK
from perdure.tasks.model import WORKFLOW, key_of, question

from . import effects as system
from .author import CellContext, Datum, FrameOf, Next, ReceiptOf, Rejected, Request, meant_for, named
from .manifest import DELIVERIES

if TYPE_CHECKING:
    from .bound_manifest import BoundEffect, Definition

EXECUTOR: Final = "effects"
"""The executor that performs the effects of cells."""


ANNOTATIONS: Final = "annotations"
"""The name under which a cell publishes what it returned for people."""


class Asked(msgspec.Struct, array_like=True):
    """An effect that has no receipt yet, as far as its receipt needs it."""

    effect: str
    entry: int
    params: bytes
    issuer: str = ""
    correlation: str = ""


class _Snapshot(msgspec.Struct, array_like=True):
    state: bytes
    manifest: str
    open: dict[bytes, Asked]


_snapshot_decoder = msgspec.msgpack.Decoder(_Snapshot)
_encoder = msgspec.msgpack.Encoder()


def split(snapshot: bytes) -> tuple[bytes, bytes]:
    """The state in a machine's snapshot, and the rest: a snapshot of a world keeps states by their digests."""
    kept = _snapshot_decoder.decode(snapshot)
    return kept.state, _encoder.encode(_Snapshot(b"", kept.manifest, kept.open))


def join(state: bytes, rest: bytes) -> bytes:
    """The snapshot that was split."""
    kept = _snapshot_decoder.decode(rest)
    return _encoder.encode(_Snapshot(state, kept.manifest, kept.open))


class CellMachine:
    def __init__(self, definition: Definition, key: str, snapshot: bytes | None) -> None:
        self._definition = definition
        self._key = key
        self._open: dict[bytes, Asked] = {}
        self._manifest = ""
        self._state = b""
        self._digest = b""
        if snapshot is not None:
            kept = _snapshot_decoder.decode(snapshot)
            self._manifest, self._open = kept.manifest, kept.open
            self._keep(kept.state)

    @property
    def definition(self) -> Definition:
        return self._definition

    @property
    def state(self) -> bytes:
        """Canonical bytes; empty: there is no cell."""
        return self._state

    @property
    def digest(self) -> bytes:
        return self._digest

    @property
    def size(self) -> int:
        return len(self._state)

    def moved_to(self, definition: Definition, state: bytes, manifest: str) -> CellMachine:
        """The same cell under another definition, with the state that its own became."""
        for asked in self._open.values():
            if asked.effect not in definition.effects:
                text = f"an answer to {asked.effect} is due, and {definition.cell.name} does not declare that effect"
                raise BadDecision(definition.cell.name, text)
        machine = CellMachine(definition, self._key, None)
        machine._open, machine._manifest = self._open, manifest or self._manifest
        machine._keep(state)
        return machine

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(first=Message() as message, input=manifest):
                self._manifest = manifest.decode()
                return self._hear(message, moment)
            case Message():
                return self._hear(event, moment)
            case ReceiptArrived(intent=intent, receipt=receipt):
                return self._answered(intent, receipt, moment)
            case Streamed():
                return self._streamed(event, moment)
            case Requested(intent=intent, id=id, name=name):
                answer = encode({"d": [name, "closed", "a cell takes no requests of what performs its effects"]})
                return Decision(state=self._digest, answers=((intent, id, answer),))
            case CancelAsked(reason=reason):
                return Decision(outcome=Outcome(Status.CANCELLED, error=Failure("Cancelled", reason)))
            case _:
                return Decision(state=self._digest)

    def work(self, intent: bytes) -> object:
        return None  # an effect carries its parameters with it

    def snapshot(self) -> bytes | None:
        return _encoder.encode(_Snapshot(self._state, self._manifest, self._open))

    def dispose(self) -> None:
        pass

    # ---- what comes ----------------------------------------------------------------------------------------------

    def _hear(self, message: Message, moment: Moment) -> Decision:
        event = self._definition.event(message.name, decode(message.body))
        return self.reduce(event, message.body, moment, message.correlation)

    def _answered(self, intent: bytes, receipt: Receipt, moment: Moment) -> Decision:
        asked = self._open.pop(intent)
        effect = self._definition.effects[asked.effect]
        payload = receipt.value or NOTHING
        if asked.effect == system.CHILD:  # the kernel's answer is the result itself
            payload = encode({"result": payload})
        elif asked.effect == system.TASK:
            receipt, payload = _of_task(receipt)
        value = None
        try:
            if receipt.status == "ok":
                value = effect.receipt.build(effect.receipt.judge(decode_strict(payload)))
            cost = None if receipt.by is None or receipt.by.cost is None else decode_strict(receipt.by.cost)
        except PerdureError as error:
            return self._rejected(intent, asked, payload, error, moment)
        answer: ReceiptOf[Any] = ReceiptOf(
            effect=effect.face,
            status=receipt.status,
            value=value,
            error=receipt.error,
            params=effect.params.build(decode(asked.params)),
            intent=intent.hex(),
            entry=asked.entry,
            issuer=asked.issuer,
            cell=self._definition.cell.name,
            key=self._key,
            executor=_executor(effect, receipt),
            params_hash=digest(asked.params),
            cost=cost,
            signature=None if receipt.by is None else receipt.by.signature,
        )
        return self.reduce(answer, payload, moment, asked.correlation)

    def _streamed(self, event: Streamed, moment: Moment) -> Decision:
        asked = self._open[event.intent]
        effect = self._definition.effects[asked.effect]
        if asked.effect not in self._definition.cell.frames:  # the definition before this one took them
            return Decision(state=self._digest)
        try:
            value = effect.frame.build(effect.frame.judge(decode_strict(event.body)))
        except PerdureError as error:
            return self._rejected(event.intent, asked, event.body, error, moment, "a frame")
        frame: FrameOf[Any] = FrameOf(
            effect=effect.face,
            value=value,
            number=event.number,
            params=effect.params.build(decode(asked.params)),
            intent=event.intent.hex(),
            entry=asked.entry,
            issuer=asked.issuer,
            cell=self._definition.cell.name,
            key=self._key,
            params_hash=digest(asked.params),
        )
        return self.reduce(frame, event.body, moment, asked.correlation)

    def _rejected(  # noqa: PLR0917
        self,
        intent: bytes,
        asked: Asked,
        payload: bytes,
        error: PerdureError,
        moment: Moment,
        what: str = "the receipt",
    ) -> Decision:
        """The payload is not of this effect. The intent of a receipt is settled: no other answer will come."""
        code, message = type(error).__name__, str(error)
        then = moment.recorded  # a later version may have other words for it: those of that day were delivered
        if not self._definition.takes_rejected:
            failure = Failure(code, f"{what} of {asked.effect} cannot be read: {message}", retry=False)
            if then is not None and then.outcome is not None:
                failure = then.outcome.error or failure
            return Decision(outcome=Outcome(Status.FAILED, error=failure))
        noted = (f"{code} {message}",) if then is None else then.noted
        if noted:
            code, _, message = noted[0].partition(" ")
        rejected = Rejected(
            code=code,
            message=message,
            effect=asked.effect,
            intent=intent.hex(),
            payload_hash=digest(payload),
            payload_size=len(payload),
        )
        return msgspec.structs.replace(self.reduce(rejected, payload, moment, asked.correlation), noted=noted)

    # ---- what is decided -----------------------------------------------------------------------------------------

    def reduce(self, event: Any, body: bytes, moment: Moment, correlation: str) -> Decision:
        """What the reducer makes of an event that it takes. `body`: the bytes by which the event is known."""
        definition = self._definition
        state = definition.state.build(decode(self._state)) if self._state else None
        context = CellContext(
            now=moment.at,
            logical_now=max(moment.at, moment.logical),
            height=moment.seq,
            entropy=moment.entropy(),
            event_hash=digest(body),
            manifest_hash=self._manifest,
            cell=definition.cell.name,
            cell_hash=definition.hash,
            key=self._key,
            mode="keyed" if definition.cell.key is not None else "unkeyed",
            correlation=correlation,
        )
        given = definition.reduce(state, event, context)
        if not isinstance(given, Next):
            raise BadDecision(definition.cell.name, f"a cell returns perdure.Next(...), found {given!r:.200}")
        return self._decision(given, moment, correlation)

    def _decision(self, given: Next, moment: Moment, correlation: str) -> Decision:
        """All of what the reducer returned, or nothing: whatever is wrong with a part of it raises."""
        definition = self._definition
        state = b"" if given.state is None else definition.state.encode(given.state)
        facts = tuple([self._fact(event, correlation) for event in self._listed("events", given.events)])
        emission = Emission(self, moment, correlation)
        for effect in self._listed("effects", given.effects):
            emission.add(effect)
        if emission.count > definition.limits.effects and moment.recorded is None:  # the limit of that day held
            text = f"one decision asked for {emission.count} effects; the limit is {definition.limits.effects}"
            raise LimitExceeded(text)
        publish = tuple(emission.publish)
        if given.annotations is not None:
            publish = (*publish, (ANNOTATIONS, definition.annotate(given.annotations)))
        if not state and emission.open:
            raise BadDecision(definition.cell.name, "a deleted cell cannot ask for effects: it would never hear")
        self._keep(state)
        if not state:
            return Decision(announce=facts, publish=publish, outcome=Outcome(Status.COMPLETED))
        self._open.update(emission.asked)
        return Decision(
            open=tuple(emission.open),
            announce=facts,
            publish=publish,
            ids=tuple(emission.asked),
            state=self._digest,
        )

    def _listed(self, what: str, given: Any) -> Iterable[Any]:
        if isinstance(given, Iterable):
            return given
        text = f"perdure.Next(..., {what}=...) takes a list, found {given!r:.200}; write {what}=[...]"
        raise BadDecision(self._definition.cell.name, text)

    def _keep(self, state: bytes) -> None:
        self._state = state
        self._digest = sha256(state).digest() if state else b""

    def _fact(self, event: Any, correlation: str) -> Fact:
        name, body = self._definition.fact(event)
        return Fact(name, body, "", correlation)


class Emission:
    """The effects of one decision, on their way to the kernel."""

    def __init__(self, machine: CellMachine, moment: Moment, correlation: str) -> None:
        self._machine = machine
        self._correlation = correlation
        self._definition = machine._definition
        self._moment = moment
        self.count = 0
        self.open: list[Effect] = []
        self.asked: dict[bytes, Asked] = {}
        self.publish: list[tuple[str, bytes]] = []

    def add(self, wanted: Any) -> None:
        request = wanted if isinstance(wanted, Request) else Request(wanted)
        name = named(request.effect)
        effect = self._definition.effects.get(name)
        if effect is None:
            declared = ", ".join(sorted(self._definition.effects)) or "none"
            hint = meant_for(request.effect, "an effect") or "; name it in effects=[...]"
            text = f"the effect {name or request.effect!r:.100} is not declared; declared are: {declared}{hint}"
            raise BadDecision(self._definition.cell.name, text)
        asked = request.effect
        plain = effect.params.judge(asked.value) if isinstance(asked, Datum) else effect.params.plain(asked)
        self._check_built_in(name, plain)
        self.count += 1
        if name == system.PUBLISH:
            self.publish.append((plain["name"], plain["value"]))
            return
        params = encode(plain)
        id = self._id(name, effect, params, request.key)
        location = f"{escape(effect.short)}/~{self._moment.number}#{self.count}"
        self.open.append(self._effect(location, effect, plain, request))
        self.asked[id] = Asked(name, self._moment.number, params, request.issuer, self._correlation)

    def _check_built_in(self, name: str, plain: Any) -> None:
        """What the schema of an effect of perdure cannot say."""
        if name == system.TIMER and plain["at"] is not None and plain["after"] is not None:
            text = f"it asked for {name} at a time and after a while; give at= or after=, one of them"
            raise BadDecision(self._definition.cell.name, text)
        field = system.CANONICAL.get(name)
        if field is None:
            return
        try:
            decode_strict(plain[field])
        except NotCanonical as error:
            text = f"it asked for {name}: $.{field} is not the canonical bytes of a value: {error}"
            raise BadDecision(self._definition.cell.name, f"{text}; .of(...) makes them") from None
        if name == system.PUBLISH and _is_taken(plain["name"]):
            text = f"it asked for {name}: $.name is {plain['name']!a:.80}; take another"
            reserved = f"{ANNOTATIONS!r} and what begins with {RESPONSE!r} are perdure's own"
            raise BadDecision(self._definition.cell.name, f"{text}: a name has a character at least, and {reserved}")

    def _id(self, name: str, effect: BoundEffect, params: bytes, key: str) -> bytes:
        definition = self._definition
        return sha256(
            encode(
                {
                    "cell": definition.cell.name,
                    "cell_hash": definition.hash,
                    "key": self._machine._key,
                    "effect": name,
                    "effect_hash": effect.hash,
                    "params": params,
                    "idempotency_key": key,
                    "index": self.count,
                    "entry": self._moment.seq,
                }
            )
        ).digest()

    def _effect(self, location: str, effect: BoundEffect, plain: Any, request: Request) -> Effect:
        at = self._moment.at
        timeout = request.timeout if request.timeout is not None else effect.definition.timeout
        name = effect.definition.name
        if name == system.TIMER:
            return Timer(location, plain["at"] if plain["at"] is not None else _after(at, plain["after"] or 0))
        if name == system.CHILD:
            objection = key_objection(plain["key"])
            if objection:
                raise BadDecision(self._definition.cell.name, f"it asked for {plain['workflow']}: {objection}")
            return Child(location, plain["workflow"], plain["key"], plain["input"], plain["detached"])
        if name == system.TASK:
            return self._task(location, plain)
        if effect.definition.outside:
            asked = Outside(name, effect.definition.outside, plain, request.key, request.issuer, self._moment.number)
            return Wait(location, (name,), None if timeout is None else _after(at, timeout), asked.encode())
        params = encode({"effect": name, "params": plain, "key": request.key})
        deliveries = 1 if effect.definition.once else DELIVERIES
        timeout = None if timeout is None else min(TIME_MAX, timeout)
        frames = name in self._definition.cell.frames
        return Call(location, 1, EXECUTOR, timeout, deliveries, params, frames=frames)

    def _task(self, location: str, plain: Any) -> Child:
        """A task is a child, too. Its question is fixed now: durations become times."""
        cell, key, name = self._definition.cell.name, self._machine._key, plain["name"]
        workflow = parse_name(cell).workflow
        try:
            fields = system.Task.asked(name, decode(plain["question"]))
            now = when(self._moment.at)
            asked = question(name, workflow=workflow, key=key, location=location, now=now, **fields)
        except PerdureError as error:
            raise BadDecision(cell, f"it asked for {system.TASK}: {error}") from None
        return Child(location, WORKFLOW, key_of(key, 1, workflow, location), asked.encode())


def _of_task(receipt: Receipt) -> tuple[Receipt, bytes]:
    """The end of a task as its effect has it."""
    if receipt.status == "ok" and receipt.value is not None:
        end = decode(receipt.value)
        answer = encode(end["answer"])
        found = {"outcome": end["outcome"], "answer": answer, "by": end["by"], "at": at_of(end["at"])}
        return receipt, encode(found)
    if receipt.error is not None and receipt.error.type == "TaskExpired":
        receipt = Receipt("timeout", error=receipt.error)
    return receipt, NOTHING


def _is_taken(published: str) -> bool:
    return not published or published in (ANNOTATIONS, TASK) or published.startswith(RESPONSE)


def _after(at: int, delay: int) -> int:
    """A time that fits into a row."""
    return min(TIME_MAX, at + max(0, delay))


NOTHING: Final = encode(None)
"""The payload of a receipt that says no more than its status."""


def _executor(effect: BoundEffect, receipt: Receipt) -> str:
    if receipt.by is not None:
        return receipt.by.executor
    return EXECUTOR if effect.performed else "kernel"
