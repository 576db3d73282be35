"""Verbs that change something: what each takes, what it answers, and the function. Durable when it answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import InstanceEnded, UnclearRequest
from perdure.kernel.asked import Asked
from perdure.kernel.batch import HeadRow
from perdure.kernel.status import TERMINAL, Status
from perdure.runtime.arguments import TagInput, tag_from_json
from perdure.runtime.asking import asking
from perdure.runtime.bulk import handle_of
from perdure.runtime.client import Client, Reuse
from perdure.runtime.handle import Handle
from perdure.views.find import find, find_started

from .plans import Planned, by_plan, dry_run

REASON_MAX: Final = 500
"""Characters of a reason that are recorded."""


class StartParams(msgspec.Struct, frozen=True):
    """`workflow` is a name that the last engine on the database knew; `input` the arguments by name."""

    workflow: str
    input: Any = {}
    key: str | None = None
    reuse: Reuse | None = None
    tags: dict[str, TagInput] = {}
    at: datetime | None = None
    delay: float | None = None
    by: str | None = None


class StartAnswer(msgspec.Struct, frozen=True):
    id: str
    workflow: str
    key: str


async def start(client: Client, given: StartParams) -> StartAnswer:
    handle: Handle[Any] = await client.start_plain(
        given.workflow,
        given.input,
        key=given.key,
        tags={name: tag_from_json(value) for name, value in given.tags.items()},
        reuse=given.reuse,
        at=given.at,
        delay=given.delay,
        by=given.by,
    )
    return StartAnswer(handle.id, handle.workflow, handle.key)


class SendParams(msgspec.Struct, frozen=True):
    """`message` is the message's own id: the same one twice is delivered once."""

    id: str
    name: str
    body: Any = None
    message: str | None = None


class SendAnswer(msgspec.Struct, frozen=True):
    id: str
    sent: str


async def send(client: Client, given: SendParams) -> SendAnswer:
    handle = await _handle(client, given.id)
    await handle.send(given.name, given.body, id=given.message)
    return SendAnswer(handle.id, given.name)


class CancelParams(msgspec.Struct, frozen=True):
    """`undo`: what was done is undone. `dry_run`: only tell what would happen; `plan` is that of a dry run."""

    id: str
    reason: str = ""
    undo: bool = False
    dry_run: bool = False
    plan: str = ""


class CancelAnswer(Planned, frozen=True):
    id: str
    cancel: Literal["asked", "planned"] = "asked"
    note: str | UnsetType = UNSET


async def cancel(client: Client, given: CancelParams) -> CancelAnswer:
    """Cancelling twice is harmless."""
    address, head = await find(client, given.id)
    if head is not None and head.status in TERMINAL:
        if head.status == Status.CANCELLED:
            return CancelAnswer(str(address), note=f"{address} was cancelled before")
        raise InstanceEnded(f"{address} has {head.status} and cannot be cancelled any more")
    if head is not None:
        if given.dry_run:
            return CancelAnswer(str(address), "planned", **await dry_run(client, "cancel", head, given))
        client = await by_plan(client, "cancel", head, given)
    handle = client.handle(address.workflow, address.key) if head is None else _pinned(client, given.id, head)
    await handle.cancel(given.reason, given.undo)
    return CancelAnswer(str(address))


class WakeParams(msgspec.Struct, frozen=True):
    """`location` is that of one sleep; empty: all of them end."""

    id: str
    location: str = ""


class WakeAnswer(msgspec.Struct, frozen=True):
    id: str
    woken: str | None


async def wake(client: Client, given: WakeParams) -> WakeAnswer:
    handle = await _handle(client, given.id)
    await handle.wake(given.location)
    return WakeAnswer(handle.id, given.location or None)


class PauseParams(msgspec.Struct, frozen=True):
    """`by` and `reason` are recorded. `message` is the message's own id: the same one twice is delivered once."""

    id: str
    reason: str = ""
    by: str | None = None
    message: str | None = None


class PauseAnswer(msgspec.Struct, frozen=True):
    id: str
    pause: Literal["asked"] = "asked"


class ResumeAnswer(msgspec.Struct, frozen=True):
    id: str
    resume: Literal["asked"] = "asked"


async def pause(client: Client, given: PauseParams) -> PauseAnswer:
    """What runs goes on to its end. Pausing twice is harmless."""
    return PauseAnswer(await _told(client, given, "pause"))


async def resume(client: Client, given: PauseParams) -> ResumeAnswer:
    return ResumeAnswer(await _told(client, given, "resume"))


async def _told(client: Client, given: PauseParams, verb: Literal["pause", "resume"]) -> str:
    """Send the message of a verb that instances of some workflows take beside those of all."""
    handle = await _handle(client, given.id)
    await handle._refuse(verb)
    await handle.send(verb, {}, id=given.message, by=given.by, reason=given.reason[:REASON_MAX])
    return handle.id


class RetryParams(msgspec.Struct, frozen=True):
    id: str
    dry_run: bool = False
    plan: str = ""


class RetryAnswer(Planned, frozen=True):
    id: str
    retry: Literal["asked", "planned"] = "asked"


async def retry(client: Client, given: RetryParams) -> RetryAnswer:
    address, head = await find_started(client, given.id)
    if given.dry_run:
        return RetryAnswer(str(address), "planned", **await dry_run(client, "retry", head, given))
    client = await by_plan(client, "retry", head, given)
    await _pinned(client, given.id, head).retry()
    return RetryAnswer(str(address))


