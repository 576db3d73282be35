"""The command line: `verbs.py` names the commands, `commands/` has a module for each, imported on use."""

from .group import cli, main

__all__ = ["cli", "main"]
