"""Failures of operations: where one stands, and of which kind it is."""

from __future__ import annotations

from typing import TypeVar

from perdure.errors import (
    ChildFailed,
    JoinFailed,
    OperationFailed,
    OutcomeUnknown,
    RaceFailed,
    ReceiveTimeout,
    RollBack,
    StepFailed,
    StepTimeout,
    TaskCancelled,
    TaskExpired,
)
from perdure.kernel.receipt import Failure

from .author import FailureKind

E = TypeVar("E", OperationFailed, RollBack)


def at(location: str, error: E) -> E:
    """The error of an operation, which remembers where that stands."""
    error.location = location
    return error


def failed_at(error: BaseException | None) -> set[str]:
    """The locations whose failure made a flow fail: what a retry does again."""
    match error:
        case None:
            return set()
        case JoinFailed(errors=errors) | RaceFailed(errors=errors):
            return set().union(*map(failed_at, errors.values()))
        case BaseExceptionGroup(exceptions=errors):
            return set().union(*map(failed_at, errors))
        case (OperationFailed() | RollBack()) as failed if failed.location:
            return {failed.location}
        case _:  # an error of the author's own: what it came from
            return failed_at(error.__cause__ or error.__context__)


def kind_of(error: Exception) -> FailureKind:
    match error:
        case RollBack():
            return "rollback"
        case OutcomeUnknown():
            return "unknown"
        case StepTimeout() | ReceiveTimeout() | TaskExpired():
            return "timeout"
        case JoinFailed():
            return "join"
        case RaceFailed():
            return "race"
        case ChildFailed() | TaskCancelled():
            return "child"
        case StepFailed(error=Failure(retry=False)):
            return "fatal"
        case _:
            return "exhausted"
