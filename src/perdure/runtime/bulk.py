"""The parts of bulks: a verb on each of some instances, for the actor that asked for the bulk.

Each event has an id that is derived from the bulk and the instance, so a part that runs again repeats nothing.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from perdure.bulk.model import BulkPart, PartDone, RefusedInstance
from perdure.errors import AuthorError, CallerError, EngineClosed, InstanceEnded, PerdureError, UnknownInstance
from perdure.kernel.asked import Actor, Asked
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.status import TERMINAL, Status

from .asking import asking
from .client import Client
from .handle import Handle
from .repeated import recorded
from .startable import Named

TOGETHER: Final = 25
"""Instances that a part acts on at once: their events share commits."""


class Bulks:
    """Performs the parts of bulks, as soon as the engine can be asked."""

    def __init__(self) -> None:
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()

    def begin(self, client: Client) -> None:
        self._client.set_result(client)

    async def perform(self, part: BulkPart) -> PartDone:
        client = await asyncio.shield(self._client)
        taken, refused = 0, list[RefusedInstance]()
        while taken < len(part.instances) and len(refused) < part.errors_left:
            few = part.instances[taken : taken + min(TOGETHER, part.errors_left - len(refused))]
            found = await asyncio.gather(*(_act(client, part, id) for id in few))
            refused += [each for each in found if each is not None]
            taken += len(few)
        return PartDone(taken, refused)


async def _act(client: Client, part: BulkPart, id: int) -> RefusedInstance | None:
    head = await client.queries.head(id)
    name = f"@{id}" if head is None else f"{head.workflow}/{head.key}"
    said = f"{part.key}/{id}"
    try:
        if head is None:
            raise UnknownInstance(f"there is no instance {name}")
        asked = Asked(said, Actor(part.by) if part.by else None, f"bulk:{part.key}", part.reason)
        await _do(handle_of(asking(client, asked), head), head, part, said)
    except EngineClosed:
        raise
    except (CallerError, AuthorError) as error:
        if head is not None and await recorded(client.queries, head.id, said) is not None:
            return None  # by this part, before a crash
        return RefusedInstance(name, code_of(error), str(error)[:500])
    return None


def handle_of(client: Client, head: HeadRow) -> Handle[Any]:
    """Of this very generation."""
    workflow = client._registered(head.workflow) or Named(head.workflow)
    address, known = Address(head.workflow, head.key), client._workflows
    return Handle(client._any_loop, address, workflow, head.id, known, restored=client._restored)


async def _do(handle: Handle[Any], head: HeadRow, part: BulkPart, said: str) -> None:
    params = part.params
    match part.verb:
        case "cancel":
            if head.status in TERMINAL and head.status != Status.CANCELLED:
                raise InstanceEnded(f"{handle.id} has {head.status} and cannot be cancelled any more")
            await handle.cancel(params.get("reason", part.reason), params.get("undo", False))
        case "retry":
            await handle.retry()
        case "wake":
            await handle.wake(params.get("location", ""))
        case "send":
            await handle.send(params["name"], params.get("body"), id=said)
        case "tag":
            await handle.tag(params["name"], params.get("value"))
        case "rewind":
            await handle.rewind(params["location"], force=params.get("force", False))
        case _:
            raise CallerError(f"a bulk knows no verb {part.verb!r}")


def code_of(error: PerdureError) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
