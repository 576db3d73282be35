"""Named SQL: `SQL.insert_journal` is the statement under `-- name: insert_journal` in the store's `queries.sql`."""

import re

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
