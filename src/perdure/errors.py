"""Every error that users can meet, in one file.

An exception's docstring is its entry in the reference: what happened, whose fault it is, what to do. Its base says
who has to act: the author of the workflow, the caller, or whoever keeps the database. Errors carry their facts as
attributes, so that programs need not read their text.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

__all__ = [
    "AddressRefused",
    "AmbiguousReference",
    "AskTimeout",
    "AuthorError",
    "BadAnswer",
    "BadCall",
    "BadDecision",
    "BadDefinition",
    "BadExpression",
    "BadFilter",
    "BadGraph",
    "BadKey",
    "BadManifest",
    "BadPlaybook",
    "BadProcess",
    "BadRequest",
    "BadSchema",
    "BadSignature",
    "CallerError",
    "CannotOpen",
    "ChildFailed",
    "Corrupt",
    "CrashTestFailed",
    "Deadlock",
    "DefinitionConflict",
    "Denied",
    "Divergence",
    "EngineClosed",
    "EngineRunning",
    "ExpressionError",
    "Fatal",
    "Fenced",
    "FileDamaged",
    "FileReplaced",
    "FlowRefused",
    "FlowWarning",
    "InstanceCancelled",
    "InstanceEnded",
    "InstanceFailed",
    "InstanceForgotten",
    "InstanceStuck",
    "JoinFailed",
    "KeyInUse",
    "KeyMismatch",
    "LeaseLost",
    "LimitExceeded",
    "ManifestChanged",
    "Misfit",
    "NewerFormat",
    "NewerSchema",
    "NoHandler",
    "NotADatabase",
    "NotAFlow",
    "NotAHistory",
    "NotAnswered",
    "NotAwaited",
    "NotCanonical",
    "NotConvertible",
    "NotDurable",
    "NotEmpty",
    "NotEntered",
    "NotInRun",
    "NotInStep",
    "NotInThisProcess",
    "NotInstalled",
    "NotPlain",
    "NotStuck",
    "NotYet",
    "OperationFailed",
    "OutcomeUnknown",
    "PerdureError",
    "RaceFailed",
    "ReceiptRefused",
    "ReceiveTimeout",
    "RepeatedName",
    "RequestFailed",
    "RequestTimeout",
    "ResponseTooLarge",
    "ResultTimeout",
    "RollBack",
    "RuleRefused",
    "SchemaMismatch",
    "SecretChanged",
    "SecretMissing",
    "StalePatch",
    "StepFailed",
    "StepTimeout",
    "StillRunning",
    "StoreError",
    "StoreFailed",
    "TaskCancelled",
    "TaskExpired",
    "TaskRefused",
    "TooLarge",
    "TooManyFrames",
    "UnclearRequest",
    "UnknownEvent",
    "UnknownInstance",
    "UnknownIntent",
    "UnknownLocation",
    "UnknownSnapshot",
    "UnknownTask",
    "UnknownVersion",
    "UnknownWorkflow",
    "VersionConflict",
    "WorkflowUnavailable",
    "WrongLoop",
]


class PerdureError(Exception):
    """The base of every error that perdure raises."""


class AuthorError(PerdureError):
    """The author of the workflow is at fault: its code or definition has to change."""


class CallerError(PerdureError):
    """The caller is at fault: what was asked, or the value that came with it, has to change."""


class StoreError(PerdureError):
    """The database is at fault: what it holds, or its state, needs an operator."""


# ---- expressions (perdure.expressions) -------------------------------------------------------------------------


class BadExpression(AuthorError):
    """This is no expression that perdure reads.

    `problems` has every mistake that was found, each with its code, its place and a hint. Nothing was evaluated:
    correct the expression in the definition.
    """

    def __init__(self, problems: tuple[Any, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class ExpressionError(AuthorError):
    """The expression has no value for what is recorded.

    `text` is the expression, `reason` says what went wrong with `operands`. `path`, or `line` and `column`, say where
    in the definition the failing part stands. `code` is value, guard_type (a guard is a text), not_iterable or budget
    (it would take more steps or memory than an expression may). Correct the definition, or the data that it reads.
    """

    def __init__(  # noqa: PLR0917  # an exception's arguments are its facts
        self,
        text: str,
        reason: str,
        operands: tuple[str, ...] = (),
        path: str = "",
        line: int = 0,
        column: int = 0,
        code: str = "value",
    ) -> None:
        super().__init__(text, reason, operands, path, line, column, code)
        self.text = text
        self.reason = reason
        self.operands = operands
        self.path = path
        self.line = line
        self.column = column
        self.code = code

    def __str__(self) -> str:
        place = f"{self.path}:" * bool(self.path) + f"{self.line}:{self.column}:" * bool(self.line)
        found = f"; found {', '.join(self.operands)}" if self.operands else ""
        text = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
        return f"{place} {text}: {self.reason}{found}".lstrip()


# ---- values: what may be recorded, and how (perdure.codec) -----------------------------------------------------


class NotPlain(CallerError):
    """This value has no recorded form.

    Recorded values are plain data: None, bool, int, float, str, bytes, list, dict, datetime, date, timedelta,
    Decimal and UUID. Convert the value at `path` to one of them, or annotate it with a type that perdure converts
    (dataclass, TypedDict, NamedTuple, Enum, set, msgspec struct, pydantic model).
    """

    def __init__(self, path: str, found: str, advice: str) -> None:
        super().__init__(path, found, advice)
        self.path = path
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.path}: {self.found} cannot be recorded; {self.advice}"


class NotConvertible(CallerError):
    """This value does not have the type that its receiver is annotated with.

    `path` names the field, `expected` the annotation, `found` what came instead, `where` the workflow or function
    that receives it. Nothing was recorded: correct the value and call again.
    """

    def __init__(self, path: str, expected: str, found: str, where: str = "") -> None:
        super().__init__(path, expected, found, where)
        self.path = path
        self.expected = expected
        self.found = found
        self.where = where

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        return f"{prefix}{self.path}: expected {self.expected}, found {self.found}"


class NotCanonical(CallerError):
    """These bytes are not the one canonical encoding of a value.

    `reason` says which rule they break, `offset` where. Values from elsewhere must be decoded by their own rules
    and encoded again with `perdure.codec.encode`.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset

    def __str__(self) -> str:
        return f"byte {self.offset}: {self.reason}"


