"""A file in WAL mode whose log has gone round once, so that peers find the state that perdure and the floor find.

See `bench/floor.py`.
"""

from __future__ import annotations

import os
import sqlite3


def settled(file: str) -> sqlite3.Connection:
    """Keep the connection open: SQLite removes the log with the last one."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=wal")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        connection.execute("CREATE TABLE bench_fill (body BLOB)")
        before = -1
        while (size := os.stat(f"{file}-wal").st_size) != before:
            before = size
            with connection:
                connection.execute("INSERT INTO bench_fill VALUES (?)", (bytes(40_000),))
    return connection
