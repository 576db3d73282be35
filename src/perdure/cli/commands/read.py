"""Commands that tell of instances: the verbs answer data, and here it becomes text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

import click
from msgspec import UNSET
from msgspec.structs import asdict

from perdure.codec.phrases import author_place
from perdure.codec.visible import visible_json
from perdure.kernel.status import Status
from perdure.ports.seen import Advice, Reason
from perdure.ports.store import ListOrder
from perdure.verbs.read import (
    DiffAnswer,
    DiffParams,
    DiffSide,
    ExportAnswer,
    ExportParams,
    HistoryAnswer,
    HistoryParams,
    ListAnswer,
    ListParams,
    ShowParams,
    WhyAnswer,
    WhyParams,
)
from perdure.views.compare import ShownDifference, ShownFact
from perdure.views.look import ListedInstance, ShownInstance, ShownMessage, shown_wait

from ..console import Console, define
from ..exits import Exit, Stopped
from ..given import read_tags
from ..live import open_line
from ..text import ago, first_line, joined, local, short, style, styled, table, to_json, told

# ---- ls ----------------------------------------------------------------------------------------------------


@define("ls")
@click.option(
    "--where",
    default="",
    metavar="FILTER",
    help="A filter, such as 'status:stuck started>2026-11-01 -workflow:probe*'.",
)
@click.option("--workflow", default="", metavar="NAME", help="Only instances of this workflow.")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only those.")
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only those with this tag, and each given one."
)
@click.option("--reference", default="", metavar="TEXT", help="Only those with this reference.")
@click.option("--parent", metavar="ID", help="Only those that this instance started.")
@click.option(
    "--order",
    type=click.Choice(get_args(ListOrder)),
    default="-started",
    show_default=True,
    help="The newest first, the oldest first, or the last changed first: of a status, stuck, failed or waiting.",
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@click.option("--before", type=click.IntRange(1), default=None, metavar="N", help="Go on from a page before.")
def ls(
    console: Console,
    *,
    where: str,
    workflow: str,
    status: str | None,
    tags: tuple[str, ...],
    reference: str,
    parent: str | None,
    order: ListOrder,
    limit: int,
    before: int | None,
) -> None:
    wanted = ListParams(workflow, status or "", read_tags(tags), parent, before or 0, limit, reference, order, where)
    answer: ListAnswer = console.call("ls", wanted)
    tell_page(console, "instances", answer.instances, answer.next_before, _table)


def tell_page(
    console: Console,
    what: str,
    shown: list[ListedInstance],
    next_before: int | None,
    table: Callable[[list[ListedInstance]], str],
) -> None:
    """A list that may be longer than what is shown, and how to go on."""
    console.answer({what: shown, "next_before": next_before}, table(shown) if shown else "")
    if console.json:
        return
    if not shown:
        console.note(f"no {what}")
    if next_before is not None:
        console.note(f"there are more: add --before {next_before}")


def _table(found: list[ListedInstance]) -> str:
    now = datetime.now(UTC)
    rows = [[style(name, bold=True) for name in ("ID", "STATUS", "STARTED", "CHANGED")]]
    for each in found:
        name = f"{each.id} (generation {each.generation})" if each.generation > 1 else each.id
        rows.append([name, styled(each.status), ago(each.started_at, now), ago(each.changed_at, now)])
    return table(rows)


# ---- show, history -----------------------------------------------------------------------------------------


@define("show")
@click.argument("id")
def show(console: Console, id: str) -> None:
    shown: ShownInstance = console.call("show", ShowParams(id))
    console.answer(shown, _shown(shown, datetime.now(UTC)))


def _shown(shown: ShownInstance, now: datetime) -> str:
    rows = [
        ["instance", shown.id],
        ["status", styled(shown.status)],
        ["version", shown.version],
        ["started", f"{local(shown.started_at)} ({ago(shown.started_at, now)})"],
        ["changed", f"{local(shown.changed_at)} ({ago(shown.changed_at, now)})"],
        ["entries", str(shown.entries)],
    ]
    if shown.generation > 1:
        rows.insert(1, ["generation", str(shown.generation)])
    if shown.parent is not None:
        rows.append(["parent", shown.parent])
    rows += [["tag", f"{name}={value}"] for name, value in shown.tags.items()]
    rows += [["open", open_line(each, now)] for each in shown.waiting]
    rows += [["on its way", _message(each, now)] for each in shown.mailbox]
    rows += [["published", f"{name} = {short(value)}"] for name, value in shown.published.items()]
    if shown.state is not UNSET:
        rows.append(["state", to_json(shown.state)])
    if shown.stuck_at:
        rows.append(["stuck at", shown.stuck_at])
    if shown.error is not None:
        rows.append(["error", joined(str(shown.error).split("\n"))])
        place = author_place(shown.error.traceback)
        rows += [["raised at", place]] if place else []
    if shown.kept_until is not UNSET:
        rows.append(["kept until", local(shown.kept_until)])
    if shown.forgotten is not UNSET:
        rows.append(["forgotten", "retention has removed its history and its result"])
    elif shown.status == "completed":
        rows.append(["result", to_json(shown.result)])
    about = table([[style(name, bold=True), text] for name, text in rows])
    return joined([about, *_parts(shown, now)])


def _message(each: ShownMessage, now: datetime) -> str:
    return f"{each.event} {each.name}".strip() + f" = {short(each.body)}, {ago(each.at, now)}"


def _parts(shown: ShownInstance, now: datetime) -> list[str]:
    """The nodes of a graph, or what else an instance has such parts of."""
    if not shown.parts:
        return []
    names = [name for name in shown.parts[0] if name != "since"]
    head = [style(name, bold=True) for name in names]
    rows = [
        [*(styled(str(part[name])) if name == "outcome" else str(part[name]) for name in names), _since(part, now)]
        for part in shown.parts
    ]
    return ["", table([[*head, style("since", bold=True)], *rows])]


def _since(part: dict[str, Any], now: datetime) -> str:
    return "" if part.get("since") is None else ago(part["since"], now)


@define("history")
@click.argument("id")
@click.option("--values/--no-values", default=None, help="Whole values, or none. Default: long ones are cut.")
def history(console: Console, id: str, values: bool | None) -> None:
    shown = values is not False
    answer: HistoryAnswer = console.call("history", HistoryParams(id, shown))
    width = None if values else 60
    rows = [[str(entry.number), local(entry.at), told(entry, width, shown)] for entry in answer.history]
    console.answer(answer, table(rows))


# ---- why ---------------------------------------------------------------------------------------------------


@define("why")
@click.argument("id")
def why(console: Console, id: str) -> None:
    """Says since when it waits and what would move it, with the exact command where there is one."""
    answer: WhyAnswer = console.call("why", WhyParams(id, console.place))
    todos = [[_advice(console, each) for each in reason.todo] for reason in answer.reasons]
    found = list(zip(answer.reasons, todos, strict=True))
    document = {"id": answer.id, "status": answer.status, "reasons": [_reason(each, todo) for each, todo in found]}
    lines = [joined([each.text, *(f"    {line}" for line in todo)]) for each, todo in found]
    console.answer(document, joined([f"{answer.id} is {styled(answer.status)}.", *lines]))


def _reason(reason: Reason, todo: list[str]) -> dict[str, Any]:
    shown = {} if reason.waiting is None else asdict(shown_wait(reason.waiting))
    about = {name: value for name, value in shown.items() if value is not UNSET}
    return {**about, "kind": reason.kind, "text": reason.text, "todo": "\n".join(todo) or None}


def _advice(console: Console, advice: Advice) -> str:
    command = console.command(*advice.command) if advice.command else ""
    if console.server and advice.command[:2] == ("tasks", "complete"):
        command = f"{console.server.rstrip('/')}/tasks/{advice.command[2]}"
    return ": ".join(filter(None, (advice.text, command)))


# ---- diff --------------------------------------------------------------------------------------------------

WIDTH: Final = 60
Told = tuple[ShownDifference, str | None, str | None]
"""A difference, and what to say of either side; None: it never came there."""


@define("diff")
@click.argument("a")
@click.argument("b")
@click.option("--values", is_flag=True, help="Whole values. Default: long ones are cut to where they differ.")
def diff(console: Console, a: str, b: str, values: bool) -> None:
    """A and B are instances of one workflow. What happened is compared by location and attempt, not by entry number
    or time: values, errors, messages, what only one of them did, how they ended. Exit code 1 if there is a difference.
    """
    answer: DiffAnswer = console.call("diff", DiffParams(a, b))
    said = [(each, _fact(each.a), _fact(each.b)) for each in answer.differences]
    shown = said if values else [(each, *_cut(*texts)) for each, *texts in said]
    console.answer(_document(answer), _differences(answer, shown))
    if shown != said and not console.json:
        console.note("long values are cut to where they differ: --values shows them whole")
    sys.exit(Exit.OK if answer.same else Exit.FAILED)


def _document(answer: DiffAnswer) -> dict[str, Any]:
    """Each fact has a value here, null where there is none: scripts may rely on that."""

    def fact(shown: ShownFact | None) -> dict[str, Any] | None:
        return None if shown is None else {**asdict(shown), "value": None if shown.value is UNSET else shown.value}

    differences = [{**asdict(each), "a": fact(each.a), "b": fact(each.b)} for each in answer.differences]
    return {**asdict(answer), "differences": differences}


def _differences(answer: DiffAnswer, found: list[Told]) -> str:
    a, b = answer.a, answer.b
    if not found:
        return f"{a.id} and {b.id} have the same history, but for times."
    first = found[0][0]
    lines = [f"{sign} {each.id}: {each.entries} entries" for sign, each in (("---", a), ("+++", b))]
    lines.append(f"They part at {first.place}: {_where(a, first.a)}, {_where(b, first.b)}.")
    for each, *texts in found:
        for sign, colour, text in zip("-+", ("red", "green"), texts, strict=True):
            if text is not None:
                lines.append(style(f"{sign} {each.place}{': ' if text else ''}{text}", fg=colour))
    return joined(lines)


def _where(side: DiffSide, fact: ShownFact | None) -> str:
    return f"{side.id} never came there" if fact is None else f"entry {fact.entry} of {side.id}"


def _fact(fact: ShownFact | None) -> str | None:
    if fact is None:
        return None
    value = "" if fact.value is UNSET else to_json(fact.value)
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


# ---- export ------------------------------------------------------------------------------------------------


@define("export")
@click.argument("id")
@click.option("-o", "--output", metavar="FILE", help="Write it there. Default: to stdout.")
def export(console: Console, id: str, output: str | None) -> None:
    """The file is JSON with a line for each entry: the recorded bytes, and what they say. It has every recorded
    value in it: look through it before you share it.
    """
    answer: ExportAnswer = console.call("export", ExportParams(id))
    if output is None:
        click.echo(visible_json(answer.text), nl=False)
        return
    write_file(output, answer.text)
    document = {"id": answer.id, "file": output, "entries": answer.entries}
    console.answer(document, f"wrote {answer.entries} entries of {answer.id} to {output}")


def write_file(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Stopped(f"{path} cannot be written: {error.strerror}") from error