class SchemaMismatch(CallerError):
    """This value is not of the type that its schema says.

    `path` names the part of the value, `expected` its type, `found` what is there instead, `where` the name of the
    schema if it has one. The `hint` says what to write. Nothing was recorded: correct the value and send it again.
    """

    def __init__(self, path: str, expected: str, found: str, hint: str = "", where: str = "") -> None:
        super().__init__(path, expected, found, hint, where)
        self.path = path
        self.expected = expected
        self.found = found
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{prefix}{self.path}: expected {self.expected}, found {self.found}{hint}"


class BadDefinition(AuthorError):
    """A schema, a name or another definition of cells is not well formed.

    `path` names the part of the definition, `expected` what may stand there, `found` what does, `where` the file and
    line if it is Python code or YAML. The `hint` says what to write instead. Nothing was defined.
    """

    def __init__(self, path: str, expected: str, found: str, hint: str = "", where: str = "") -> None:
        super().__init__(path, expected, found, hint, where)
        self.path = path
        self.expected = expected
        self.found = found
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{prefix}{self.path}: expected {self.expected}, found {self.found}{hint}"


class BadManifest(AuthorError):
    """The parts of a manifest do not fit together, or not to the code.

    `code` says what is wrong: missing-reference, unknown-module, unknown-schema, unknown-effect, unknown-cell,
    key-missing, key-unexpected, key-type, routing-mismatch, event-family, unsupported-runtime, code-mismatch,
    two-versions. `path` says where, `where` the file, line and column if it is one (of JSON if ruamel.yaml is
    installed). Nothing was registered or changed.
    """

    def __init__(self, code: str, path: str, text: str, where: str = "") -> None:
        super().__init__(code, path, text, where)
        self.code = code
        self.path = path
        self.text = text
        self.where = where

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        return f"{prefix}{self.path}: {self.text} ({self.code})"


