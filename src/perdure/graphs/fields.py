"""The fields of a node as an author writes them: which exist, and what each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from perdure.codec import encode, to_plain
from perdure.codec.converters.frame import did_you_mean
from perdure.errors import PerdureError
from perdure.kernel.backoff import Backoff

from .model import APPROVALS, CONTEXTS, ISOLATIONS, KINDS, ROLES, TRUSTS, Limits

Reader = Callable[[Any], Any]
"""Gives the value as the model has it, or raises `ValueError` with what is expected."""

COUNTED: Final = ("running", "nodes", "depth")
"""Limits that bound a graph; a node has none of them."""

RATED_MAX: Final = 10_000
"""Calls of one rate: the time of each is kept."""

WHOLE: Final = (*COUNTED, "repeats")


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def one_of(*known: str) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"one of {', '.join(each for each in known if each)}")
        return value

    return read


def whole(least: int) -> Reader:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least or value > 2**53:
            raise ValueError(f"a whole number of at least {least}")
        return value

    return read


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise ValueError("a list of texts")
    found: tuple[Any, ...] = tuple([getattr(each, "name", each) for each in value])
    if not all(isinstance(each, str) and each for each in found):
        raise ValueError("a list of texts")
    return tuple(dict.fromkeys(found))


def duration(value: Any) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 9e9:
        raise ValueError("seconds, more than 0")
    return float(seconds)


def by_name(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ValueError("texts by name")
    return dict(value)


def limits(value: Any) -> Limits:
    if isinstance(value, Limits):
        value = msgspec.structs.asdict(value)
    if value is None:
        return Limits()
    known = Limits.__struct_fields__
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        unknown = next((each for each in value if each not in known), None) if isinstance(value, Mapping) else None
        raise ValueError(f"limits of {', '.join(known)}{did_you_mean(unknown, known)}")
    for name, each in value.items():
        is_whole = name in WHOLE
        if each is None:
            continue
        if isinstance(each, bool) or not isinstance(each, int if is_whole else int | float) or not 0 <= each < 2**53:
            raise ValueError(f"{name} as {'a whole number' if is_whole else 'a number'}, not negative")
    found: dict[str, Any] = {
        name: each if each is None or name in WHOLE else float(each) for name, each in value.items()
    }
    return Limits(**found)


def node_limits(value: Any) -> Limits:
    found = limits(value)
    if wrong := [name for name in COUNTED if getattr(found, name) is not None]:
        raise ValueError(f"limits of tokens, cost, calls, wall and repeats; {', '.join(wrong)} is a limit of the graph")
    return found


def backoff(value: Any) -> Backoff:
    if isinstance(value, Backoff):
        return value
    if not isinstance(value, Mapping) or not set(value) <= set(Backoff.__struct_fields__):
        raise ValueError(f"a backoff: {', '.join(Backoff.__struct_fields__)}")
    try:
        return Backoff(**value)
    except PerdureError as error:
        raise ValueError(str(error)) from None


def after(value: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of alias and name. A list names each by itself; a name twice counts once."""
    if isinstance(value, str) or hasattr(value, "name"):
        value = [value]
    pairs: list[tuple[Any, Any]]
    if isinstance(value, Mapping):
        pairs = [(alias, getattr(name, "name", name)) for alias, name in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(getattr(each, "name", each),) * 2 for each in value]
    else:
        raise ValueError("a list of names, or names by alias")
    if not all(isinstance(each, str) and each for pair in pairs for each in pair):
        raise ValueError("a list of names, or names by alias")
    return tuple(dict.fromkeys(pairs))


def needs(value: Any) -> str | dict[str, str]:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return by_name({getattr(name, "name", name): policy for name, policy in value.items()})
    raise ValueError("a policy, or policies by name")


def branches(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not value or not all(isinstance(label, str) and label for label in value):
        raise ValueError("lists of names by label")
    return {label: texts([names] if isinstance(names, str) else names) for label, names in value.items()}


def entrants(value: Any) -> dict[str, str]:
    if isinstance(value, list | tuple):
        value = dict.fromkeys(value, "")
    return by_name(value)


def rate(value: Any) -> dict[str, tuple[int, float]]:
    found = {} if value is None else value
    if not isinstance(found, Mapping) or not all(
        isinstance(glob, str) and isinstance(pair, list | tuple) and len(pair) == 2 for glob, pair in found.items()
    ):
        raise ValueError("a number of calls and seconds by glob, such as {'search': (5, 60)}")
    pairs = {glob: (whole(1)(calls), duration(seconds) or 0.0) for glob, (calls, seconds) in found.items()}
    if any(calls > RATED_MAX or not seconds for calls, seconds in pairs.values()):
        raise ValueError(f"at most {RATED_MAX:,} calls in a number of seconds")
    return pairs


def plain(value: Any) -> Any:
    try:
        found = to_plain(value)
        encode(found)
    except PerdureError as error:
        raise ValueError(f"plain data: {error}") from None
    return found


def approval(value: Any) -> str:
    return "" if value is None else str(one_of(*APPROVALS)(value))


COMMON: Final[dict[str, Reader]] = {
    "goal": text,
    "labels": by_name,
    "model": text,
    "after": after,
    "needs": needs,
    "role": one_of(*ROLES),
    "isolation": one_of(*ISOLATIONS),
    "context": one_of(*CONTEXTS),
    "trust": one_of(*TRUSTS),
    "runner": text,
    "queue": text,
    "tools": lambda value: None if value is None else texts(value),
    "veto": texts,
    "output": lambda value: value,
    "repairs": whole(0),
    "retries": whole(0),
    "backoff": backoff,
    "timeout": duration,
    "once": flag,
    "limits": node_limits,
    "priority": whole(-(2**31)),
    "rest": flag,
    "approve": approval,
}

OWN: Final[dict[str, dict[str, Reader]]] = {
    "node": {},
    "loop": {"max_iters": whole(1)},
    "classify": {"branches": branches, "default": lambda value: "" if value is None else text(value)},
    "tournament": {"entrants": entrants},
    "reduce": {"reducer": lambda value: value},
    "child": {"workflow": lambda value: value, "input": plain, "detach": flag},
    "wait": {"seconds": duration, "message": text, "question": text},
}
"""The fields that one kind has beside those of all."""

NEEDED: Final = {
    "loop": "max_iters",
    "classify": "branches",
    "tournament": "entrants",
    "reduce": "reducer",
    "child": "workflow",
}

assert tuple(OWN) == KINDS
