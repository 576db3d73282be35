"""Lists of tasks: one statement for a page, the same for every database that speaks SQL.

Each name of the filter is one part of the table of candidates, which has an index for each order. A part gives at most
a page of rows, in order; the pages of all parts are merged. So a page costs what it has, not what there is.

A list by several conditions (a role and a name, a label and a due date in another order) has no index for all of them.
If few tasks fulfil one of the conditions, the page is read from these tasks, else from the part as always.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from perdure.kernel.task import (
    HELD,
    RANK_MAX,
    TaskRow,
    TaskRows,
    by_label,
    by_name,
    by_reference,
    by_workflow,
    pair_of,
)
from perdure.ports.store import TaskFilter, TaskOrder

COLUMNS: Final = ", ".join(f"t.{name}" for name in TaskRow._fields)

CANDIDATE_KEYS: Final[dict[TaskOrder, str]] = {"created": "c.created_at", "due": "c.due", "priority": "c.rank"}
TASK_KEYS: Final[dict[TaskOrder, str]] = {
    "created": "t.created_at",
    "due": "t.due",
    "priority": f"({RANK_MAX} - t.priority)",
}

FEW: Final = 1000
"""So many rows are read at most to find a page among them."""

Part = tuple[str, int]
"""A name, and the column `held` (`kernel/task.py`)."""

Placeholder = Callable[[int], str]


class Statement:
    """SQL with the values that belong to its placeholders."""

    def __init__(self, placeholder: Placeholder) -> None:
        self._placeholder = placeholder
        self.values: list[Any] = []

    def put(self, value: Any) -> str:
        self.values.append(value)
        return self._placeholder(len(self.values) - 1)


def page(filter: TaskFilter, placeholder: Placeholder, schema: str = "", find: str = "instr") -> tuple[str, list[Any]]:
    """The statement that gives a page, in no order: see `merged`. `find` is the function that looks for a text."""
    made = Statement(placeholder)
    arms = [arm for part in _parts(filter) for arm in _limited(part, filter, made, schema, find)]
    return " UNION ALL ".join(f"SELECT * FROM ({arm}) AS part" for arm in arms), made.values


def _limited(part: Part, filter: TaskFilter, made: Statement, schema: str, find: str) -> list[str]:
    """A page of one part. Where there are several ways to read it, all: the limit of all but one is 0."""
    rare = _rare(part, filter)
    if not rare:
        return [_arm(part, filter, made, COLUMNS, schema, find, limited=True)]
    ways = []
    for number, name in enumerate([*rare, ""]):
        inner = _arm(part, filter, made, COLUMNS, schema, find, limited=True, rare=name)
        tried = [f"{_counted(each, part, filter, made, schema)} = {FEW}" for each in rare[:number]]
        if name:
            tried.append(f"{_counted(name, part, filter, made, schema)} < {FEW}")
        limit = f"CASE WHEN {' AND '.join(tried)} THEN {int(filter.limit)} ELSE 0 END"
        ways.append(f"SELECT * FROM ({inner}) AS way LIMIT {limit}")
    return ways


def _counted(rare: str, part: Part, filter: TaskFilter, made: Statement, schema: str) -> str:
    """How many tasks one of the other ways has to read, up to `FEW`."""
    name = made.put(part[0] if rare == BY_DUE else rare)
    due = f" AND c.due < {made.put(filter.due_before)}" if rare == BY_DUE else ""
    read = f"SELECT 1 FROM {schema}task_candidates AS c WHERE c.who = {name} AND c.held = {part[1]}{due}"
    return f"(SELECT count(*) FROM ({read} LIMIT {FEW}) AS few)"


def count(filter: TaskFilter, placeholder: Placeholder, schema: str = "", find: str = "instr") -> tuple[str, list[Any]]:
    made = Statement(placeholder)
    arms = [_arm(part, filter, made, "t.id", schema, find, limited=False) for part in _parts(filter)]
    return f"SELECT count(*) FROM ({' UNION '.join(arms)}) AS found", made.values


def _parts(filter: TaskFilter) -> list[Part]:
    if filter.workflow and filter.key:
        return [OWNED]
    every = next(iter(_names(filter)), "*")
    named = [
        (every if who == "*" else who, held)
        for who, only in filter.who
        for held in ((0, 1) if only is None else (int(only),))
    ]
    return [*named, *((every, HELD[status]) for status in filter.statuses)] or [NONE]


def _names(filter: TaskFilter) -> list[str]:
    """The names of the index that each task of a filter has, the one that fewest have first, as a guess."""
    found = [by_reference(filter.reference)] if filter.reference else []
    found += [by_label(*filter.label)] if filter.label is not None else []
    found += [by_name(filter.name)] if filter.name else []
    return found + ([by_workflow(filter.workflow)] if filter.workflow else [])


BY_DUE: Final = "due"


def _rare(part: Part, filter: TaskFilter) -> list[str]:
    """What else a page of a part may be read from, if it has few rows: other names, or the tasks that are due."""
    if part == OWNED:
        return []
    due = [BY_DUE] if filter.due_before is not None and filter.order != "due" else []
    return [name for name in _names(filter) if name != part[0]] + due


NONE: Final[Part] = ("", 0)
OWNED: Final[Part] = ("", -1)
"""The tasks of one owner are few: they have an index of their own."""


def _arm(  # noqa: PLR0917
    part: Part, filter: TaskFilter, made: Statement, columns: str, schema: str, find: str, limited: bool, rare: str = ""
) -> str:
    """The rows of one part. `rare`: they are read from another place of the index, see `_rare`."""
    name, held = part
    if part == OWNED:
        origin, keys = f"{schema}tasks AS t", TASK_KEYS
        conditions = [_of_owner(filter, made, schema)]
    else:
        origin, keys = f"{schema}task_candidates AS c JOIN {schema}tasks AS t ON t.id = c.task", CANDIDATE_KEYS
        named = rare if rare not in ("", BY_DUE) else name
        conditions = [f"c.who = {made.put(named)} AND c.held = {held}"]
        if named != name:
            conditions.append(_has(name, made, schema))
        if filter.without:
            conditions.append(f"NOT {_has(filter.without, made, schema)}")
    for field in ("name", "workflow", "key", "reference"):
        if value := getattr(filter, field):
            conditions.append(f"t.{field} = {made.put(value)}")
    if filter.label is not None:
        begins = " OR ".join(f"{find}(t.labels, {made.put(text)}) > 0" for text in _label_texts(filter.label))
        conditions.append(f"({begins})")
    if filter.due_before is not None:
        plus = "" if filter.order == "due" or rare == BY_DUE else "+"  # with it, not the index by due dates
        conditions.append(f"{plus}{keys['due']} < {made.put(filter.due_before)}")
    key, id = keys[filter.order], "t.id" if part == OWNED else "c.task"
    if rare == BY_DUE:
        key = f"+{key}"  # not the index by this key
    if limited and filter.after is not None:
        after, last = filter.after
        conditions.append(f"({key}, {id}) > ({made.put(after)}, {made.put(last)})")
    end = f" ORDER BY {key}, {id} LIMIT {int(filter.limit)}" if limited else ""
    return f"SELECT {columns} FROM {origin} WHERE {' AND '.join(conditions)}{end}"


def _of_owner(filter: TaskFilter, made: Statement, schema: str) -> str:
    """The condition for whether a task of one owner is wanted."""
    found = [f"t.status = {made.put(status)}" for status in filter.statuses]
    for who, only in filter.who:
        named = _has(who, made, schema, "0, 1" if only is None else str(int(only)))
        without = f" AND NOT {_has(filter.without, made, schema)}" if filter.without else ""
        found.append(f"({named}{without})")
    return f"({' OR '.join(found) or 'false'})"


def _has(who: str, made: Statement, schema: str, held: str = "") -> str:
    named = f"x.task = t.id AND x.who = {made.put(who)}{f' AND x.held IN ({held})' if held else ''}"
    return f"EXISTS (SELECT 1 FROM {schema}task_candidates AS x WHERE {named})"


def _label_texts(label: tuple[str, str]) -> tuple[str, str]:
    """How a label stands in the column, which is JSON: first, or after another one."""
    pair = pair_of(*label)
    return "{" + pair, "," + pair


def merged(rows: Iterable[TaskRow], filter: TaskFilter) -> list[TaskRow]:
    """The page: each task once, in order."""
    found = {row.id: row for row in rows}
    return sorted(found.values(), key=lambda row: place_in(filter.order, row))[: filter.limit]


def place_in(order: TaskOrder, row: TaskRow) -> tuple[int, int]:
    match order:
        case "created":
            return row.created_at, row.id
        case "due":
            return row.due, row.id
        case "priority":
            return RANK_MAX - row.priority, row.id


def matches(filter: TaskFilter, task: TaskRows) -> bool:
    """The same, of one task: for a store that reads all of them."""
    row = task.row
    names = {each.who: bool(each.held) for each in task.candidates if row.status not in HELD}
    found = any(who in names and only in (None, names[who]) for who, only in filter.who)
    return (
        (row.status in filter.statuses or (found and filter.without not in names))
        and all(not (wanted := getattr(filter, each)) or wanted == getattr(row, each) for each in FIELDS)
        and (filter.label is None or any(text in row.labels for text in _label_texts(filter.label)))
        and (filter.due_before is None or row.due < filter.due_before)
        and (filter.after is None or place_in(filter.order, row) > filter.after)
    )


FIELDS: Final = ("name", "workflow", "key", "reference")
