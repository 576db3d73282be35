"""Named SQL: `SQL.insert_journal` is the statement under `-- name: insert_journal` in `queries.sql`."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


class Statements:
    def __init__(self, text: str) -> None:
        _, *parts = _NAME.split(text)
        for name, sql in zip(parts[::2], parts[1::2], strict=True):
            assert name not in self.__dict__, f"two queries are named {name}"
            self.__dict__[name] = " ".join(_COMMENT.sub("", sql).split())

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no query is named {name} in queries.sql")


SQL = Statements(files(__package__).joinpath("queries.sql").read_text("utf-8"))
