"""The machine of `perdure.definition/<name>`. It takes two messages, `put` and `activate`, and publishes what it keeps.

An answer is read by the id of its message: `{"version", "digest", "active"}`, or `{"refused", ...}`. A message that
changes nothing is answered too; a caller that reads first (`load.py`) does not send it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.codec import decode, digest, encode
from perdure.errors import CallerError
from perdure.kernel.decision import NOTHING, Decision, Outcome
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.events import CancelAsked, Event, Message, Started
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import Moment
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import Failure
from perdure.kernel.routing import Subscription
from perdure.kernel.status import Status

from .model import ACTIVATE, PUT, REGISTER, WORKFLOW, Register, Registered, published_as


class DefinitionMachine:
    def __init__(self, snapshot: bytes | None) -> None:
        self._register = Register("") if snapshot is None else Register.read(snapshot)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(input=value):
                given = decode(value)
                self._register = Register(given["dialect"], given["rule"])
                return Decision(publish=((REGISTER, self._register.encode()),))
            case Message(name=name, body=body):
                arguments = decode(body) if body else None
                if name == PUT and isinstance(arguments, dict):
                    return self._put(event, arguments, moment)
                if name == ACTIVATE and isinstance(arguments, dict):
                    return self._activate(event, str(arguments.get("version", "")))
                return _answer(event, {"refused": "bad-request", "text": "a definition takes put and activate"})
            case CancelAsked(reason=reason):
                return Decision(outcome=Outcome(Status.CANCELLED, error=Failure("Cancelled", reason)))
            case _:
                return NOTHING

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes | None:
        return self._register.encode()

    def dispose(self) -> None:
        pass

    def _put(self, message: Message, arguments: dict[str, Any], moment: Moment) -> Decision:
        version, definition = arguments.get("version"), arguments.get("definition")
        if not isinstance(version, str) or not version or not isinstance(definition, bytes):
            return _answer(message, {"refused": "bad-request", "text": "put takes a version and a definition"})
        register, name = self._register, digest(definition)
        stored = register.find(version)
        if stored is not None and stored.digest != name:
            return _answer(message, {"refused": "conflict", "version": version, "digest": stored.digest})
        publish: list[tuple[str, bytes]] = []
        if stored is None:
            added = Registered(version, name, _by(message), moment.at)
            register = msgspec.structs.replace(register, versions=(*register.versions, added))
            publish.append((published_as(version), definition))
        if arguments.get("activate"):
            register = msgspec.structs.replace(register, activated=version)
        return self._kept(message, register, version, publish)

    def _activate(self, message: Message, version: str) -> Decision:
        if self._register.find(version) is None:
            known = [each.version for each in self._register.versions]
            return _answer(message, {"refused": "unknown-version", "version": version, "known": known})
        return self._kept(message, msgspec.structs.replace(self._register, activated=version), version, [])

    def _kept(self, message: Message, register: Register, version: str, publish: list[tuple[str, bytes]]) -> Decision:
        if register != self._register:
            publish.append((REGISTER, register.encode()))
        self._register = register
        stored = register.find(version)
        assert stored is not None
        answer = {"version": version, "digest": stored.digest, "active": register.active}
        return msgspec.structs.replace(_answer(message, answer), publish=tuple(publish))


class DefinitionWorkflow:
    """The built-in workflow, as the kernel knows it."""

    name = WORKFLOW
    version = "1"
    parameters = b""
    policy = Policy("definition", retry=False, rewind=False, fork=False, wake=False)
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def machine(self, address: str, snapshot: bytes | None) -> DefinitionMachine:
        return DefinitionMachine(snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return (recorded.publish, recorded.respond) != (current.publish, current.respond)

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation(advice="a definition runs code of perdure alone: report it")

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        raise CallerError("a definition is kept by an engine: perdure.open(url, workflows=[...])")

    def encode_plain_input(self, value: Any) -> bytes:
        return self.encode_input((), {})

    def decode_result(self, value: bytes) -> Any:
        return decode(value)


DEFINITIONS: Final = DefinitionWorkflow()


def _answer(message: Message, answer: dict[str, Any]) -> Decision:
    return Decision(respond=((message.id, encode(answer)),)) if message.id else NOTHING


def _by(message: Message) -> str:
    asked = message.asked
    return "" if asked is None or asked.by is None else asked.by.id
