"""Logins, grants and the one function that decides who may do what.

A grant is a role on some workflows. `allowed` is pure: every face asks it before each verb, and for each row of a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, Literal

import msgspec

from perdure.kernel.asked import Actor
from perdure.kernel.rules import RULER

WORKFLOW: Final = "perdure.access"
KEY: Final = "main"
OWN: Final = "perdure."
"""What the names of built-in workflows begin with."""

Role = Literal["viewer", "operator", "author", "admin"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "author", "admin")
RANK: Final[dict[str, int]] = {role: rank for rank, role in enumerate(ROLES)}

Who = Literal["viewer", "operator", "author", "admin", "task", "executor", "anyone"]
"""Who may use a verb: a role, any login, or logins that the rules of the task or the name of the executor choose."""


class Grant(msgspec.Struct, frozen=True):
    """A role on the workflows that a pattern names. `values`: the login may see payloads."""

    role: Role
    workflows: tuple[str, ...] = ("*",)
    values: bool = True


class Login(msgspec.Struct, frozen=True):
    """An actor with its grants. `via` says how the actor was recognised; an executor key has no grants.

    `owner`: it has all rights without a grant, as the owner of the database or by the word of the host.
    """

    actor: Actor
    grants: tuple[Grant, ...] = ()
    via: str = ""
    executor: str = ""
    owner: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """`hidden`: the login may not know that the subject exists. `needs`: the role that would be enough."""

    yes: bool
    hidden: bool = False
    needs: str = ""


YES: Final = Verdict(True)
HIDDEN: Final = Verdict(False, hidden=True)


@lru_cache(4096)
def matches(patterns: tuple[str, ...], workflow: str) -> bool:
    return any(fnmatchcase(workflow, pattern) for pattern in patterns)


def rank_on(login: Login, workflow: str) -> int:
    """The rank of the best role on a workflow; -1: none. An empty name means any workflow."""
    ranks = [RANK[each.role] for each in login.grants if not workflow or matches(each.workflows, workflow)]
    return max(ranks, default=-1)


def allowed(login: Login, who: Who, workflow: str = "", *, read: bool = True, executor: str = "") -> Verdict:
    """Whether a login may use a verb. `workflow` is that of the subject; empty: the verb has no such subject."""
    if login.executor and (who == "task" or (who == "anyone" and not read)):
        return Verdict(False, needs="the login of a person")
    if who in ("anyone", "task"):
        return YES
    if who == "executor":
        return YES if login.executor and login.executor == executor else HIDDEN
    rank = rank_on(login, workflow)
    if rank < 0:
        return HIDDEN
    if who == "admin" and not workflow and not is_admin(login.grants):
        return Verdict(False, needs="admin")  # access reaches all workflows
    if workflow == RULER.workflow and not read:  # a message to it is a rule: its verbs ask with `read`
        return Verdict(False, needs="the verbs of its own")
    if workflow.startswith(OWN):
        return _on_built_in(rank, read)
    return YES if rank >= RANK[who] else Verdict(False, needs=who)


def _on_built_in(rank: int, read: bool) -> Verdict:
    """Built-in instances are seen by admins, and changed by the verbs of their own alone."""
    if rank < RANK["admin"]:
        return HIDDEN
    return YES if read else Verdict(False, needs="the verbs of its own")


def is_admin(grants: Iterable[Grant]) -> bool:
    """Whether grants make an admin of all workflows."""
    return any(grant.role == "admin" and "*" in grant.workflows for grant in grants)


def sees(login: Login, workflow: str) -> bool:
    return allowed(login, "viewer", workflow).yes


def sees_values(login: Login, workflow: str) -> bool:
    return any(each.values and (not workflow or matches(each.workflows, workflow)) for each in login.grants)


def covers(maker: Iterable[Grant], wanted: Iterable[Grant]) -> bool:
    """Whether the grants of a maker are at least those that are wanted. A pattern covers itself, `*` covers all."""
    held = list(maker)
    return all(
        any(
            RANK[own.role] >= RANK[each.role] and own.values >= each.values and _covers(own.workflows, pattern)
            for own in held
        )
        for each in wanted
        for pattern in each.workflows
    )


def _covers(patterns: tuple[str, ...], wanted: str) -> bool:
    plain = not set("*?[") & set(wanted)
    return "*" in patterns or wanted in patterns or (plain and matches(patterns, wanted))


class ApiKey(msgspec.Struct, frozen=True):
    """A key as it is kept: the SHA-256 of its secret, never the secret."""

    id: str
    digest: str
    actor: str
    grants: tuple[Grant, ...]
    roles: tuple[str, ...]
    made_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None
    executor: str = ""

    def lives(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Person(msgspec.Struct, frozen=True):
    """What an actor was granted: roles on workflows, and roles in tasks."""

    grants: tuple[Grant, ...] = ()
    roles: tuple[str, ...] = ()


class Link(msgspec.Struct, frozen=True):
    """A login link that was not used yet: whose it is, and until when. `admin`: its maker may do all."""

    actor: str
    expires_at: datetime
    admin: bool = True


class Access(msgspec.Struct):
    """All that is known of access. `ended` has sessions that were logged out, until they would have expired."""

    keys: dict[str, ApiKey] = {}
    people: dict[str, Person] = {}
    links: dict[str, Link] = {}
    ended: dict[str, datetime] = {}
