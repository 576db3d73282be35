"""Domain events from outside: what the ruler of a database takes by the rules that hold now, and how it gets them."""

from collections.abc import Callable

from perdure.kernel.events import Message
from perdure.kernel.rules import DEFINITIONS, RULER
from perdure.ports.dialect import Catalog

from .arguments import checked_text, limited
from .connection import Connection


class DomainEvents:
    """`read` makes a catalog of what the ruler has published. Without a ruler it raises, as its dialect says it."""

    def __init__(self, read: Callable[[bytes | None], Catalog] | None) -> None:
        self._read = read
        self._known: tuple[bytes | None, Catalog] | None = None

    async def catalog(self, connection: Connection) -> Catalog:
        if self._known is not None and self._known[1].hash == connection.in_force():
            return self._known[1]
        head = await connection.queries.head(RULER)
        data = None if head is None else await connection.queries.published(head.id, DEFINITIONS)
        if self._known is None or self._known[0] != data:
            assert self._read is not None, "a client that sends domain events can read the catalog"
            self._known = data, self._read(data)
        return self._known[1]

    async def send(  # noqa: PLR0917
        self, connection: Connection, catalog: Catalog, name: str, body: bytes, id: str | None, correlation: str
    ) -> None:
        known = "" if id is None else checked_text(id, "the id of an event")
        together = "" if correlation == "" else checked_text(correlation, "a correlation")
        limited(body, f"event {name!r}")
        await connection.put(RULER, Message(name, body, known, catalog.hash, together))
