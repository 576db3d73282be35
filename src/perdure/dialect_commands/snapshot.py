"""Commands about snapshots of a whole world: take them, list them, go on from one, free what none needs."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from perdure.cli.console import Console, define
from perdure.cli.exits import Exit, Stopped
from perdure.cli.load import code_of
from perdure.cli.text import indented, joined, local, style, to_json
from perdure.codec import to_plain
from perdure.kernel.moment import at_of, when

if TYPE_CHECKING:
    from perdure.worlds.snapshots import Snapshots, Taken

T = TypeVar("T")


def ask(console: Console, question: Callable[[Snapshots], Awaitable[T]], targets: Iterable[str] = ()) -> T:
    """Ask about the snapshots of a database. `targets`: where the code is, for what needs it."""
    from perdure.worlds.snapshots import Snapshots

    with redirect_stdout(sys.stderr):
        code = [each for target in targets for each in code_of(target)]
    return console.ask(lambda client: question(Snapshots(client, code)))


@define("snapshot take")
@click.option(
    "--against",
    "targets",
    multiple=True,
    metavar="MODULE",
    help="The code of the cells; several, if it is in several modules. A server has it.",
)
@click.option("--full", is_flag=True, help="Begin with the first entry, whatever snapshots there are.")
def take(console: Console, targets: tuple[str, ...], full: bool) -> None:
    """The journal is replayed from the last snapshot on, with the code of MODULE; what changed is written as blobs. It
    does not matter whether an engine runs: the snapshot is of what is durable. The same entry has the same hash.
    """
    if console.server is not None:
        answer = console.request("snapshot take", full=full)
        if answer.snapshot is None:
            text = f"it is taken still: `{console.command('snapshot', 'ls')}` has it when it is done"
            raise Stopped(text, Exit.TIMEOUT, kind="StillWorking")
        taken = _taken(answer.snapshot, answer.written)
    elif targets:
        taken = ask(console, lambda snapshots: snapshots.take(full=full), targets)
    else:
        raise Stopped("Missing option '--against': the code of the cells is needed")
    console.answer({**_document(taken), "written": taken.written}, f"{_told(taken)}; {taken.written} blobs written")


@define("snapshot ls")
def ls(console: Console) -> None:
    """The oldest first. `base` is the one that the database was restored from."""
    if console.server is not None:
        found = [_taken(each) for each in console.request("snapshot ls").items]
    else:
        found = ask(console, lambda snapshots: snapshots.retained())
    console.answer({"snapshots": [_document(each) for each in found]}, joined(map(_told, found)))
    if not found and not console.json:
        console.note("no snapshot was taken yet")


@define("snapshot restore")
@click.argument("path")
@click.option("--snapshot", "hash", metavar="HASH", help="Which one, or how its hash begins.  [default: the newest]")
@click.option("--no-tail", is_flag=True, help="Leave out what came after it.")
def restore(console: Console, path: str, hash: str | None, no_tail: bool) -> None:
    """PATH is a file that does not exist yet; it appears when it is complete. Cells begin there with the state that
    they had at the snapshot, and go on with the entries after it. Nothing is taken over if any part of it is missing.
    """
    restored = ask(console, lambda snapshots: snapshots.restore(path, hash, tail=not no_tail))
    text = (
        f"{path}: {restored.instances} instances of {restored.hash[:19]} at entry {restored.entry}, "
        f"{restored.tail} entries after it, {restored.inbox} waiting events"
    )
    console.answer({"path": path, **to_plain(restored)}, text)


@define("snapshot gc")
@click.option("--dry-run", is_flag=True, help="Only say what would be freed.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Give up all snapshots but the newest N.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="What was put so lately stays.",
)
def gc(console: Console, dry_run: bool, keep: int | None, grace: float) -> None:
    """Blobs stay that a retained snapshot reaches, that an entry names, or that are young. The newest snapshot is
    always retained, and so is the one that the database was restored from.
    """
    if console.server is not None:
        found = console.request("snapshot gc", keep=keep, grace=grace, dry_run=dry_run)
    else:
        found = ask(console, lambda snapshots: snapshots.collect(keep=keep, grace=grace, dry_run=dry_run))
    would = "would be " if dry_run else ""
    lines = [f"{name[:19]} {would}given up" for name in found.snapshots]
    lines.append(f"{found.blobs} blobs ({found.bytes:,} bytes) {would}freed, {found.kept} kept")
    console.answer(to_plain(found), joined(lines))


def verify(console: Console, targets: tuple[str, ...], since: str | None) -> NoReturn:
    """`perdure replay --verify`: every entry is replayed, each snapshot on the way is compared."""
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


def _taken(told: Any, written: int = 0) -> Taken:
    """A snapshot as a server tells it."""
    from perdure.worlds.snapshots import Taken

    return Taken(told.hash, int(told.entry), at_of(told.taken_at), told.base, told.cells, told.open, written)


def _document(taken: Taken) -> dict[str, Any]:
    return {
        "hash": taken.hash,
        "entry": taken.entry,
        "taken_at": when(taken.taken_at).isoformat(),
        "base": taken.base,
        "cells": taken.cells,
        "open": taken.open,
    }


def _told(taken: Taken) -> str:
    cells = ", ".join(f"{count} {workflow}" for workflow, count in sorted(taken.cells.items())) or "no cells"
    base = " (base)" if taken.base else ""
    at = local(when(taken.taken_at))
    return f"{taken.hash[:19]}  entry {taken.entry}  {at}  {cells}, {taken.open} open effects{base}"
