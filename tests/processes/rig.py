"""Drives the machine of a process without a runtime: a test gives every receipt.

After each delivery the machine is written and read again, and the whole history is told to a second machine with what
was recorded: all three must end in the same bytes, with the same decisions. And wherever it stands it fits the same
definition under another version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from perdure.codec import decode, encode
from perdure.kernel.asked import Actor, Asked
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Call, Child, Effect, Timer, attempt_of
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    ReceiptArrived,
    Retried,
    Settled,
    Started,
    Woken,
)
from perdure.kernel.identity import Identity
from perdure.kernel.moment import Moment, at_of
from perdure.kernel.receipt import DONE, Failure, Receipt
from perdure.processes import Process
from perdure.processes.compile import Program
from perdure.processes.machine import ProcessMachine
from perdure.processes.migrate import migrated

SECOND = 1_000_000_000
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Rig:
    def __init__(self, *steps: Any, functions: Mapping[str, Callable[..., Any]] | None = None, **fields: Any) -> None:
        if len(steps) == 1 and isinstance(steps[0], Process):
            self.process = steps[0]
        else:
            self.process = Process("test", version="1.0.0", steps=list(steps), **fields)
        self.program = Program(self.process.bytes, functions)
        self.functions = functions
        self.address = Address(self.process.name, "k")
        self.machine = ProcessMachine(self.program, str(self.address), None)
        self.open: dict[bytes, Effect] = {}
        self.used: set[bytes] = set()
        self.history: list[tuple[Event, Moment, Decision]] = []
        self.at = at_of(EPOCH)
        self.last = Decision()
        self.number = 0
        self.begin: bytes | None = None
        self.heir: Program | None = None

    # ---- what happens ----------------------------------------------------------------------------------------------

    def start(self, **given: Any) -> Rig:
        asked = Asked(by=Actor("bob"))
        self.deliver(Started(self.process.name, "k", encode(given), b"seed", asked=asked))
        return self

    def ok(self, location: str, value: Any = None) -> None:
        self.deliver(ReceiptArrived(self.id(location), Receipt("ok", encode(value))))

    def error(
        self, location: str, type: str = "Boom", message: str = "broken", *, retry: bool = True, data: Any = None
    ) -> None:
        encoded = None if data is None else encode(data)
        self.deliver(
            ReceiptArrived(self.id(location), Receipt("error", error=Failure(type, message, "", encoded, retry)))
        )

    def receipt(self, location: str, status: Any) -> None:
        self.deliver(ReceiptArrived(self.id(location), Receipt(status, error=Failure(status, status))))

    def fire(self, location: str) -> None:
        """A timer, or the deadline of a wait, is due."""
        effect = self.open[self.id(location)]
        self.at = max(self.at, effect.due or 0)  # type: ignore[union-attr]
        receipt = DONE if isinstance(effect, Timer) else Receipt("timeout", error=Failure("Timeout", ""))
        self.deliver(ReceiptArrived(self.id(location), receipt))

    def complete(self, location: str, outcome: str = "done", answer: Any = None, by: str = "ann") -> None:
        """A person completes a task."""
        self.ok(location, {"outcome": outcome, "answer": answer, "by": by, "at": EPOCH, "votes": []})

    def send(self, name: str, body: Any = None, id: str = "", intent: bytes = b"") -> str:
        """Why it was refused; empty: it was not."""
        self.deliver(Message(name, encode(body), id, intent=intent))
        return "" if self.last.reply is None else self.last.reply.refused

    def retry(self) -> None:
        self.deliver(Retried())

    def settle(self, location: str, value: Any = None, error: str = "") -> None:
        receipt = Receipt("error", error=Failure("Settled", error)) if error else Receipt("ok", encode(value))
        self.deliver(Settled(location, receipt))

    def cancel(self, *, undo: bool = False) -> None:
        self.deliver(CancelAsked("enough", undo=undo))

    def wake(self, location: str = "") -> None:
        self.deliver(Woken(location))

    def migrate(self, process: Process, renamed: Mapping[str, str] | None = None) -> None:
        """It goes on under another definition. What it did before is not told to a replay any more."""
        moment = Moment(self.at, b"seed", self.number + 1, logical=self.at, seq=self.number + 1)
        before = self.machine.snapshot()
        made, decision = process.take_over(str(self.address), self.machine, renamed or {}, moment)
        assert self.machine.snapshot() == before, "what is taken over is not changed"
        assert isinstance(made, ProcessMachine)
        self.number += 1
        self.machine, self.last, self.begin, self.history = made, decision, decision.begin, []
        self.process, self.program, self.heir = process, Program(process.bytes, self.functions), None
        assert (decision.open, decision.withdraw) == ((), ()), "nothing is opened or dropped"

    def later(self, **span: float) -> None:
        self.at += int(timedelta(**span).total_seconds() * SECOND)

    # ---- what is so ------------------------------------------------------------------------------------------------

    @property
    def locations(self) -> list[str]:
        """Of what is open."""
        return sorted(effect.location for effect in self.open.values())

    @property
    def state(self) -> dict[str, Any]:
        return self.machine.life.state

    @property
    def stuck(self) -> str:
        """Where it is stuck; empty: it is not."""
        return "" if self.last.stuck is None else self.last.stuck.location

    @property
    def stuck_with(self) -> Failure:
        """Why it is stuck."""
        assert self.last.stuck is not None, "it is not stuck"
        return self.last.stuck.error

    @property
    def status(self) -> str:
        return "" if self.last.outcome is None else str(self.last.outcome.status)

    @property
    def output(self) -> Any:
        outcome = self.last.outcome
        assert outcome is not None and outcome.value is not None, self.last
        return decode(outcome.value)

    @property
    def failure(self) -> str:
        assert self.last.outcome is not None and self.last.outcome.error is not None
        return str(self.last.outcome.error)

    def effect(self, location: str) -> Any:
        return self.open[self.id(location)]

    def payload(self, location: str) -> Any:
        effect = self.effect(location)
        if isinstance(effect, Child):
            return decode(effect.input)
        assert isinstance(effect, Call) and effect.params is not None
        params = decode(effect.params)
        inner = params.get("params", params)
        return inner.get("payload", inner.get("arguments", inner.get("kwargs")))

    def id(self, location: str) -> bytes:
        found = [id for id, effect in self.open.items() if effect.location == location]
        assert found, f"nothing is open at {location}; open are {self.locations}"
        return found[0]

    # ---- a delivery ------------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        assert not self.status, f"it has {self.status}"
        number = self.number = self.number + 1
        moment = Moment(self.at, b"seed", number, logical=self.at, seq=number)
        decision = self.last = self.machine.deliver(event, moment)
        self._apply(event, decision)
        self.history.append((event, moment, decision))
        before = self.machine.snapshot()
        assert before is not None
        self.machine = ProcessMachine(self.program, str(self.address), before)
        assert self.machine.snapshot() == before, "a snapshot that is read and written again is the same"
        self._replay(before)
        self._would_migrate(before)

    def _apply(self, event: Event, decision: Decision) -> None:
        if isinstance(event, ReceiptArrived):
            del self.open[event.intent]
        for id in decision.withdraw:
            del self.open[id]
        identity = Identity(self.address, 1)
        for id, effect in zip(decision.intents, decision.open, strict=True):
            assert id == identity.intent(effect.location, attempt_of(effect))
            assert id not in self.used, f"{effect.location} was open before: it needs an intent of its own"
            assert effect.location not in self.locations
            self.used.add(id)
            self.open[id] = effect
        if decision.outcome is not None:
            self.open.clear()

    def _replay(self, expected: bytes) -> None:
        machine = ProcessMachine(Program(self.process.bytes, self.functions), str(self.address), self.begin)
        for event, moment, decision in self.history:
            now = machine.deliver(event, msgspec.structs.replace(moment, recorded=decision))
            assert now == decision, f"a replay decides {now}, recorded was {decision}"
        assert machine.snapshot() == expected, "a replay ends in another state"

    def _would_migrate(self, before: bytes) -> None:
        """The same definition under another version takes it over as it is."""
        if self.heir is None:
            self.heir = Program(encode({**self.program.data, "version": "99.0.0"}), self.functions)
        there = decode(migrated(self.machine.life, self.heir, {}))
        assert there == {**decode(before), "hash": self.heir.hash}
