"""What people call the things that a flow waits for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from perdure.codec.phrases import first_line
from perdure.kernel.decision import Stuck
from perdure.kernel.location import is_sleep, unescape
from perdure.ports.seen import Advice, Reason, Seen, Waiting, Words

from .ending import CLEANUP, TASK_FAILED
from .start import START

BACKOFF: Final = re.compile(r"(?P<step>.+)/backoff#(?P<attempt>\d+)$")
"""The location of the timer between two attempts at a step."""

UNDO: Final = re.compile(r"(?:^|/)&undo/(?P<step>[^/]+)")
"""The location of a step that undoes another one."""


class FlowWords(Words):
    code = "flow's code"

    def name(self, location: str) -> str | None:
        undo = UNDO.search(location)
        return None if undo is None else f"The undo of {unescape(undo['step'])}"

    def open(self, seen: Seen, open: Waiting) -> Reason | None:
        return self._timer(seen, open) if open.kind == "timer" else None

    def _timer(self, seen: Seen, open: Waiting) -> Reason | None:
        assert open.due is not None
        when = seen.at(open.due)
        backoff = BACKOFF.match(open.location)
        if backoff is not None:
            return self._backoff(seen, open, backoff["step"], int(backoff["attempt"]))
        if open.location == START:
            text = f"It was started for later: it begins at {when}."
            return Reason("timer", text, (Advice("to begin now", seen.command("wake")),), open)
        if open.location == CLEANUP:
            return Reason("timer", f"What is not cleaned up at {when} is cut.", (), open)
        if not is_sleep(open.location):
            text = f"It waits for a sleep or a timeout of asyncio ({open.location}) until {when}. Only time ends it."
            return Reason("timer", text, (), open)
        return None

    def _backoff(self, seen: Seen, open: Waiting, step: str, attempt: int) -> Reason:
        assert open.due is not None
        last = seen.last_error(step)
        name = self.name(step) or f"The step {step}"
        failed = f"{name} failed {'once' if attempt == 1 else f'{attempt} times'}"
        text = f"{failed}{f', last with {last}' if last else ''}; attempt {attempt + 1} begins at {seen.at(open.due)}."
        return Reason("backoff", text, (), open)

    def besides(self, seen: Seen) -> Iterable[Reason]:
        for fact in [fact.value for fact in seen.lines[-1].facts if fact.name == TASK_FAILED]:
            error = first_line(f"{fact['error']}: {fact['message']}")
            text = f"The flow did not notice that its task {fact['task']} failed: {error}. Nothing awaited it."
            yield Reason("task-failed", text, (Advice("await the task, or create it in an asyncio.TaskGroup"),))

    def ways_out(self, seen: Seen, stuck: Stuck) -> tuple[Advice, ...] | None:
        if stuck.error.type != "UndoFailed":
            return None
        return (
            Advice("undo it by hand, then", seen.command("settle", stuck.location, "ok")),
            Advice("or let it be tried again", seen.command("retry")),
        )
