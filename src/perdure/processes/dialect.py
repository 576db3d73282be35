"""What `app` knows of processes: how they are checked, kept and restored, and what performs their calls."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from perdure.codec import decode
from perdure.errors import BadProcess, Problem
from perdure.ports.dialect import Gathered, Opening, Stored
from perdure.ports.executor import Handler
from perdure.ports.seen import Words

from .check import UNKNOWN_WORKFLOW, Known
from .functions import Transport, UserFunction
from .process import Process
from .transports import handlers
from .words import ProcessWords
from .workflow import NOUN

log = logging.getLogger("perdure")


class ProcessDialect:
    name = NOUN
    catalog = None
    words: Final[Mapping[str, Words]] = {NOUN: ProcessWords()}

    def gather(self, given: Sequence[Any]) -> Gathered:
        processes = [each for each in given if isinstance(each, Process)]
        functions = [each for each in given if isinstance(each, UserFunction)]
        rest = [each for each in given if not isinstance(each, Process | UserFunction)]
        users = {each.name: each for each in functions}
        valid = [each for each in processes if not _errors(each.problems)]
        for each in valid:
            each.bind({name: users[name].function for name in users})
        return Gathered(
            valid,
            rest,
            performers=perform,
            dialect=NOUN,
            check=Checking(processes, users),
            definitions=[each.stored for each in valid],
            restore=Restoring(users),
        )


DIALECT: Final = ProcessDialect()


def perform(
    given: Sequence[Any],
    built_in: Mapping[str, Callable[..., Any]],
    steps: Callable[[str], Handler],
    *,
    lenient: bool,
) -> list[Handler]:
    return handlers(given, built_in["http"], steps)


class Restoring:
    """A definition that the database has, as a process of this engine."""

    def __init__(self, users: Mapping[str, UserFunction]) -> None:
        self._users = users

    def __call__(self, stored: Stored) -> Process:
        process = Process.of(decode(stored.definition), f"{stored.name} {stored.version} in the database")
        process.bind({name: self._users[name].function for name in self._users})
        return process


class Checking:
    """All problems of all processes, before any instance moves."""

    def __init__(self, processes: Sequence[Process], users: Mapping[str, UserFunction]) -> None:
        self._processes = processes
        self._users = users

    def __call__(self, opening: Opening) -> None:
        transports = {each.name for each in opening.handlers if isinstance(each, Transport)}
        functions = {name: each.version for name, each in self._users.items()}
        workflows = None if opening.put is not None else set(opening.workflows)  # a child may be put later
        known = Known(functions, transports, workflows, is_step)
        processes = self._processes if opening.put is None else [cast(Process, opening.put)]
        found = [(process, _errors(process.problems_with(known))) for process in processes]
        wrong = [(process, errors) for process, errors in found if errors]
        if not opening.whole and all(each.code == UNKNOWN_WORKFLOW for _, errors in wrong for each in errors):
            return  # the database may have these workflows
        if wrong and opening.strict:
            names = " and ".join(f"{process.name} {process.number}" for process, _ in wrong)
            raise BadProcess(names, tuple([each for _, errors in wrong for each in errors]))
        for process, errors in wrong:
            opening.unavailable(process, BadProcess(f"{process.name} {process.number}", tuple(errors)))


def _errors(problems: Sequence[Problem]) -> list[Problem]:
    return [each for each in problems if each.severity == "error"]


def is_step(place: str) -> bool:
    """Whether `module:function` is a step. The definition's author names the module, so it may be imported."""
    module, _, path = place.partition(":")
    main = sys.modules.get("__main__")
    script = str(getattr(main, "__file__", "") or "").rpartition("/")[2].removesuffix(".py")
    try:
        found: Any = main if module == script else importlib.import_module(module)
    except Exception as error:
        log.warning("the module %s of a process cannot be imported: %s", module, error)
        return False
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is not None and type(found).__name__ == "StepFunction"
