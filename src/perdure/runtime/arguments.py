"""What callers pass is checked here, before it is recorded: texts, keys, tags, times, sizes."""

from __future__ import annotations

import difflib
import inspect
import os
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from math import isnan
from typing import Any, Final, TypedDict, get_args

from perdure.errors import CallerError, TooLarge
from perdure.kernel.asked import Actor, Asked, actor_of
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.tags import TagValue, kept, objection
from perdure.ports.store import CHANGE_ORDERED, ListOrder

TEXT_MAX: Final = 4096  # of names, ids, reasons and locations: what stands in rows beside the values


def checked_text(value: str, what: str) -> str:
    """The text, if it is one that can be recorded. What gets past here is encoded where it cannot be refused any more.

    It is a plain `str`, as a replay will have it: an enum, say, would be another one until then.
    """
    try:
        if isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.encode():  # type: ignore[redundant-expr]
            return str.__str__(value)
    except UnicodeEncodeError:
        pass
    raise CallerError(f"{what} is a text of valid Unicode with 1 to {TEXT_MAX:,} characters, found {value!a:.80}")


NAME_SHOWN: Final = 200
"""Characters of an unknown name that are compared and told: names come from callers."""


class Asking(TypedDict, total=False):
    """What each verb takes beside what it does: who asks, under which id, and for which last entry."""

    id: str | None
    by: Actor | str | None
    if_entry: int | None


class Said(Asking, total=False):
    """The same, and why."""

    reason: str


def asked(said: Said | Asking) -> Asked | None:
    """What a caller said of itself, as events carry it; None: nothing."""
    if not said:
        return None
    id, by, entry = said.get("id"), said.get("by"), said.get("if_entry")
    reason: Any = said.get("reason", "")
    if entry is not None and (type(entry) is not int or entry < 0):
        raise CallerError(f"if_entry is the number of an entry, found {entry!r:.80}")
    found = Asked(
        "" if id is None else checked_text(id, "the id of an event"),
        None if by is None else actor_of(by),
        reason=checked_text(reason, "a reason") if reason != "" else "",
        if_entry=entry,
    )
    return None if found == Asked() else found


def checked_key(key: str | None) -> str:
    if key is None:
        return os.urandom(16).hex()
    usable = isinstance(key, str) and 0 < len(key) <= 512 and "\x00" not in key  # type: ignore[redundant-expr]
    if not usable:
        raise CallerError(f"a key is a text of 1 to 512 characters, found {key!r:.80}")
    return checked_text(key, "a key")


def checked_route_key(key: str) -> str:
    """Also the empty one, of a workflow without keys. A key of another type is named by its text."""
    if not isinstance(key, str):
        raise CallerError(f"a key is a text, found {key!r:.80}; that of a number or a UUID is str(key)")
    return key and checked_key(key)


def checked_tag(name: str, value: TagValue | None) -> str | None:
    """A tag that a user gives, or removes, as it is kept."""
    against = objection(name, value)
    if against:
        raise CallerError(against)
    return None if value is None else kept(value)


TagInput = str | bool | int | float | dict[str, str]
"""A tag of a document."""


def tag_from_json(value: Any) -> Any:
    """A tag of a document: a time is {"$time": "2026-11-01T09:00Z"}."""
    if not isinstance(value, dict):
        return value
    try:
        (text,) = [value["$time"]] if value.keys() == {"$time"} else []
        time = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        text = 'a tag is a text, a number, a bool, or a time: {"$time": "2026-11-01T09:00Z"}'
        raise CallerError(f"{text}, found {value!r:.80}") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def checked_tags(tags: Mapping[str, TagValue] | None, *, wanted: bool = False) -> dict[str, str]:
    """Tags to give, as they are kept, or those that a list is `wanted` of: there the engine's own may be named too."""
    if not tags:
        return {}
    if not isinstance(tags, Mapping):
        raise CallerError(f"tags are values by name, found {tags!r}")
    found: dict[str, str] = {}
    for name, value in tags.items():
        if not (isinstance(name, str) and isinstance(value, TagValue)):  # type: ignore[redundant-expr]
            text = "tags are texts, numbers, bools or times by name"
            raise CallerError(f"{text}, found {name!r}: {value!r}")
        if wanted:
            checked_text(name + value if isinstance(value, str) else name, "a tag")
            against = "" if isinstance(value, str) else objection("a", value)
        else:
            against = objection(name, value)
        if against:
            raise CallerError(against)
        found[str.__str__(name)] = str.__str__(value) if isinstance(value, str) else kept(value)
    return found


