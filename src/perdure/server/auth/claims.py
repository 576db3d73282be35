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
    match = words[0].partition("=") if words else ("", "", "")
    rest = words[1:]
    values = NO_VALUES not in rest
    rest = [word for word in rest if word != NO_VALUES]
    if not (match[0] and match[2]) or len(rest) not in (1, 2) or rest[0] not in ROLES:
        raise CallerError(f"a grant by claim is {expected}, with a role of {', '.join(ROLES)}; found {text!r:.120}")
    workflows = tuple(filter(None, rest[1].split(","))) if len(rest) == 2 else ("*",)
    return ClaimRule(match[0], match[2], Grant(rest[0], workflows, values))


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
