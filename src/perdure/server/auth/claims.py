"""What the claims of an OIDC provider mean here: who it is, and with which grants. Pure.

A rule is a text: `groups=ops operator order,refund*`. Who has the value in the claim has the role on these workflows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.access.model import ROLES, Grant
from perdure.errors import CallerError

NO_VALUES: Final = "no-values"
NAME_MAX: Final = 200


class ClaimRule(msgspec.Struct, frozen=True):
    claim: str
    value: str
    grant: Grant


class Known(msgspec.Struct, frozen=True):
    """An actor that a provider knows. `roles` are those of tasks."""

    actor: str
    grants: tuple[Grant, ...]
    roles: tuple[str, ...]


def read_rule(text: str) -> ClaimRule:
    expected = "CLAIM=VALUE ROLE [WORKFLOW,WORKFLOW] [no-values] such as 'groups=ops operator order,refund*'"
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    claim, _, value = words[0].partition("=") if words else ("", "", "")
    grant = _grant(words[1:])
    if not claim or not value or grant is None:
        raise CallerError(f"a grant by claim is {expected}, with a role of {', '.join(ROLES)}; found {text!r:.120}")
    return ClaimRule(claim, value, grant)


def read_grant(text: str) -> Grant:
    """A grant as people write it: `operator order,refund*`."""
    grant = _grant(text.split())
    if grant is None:
        expected = "ROLE [WORKFLOW,WORKFLOW] [no-values] such as 'operator order,refund*'"
        raise CallerError(f"a grant is {expected}, with a role of {', '.join(ROLES)}; found {text!r:.120}")
    return grant


def _grant(words: list[str]) -> Grant | None:
    rest = [word for word in words if word != NO_VALUES]
    if len(rest) not in (1, 2) or rest[0] not in ROLES:
        return None
    workflows = tuple(filter(None, rest[1].split(","))) if len(rest) == 2 else ("*",)
    return Grant(rest[0], workflows, NO_VALUES not in words)


def known_by(
    claims: Mapping[str, Any], rules: Iterable[ClaimRule], *, actor: str = "sub", task_roles: str = ""
) -> Known | None:
    """None: the claim that names the actor is not there, or the provider has not checked it."""
    name = claims.get(actor)
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or not name.isprintable():
        return None
    if actor == "email" and claims.get("email_verified") is not True:
        return None
    grants = tuple(dict.fromkeys(rule.grant for rule in rules if rule.value in _values(claims, rule.claim)))
    return Known(name, grants, tuple(_values(claims, task_roles)) if task_roles else ())


def _values(claims: Mapping[str, Any], name: str) -> list[str]:
    """The values of a claim. `realm_access.roles` goes into objects; a claim of that whole name is looked for first."""
    found: Any = claims.get(name)
    if found is None:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return [found] if name != "scope" else found.split()
    if isinstance(found, list):
        return [each for each in found if isinstance(each, str)]
    return ["true"] if found is True else []
