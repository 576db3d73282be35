"""Playbooks without an engine: a machine, a clock, and stubs for the tools. Every delivery is also made by a copy that was
restored from a snapshot, and both must decide the same.
"""

from __future__ import annotations

import textwrap
from typing import Any

from perdure.codec import decode, encode
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Call, Child, Timer, Wait
from perdure.kernel.events import CancelAsked, Message, ReceiptArrived, Started
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import Failure, Receipt
from perdure.playbooks.author import PlaybookWorkflow, from_text
from perdure.playbooks.kinds import Field, Kind

TOOLS = {
    name: Kind(name, {field.rstrip("!"): Field(raw="!" in field, sql=field in sql) for field in fields.split()})
    for name, fields, sql in (
        ("http", "url method headers params json form body expect redirects max_bytes", ()),
        ("postgres", "dsn query commands script params max_rows exactly_once", ("query", "commands", "script")),
        ("sqlite", "dsn query commands script params max_rows exactly_once", ("query", "commands", "script")),
        ("python", "call code! script args", ()),
        ("shell", "argv command script! env stdin cwd ok_codes parse", ()),
    )
}
SECOND = 1_000_000_000
HEAD = "apiVersion: perdure/v1\nkind: Playbook\nmetadata: {name: p}\n"


def book(body: str, head: str = HEAD) -> PlaybookWorkflow:
    return from_text(head + textwrap.dedent(body), "p.yaml", TOOLS)


class PlaybookHarness:
    """Starts an instance and answers its calls with stubs: `{location: outcomes}`, or a function of location and params."""

    def __init__(self, workflow: PlaybookWorkflow, stubs: Any = None, input: Any = None, **options: Any) -> None:
        self.workflow = workflow
        self.stubs = {} if stubs is None else stubs
        self.machine = workflow.machine("p/k", None)
        self.now = 1_700_000_000 * SECOND
        self.number = 0
        self.seed = bytes(32)
        self.open: dict[bytes, Any] = {}
        self.decisions: list[Decision] = []
        self.done: list[str] = []  # locations of calls that were answered
        self.asked: dict[str, Any] = {}
        self.noted: list[str] = []
        self.outcome: Any = None
        self.auto = options.get("auto", True)
        self.published: dict[str, Any] = {}
        self.in_flight = 0
        self.deliver(Started(workflow.name, "k", encode(input or {}), self.seed))
        if self.auto:
            self.play()

    def deliver(self, event: Any) -> Decision:
        self.number += 1
        moment = Moment(self.now, self.seed, self.number, seq=7)
        snapshot = self.machine.snapshot()
        decision = self.machine.deliver(event, moment)
        if self.number > 1:
            twin = self.workflow.machine("p/k", snapshot)
            assert twin.deliver(event, moment) == decision, "a restored machine decides otherwise"
            assert twin.snapshot() == self.machine.snapshot()
        assert self.outcome is None
        for id in decision.withdraw:
            del self.open[id]
        for id, effect in zip(decision.intents, decision.open, strict=True):
            assert id not in self.open, effect.location
            self.open[id] = effect
        calls = [effect for effect in self.open.values() if isinstance(effect, Call)]
        self.in_flight = max(self.in_flight, len(calls))
        self.decisions.append(decision)
        self.noted += decision.noted
        self.published.update({name: decode(value) for name, value in decision.publish})
        self.outcome = decision.outcome
        if self.outcome is not None:
            assert not self.open, "an instance that ended has nothing open"
        return decision

    def play(self) -> None:
        """Answer calls until only waits and timers are left."""
        while self.outcome is None:
            call = next(((id, effect) for id, effect in self.open.items() if isinstance(effect, Call)), None)
            if call is None:
                go = next(
                    (id for id, e in self.open.items() if isinstance(e, Timer) and e.location.startswith("&go")), None
                )
                if go is None:
                    return
                self.answer(go, Receipt("ok"))
                continue
            id, effect = call
            self.answer(id, self.stub(effect))

    def stub(self, effect: Call) -> Receipt:
        asked = decode(effect.params or b"")
        self.asked[effect.location] = asked
        self.done.append(effect.location)
        given = self.stubs(effect.location, asked["params"]) if callable(self.stubs) else self._stub(effect.location)
        if isinstance(given, Receipt):
            return given
        if isinstance(given, Exception):
            raise given
        if isinstance(given, dict) and given.keys() & {"result", "ref", "error", "absent"}:
            if "error" in given:
                error = given["error"]
                return Receipt(
                    "error",
                    error=Failure(
                        error["kind"],
                        error.get("message", ""),
                        retry=error.get("retryable", False),
                        encoded=encode(
                            {key: item for key, item in given.items() if key != "error"} | {"kind": error["kind"]}
                        ),
                    ),
                )
            return Receipt("ok", encode(given))
        return Receipt("ok", encode({"result": given}))

    def _stub(self, location: str) -> Any:
        for pattern, outcomes in self.stubs.items():
            if location == pattern or location.startswith(pattern + "#"):
                if isinstance(outcomes, list):
                    return outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
                return outcomes
        raise AssertionError(f"no stub for {location}")

    def answer(self, id: bytes, receipt: Receipt) -> Decision:
        del self.open[id]
        return self.deliver(ReceiptArrived(id, receipt))

    def at(self, location: str) -> bytes:
        return next(id for id, effect in self.open.items() if effect.location == location)

    def advance(self, seconds: float) -> None:
        """Move the clock; timers and deadlines that are due fire."""
        until = self.now + int(seconds * SECOND)
        while self.outcome is None:
            due = [
                (effect.due, effect.location, id)
                for id, effect in self.open.items()
                if isinstance(effect, Timer | Wait) and effect.due is not None and effect.due <= until
            ]
            if not due:
                break
            at, _, id = min(due)
            self.now = max(self.now, at)
            self.answer(id, Receipt("ok" if isinstance(self.open[id], Timer) else "timeout"))
            if self.auto:
                self.play()
        self.now = until

    def send(self, name: str, body: Any = None) -> Any:
        decision = self.deliver(Message(name, encode(body), f"m{self.number}"))
        if self.auto:
            self.play()
        return decode(decision.respond[0][1]) if decision.respond else None

    def patch(self, version: int | None = None, **values: Any) -> Any:
        body: dict[str, Any] = {"set": values}
        if version is not None:
            body["if_ctx_version"] = version
        return self.send("ctx", body)

    def cancel(self) -> None:
        self.deliver(CancelAsked("enough"))
        if self.auto:
            self.play()

    @property
    def result(self) -> Any:
        assert self.outcome is not None, f"it has not ended: {[e.location for e in self.open.values()]}"
        assert self.outcome.status == "completed", self.outcome
        return decode(self.outcome.value)

    @property
    def error(self) -> Any:
        assert self.outcome is not None, f"it has not ended: {[e.location for e in self.open.values()]}"
        assert self.outcome.status == "failed", self.outcome
        return self.outcome.error.type

    @property
    def waits(self) -> list[str]:
        return sorted(effect.location for effect in self.open.values())

    @property
    def children(self) -> list[Child]:
        return [effect for effect in self.open.values() if isinstance(effect, Child)]

    @property
    def ctx(self) -> dict[str, Any]:
        return self.machine.state.ctx
