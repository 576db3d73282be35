"""What may be done with an instance, by the policy of its workflow: known from its code, or from the workflow's row."""

from __future__ import annotations

from typing import Any

from perdure.errors import CallerError
from perdure.kernel.policy import ANY, Policy, Verb, decode_policy
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Queries

from .connection import Connection


class Policies:
    """Those of the workflows of a database, each read once."""

    def __init__(self) -> None:
        self._known: dict[str, Policy] = {}

    async def of(self, queries: Queries, workflow: str) -> Policy:
        if workflow not in self._known:
            for row in await queries.workflows():
                self._known[row.name] = decode_policy(row.policy)
        return self._known.get(workflow, ANY)


async def refuse_by_policy(connection: Connection, workflows: Workflows[Any], name: str, verb: Verb) -> None:
    """Raise if instances of this workflow do not take the verb."""
    known = _policy(workflows, name)
    against = (known if known is not None else await connection.policy(name)).refuses(verb)
    if against:
        raise CallerError(f"{name} is {against}")


def takes_empty_key(workflows: Workflows[Any], name: str) -> bool:
    """Whether the empty text may be the key of an instance. Where the code is not, anything may."""
    policy = _policy(workflows, name)
    return policy is None or policy.created == "message"


def _policy(workflows: Workflows[Any], name: str) -> Policy | None:
    workflow = workflows.newest(name)
    return None if workflow is None else getattr(workflow, "policy", ANY)
