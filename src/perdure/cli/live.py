"""Progress of a run on stderr: a few lines, drawn again and again, on a terminal; plain lines elsewhere.

What the code of flows and steps prints goes to stderr too while this is shown: stdout belongs to the result.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import click

from perdure.codec.visible import visible
from perdure.ports.frame import Frame
from perdure.ports.seen import Line, Waiting, holder
from perdure.views.look import ShownWait, shown_wait

from .text import shown as visibly
from .text import span, styled, told, unstyled, until

LINES_MAX: Final = 12

QUIET: Final = timedelta(seconds=1)
"""How long nothing more is told of a step whose progress was told, where lines stay."""

NEVER: Final = (0, 0, datetime.min.replace(tzinfo=UTC))


class Progress(Protocol):
    def happened(self, lines: Sequence[Line]) -> None: ...

    def now(self, title: str, status: str, started_at: datetime, waiting: Sequence[Waiting]) -> None: ...


class Plain:
    """One line for each entry, and for how far a step is: of each step at most one in `QUIET`."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, int, datetime]] = {}  # by location: attempt and number of the frame, and when

    def happened(self, lines: Sequence[Line]) -> None:
        for line in lines:
            click.echo(visibly(f"{line.at.astimezone():%H:%M:%S} {told(line, values=False)}"), err=True)

    def now(self, title: str, status: str, started_at: datetime, waiting: Sequence[Waiting]) -> None:
        at = datetime.now(UTC)
        for open in waiting:
            frame, (attempt, ordinal, last) = open.progress, self._told.get(open.location, NEVER)
            if frame is None or (frame.attempt, frame.ordinal) <= (attempt, ordinal) or at - last < QUIET:
                continue
            self._told[open.location] = frame.attempt, frame.ordinal, at
            click.echo(visibly(f"{at.astimezone():%H:%M:%S} {open.location} {how_far(frame)}"), err=True)


class Screen(io.TextIOBase):
    """What is open, one line each, drawn over the last drawing. Also the stdout of user code meanwhile."""

    def __init__(self) -> None:
        self._drawn = 0
        self._lock = threading.Lock()  # steps may print from threads
        self._open_line = False  # a step printed without a newline

    def happened(self, lines: Sequence[Line]) -> None:
        pass

    def now(self, title: str, status: str, started_at: datetime, waiting: Sequence[Waiting]) -> None:
        at = datetime.now(UTC)
        lines = [f"{title}  {styled(status)}  {span((at - started_at).total_seconds())}"]
        lines += [f"  {open_line(shown_wait(each), at, each.progress)}" for each in waiting[:LINES_MAX]]
        if len(waiting) > LINES_MAX:
            lines.append(f"  … and {len(waiting) - LINES_MAX} more")
        width = shutil.get_terminal_size().columns - 1
        with self._lock:
            self._erase()
            self._end_line()
            for line in lines:
                click.echo(visibly(_cut(line, width)), err=True)
            self._drawn = len(lines)

    def write(self, text: str) -> int:
        with self._lock:
            self._erase()
            sys.stderr.write(text)
            if text:
                self._open_line = not text.endswith("\n")
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def close(self) -> None:
        with self._lock:
            self._erase()
            self._end_line()
            sys.stderr.flush()
        super().close()

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _end_line(self) -> None:
        if self._open_line:
            sys.stderr.write("\n")
            self._open_line = False


@contextmanager
def shown() -> Iterator[Progress]:
    """Progress, for as long as something runs."""
    if not _draws():
        with redirect_stdout(sys.stderr):
            yield Plain()
        return
    screen = Screen()
    with redirect_stdout(screen):
        try:
            yield screen
        finally:
            screen.close()


def open_line(open: ShownWait, at: datetime, progress: Frame | None = None) -> str:
    age = span((at - open.since).total_seconds())
    match open.kind:
        case "step":
            attempt = f", attempt {open.attempt}" if open.attempt > 1 else ""
            far = f"  {how_far(progress)}" if progress is not None else ""
            who = f"  {holder(open.worker, open.claimed_at, at)}" if open.worker else ""
            return f"step {open.location}  {'waits for a free place' if open.held else age}{attempt}{far}{who}"
        case "timer":
            assert open.due is not None
            return f"timer {open.location}  {until(open.due, at)}"
        case "wait":
            deadline = f", {until(open.due, at)} at the latest" if open.due is not None else ""
            return f"waits for a message {open.what.replace(', ', ' or ') or 'of any name'}  {age}{deadline}"
        case "task":
            return f"task {open.location}  {age}"
        case kind:
            return f"{kind} {open.what or open.location}  {age}"


def how_far(frame: Frame) -> str:
    """The progress of a step: `3/10 (30 %)  its note`."""
    total = "" if frame.total is None else f"/{_number(frame.total)}"
    percent = f" ({100 * frame.done / frame.total:.0f} %)" if frame.total else ""
    note = visible(" ".join(frame.note.split()))
    return f"{_number(frame.done)}{total}{percent}  {note}".rstrip()


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _draws() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _cut(line: str, width: int) -> str:
    plain = visible(unstyled(line))
    return line if len(plain) <= width else plain[: width - 1] + "…"
