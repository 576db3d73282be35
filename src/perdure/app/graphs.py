"""Graphs from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.errors import CallerError

if TYPE_CHECKING:
    from perdure.graphs import Graph


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
