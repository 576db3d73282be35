"""Values and times on one line, as people read them. Pure: the time of now is an argument."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from .visible import visible_json, visible_numbers

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def jsonable(value: Any) -> Any:
    """Recorded values and structs of them, as JSON has them: what it has no type for becomes text, in the form that
    input accepts. A field of a struct that is `UNSET` is left out.
    """
    match value:
        case Mapping():
            return {key if isinstance(key, str) else str(jsonable(key)): jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [jsonable(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | str():
            return value
        case int():
            return visible_numbers(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case msgspec.Struct():
            found = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
            return {name: jsonable(item) for name, item in found if item is not msgspec.UNSET}
        case _:
            return msgspec.to_builtins(value)


def one_line(value: Any) -> str:
    """A value as JSON on one line."""
    return visible_json(json.dumps(jsonable(value), ensure_ascii=False))


def short(value: Any, width: int | None = 60) -> str:
    """A value on one line, cut where it gets long."""
    return cut(one_line(value), width)


def cut(text: str, width: int | None = 60) -> str:
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


_FRAME: Final = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_LIBRARY: Final = re.compile(
    r"/(site-packages|lib/python[\d.]+"
    r"|perdure/(kernel|runtime|flows|codec|executors|app|graphs|playbooks|processes|tasks|cells|testing))/|^<"
)
"""Files that are not the author's. `ui/lib/errors.js` shows the same frames."""


def author_place(traceback: str) -> str:
    """Where a recorded traceback leaves the author's code: `my/shop.py:42 in order`; empty: it never was there."""
    own = [found for found in _FRAME.findall(traceback) if not _LIBRARY.search(found[0])]
    if not own:
        return ""
    file, line, name = own[-1]
    return f"{'/'.join(file.split('/')[-2:])}:{line} in {name}"


def error_line(error: Any) -> str:
    """A recorded error on one line, with the place in its author's code. A divergence names its place itself."""
    place = "" if error.type == "Divergence" else author_place(error.traceback)
    return first_line(str(error)) + (f", at {place}" if place else "")


# ---- times -------------------------------------------------------------------------------------------------


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