def is_by_change(order: ListOrder, status: str) -> bool:
    """Whether a list is in the order of the last changes, which it can be for some statuses."""
    if order not in get_args(ListOrder):
        raise CallerError(unknown("order", order, get_args(ListOrder), "-started is the newest first"))
    if order == "-changed" and status not in CHANGE_ORDERED:
        raise CallerError(f"the order -changed is that of a status: status= one of {', '.join(CHANGE_ORDERED)}")
    return order == "-changed"


def reference_tags(key: str, parts: Mapping[str, str] | None) -> dict[str, str]:
    """The tags that a reference is."""
    if not key and not parts:
        return {}
    tags = {"reference": key, **{f"reference.{part}": value for part, value in (parts or {}).items()}}
    return {name: checked_text(value, "a reference") for name, value in tags.items() if value or name == "reference"}


Between = tuple[datetime | None, datetime | None]
"""Times from the first on, and before the second; None is open."""


def span_of(between: Between | None, what: str) -> tuple[int, int] | None:
    """Two times in nanoseconds."""
    if between is None:
        return None
    found = [0, 2**63 - 1]
    for place, time_given in enumerate(between):
        if time_given is not None:
            if not isinstance(time_given, datetime) or time_given.tzinfo is None:  # type: ignore[redundant-expr]
                raise CallerError(f"{what}={between!r:.80}: it is two times with a time zone, or None for an open end")
            found[place] = round(time_given.timestamp() * 1e6) * 1000
    return found[0], found[1]


def checked_entry(seq: int, what: str) -> int:
    if type(seq) is not int or seq < 0:
        raise CallerError(f"{what}={seq!r}: an entry of the journal is a number from 0")
    return seq


def limited(value: bytes, what: str) -> bytes:
    if len(value) > VALUE_MAX:
        raise TooLarge(what, len(value), VALUE_MAX)
    return value


def no_workflow(found: object) -> str:
    """What to write instead of something that is passed for a workflow and is none."""
    if inspect.iscoroutine(found):
        found.close()
        return "pass it and its arguments apart, without a call: start(workflow, ...)"
    return "did you forget @perdure.flow?"


def start_due(at: datetime | None, delay: float | timedelta | None) -> int:
    """When a delayed start is due, in nanoseconds."""
    if at is not None and delay is not None:
        raise CallerError("a start is delayed with `at` or with `delay`, not with both")
    if at is not None:
        if not isinstance(at, datetime) or at.tzinfo is None:  # type: ignore[redundant-expr]
            raise CallerError(f"at={at!r} must be a time with a time zone: datetime(..., tzinfo=UTC)")
        seconds = at.timestamp()
    else:
        try:
            wait = delay.total_seconds() if isinstance(delay, timedelta) else float(delay or 0)
        except (TypeError, ValueError):
            raise CallerError(f"delay={delay!r}: a delay is a number of seconds or a timedelta") from None
        if not wait >= 0:
            raise CallerError(f"delay={delay!r}: a start is delayed by no time or more")
        seconds = time.time() + wait
    if not 0 <= seconds < 9.2e9:
        raise CallerError(f"a start can be delayed until the year 2261, found {at or delay}")
    return round(seconds * 1e9)


def seconds_of(timeout: float | timedelta | None) -> float | None:
    if timeout is None or isinstance(timeout, timedelta):
        return None if timeout is None else timeout.total_seconds()
    if not isinstance(timeout, int | float):
        raise CallerError(f"a timeout is a number of seconds or a timedelta, found {timeout!r}")
    if isnan(timeout):  # a timer of a loop that is not a number disorders all others
        raise CallerError("a timeout is a number of seconds, found not a number (nan)")
    return timeout


def unknown(kind: str, name: str, names: Collection[str], advice: str) -> str:
    """What a caller hears of a name that is not registered."""
    near = difflib.get_close_matches(name[:NAME_SHOWN], names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    shown = name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}…"
    return f"no {kind} is named {shown!r}{meant} (there are: {', '.join(sorted(names)) or 'none'}); {advice}"
