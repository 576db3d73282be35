"""The caller is at fault: what was asked has to change."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from .base import CallerError, GraphProblem, Problem


class ManifestChanged(CallerError):
    """The database runs another manifest than the code that opened it.

    An open does not change what is in force. `perdure manifest diff shop.db shop` tells what differs; the module and
    the name of a reducer count too. Propose and apply the new manifest (`perdure manifest`), or open the database with
    the code that it runs.
    """

    def __init__(self, recorded: str, current: str) -> None:
        super().__init__(recorded, current)
        self.recorded = recorded
        self.current = current

    def __str__(self) -> str:
        return (
            f"the manifest in force is {self.recorded[:19]}, the code has {self.current[:19]}; `perdure manifest diff` "
            "says what differs: apply it with `perdure manifest apply`, or open the database with the code that it runs"
        )


class NoHandler(CallerError):
    """A cell declares an effect that nothing here performs.

    Open the engine with a handler for it, or with `lenient=True`: then it starts, and the effect is answered with an
    error when a cell asks for it.
    """

    def __init__(self, effect: str, cell: str) -> None:
        super().__init__(effect, cell)
        self.effect = effect
        self.cell = cell

    def __str__(self) -> str:
        return (
            f"the cell {self.cell} declares the effect {self.effect}, and no handler performs it: "
            "perdure.open(..., handlers=[...]), or lenient=True to start without"
        )


class RuleRefused(CallerError):
    """The world refuses what was asked of its manifest.

    `code` says why: unknown-proposal, wrong-state, stale-patch, shadow-failed, shadow-mode, blocked, migrating,
    no-migration, no-code, unknown-mode, applied-meanwhile, or the code of a `BadManifest`. The manifest in force is
    what it was.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"


class NotEmpty(CallerError):
    """A world snapshot can only be restored to where nothing is yet.

    Restore to a new file. Nothing was changed.
    """


class UnknownSnapshot(CallerError):
    """No world snapshot that is retained has this hash, or more than one begins so.

    `perdure snapshot ls` lists them.
    """

    def __init__(self, hash: str, known: Iterable[str]) -> None:
        self.hash = hash
        self.known = list(known)
        super().__init__(hash, self.known)

    def __str__(self) -> str:
        if not self.known:
            return "no world snapshot was taken yet: perdure snapshot take"
        listed = ", ".join(name[:19] for name in self.known)
        return f"there is not one world snapshot {self.hash[:19]}; there are: {listed}"


class StalePatch(CallerError):
    """A patch was made for another manifest than the one in force.

    `path` names the change, `expected` the hash that it replaces, `found` the hash that is there now. Nothing was
    changed: make the patch again.
    """

    def __init__(self, path: str, name: str, expected: str, found: str) -> None:
        super().__init__(path, name, expected, found)
        self.path = path
        self.name = name
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        now = f"is {self.found[:19]} now" if self.found else "is not there now"
        then = f"replaces {self.expected[:19]}" if self.expected else "adds it"
        return f"{self.path}: the patch {then}, and {self.name} {now}: make the patch again"


class UnknownEvent(CallerError):
    """The manifest in force has no event of this name, or the cell takes none.

    The message names those that there are. Send one of them, or apply a manifest that has it.
    """

    def __init__(self, name: str, known: Iterable[str], text: str) -> None:
        super().__init__(name, tuple(known), text)
        self.name = name
        self.known = tuple(known)
        self.text = text

    def __str__(self) -> str:
        from difflib import get_close_matches

        near = get_close_matches(self.name, self.known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(sorted(self.known)) or 'none'}"
        return f"{self.name}: {self.text}; {hint}"


class UnknownWorkflow(CallerError):
    """No workflow of this name is registered. The text lists the names that are, and the nearest one."""


class UnknownVersion(UnknownWorkflow):
    """The workflow is registered, but not in the version that the start asks for, or only in versions that are older
    than that of the instance. Nothing was recorded.

    The text lists the versions that are registered. Register the missing one too, or start the workflow by its name:
    that takes the newest version.
    """


