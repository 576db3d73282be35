"""Instances: the kernel's state of one running workflow. Plain data; only `apply` changes it.

The live machine, the undelivered events and the rows being replayed hang on an instance too, but they are not state:
they can be dropped at any time (eviction) and are found again from the journal and the inbox.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from .decision import Outcome, Stuck
from .effects import OURS, Call, Effect, attempt_of, due_of
from .events import Address, Event, Parent
from .identity import Identity
from .location import Patterns
from .moment import TIME_MAX
from .status import TERMINAL, Status

if TYPE_CHECKING:
    from .entry import Entry
    from .machine import Machine, Workflow
    from .mailbox import Offer


class Intent(msgspec.Struct, gc=False):
    """An admitted effect that has no receipt yet. Its id is the waiting token."""

    id: bytes
    effect: Effect
    delivery: int = 1  # how often the executor was asked; recorded before it is asked
    strikes: int = (
        1  # deliveries that count: not those that were parked, nor those made in the company of other suspects
    )
    counted: bool = True  # whether the last delivery is among the strikes
    held: bool = False  # by the gate
    frames: int = 0  # the number of the last recorded frame

    @property
    def here(self) -> bool:
        """Whether it is a call that makes its instance a running one. A call with a worker lets its instance wait."""
        return type(self.effect) is Call and (self.held or self.effect.executor in OURS)


class Instance:
    """See the module. `version` is the number of its entries; `seq` the place of the last one in the journal."""

    __slots__ = (
        "_identity",
        "address",
        "calls",
        "cancelled",
        "definition",
        "generation",
        "id",
        "input_hash",
        "kept",
        "machine",
        "made",
        "mailbox",
        "next_due",
        "open",
        "outcome",
        "parent",
        "patterns",
        "published",
        "queued",
        "rewound",
        "root",
        "seed",
        "seen",
        "seq",
        "shelf",
        "snapshot_at",
        "snapshot_size",
        "started_at",
        "status",
        "stuck",
        "tags",
        "tail",
        "tail_size",
        "version",
        "weight",
        "woken",
        "workflow",
    )

    def __init__(self, address: Address) -> None:
        # state
        self.address = address
        self.id = 0  # the seq of its first entry; 0: not started
        self.generation = 0
        self.definition = ""  # the version of the workflow that it started with
        self.status = Status.RUNNING
        self.version = 0
        self.seq = 0
        self.seed = b""
        self.input_hash = b""
        self.started_at = 0
        self.parent: Parent | None = None
        self.root = 0  # the first of its family: itself, if it has no parent
        self.tags: dict[str, str] = {}
        self.open: dict[bytes, Intent] = {}
        self.calls = 0  # open intents that are calls, but for those that are with workers
        self.patterns = Patterns()
        self.seen: dict[str, int | None] = {}  # the ids of messages, with their content if this memory has seen it
        self.published: dict[str, bytes] = {}
        self.cancelled = False
        self.stuck: Stuck | None = None
        self.kept: Event | None = None  # the event that a retry delivers again
        self.outcome: Outcome | None = None
        self.made = False  # by a message
        self.rewound = 0  # the entry that rewound it last: the ids of all that was opened since are its own
        # not state
        self.next_due = TIME_MAX  # no open timer or deadline is due before; those that were closed may count still
        self._identity: Identity | None = None
        self.workflow: Workflow | None = None
        self.machine: Machine | None = None
        self.mailbox: deque[Offer] = deque()
        self.shelf: list[Offer] = []  # events that a stuck instance could not take
        self.queued = False
        self.tail: list[Entry] | None = None  # what the machine must be rebuilt from
        self.snapshot_at: bytes | None = None
        self.snapshot_size = 0
        self.tail_size = 0
        self.weight = 0  # bytes of state that its machine holds, if that is a value
        self.woken = False  # made by a message, loaded, and has not left its state since

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def root_of_children(self) -> int:
        """What the start of a child says of its root. 0: the child's parent is the root, and need not be named."""
        return self.root if self.root != self.id else 0

    @property
    def halted(self) -> bool:
        """It is stuck as a whole, and takes no events until a person acts."""
        return self.stuck is not None and not self.stuck.open

    @property
    def identity(self) -> Identity:
        if self._identity is None:
            self._identity = Identity(self.address, self.generation, self.seed, self.rewound)
        return self._identity

    @identity.setter
    def identity(self, identity: Identity) -> None:
        self._identity = identity

    def put(self, intent: Intent) -> None:
        """Count an intent as open: the one place, for entries and for snapshots."""
        effect = intent.effect
        self.open[intent.id] = intent
        if type(effect) is Call:
            self.calls += intent.held or effect.executor in OURS  # the short way of `Intent.here`
        else:
            due = due_of(effect)
            if due is not None and due < self.next_due:
                self.next_due = due

    def drop(self, id: bytes) -> Intent:
        """An intent that is not open any more."""
        intent = self.open.pop(id)
        effect = intent.effect
        if type(effect) is Call:
            self.calls -= intent.held or effect.executor in OURS  # the short way of `Intent.here`
        return intent

    def intent_id(self, effect: Effect) -> bytes:
        return self.identity.intent(effect.location, attempt_of(effect))

    def at(self, location: str) -> Intent | None:
        """The open intent at a location."""
        return next((intent for intent in self.open.values() if intent.effect.location == location), None)

    def state(self) -> dict[str, object]:
        """All that `apply` folds, comparable: live state equals folded state."""
        return {
            "address": self.address,
            "id": self.id,
            "generation": self.generation,
            "definition": self.definition,
            "status": self.status,
            "version": self.version,
            "seq": self.seq,
            "seed": self.seed,
            "input_hash": self.input_hash,
            "started_at": self.started_at,
            "parent": self.parent,
            "root": self.root,
            "tags": self.tags,
            "open": {id: (i.effect, i.delivery, i.strikes, i.counted, i.held, i.frames) for id, i in self.open.items()},
            "calls": self.calls,
            "patterns": self.patterns.texts(),
            "seen": list(self.seen),
            "published": self.published,
            "cancelled": self.cancelled,
            "stuck": self.stuck,
            "kept": self.kept,
            "outcome": self.outcome,
            "made": self.made,
            "rewound": self.rewound,
        }
