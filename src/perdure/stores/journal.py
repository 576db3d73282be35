"""Reading a whole journal while it grows: in pages, and up to now."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeVar

from perdure.errors import CallerError, StoreFailed
from perdure.kernel.batch import JournalRow
from perdure.ports.store import Queries

T = TypeVar("T")

PAGE: Final = 2000
TRIES: Final = 20


async def refuse_many_journals(queries: Queries, what: str) -> None:
    """For what must see one total order. The shards of a database grow side by side."""
    shards = int((await queries.facts()).get("shards", "1"))
    if shards > 1:
        raise CallerError(
            f"{what} needs one journal, and this database has {shards} shards, each with its own; make one with "
            "`perdure db upgrade --shards 1`, or `perdure copy` the stopped world into a file"
        )


async def pages(queries: Queries, after: int) -> AsyncGenerator[list[JournalRow]]:
    """All that the journal has after an entry, in order."""
    while rows := await queries.journal(after, PAGE):
        yield rows
        after = rows[-1].seq


async def until_now(
    queries: Queries,
    after: int,
    take: Callable[[list[JournalRow]], Awaitable[None]],
    beside: Callable[[], Awaitable[T]],
) -> T:
    """Hand over the journal after an entry up to one that is the last, and answer what else there was at that moment.

    `beside` reads that, the inbox for one. It is asked again if the journal grew meanwhile: else an event might be in
    both, or in neither.
    """
    for _ in range(TRIES):
        async for rows in pages(queries, after):
            await take(rows)
            after = rows[-1].seq
        found = await beside()
        if not await queries.journal(after, 1):
            return found
    raise StoreFailed("the journal grows faster than it can be read; try again when there is less to do")
