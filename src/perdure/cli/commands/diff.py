"""`perdure diff`: where two histories part."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from perdure.runtime.client import Client

from ..compare import Difference, Fact, Story, differences
from ..console import Console
from ..console import command as define
from ..exits import Exit, Stopped
from ..find import find_started
from ..text import first_line, to_json

WIDTH: Final = 60


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
    console.answer(_document(one, other, found), _text(one, other, found, None if values else WIDTH))
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


def _text(a: Story, b: Story, found: list[Difference], width: int | None) -> str:
    if not found:
        return f"{a.name} and {b.name} have the same history, but for times."
    lines = [f"{sign} {each.name}: {each.state.version} entries" for sign, each in (("---", a), ("+++", b))]
    lines.append(f"They part at {found[0].place}: {_where(a, found[0].a)}, {_where(b, found[0].b)}.")
    cut = False
    for each in found:
        texts = [None if fact is None else _told(fact) for fact in (each.a, each.b)]
        shown = _cut(texts, width)
        cut = cut or shown != texts
        for sign, colour, text in (("-", "red", shown[0]), ("+", "green", shown[1])):
            if text is not None:
                lines.append(click.style(f"{sign} {each.place}{': ' if text else ''}{text}", fg=colour))
    if cut:
        lines.append("Long values are cut to where they differ; --values shows them whole.")
    return "\n".join(lines)


def _where(story: Story, fact: Fact | None) -> str:
    return f"{story.name} never came there" if fact is None else f"entry {fact.entry} of {story.name}"


def _told(fact: Fact) -> str:
    document = fact.document()
    value = "" if fact.value is None else to_json(document["value"])
    error = "" if fact.error is None else first_line(str(fact.error))
    return " ".join(filter(None, (fact.status, value, error)))


def _cut(texts: list[str | None], width: int | None) -> list[str | None]:
    """Short enough for a line, and still with what is different in them."""
    known = [text for text in texts if text is not None]
    if width is None or all(len(text) <= width for text in known):
        return texts
    same = next((n for n, signs in enumerate(zip(*known, strict=False)) if len(set(signs)) > 1), 0)
    start = max(0, same - width // 3) if len(known) > 1 else 0
    return [None if text is None else _window(text, start, width) for text in texts]


def _window(text: str, start: int, width: int) -> str:
    before = "…" if start else ""
    after = "…" if len(text) > start + width else ""
    return f"{before}{text[start : start + width]}{after}"
