"""The SQL files in one namespace: they are written for `perdure`, and another name is put in its place."""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

from perdure.stores.statements import Statements

NAMESPACE: Final = "perdure"

_QUALIFIED = re.compile(rf"\b{NAMESPACE}(?=\.\w)")


def quoted(namespace: str) -> str:
    return namespace if namespace == NAMESPACE else '"' + namespace.replace('"', '""') + '"'


def text_of(name: str, namespace: str) -> str:
    """A file of this package, for a namespace."""
    text = files(__package__).joinpath(name).read_text("utf-8")
    return _QUALIFIED.sub(lambda _: quoted(namespace), text)


@lru_cache(maxsize=16)
def statements(namespace: str) -> Statements:
    return Statements(text_of("queries.sql", namespace))
