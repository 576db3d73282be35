"""THE contract: what a dialect must give, and all that the kernel knows of it.

A machine is the live form of one instance. It never does I/O, never reads a clock and never rolls dice: time and
entropy come in with the moment. Given the same events and moments it makes the same decisions; replay checks that.
"""

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from .decision import Decision
from .difference import Difference, Explanation
from .events import Event
from .limits import Limits
from .moment import Moment
from .policy import Policy
from .routing import Subscription


class Rebuild(Exception):
    """Raised by `Machine.snapshot`: the machine kept too little for one. Rebuilt from its journal, it keeps enough."""


class Machine(Protocol):
    def deliver(self, event: Event, moment: Moment) -> Decision:
        """Answer one event. An exception makes the instance stuck and keeps the event.

        In a replay a machine may go ahead: take the receipt that came next from `moment.recording`, if it has just
        decided what is recorded, and go on. The answer is then its decision on the last event that it took.
        """
        ...

    def work(self, intent: bytes) -> object:
        """The live work of an open call that stays in this process: arguments and function, which no journal holds."""
        ...

    def snapshot(self) -> bytes | None:
        """State from which `Workflow.machine` goes on, or None when the journal itself is no longer than that.

        A machine may have an attribute `pruned`: while it is true, a snapshot is due, however short the journal is.
        """
        ...

    def dispose(self) -> None:
        """The machine is evicted: let go of everything without any visible effect."""
        ...


class Migratable(Machine, Protocol):
    """A machine whose state is a value."""

    @property
    def digest(self) -> bytes:
        """Of the state, as decisions have it."""
        ...

    @property
    def size(self) -> int:
        """Of the state, in bytes."""
        ...


class Workflow(Protocol):
    """A definition that can make machines. `name` and `version` are what the journal records."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def parameters(self) -> bytes:
        """What a start by name must satisfy, as canonical bytes (`codec/parameters.py`); empty: anything is taken."""
        ...

    @property
    def policy(self) -> Policy: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def subscriptions(self) -> tuple[Subscription, ...]: ...

    def machine(self, address: str, snapshot: bytes | None) -> Machine: ...

    def differs(self, recorded: Decision, current: Decision) -> bool:
        """Whether replay found another decision than the recorded one, in the terms of this dialect."""
        ...

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        """What replay found, in the words of this dialect's authors, with the place in their source and an advice."""
        ...


@runtime_checkable
class Choosy(Workflow, Protocol):
    """A definition that knows which input it takes."""

    def refuse_input(self, input: bytes) -> str:
        """Why it does not take this input; empty: it does."""
        ...


@runtime_checkable
class Governed(Workflow, Protocol):
    """A definition that rules may name: instances of an earlier one may migrate to it."""

    def migrated(self, address: str, machine: Machine, rules: str) -> Migratable:
        """Its machine, with what a machine of the earlier definition holds. Raises if that cannot be.

        `rules` is the hash of those that name this definition; empty in journals of earlier versions.
        """
        ...


@runtime_checkable
class Successor(Workflow, Protocol):
    """A definition that takes over an instance of another version when a person asks for it."""

    def locations(self) -> Collection[str]:
        """Where its steps stand, loops without numbers."""
        ...

    def take_over(
        self, address: str, machine: Machine, renamed: Mapping[str, str], moment: Moment
    ) -> tuple[Machine, Decision]:
        """Its machine, with what a machine of the other version holds, and the decision with its first snapshot.

        `renamed` has new locations by the old ones. Raises `DoesNotFit`, with all that has no place in this definition.
        """
        ...
