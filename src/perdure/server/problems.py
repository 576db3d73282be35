"""Errors as programs read them: `application/problem+json` (RFC 9457). One table maps error classes to codes.

The first class that fits counts. An error of ours that no row names is a 500 with a number and nothing else.
"""

from __future__ import annotations

import re
from typing import Any, Final

from perdure import errors
from perdure.errors import PerdureError

TITLES: Final = {
    400: "malformed request",
    401: "login needed",
    403: "not allowed",
    404: "not found",
    405: "wrong method",
    409: "conflict",
    412: "the instance has moved on",
    413: "body too large",
    414: "URL too long",
    415: "wrong media type",
    422: "not accepted",
    429: "too many requests",
    431: "too many headers",
    500: "internal error",
    503: "not available",
}

DOCS: Final = "urn:perdure:error:"

_ROWS: Final[tuple[tuple[str, str, int], ...]] = (
    ("UnknownInstance", "not-found", 404),
    ("UnknownTask", "not-found", 404),
    ("UnknownVersion", "unknown-version", 404),
    ("UnknownWorkflow", "unknown-workflow", 404),
    ("UnknownLocation", "unknown-location", 404),
    ("UnknownSnapshot", "unknown-snapshot", 404),
    ("UnknownEvent", "unknown-event", 404),
    ("UnknownIntent", "unknown-intent", 404),
    ("BadPlaybook", "invalid-definition", 422),
    ("BadProcess", "invalid-definition", 422),
    ("DefinitionConflict", "definition-conflict", 409),
    ("WorkflowUnavailable", "workflow-unavailable", 503),
    ("AmbiguousReference", "ambiguous-reference", 409),
    ("UnclearRequest", "bad-request", 422),
    ("BadFilter", "bad-filter", 422),
    ("TooBroad", "too-broad", 409),
    ("SelectionChanged", "selection-changed", 409),
    ("BulkRunning", "bulk-running", 409),
    ("KeyInUse", "key-in-use", 409),
    ("InstanceEnded", "instance-ended", 409),
    ("NotStuck", "not-stuck", 409),
    ("StillRunning", "still-running", 409),
    ("RuleRefused", "rule-refused", 409),
    ("StalePatch", "stale-patch", 409),
    ("ReceiptRefused", "receipt-refused", 409),
    ("TaskRefused", "task-refused", 409),
    ("VersionConflict", "version-conflict", 412),
    ("BadAnswer", "bad-answer", 422),
    ("Misfit", "invalid-input", 422),
    ("NotConvertible", "invalid-input", 422),
    ("NotPlain", "invalid-input", 422),
    ("SchemaMismatch", "invalid-input", 422),
    ("TooLarge", "too-large", 413),
    ("NotAnswered", "not-answered", 409),
    ("AskTimeout", "not-answered", 503),
    ("EngineClosed", "no-engine", 503),
    ("EngineRunning", "engine-running", 409),
    ("StoreError", "database-failed", 503),
    ("CallerError", "bad-request", 422),
    ("AuthorError", "bad-request", 422),
)
TABLE: Final = tuple((getattr(errors, name), code, status) for name, code, status in _ROWS if hasattr(errors, name))


class HttpProblem(Exception):
    """A refusal of the HTTP face itself."""

    def __init__(self, status: int, code: str, detail: str = "", **more: Any) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.more = status, code, detail, more


def problem_of(error: Exception) -> HttpProblem | None:
    """The problem that an error is; None: it is a bug of ours."""
    if isinstance(error, HttpProblem):
        return error
    if not isinstance(error, PerdureError):
        return None
    for kind, code, status in TABLE:
        if isinstance(error, kind):
            more: dict[str, Any] = {}
            if rows := rows_of(error):
                more["errors"] = [{name: row[name] for name in ("pointer", "detail")} for row in rows]
            named = str(getattr(error, "code", code)) if code == "task-refused" else code
            if status == 503:
                more["retry_after"] = 1
            return HttpProblem(status, named, str(error), **more)
    return HttpProblem(409, kebab(type(error).__name__), str(error))


def rows_of(error: PerdureError) -> list[dict[str, str]]:
    """All that is wrong with a value or a definition, each with its place."""
    return [
        {
            "pointer": str(each.where) if hasattr(each, "where") else f"{each.line}:{each.column}",
            "detail": str(each.text),
            "code": str(getattr(each, "code", "")),
            "hint": str(getattr(each, "hint", "")),
        }
        for each in getattr(error, "problems", None) or ()
    ]


def document(problem: HttpProblem, path: str, request: str) -> dict[str, Any]:
    more = {name: value for name, value in problem.more.items() if name not in ("retry_after", "headers")}
    return {
        "type": f"{DOCS}{problem.code}",
        "title": TITLES.get(problem.status, "error"),
        "status": problem.status,
        "detail": problem.detail,
        "instance": path,
        "code": problem.code,
        "request": request,
        **more,
    }


def kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
