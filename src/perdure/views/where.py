"""Which instances a list shows, as one text: `status:stuck tag.customer:c-7 started<2026-11-01 -workflow:probe*`.

A word is a field, `:` `<` or `>`, and a value; `-` before it says not. Words of one field with `:` mean "one of these";
all else must hold at once. A word without a field is the beginning of a key. `filters` are what an index can answer;
`fits` judges a head by all words. Both are pure. A dialect is first replaced by the names of its workflows, and the
name of a parent by its number.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import product
from math import prod
from typing import Any, Final, Literal, NamedTuple

from perdure.errors import BadFilter
from perdure.kernel.batch import HeadRow
from perdure.kernel.moment import at_of
from perdure.kernel.rows import tags_of
from perdure.kernel.status import Status
from perdure.kernel.tags import TYPED, readings, told
from perdure.ports.store import Filter, TextSpan

FIELDS: Final = (
    "workflow",
    "dialect",
    "version",
    "status",
    "key",
    "key_prefix",
    "parent",
    "root",
    "started",
    "changed",
    "ended",
    "waits_for",
    "error_type",
    "error_at",
    "queue",
)
FAMILY: Final = ("parent", "root")
NUMBERED: Final = re.compile(r"@?([0-9]{1,19})\Z")
_NAMED: Final = re.compile(r"[^/]+/")
TIMES: Final = frozenset({"started", "changed", "ended"})
SHOWN: Final = 1000
"""Nanoseconds of a microsecond, in which times are shown: what is shown as a time is not after it."""
TAG: Final = "tag."
DIALECT: Final = "dialect"
BRANCHES_MAX: Final = 8
"""An index is asked at most so often for one list: what would need more is judged head by head."""

Op = Literal[":", "<", ">"]
_IMPLIED: Final = {
    "waits_for": ("waiting",),
    "queue": ("waiting",),
    "error_type": ("failed", "stuck"),
    "error_at": ("failed", "stuck"),
}
"""The statuses of instances that can fit."""

_WORD: Final = re.compile(r"(-?)([a-z_]+|tag\.[^:<>\s]+)([:<>])(.*)\Z", re.S)


class Term(NamedTuple):
    """One field with its values: one of them must fit, or, where it is `negated`, none may."""

    field: str
    op: Op
    values: tuple[str, ...]
    negated: bool = False

    @property
    def plain(self) -> bool:
        """Whether an index can answer it: no pattern, nothing negated."""
        return self.op == ":" and not self.negated and not any("*" in value for value in self.values)


Where = tuple[Term, ...]

TEXT_MAX: Final = 8 * 1024
"""Characters of a filter: as many as a URL may have."""


def parse(text: str) -> Where:
    """The terms of a text. Raises `BadFilter` with the place of what is wrong."""
    if len(text) > TEXT_MAX:
        raise BadFilter(f"a filter has at most {TEXT_MAX:,} characters, found {len(text):,}")
    try:
        words = shlex.split(text, posix=True)
    except ValueError as error:
        at = max(text.rfind(each) for each in "'\"\\") + 1
        raise BadFilter(f"the filter {text!r:.80} has an open quote: {error}", f"character {at}") from None
    terms, at = [], 0
    for word in words:
        begin = re.split("[:<>]", word, maxsplit=1)[0]  # what follows may be quoted in the text
        at = max(at, text.find(begin, at))
        try:
            terms.append(_term(word))
        except BadFilter as error:
            raise BadFilter(str(error), f"character {at + 1}") from None
        at += len(begin)
    return joined(terms)


def from_pairs(pairs: Mapping[str, Iterable[str]]) -> Where:
    """The terms of query parameters: `status=stuck`, `not.workflow=probe*`, `started.gt=2026-11-01`, `tag.a=b`.

    A bound may stand before the time, too: `started=>2026-11-01`.
    """
    terms: list[Term] = []
    for name, values in pairs.items():
        negated, field = name.startswith("not."), name.removeprefix("not.")
        op: Op = ":"
        for ending, sign in ((".gt", ">"), (".lt", "<")):
            if field.endswith(ending):
                field, op = field.removesuffix(ending), sign  # type: ignore[assignment]
        for value in values:
            signed = op == ":" and field in TIMES and value[:1] in ("<", ">")  # started=>2026-11-01
            sign, bound = (value[0], value[1:]) if signed else (op, value)
            try:
                terms.append(_checked(Term(field, sign, (bound,), negated)))  # type: ignore[arg-type]
            except BadFilter as error:
                raise BadFilter(str(error), f"/{name:.200}") from None
    return joined(terms)


def joined(terms: Iterable[Term]) -> Where:
    """Terms of one field that ask for equality are one term with several values."""
    found: dict[tuple[str, str, bool, int], Term] = {}
    for number, term in enumerate(terms):
        key = term.field, term.op, term.negated, 0 if term.op == ":" else number
        known = found.get(key)
        found[key] = term if known is None else known._replace(values=(*known.values, *term.values))
    return tuple(found.values())


def to_text(where: Where) -> str:
    """The text that means these terms."""
    words = [
        f"{'-' if term.negated else ''}{term.field}{term.op}{_quoted(value)}" for term in where for value in term.values
    ]
    return " ".join(words)


def _quoted(value: str) -> str:
    return value if re.fullmatch(r"[\w./*@+:~-]+", value) else shlex.quote(value)


def _term(word: str) -> Term:
    found = _WORD.match(word)
    if found is None:
        negated = word.startswith("-") and len(word) > 1
        field, equals, value = word.removeprefix("-").partition("=")
        if equals and field in FIELDS:
            raise BadFilter(f"a filter is written with `:`: {field}:{value:.80}")
        return Term("key_prefix", ":", (word[1:] if negated else word,), negated)
    sign, field, op, value = found.groups()
    return _checked(Term(field, op, (value,), bool(sign)))  # type: ignore[arg-type]


def _checked(term: Term) -> Term:
    field = term.field
    if field not in FIELDS and not (field.startswith(TAG) and len(field) > len(TAG)):
        near = difflib.get_close_matches(field[:200], FIELDS, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise BadFilter(f"no filter is named {field!r:.80}{meant} (there are: {', '.join(FIELDS)}, tag.NAME)")
    (value,) = term.values
    if field in TIMES:
        if term.op == ":":
            text = f"{field}<2026-11-01 or {field}>2026-11-01T09:00Z"
            raise BadFilter(f"{field} takes a bound: {text}; as a parameter of a URL {field}.lt= or {field}.gt=")
        time_of(value, field)
    elif term.op != ":" and not field.startswith(TAG):
        raise BadFilter(f"{field} is compared with `:`; `<` and `>` are for times and tags")
    if field == "status" and not any(fnmatchcase(status, value) for status in Status):
        near = difflib.get_close_matches(value[:80], list(Status), n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise BadFilter(f"no status is {value!r:.80}{meant} (there are: {', '.join(Status)})")
    if field in FAMILY and not NUMBERED.match(value) and not _NAMED.match(value):
        raise BadFilter(f"{field} is the name or the number of an instance, found {value!r:.80}")
    if not value and not field.startswith(TAG):
        raise BadFilter(f"{field} has no value")
    return term


def time_of(text: str, what: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadFilter(f"{what} is a time such as 2026-11-01 or 2026-11-01T09:00Z, found {text!r:.80}") from None
    return at_of(time if time.tzinfo is not None else time.replace(tzinfo=UTC))


def with_workflows(where: Where, nouns: Mapping[str, str]) -> Where:
    """The same terms with the names of workflows in place of dialects. `nouns` has the dialect of each workflow."""
    return tuple(_of_dialect(term, nouns) if term.field == DIALECT else term for term in where)


def _of_dialect(term: Term, nouns: Mapping[str, str]) -> Term:
    fitting = [name for name, noun in nouns.items() if any(fnmatchcase(noun, value) for value in term.values)]
    return term._replace(field="workflow", values=tuple(fitting))


def with_statuses(where: Where) -> Where:
    """The same terms, and the statuses that they imply."""
    implied = [
        Term("status", ":", _IMPLIED[term.field]) for term in where if term.field in _IMPLIED and not term.negated
    ]
    return (*where, *implied)


# ---- what an index answers -----------------------------------------------------------------------------------

_INDEXED: Final = ("workflow", "status", "version", "key", "key_prefix", "parent", "root")


def filters(where: Where, limit: int, by_change: bool = False) -> list[Filter]:
    """Filters whose lists together have every instance that fits: one for each choice of values."""
    choices: dict[str, list[Any]] = {}
    fixed: dict[str, Any] = {}
    ranges: dict[str, tuple[TextSpan, ...]] = {}
    for term in where:
        if term.field in TIMES and term.field != "changed" and not term.negated:
            low, high = fixed.get(term.field, (0, 2**63 - 1))
            bound = time_of(term.values[0], term.field)
            fixed[term.field] = (max(low, bound + SHOWN), high) if term.op == ">" else (low, min(high, bound))
        elif term.op != ":" and not term.negated and term.field.startswith(TAG):
            name, spans = term.field.removeprefix(TAG), _spans(term.op, term.values[0])
            ranges[name] = _common(ranges[name], spans) if name in ranges else spans
        elif not term.plain:
            continue
        elif term.field in _INDEXED or term.field.startswith(TAG):
            values = _indexed_values(term)
            known = choices.get(term.field, values)
            more = choices | {term.field: [value for value in values if value in known]}
            if prod(map(len, more.values())) <= BRANCHES_MAX:
                choices = more
    found = []
    for choice in product(*choices.values()):
        chosen = dict(zip(choices, choice, strict=True))
        tags = {name.removeprefix(TAG): chosen.pop(name) for name in choices if name.startswith(TAG)}
        found.append(Filter(**fixed, **chosen, tags=tags, ranges=ranges, by_change=by_change, limit=limit, kept=True))
    return found


def _indexed_values(term: Term) -> list[Any]:
    if term.field in FAMILY:
        return [int(value) for value in dict.fromkeys(term.values)]
    if term.field.startswith(TAG):
        return [*dict.fromkeys(reading for value in term.values for reading in readings(value))]
    return [*dict.fromkeys(term.values)]


TEXTS: Final = (("", TYPED), (" ", "\U0010ffff\U0010ffff"))
"""Tags that are texts: these are judged head by head, since digits among them are compared as numbers."""


def _spans(op: Op, value: str) -> tuple[TextSpan, ...]:
    """Tags that may be above, or below, a value: all texts, and what has the kind of the value."""
    typed = [reading for reading in readings(value) if reading.startswith(TYPED)]
    last = "\x7f"  # no kept tag has it, nor the sign before
    return TEXTS + tuple(
        (f"{each}\x01", f"{each[:2]}{last}") if op == ">" else (each[:2], each) for each in sorted(typed)
    )


def _common(these: tuple[TextSpan, ...], those: tuple[TextSpan, ...]) -> tuple[TextSpan, ...]:
    both = [(max(a, c), min(b, d)) for a, b in these for c, d in those]
    return tuple((low, high) for low, high in both if low < high)


# ---- what is judged head by head ------------------------------------------------------------------------------


def fits(where: Where, head: HeadRow) -> bool:
    return all(any(_holds(term, value, head) for value in term.values) != term.negated for term in where)


def _holds(term: Term, value: str, head: HeadRow) -> bool:
    field = term.field
    if field.startswith(TAG):
        found = tags_of(head).get(field.removeprefix(TAG))
        return found is not None and _compared(found, term.op, value)
    if field in TIMES:
        at = {"started": head.started_at, "changed": head.changed_at, "ended": head.ended_at}[field]
        bound = time_of(value, field)
        return at != 0 and (at < bound if term.op == "<" else at >= bound + SHOWN)
    return _JUDGES[field](head, value)


def _compared(found: str, op: Op, value: str) -> bool:
    """A tag as it is kept, with a word of a filter."""
    if op == ":":
        return fnmatchcase(_written(found), value) if "*" in value else found in readings(value)
    if found.startswith(TYPED):
        of_kind = [each for each in readings(value) if each[:2] == found[:2]]
        return any(found < each if op == "<" else found > each for each in of_kind)
    try:
        a, b = float(found), float(value)
    except ValueError:
        return found < value if op == "<" else found > value
    return a < b if op == "<" else a > b


def _written(found: str) -> str:
    value = told(found)
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _text(attribute: str) -> Callable[[HeadRow, str], bool]:
    def judge(head: HeadRow, value: str) -> bool:
        found: str = getattr(head, attribute)
        return fnmatchcase(found, value) if "*" in value else found == value

    return judge


def _waits_for(head: HeadRow, value: str) -> bool:
    """By the kind (`message`), by what is waited for (`decision`), or by both."""
    open = head.reason.split(", ") if head.status == "waiting" else ()
    return any(fnmatchcase(each, f"*{value}") or fnmatchcase(each, f"{value} *") for each in open)


def _queue(head: HeadRow, value: str) -> bool:
    return head.status == "waiting" and any(fnmatchcase(each, f"queue {value}") for each in head.reason.split(", "))


def _error_type(head: HeadRow, value: str) -> bool:
    return head.status in ("stuck", "failed") and fnmatchcase(head.reason.partition(" at ")[0], value)


def _error_at(head: HeadRow, value: str) -> bool:
    return head.status in ("stuck", "failed") and fnmatchcase(head.reason.partition(" at ")[2], value)


_JUDGES: Final[dict[str, Callable[[HeadRow, str], bool]]] = {
    "workflow": _text("workflow"),
    "version": _text("version"),
    "status": _text("status"),
    "key": _text("key"),
    "key_prefix": lambda head, value: head.key.startswith(value),
    "parent": lambda head, value: head.parent == int(value),
    "root": lambda head, value: head.root == int(value),
    "waits_for": _waits_for,
    "queue": _queue,
    "error_type": _error_type,
    "error_at": _error_at,
}
