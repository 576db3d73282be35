"""`perdure doctor`: is this installation sound, and is that database whole?"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import click

from perdure.app import is_server
from perdure.errors import StoreError
from perdure.kernel.moment import when
from perdure.runtime.client import Client
from perdure.runtime.shard import AHEAD_MAX

from ..console import Console
from ..console import command as define
from ..exits import Exit
from ..text import ago, span, style, table

DISK_FREE_MIN: Final = 256 * 1024 * 1024


@define("doctor", db="optional")
@click.option("--dask", metavar="ADDRESS", help="Check the versions of a cluster, and that it reaches the database.")
def command(console: Console, dask: str | None) -> None:
    """With --db it reads the whole database: checksums, and whether the indexes say what the journal says."""
    document: dict[str, Any] = {"versions": _versions(), "database": None, "cluster": None, "problems": []}
    exit = Exit.OK
    if console.has_db:
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


def _versions() -> dict[str, str]:
    import apsw

    return {
        "perdure": version("perdure"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "msgspec": version("msgspec"),
    }


async def _database(console: Console, client: Client) -> tuple[dict[str, Any], list[str]]:
    facts = await client.queries.facts()
    owner = await client.queries.owner()
    if sys.stderr.isatty():
        console.note(f"reading all of {facts['path']} ...")
    numbers: dict[str, Any] = {name: int(text) if text.isdigit() else text for name, text in facts.items()}
    problems = await client.queries.check()
    ahead = numbers["last_entry_at"] - time.time_ns()
    numbers["last_entry_at"] = when(numbers["last_entry_at"]) if numbers["last_entry_at"] else None
    if ahead > AHEAD_MAX:
        problems.append(
            f"the journal is {span(ahead / 1e9)} ahead of the clock of this machine: an engine wrote to it while its "
            "clock was ahead, or this clock is behind; correct the clock that is wrong. New timers go by the clock"
        )
    if "journal_mode" in facts:
        numbers["disk_free_bytes"] = shutil.disk_usage(os.path.dirname(facts["path"])).free
        problems += _problems_of_file(numbers)
    elif facts["fsync"] != "on":
        problems.append(f"fsync is {facts['fsync']} on the server: commits may be lost with the power")
    engine = None
    if owner is not None:
        since = datetime.fromtimestamp(owner.since, UTC)
        engine = {"name": owner.name, "pid": owner.pid, "host": owner.host, "since": since}
    workflows = [{"name": name, "version": version} for name, version, *_ in await client.queries.workflows()]
    return {**numbers, "engine": engine, "workflows": workflows}, problems


def _problems_of_file(facts: dict[str, Any]) -> list[str]:
    problems = []
    if facts["journal_mode"] != "wal":
        problems.append(f"the journal mode is {facts['journal_mode']}, not wal: open it with an engine once")
    if facts["synchronous"] != "full":
        problems.append(f"synchronous is {facts['synchronous']}, not full: commits may be lost with the power")
    if facts["disk_free_bytes"] < DISK_FREE_MIN:
        problems.append(f"only {facts['disk_free_bytes'] / 2**20:.0f} MiB are free on the disk of {facts['path']}")
    return problems


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
