"""Whether instances that have not ended would go on with some code: each history is replayed on it, without effects."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure.codec import decode
from perdure.definitions.load import is_new, register_of, stored
from perdure.errors import Divergence, DoesNotFit
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.events import Address, Migrated
from perdure.kernel.machine import Workflow
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rules import RULING
from perdure.kernel.status import TERMINAL
from perdure.kernel.workflows import OWN, Workflows
from perdure.ports.store import Queries
from perdure.runtime.migration import live_heads

SAMPLE: Final = 20
"""How many instances a preview names for each location."""

BUDGET_SECONDS: Final = 5.0
BUDGET_INSTANCES: Final = 10_000


class Replayed(msgspec.Struct, frozen=True):
    """`divergence` is what the code does otherwise; None: the instance would go on."""

    id: str
    divergence: str | None


async def survey(queries: Queries, workflows: Workflows[Any]) -> list[Replayed]:
    """Other content under a version that is kept is refused, as an engine with this code refuses it."""
    found: list[Replayed] = []
    for each in workflows:
        await _check_definition(queries, each)
    for name in workflows.names():
        kept = await _kept(queries, workflows.newest(name))
        async for head in live_heads(queries, name, ("",)):
            workflow = _code(workflows, name, head.version)
            if workflow is not None:  # else it began with newer code: an engine with this code leaves it alone
                against = await _against(queries, head, workflow, kept)
                found.append(Replayed(f"{head.workflow}/{head.key}", None if against is None else _text(against)))
    return found


async def _check_definition(queries: Queries, workflow: Any) -> None:
    if not hasattr(type(workflow), "stored"):
        return
    given = workflow.stored
    before = await stored(queries, given.name, given.version)
    is_new(await register_of(queries, given.name), before, given, decode)


async def _kept(queries: Queries, workflow: Any) -> frozenset[str]:
    """The versions of a definition that the database has. Live instances of one stay on it."""
    register = await register_of(queries, workflow.name) if workflow.policy.exact else None
    return frozenset(() if register is None else [each.version for each in register.versions])


async def left_alone(queries: Queries, workflows: Workflows[Any]) -> dict[str, int]:
    """The live instances, by workflow, of which some code has no version: an engine with it does nothing for them.

    Definitions that are data are in the database: every engine has those.
    """
    known = set(workflows.names())
    found: Counter[str] = Counter()
    for (name, _, status), count in (await queries.counts()).items():
        if count and status not in TERMINAL and name not in known and not name.startswith((OWN, RULING)):
            found[name] += count
    return {name: found[name] for name in sorted(found) if await register_of(queries, name) is None}


class Unfit(msgspec.Struct, frozen=True):
    """Instances that diverge at one location: how many were found, and the first of them."""

    location: str
    error: str
    count: int
    sample: list[Replayed]


class Preview(msgspec.Struct, frozen=True):
    """What a version would do with the live instances of its workflow.

    `live` counts all of them, `looked` those that were replayed: `partial` if the budget ended before. `stay`: live
    instances keep the version that they began with, whatever version is active.
    """

    name: str
    version: str
    live: int
    looked: int
    safe: int
    unfit: list[Unfit]
    partial: bool
    stay: bool


async def preview(queries: Queries, workflow: Any, seconds: float = BUDGET_SECONDS) -> Preview:
    """Replay the live instances of a workflow on one version, in a thread, until the budget ends. Newest first."""
    counts = await queries.counts()
    live = sum(n for (name, _, status), n in counts.items() if name == workflow.name and status not in TERMINAL)
    until, looked, partial = time.monotonic() + seconds, 0, False
    numbers: Counter[tuple[str, str]] = Counter()
    samples: dict[tuple[str, str], list[Replayed]] = {}
    kept = await _kept(queries, workflow)
    async for head in live_heads(queries, workflow.name):
        if time.monotonic() > until or looked >= BUDGET_INSTANCES:
            partial = True
            break
        looked += 1
        against = await _against(queries, head, workflow, kept)
        if against is not None:
            place = getattr(against, "location", ""), type(against).__name__
            numbers[place] += 1
            if numbers[place] <= SAMPLE:
                samples.setdefault(place, []).append(Replayed(f"{head.workflow}/{head.key}", _text(against)))
    unfit = [Unfit(*place, count, samples[place]) for place, count in numbers.most_common()]
    safe = looked - sum(numbers.values())
    return Preview(
        workflow.name, str(workflow.version), live, looked, safe, unfit, partial, bool(workflow.policy.exact)
    )


def _code(workflows: Workflows[Any], name: str, version: str) -> Workflow | None:
    """Where an instance runs on its own version only, versions have no order: no code is older than another."""
    newest: Workflow | None = workflows.newest(name)
    if newest is not None and newest.policy.exact:
        return workflows.exactly(name, version) or newest
    found: Workflow | None = workflows.of(name, version)
    return found


async def _against(queries: Queries, head: HeadRow, workflow: Workflow, kept: frozenset[str]) -> Exception | None:
    """Why an instance would not go on; None: it would, or it stays on its version, which is `kept`."""
    if head.version != workflow.version and head.version.partition("+")[0] in kept:
        return None
    rows = await queries.history(head.id)
    return await asyncio.to_thread(_replayed, Address(head.workflow, head.key), rows, workflow)


def _replayed(address: Address, rows: Sequence[JournalRow], workflow: Workflow) -> Exception | None:
    try:
        instance = fold(address, None, rows)
        if instance.definition != workflow.version and any(
            type(each.event) is Migrated for each in instance.tail or ()
        ):
            text = "it has migrated, and its own version alone replays it: ask for a migration with a dry run"
            return DoesNotFit(text)
        rebuild(instance, workflow).dispose()
    except Exception as error:  # what the code raises on the way would make the instance stuck as well
        return error
    return None


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, Divergence) else f"{type(error).__name__}: {error}"