class BadPlaybook(AuthorError):
    """A playbook has problems. Nothing was recorded.

    `problems` has all of them, at most 50, in the order of the text. Each has `code`, `line`, `column`, `text` and
    `hint`.
    """

    def __init__(self, problems: Iterable[Any]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class BadDecision(AuthorError):
    """A reducer returned what a cell may not ask for: an effect that it has not declared, say.

    Nothing of what it returned happened. The cell is stuck with its event kept: mend the reducer and retry.
    """

    def __init__(self, cell: str, text: str) -> None:
        super().__init__(cell, text)
        self.cell = cell
        self.text = text

    def __str__(self) -> str:
        return f"{self.cell}: {self.text}"


class KeyMismatch(CallerError):
    """An event was sent to a key, and its own fields name another one.

    Nothing was recorded. Leave the key out, or send the event that belongs to it.
    """

    def __init__(self, event: str, given: str, found: str) -> None:
        super().__init__(event, given, found)
        self.event = event
        self.given = given
        self.found = found

    def __str__(self) -> str:
        return f"{self.event} was sent to the key {self.given!r}, and its fields say {self.found!r}"


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


class TooLarge(CallerError):
    """This value is larger than the limit.

    Put large data where it belongs (a file, an object store) and record a reference to it, or raise the limit.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.what = what
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.what} has {self.size:,} bytes, more than the limit of {self.limit:,}; record a reference instead"


class TooManyFrames(AuthorError):
    """A call has sent as many frames as are recorded of one call. This one was not recorded.

    Put more into each frame, or send what is only looked at with `perdure.progress`.
    """

    def __init__(self, instance: str, location: str, limit: int) -> None:
        super().__init__(instance, location, limit)
        self.instance = instance
        self.location = location
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"{self.instance}: the call at {self.location} has sent {self.limit:,} frames, the limit; send larger ones"
        )


class LimitExceeded(AuthorError, OverflowError):
    """One decision is over a limit: too many effects, too many messages, or too many bytes. Nothing of it happened.

    The instance is stuck with its event kept. Ask for less at once (`ctx.map` takes `concurrency=`), record references
    to large data, or raise the limits of a world of cells (`limits=`). Then retry the instance.
    """


class Corrupt(StoreError):
    """What is stored is damaged: a body does not match its checksum, or rows are missing that others name.

    The disk, the file system or a program other than perdure changed it. Restore the database from a backup.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"a stored body is corrupt: {self.reason}; restore the database from a backup"


class FileDamaged(Corrupt):
    """Pages of a database file, or of its log, are damaged. The engine does not open it, or stops.

    Nothing is tried again: each write could damage more. The text says what to do.
    """

    def __str__(self) -> str:
        return self.reason


class NewerFormat(StoreError):
    """A stored body was written by a newer perdure: upgrade.

    Every perdure reads what older ones wrote, never the reverse. Nothing was changed.
    """

    def __init__(self, found: int, known: int) -> None:
        super().__init__(found, known)
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return f"format {self.found} was written by a newer perdure (this one reads up to {self.known}): upgrade"


# ---- workflows: what their code does (perdure.flows, perdure.kernel) --------------------------------------------


class Divergence(AuthorError):
    """The code no longer does what it did when this instance ran.

    At `entry` the journal has the operation `recorded`; the code that is loaded now asks for `current`, at `source`.
    Nothing was run. Follow the `advice`, or put the old code back, then `perdure retry` the instance.
    """

    def __init__(  # noqa: PLR0917  # an exception's arguments are its facts
        self,
        instance: str,
        entry: int,
        recorded: str,
        current: str,
        location: str = "",
        source: str = "",
        advice: str = "",
    ) -> None:
        super().__init__(instance, entry, recorded, current, location, source, advice)
        self.instance = instance
        self.entry = entry
        self.recorded = recorded
        self.current = current
        self.location = location
        self.source = source
        self.advice = advice

    def __str__(self) -> str:
        place = f" at {self.source}" if self.source else ""
        advice = f"\n{self.advice}" if self.advice else ""
        return (
            f"{self.instance}, entry {self.entry}: recorded is {self.recorded}, "
            f"but the code now asks for {self.current}{place}; nothing was run{advice}"
        )


class NotDurable(AuthorError):
    """A flow awaited something that needs a real event loop: a socket, a thread, a subprocess, a foreign future.

    The body of a flow does no I/O. Move the call into a step: `await ctx.step("name", function, ...)`.
    """

    def __init__(self, call: str, where: str = "") -> None:
        super().__init__(call, where)
        self.call = call
        self.where = where

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.call}{place} needs a real event loop, and a flow has none; move it into a step: ctx.step(...)"


