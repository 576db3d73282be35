"""What people call the things that a graph waits for, and its nodes as a table, read from its facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from perdure.codec import decode
from perdure.kernel.effects import Child
from perdure.kernel.location import unescape
from perdure.ports.seen import Advice, Line, Reason, Seen, Waiting, Words
from perdure.tasks.model import WORKFLOW as TASK

from .author import POLICY
from .report import FAILED, REPORT

PART: Final = re.compile(r"(?P<run>.+)/(?P<kind>use|ask)/(?P<name>[^/#]+)(?P<number>#\d+)?$")
TIMERS: Final = {
    "&rest": "rests then: it leaves memory until its answer comes",
    "&wall": "is cut then: it has used up its wall time",
}


class GraphWords(Words):
    policy = POLICY
    code = "graph and its runners"

    def name(self, location: str) -> str | None:
        part = PART.match(location)
        if part is not None:
            return f"The tool {unescape(part['name'])} of the node {part['run']}"
        return f"The node {location}"

    def open(self, seen: Seen, open: Waiting) -> Reason | None:
        intent = seen.intent(open)
        if intent is not None and isinstance(intent.effect, Child) and intent.effect.workflow == TASK:
            return self._asked(seen, open)
        if open.kind == "timer":
            return self._timer(seen, open)
        return None

    def _asked(self, seen: Seen, open: Waiting) -> Reason:
        part = PART.match(open.location)
        subject = "" if open.location.endswith("/ask/wait") else " whether it may begin"
        if part is not None and part["number"]:
            subject = f" whether it may use {unescape(part['name'])}"
        node = part["run"] if part is not None else open.location
        text = f"The node {node} asks a person{subject}{seen.since(open)}."
        todo = Advice("to answer", ("tasks", "ls"))
        return Reason("task", text, (todo,), open)

    def _timer(self, seen: Seen, open: Waiting) -> Reason | None:
        assert open.due is not None
        when = seen.at(open.due)
        where, _, last = open.location.rpartition("/")
        sign = last.partition("#")[0]
        if sign == "backoff":
            error = seen.last_error(where)
            told = f", last with {error}" if error else ""
            return Reason("backoff", f"{self.name(where)} has failed{told}; it is tried again at {when}.", (), open)
        if sign == "rate":
            return Reason("timer", f"{self.name(where)} waits until {when}: rate= allows no call before.", (), open)
        if sign == "&slice":
            return Reason("timer", "More nodes are about to be opened.", (), open)
        subject = f"The node {where}" if where else "The graph"
        return Reason("timer", f"{subject} waits until {when}, and {TIMERS.get(sign, 'goes on then')}.", (), open)

    def repeats(self, name: str) -> bool:
        return name in (REPORT, FAILED) or name.startswith("graph/")

    def table(self, lines: Sequence[Line]) -> list[dict[str, Any]] | None:
        """A row for each node that was opened, added or has ended, as the facts of the journal tell it."""
        rows: dict[str, dict[str, Any]] = {}

        def row(name: str) -> dict[str, Any]:
            return rows.setdefault(name, {"node": name, "outcome": "", "reason": "", "runs": 0, "since": None})

        for line in lines:
            for fact in line.facts:
                for item in decode(fact.body).get("nodes", ()):
                    found = row(item["node"]) if isinstance(item, dict) and "node" in item else None
                    if found is None:
                        continue
                    if fact.name == "graph/opened@1":
                        found["runs"] += 1
                        found |= {"outcome": "open", "reason": "", "since": line.at}
                    elif fact.name == "graph/ended@1":
                        found |= {"outcome": item["outcome"], "reason": item.get("reason", ""), "since": line.at}
                    elif fact.name == "graph/added@1" and not found["outcome"]:
                        found |= {"outcome": "waiting", "since": line.at}
        return list(rows.values())
