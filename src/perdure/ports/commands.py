"""Rows of the table of commands: what people can type, and where it is. They import nothing, so help is quick."""

from typing import NamedTuple


class CommandRow(NamedTuple):
    """`help` is one line; `example` is a whole command that could be typed as it stands.

    `module` has the command, if that is not the module of its group.
    """

    name: str
    help: str
    example: str
    module: str = ""


class CommandGroup(NamedTuple):
    """Commands of two words that begin with `name`: `perdure cells ls` is `ls` in the module of the group `cells`."""

    name: str
    help: str
    module: str
    rows: tuple[CommandRow, ...]