class RewindParams(msgspec.Struct, frozen=True):
    """`force`: also while a step runs that is dropped; it is cancelled. `dry_run`: only tell what would be dropped."""

    id: str
    location: str
    force: bool = False
    dry_run: bool = False
    plan: str = ""


class RewindAnswer(Planned, frozen=True):
    """`drops`, of a dry run: the locations that would be dropped and done again."""

    id: str
    rewind: str
    drops: list[str] | UnsetType = UNSET


async def rewind(client: Client, given: RewindParams) -> RewindAnswer:
    address, head = await find_started(client, given.id)
    if given.dry_run:
        planned = await dry_run(client, "rewind", head, given)
        drops = await _pinned(client, given.id, head).rewind(given.location, force=given.force, dry_run=True)
        return RewindAnswer(str(address), given.location, drops, **planned)
    client = await by_plan(client, "rewind", head, given)
    await _pinned(client, given.id, head).rewind(given.location, force=given.force)
    return RewindAnswer(str(address), given.location)


class ForkParams(msgspec.Struct, frozen=True):
    """`edit` has other values for earlier steps, by location; `key` names the new instance."""

    id: str
    location: str
    edit: dict[str, Any] = {}
    key: str | None = None
    dry_run: bool = False
    plan: str = ""


class ForkAnswer(Planned, frozen=True):
    """The new instance, and the one that it was `forked` from, as that was named. A dry run names no new one."""

    id: str
    workflow: str
    key: str
    forked: str


async def fork(client: Client, given: ForkParams) -> ForkAnswer:
    _, head = await find_started(client, given.id)
    if given.dry_run:
        planned = await dry_run(client, "fork", head, given)
        return ForkAnswer("", head.workflow, given.key or "", given.id, **planned)
    await by_plan(client, "fork", head, given)
    forked = await _pinned(client, given.id, head).fork(given.location, given.edit, key=given.key)
    return ForkAnswer(forked.id, forked.workflow, forked.key, given.id)


class SettleParams(msgspec.Struct, frozen=True, rename={"answer": "as"}):
    """The `value` of the step, or an `error`; `as` says which of them a value is. `reason` is for the journal."""

    id: str
    location: str
    answer: Literal["ok", "error"] | None = None
    value: Any = None
    error: str | None = None
    reason: str = ""
    dry_run: bool = False
    plan: str = ""

    @property
    def outcome(self) -> Literal["ok", "error"]:
        return "ok" if self.answer in (None, "ok") and self.error is None else "error"


class SettleAnswer(Planned, frozen=True, rename={"answer": "as"}):
    id: str
    settled: str
    answer: Literal["ok", "error"]


async def settle(client: Client, given: SettleParams) -> SettleAnswer:
    if given.error is not None and (given.answer == "ok" or given.value is not None):
        raise UnclearRequest("settle takes the value of a step, or its error, not both")
    address, head = await find_started(client, given.id)
    given = msgspec.structs.replace(given, answer=given.outcome)
    answer = SettleAnswer(str(address), given.location, given.outcome)
    if given.dry_run:
        return msgspec.structs.replace(answer, **await dry_run(client, "settle", head, given))
    client = await by_plan(client, "settle", head, given)
    handle = _pinned(asking(client, Asked(reason=given.reason[:REASON_MAX])), given.id, head)
    if given.outcome == "ok":
        await handle.settle(given.location, given.value)
    else:
        await handle.settle(given.location, error=given.error or given.value or "a person says that it failed")
    return answer


ALSO: Final[dict[type[msgspec.Struct], dict[str, str]]] = {
    RewindParams: {"to": "location"},
    ForkParams: {"at": "location"},
}
"""Names that parameters have besides their own."""


def by_own_names(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, each parameter by its own name."""
    also, found = ALSO.get(kind, {}), dict[str, Any]()
    for name, value in given.items():
        own = also.get(name, name)
        if own in found:
            raise UnclearRequest(f"{own} is given twice: {' and '.join(also)} means the same")
        found[own] = value
    return found


class TagParams(msgspec.Struct, frozen=True):
    """Without a `value` the tag is removed."""

    id: str
    name: str
    value: TagInput | None = None


class TagAnswer(msgspec.Struct, frozen=True):
    id: str
    tag: str
    value: TagInput | None


async def tag(client: Client, given: TagParams) -> TagAnswer:
    handle = await _handle_of_started(client, given.id)
    await handle.tag(given.name, tag_from_json(given.value))
    return TagAnswer(handle.id, given.name, given.value)


async def _handle(client: Client, id: str) -> Handle[Any]:
    """Also of an instance that is on its way to an engine."""
    address, head = await find(client, id)
    return client.handle(address.workflow, address.key) if head is None else _pinned(client, id, head)


async def _handle_of_started(client: Client, id: str) -> Handle[Any]:
    return _pinned(client, id, (await find_started(client, id))[1])


def _pinned(client: Client, id: str, head: HeadRow) -> Handle[Any]:
    """`@NUMBER` acts on that generation, a name on the last one, by its name: so an event on its way is found by it."""
    return handle_of(client, head) if id.startswith("@") else client.handle(head.workflow, head.key)
