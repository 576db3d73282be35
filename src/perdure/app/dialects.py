"""Which dialects there are, and what they make of what users pass to `workflows=`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from importlib import import_module
from typing import Any, Final, cast

from perdure.bulk.model import Perform
from perdure.errors import AuthorError, CallerError, NotInstalled
from perdure.kernel.events import Started
from perdure.kernel.machine import Workflow
from perdure.kernel.policy import ANY
from perdure.kernel.workflows import OWN, Workflows
from perdure.ports.dialect import Beginning, Brought, Catalog, Chooses, DeclaresSteps, Dialect, Gathered, Opening
from perdure.ports.seen import Words
from perdure.runtime.connection import Connection
from perdure.runtime.log import log

from .ours import OURS

GROUP: Final = "perdure.dialects"
"""The entry points of dialects that other packages bring."""


def registered(workflows: Iterable[Any]) -> tuple[Workflows[Workflow], list[Gathered]]:
    """What the kernel runs of what was given, and what each dialect says of its own."""
    if hasattr(workflows, "machine") or isinstance(workflows, str):
        raise CallerError(f"workflows is a list of workflows, found {workflows!r}: write workflows=[...]")
    found, gathered = gather(workflows)
    return Workflows(found), gathered


def gather(workflows: Iterable[Any]) -> tuple[list[Workflow], list[Gathered]]:
    found: list[Workflow] = []
    gathered: list[Gathered] = []
    rest: Sequence[Any] = list(workflows)
    for dialect in _of_ours():
        rest = _taken(dialect, rest, found, gathered)
    if any(not _is_workflow(each) for each in rest):
        for dialect in _of_others():
            rest = _taken(dialect, rest, found, gathered)
    for each in rest:
        if not _is_workflow(each):
            raise CallerError(f"{each!r} is not a workflow; did you forget @perdure.flow?")
    given = [*found, *rest]
    for workflow in given:
        if workflow.name.startswith(OWN):
            raise CallerError(f"a workflow is named {workflow.name!r}: names that begin with {OWN!r} belong to perdure")
    return given, gathered


def built_in(perform: Perform | None = None) -> list[Workflow]:
    """The workflows that every engine has. `perform` does the parts of bulks."""
    from perdure.access.machine import ACCESS
    from perdure.bulk.machine import BulkWorkflow
    from perdure.definitions.machine import DEFINITIONS
    from perdure.tasks.machine import TASKS

    return [TASKS, DEFINITIONS, ACCESS, BulkWorkflow(perform)]


def checked(
    gathered: Iterable[Gathered], known: Workflows[Any], handlers: Iterable[Any], check: str, *, whole: bool = False
) -> None:
    """Definitions with errors are raised, before any instance moves; or they are logged, and do not run.

    `whole`: the names that the database has are known, too.
    """
    if check not in ("strict", "warn"):
        raise CallerError(f'check={check!r}: a definition with errors is refused ("strict"), or logged ("warn")')

    def unavailable(workflow: Workflow, error: AuthorError) -> None:
        if known.unavailable.get(workflow.name) != error:
            log.warning("it cannot be started: %s", error)
        known.remove(workflow, error)

    for each in gathered:
        if each.check is not None:
            each.check(Opening(known.names(), list(handlers), check == "strict", unavailable, whole, find=known.newest))


def _taken(dialect: Dialect, given: Sequence[Any], found: list[Workflow], gathered: list[Gathered]) -> Sequence[Any]:
    taken = dialect.gather(given)
    found += taken.workflows
    gathered.append(taken)
    return taken.rest


def _is_workflow(given: Any) -> bool:
    return hasattr(type(given), "machine") and hasattr(type(given), "encode_input")


def workflows_in(values: Iterable[Any]) -> list[Workflow]:
    """The workflows among the values of a module, in whatever dialect, but for those that an engine begins."""
    given = list({id(value): value for value in values if not isinstance(value, type)}.values())
    found: list[Workflow] = []
    for dialect in (*_of_ours(), *_of_others()):
        found += dialect.gather(dialect.meant(given) if isinstance(dialect, Chooses) else given).workflows
    plain = [each for each in given if _is_workflow(each) and each not in found]
    return [each for each in (*found, *plain) if each.policy.created != "engine"]


def _of_ours() -> list[Dialect]:
    """Those that this process has imported: nothing can have been made in the others."""
    return [_dialect(package) for package in OURS if f"perdure.{package}.author" in sys.modules]


def _dialect(package: str) -> Dialect:
    return cast(Dialect, import_module(f"perdure.{package}.dialect").DIALECT)


def declared_step(module: str, name: str) -> Callable[..., Any] | None:
    """The function that an author declared as a step, by its module and its name there."""
    for steps in _declared():
        found = steps.get((module, name))
        if found is not None:
            function: Callable[..., Any] = found.brought
            return function
    return None


def declares_steps(module: str) -> bool:
    return any(place == module for steps in _declared() for place, _ in steps)


def _declared() -> list[Mapping[tuple[str, str], Brought]]:
    return [dialect.steps for dialect in _of_ours() if isinstance(dialect, DeclaresSteps)]


def dialect_of(name: str) -> Dialect | None:
    """The dialect of this name, imported if need be."""
    missing: NotInstalled | None = None
    for package in OURS:
        try:
            found = _dialect(package)
        except NotInstalled as error:  # perhaps it is not the dialect that is asked for
            missing = error
            continue
        if found.name == name:
            return found
    if missing is not None:
        raise missing
    return None


def _of_others() -> list[Dialect]:
    from importlib.metadata import entry_points

    return [cast(Dialect, point.load()) for point in entry_points(group=GROUP)]


class _Nested:
    """Several enclosures, entered one after the other at each turn."""

    def __init__(self, enclosures: list[AbstractContextManager[None]]) -> None:
        self._enclosures = enclosures
        self._stack = ExitStack()

    def __enter__(self) -> None:
        for enclosure in self._enclosures:
            self._stack.enter_context(enclosure)

    def __exit__(self, *error: Any) -> None:
        self._stack.close()


def enclosure_of(gathered: Iterable[Gathered]) -> AbstractContextManager[None]:
    found = [each.enclosure for each in gathered if each.enclosure is not None]
    if len(found) <= 1:
        return found[0] if found else nullcontext()
    return _Nested(found)


async def begin(connection: Connection, beginnings: Iterable[Beginning], known: Workflows[Any]) -> None:
    """Instances that a dialect brings: each begins with the first open, and is checked by every later one."""
    for beginning in beginnings:
        address = beginning.address
        head = await connection.queries.head(address)
        if head is None:
            started = Started(address.workflow, address.key, beginning.input, connection.entropy(), beginning.version)
            await connection.put(address, started)
        elif beginning.check is not None:
            published = {name: await connection.queries.published(head.id, name) for name in beginning.names}
            beginning.check(published, known)


def words_of(noun: str | None, made: bool) -> Words:
    """What is said of instances of a workflow, by its `Policy.noun`; where no dialect knows that, the common words.

    None: no engine has registered the workflow lately. Then what a message `made` is of the dialect that has a ruler.
    """
    if noun is None and made:
        ruling = next(dialect for package in OURS if (dialect := _dialect(package)).catalog is not None)
        return ruling.words[ruling.name]
    wanted = ANY.noun if noun is None else noun
    for package in OURS:
        with suppress(NotInstalled):  # an extra that is not there: nothing of that dialect runs here
            if wanted in (words := _own_words(_dialect(package))):
                return words[wanted]
    return next((words[wanted] for words in map(_own_words, _of_others()) if wanted in words), Words())


def _own_words(dialect: Dialect) -> Mapping[str, Words]:
    """A dialect that says nothing of its instances may leave them out."""
    return getattr(dialect, "words", {})


def read_catalog(definitions: bytes | None) -> Catalog:
    """What the ruler takes from outside, by what it has published. None: there is no ruler, and its dialect says so."""
    for package in OURS:
        catalog = _dialect(package).catalog
        if catalog is not None:
            return catalog(definitions)
    raise AssertionError("a ruler is of some dialect")
