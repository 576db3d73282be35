"""Which refusals of its own each verb has, by code, the HTTP status of a code, and what makes two requests one."""

from __future__ import annotations

from typing import Final, Literal

Repeat = Literal["read", "key", "idempotency-key", "nature", "content", "never"]
"""Two requests are one: they only read; by the key of the instance; by the header; by what they do; by their bytes.
`never`: each request is another.
"""

OF_TASKS: Final = {
    "taken": "Another person has the task. They, a manager or an admin release it.",
    "ended": "The task has ended: it was completed, cancelled, or it has expired.",
    "not-assignee": "Another person has the task, and the assignee alone may do this. An admin may with `override`.",
    "not-candidate": "The actor is no candidate of the task. An admin may complete or assign it with `override`.",
    "not-manager": "A manager of the task or an admin alone may do this.",
    "excluded": "The task excludes this actor: four eyes. No role changes that.",
    "no-reason": "A task is cancelled with a reason.",
    "shared": "Several people decide this task by vote, so that no one holds it.",
}
"""The codes of `TaskRefused`."""

_FILTER: Final = ("bad-filter", "bad-cursor", "bad-request")
_INSTANCE: Final = ("not-found", "version-conflict")
_PLANNED: Final = (*_INSTANCE, "selection-changed")
_RULES: Final = ("unknown-proposal", "stale-patch", "rule-refused")
_TASK: Final = ("not-found", *OF_TASKS)

REFUSALS: Final[dict[str, tuple[str, ...]]] = {
    "start": ("key-in-use", "unknown-workflow", "invalid-input", "workflow-unavailable"),
    "ls": _FILTER,
    "count": _FILTER,
    "groups": _FILTER,
    "list export": _FILTER,
    "diff": ("not-found", "two-workflows", "bad-request"),
    "at": ("not-found", "unknown-entry"),
    "result": ("not-found",),
    "read": ("not-found",),
    "send": (*_INSTANCE, "instance-ended", "invalid-input"),
    "ask": (*_INSTANCE, "instance-ended", "invalid-input", "not-answered"),
    "cancel": (*_PLANNED, "instance-ended"),
    "wake": (*_INSTANCE, "instance-ended", "unknown-location"),
    "pause": (*_INSTANCE, "instance-ended", "bad-request"),
    "resume": (*_INSTANCE, "instance-ended", "bad-request"),
    "tag": (*_INSTANCE, "instance-ended"),
    "retry": (*_PLANNED, "not-stuck"),
    "settle": (*_PLANNED, "not-stuck", "unknown-location"),
    "rewind": (*_PLANNED, "still-running", "unknown-location", "instance-ended"),
    "fork": (*_PLANNED, "unknown-location", "key-in-use"),
    "bulk start": ("selection-changed", "bulk-running", "too-broad", "bad-filter", "not-found"),
    "bulk show": ("not-found",),
    "bulk cancel": ("not-found",),
    "bookmark show": ("not-found",),
    "bookmark put": ("name-taken", "bad-filter", "too-many-bookmarks"),
    "bookmark delete": ("not-found",),
    "workflow source": ("not-found", "unknown-version", "code-not-here"),
    "workflow drawing": ("not-found", "unknown-version", "code-not-here"),
    "workflow diff": ("not-found", "unknown-version", "code-not-here"),
    "version show": ("not-found", "unknown-version"),
    "version form": ("not-found", "unknown-version", "code-not-here"),
    "version export": ("not-found", "unknown-version", "code-not-here", "bad-request"),
    "version source": ("not-found", "unknown-version", "code-not-here"),
    "version drawing": ("not-found", "unknown-version", "code-not-here"),
    "workflow schema": ("not-found",),
    "drawing": ("not-found", "unknown-entry", "code-not-here"),
    "put": ("invalid-definition", "definition-conflict"),
    "activate": ("unknown-workflow", "unknown-version", "selection-changed"),
    "migrate": (
        "unknown-workflow",
        "unknown-version",
        "not-found",
        "does-not-fit",
        "selection-changed",
        "still-working",
    ),
    "preview": (
        *("not-found", "unknown-version", "code-not-here", "invalid-definition"),
        *("too-broad", "still-working", "bad-request"),
    ),
    "simulate": ("invalid-definition", "too-broad", "still-working", "bad-request"),
    "ctx": ("not-found", "code-not-here", "bad-request"),
    "tokens": ("not-found", "code-not-here", "bad-request"),
    "report": ("not-found", "code-not-here", "bad-request"),
    "submit": (*_INSTANCE, "denied", "instance-ended"),
    "node cancel": (*_INSTANCE, "unknown-node", "instance-ended"),
    "patch": (*_INSTANCE, "patch-refused", "instance-ended"),
    "cells ls": _FILTER,
    "cells show": ("not-found", "code-not-here"),
    "cells tail": ("not-found", "bad-request"),
    "journal": ("bad-request",),
    "message": ("not-found", "ambiguous-reference", "invalid-input"),
    "event": ("bad-request", "unknown-event", "invalid-input"),
    "effects answer": ("unknown-intent", "receipt-refused"),
    "manifest diff": _RULES,
    "manifest propose": ("rule-refused", "bad-request", "no-engine"),
    "manifest shadow": (*_RULES, "code-not-here", "still-working", "no-engine"),
    "manifest approve": ("four-eyes", *_RULES, "no-engine"),
    "manifest reject": (*_RULES, "no-engine"),
    "manifest apply": (*_RULES, "no-engine"),
    "manifest migrate": ("selection-changed", "rule-refused", "no-engine"),
    "snapshot take": ("still-working", "bad-request"),
    "snapshot gc": ("still-working", "bad-request"),
    "queue show": ("not-found",),
    "queue jobs": ("not-found", "bad-cursor", "bad-request"),
    "tasks complete": (*_TASK, "bad-answer"),
    "grant": ("last-admin",),
    "key add": ("too-many-keys",),
    "key revoke": ("not-found",),
}

_OTHERS: Final = {
    "version-conflict": 412,
    "mailbox-full": 429,
    "workflow-unavailable": 503,
    "no-engine": 503,
    "key-reused": 422,
}


def status_of(code: str) -> int:
    """The HTTP status of a refusal."""
    if code == "not-found" or code.startswith("unknown-"):
        return 404
    if code.startswith(("bad-", "invalid-")):
        return 422
    return _OTHERS.get(code, 409)


_REPEATS: Final[dict[str, Repeat]] = {
    "start": "key",
    "fork": "key",
    "put": "content",
    "access link": "never",
    "check": "read",
    "preview": "read",
    "simulate": "read",
}


def repeat_of(name: str, method: str) -> Repeat:
    if method == "GET":
        return "read"
    if method in ("PUT", "DELETE"):
        return "nature"
    return _REPEATS.get(name, "idempotency-key")


def refusals_of(name: str, method: str) -> tuple[str, ...]:
    """Those of a verb. What is done once by a header may be refused because of it."""
    own = REFUSALS.get(name, _TASK if name.startswith("tasks ") and name not in ("tasks ls", "tasks count") else ())
    return own if method in ("GET", "PUT", "DELETE") else (*own, "key-reused")
