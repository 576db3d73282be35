"""What belongs to every number: versions, durability, the machine."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import apsw

from bench.measure import Store
from bench.peers import environments

LEVELS: Final = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def settings(place: Path, passes: int, stores: Sequence[Store], peers: Sequence[str]) -> dict[str, str]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "passes": f"{passes}, in turns; the floor before and after each",
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, asyncio's own event loop",
        "perdure": f"{_version('perdure')}, with msgspec {_version('msgspec')} and cbor2 {_version('cbor2')}",
        **(_sqlite(place) if "sqlite" in stores else {}),
        **(_postgres() if "postgres" in stores else {}),
        **{
            f"{environments.TITLES[peer]} {environments.version_of(peer)}": "; ".join(
                environments.SETTINGS[peer][store] for store in stores
            )
            for peer in peers
        },
    }


def _sqlite(place: Path) -> dict[str, str]:
    library = f"{apsw.sqlite_lib_version()} through apsw {apsw.apsw_version()}"
    return {"SQLite": f"{library}; {_durability(place)}"}


def _postgres() -> dict[str, str]:
    from bench import server

    return {
        **server.settings(),
        "the same server for all": f"over a Unix socket on this machine; perdure: {server.SHARDS} shards",
    }


def _durability(place: Path) -> str:
    """What perdure's own connections are set to, asked of one."""
    from perdure.stores.sqlite.connection import connect, enter_wal

    with tempfile.TemporaryDirectory(dir=place) as directory:
        file = str(Path(directory, "asked.db"))
        connection, _ = connect(file, create=True)
        enter_wal(connection, file)
        mode, level = connection.pragma("journal_mode"), connection.pragma("synchronous")
        connection.close()
    return f"journal_mode={mode}, synchronous={LEVELS[level]}: an answer is given only after fdatasync"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
