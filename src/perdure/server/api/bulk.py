"""Bulk work over HTTP: a bulk acts with the rights of its actor, and is seen by that actor and by admins."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec.structs import replace

from perdure.access.model import Login, allowed
from perdure.bulk.model import SELECTED_MAX, WORKFLOW
from perdure.errors import TooBroad
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.ports.store import Filter
from perdure.runtime.client import Client
from perdure.runtime.history import summary
from perdure.verbs import bulk

from ..calling import Calling, unknown
from .acting import recorded


async def start(calling: Calling, given: bulk.BulkParams) -> Any:
    """Selected is what the login may act on; what it may only see, or not see at all, is left out."""
    actor = calling.login.actor.id

    def may(workflow: str) -> bool:
        return not workflow.startswith("perdure.") and allowed(calling.login, "operator", workflow, read=False).yes

    own = None
    if calling.event and not given.dry_run:
        own = hashlib.blake2b(calling.event.encode(), digest_size=12).hexdigest()
        calling.made = Address(WORKFLOW, own)
    reason = given.reason or calling.request.reason
    given = replace(given, by=actor, reason=reason, selection=await _seen(calling, given.selection))
    answer = await bulk.begin(calling.client, given, may, own)
    if given.dry_run:
        return answer
    return 201 if await recorded(calling, Address(WORKFLOW, str(answer.id))) else 202, answer


async def _seen(calling: Calling, selection: bulk.Selection) -> bulk.Selection:
    """Named instances as the login sees them: a name of others is unknown, and never proposed."""
    if len(selection.ids) > SELECTED_MAX:
        raise TooBroad(SELECTED_MAX)
    found = []
    for id in selection.ids:
        await calling.find_named(id)
        assert calling.head is not None, "it was just found"
        found.append(f"@{calling.head.id}")
    return replace(selection, ids=found)


async def ls(calling: Calling, given: bulk.BulkListParams) -> bulk.BulkList:
    tags = {} if allowed(calling.login, "admin").yes else {"by": calling.login.actor.id}
    wanted = Filter(workflow=WORKFLOW, tags=tags, limit=max(1, min(given.limit, bulk.LISTED_MAX)))
    heads = await calling.client.queries.heads(wanted)
    return bulk.BulkList([await bulk.shown(calling.client, head) for head in heads])


async def show(calling: Calling, given: bulk.BulkId) -> bulk.ShownBulk:
    return await bulk.shown(calling.client, await own_bulk(calling.client, calling.login, given.id))


async def cancel(calling: Calling, given: bulk.BulkId) -> bulk.CancelledBulk:
    await own_bulk(calling.client, calling.login, given.id)
    return await bulk.bulk_cancel(calling.client, given)


async def own_bulk(client: Client, login: Login, id: str) -> HeadRow:
    """A bulk that a login may see."""
    head = await bulk.head_of(client, id)
    if summary(head).tags.get("by") != login.actor.id and not allowed(login, "admin").yes:
        raise unknown(f"bulk {id[:80]!r}")
    return head


OF_VERBS: Final[dict[str, Callable[[Calling, Any], Awaitable[Any]]]] = {
    "bulk start": start,
    "bulk ls": ls,
    "bulk show": show,
    "bulk cancel": cancel,
}
"""The same, for the command line: by the names in the table of verbs."""