class NotAFlow(AuthorError):
    """Only an `async def` whose first parameter is the context can be a flow."""

    def __init__(self, found: str, where: str) -> None:
        super().__init__(found, where)
        self.found = found
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: a flow is an `async def name(ctx, ...)`, found {self.found}"


class FlowWarning(UserWarning):
    """The source of a flow has something that a replay would not repeat, or an operation that is not awaited.

    Or a parameter is named like an option of `engine.start`, which a keyword argument then means instead: rename it, or
    pass it by position. That is told where the flow is defined.

    The text has the line and what to write instead. It is given once, when an engine is opened with the flow;
    `perdure check` finds the same without an engine, and `@perdure.flow(strict=True)` makes it an error. The body of a
    `ctx.loop` that takes a state and returns nothing is warned of when it does so.
    """


class FlowRefused(AuthorError):
    """The source of a flow with `strict=True` has something that a replay would not repeat.

    Each of the `findings` has the `file`, the `line`, what was `found` there, and an `advice`. Nothing was opened.
    """

    def __init__(self, flow: str, findings: tuple[Any, ...]) -> None:
        super().__init__(flow, findings)
        self.flow = flow
        self.findings = findings

    def __str__(self) -> str:
        lines = "".join(f"\n  {finding}" for finding in self.findings)
        return f"the flow {self.flow} is strict, and its source cannot be accepted:{lines}"


class NotAwaited(AuthorError):
    """The flow returned while a task that it had created was still running.

    Await the task, or create it in an `asyncio.TaskGroup`: nothing runs on after a flow has returned.
    """

    def __init__(self, tasks: list[str]) -> None:
        super().__init__(tasks)
        self.tasks = tasks

    def __str__(self) -> str:
        return f"the flow returned while these tasks still ran: {', '.join(self.tasks)}; await them before the end"


class Deadlock(AuthorError):
    """The flow waits for something that nothing can bring: no step, timer, message or child is open.

    Usual causes: an `asyncio.Event` that nobody sets, a `Queue` that nobody fills, a lock taken twice.
    """

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where

    def __str__(self) -> str:
        return f"the flow waits at {self.where}, but no step, timer, message or child could ever wake it"


class RepeatedName(AuthorError):
    """A flow with `strict_names=True` used the same name twice in one scope. Give the operation its own name."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location

    def __str__(self) -> str:
        return f"{self.location} was used before in this scope, and the flow has strict_names=True"


class BadCall(AuthorError):
    """An operation was called in a way that it does not have; the text says which way it has."""


class NotInStep(AuthorError, LookupError):
    """`step_info()`, `progress()` and `emit()` speak of the step that is running, and here none is.

    Call them in the function of a step. In a test of such a function alone, run it as a step of a small flow.
    """

    def __str__(self) -> str:
        return "no step is running here: step_info(), progress() and emit() are for the functions of steps"


class NotInRun(AuthorError, LookupError):
    """A request was made where no call that may ask is running: outside of a run, after it, in a thread or a worker.

    Requests are for `async def` functions that run inline, while they run.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} asks the instance of a running call, and no call that may ask is running here"


class GraphProblem(NamedTuple):
    """One thing that is wrong with a graph. `where` is a node or a part of the graph; `at` is line:column of a file."""

    where: str
    text: str
    at: str = ""

    def __str__(self) -> str:
        place = f"{self.at}: " if self.at else ""
        return f"{place}{self.where}: {self.text}"


class BadGraph(AuthorError):
    """A graph cannot run as it is written. `problems` has everything that is wrong, each with its place.

    Nothing was registered and nothing recorded. `perdure check` finds the same without an engine.
    """

    def __init__(self, graph: str, problems: tuple[GraphProblem, ...]) -> None:
        super().__init__(graph, problems)
        self.graph = graph
        self.problems = problems

    def __str__(self) -> str:
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        return "\n  ".join([f"graph {self.graph} has {count}:", *map(str, self.problems)])


# ---- what a step raises to say more than "it failed" ----------------------------------------------------------------


