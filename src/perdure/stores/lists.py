"""Lists of instances: which index a filter is read by, the same for every database that speaks SQL.

A list is read in the order of its places, the newest first, from the narrowest index of its filter:

    tag, parent, root    each has an index in that order
    workflow, status     so have they together; a list of one of them merges what the index has of each of the other
    key, key_prefix      by name, in no such order: only where there are few, which are sorted
    ranges of a tag      by name and text: the same
    nothing              all instances, by start

A list in the order of the last changes has an index for each workflow and status: it merges them.

What the index does not answer is a condition on each head. As long as few heads pass such conditions many must be read,
so this is done in chunks, of which the first is small: where many heads pass, it is enough. A page ends after
`SECONDS_MAX` or `LOOKED_MAX` heads, however few were found; who wants more asks again (views/lists.py).

`listing` is a generator: it asks questions, and is sent the rows of the answers. So one store can ask in a thread and
another over a network. How a question is put into SQL is up to `sql_of`, and to `queries.sql` of the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

from perdure.kernel.batch import HeadRow
from perdure.kernel.limits import KEY_MAX
from perdure.kernel.retention import FORGOTTEN
from perdure.kernel.rows import tags_of
from perdure.kernel.status import Status
from perdure.kernel.tags import indexed
from perdure.ports.store import CHANGE_ORDERED, Filter, ListPlace, Page, TextSpan, change_of, place_of

SMALL: Final = 1000
"""So many heads are read and sorted in less time than it takes to choose among indexes."""

CHUNK: Final = 500
CHUNK_MAX: Final = 5000
LOOKED_MAX: Final = 100_000
SECONDS_MAX: Final = 0.05

Conditions = list[tuple[str, tuple[Any, ...]]]
"""Parts of a WHERE, with `{}` for each value."""

LAST: Final = "\U0010ffff"

TAGGED: Final = (
    "(SELECT count(*) FROM {table} AS other WHERE other.name = {name} AND other.value = {value} "
    "AND other.started_at = instances.started_at AND other.instance = id) = 1"
)
"""A look at one row for each head. EXISTS would let PostgreSQL begin with all rows of the other tag."""


class Segment(NamedTuple):
    """A part of the index `by`, in the order of places unless it is small.

    The index answers the fields `answers` of the filter: they need no conditions.
    """

    by: str
    conditions: Conditions
    answers: frozenset[str]
    ranged: bool = False  # by a span of texts

    @property
    def tagged(self) -> bool:
        return self.by == TAGS


KEPT: Final = (f"reason <> '{FORGOTTEN}'", ())
"""It narrows nothing: most of what is listed is kept, so no list is read in chunks for it."""

ORDERED: Final = (f"status IN {CHANGE_ORDERED}", ())
"""The condition of the index of changes, word for word: else it could not be used."""

TAGS: Final = "tags"
BY_START: Final = "instances_by_start"
BY_STANDING: Final = "instances_by_standing"
BY_CHANGE: Final = "instances_by_change"
BY_NAME: Final = "instances_by_name"
BY_PARENT: Final = "instances_by_parent"
BY_ROOT: Final = "instances_by_root"
BY_ID: Final = ""


class ListQuestion(NamedTuple):
    """`statement` is heads (the heads), place (of the head at `limit`, the first is 0), named (the same in the order of
    names, for its number alone), or workflows (all names)."""

    statement: str
    segment: Segment
    conditions: Conditions
    limit: int = 0
    oldest: bool = False
    by_change: bool = False


Asking = Generator[ListQuestion, list[Any], Page]


def listing(filter: Filter, *, bounded: bool) -> Asking:
    """The heads that a filter wants. `bounded`: stop when too much was read."""
    began = time.monotonic()
    segments, small = yield from _narrowest(filter)
    rest = [part for field, parts in _conditions(filter).items() if field not in segments[0].answers for part in parts]
    kept: Conditions = [KEPT] if filter.kept else []
    found: list[HeadRow] = []
    place, looked, size = filter.before, 0, CHUNK
    while True:
        chunked = rest or filter.ranges
        end = None if small or not chunked else (yield from _end_of_chunk(segments, filter, place, size))
        chunk: list[HeadRow] = []
        for segment in segments:
            bounds = _bounds(segment, filter, place, end)
            rows = yield ListQuestion(
                "heads",
                segment,
                [*segment.conditions, *rest, *kept, *bounds],
                CHUNK_MAX if filter.ranges else filter.limit - len(found),
                filter.oldest,
                filter.by_change,
            )
            chunk += [head for row in rows if in_ranges(filter, head := HeadRow(*row))]
        found += sorted(chunk, key=lambda head: place_in(filter, head), reverse=not filter.oldest)[
            : filter.limit - len(found)
        ]
        if len(found) == filter.limit:
            return Page(found, place_in(filter, found[-1]) if found else None)
        if end is None:
            return Page(found)
        place, looked, size = end, looked + size, min(2 * size, CHUNK_MAX)
        if bounded and (looked >= LOOKED_MAX or time.monotonic() - began > SECONDS_MAX):
            return Page(found, place, partial=True)


def _narrowest(filter: Filter) -> Generator[ListQuestion, list[Any], tuple[list[Segment], bool]]:
    """The part of an index to read, and whether it is small."""
    workflows = [filter.workflow]
    if not filter.workflow and (filter.key or filter.key_prefix or filter.status or filter.by_change):
        names = yield ListQuestion("workflows", Segment(BY_ID, [], frozenset()), [])
        workflows = [name for (name,) in names if name is not None]
    if filter.key:
        return _named(filter, workflows) or [_none()], True
    ordered = [*_ordered(filter)]
    if len(ordered) == 1 and not filter.by_change and _conditions(filter).keys() <= ordered[0][0].answers:
        return ordered[0], False
    narrow = [_ranged(name, spans) for name, spans in filter.ranges.items()]
    for segments in [*([_named(filter, workflows)] if filter.key_prefix else []), *narrow, *ordered]:
        if (yield from _is_small(segments)):
            return segments or [_none()], True
    if filter.by_change:
        statuses = [filter.status] if filter.status else [*CHANGE_ORDERED]
        return [_changed(workflow, status) for workflow in workflows for status in statuses] or [_none()], False
    if ordered:
        return ordered[0], False
    if filter.workflow or filter.status:
        statuses = [filter.status] if filter.status else [status.value for status in Status]
        return [_standing(workflow, status) for workflow in workflows for status in statuses] or [_none()], False
    return [Segment(BY_START, [], frozenset())], False


def _is_small(segments: list[Segment]) -> Generator[ListQuestion, list[Any], bool]:
    for segment in segments:
        statement = "named" if segment.by == BY_NAME else "place"  # in the order of the index: else all are sorted
        if (yield ListQuestion(statement, segment, segment.conditions, max(1, SMALL // len(segments)))):
            return False
    return True


def _end_of_chunk(
    segments: list[Segment], filter: Filter, place: ListPlace | None, size: int
) -> Generator[ListQuestion, list[Any], ListPlace | None]:
    """The place at which so many heads were read in one of the segments; None: it is the end of all."""
    ends: list[ListPlace] = []
    for segment in segments:
        bounds = _bounds(segment, filter, place, None)
        many = [*segment.conditions, *bounds]
        asked = ListQuestion("place", segment, many, size - 1, filter.oldest, filter.by_change)
        ends += [tuple(row) for row in (yield asked)]
    return min(ends, default=None) if filter.oldest else max(ends, default=None)


# ---- the indexes ---------------------------------------------------------------------------------------------------


def _ordered(filter: Filter) -> Iterable[list[Segment]]:
    """Parts of indexes that are in the order of places, the one that is likely to be narrow first."""
    if filter.parent:
        yield [Segment(BY_PARENT, [("parent = {} AND parent <> 0", (filter.parent,))], frozenset({"parent"}))]
    if filter.root:
        answers = frozenset({"root"})
        family = Segment(BY_ROOT, [("root = {} AND parent <> 0", (filter.root,))], answers)
        yield [Segment(BY_ID, [("id = {}", (filter.root,))], answers), family]
    for name, value in filter.tags.items():
        tag = [("tags.name = {} AND tags.value = {}", indexed(name, value))]
        yield [Segment(TAGS, [*tag], frozenset({_tag(name)}))]


def _standing(workflow: str, status: str) -> Segment:
    both = [("workflow = {} AND status = {}", (workflow, status))]
    return Segment(BY_STANDING, [*both], frozenset({"workflow", "status"}))


def _changed(workflow: str, status: str) -> Segment:
    both = [("workflow = {} AND status = {}", (workflow, status)), ORDERED]
    return Segment(BY_CHANGE, [*both], frozenset({"workflow", "status", "by_change"}))


def _ranged(name: str, spans: tuple[TextSpan, ...]) -> list[Segment]:
    """The rows of a tag, by its text: what the spans mean is judged again by the head, which has the whole text."""
    condition = "tags.name = {} AND tags.value >= {} AND tags.value < {}"
    return [Segment(TAGS, [(condition, (indexed(name, "")[0], *span))], frozenset(), True) for span in spans]


def _named(filter: Filter, workflows: list[str]) -> list[Segment]:
    key = _conditions(filter)["key" if filter.key else "key_prefix"]
    answers = frozenset({"workflow", "key" if filter.key else "key_prefix"})
    return [Segment(BY_NAME, [("workflow = {}", (workflow,)), *key], answers) for workflow in workflows]


def _none() -> Segment:
    """There are no workflows."""
    return Segment(BY_ID, [("id = {}", (0,))], frozenset())


# ---- the conditions ------------------------------------------------------------------------------------------------


def _conditions(filter: Filter) -> dict[str, Conditions]:
    """By the field of the filter. Places and starts are bounds of the index: see `_bounds`."""
    found: dict[str, Conditions] = {}
    for field in ("workflow", "status", "key", "version"):
        if value := getattr(filter, field):
            found[field] = [(f"{field} = {{}}", (value,))]
    if filter.key_prefix:
        found["key_prefix"] = [("key >= {} AND key < {}", (filter.key_prefix, after_prefix(filter.key_prefix)))]
    if filter.parent:
        found["parent"] = [("parent = {}", (filter.parent,))]
    if filter.root:
        found["root"] = [("root = {}", (filter.root,))]
    if filter.ended is not None:
        found["ended"] = [("ended_at <> 0 AND ended_at >= {} AND ended_at < {}", filter.ended)]
    if filter.by_change:
        found["by_change"] = [ORDERED]
    for name, value in filter.tags.items():
        found[_tag(name)] = [(TAGGED, indexed(name, value))]
    return found


def _tag(name: str) -> str:
    return f"tag {name}"


def _bounds(segment: Segment, filter: Filter, before: ListPlace | None, end: ListPlace | None) -> Conditions:
    start, id = ("tags.started_at", "tags.instance") if segment.tagged else ("started_at", "id")
    at, number = ("changed_at", "id") if filter.by_change else (start, id)
    bounds: Conditions = []
    beyond, until = (">", "<=") if filter.oldest else ("<", ">=")
    if before is not None:
        bounds.append((f"({at}, {number}) {beyond} ({{}}, {{}})", before))
    if end is not None:
        bounds.append((f"({at}, {number}) {until} ({{}}, {{}})", end))
    if filter.started is not None:
        bounds.append((f"{start} >= {{}} AND {start} < {{}}", filter.started))
    return bounds


def after_prefix(prefix: str) -> str:
    """A text that comes after all keys that begin with a prefix."""
    shorter = prefix.rstrip(LAST)
    if not shorter:
        return LAST * (KEY_MAX + 1)
    next = ord(shorter[-1]) + 1
    return shorter[:-1] + chr(0xE000 if next == 0xD800 else next)  # between them are no characters


TEMPLATES: Final = {
    "heads": ("list_heads", "list_tagged"),
    "place": ("list_place", "list_tagged_place"),
    "named": ("list_named", ""),
}
"""The statements of `queries.sql` for a question, without and with a tag."""


def sql_of(
    question: ListQuestion, statements: Any, placeholder: Callable[[int], str], table: str = "tags"
) -> tuple[str, list[Any]]:
    """A question as the statement of a store, and its values; the last one is the limit. `table` has the tags."""
    if question.statement == "workflows":
        return statements.workflow_names, []
    template = getattr(statements, TEMPLATES[question.statement][question.segment.tagged])
    values: list[Any] = []
    parts: list[str] = []
    for text, given in question.conditions:
        signs = [placeholder(len(values) + number) for number in range(len(given))]
        if text == TAGGED:
            parts.append(text.format(table=table, name=signs[0], value=signs[1]))
        else:
            parts.append(text.format(*signs))
        values += given
    by = question.segment.by and f"INDEXED BY {question.segment.by}"
    limit = placeholder(len(values))
    order = "ASC" if question.oldest else "DESC"
    tagged = question.segment.tagged
    start, id = ("tags.started_at", "tags.instance") if tagged else ("started_at", "id")
    at, number = ("changed_at", "id") if question.by_change else (start, id)
    if question.segment.ranged and question.statement == "place":
        at, number = "tags.value", "tags.started_at"  # as the index has them: it is only counted
    conditions = " AND ".join(parts) or "true"
    sql = template.format(conditions=conditions, by=by, order=order, limit=limit, at=at, number=number)
    return sql, [*values, question.limit]


def _is_beyond(filter: Filter, place: ListPlace, before: ListPlace) -> bool:
    return place > before if filter.oldest else place < before


def matches(filter: Filter, head: HeadRow) -> bool:
    """The same, of one head: for a store that reads all of them."""
    return (
        (not filter.workflow or head.workflow == filter.workflow)
        and (not filter.status or head.status == filter.status)
        and (not filter.key or head.key == filter.key)
        and (not filter.key_prefix or head.key.startswith(filter.key_prefix))
        and (not filter.version or head.version == filter.version)
        and (not filter.parent or head.parent == filter.parent)
        and (not filter.root or head.root == filter.root)
        and (filter.before is None or _is_beyond(filter, place_in(filter, head), filter.before))
        and (filter.started is None or filter.started[0] <= head.started_at < filter.started[1])
        and (filter.ended is None or (head.ended_at != 0 and filter.ended[0] <= head.ended_at < filter.ended[1]))
        and (not filter.kept or head.reason != FORGOTTEN)
        and (not filter.tags or filter.tags.items() <= tags_of(head).items())
        and (not filter.by_change or head.status in CHANGE_ORDERED)
        and in_ranges(filter, head)
    )


def place_in(filter: Filter, head: HeadRow) -> ListPlace:
    return change_of(head) if filter.by_change else place_of(head)


def in_ranges(filter: Filter, head: HeadRow) -> bool:
    """Whether each tag of `ranges` is in one of its spans."""
    if not filter.ranges:
        return True
    tags = tags_of(head)
    return all(
        name in tags and any(low <= tags[name] < high for low, high in spans) for name, spans in filter.ranges.items()
    )
