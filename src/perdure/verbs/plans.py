"""Dry runs: what a verb would do, and a plan that holds until the instance moves.

A plan names the last entry of the instance and what was asked for. A request with a plan is refused as
`SelectionChanged` if either is another now.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import SelectionChanged
from perdure.kernel.asked import Asked
from perdure.kernel.batch import HeadRow
from perdure.runtime.asking import asking
from perdure.runtime.bulk import handle_of
from perdure.runtime.client import Client
from perdure.runtime.foresee import foresee

FACE = frozenset({"id", "dry_run", "plan"})
"""Parameters that say how a verb is asked for, and not what it does."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer of a dry run has besides: what the verb would do, and the plan to ask for it with."""

    would: list[str] | UnsetType = UNSET
    plan: str | UnsetType = UNSET


async def dry_run(client: Client, verb: str, head: HeadRow, given: Any) -> dict[str, Any]:
    """The fields `would` and `plan` of an answer. Raises what the verb itself would raise."""
    params = params_of(given)
    would = await foresee(handle_of(client, head), verb, params)
    return {"would": would, "plan": plan_of(verb, params, await _entry(client, head))}


async def plan_for(client: Client, verb: str, head: HeadRow, given: Any) -> str:
    """The plan of a verb that is judged elsewhere: it holds as long as the instance is at this entry."""
    return plan_of(verb, params_of(given), await _entry(client, head))


async def by_plan(client: Client, verb: str, head: HeadRow, given: Any) -> Client:
    """The client to do it with: without a plan the same one; with a plan, one that refuses another last entry."""
    if not given.plan:
        return client
    entry = await _entry(client, head)
    if given.plan != plan_of(verb, params_of(given), entry):
        was, now = given.plan.partition("-")[0], f"its last entry is {entry} now"
        text = f"the plan {given.plan!r:.60} was made at entry {was} of {head.workflow}/{head.key}; {now}"
        raise SelectionChanged(f"{text}: make another dry run")
    return asking(client, Asked(if_entry=entry))


def params_of(given: Any) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(given).items() if name not in FACE}


def plan_of(verb: str, params: dict[str, Any], seen: Any) -> str:
    does = {name: value for name, value in params.items() if name != "reason"}
    said = msgspec.json.encode([verb, does, seen], order="deterministic")
    return f"{seen}-{hashlib.blake2b(said, digest_size=8).hexdigest()}"


def entry_of(plan: str) -> int | None:
    """The entry at which a plan of one instance was made."""
    number = plan.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


async def _entry(client: Client, head: HeadRow) -> int:
    reader = await handle_of(client, head)._read()
    return reader.state.version