class Fatal(Exception):
    """Raise this in a step to say that trying again is pointless: the step fails at once, without a retry.

    `data` is plain data that the flow finds on the recorded failure.
    """

    def __init__(self, message: str = "", data: object = None) -> None:
        super().__init__(message)
        self.data = data


class RollBack(Exception):
    """Raise this in a step or in a flow: no retry; what was done is undone, and the flow fails.

    Steps that have an `undo` are undone, the last one first: with `to`, those since that checkpoint, and the flow goes
    on where it catches this around the checkpoint's block. A flow that raises this outside of that block is stuck, and
    nothing is undone. `ctx.attempt` does not catch it unless it is told to.
    """

    def __init__(self, message: str = "", to: str | None = None) -> None:
        super().__init__(message)
        self.to = to
        self.data = None if to is None else {"to": to}
        self.location = ""  # of the step that raised it
        self.reached = False  # its checkpoint has undone what was done since


# ---- what a flow meets while it runs ------------------------------------------------------------------------------


class OperationFailed(PerdureError):
    """The base of what a durable operation raises at its await."""

    location = ""


class StepFailed(OperationFailed):
    """A step failed for good: every allowed attempt was used, or it raised `Fatal`.

    `errors` has the failure of each attempt, the last one last; each has type, message, traceback text and data.
    """

    def __init__(self, name: str, attempts: int, errors: tuple[object, ...]) -> None:
        super().__init__(name, attempts, errors)
        self.name = name
        self.attempts = attempts
        self.errors = errors

    @property
    def error(self) -> object:
        return self.errors[-1]

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"step {self.name!r} was tried {times}; last error: {self.error}"


class StepTimeout(StepFailed):
    """The last attempt of a step was cut because it took longer than its timeout."""


class OutcomeUnknown(StepFailed):
    """The process died while the step ran, as often as it was allowed to run. Whether it took effect is not known."""


class ReceiveTimeout(OperationFailed):
    """No matching message came in time."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names

    def __str__(self) -> str:
        return f"no message {' or '.join(map(repr, self.names)) or '(of any name)'} came in time"


class JoinFailed(OperationFailed):
    """Branches of a join failed. All have settled; `errors` has the exception of each failed branch."""

    def __init__(self, name: str, errors: dict[str, Exception]) -> None:
        super().__init__(name, errors)
        self.name = name
        self.errors = errors

    def __str__(self) -> str:
        failed = "; ".join(f"{branch}: {type(e).__name__}: {e}" for branch, e in self.errors.items())
        return f"join {self.name!r}: {len(self.errors)} branches failed: {failed}"


class RaceFailed(OperationFailed):
    """Every branch of a race failed; `errors` has the exception of each."""

    def __init__(self, name: str, errors: dict[str, Exception]) -> None:
        super().__init__(name, errors)
        self.name = name
        self.errors = errors

    def __str__(self) -> str:
        failed = "; ".join(f"{branch}: {type(e).__name__}: {e}" for branch, e in self.errors.items())
        return f"race {self.name!r}: all branches failed: {failed}"


class ChildFailed(OperationFailed):
    """A child did not complete. `status` is failed, cancelled or refused; `error` is what it recorded."""

    def __init__(self, workflow: str, key: str, status: str, error: object) -> None:
        super().__init__(workflow, key, status, error)
        self.workflow = workflow
        self.key = key
        self.status = status
        self.error = error

    def __str__(self) -> str:
        return f"child {self.workflow}/{self.key} {self.status}: {self.error}"


class Denied(OperationFailed):
    """The gate of a graph, or a person, said no; or an instance takes no such request. The run may do something else.

    `subject` is the tool, the node or the request, `stage` the rule that said no, `reason` one sentence.
    """

    def __init__(self, subject: str, stage: str, reason: str) -> None:
        super().__init__(subject, stage, reason)
        self.subject = subject
        self.stage = stage
        self.reason = reason

    @property
    def note(self) -> str:
        """The same as one sentence for a model."""
        return f"{self.subject} was denied ({self.stage}): {self.reason}"

    def __str__(self) -> str:
        return self.note


class TaskExpired(OperationFailed):
    """Nobody answered a task until its `expire`. `name` is that of the task."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        self.name = name
        self.text = text

    def __str__(self) -> str:
        return self.text


