"""A mistake in an expression that is known before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import msgspec


class Problem(msgspec.Struct, frozen=True):
    code: str
    text: str
    hint: str = ""
    path: tuple[str | int, ...] = ()  # in a tree, or in the value that holds the text
    line: int = 0  # in the text, from 1; 0: there is none
    column: int = 0

    def __str__(self) -> str:
        place = "".join(f"/{key}" for key in self.path) + (f":{self.line}:{self.column}" if self.line else "")
        return f"{place or '/'}: {self.code}: {self.text}" + (f"; {self.hint}" if self.hint else "")


def meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(known), 1)
    return f"did you mean {near[0]}?" if near else ""


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")
