"""`perdure diff`: where two histories part."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from perdure.runtime.client import Client
from perdure.views.compare import Difference, Fact, Story, differences
from perdure.views.find import find_started

from ..console import Console
from ..console import command as define
from ..exits import Exit, Stopped
from ..text import first_line, joined, style, to_json

WIDTH: Final = 60
Told = tuple[Difference, str | None, str | None]
"""A difference, and what to say of either side; None: it never came there."""


@define("diff")
@click.argument("a")
@click.argument("b")
@click.option("--values", is_flag=True, help="Whole values. Default: long ones are cut to where they differ.")
def command(console: Console, a: str, b: str, values: bool) -> None:
    """A and B are instances of one workflow. What happened is compared by location and attempt, not by entry number
    or time: values, errors, messages, what only one of them did, how they ended. Exit code 1 if there is a difference.
    """

    async def read(client: Client) -> tuple[Story, Story]:
        return await _story(client, a), await _story(client, b)

    one, other = console.ask(read)
    if one.state.address.workflow != other.state.address.workflow:
        raise Stopped(f"{one.name} and {other.name} are instances of two workflows: they have no place in common")
    found = differences(one, other)
    told = [(each, _told(each.a), _told(each.b)) for each in found]
    shown = told if values else [(each, *_cut(*texts)) for each, *texts in told]
    console.answer(_document(one, other, found), _text(one, other, shown))
    if shown != told and not console.json:
        console.note("long values are cut to where they differ: --values shows them whole")
    sys.exit(Exit.FAILED if found else Exit.OK)


async def _story(client: Client, text: str) -> Story:
    address, head = await find_started(client, text)
    return Story(address, await client.queries.history(head.id))


def _document(a: Story, b: Story, found: list[Difference]) -> dict[str, Any]:
    return {
        "a": _about(a),
        "b": _about(b),
        "same": not found,
        "differences": [
            {
                **each.place._asdict(),
                "a": None if each.a is None else each.a.document(),
                "b": None if each.b is None else each.b.document(),
            }
            for each in found
        ],
    }


def _about(story: Story) -> dict[str, Any]:
    return {"id": story.name, "status": story.state.status.value, "entries": story.state.version}


def _text(a: Story, b: Story, found: list[Told]) -> str:
    if not found:
        return f"{a.name} and {b.name} have the same history, but for times."
    first = found[0][0]
    lines = [f"{sign} {each.name}: {each.state.version} entries" for sign, each in (("---", a), ("+++", b))]
    lines.append(f"They part at {first.place}: {_where(a, first.a)}, {_where(b, first.b)}.")
    for each, *texts in found:
        for sign, colour, text in zip("-+", ("red", "green"), texts, strict=True):
            if text is not None:
                lines.append(style(f"{sign} {each.place}{': ' if text else ''}{text}", fg=colour))
    return joined(lines)


def _where(story: Story, fact: Fact | None) -> str:
    return f"{story.name} never came there" if fact is None else f"entry {fact.entry} of {story.name}"


def _told(fact: Fact | None) -> str | None:
    if fact is None:
        return None
    value = "" if fact.value is None else to_json(fact.document()["value"])
    error = "" if fact.error is None else first_line(str(fact.error))
    return " ".join(filter(None, (fact.status, value, error)))


def _cut(a: str | None, b: str | None) -> tuple[str | None, str | None]:
    """Short enough for a line, and still with what is different in them."""
    if max(len(a or ""), len(b or "")) <= WIDTH:
        return a, b
    start = 0
    if a is not None and b is not None:
        same = next((n for n, signs in enumerate(zip(a, b, strict=False)) if signs[0] != signs[1]), min(len(a), len(b)))
        start = max(0, same - WIDTH // 3)
    return _window(a, start), _window(b, start)


def _window(text: str | None, start: int) -> str | None:
    if text is None:
        return None
    before = "…" if start else ""
    after = "…" if len(text) > start + WIDTH else ""
    return f"{before}{text[start : start + WIDTH]}{after}"