class TaskCancelled(OperationFailed):
    """A person cancelled a task. `name` is that of the task, `by` the person, `reason` what that person said."""

    def __init__(self, name: str, by: str, reason: str) -> None:
        super().__init__(name, by, reason)
        self.name = name
        self.by = by
        self.reason = reason

    def __str__(self) -> str:
        return f"the task {self.name!r} was cancelled{f' by {self.by}' if self.by else ''}: {self.reason}"


# ---- asking an engine ---------------------------------------------------------------------------------------------


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


class BadFilter(CallerError):
    """A filter of a list has a field, a comparison or a value that there is not. The text says which there are."""


class KeyInUse(CallerError):
    """This key already names an instance with another input.

    Use a new key, or start the key again: reuse="failed" after a failure or a cancel, reuse="always" after any end.
    """


class InstanceEnded(CallerError):
    """The instance has completed, failed or was cancelled, and takes no more messages. Nothing was recorded."""


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
    """Frames are seen in the process of the engine only: they are never written down, so nobody else can read them.

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


class InstanceFailed(PerdureError):
    """The instance failed. `error` is the recorded failure, with its type, message and traceback text."""

    def __init__(self, instance: str, error: object) -> None:
        super().__init__(instance, error)
        self.instance = instance
        self.error = error

    def __str__(self) -> str:
        return f"{self.instance} failed: {self.error}"


class InstanceStuck(PerdureError):
    """The instance needs a person: its code diverged, deadlocked, or raised where it must not; or nobody knows what
    became of a step that may run once only; or an undo failed.

    `error` is the recorded failure, `location` the operation at which it stopped, if it is at one. Put right what was
    wrong, then `perdure retry` it (or `await handle.retry()`): it goes on where it was. Answer for a step with `perdure
    settle`. Or cancel it.
    """

    def __init__(self, instance: str, error: object, location: str = "") -> None:
        super().__init__(instance, error, location)
        self.instance = instance
        self.error = error
        self.location = location

    def __str__(self) -> str:
        place = f" at {self.location}" if self.location else ""
        kind = getattr(self.error, "type", "")
        if kind in ("OutcomeUnknown", "UndoFailed"):
            return f"{self.instance} is stuck{place}: {self.error}; settle it, or retry to run it again, or cancel it"
        error = str(self.error)
        then = "; put it right," if "\n" not in error else "\nPut it right,"
        return f"{self.instance} is stuck{place}: {error}{then} then retry or cancel it"


class InstanceCancelled(PerdureError):
    """The instance was cancelled. `reason` is what the canceller gave."""

    def __init__(self, instance: str, reason: str) -> None:
        super().__init__(instance, reason)
        self.instance = instance
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.instance} was cancelled" + (f": {self.reason}" if self.reason else "")


class InstanceForgotten(CallerError):
    """The instance has ended, and retention has removed its history and its result. Its name stays in use."""

    def __init__(self, instance: str, status: str) -> None:
        super().__init__(instance, status)
        self.instance = instance
        self.status = status

    def __str__(self) -> str:
        return f"{self.instance} ended as {self.status}, and retention has removed its result and its history"


class ResultTimeout(PerdureError, TimeoutError):
    """The instance had not ended in time. It goes on; ask again later."""


class AskTimeout(PerdureError, TimeoutError):
    """The instance had not answered in time. The message is recorded: ask again with the same id to wait on."""


class NotAnswered(PerdureError):
    """The instance has ended, and its flow never completed the message."""


class UnknownLocation(CallerError):
    """The instance has nothing at this location that could be woken or settled. The text says what it has."""


class EngineClosed(CallerError):
    """The engine was closed, or is closing. What was acknowledged is durable and goes on at the next open."""


# ---- databases ----------------------------------------------------------------------------------------------------


class EngineRunning(StoreError):
    """Another engine runs on this database.

    One engine owns a SQLite file, or a shard of a PostgreSQL database. Talk to it with `perdure.connect(url)` from
    other processes, or stop it first.
    """


class Fenced(StoreError):
    """This engine no longer owns its shard: another one took over. Nothing of this commit was written."""


class LeaseLost(Fenced):
    """This engine may no longer own its shard. Whether the commit that was under way was written is not known here.

    Whoever waited for that commit hears a `StoreFailed`; all else was surely not written.
    """


class FileReplaced(Fenced):
    """The database file was deleted, moved or replaced while it was open. The engine has stopped.

    What was written last stands in a file that has no name any more. Put the file back, or restore a backup.
    """


class NotADatabase(StoreError):
    """The file is not a perdure database. Nothing was changed; name another file."""


class NewerSchema(StoreError):
    """The database was made by a newer perdure. Upgrade perdure; nothing was changed."""


class CannotOpen(StoreError):
    """The database cannot be opened: no such file or server, no permission, or a schema that is missing or older."""


class StoreFailed(StoreError):
    """The database could not write: the disk is full, or it failed.

    What was acknowledged before is safe. Whether the call that met this error was recorded is not known: repeat it
    with the same key or id, which is harmless.
    """


# ---- the outside: requests, signed receipts, secrets (perdure.executors) -------------------------------------------


class NotInstalled(CallerError):
    """This needs a package that is not installed. The text has the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)
        self.what = what
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.what} needs a package that is not installed: pip install 'perdure[{self.extra}]'"


