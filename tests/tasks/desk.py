"""A task in the pure kernel: its owner does what it is told, and people send verbs. Nothing else is needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.kernel.asked import Actor, Asked
from perdure.kernel.batch import Batch
from perdure.kernel.decision import Outcome
from perdure.kernel.entry import Entry
from perdure.kernel.events import Message
from perdure.kernel.moment import at_of
from perdure.kernel.receipt import Receipt
from perdure.kernel.rows import decode_outcome, response_name
from perdure.kernel.task import TaskRow, TaskRows
from perdure.tasks.machine import TASKS
from perdure.tasks.model import Question, key_of, question
from perdure.tasks.row import TaskInfo, info_of
from tests.kernel.machines import Told, World

BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)
ANN, BOB, EVE = Actor("ann", ("clerk",)), Actor("bob", ("clerk",)), Actor("eve", ("clerk",))
MAX, ROOT, SAM = Actor("max", ("boss",)), Actor("root", admin=True), Actor("sam")


class Verdict(msgspec.Struct):
    outcome: Literal["approve", "reject"]
    comment: str = ""


class Desk(World):
    """One owner, one task."""

    def __init__(self, **more: Any) -> None:
        super().__init__(Told(), TASKS)
        self.tasks: dict[int, TaskRows] = {}
        self.now = at_of(BEGIN)
        arguments: dict[str, Any] = {"answer": Verdict, "roles": ["clerk"], "managers": ["boss"], **more}
        asked = question("approve", workflow="told", key="o-17", location="approve", now=BEGIN, **arguments)
        self.key = key_of("o-17", 1, "told", "approve")
        plain = to_plain(asked, Question)
        self.start("o-17", ("child", "approve", "perdure.task", self.key, plain), ("then", "approve", [("note",)]))
        self.run()
        self._asked = 0

    @property
    def task(self) -> int:
        return self.id(self.key, "perdure.task")

    def verb(self, name: str, by: Actor, *, reason: str = "", id: str = "", **arguments: Any) -> Any:
        """Send a verb and read the response; None: there is none."""
        self._asked += 1
        id = id or f"m{self._asked}"
        body = encode(to_plain(arguments))
        self.offer(self.task, Message(name, body, id, asked=Asked(by=by, reason=reason)))
        self.run()
        value = self.published.get((self.task, response_name(id)))
        return None if value is None else decode(value)

    def code(self, name: str, by: Actor, **more: Any) -> str:
        """The code of the refusal; empty: it was taken."""
        answer = self.verb(name, by, **more)
        return str(answer["refused"]) if isinstance(answer, dict) else ""

    def complete(self, by: Actor, outcome: str = "approve", **more: Any) -> str:
        return self.code("complete", by, answer={"outcome": outcome}, **more)

    def later(self, **duration: float) -> Desk:
        """The clock goes on; what is due fires."""
        self.now += at_of(BEGIN + timedelta(**duration)) - at_of(BEGIN)
        self.fire()
        self.run()
        return self

    def _write(self, batch: Batch) -> None:
        super()._write(batch)
        self.tasks.update(batch.tasks)

    @property
    def row(self) -> TaskRow:
        return self.tasks[self.task].row

    @property
    def info(self) -> TaskInfo:
        return info_of(self.row)

    @property
    def who(self) -> set[str]:
        return {each.who for each in self.tasks[self.task].candidates}

    @property
    def outcome(self) -> Outcome:
        head = self.heads[self.task]
        assert head.outcome is not None, f"the task is {head.status}"
        return decode_outcome(head.outcome)

    @property
    def answered(self) -> dict[str, Any]:
        assert self.outcome.value is not None
        found: dict[str, Any] = decode(self.outcome.value)
        return found

    @property
    def receipt(self) -> Receipt:
        """What the owner was told of the end."""
        return self.entries("o-17")[-1].event.receipt  # type: ignore[union-attr]

    def verbs(self) -> list[Entry]:
        return self.entries(self.key, "perdure.task")
