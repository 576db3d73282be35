"""Which refusals of its own each verb has, by code, the HTTP status of a code, and what makes two requests one."""

from __future__ import annotations

from typing import Final, Literal

Repeat = Literal["read", "key", "idempotency-key", "nature", "content"]
"""Two requests are one: they only read; by the key of the instance; by the header; by what they do; by their bytes."""

_FILTER: Final = ("bad-filter", "bad-cursor", "bad-request")
_INSTANCE: Final = ("not-found", "version-conflict")
_PLANNED: Final = (*_INSTANCE, "selection-changed")
_TASK: Final = ("not-found", "task-refused")

REFUSALS: Final[dict[str, tuple[str, ...]]] = {
    "start": ("key-in-use", "unknown-workflow", "invalid-input", "workflow-unavailable"),
    "ls": _FILTER,
    "count": _FILTER,
    "list export": _FILTER,
    "diff": ("not-found", "bad-request"),
    "result": ("not-found",),
    "read": ("not-found",),
    "send": (*_INSTANCE, "instance-ended", "invalid-input"),
    "ask": (*_INSTANCE, "instance-ended", "invalid-input", "not-answered"),
    "cancel": (*_PLANNED, "instance-ended"),
    "wake": (*_INSTANCE, "instance-ended", "unknown-location"),
    "tag": (*_INSTANCE, "instance-ended"),
    "retry": (*_PLANNED, "not-stuck"),
    "settle": (*_PLANNED, "not-stuck", "unknown-location"),
    "rewind": (*_PLANNED, "still-running", "unknown-location", "instance-ended"),
    "fork": (*_PLANNED, "unknown-location", "key-in-use"),
    "bulk start": ("selection-changed", "bulk-running", "too-broad", "bad-filter", "not-found"),
    "bulk show": ("not-found",),
    "bulk cancel": ("not-found",),
    "bookmark show": ("not-found",),
    "bookmark put": ("name-taken", "bad-filter"),
    "bookmark delete": ("not-found",),
    "workflow source": ("not-found", "code-not-here"),
    "workflow drawing": ("not-found", "code-not-here"),
    "workflow diff": ("not-found", "code-not-here"),
    "version form": ("not-found", "code-not-here"),
    "version export": ("not-found", "code-not-here", "bad-request"),
    "version source": ("not-found", "code-not-here"),
    "version drawing": ("not-found", "code-not-here"),
    "workflow schema": ("not-found",),
    "drawing": ("not-found", "code-not-here"),
    "put": ("invalid-definition", "definition-conflict"),
    "activate": ("unknown-workflow", "unknown-version"),
    "ctx": ("not-found", "code-not-here"),
    "tokens": ("not-found", "code-not-here"),
    "report": ("not-found", "code-not-here"),
    "submit": (*_INSTANCE, "node-denied", "instance-ended"),
    "node cancel": (*_INSTANCE, "unknown-node", "instance-ended"),
    "patch": (*_INSTANCE, "patch-refused", "instance-ended"),
    "cells ls": _FILTER,
    "cells show": ("not-found", "code-not-here"),
    "cells tail": ("not-found", "bad-request"),
    "journal": ("bad-request",),
    "message": ("not-found", "ambiguous-reference", "invalid-input"),
    "event": ("bad-request", "invalid-input"),
    "effects answer": ("unknown-intent", "receipt-refused"),
    "manifest propose": ("rule-refused", "bad-request"),
    "manifest approve": ("four-eyes", "rule-refused"),
    "manifest reject": ("rule-refused",),
    "manifest apply": ("rule-refused",),
    "tasks complete": (*_TASK, "bad-answer"),
    "grant": ("last-admin",),
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


_REPEATS: Final[dict[str, Repeat]] = {"start": "key", "fork": "key", "put": "content", "check": "read"}


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
