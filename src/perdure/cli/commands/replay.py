"""`perdure replay`: would running instances go on with this code? And was the whole world made by it?"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import NoReturn

import click

from perdure.codec import to_plain
from perdure.codec.visible import visible
from perdure.kernel.workflows import Workflows
from perdure.runtime.client import Client
from perdure.views.survey import Replayed, survey

from ..console import Console
from ..console import command as define
from ..exits import Exit, Stopped
from ..snapshots import ask
from ..text import indented, joined, style, to_json
from ..world import code_of


@define("replay")
@click.option("--against", "targets", multiple=True, required=True, metavar="MODULE[:FLOW]", help="The new code.")
@click.option("--verify", is_flag=True, help="Replay the whole world of cells, and compare every decision and root.")
@click.option("--from", "since", metavar="HASH", help="With --verify: begin with this world snapshot.")
def command(console: Console, targets: tuple[str, ...], verify: bool, since: str | None) -> None:
    """The histories of all instances that have not ended are replayed on the code of MODULE, without side effects:
    no step runs, nothing is written. Exit code 1 if any of them would diverge.

    An instance is replayed on the version that it started with, if MODULE has that, else on the newest one.

    With --verify every entry of the journal is replayed, from the first one or from a world snapshot, each cell with
    the definition that it had then; every snapshot on the way must come out with its hash. Exit code 1 and the first
    difference, if there is one.
    """
    if verify:
        _verify(console, targets, since)
    if since is not None:
        raise Stopped("--from is for --verify")
    with redirect_stdout(sys.stderr):
        workflows = Workflows(each for target in targets for each in code_of(target))

    async def replay(client: Client) -> list[Replayed]:
        return await survey(client.queries, workflows)

    found = console.ask(replay)
    unsafe = [each for each in found if each.divergence is not None]
    document = {"replayed": len(found), "safe": len(found) - len(unsafe), "unsafe": unsafe}
    lines: list[str] = [
        indented(f"{style(visible(each.id), bold=True)}: {(each.divergence or '').removeprefix(f'{each.id}, ')}")
        for each in unsafe
    ]
    instances = "1 instance" if len(found) == 1 else f"{len(found)} instances"
    lines.append(f"{instances} replayed: {document['safe']} safe, {len(unsafe)} would be stuck")
    console.answer(document, joined(lines))
    sys.exit(Exit.FAILED if unsafe else Exit.OK)


def _verify(console: Console, targets: tuple[str, ...], since: str | None) -> NoReturn:
    found = ask(console, lambda snapshots: snapshots.verify(since), targets)
    difference = found.difference
    since_entry = f" after entry {found.begin}" if found.begin else ""
    lines = [f"replayed{since_entry}: {found.entries} entries; compared: {found.snapshots} snapshots"]
    if found.unread:
        lines.append(f"not replayed, for there is no code: {', '.join(found.unread)}")
    if difference is None:
        lines.append("no difference")
    else:
        where = f" of {style(difference.cell, bold=True)}" if difference.cell else ""
        lines.append(f"entry {difference.entry}{where} differs:")
        for name, text, state in (
            ("recorded", difference.recorded, difference.recorded_state),
            ("current", difference.current, difference.current_state),
        ):
            lines.append(f"  {name}: {text}{'' if state is None else f' {to_json(state)}'}")
        if difference.advice:
            lines.append(indented(f"  {difference.advice}"))
    console.answer(to_plain(found), joined(lines))
    sys.exit(Exit.OK if difference is None else Exit.FAILED)
