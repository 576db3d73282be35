"""Values, times and tables as people and programs read them. Pure: the time of now is an argument.

What is written is a line, whatever it quotes: `shown` makes the rest visible. Text of several lines is `Lines`, made
by `joined`, `table`, `indented` and `to_json`, which make each of their parts visible. Styles are marked with a secret
of the process, so that no data can style anything.
"""

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from perdure.codec.visible import visible, visible_json, visible_numbers
from perdure.runtime.history import Line

STYLES: Final = {
    "running": "cyan",
    "waiting": "blue",
    "stuck": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "ok": "green",
    "error": "red",
    "timeout": "red",
    "unknown": "yellow",
}


_SECRET: Final = os.urandom(8).hex()
_MARK: Final = re.compile(f"\x1b{_SECRET}(\\[[0-9]+m)")


class Lines(str):
    """Text of several lines, each of which is visible already."""

    __slots__ = ()


def style(text: str, *, fg: str | None = None, bold: bool = False) -> str:
    return click.style(text, fg=fg, bold=bold or None).replace("\x1b", f"\x1b{_SECRET}")


def styled(status: str) -> str:
    return style(status, fg=STYLES.get(status))


def unstyled(text: str) -> str:
    return _MARK.sub("", text)


def shown(text: str) -> str:
    """What a terminal gets: one line, unless it is `Lines`."""
    return _MARK.sub("\x1b\\1", text if isinstance(text, Lines) else _line(text))


def _line(text: str) -> str:
    if text.isprintable():
        return text
    parts = _MARK.split(text)  # every second one is a style
    return "".join([f"\x1b{_SECRET}{part}" if number % 2 else visible(part) for number, part in enumerate(parts)])


def joined(parts: Iterable[str]) -> Lines:
    return Lines("\n".join([part if isinstance(part, Lines) else _line(part) for part in parts]))


# ---- JSON --------------------------------------------------------------------------------------------------


def to_json(value: Any, indent: int | None = None) -> Lines:
    """Recorded values as JSON: what it has no type for becomes text, in the form that input accepts."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return Lines(visible_json(json.dumps(_plain(value), indent=indent, ensure_ascii=not unicode)))


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | str():
            return value
        case int():
            return visible_numbers(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case _:
            return msgspec.to_builtins(value)


def short(value: Any, width: int | None = 60) -> str:
    """A value on one line, cut where it gets long."""
    text = to_json(value)
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


# ---- times -------------------------------------------------------------------------------------------------

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def span(seconds: float) -> str:
    if seconds < 1:
        return f"{max(seconds, 0):.1f} s"
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE:.0f} min"
    if seconds < DAY:
        minutes = seconds % HOUR // MINUTE
        return f"{seconds // HOUR:.0f} h" + (f" {minutes:.0f} min" if minutes else "")
    days, hours = seconds // DAY, seconds % DAY // HOUR
    return f"{days:.0f} day{'s' if days > 1 else ''}" + (f" {hours:.0f} h" if hours else "")


def ago(at: datetime, now: datetime) -> str:
    seconds = (now - at).total_seconds()
    return "just now" if seconds < 1 else f"{span(seconds)} ago"


def until(at: datetime, now: datetime) -> str:
    seconds = (at - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0 else f"due since {span(-seconds)}"


def local(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


# ---- lines -------------------------------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]]) -> Lines:
    """Columns as wide as they need; the last one may be as long as it likes, also in lines."""
    rows = [[cell if isinstance(cell, Lines) else _line(cell) for cell in row] for row in rows]
    widths = [max(len(unstyled(cell)) for cell in column) for column in list(zip(*rows, strict=True))[:-1]]
    margin = " " * (sum(widths) + 2 * len(widths))
    found = []
    for *cells, last in rows:
        padded = [cell + " " * (width - len(unstyled(cell))) for cell, width in zip(cells, widths, strict=True)]
        found.append("  ".join([*padded, last.replace("\n", "\n" + margin)]).rstrip())
    return Lines("\n".join(found))


def indented(text: str, margin: str = "    ") -> Lines:
    """Text of several lines, those after the first one set in: none of them looks like a line of ours."""
    first, *rest = text.split("\n")
    return joined([first, *(f"{margin}{line}" for line in rest)])


def noted(text: str) -> Lines:
    """The same for a message beside the result, which may have lines that are set in already."""
    first, *rest = text.split("\n")
    return joined([first, *(line if line.startswith(" ") else f"  {line}" for line in rest)])


def told(line: Line, width: int | None = 60, values: bool = True) -> str:
    """One entry of a history: what came, what it led to."""
    words = [line.location, styled(line.status)] if line.event == "receipt" else [line.event, line.location]
    if values and line.value not in (None, ""):
        words.append(short(line.value, width))
    if line.error is not None and line.event == "receipt" and line.status != "ok":
        words.append(first_line(str(line.error)))
    led_to = [*line.opened, *(f"announced {name}" for name in line.announced)]
    if line.outcome:
        error = "" if line.error is None or line.outcome == "completed" else first_line(str(line.error))
        reason = f": {error}" if error and error not in words and line.event != "cancel" else ""
        led_to.append(styled(line.outcome) + reason)
    text = " ".join(word for word in words if word)
    return f"{text} → {', '.join(led_to)}" if led_to else text


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
