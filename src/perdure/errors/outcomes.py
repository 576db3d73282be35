"""No one here is at fault: what an operation, an instance or a request came to, and what a step raises to say so."""

from __future__ import annotations

from .base import PerdureError


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
    """A task had no answer until its `expire`. `name` is that of the task."""

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

    advises = True

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


class ResultTimeout(PerdureError, TimeoutError):
    """The instance had not ended in time. It goes on; ask again later."""


class AskTimeout(PerdureError, TimeoutError):
    """The instance had not answered in time. The message is recorded: ask again with the same id to wait on."""


class NotAnswered(PerdureError):
    """The instance has ended, and its flow never completed the message."""


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
