"""The end: verdict, summary, result and outcome of an instance."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.codec import encode
from perdure.kernel.decision import Outcome
from perdure.kernel.moment import when
from perdure.kernel.receipt import Failure
from perdure.kernel.status import Status

from .model import Definition, Settings
from .state import Failed, State
from .values import shown


def verdict_of(state: State, settings: Settings) -> str:
    """success, partial or failed: by the failures that no arc handled."""
    if state.cancelled:
        return "cancelled"
    if not any(not failure.handled for failure in state.failures):
        return "success"
    return "partial" if settings.status == "best_effort" and state.leaf_ok else "failed"


def summary(state: State, verdict: str) -> dict[str, Any]:
    """What the final step and people are told."""
    ended = {step: found["result"] for step, found in sorted(state.steps.items()) if found is not None}
    return {
        "id": state.id,
        "verdict": verdict,
        "started_at": when(state.started_at).isoformat().replace("+00:00", "Z"),
        "counts": msgspec.to_builtins(state.counts),
        "results": ended,
        "failures": [
            {"location": each.location, "kind": each.kind, "message": each.message, "handled": each.handled}
            for each in state.failures
        ],
    }


def leaf_result(state: State) -> Any:
    """The only leaf's result, or the results of all leaves by step."""
    if state.leaf_runs == 1:
        return next(iter(state.leaves.values()))
    return dict(sorted(state.leaves.items())) if state.leaves else None


def outcome(state: State, result: Any, definition: Definition) -> Outcome:
    """How the instance ends."""
    if state.cancelled:
        return Outcome(Status.CANCELLED, error=Failure("Cancelled", state.reason))
    if state.verdict == "failed":
        failed = first_unhandled(state)
        kind, message = (failed.kind, failed.message) if failed is not None else ("failed", "the playbook failed")
        where = f"{failed.location}: " if failed is not None and failed.location else ""
        told = {"kind": kind, "location": "" if failed is None else failed.location, "verdict": "failed"}
        if failed is not None and (place := definition.where(failed.details)):
            told["place"] = place
            where += f"{place}: "
        data = encode(told)
        unhandled = {at for each in state.failures if not each.handled for at in each.again}
        again = tuple(sorted({*unhandled, *state.finals}))
        return Outcome(Status.FAILED, error=Failure(kind, where + message, encoded=data), again=again)
    return Outcome(Status.COMPLETED, value=encode(shown(result)))


def without_place(outcome: Outcome | None) -> Outcome | None:
    """An outcome as every file of one version gives it: only a file that is at hand can say the line and column."""
    if outcome is None or outcome.error is None or not isinstance(outcome.error.data, dict):
        return outcome
    place = outcome.error.data.get("place")
    if not place:
        return outcome
    data = {key: value for key, value in outcome.error.data.items() if key != "place"}
    message = outcome.error.message.replace(f"{place}: ", "", 1)
    error = msgspec.structs.replace(outcome.error, message=message, encoded=encode(data))
    return msgspec.structs.replace(outcome, error=error)


def first_unhandled(state: State) -> Failed | None:
    return next((failure for failure in state.failures if not failure.handled), None)
