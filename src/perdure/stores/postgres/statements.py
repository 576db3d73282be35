"""The SQL files in one namespace: they are written for `perdure`, and another name is put in its place."""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

from perdure.errors import CannotOpen
from perdure.stores.statements import Statements

NAMESPACE: Final = "perdure"

_QUALIFIED = re.compile(rf"\b{NAMESPACE}(?=\.\w)")


def refuse_name(namespace: str) -> None:
    """Raise `CannotOpen` for a namespace that cannot stand in our SQL: there `$$` ends the body of a function, braces
    are places for conditions, and a line ends a comment."""
    bad = not namespace.isprintable() or any(text in namespace for text in ("$$", "{", "}"))
    if bad or not 0 < len(namespace.encode()) < 64:
        raise CannotOpen(
            f"{namespace!a:.80} is no name of a schema here: it has 1 to 63 bytes, all printable, and no $$, {{ or }}"
        )


def quoted(namespace: str) -> str:
    return namespace if namespace == NAMESPACE else '"' + namespace.replace('"', '""') + '"'


def text_of(name: str, namespace: str) -> str:
    """A file of this package, for a namespace."""
    text = files(__package__).joinpath(name).read_text("utf-8")
    return _QUALIFIED.sub(lambda _: quoted(namespace), text)


@lru_cache(maxsize=16)
def statements(namespace: str) -> Statements:
    return Statements(text_of("queries.sql", namespace))