class UnknownInstance(CallerError):
    """There is no instance with this key. Keys are exact; `perdure ls` lists what exists."""


class UnclearRequest(CallerError):
    """What was asked for has no clear meaning: an ID that stands for several instances, two that cannot be compared.

    Write IDs as workflow/key.
    """


class TwoWorkflows(UnclearRequest):
    """Two instances cannot be compared: they are of two workflows, so that their locations mean different things."""


class BadFilter(CallerError):
    """A filter of a list has a field, a comparison or a value that there is not. The text says which there are.

    `where` is the place: a query parameter such as `/status`, or the number of a character of the text.
    """

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(text)
        self.where = where


class TooBroad(CallerError):
    """A selection has more instances than one bulk may have. Make the filter narrower: a workflow, a status, a time."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.most = most

    def __str__(self) -> str:
        return f"the selection has more than {self.most:,} instances; make its filter narrower"


class SelectionChanged(CallerError):
    """A plan was made by a dry run, and what it told is not so any more. Nothing was recorded.

    Make another dry run, look at what it tells now, and ask with its plan.
    """


class BulkRunning(CallerError):
    """An actor has as many bulks as it may have at once. Wait until one has ended, or cancel one."""


class KeyInUse(CallerError):
    """This key already names an instance with another input.

    Use a new key, or start the key again: reuse="failed" after a failure or a cancel, reuse="always" after any end.
    """


class InstanceEnded(CallerError):
    """The instance has completed, failed or was cancelled, and takes no more messages. Nothing was recorded."""


class InstanceForgotten(CallerError):
    """The instance has ended, and retention has removed its history and its result. Its name stays in use."""

    def __init__(self, instance: str, status: str) -> None:
        super().__init__(instance, status)
        self.instance = instance
        self.status = status

    def __str__(self) -> str:
        return f"{self.instance} ended as {self.status}, and retention has removed its result and its history"


class WrongLoop(CallerError):
    """An engine, a client or a handle was used on another event loop than the one it was opened on.

    From another thread: `asyncio.run_coroutine_threadsafe(engine.start(...), engine.loop).result()`, or a client of its
    own loop: `perdure.connect(url)`. Inside a flow: `ctx.child`, `ctx.send`, or a step.
    """


class NotEntered(CallerError, AttributeError):
    """`perdure.open(...)` or `perdure.connect(...)` was not entered with `async with`.

    Write `async with perdure.open(...) as engine:`. Where the life of the engine is not one block, a
    `contextlib.AsyncExitStack` enters it: `engine = await stack.enter_async_context(perdure.open(...))`. A script
    without an event loop uses `perdure.run(...)`.
    """


class NotInThisProcess(CallerError):
    """On SQLite frames are seen in the process of the engine only: they are never written down.

    Call `handle.stream()` on a handle of the engine itself. For other processes let the flow say it durably, with
    `ctx.publish(name, value)`, which `await handle.read(name)` reads from everywhere.
    """


class NotStuck(CallerError):
    """Only a stuck instance can be answered by hand; only one that is stuck or has failed can be retried."""


class StillRunning(CallerError):
    """What a rewind would drop is running. Wait for it, or let it be cancelled: force=True."""


class VersionConflict(CallerError):
    """The instance has another last entry than the caller expected, so nothing was recorded.

    Look at what happened since (`handle.history()`), and ask again with `if_entry=` of now, or without it.
    """


class DoesNotFit(CallerError):
    """An instance stands where the version that it was to migrate to has nothing of the kind. It was left alone.

    The text names each location. Name the location of the other version: `map={"old": "new"}`.
    """


class UnknownLocation(CallerError):
    """The instance has nothing at this location that could be woken or settled. The text says what it has."""


class UnknownEntry(UnknownLocation):
    """The instance has no entry of this number. The text says which it has."""


class EngineClosed(CallerError):
    """The engine was closed, or is closing. What was acknowledged is durable and goes on at the next open."""


class NotInstalled(CallerError):
    """This needs a package that is not installed. The text has the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)
        self.what = what
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.what} needs a package that is not installed: pip install 'perdure[{self.extra}]'"


