"""Exit codes, for scripts. One table for the help text, the reference and the code."""

import re
from enum import IntEnum
from typing import Any, Final

import click

from perdure import errors


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    TIMEOUT = 5
    DATABASE = 6
    DENIED = 7
    INTERRUPTED = 130


MEANING: Final = {
    Exit.OK: "done",
    Exit.FAILED: "run: the instance failed, was cancelled or is stuck; check, replay, doctor: problems were found; "
    "diff: there are differences",
    Exit.USAGE: "wrong usage or bad input",
    Exit.NOT_FOUND: "no such instance, workflow, location, snapshot or task",
    Exit.CONFLICT: "conflict: key in use, instance ended, not stuck, still running, another engine runs, a rule of the "
    "world, a task that is taken or ended",
    Exit.TIMEOUT: "the time was up; the instance goes on",
    Exit.DATABASE: "the database cannot be opened, or failed",
    Exit.DENIED: "with --server: no login, or no right",
    Exit.INTERRUPTED: "interrupted",
}

# The first that fits counts: what is special stands before what is general.
_EXITS: Final[tuple[tuple[type[errors.PerdureError], Exit], ...]] = (
    (errors.UnknownInstance, Exit.NOT_FOUND),
    (errors.UnknownWorkflow, Exit.NOT_FOUND),
    (errors.UnknownLocation, Exit.NOT_FOUND),
    (errors.UnknownSnapshot, Exit.NOT_FOUND),
    (errors.UnknownTask, Exit.NOT_FOUND),
    (errors.InstanceForgotten, Exit.NOT_FOUND),
    (errors.UnknownVersion, Exit.NOT_FOUND),
    (errors.DefinitionConflict, Exit.CONFLICT),
    (errors.AmbiguousReference, Exit.CONFLICT),
    (errors.WorkflowUnavailable, Exit.CONFLICT),
    (errors.KeyInUse, Exit.CONFLICT),
    (errors.SelectionChanged, Exit.CONFLICT),
    (errors.BulkRunning, Exit.CONFLICT),
    (errors.TooBroad, Exit.CONFLICT),
    (errors.InstanceEnded, Exit.CONFLICT),
    (errors.NotStuck, Exit.CONFLICT),
    (errors.RuleRefused, Exit.CONFLICT),
    (errors.StalePatch, Exit.CONFLICT),
    (errors.StillRunning, Exit.CONFLICT),
    (errors.DoesNotFit, Exit.CONFLICT),
    (errors.VersionConflict, Exit.CONFLICT),
    (errors.TaskRefused, Exit.CONFLICT),
    (errors.EngineRunning, Exit.CONFLICT),
    (errors.NotEmpty, Exit.CONFLICT),
    (errors.ResultTimeout, Exit.TIMEOUT),
    (errors.AskTimeout, Exit.TIMEOUT),
    (errors.InstanceFailed, Exit.FAILED),
    (errors.InstanceCancelled, Exit.FAILED),
    (errors.InstanceStuck, Exit.FAILED),
    (errors.StoreError, Exit.DATABASE),
    (errors.PerdureError, Exit.USAGE),
)


_OPTIONS: Final = {
    'reuse="failed"': "--reuse failed",
    'reuse="always"': "--reuse always",
    "force=True": "--force",
    "register it, workflows=[...]": "ask a server that has it, or a database with --db and --against",
    "register it: perdure.open(url, workflows=[...])": "correct the name, or run an engine that has this workflow",
}


def in_options(text: str) -> str:
    """Errors speak Python; here people write commands and options."""
    for python, option in _OPTIONS.items():
        text = text.replace(python, option)
    return re.sub(r"perdure\.connect\([^)]*\)", "`perdure start`, `perdure send` and the like", text)


def kind_of(error: type[errors.PerdureError]) -> str:
    """The name of an error, for programs."""
    return "Usage" if issubclass(error, errors.UnclearRequest) else error.__name__


def exit_of(error: errors.PerdureError) -> Exit:
    return exit_of_kind(type(error))


def exit_of_kind(error: type[errors.PerdureError]) -> Exit:
    return next(code for kind, code in _EXITS if issubclass(error, kind))


class Stopped(click.ClickException):
    """The command ends here, with a message of one line or few. `kind` is for programs."""

    def __init__(self, message: str, exit: Exit = Exit.USAGE, *, kind: str = "Usage") -> None:
        super().__init__(message)
        self.exit = exit
        self.kind = kind

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return int(self.exit)

    @property
    def document(self) -> dict[str, Any]:
        return {"error": {"type": self.kind, "message": self.message, "exit": self.exit_code}}

    def show(self, file: Any = None) -> None:
        from .text import Lines, shown, style

        text = f"{style('perdure:', fg='red')} {self.message}"
        click.echo(shown(Lines(text) if isinstance(self.message, Lines) else text), err=True)
