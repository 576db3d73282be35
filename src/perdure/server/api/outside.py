"""What comes from outside: receipts of executors that have a key of their own, domain events, messages by reference."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import UnknownIntent
from perdure.kernel.outside import KIND
from perdure.ports.outside import OpenEffect
from perdure.runtime.open_effects import intent_id, was_asked
from perdure.runtime.references import live_one

from ..calling import Calling
from ..problems import HttpProblem
from .access import Done

LIMIT_MAX: Final = 500


class EffectsQuery(msgspec.Struct, frozen=True):
    """`after` is the intent of the last one of the page before."""

    after: str = ""
    limit: int = 100


class EffectList(msgspec.Struct, frozen=True):
    items: list[OpenEffect]


async def effects(calling: Calling, given: EffectsQuery) -> EffectList:
    if not 1 <= given.limit <= LIMIT_MAX:
        raise HttpProblem(422, "bad-request", f"limit is 1 to {LIMIT_MAX}, found {given.limit}", where="/limit")
    found = await calling.client.open_effects(calling.login.executor, after=given.after, limit=given.limit)
    return EffectList(found)


class ReceiptParams(msgspec.Struct, frozen=True):
    """`ok` is the value of an effect that was done; else `error` is a text, or `status` says how it ended."""

    intent: str
    ok: Any = UNSET
    error: str | None = None
    status: Literal["error", "timeout", "cancelled", "unknown"] | None = None
    cost: Any = None


async def receipt(calling: Calling, given: ReceiptParams) -> Done | tuple[int, Done]:
    """An effect of another executor is not there for this one. A late receipt is taken (202) and changes nothing."""
    more: dict[str, Any] = {} if isinstance(given.ok, UnsetType) else {"ok": given.ok}
    if not more and given.error is None and given.status is None:
        raise HttpProblem(422, "bad-request", "a receipt has ok, error or status", where="/")
    executor, id = calling.login.executor, intent_id(given.intent)
    row = await calling.client.queries.work(id)
    if row is not None and row.kind != f"{KIND}{executor}":
        raise UnknownIntent(given.intent[:80])
    try:
        await calling.client.answer(
            given.intent, executor=executor, error=given.error, status=given.status, cost=given.cost, **more
        )
    except UnknownIntent:
        if not await was_asked(calling.client.queries, id, executor):
            raise
        return 202, Done()
    return Done()


class EventParams(msgspec.Struct, frozen=True):
    """A domain event for the cells that take it."""

    name: str
    data: Any = None
    correlation: str = ""


async def event(calling: Calling, given: EventParams) -> Done:
    calling.check_rules()
    await calling.client.send_json(given.name, given.data, id=calling.event or None, correlation=given.correlation)
    return Done()


class ReferenceParams(msgspec.Struct, frozen=True):
    """A message to the one live instance that has this reference; `parts` tells several apart."""

    reference: str
    name: str
    body: Any = None
    parts: dict[str, str] = {}


class ReferenceAnswer(msgspec.Struct, frozen=True):
    id: str
    sent: str


async def message(calling: Calling, given: ReferenceParams) -> ReferenceAnswer:
    """It reaches an instance that the login sees."""
    found = await live_one(calling.client.queries, given.reference, given.parts, calling.sees)
    await calling.find(f"@{found.id}")
    handle = calling.client.handle(found.workflow, found.key)
    await handle.send(given.name, given.body, id=calling.event or None)
    return ReferenceAnswer(handle.id, given.name)
