"""Which heads a filter wants, in SQL. Stores differ in their placeholders, and in how they look into tags."""

from collections.abc import Callable

from perdure.ports.store import Filter


def conditions(
    filter: Filter, has_tag: Callable[[str, str], tuple[str, str]], placeholder: Callable[[int], str]
) -> tuple[str, list[str | int]]:
    """The WHERE, and its values: only what the filter asks for, so that the database can choose an index.

    `has_tag` gives the condition of a tag, with `{}` for its value; `placeholder` what stands for the n-th value.
    """
    parts: list[tuple[str, str | int]] = []
    if filter.workflow:
        parts.append(("workflow = {}", filter.workflow))
    if filter.key:
        parts.append(("key = {}", filter.key))
    if filter.status:
        parts.append(("status = {}", filter.status))
    if filter.parent:
        parts.append(("parent = {} AND parent <> 0", filter.parent))
    if filter.before:
        parts.append(("id < {}", filter.before))
    parts += [has_tag(name, value) for name, value in filter.tags.items()]
    sql = " AND ".join(text.format(placeholder(number)) for number, (text, _) in enumerate(parts))
    return sql or "true", [value for _, value in parts]
