"""Whether a database is sound: its facts, and the problems of its entries, its file and its clock."""

from __future__ import annotations

import os
import platform
import shutil
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from perdure.codec.phrases import span
from perdure.kernel.moment import when
from perdure.kernel.workflows import OWN
from perdure.ports.store import Queries
from perdure.runtime.inbox import AHEAD_MAX

DISK_FREE_MIN: Final = 256 * 1024 * 1024


def versions() -> dict[str, str]:
    """The versions of this process and of what it is built on."""
    import apsw

    return {
        "perdure": version("perdure"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "msgspec": version("msgspec"),
    }


async def examine(queries: Queries) -> tuple[dict[str, Any], list[str]]:
    """The facts of a database, and its problems. This reads all of it."""
    facts = await queries.facts()
    owner = await queries.owner()
    numbers: dict[str, Any] = {name: int(text) if text.isdigit() else text for name, text in facts.items()}
    problems = await queries.check()
    last = numbers.get("last_entry_at", 0)
    ahead = last - time.time_ns()
    numbers["last_entry_at"] = when(last) if last else None
    if ahead > AHEAD_MAX:
        problems.append(
            f"the journal is {span(ahead / 1e9)} ahead of the clock of this machine: an engine wrote to it while its "
            "clock was ahead, or this clock is behind; correct the clock that is wrong. New timers go by the clock"
        )
    if "journal_mode" in facts:
        numbers["disk_free_bytes"] = shutil.disk_usage(os.path.dirname(facts["path"])).free
        problems += _problems_of_file(numbers)
    elif facts.get("fsync", "on") != "on":
        problems.append(f"fsync is {facts['fsync']} on the server: commits may be lost with the power")
    engine = None
    if owner is not None:
        since = datetime.fromtimestamp(owner.since, UTC)
        engine = {"name": owner.name, "pid": owner.pid, "host": owner.host, "since": since}
    rows = [row for row in await queries.workflows() if not row.name.startswith(OWN)]
    workflows = [{"name": row.name, "version": row.version} for row in rows]
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
