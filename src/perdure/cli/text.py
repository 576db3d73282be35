"""Values and tables as people and programs read them. Pure.

What is written is a line, whatever it quotes: `shown` makes the rest visible. Text of several lines is `Lines`, made
by `joined`, `table`, `indented` and `to_json`, which make each of their parts visible. Styles are marked with a secret
of the process, so that no data can style anything.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from perdure.codec.phrases import ago, cut, error_line, first_line, jsonable, local, span, until
from perdure.codec.visible import visible, visible_json
from perdure.ports.seen import Line
from perdure.views.look import ShownEntry

__all__ = [
    "Lines",
    "ago",
    "counted",
    "error_line",
    "first_line",
    "indented",
    "joined",
    "local",
    "noted",
    "short",
    "shown",
]
__all__ += ["span", "style", "styled", "table", "to_json", "told", "unstyled", "until"]

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
    return Lines(visible_json(json.dumps(jsonable(value), indent=indent, ensure_ascii=not unicode)))


def short(value: Any, width: int | None = 60) -> str:
    """A value on one line, cut where it gets long."""
    return cut(to_json(value), width)


# ---- lines -------------------------------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]]) -> Lines:
    """Columns as wide as they need; the last one may be as long as it likes, also in lines."""
    rows = [[text if isinstance(text, Lines) else _line(text) for text in row] for row in rows]
    widths = [max(len(unstyled(text)) for text in column) for column in list(zip(*rows, strict=True))[:-1]]
    margin = " " * (sum(widths) + 2 * len(widths))
    found = []
    for *texts, last in rows:
        padded = [text + " " * (width - len(unstyled(text))) for text, width in zip(texts, widths, strict=True)]
        found.append("  ".join([*padded, last.replace("\n", "\n" + margin)]).rstrip())
    return Lines("\n".join(found))


def indented(text: str) -> Lines:
    """Text of several lines, those after the first one set in: none of them looks like a line of ours."""
    first, *rest = text.split("\n")
    return joined([first, *(f"    {line}" for line in rest)])


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def noted(text: str) -> Lines:
    """The same for a message beside the result, which may have lines that are set in already."""
    first, *rest = text.split("\n")
    return joined([first, *(line if line.startswith(" ") else f"  {line}" for line in rest)])


def told(line: Line | ShownEntry, width: int | None = 60, values: bool = True) -> str:
    """One entry of a history: what came, what it led to."""
    words = [line.location, styled(line.status)] if line.event == "receipt" else [line.event, line.location]
    if values and line.value not in (None, ""):
        words.append(short(line.value, width))
    if line.error is not None and line.event == "receipt" and line.status != "ok":
        words.append(error_line(line.error) if line.outcome else first_line(str(line.error)))
    led_to = [*line.opened, *(f"announced {name}" for name in line.announced)]
    if line.outcome:
        error = "" if line.error is None or line.outcome == "completed" else error_line(line.error)
        reason = f": {error}" if error and error not in words and line.event != "cancel" else ""
        led_to.append(styled(line.outcome) + reason)
    if line.by:
        words.append(f"by {line.by}")
    if line.reason and line.reason != line.value:
        words.append(f"({line.reason})")
    text = " ".join(word for word in words if word)
    return f"{text} → {', '.join(led_to)}" if led_to else text
