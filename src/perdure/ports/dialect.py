"""THE contract with `app`: what a dialect says of itself. Each has one such value, in its `dialect.py`.

A package of its own may bring a dialect too. It names it as an entry point of the group `perdure.dialects`:

    [project.entry-points."perdure.dialects"]
    recipe = "recipes.dialect:DIALECT"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from perdure.errors import AuthorError
from perdure.kernel.events import Address
from perdure.kernel.machine import Workflow
from perdure.kernel.workflows import Workflows

from .executor import Handler
from .seen import Words

Published = Mapping[str, bytes | None]


class Beginning(msgspec.Struct, frozen=True):
    """An instance that is there from the first open on. `check` hears what an existing one has published under `names`,
    and raises if this code cannot go on with it.
    """

    address: Address
    version: str
    input: bytes
    names: tuple[str, ...] = ()
    check: Callable[[Published, Workflows[Any]], None] | None = None


class Performers(Protocol):
    """Says which handlers perform the named effects of a dialect, for one engine.

    `given` are those of the users, `built_in` functions of this engine by name (`http`, `blob-put`, `blob-get`).
    `steps` makes the handler that calls step functions, for the effect of a name. `lenient`: an effect that nothing
    performs is answered with an error when it is asked for.
    """

    def __call__(
        self,
        given: Sequence[Any],
        built_in: Mapping[str, Callable[..., Any]],
        steps: Callable[[str], Handler],
        *,
        lenient: bool,
    ) -> Sequence[Handler]: ...


class Stored(msgspec.Struct, frozen=True):
    """A definition that is data, as the database keeps it. `dialect` is the name of its dialect."""

    name: str
    version: str
    dialect: str
    definition: bytes
    digest: str
    rule: str = "highest"  # which version is active if no person activated one: the highest, or the last


class Opening(msgspec.Struct, frozen=True):
    """An engine that is about to open, for a dialect that checks its definitions.

    `strict`: a definition with errors is raised; else `unavailable` is told of it, and it does not run. A dialect is
    asked twice: before the database is opened, and when it has told the names that it has (`whole`).
    """

    workflows: Sequence[str]  # the names that are known
    handlers: Sequence[Any]
    strict: bool
    unavailable: Callable[[Workflow, AuthorError], None]
    whole: bool = False
    put: Workflow | None = None  # a definition that comes while the engine runs: this one alone is checked
    find: Callable[[str], Workflow | None] = lambda _: None  # the newest of a name, also of one that comes later


class Gathered(msgspec.Struct, frozen=True):
    """What a dialect made of what users passed to `workflows=`."""

    workflows: Sequence[Workflow] = ()  # what the kernel runs
    rest: Sequence[Any] = ()  # what is not of this dialect
    opened: Callable[[], None] | None = None  # an engine is about to run them: warn now
    enclosure: AbstractContextManager[None] | None = None  # what surrounds all deliveries of a turn
    beginnings: Sequence[Beginning] = ()
    performers: Performers | None = None
    dialect: str = ""
    check: Callable[[Opening], None] | None = None
    definitions: Sequence[Stored] = ()  # to be kept in the database
    restore: Callable[[Stored], Workflow] | None = None  # makes a workflow of a definition that the database has


class Catalog(Protocol):
    """The events that a ruler takes, by the rules with this hash."""

    @property
    def hash(self) -> str: ...

    def encode(self, event: Any, key: str | None = None) -> tuple[str, bytes]: ...

    def encode_json(self, name: str, data: Any) -> tuple[str, bytes]: ...


class Dialect(Protocol):
    @property
    def name(self) -> str:
        """What people call an instance of it: `Policy.noun` of its workflows."""
        ...

    @property
    def catalog(self) -> Callable[[bytes | None], Catalog] | None:
        """Reads what the ruler has published of what it takes from outside; None: no ruler is of this dialect.

        Where a database has no ruler, it is called with None, and raises.
        """
        ...

    @property
    def words(self) -> Mapping[str, Words]:
        """What is said of its instances, by `Policy.noun` of the workflow."""
        ...

    def gather(self, given: Sequence[Any]) -> Gathered:
        """Take what is of this dialect out of what users passed."""
        ...


@runtime_checkable
class Chooses(Protocol):
    """A dialect may also say what it gathers of a module's values, where a person names the module alone."""

    def meant(self, given: Sequence[Any]) -> Sequence[Any]: ...


class Brought(Protocol):
    """What an author declared with a function, which effects and queues call."""

    @property
    def brought(self) -> Callable[..., Any]: ...


@runtime_checkable
class DeclaresSteps(Protocol):
    """A dialect may also have steps that authors declared in this process, by module and qualified name."""

    @property
    def steps(self) -> Mapping[tuple[str, str], Brought]: ...
