"""The bases of all errors: each says who has to act. And `Problem`, one of several things that are wrong."""

from __future__ import annotations

from typing import NamedTuple


class PerdureError(Exception):
    """The base of every error that perdure raises."""

    advises = False  # its text goes on in lines of advice, which faces show as they are


class AuthorError(PerdureError):
    """The author of the workflow is at fault: its code or definition has to change."""


class CallerError(PerdureError):
    """The caller is at fault: what was asked, or the value that came with it, has to change."""


class StoreError(PerdureError):
    """The database is at fault: what it holds, or its state, needs an operator."""


class GraphProblem(NamedTuple):
    """One thing that is wrong with a graph. `where` is a node or a part of the graph; `at` is line:column of a file."""

    where: str
    text: str
    at: str = ""

    def __str__(self) -> str:
        place = f"{self.at}: " if self.at else ""
        return f"{place}{self.where}: {self.text}"


class Problem(NamedTuple):
    """One thing that is wrong: where (a path or a JSON pointer), what, and what to do about it."""

    where: str
    text: str
    code: str = ""
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        code = f" ({self.code})" if self.code else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.text}{hint}{code}"
