"""Errors as programs read them: `application/problem+json` (RFC 9457). One table maps error classes to codes.

The first class that fits counts. An error of ours that no row names is a 500 with a number and nothing else.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

from perdure import errors
from perdure.errors import PerdureError

from .refusals import OF_TASKS, status_of

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

PAGES: Final = "/errors/"
"""Below this path of the server each code has a page: the `type` of a problem leads there."""

OWN: Final = {
    "malformed": "The request is not strict JSON in UTF-8. Correct it; nothing was recorded.",
    "login-needed": "The request has no valid login. Log in, or send an API key: `Authorization: Bearer pdk_…`.",
    "forbidden": "The login may see this and may not do that. `expected` is the role that it needs.",
    "foreign-host": "The server does not answer under that name. The setting `hosts` lists those that it has.",
    "foreign-origin": "A write with a cookie came from another page than those of this server. Programs use API keys.",
    "read-only": "The server was started with `--read-only`: it refuses every verb that changes something.",
    "wrong-method": "The path exists, and not with this method. The header `Allow` lists those that it has.",
    "last-admin": "One admin has to be left. Make another admin first.",
    "name-taken": "The name belongs to a bookmark that another person shares. Choose another name.",
    "too-many-bookmarks": "There are as many bookmarks as a person may have, or share. Delete one first.",
    "too-many-keys": "There are as many API keys as a server keeps. Revoked keys go after a year.",
    "unknown-node": "The graph has no node of that name. `GET …/-/report` lists those that it has.",
    "unknown-verb": "There is no verb of that name. `GET /verbs` lists them.",
    "too-slow": "The body did not come in time. Send the request again.",
    "code-not-here": "Only the workflow's code can tell this. Ask a server that has the code.",
    "still-working": "The server still makes what an earlier request asked for. Try again after `Retry-After` seconds.",
    "unknown-proposal": "There is no proposal of that number. `GET …/world/proposals` lists them.",
    "four-eyes": "A proposal is approved by another person than its proposer.",
    "denied": "The graph refuses the node at the `stage` that the problem has. The detail names the rule.",
    "patch-refused": "The playbook refuses the patch of ctx. The detail says why; nothing was changed.",
    "url-too-long": "The URL is longer than the limit. Filters can be sent as a bookmark.",
    "wrong-media-type": "A body is `application/json`; a definition may be YAML.",
    "bad-cursor": "The cursor belongs to another list, or was changed. Begin again without a cursor.",
    "key-reused": "The `Idempotency-Key` was used for another request. Each request takes a key of its own.",
    "too-many-logins": "Too many logins failed from this address. Try again after `Retry-After` seconds.",
    "too-many-requests": "The login sends more requests than its limit. Try again after `Retry-After` seconds.",
    "too-many-streams": "The login has as many open streams as its limit. Close one.",
    "too-many-headers": "The request has more headers than the limit.",
    "internal": "This is a defect of perdure. The log of the server has the number of the request.",
    "cut-off": "The server stopped before the answer. Look at the instance before the request is repeated.",
}
"""What the codes mean that no error class stands behind."""

OWN_RULES: Final = ("unknown-proposal", "stale-patch")
"""Refusals of a world with a code of their own; the others are `rule-refused`, with the world's code as `found`."""

_ROWS: Final[tuple[tuple[str, str, int], ...]] = (
    ("UnknownInstance", "not-found", 404),
    ("UnknownTask", "not-found", 404),
    ("UnknownVersion", "unknown-version", 404),
    ("UnknownWorkflow", "unknown-workflow", 404),
    ("UnknownEntry", "unknown-entry", 404),
    ("UnknownLocation", "unknown-location", 404),
    ("UnknownSnapshot", "unknown-snapshot", 404),
    ("UnknownEvent", "unknown-event", 404),
    ("UnknownIntent", "unknown-intent", 404),
    ("BadPlaybook", "invalid-definition", 422),
    ("BadProcess", "invalid-definition", 422),
    ("DefinitionConflict", "definition-conflict", 409),
    ("WorkflowUnavailable", "workflow-unavailable", 503),
    ("AmbiguousReference", "ambiguous-reference", 409),
    ("TwoWorkflows", "two-workflows", 409),
    ("UnclearRequest", "bad-request", 422),
    ("BadFilter", "bad-filter", 422),
    ("TooBroad", "too-broad", 409),
    ("SelectionChanged", "selection-changed", 409),
    ("BulkRunning", "bulk-running", 409),
    ("KeyInUse", "key-in-use", 409),
    ("InstanceEnded", "instance-ended", 409),
    ("NotStuck", "not-stuck", 409),
    ("StillRunning", "still-running", 409),
    ("DoesNotFit", "does-not-fit", 409),
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


SAID: Final = ("where", "expected", "found", "hint")
"""Attributes of errors that problems have as they are."""


OVER_HTTP: Final = {
    "`perdure tasks ls` lists tasks": "`GET /tasks` lists those of this login",
    "register it: perdure.open(url, workflows=[...])": "`GET /workflows` lists those of this login",
}
"""What errors propose in Python and on the command line, and what they propose over HTTP."""


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
            more: dict[str, Any] = {"error": type(error).__name__} | {
                name: text for name in SAID if isinstance(text := getattr(error, name, None), str) and text
            }
            if rows := rows_of(error):
                more["errors"] = [{name: row[name] for name in ("pointer", "detail")} for row in rows]
            named = str(getattr(error, "code", code)) if code == "task-refused" else code
            if isinstance(error, errors.RuleRefused):
                more["found"] = error.code
                if error.code in OWN_RULES:
                    return HttpProblem(status_of(error.code), error.code, str(error), **more)
            if status == 503:
                more["retry_after"] = 1
            return HttpProblem(status, named, _over_http(str(error)), **more)
    return HttpProblem(409, kebab(type(error).__name__), str(error))


def _over_http(text: str) -> str:
    for said, proposed in OVER_HTTP.items():
        text = text.replace(said, proposed)
    return text


def explained(code: str) -> str:
    """The page of a code: what it means, and the docstring of each error that it stands for. Empty: no such code."""
    texts = [each[code] for each in (OWN, OF_TASKS) if code in each]
    for kind, named, status in TABLE:
        if named == code:
            texts.append(f"{kind.__name__}, {status} {TITLES[status]}\n\n{inspect.cleandoc(kind.__doc__ or '')}")
    return "\n\n".join([code, *texts]) + "\n" if texts else ""


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


def document(problem: HttpProblem, path: str, request: str, root: str = "") -> dict[str, Any]:
    more = {name: value for name, value in problem.more.items() if name not in ("retry_after", "headers")}
    return {
        "type": f"{root}{PAGES}{problem.code}",
        "title": problem.code.replace("-", " ") if problem.status == 422 else TITLES.get(problem.status, "error"),
        "status": problem.status,
        "detail": problem.detail,
        "instance": root + path,
        "code": problem.code,
        "request": request,
        **more,
    }


def kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
