"""Verbs of bulk work: one verb on all instances of a selection, as an instance of `perdure.bulk`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.bulk.model import (
    ERRORS_MAX,
    PUBLISHED,
    RATE_MAX,
    SELECTED_MAX,
    WORKFLOW,
    BulkProgress,
    BulkWork,
    pack,
)
from perdure.codec import decode, from_plain, to_plain
from perdure.errors import AuthorError, BulkRunning, CallerError, SelectionChanged, UnknownInstance
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.status import TERMINAL, Status
from perdure.ports.store import Filter
from perdure.runtime.bulk import handle_of
from perdure.runtime.client import Client
from perdure.runtime.foresee import foresee
from perdure.runtime.history import summary
from perdure.views.find import find_started
from perdure.views.lists import select
from perdure.views.where import parse

from . import act
from .plans import FACE, params_of

SAMPLE: Final = 20
RUNNING_MAX: Final = 2
LISTED_MAX: Final = 50

BulkVerb = Literal["cancel", "retry", "wake", "send", "tag", "rewind"]
PARAMS: Final[dict[str, type[msgspec.Struct]]] = {
    "cancel": act.CancelParams,
    "retry": act.RetryParams,
    "wake": act.WakeParams,
    "send": act.SendParams,
    "tag": act.TagParams,
    "rewind": act.RewindParams,
}


class Selection(msgspec.Struct, frozen=True):
    """Instances that a filter finds (`q`, as in lists), or that are named (`ids`)."""

    q: str = ""
    ids: list[str] = []


class BulkParams(msgspec.Struct, frozen=True):
    """`params` are those of the verb, without the id. `rate`: events a second. It stops after `errors_max` refusals.

    `dry_run` tells how many instances there are and what would happen to the first of them; its `plan` lets the same
    be asked for as long as the selection has the same instances.
    """

    verb: BulkVerb
    selection: Selection
    params: dict[str, Any] = {}
    rate: float = 50.0
    errors_max: int = 20
    reason: str = ""
    dry_run: bool = False
    plan: str = ""
    by: str = ""


class SampledInstance(msgspec.Struct, frozen=True):
    """What would happen to one instance, or why it would be `refused`."""

    id: str
    status: str
    would: list[str]
    refused: str


class BulkAnswer(msgspec.Struct, frozen=True):
    """`id` is that of the bulk; a dry run has `sample` and `plan` instead."""

    verb: str
    count: int
    id: str | UnsetType = UNSET
    sample: list[SampledInstance] | UnsetType = UNSET
    plan: str | UnsetType = UNSET


Judge = Callable[[str], bool]
"""Whether the asker may act on the instances of a workflow. What it may not act on is not selected."""


async def bulk_start(client: Client, given: BulkParams) -> BulkAnswer:
    return await begin(client, given, lambda workflow: not workflow.startswith("perdure."))


async def begin(client: Client, given: BulkParams, may: Judge, key: str | None = None) -> BulkAnswer:
    """`key` names the bulk: the same one again starts nothing."""
    params = _checked(given)
    if key is not None and (known := await client.queries.head(Address(WORKFLOW, key))) is not None:
        return BulkAnswer(given.verb, (await _progress(client, known)).total, key)
    heads = await _selected(client, given.selection, may)
    plan = _plan(given, params, heads)
    if given.dry_run:
        sample = [await _sampled(client, given.verb, params, head) for head in heads[:SAMPLE]]
        return BulkAnswer(given.verb, len(heads), sample=sample, plan=plan)
    if given.plan and given.plan != plan:
        was = given.plan.partition("-")[0]
        text = f"the plan was for {was} instances, and not for the {len(heads)} that the selection has now"
        if not was.isdigit():
            text = f"{given.plan!r:.80} is no plan of a dry run"
        raise SelectionChanged(f"{text}: make another dry run")
    if given.by:
        running = await _running(client, given.by)
        if len(running) >= RUNNING_MAX:
            raise BulkRunning(f"{given.by} has {len(running)} bulks that run: {', '.join(running)}; wait or cancel one")
    work = BulkWork(
        given.verb,
        params,
        given.selection.q or f"{len(heads)} chosen",
        datetime.now(UTC),
        pack([head.id for head in reversed(heads)]),
        given.rate,
        given.errors_max,
        given.by,
        given.reason,
    )
    key = key or secrets.token_hex(6)
    tags = {"verb": given.verb, **({"by": given.by} if given.by else {})}
    await client.start_plain(WORKFLOW, to_plain(work, BulkWork), key=key, tags=tags, by=given.by or None)
    return BulkAnswer(given.verb, len(heads), key)


def _checked(given: BulkParams) -> dict[str, Any]:
    """The parameters of the verb, as they would be asked for one instance."""
    for name in FACE & given.params.keys():
        raise CallerError(f"a bulk gives its verb no {name!r}: that is of the bulk itself")
    if not 0 < given.rate <= RATE_MAX:
        raise CallerError(f"rate is more than 0 and at most {RATE_MAX:g} events a second, found {given.rate:g}")
    if not 1 <= given.errors_max <= ERRORS_MAX:
        raise CallerError(f"errors_max is 1 to {ERRORS_MAX}, found {given.errors_max}")
    if bool(given.selection.q.strip()) == bool(given.selection.ids):
        raise CallerError("a selection is a filter (q) that says which instances, or a list of ids")
    kind = PARAMS[given.verb]
    known = {field.encode_name for field in msgspec.structs.fields(kind)} - FACE
    params = act.by_own_names(kind, given.params)
    for name in params.keys() - known:
        raise CallerError(f"{given.verb} has no parameter {name!r} (it has: {', '.join(sorted(known)) or 'none'})")
    try:
        return params_of(msgspec.convert({**params, "id": "any"}, kind))
    except msgspec.ValidationError as error:
        raise CallerError(f"the parameters of {given.verb}: {error}") from None


async def _selected(client: Client, selection: Selection, may: Judge) -> list[HeadRow]:
    if not selection.ids:
        return await select(client.queries, parse(selection.q), may, SELECTED_MAX)
    found: dict[int, HeadRow] = {}
    for id in selection.ids[: SELECTED_MAX + 1]:
        number = id.removeprefix("@")
        if id.startswith("@") and number.isdigit() and len(number) < 19:
            head = await client.queries.head(int(number))
        else:
            _, head = await find_started(client, id)
        if head is None or not may(head.workflow):
            raise UnknownInstance(f"there is no instance {id:.80}")
        found[head.id] = head
    return sorted(found.values(), key=lambda head: (head.started_at, head.id), reverse=True)


def _plan(given: BulkParams, params: dict[str, Any], heads: list[HeadRow]) -> str:
    ids = pack(sorted(head.id for head in heads))
    said = msgspec.json.encode([given.verb, params], order="deterministic")
    return f"{len(heads)}-{hashlib.blake2b(said + ids, digest_size=8).hexdigest()}"


async def _sampled(client: Client, verb: str, params: dict[str, Any], head: HeadRow) -> SampledInstance:
    would: list[str] = []
    refused = ""
    try:
        would = await foresee(handle_of(client, head), verb, params)
    except (CallerError, AuthorError) as error:
        refused = str(error)
    return SampledInstance(f"{head.workflow}/{head.key}", head.status, would, refused)


async def _running(client: Client, by: str) -> list[str]:
    wanted = Filter(workflow=WORKFLOW, tags={"by": by}, limit=100)
    return [head.key for head in await client.queries.heads(wanted) if head.status not in TERMINAL]


class BulkId(msgspec.Struct, frozen=True):
    id: str


class ShownBulk(BulkProgress, frozen=True, kw_only=True):
    """`error`: why it stopped before its end."""

    id: str
    status: str
    error: str
    started_at: datetime
    ended_at: datetime | None


async def bulk_show(client: Client, given: BulkId) -> ShownBulk:
    return await shown(client, await head_of(client, given.id))


async def head_of(client: Client, key: str) -> HeadRow:
    head = await client.queries.head(Address(WORKFLOW, key)) if key else None
    if head is None:
        raise UnknownInstance(f"there is no bulk {key!r:.80}; `perdure bulk ls` lists what there is")
    return head


async def shown(client: Client, head: HeadRow) -> ShownBulk:
    about, progress = summary(head), await _progress(client, head)
    fields = {name: getattr(progress, name) for name in BulkProgress.__struct_fields__}
    error = head.reason if head.status in (Status.FAILED, Status.STUCK) else ""
    return ShownBulk(
        **fields,
        id=head.key,
        status=head.status,
        error=error,
        started_at=about.started_at,
        ended_at=about.ended_at,
    )


async def _progress(client: Client, head: HeadRow) -> BulkProgress:
    data = await client.queries.published(head.id, PUBLISHED)
    assert data is not None, "a bulk publishes with its first entry"
    found: BulkProgress = from_plain(decode(data), BulkProgress)
    return found


class BulkListParams(msgspec.Struct, frozen=True):
    limit: int = LISTED_MAX


class BulkList(msgspec.Struct, frozen=True):
    items: list[ShownBulk]


async def bulk_ls(client: Client, given: BulkListParams) -> BulkList:
    heads = await client.queries.heads(Filter(workflow=WORKFLOW, limit=given.limit))
    return BulkList([await shown(client, head) for head in heads])


class CancelledBulk(msgspec.Struct, frozen=True):
    id: str
    cancel: Literal["asked"] = "asked"


async def bulk_cancel(client: Client, given: BulkId) -> CancelledBulk:
    """What was done stays done; what is left is left alone."""
    head = await head_of(client, given.id)
    await client.handle(WORKFLOW, head.key).cancel("")
    return CancelledBulk(head.key)
