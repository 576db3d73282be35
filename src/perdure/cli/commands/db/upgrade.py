"""`perdure db upgrade`: make a database, or bring it to the schema of this perdure."""

from __future__ import annotations

import click

from perdure.app import run_async
from perdure.app.urls import path_of

from ...console import Console
from ...console import command as define
from ...exits import Stopped
from ...text import joined


@define("db upgrade", db="none")
@click.argument("url", required=False)
@click.option("--sql", is_flag=True, help="Print the SQL, and change nothing. Without a URL: for a new database.")
@click.option("--shards", type=int, metavar="N", help="How many shards a new PostgreSQL database gets.  [default: 16]")
@click.option("--schema", metavar="NAME", help="The schema in a PostgreSQL database.  [default: perdure]")
def command(console: Console, url: str | None, sql: bool, shards: int | None, schema: str | None) -> None:
    """URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or the path of a SQLite file.

    The number of shards is how many engines can share the work at most. It is given once, and stays.
    """
    if url is not None and not url.startswith(("postgresql://", "postgres://")):
        if sql or shards is not None or schema is not None:
            raise Stopped(
                "--sql, --shards and --schema are for PostgreSQL; a SQLite file has one shard, and no schemas"
            )
        _upgrade_file(console, url)
    elif sql:
        _print(console, url, shards, schema)
    elif url is None:
        raise Stopped("which database? perdure db upgrade URL")
    else:
        _upgrade(console, url, shards, schema)


def _upgrade(console: Console, url: str, shards: int | None, schema: str | None) -> None:
    from perdure.stores.postgres import upgrade

    done = run_async(lambda: upgrade(url, schema, shards=shards))
    document = {"database": done.name, "before": done.before, "schema": done.version, "shards": done.shards}
    console.answer(document, _told(done.name, done.before, done.version, f", {done.shards} shards"))


def _print(console: Console, url: str | None, shards: int | None, schema: str | None) -> None:
    from perdure.stores.postgres import new_script, upgrade_script

    if url is None:
        text = new_script(schema, shards=shards)
    else:
        text = run_async(lambda: upgrade_script(url, schema, shards=shards))
        if not text:
            console.note("there is nothing to do: the database has the newest schema")
    console.answer({"sql": text}, joined(text.rstrip("\n").split("\n")))


def _upgrade_file(console: Console, url: str) -> None:
    from perdure.stores.sqlite import upgrade

    path = path_of(url)
    if path == ":memory:":
        raise Stopped("a :memory: database is made anew by each engine; there is nothing to bring up to date")
    before, after = upgrade(path)
    console.answer({"database": path, "before": before, "schema": after, "shards": 1}, _told(path, before, after))


def _told(name: str, before: int, after: int, rest: str = "") -> str:
    if before == after:
        return f"{name} has the newest schema already: {after}{rest}"
    return (
        f"{name} was made: schema {after}{rest}"
        if before == 0
        else f"{name} went from schema {before} to {after}{rest}"
    )
