"""What an engine in another process made of a receipt from outside: it judges when it takes it out of the inbox.

Admitted, the receipt closes its open work. Refused, it leaves a record with the ruler, which says whose receipt it was.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from perdure.codec import decode
from perdure.errors import ReceiptRefused
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Message
from perdure.kernel.location import Patterns
from perdure.kernel.rules import AUDIT, RULER
from perdure.kernel.status import Status
from perdure.ports.store import Queries


async def wait_until_taken(
    queries: Queries, changes: AsyncGenerator[None, None], *, instance: int, intent: bytes, executor: str, since: int
) -> None:
    """Wait until an engine has taken a receipt that was posted when the journal ended with entry `since`.

    Raises `ReceiptRefused`. A stuck instance keeps what it has admitted until it goes on.
    """
    async with aclosing(changes):
        async for _ in changes:
            taken = await queries.work(intent) is None  # before the record of a refusal: that one comes later
            head = await queries.head(instance)
            await _raise_refusal(queries, intent, executor, since)
            if taken or head is None or head.status == Status.STUCK:
                return


async def _raise_refusal(queries: Queries, intent: bytes, executor: str, since: int) -> None:
    ruler = await queries.head(RULER)
    patterns = Patterns()  # the ruler opens nothing
    for row in [] if ruler is None else await queries.history(ruler.id, since):
        event = decode_entry(row.seq, row.instance, row.at, row.body, patterns).event
        if isinstance(event, Message) and event.name == AUDIT:
            told = decode(event.body)
            if (told["intent"], told["who"]) == (intent.hex(), executor):
                raise ReceiptRefused(told["code"], told["why"])
