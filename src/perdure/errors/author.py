"""The author of a workflow is at fault: code or a definition has to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .base import AuthorError, GraphProblem, Problem


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


class Divergence(AuthorError):
    """The code no longer does what it did when this instance ran.

    At `entry` the journal has the operation `recorded`; the code that is loaded now asks for `current`, at `source`.
    Nothing was run. Follow the `advice`, or put the old code back, then `perdure retry` the instance.
    """

    advises = True

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

    def __init__(self, call: str, where: str = "", by: str = "") -> None:
        super().__init__(call, where, by)
        self.call = call
        self.where = where
        self.by = by

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        by = f"{self.by} called it: " if self.by else ""
        return (
            f"{self.call}{place} needs a real event loop, and a flow has none; {by}move it into a step: ctx.step(...)"
        )


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

    advises = True

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

    Usual causes: an `asyncio.Event` that is never set, a `Queue` that is never filled, a lock taken twice.
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


class BadGraph(AuthorError):
    """A graph cannot run as it is written. `problems` has everything that is wrong, each with its place.

    Nothing was registered and nothing recorded. `perdure check` finds the same without an engine.
    """

    advises = True

    def __init__(self, graph: str, problems: tuple[GraphProblem, ...]) -> None:
        super().__init__(graph, problems)
        self.graph = graph
        self.problems = problems

    def __str__(self) -> str:
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        return "\n  ".join([f"graph {self.graph} has {count}:", *map(str, self.problems)])


class BadProcess(AuthorError):
    """A process has problems, and cannot run.

    `problems` has all of them, each with code, place, text and what to do. Nothing was registered or started.
    """

    advises = True

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


class BadSchema(AuthorError):
    """This annotation has no JSON Schema, or this mapping is none.

    Use a dataclass, a TypedDict, an enum, a Literal, a msgspec struct, a pydantic model, scalars, list, dict, or a JSON
    Schema of the draft 2020-12 as a dict.
    """


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
