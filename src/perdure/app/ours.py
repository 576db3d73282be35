"""The dialects of perdure itself: their packages, and the files that their definitions stand in.

No other file of `app` names a dialect. Each is imported when something of it is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.errors import BadProcess, CallerError, Problem

if TYPE_CHECKING:
    from perdure.graphs import Graph
    from perdure.playbooks.author import PlaybookWorkflow
    from perdure.playbooks.kinds import Kind
    from perdure.processes import Process
    from perdure.runtime.client import Client
    from perdure.runtime.definitions import Definitions

OURS: Final = ("flows", "cells", "playbooks", "graphs", "processes")
"""The packages of our dialects. Each has `author.py`, without which nothing of it can be made, and `dialect.py`."""

FILES: Final = (".json", ".yaml", ".yml")
"""How the names of files end that have definitions."""

_PROCESS: Final = re.compile(r"^(\{\s*)?[\"']?(format|steps)\b", re.MULTILINE)


class FileKind(NamedTuple):
    """What the definition in a file is. `problems`: all that is wrong with a file, where no definition tells that.

    `simulate`: the command that runs the definition on stubs.
    """

    noun: str
    load: Callable[[str], Any]
    of_text: Callable[[str], Any]
    kept: Callable[[Client], Definitions]
    problems: Callable[[str], Sequence[Any]] | None = None
    schema: Callable[[], dict[str, Any]] | None = None
    simulate: tuple[str, ...] = ()


def kind_of_file(file: str) -> FileKind:
    """JSON is a process. YAML that is no process is a playbook: its reader says what is wrong with the file."""
    if not file.endswith((".yaml", ".yml")):
        return PROCESS
    try:
        text = Path(file).read_text("utf-8", "replace")
    except (OSError, ValueError):
        return PLAYBOOK
    return PLAYBOOK if _PROCESS.search(text) is None else PROCESS


def kind_of_text(text: str) -> FileKind:
    """The same of a text: what begins with { is JSON, and so a process."""
    return PROCESS if text.lstrip().startswith("{") or _PROCESS.search(text) is not None else PLAYBOOK


def _process_of(text: str) -> Process:
    from perdure.processes.load import from_text

    return from_text(text)


def _process_schema() -> dict[str, Any]:
    from perdure.processes.model import json_schema

    return json_schema()


def load_process(path: str | os.PathLike[str]) -> Process:
    """The process of a file, JSON or YAML 1.2. Its problems have line and column."""
    from perdure.processes.load import from_text

    name = os.fspath(path)
    if name.endswith(".py"):
        raise CallerError(f"{name} is Python: import the process, as it is; files of definitions are JSON or YAML")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CallerError(f"{name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadProcess(name, (Problem(name, "it is not UTF-8", "PD003", "save it as UTF-8"),)) from None
    return from_text(text, name, yaml=False if name.endswith(".json") else None)


def load_graph(
    path: str | Path,
    *,
    runner: Callable[..., Any] | None = None,
    runners: Mapping[str, Callable[..., Any]] | None = None,
    tools: Iterable[Any] = (),
) -> Graph:
    """The graph of a YAML or JSON file. Its runners and tools are code, and come with the call.

    `BadGraph` tells every problem with its line and column.
    """
    from perdure.graphs.load import from_text

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"{path} cannot be read: {error}") from None
    return from_text(text, str(path), runner=runner, runners=runners, tools=tools)


def load_playbook(source: str | os.PathLike[str]) -> PlaybookWorkflow:
    """A playbook from a file, or from a text with more than one line. Raises `BadPlaybook` with all problems."""
    from perdure.playbooks.author import from_text

    if isinstance(source, str) and "\n" in source:
        return from_text(source, "<text>", installed())
    return from_text(_playbook_text(source), str(source), installed())


def playbook_problems(file: str) -> Sequence[Any]:
    """All problems of a playbook's file, and else its warnings."""
    from perdure.playbooks.check import problems_of

    return problems_of(_playbook_text(file), file, installed())


@cache
def installed() -> dict[str, Kind]:
    """The kinds of the tools that are installed."""
    from perdure.playbooks.kinds import tool_kinds
    from perdure.tools import described

    return tool_kinds(described())


def _playbook_text(file: str | os.PathLike[str]) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise CallerError(f"the playbook {os.fspath(file)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CallerError(f"the playbook {os.fspath(file)} is not UTF-8") from None


PROCESS: Final = FileKind("process", load_process, _process_of, lambda client: client.processes, schema=_process_schema)
PLAYBOOK: Final = FileKind(
    "playbook",
    load_playbook,
    lambda text: load_playbook(f"{text}\n"),
    lambda client: client.playbooks,
    playbook_problems,
    simulate=("playbooks", "simulate"),
)

SCHEMAS: Final = {kind.noun: kind.schema for kind in (PROCESS, PLAYBOOK) if kind.schema is not None}
"""What makes the JSON Schema of a definition, by the name of its dialect."""
