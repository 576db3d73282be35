"""Whether instances that have not ended would go on with some code: each history is replayed on it, without effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure.errors import Divergence
from perdure.kernel.batch import JournalRow
from perdure.kernel.events import Address
from perdure.kernel.machine import Workflow
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.status import TERMINAL
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Filter, Queries, place_of

PAGE: Final = 200


class Replayed(msgspec.Struct, frozen=True):
    """`divergence` is what the code does otherwise; None: the instance would go on."""

    id: str
    divergence: str | None


async def survey(queries: Queries, workflows: Workflows[Any]) -> list[Replayed]:
    found: list[Replayed] = []
    for name in workflows.names():
        before = None
        while heads := await queries.heads(Filter(workflow=name, before=before, limit=PAGE)):
            before = place_of(heads[-1])
            for head in heads:
                if head.status not in TERMINAL:
                    workflow = _code(workflows, name, head.version)
                    if workflow is None:  # it began with newer code: an engine with this code leaves it alone
                        continue
                    address = Address(head.workflow, head.key)
                    rows = await queries.history(head.id)
                    found.append(Replayed(str(address), _divergence(address, rows, workflow)))
    return found


def _code(workflows: Workflows[Any], name: str, version: str) -> Workflow | None:
    """Where an instance runs on its own version only, versions have no order: no code is older than another."""
    newest: Workflow | None = workflows.newest(name)
    if newest is not None and newest.policy.exact:
        return workflows.exactly(name, version) or newest
    found: Workflow | None = workflows.of(name, version)
    return found


def _divergence(address: Address, rows: Sequence[JournalRow], workflow: Workflow) -> str | None:
    try:
        rebuild(fold(address, None, rows), workflow).dispose()
    except Divergence as error:
        return str(error)
    except Exception as error:  # what the code raises on the way would make the instance stuck as well
        return f"{type(error).__name__}: {error}"
    return None
