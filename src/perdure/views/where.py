"""Which instances a list shows, as one text: `status:stuck tag.customer:c-7 started<2026-11-01 -workflow:probe*`.

A word is a field, `:` `<` or `>`, and a value; `-` before it says not. Words of one field with `:` mean "one of these";
all else must hold at once. A word without a field is the beginning of a key. `filters` are what an index can answer;
`fits` judges a head by all words. Both are pure. A dialect is first replaced by the names of its workflows.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, Final, Literal, NamedTuple

import msgspec

from perdure.errors import BadFilter
from perdure.kernel.batch import HeadRow
from perdure.kernel.moment import at_of
from perdure.kernel.status import Status
from perdure.ports.store import Filter

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
    "queue",
)
TIMES: Final = frozenset({"started", "changed", "ended"})
TAG: Final = "tag."
DIALECT: Final = "dialect"
BRANCHES_MAX: Final = 8
"""An index is asked at most so often for one list: what would need more is judged head by head."""

Op = Literal[":", "<", ">"]
_WORD: Final = re.compile(r"(-?)([a-z_]+|tag\.[^:<>\s]+)([:<>])(.*)\Z", re.S)
_tags = msgspec.json.Decoder(dict[str, str])


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


def parse(text: str) -> Where:
    """The terms of a text. Raises `BadFilter` with the place of what is wrong."""
    try:
        words = shlex.split(text, posix=True)
    except ValueError as error:
        raise BadFilter(f"the filter {text!r:.80} has an open quote: {error}") from None
    return joined([_term(word) for word in words])


def from_pairs(pairs: Mapping[str, Iterable[str]]) -> Where:
    """The terms of query parameters: `status=stuck`, `not.workflow=probe*`, `started.gt=2026-11-01`, `tag.a=b`."""
    terms: list[Term] = []
    for name, values in pairs.items():
        negated, field = name.startswith("not."), name.removeprefix("not.")
        op: Op = ":"
        for ending, sign in ((".gt", ">"), (".lt", "<")):
            if field.endswith(ending):
                field, op = field.removesuffix(ending), sign  # type: ignore[assignment]
        terms += [_checked(Term(field, op, (value,), negated)) for value in values]
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
        return Term("key_prefix", ":", (word[1:] if negated else word,), negated)
    sign, field, op, value = found.groups()
    return _checked(Term(field, op, (value,), bool(sign)))  # type: ignore[arg-type]


def _checked(term: Term) -> Term:
    field = term.field
    if field not in FIELDS and not (field.startswith(TAG) and len(field) > len(TAG)):
        near = difflib.get_close_matches(field, FIELDS, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise BadFilter(f"no filter is named {field!r:.80}{meant} (there are: {', '.join(FIELDS)}, tag.NAME)")
    (value,) = term.values
    if field in TIMES:
        if term.op == ":":
            raise BadFilter(f"{field} takes a bound: {field}<2026-11-01 or {field}>2026-11-01T09:00Z")
        time_of(value, field)
    elif term.op != ":" and not field.startswith(TAG):
        raise BadFilter(f"{field} is compared with `:`; `<` and `>` are for times and tags")
    if field == "status" and not any(fnmatchcase(status, value) for status in Status):
        raise BadFilter(f"no status is {value!r:.80} (there are: {', '.join(Status)})")
    if field in ("parent", "root") and not (value.isascii() and value.isdigit() and len(value) < 20):
        raise BadFilter(f"{field} is the number of an instance, found {value!r:.80}")
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


# ---- what an index answers -----------------------------------------------------------------------------------

_INDEXED: Final = ("workflow", "status", "version", "key", "key_prefix", "parent", "root")


def filters(where: Where, limit: int) -> list[Filter]:
    """Filters whose lists together have every instance that fits: one for each choice of values."""
    choices: list[list[tuple[str, Any]]] = []
    count = 1
    fixed: dict[str, Any] = {"tags": {}}
    for term in where:
        if term.field in TIMES and term.field != "changed" and not term.negated:
            low, high = fixed.get(term.field, (0, 2**63 - 1))
            bound = time_of(term.values[0], term.field)
            fixed[term.field] = (max(low, bound + 1), high) if term.op == ">" else (low, min(high, bound))
        elif not term.plain:
            continue
        elif term.field.startswith(TAG) and len(term.values) == 1:
            fixed["tags"][term.field.removeprefix(TAG)] = term.values[0]
        elif term.field in _INDEXED and count * len(term.values) <= BRANCHES_MAX:
            count *= len(term.values)
            number = term.field in ("parent", "root")
            choices.append([(term.field, int(value) if number else value) for value in dict.fromkeys(term.values)])
    return [Filter(**fixed, **dict(choice), limit=limit, kept=True) for choice in product(*choices)]


# ---- what is judged head by head ------------------------------------------------------------------------------


def fits(where: Where, head: HeadRow) -> bool:
    return all(any(_holds(term, value, head) for value in term.values) != term.negated for term in where)


def _holds(term: Term, value: str, head: HeadRow) -> bool:
    field = term.field
    if field.startswith(TAG):
        found = _tags.decode(head.tags).get(field.removeprefix(TAG)) if head.tags != "{}" else None
        return found is not None and _compared(found, term.op, value)
    if field in TIMES:
        at = {"started": head.started_at, "changed": head.changed_at, "ended": head.ended_at}[field]
        bound = time_of(value, field)
        return at != 0 and (at < bound if term.op == "<" else at > bound)
    return _JUDGES[field](head, value)


def _compared(found: str, op: Op, value: str) -> bool:
    if op == ":":
        return fnmatchcase(found, value) if "*" in value else found == value
    try:
        a, b = float(found), float(value)
    except ValueError:
        return found < value if op == "<" else found > value
    return a < b if op == "<" else a > b


def _text(attribute: str) -> Callable[[HeadRow, str], bool]:
    def judge(head: HeadRow, value: str) -> bool:
        found: str = getattr(head, attribute)
        return fnmatchcase(found, value) if "*" in value else found == value

    return judge


def _waits_for(kind: str) -> Callable[[HeadRow, str], bool]:
    def judge(head: HeadRow, value: str) -> bool:
        return head.status == "waiting" and any(fnmatchcase(each, f"{kind}{value}") for each in head.reason.split(", "))

    return judge


def _error_type(head: HeadRow, value: str) -> bool:
    return head.status in ("stuck", "failed") and fnmatchcase(head.reason.partition(" at ")[0], value)


_JUDGES: Final[dict[str, Callable[[HeadRow, str], bool]]] = {
    "workflow": _text("workflow"),
    "version": _text("version"),
    "status": _text("status"),
    "key": _text("key"),
    "key_prefix": lambda head, value: head.key.startswith(value),
    "parent": lambda head, value: head.parent == int(value),
    "root": lambda head, value: head.root == int(value),
    "waits_for": _waits_for("*"),
    "queue": _waits_for("queue "),
    "error_type": _error_type,
}
