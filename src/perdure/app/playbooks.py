"""Playbooks from files: the text, and the tools that are installed here."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from perdure.errors import CallerError
from perdure.playbooks.author import PlaybookWorkflow, from_text
from perdure.playbooks.kinds import Kind, tool_kinds
from perdure.tools import described


@cache
def installed() -> dict[str, Kind]:
    """The kinds of the tools that are installed."""
    return tool_kinds(described())


def load_playbook(source: str | os.PathLike[str]) -> PlaybookWorkflow:
    """A playbook from a file, or from a text with more than one line. Raises `BadPlaybook` with all problems."""
    if isinstance(source, str) and "\n" in source:
        return from_text(source, "<text>", installed())
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CallerError(f"the playbook {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CallerError(f"the playbook {path} is not UTF-8") from None
    return from_text(text, str(source), installed())
