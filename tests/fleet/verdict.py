"""After the faults: is everything there that was promised, and nothing twice?

every instance has ended, and its history replays on its code without a divergence
every step has exactly one receipt in the journal, whatever the number of its executions
every execution was of a step that the journal knows, and every step that succeeded was executed
the database finds nothing wrong with itself
"""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from perdure.kernel.batch import HeadRow
from perdure.kernel.effects import Call
from perdure.kernel.events import Address, Parked, ReceiptArrived, Redelivered
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.status import TERMINAL
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Filter, Queries, place_of
from tests.entries import entries_of
from tests.fleet.flows import FLOWS, ledger_of

PAGE = 200


class Verdict(msgspec.Struct):
    """What was found: `violations` should be empty."""

    instances: int = 0
    entries: int = 0
    steps: int = 0
    executions: int = 0  # of steps: some ran again because of faults, and some were cancelled before they began
    redelivered: int = 0
    parked: int = 0  # cut in good order
    violations: list[str] = []


async def verdict(queries: Queries, ledger: Path) -> Verdict:
    found = Verdict(violations=[f"check: {problem}" for problem in await queries.check()])
    workflows: Workflows[Any] = Workflows(FLOWS)
    known: set[str] = set()
    succeeded: set[str] = set()
    before = None
    while heads := await queries.heads(Filter(before=before, limit=PAGE)):
        before = place_of(heads[-1])
        for head in heads:
            await _judge(queries, head, workflows, found, known, succeeded)
    for row in await queries.undelivered():
        found.violations.append(f"an event for {row.workflow}/{row.key} {row.instance or ''} was never delivered")
    executed = Counter(line.key for line in ledger_of(ledger))
    found.executions = sum(executed.values())
    found.steps = len(known)
    found.violations += [f"{key} was executed, and the journal does not know it" for key in executed.keys() - known]
    found.violations += [f"{key} has succeeded and was never executed" for key in succeeded - executed.keys()]
    return found


async def _judge(  # noqa: PLR0917
    queries: Queries,
    head: HeadRow,
    workflows: Workflows[Any],
    found: Verdict,
    known: set[str],
    succeeded: set[str],
) -> None:
    address = Address(head.workflow, head.key)
    rows = await queries.history(head.id)
    instance = fold(address, None, rows)
    found.instances += 1
    found.entries += len(rows)
    if head.status not in TERMINAL:
        found.violations.append(f"{address} has not ended: it is {head.status}")
    workflow = workflows.of(head.workflow, head.version)
    assert workflow is not None, f"these tests have no {address}"
    try:
        rebuild(instance, workflow).dispose()
    except Exception as error:
        found.violations.append(f"{address} cannot be replayed: {error}")
    keys: dict[bytes, str] = {}
    answers: Counter[bytes] = Counter()
    ok: Counter[str] = Counter()
    for entry in entries_of(rows):
        for effect in entry.decision.open:
            if type(effect) is Call:
                keys[instance.intent_id(effect)] = instance.identity.idempotency_key(effect.location, effect.life)
        if isinstance(entry.event, ReceiptArrived):
            answers[entry.event.intent] += 1
            if entry.event.receipt.status == "ok" and entry.event.intent in keys:
                ok[keys[entry.event.intent]] += 1
        found.redelivered += isinstance(entry.event, Redelivered)
        found.parked += isinstance(entry.event, Parked)
    for intent, times in answers.items():
        if times > 1:
            found.violations.append(f"{address}: {times} receipts for {intent.hex()}")
    for key in keys.values():
        if ok[key] != 1 and head.status == "completed":
            found.violations.append(f"{address}: {ok[key]} receipts of success for the effect {key}")
    known.update(keys.values())
    succeeded.update(ok)
