"""`perdure db recover`: let a database go on whose log is damaged."""

from __future__ import annotations

import click

from perdure.app.urls import is_server, path_of

from ...console import Console
from ...console import command as define
from ...exits import Stopped
from ...text import style


@define("db recover", db="none")
@click.argument("path")
def command(console: Console, path: str) -> None:
    """PATH is a SQLite file. The damaged log is kept beside it. What it had behind the damage is lost.

    Nothing is changed if the log is whole, or if the database is damaged with and without it.
    """
    if is_server(path) or path_of(path) == ":memory:":
        raise Stopped("only a SQLite file has a log that can be damaged; name one")
    from perdure.stores.sqlite import recover

    done = recover(path_of(path))
    if done is None:
        console.answer({"recovered": False}, f"the log of {path} is whole: there is nothing to recover")
        return
    lost = "what came behind frame " + str(done.frame) if done.with_log else "all of it that was not in the file"
    text = f"{path} goes on at entry {done.entry}. The damaged log is kept as {done.kept}; {lost} is lost"
    console.answer({"recovered": True, **done._asdict()}, text)
    for problem in done.problems:
        console.note(f"{style('problem:', fg='red')} {problem}")