class BadRequest(CallerError):
    """This is not a request that can be made. Nothing was sent.

    `part` is what is wrong with it (method, url, header, body), `reason` says why. The text never has the value of a
    header, nor the query of a url: they may be secrets.
    """

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(part, reason)
        self.part = part
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.part}: {self.reason}"


class AddressRefused(CallerError):
    """A request would have gone to an address that is not public. Nothing was sent there.

    `host` is what the url or the redirect names, `address` where it leads, `rule` why it is refused. A request must
    not reach what only this machine may reach: its own services, its network, the keys that its platform
    hands out. If it is meant, the operator allows the address, its network, or the host.
    """

    def __init__(self, host: str, address: str, rule: str) -> None:
        super().__init__(host, address, rule)
        self.host = host
        self.address = address
        self.rule = rule

    def __str__(self) -> str:
        leads = "" if self.host == self.address else f" leads to {self.address}, which"
        either = f'"{self.host}"' if self.host == self.address else f'"{self.host}" or "{self.address}"'
        return f"{self.host}{leads} is refused ({self.rule}); if it is meant, the operator allows it: {either}"


class RequestFailed(PerdureError):
    """A request got no answer: no such host, no connection, no trust in its certificate, or no sense in what came.

    `url` is without its query, `reason` says what happened. `sent` is False if the other side cannot have seen the
    request: then it is safe to try again. Otherwise it may have taken effect.
    """

    def __init__(self, url: str, reason: str, sent: bool) -> None:
        super().__init__(url, reason, sent)
        self.url = url
        self.reason = reason
        self.sent = sent

    def __str__(self) -> str:
        seen = "it may have taken effect" if self.sent else "nothing was sent"
        return f"{self.url}: {self.reason}; {seen}"


class RequestTimeout(RequestFailed, TimeoutError):
    """A request was cut because it took longer than its timeout, all of it: name, connection, answer and redirects."""


class ResponseTooLarge(PerdureError):
    """The answer to a request is larger than the limit. It was cut; the request may have taken effect.

    Ask for less, or raise the limit. `status` is that of the answer, `limit` a number of bytes.
    """

    def __init__(self, url: str, status: int, limit: int) -> None:
        super().__init__(url, status, limit)
        self.url = url
        self.status = status
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.url}: the answer (status {self.status}) has more than {self.limit:,} bytes, and was cut"


class BadKey(CallerError):
    """This is not a key that can sign or verify. `key` is its id; the text never has any of the key itself."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"key {self.key}: {self.reason}"


class BadSignature(PerdureError):
    """A receipt is not signed as its executor would sign it. It was refused, and changes nothing.

    `reason` is missing, unknown key, wrong algorithm or mismatch; `executor` and `intent` say whose receipt it claims
    to be, `key` the id of the key that it names. An unknown key: the keyring lacks it, or it was retired. A mismatch:
    the receipt was changed on its way, or was never signed with this key.
    """

    def __init__(self, reason: str, executor: str, intent: str, key: str = "") -> None:
        super().__init__(reason, executor, intent, key)
        self.reason = reason
        self.executor = executor
        self.intent = intent
        self.key = key

    def __str__(self) -> str:
        named = f", key {self.key!a:.80}" if self.key else ""
        return (
            f"the signature of a receipt is refused ({self.reason}{named}): "
            f"executor {self.executor}, intent {self.intent}"
        )


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

    def __init__(self, intent: str) -> None:
        super().__init__(intent)
        self.intent = intent

    def __str__(self) -> str:
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


class SecretChanged(CallerError):
    """The secret is not the one that was meant: its digest is another than the reference has. Nothing was done.

    Put the old value back, or make a new reference, with the digest of the new value or without one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the secret {self.name!a} is not the one that its reference names: another digest"


