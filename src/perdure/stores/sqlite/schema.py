"""Which file is ours, and which form it has: the application id, the schema version, and the way to the
newest one.

Both numbers stand in the header of the file. They are written in rollback mode, before the file becomes a WAL
file, so the header alone always tells whose file it is: see `connection.recognise`.
"""

from importlib.resources import files
from typing import Final

import apsw
import msgspec

from perdure.kernel.tags import indexed
from perdure.kernel.task import TaskRow, candidates

APPLICATION_ID: Final = int.from_bytes(b"pdur", "big")
VERSION: Final = 16
"""The number of the last file in `migrations/`."""

PAGE_BYTES: Final = 2048
"""Of a new file. Half of SQLite's own: an event to one of a million instances changes a row on a page or two that no
other event shares, and each is written twice as a whole, to the log and to the file."""


def version_of(connection: apsw.Connection) -> int:
    """0: nothing was created yet."""
    return int(connection.pragma("user_version"))


def migrate(connection: apsw.Connection) -> None:
    """Bring an older database to the newest schema: all steps, or none. An empty one gets the schema at once."""
    connection.pragma("page_size", PAGE_BYTES)  # of a file that is still empty; no other is changed by this
    connection.execute("BEGIN EXCLUSIVE")
    try:
        before = version_of(connection)
        if before == 0:
            connection.execute(schema())
        for number in range(before + 1, VERSION + 1) if before else ():
            connection.execute(migration(number))
            if number == 10:
                _fill_tags(connection)
            if number == 14:
                _fill_candidates(connection)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", VERSION)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _fill_tags(connection: apsw.Connection) -> None:
    """The rows of tags that stood in heads only."""
    heads = connection.execute("SELECT tags, started_at, id FROM instances WHERE tags <> '{}'").fetchall()
    rows = [
        (*indexed(name, value), started_at, id)
        for tags, started_at, id in heads
        for name, value in msgspec.json.decode(str(tags), type=dict[str, str]).items()
    ]
    connection.executemany("INSERT INTO tags (name, value, started_at, instance) VALUES (?, ?, ?, ?)", rows)


def _fill_candidates(connection: apsw.Connection) -> None:
    """The names by which tasks are found that follow from their rows alone."""
    tasks = connection.execute(f"SELECT {', '.join(TaskRow._fields)} FROM tasks")
    connection.executemany(
        "INSERT OR IGNORE INTO task_candidates (task, who, held, created_at, due, rank) VALUES (?, ?, ?, ?, ?, ?)",
        (name for row in tasks for name in candidates(TaskRow(*row))),
    )


def migration(number: int) -> str:
    return files(__package__).joinpath("migrations", f"{number:04}.sql").read_text("utf-8")


def schema() -> str:
    return files(__package__).joinpath("schema.sql").read_text("utf-8")
