"""What the commands about world snapshots share: who asks, the code, and how a snapshot is told."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .console import Console
from .text import local
from .world import code_of

if TYPE_CHECKING:
    from perdure.worlds.snapshots import Snapshots, Taken

T = TypeVar("T")


def ask(console: Console, question: Callable[[Snapshots], Awaitable[T]], targets: Iterable[str] = ()) -> T:
    """Ask about the snapshots of a database. `targets`: where the code is, for what needs it."""
    from perdure.worlds.snapshots import Snapshots

    with redirect_stdout(sys.stderr):
        code = [each for target in targets for each in code_of(target)]
    return console.ask(lambda client: question(Snapshots(client, code)))


def against(function: Callable[..., None]) -> Callable[..., None]:
    option: Callable[..., Any] = click.option(
        "--against",
        "targets",
        multiple=True,
        required=True,
        metavar="MODULE",
        help="The code of the cells; several, if it is in several modules.",
    )
    return option(function)  # type: ignore[no-any-return]


def document(taken: Taken) -> dict[str, Any]:
    return {
        "hash": taken.hash,
        "entry": taken.entry,
        "taken_at": datetime.fromtimestamp(taken.taken_at / 1e9, UTC).isoformat(),
        "base": taken.base,
        "cells": taken.cells,
        "open": taken.open,
    }


def told(taken: Taken) -> str:
    cells = ", ".join(f"{count} {workflow}" for workflow, count in sorted(taken.cells.items())) or "no cells"
    base = " (base)" if taken.base else ""
    at = local(datetime.fromtimestamp(taken.taken_at / 1e9, UTC))
    return f"{taken.hash[:19]}  entry {taken.entry}  {at}  {cells}, {taken.open} open effects{base}"
