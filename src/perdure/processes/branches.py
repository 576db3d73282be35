"""Where an instance stands: branches, the frames of each, what a branch waits for, and the turns and joins below it.

A branch is a stack of frames, outermost first; the innermost frame names the step that is done now. A branch waits at
one step (`wait`), has stopped there (`stop`), or has further branches side by side below it (`fork`). All of it is
plain data in a snapshot, see `snapshot.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .compile import Op, Seq


class Scope:
    """Results and tasks of the process, or of one turn: what a turn writes is its own."""

    __slots__ = ("outer", "results", "tasks")

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.results: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}

    def all_results(self) -> dict[str, Any]:
        return self.results if self.outer is None else {**self.outer.all_results(), **self.results}

    def all_tasks(self) -> dict[str, Any]:
        return self.tasks if self.outer is None else {**self.outer.all_tasks(), **self.tasks}


class Turns:
    """The loop that a frame is a turn of."""

    __slots__ = ("collected", "count", "index", "items")

    def __init__(self, items: list[Any] | None, count: int | None, index: int = 0) -> None:
        self.items = items  # of `over`
        self.count = count  # of `over` and `times`; None: unknown
        self.index = index
        self.collected: list[Any] = []

    @property
    def item(self) -> Any:
        return None if self.items is None else self.items[self.index]


class Frame:
    """A sequence that is being done. `at` is the place of the step; `role` says what follows the last step."""

    __slots__ = ("at", "error", "given", "prefix", "role", "scope", "seq", "turns")

    def __init__(self, seq: Seq, prefix: str, role: str) -> None:
        self.seq = seq
        self.at = 0
        self.prefix = prefix
        self.role = role
        self.scope: Scope | None = None
        self.turns: Turns | None = None
        self.error: Any = None
        self.given: dict[str, Any] = {}  # roots that were kept for an undo

    @property
    def op(self) -> Op:
        return self.seq.ops[self.at]


class Wait:
    """What a branch waits for at its step. `number` counts how often something was opened at this location."""

    __slots__ = ("age", "attempt", "deadline", "intent", "kind", "number", "params", "place", "since", "tries")

    def __init__(self, kind: str, intent: bytes, number: int = 1) -> None:
        self.kind = kind
        self.intent = intent
        self.number = number
        self.attempt = 1
        self.age = 0
        self.tries = 1  # attempts since the step began, or since a person said: try again
        self.since = 0
        self.params = b""
        self.deadline = b""  # the intent of a timer beside it
        self.place = ""  # where it was opened, if the step was renamed since: attempts keep that, and so their key


class Stop:
    """An error that stopped a branch. `field`: the expression that failed; empty: what the step asked for did."""

    __slots__ = ("age", "attempt", "error", "field", "number", "place")

    def __init__(self, error: dict[str, Any], age: int, field: str = "") -> None:
        self.error = error
        self.age = age
        self.field = field
        self.number = 0
        self.attempt = 0
        self.place = ""  # as of a wait


class Fork:
    """Branches side by side, and what has become of them. `names` are those that have not begun, the next one last."""

    __slots__ = ("collected", "ended", "errors", "live", "names", "needed", "turns")

    def __init__(self, names: list[str], needed: int) -> None:
        self.names = names
        self.needed = needed
        self.live: dict[str, Branch] = {}
        self.ended: list[str] = []
        self.errors: list[dict[str, Any]] = []
        self.turns: Turns | None = None
        self.collected: dict[str, Any] = {}


class Branch:
    __slots__ = ("again", "fork", "frames", "name", "parent", "settled", "stop", "wait", "waited")

    def __init__(self, frames: list[Frame], parent: Branch | None = None, name: str = "") -> None:
        self.frames = frames
        self.parent = parent
        self.name = name
        self.wait: Wait | None = None
        self.stop: Stop | None = None
        self.fork: Fork | None = None
        self.waited: dict[str, Any] = {}  # payload, task, message: what it last waited for
        self.again: Stop | None = None  # a person said: try again
        self.settled: dict[str, Any] = {}  # values that a person gave for expressions, by field

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def op(self) -> Op:
        return self.frame.op

    @property
    def location(self) -> str:
        frame = self.frame
        if 0 <= frame.at < len(frame.seq.ops):
            return frame.prefix + frame.op.name
        if frame.turns is None:  # after the last step
            return f"{frame.prefix}end"
        return frame.prefix.rstrip("/").rpartition("/")[0]  # before a turn or after it: at the loop

    @property
    def scope(self) -> Scope:
        for frame in self.outward():
            if frame.scope is not None:
                return frame.scope
        raise AssertionError("the first frame has a scope")

    def remember(self, wait: Wait) -> None:
        """What a further try must know of a wait that is over: attempts go on counting."""
        self.again = Stop({}, 0)
        self.again.number, self.again.attempt, self.again.place = wait.number, wait.attempt, wait.place

    def outward(self) -> Iterator[Frame]:
        """The frames around this place, innermost first."""
        branch: Branch | None = self
        while branch is not None:
            yield from reversed(branch.frames)
            branch = branch.parent

    def all(self) -> Iterator[Branch]:
        """This branch and all below it."""
        yield self
        if self.fork is not None:
            for branch in self.fork.live.values():
                yield from branch.all()

    def bindings(self) -> dict[str, Any]:
        """The roots that depend on the place: results, tasks, loops, the error, what was waited for."""
        scope = self.scope
        found: dict[str, Any] = {"result": scope.all_results(), "tasks": scope.all_tasks(), **self.waited}
        loops: dict[str, Any] = {}
        error: Any = None
        for frame in self.outward():
            if frame.turns is not None and frame.seq.owner is not None:
                turn = {"item": frame.turns.item, "index": frame.turns.index}
                if not loops:
                    found |= turn
                loops.setdefault(frame.seq.owner.data.get("as", frame.seq.owner.data["name"]), turn)
            if error is None:
                error = frame.error
            for name, value in frame.given.items():
                found.setdefault(name, value)
        return {
            **found,
            "loop": {**loops, **found.get("loop", {})},
            "error": error if error is not None else found.get("error"),
        }
