"""`perdure bulk`: one verb on all instances of a selection, after a look at what it would do."""

from __future__ import annotations

import getpass
import sys
from typing import Any

import click
from msgspec.structs import replace

from perdure.verbs.bulk import PARAMS, BulkAnswer, BulkId, BulkListParams, BulkParams, BulkVerb, Selection, ShownBulk

from ..console import Console, define
from ..exits import Stopped
from ..given import read_json
from ..text import Lines, joined, local, shown, table

ASKED_ABOVE = 10
"""Of more instances than this, a person confirms the count."""


@define("bulk start")
@click.argument("verb", type=click.Choice(list(PARAMS)))
@click.option("--where", "q", default="", metavar="FILTER", help="Which instances: 'workflow:order status:failed'.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="One instance; any number, instead of --where.")
@click.option("--params", metavar="JSON|@FILE|-", help="What the verb takes besides the instance, as an object.")
@click.option("--rate", type=float, default=50.0, show_default=True, help="Instances a second.")
@click.option("--errors-max", type=int, default=20, show_default=True, help="It stops after so many refusals.")
@click.option("--reason", default="", help="Why; recorded with each event.")
@click.option("--dry-run", is_flag=True, help="Only tell how many there are, and what would happen to some.")
@click.option("--plan", default="", help="The plan of a dry run: refused if the selection has changed since.")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who asks.")
@click.option("--yes", is_flag=True, help=f"Do not ask, also above {ASKED_ABOVE} instances.")
def start(
    console: Console,
    *,
    verb: BulkVerb,
    q: str,
    ids: tuple[str, ...],
    params: str | None,
    rate: float,
    errors_max: int,
    reason: str,
    dry_run: bool,
    plan: str,
    person: str | None,
    yes: bool,
) -> None:
    """VERB is done to each instance that the filter finds now; an instance that fits later is left alone. Prints the id
    of the bulk, which an engine works on: `perdure bulk show ID` tells how far it is.
    """
    value = {} if params is None else read_json(params, "--params")
    if not isinstance(value, dict):
        raise Stopped(f"--params is an object of what {verb} takes, found {value!r:.80}")
    if not q and not ids:
        raise Stopped("say which instances: --where 'workflow:order status:failed', or --id for each")
    given = BulkParams(verb, Selection(q, list(ids)), value, rate, errors_max, reason, dry_run, plan, person or "")
    begin(console, given, yes)


def begin(console: Console, given: BulkParams, yes: bool) -> None:
    """Tell what would happen, or start the bulk; of many instances after a person has said yes."""
    if not given.by and console.server is None:
        given = replace(given, by=getpass.getuser())
    if given.dry_run or not (yes or given.plan):
        planned: BulkAnswer = console.call("bulk start", replace(given, dry_run=True, plan=""))
        if given.dry_run:
            console.answer(planned, _planned(planned))
            return
        if planned.count > ASKED_ABOVE:
            _confirm(planned)
        given = replace(given, plan=str(planned.plan))
    answer: BulkAnswer = console.call("bulk start", given)
    console.answer(answer, str(answer.id))


def _confirm(planned: BulkAnswer) -> None:
    if not sys.stdin.isatty():
        raise Stopped(f"{planned.count} instances match; look with --dry-run, then repeat the command with --yes")
    click.echo(shown(_planned(planned)), err=True)
    click.confirm(f"{planned.verb} all {planned.count}?", abort=True, err=True)


def _planned(answer: BulkAnswer) -> Lines:
    sample: Any = answer.sample
    rows = [
        [each.id, each.status, f"refused: {each.refused}" if each.refused else "; ".join(each.would)] for each in sample
    ]
    more = answer.count - len(rows)
    first = f"{answer.verb} would act on {answer.count} instances; plan {answer.plan}"
    return joined([first, *([table(rows)] if rows else []), *([f"and {more} more"] if more else [])])


@define("bulk ls")
@click.option("--limit", type=click.IntRange(1, 50), default=20, show_default=True, help="How many at most.")
def ls(console: Console, limit: int) -> None:
    found = console.call("bulk ls", BulkListParams(limit))
    rows = [
        [each.id, each.status, each.verb, _counts(each), local(each.started_at), each.where] for each in found.items
    ]
    console.answer(found, table(rows) if rows else "")


def _counts(bulk: ShownBulk) -> str:
    refused = f", {len(bulk.refused)} refused" if bulk.refused else ""
    return f"{bulk.done} of {bulk.total}{refused}"


@define("bulk show")
@click.argument("id")
def show(console: Console, id: str) -> None:
    found: ShownBulk = console.call("bulk show", BulkId(id))
    lines = [
        f"{found.id}  {found.verb}  {found.status}{f': {found.error}' if found.error else ''}",
        f"where    {found.where}",
        f"asked    {found.by or 'unknown'}{f', {found.reason}' if found.reason else ''}, {local(found.started_at)}",
        f"done     {_counts(found)}; {found.left} left",
        *(f"refused  {each.id}: {each.text}" for each in found.refused[:20]),
    ]
    console.answer(found, joined(lines))


@define("bulk cancel")
@click.argument("id")
def cancel(console: Console, id: str) -> None:
    """What was done stays done; what is left is left alone."""
    answer = console.call("bulk cancel", BulkId(id))
    console.answer(answer, f"asked the bulk {answer.id} to stop")
