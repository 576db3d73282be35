"""The effects that wait for executors outside, as callers see and name them."""

from __future__ import annotations

from typing import Any

from perdure.codec import digest, encode
from perdure.errors import CallerError
from perdure.kernel.apply import Changed
from perdure.kernel.effects import due_of
from perdure.kernel.entry import Entry
from perdure.kernel.events import Address
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.moment import when
from perdure.kernel.outside import outside_of
from perdure.kernel.replay import fold
from perdure.ports.outside import OpenEffect
from perdure.ports.seen import Line
from perdure.ports.store import Queries

from .history import read_history


async def open_effects(queries: Queries, executor: str, after: bytes, limit: int) -> list[OpenEffect]:
    """What waits for executors outside, or for one of them, in the order of the intents."""
    rows = await queries.outside(executor, after, limit)
    found: dict[int, Instance | None] = {}
    effects = []
    for row in rows:
        if row.instance not in found:
            found[row.instance] = await _folded(queries, row.instance)
        instance = found[row.instance]
        if instance is not None and row.intent in instance.open:  # else it was answered since
            effects.append(_open_effect(instance, instance.open[row.intent]))
    return effects


async def was_asked(queries: Queries, intent: bytes, executor: str) -> bool:
    """Whether an executor outside was asked by an intent that is not open any more.

    The journal has the intent where it was answered or withdrawn; of those the newest are searched.
    """
    instance = await queries.mentions(intent)
    if not instance:
        return False
    asked = _Asked(intent)
    await read_history(queries, instance, [asked])
    return asked.executor == executor


class _Asked:
    """Hears in a history whom an intent asked."""

    def __init__(self, intent: bytes) -> None:
        self._intent = intent
        self.executor: str | None = None

    def heard(self, line: Line, entry: Entry, instance: Instance, changed: Changed) -> None:
        for intent in (*changed.opened, *changed.closed):
            outside = outside_of(intent.effect) if intent.id == self._intent else None
            if outside is not None:
                self.executor = outside.executor


async def _folded(queries: Queries, instance: int) -> Instance | None:
    record = await queries.record(instance)
    if record is None:
        return None
    return fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows)


def _open_effect(instance: Instance, intent: Intent) -> OpenEffect:
    outside = outside_of(intent.effect)
    assert outside is not None, "its row says that it is for somebody outside"
    due = due_of(intent.effect)
    return OpenEffect(
        intent=intent.id.hex(),
        effect=outside.effect,
        executor=outside.executor,
        params=outside.params,
        params_hash=digest(encode(outside.params)),
        workflow=instance.address.workflow,
        key=instance.address.key,
        entry=outside.entry,
        issuer=outside.issuer,
        idempotency_key=outside.key or instance.identity.idempotency_key(intent.effect.location),
        due=None if due is None else when(due),
    )


def intent_id(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (ValueError, TypeError):
        raise CallerError(
            f"an intent is named by hex digits, as open_effects() shows them, found {text!a:.80}"
        ) from None