class ReceiptRefused(CallerError):
    """A receipt from outside was not admitted. The world is as it was, and the refusal is in its history.

    `code` says why: bad-signature (forged, changed, not signed, or signed with a key that the engine does not have),
    wrong-executor (the effect is for another one), not-outside (the intent is one of the engine's own), no-identity (it
    does not say who it is from).
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason} ({self.code}); nothing has changed"


class UnknownIntent(CallerError):
    """No effect with this intent waits for an answer from outside: it was answered, withdrawn, or never asked for.

    An executor that answers again, because it did not hear whether its answer came, may take this for a yes.
    """

    def __init__(self, intent: str, known: str = "") -> None:
        super().__init__(intent, known)
        self.intent = intent
        self.known = known

    def __str__(self) -> str:
        if self.known:
            return f"no effect {self.intent} waits for an answer; open are: {self.known}"
        return (
            f"no effect with the intent {self.intent} waits for an answer from outside; open_effects() lists what does"
        )


class SecretMissing(CallerError):
    """There is no secret of this name. Nothing was done. `looked` says where it was looked for."""

    def __init__(self, name: str, looked: str) -> None:
        super().__init__(name, looked)
        self.name = name
        self.looked = looked

    def __str__(self) -> str:
        return f"there is no secret {self.name!a}: {self.looked}"


class DefinitionConflict(CallerError):
    """A definition has the version of a stored one and says something else.

    A stored version never changes: instances run on it. Give the definition another version.
    """

    def __init__(self, name: str, version: str, difference: str, free: str) -> None:
        advice = f"; give it a version of its own: the next free one is {free}" if free else ""
        super().__init__(f"{name} {version} is stored with another content: {difference}{advice}")
        self.name = name
        self.version = version
        self.difference = difference
        self.free = free


class AmbiguousReference(CallerError):
    """Several live instances have this reference, so the message was sent to none of them.

    Tell them apart by further parts of the reference, or send to one of them: `engine.handle(...)`.
    """


class WorkflowUnavailable(CallerError):
    """This version of a workflow has problems, and the engine was opened without it (`check="warn"`).

    `problems` has all of them. Nothing was started: correct the definition, or start another version.
    """

    def __init__(self, name: str, problems: tuple[Problem | GraphProblem, ...]) -> None:
        told = "; ".join(map(str, problems))
        super().__init__(
            f"{name} has problems, so it cannot be started; correct them, or start another version: {told}"
        )
        self.name = name
        self.problems = problems


class UnknownTask(CallerError):
    """There is no such task, or it is not for this actor.

    An actor who may not see a task does not learn that it exists. `engine.tasks.list(by=...)` has the tasks that an
    actor may see.
    """


class TaskRefused(CallerError):
    """The task does not take this from this actor now.

    `code` says why: taken, ended, not-assignee, not-candidate, not-manager, excluded, no-reason, shared. `holder` has
    the task; `ended_by` and `ended_at` say who ended it, and when. The task is as it was.
    """

    def __init__(
        self, code: str, text: str, holder: str = "", ended_by: Iterable[str] = (), ended_at: datetime | None = None
    ) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.holder = holder
        self.ended_by = tuple(ended_by)
        self.ended_at = ended_at

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"


class NotYet(CallerError):
    """What a test asks of its world has not happened, and nothing happens by itself at this moment.

    Time stands still in a world until the test moves it. `waits` says what the instance waits for: send it, or let
    time pass with `world.advance(...)` or `world.run()`.
    """

    def __init__(self, what: str, waits: str) -> None:
        super().__init__(what, waits)
        self.what = what
        self.waits = waits

    def __str__(self) -> str:
        return f"{self.what}; {self.waits}" if self.waits else self.what
