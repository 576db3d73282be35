"""Commands about databases: make one, bring it up to date, copy it, mend its log; and whether all of this is sound."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from perdure import app
from perdure.app.urls import is_server, path_of
from perdure.codec import to_plain
from perdure.errors import StoreError
from perdure.runtime.client import Client
from perdure.views.doctor import examine, versions

from ..console import Console, define
from ..exits import Exit, Stopped
from ..text import ago, joined, style, table

# ---- db upgrade, db recover --------------------------------------------------------------------------------


@define("db upgrade", db="none")
@click.argument("url", required=False)
@click.option("--sql", is_flag=True, help="Print the SQL, and change nothing. Without a URL: for a new database.")
@click.option("--shards", type=int, metavar="N", help="How many shards a new PostgreSQL database gets.  [default: 16]")
@click.option("--schema", metavar="NAME", help="The schema in a PostgreSQL database.  [default: perdure]")
def upgrade(console: Console, url: str | None, sql: bool, shards: int | None, schema: str | None) -> None:
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
    from perdure.stores import postgres

    done = app.run_async(lambda: postgres.upgrade(url, schema, shards=shards))
    document = {"database": done.name, "before": done.before, "schema": done.version, "shards": done.shards}
    console.answer(document, _upgraded(done.name, done.before, done.version, f", {done.shards} shards"))


def _print(console: Console, url: str | None, shards: int | None, schema: str | None) -> None:
    from perdure.stores.postgres import new_script, upgrade_script

    if url is None:
        text = new_script(schema, shards=shards)
    else:
        text = app.run_async(lambda: upgrade_script(url, schema, shards=shards))
        if not text:
            console.note("there is nothing to do: the database has the newest schema")
    console.answer({"sql": text}, joined(text.rstrip("\n").split("\n")))


def _upgrade_file(console: Console, url: str) -> None:
    from perdure.stores import sqlite

    path = path_of(url)
    if path == ":memory:":
        raise Stopped("a :memory: database is made anew by each engine; there is nothing to bring up to date")
    before, after = sqlite.upgrade(path)
    console.answer({"database": path, "before": before, "schema": after, "shards": 1}, _upgraded(path, before, after))


def _upgraded(name: str, before: int, after: int, rest: str = "") -> str:
    if before == after:
        return f"{name} has the newest schema already: {after}{rest}"
    return (
        f"{name} was made: schema {after}{rest}"
        if before == 0
        else f"{name} went from schema {before} to {after}{rest}"
    )


@define("db recover", db="none")
@click.argument("path")
def recover(console: Console, path: str) -> None:
    """PATH is a SQLite file. The damaged log is kept beside it. What it had behind the damage is lost.

    Nothing is changed if the log is whole, or if the database is damaged with and without it.
    """
    if is_server(path) or path_of(path) == ":memory:":
        raise Stopped("only a SQLite file has a log that can be damaged; name one")
    from perdure.stores import sqlite

    done = sqlite.recover(path_of(path))
    if done is None:
        console.answer({"recovered": False}, f"the log of {path} is whole: there is nothing to recover")
        return
    lost = "what came behind frame " + str(done.frame) if done.with_log else "all of it that was not in the file"
    text = f"{path} goes on at entry {done.entry}. The damaged log is kept as {done.kept}; {lost} is lost"
    console.answer({"recovered": True, **done._asdict()}, text)
    for problem in done.problems:
        console.note(f"{style('problem:', fg='red')} {problem}")


# ---- copy --------------------------------------------------------------------------------------------------


@define("copy", db="none")
@click.argument("source")
@click.argument("target")
def copy(console: Console, source: str, target: str) -> None:
    """SOURCE and TARGET are paths of SQLite files, or postgresql://... with ?schema=NAME. TARGET is made: a file must
    not be there, a schema may be, if it is empty. No engine may run on either. The source stays as it is.

    The journal is copied as it is, and all tables are made from it again and compared. A PostgreSQL database that is
    made gets as many shards as the source has: one, if that is a file.
    """
    from perdure.app.copy import move

    last = 0

    def told(what: str, done: int, total: int) -> None:
        nonlocal last
        if done * 10 // max(1, total) != last:
            last = done * 10 // max(1, total)
            console.note(f"{what}: {done:,} of {total:,}")

    moved = app.run_async(lambda: move(source, target, told))
    text = (
        f"{moved.entries:,} entries of {moved.instances:,} instances, {moved.inbox} waiting events and {moved.blobs} "
        f"blobs were copied, and replay to the same state"
    )
    console.answer(to_plain(moved), text)


# ---- doctor ------------------------------------------------------------------------------------------------


@define("doctor", db="optional")
@click.option("--dask", metavar="ADDRESS", help="Check the versions of a cluster, and that it reaches the database.")
def doctor(console: Console, dask: str | None) -> None:
    """With --db or --server the whole database is read: checksums, and whether indexes say what the journal says."""
    document: dict[str, Any] = {"versions": versions(), "database": None, "cluster": None, "problems": []}
    exit = Exit.OK
    if console.server is not None:
        found = console.request("doctor")
        document["database"], document["problems"] = found.database or None, found.problems
        if engine := found.database.get("engine"):
            engine["since"] = datetime.fromisoformat(engine["since"])
    elif console.has_db:
        try:
            document["database"], document["problems"] = console.ask(lambda client: _database(console, client))
        except StoreError as error:
            document["problems"] = [str(error)]
            exit = Exit.DATABASE
    if dask is not None:
        from perdure.app.runner import reach
        from perdure.clusters.dask import examine

        db = console.db if console.has_db and is_server(console.db) else ""
        document["cluster"], problems = examine(dask, reach, db)
        document["problems"] += problems
    if document["problems"] and exit is Exit.OK:
        exit = Exit.FAILED
    document["ok"] = exit is Exit.OK
    console.answer(document, _text(document))
    for problem in document["problems"]:
        console.note(f"{style('problem:', fg='red')} {problem}")
    sys.exit(exit)


async def _database(console: Console, client: Client) -> tuple[dict[str, Any], list[str]]:
    if sys.stderr.isatty():
        console.note(f"reading all of {console.db} ...")
    return await examine(client.queries)


def _text(document: dict[str, Any]) -> str:
    rows = [[name, text] for name, text in document["versions"].items()]
    database = document["database"]
    if database is not None:
        engine, now = database["engine"], datetime.now(UTC)
        running = "nobody" if engine is None else f"{engine['name']} (pid {engine['pid']}), {ago(engine['since'], now)}"
        rows += [["database", database["path"]], ["size", f"{database['size_bytes'] / 2**20:.1f} MiB"]]
        if "disk_free_bytes" in database:
            rows.append(["disk free", f"{database['disk_free_bytes'] / 2**30:.1f} GiB"])
        shown = ("schema", "shards", "engines", "server", "journal_mode", "synchronous", "synchronous_commit", "fsync")
        rows += [[name.replace("_", " "), str(database[name])] for name in shown if name in database]
        workflows = ", ".join(f"{each['name']} {each['version']}" for each in database["workflows"])
        rows += [["engine", running], ["workflows", workflows or "none"]]
    cluster = document["cluster"]
    if cluster is not None:
        rows.append(["cluster", f"dask {cluster['address']}"])
        rows += [
            ["dask worker", f"{name}: " + ", ".join(f"{package} {version}" for package, version in each.items())]
            for name, each in sorted(cluster["workers"].items())
        ]
    rows.append(["problems", str(len(document["problems"])) if document["problems"] else "none"])
    return table([[style(name, bold=True), text] for name, text in rows])