# ---- data with a JSON Schema, and tasks (perdure.codec.jsonschema, perdure.tasks) ------------------------------------


class Problem(NamedTuple):
    """One thing that is wrong: where (a path or a JSON pointer), what, and what to do about it."""

    where: str
    text: str
    code: str = ""
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        code = f" ({self.code})" if self.code else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.text}{hint}{code}"


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


class BadProcess(AuthorError):
    """A process has problems, and cannot run.

    `problems` has all of them, each with code, place, text and what to do. Nothing was registered or started.
    """

    def __init__(self, what: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(what, problems)
        self.what = what
        self.problems = problems

    def __str__(self) -> str:
        lines = [
            f"{each.where}: {each.code}: {each.text}" + (f"; {each.hint}" if each.hint else "")
            for each in self.problems
        ]
        return f"{self.what} has {len(lines)} problem{'' if len(lines) == 1 else 's'}:\n" + "\n".join(lines)


class AmbiguousReference(CallerError):
    """Several live instances have this reference, so the message was sent to none of them.

    Tell them apart by further parts of the reference, or send to one of them: `engine.handle(...)`.
    """


class WorkflowUnavailable(CallerError):
    """This version of a workflow has problems, and the engine was opened without it (`check="warn"`).

    `problems` has all of them. Nothing was started: correct the definition, or start another version.
    """

    def __init__(self, name: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(f"{name} has problems, so it cannot be started: {'; '.join(each.text for each in problems)}")
        self.name = name
        self.problems = problems


class BadSchema(AuthorError):
    """This annotation has no JSON Schema, or this mapping is none.

    Use a dataclass, a TypedDict, an enum, a Literal, a msgspec struct, a pydantic model, scalars, list, dict, or a JSON
    Schema of the draft 2020-12 as a dict.
    """


class Misfit(CallerError):
    """This data does not fit its JSON Schema.

    `problems` has everything that is wrong, each with the JSON pointer of its place. Nothing was recorded: correct the
    data and call again.
    """

    def __init__(self, problems: Iterable[Problem], what: str = "") -> None:
        self.problems = tuple(problems)
        self.what = what
        super().__init__(self.problems, what)

    def __str__(self) -> str:
        prefix = f"{self.what}: " if self.what else ""
        return prefix + "; ".join(f"{each.where or '/'}: {each.text}" for each in self.problems)


class BadAnswer(Misfit):
    """The answer does not fit the form of the task.

    `problems` has everything that is wrong, each with the JSON pointer of its field. The task is as it was: correct
    the answer and complete the task again. `engine.tasks.get(id).form` is the form.
    """


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


# ---- testing workflows (perdure.testing) ---------------------------------------------------------------------------


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


class CrashTestFailed(AuthorError, AssertionError):
    """A workflow does not come through a crash as it comes through without one.

    `finding` says what was different, `schedule` which crashes there were, `story` what happened then, and `reproduce`
    is the call of `crash_test` that runs this schedule alone.
    """

    def __init__(self, finding: str, schedule: str, story: str, reproduce: str) -> None:
        super().__init__(finding, schedule, story, reproduce)
        self.finding = finding
        self.schedule = schedule
        self.story = story
        self.reproduce = reproduce

    def __str__(self) -> str:
        return f"{self.finding}\n\nwhat happened:\n{self.story}\n\nto see this again:\n  {self.reproduce}"


class NotAHistory(CallerError):
    """This file is not an exported history, or none that this perdure can read.

    `perdure export ID -o FILE` writes one, and so does `handle.export(FILE)` in a world.
    """
