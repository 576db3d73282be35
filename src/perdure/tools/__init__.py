"""Tools: what playbooks, flows and workers can do outside. `perdure.tools.http` is a step for flows, too."""

from typing import Any

from .tool import Told, Tool, ToolCall, ToolError, described, find, names

__all__ = ["Told", "Tool", "ToolCall", "ToolError", "described", "find", "names"]


def __getattr__(name: str) -> Any:
    """A tool by its name, imported when it is first used."""
    if name.startswith("_") or name not in names():
        raise AttributeError(name)
    return find(name)
