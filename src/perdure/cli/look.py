"""All that can be seen of one instance: what `show`, `why` and `run` tell of it, and its JSON form."""

from __future__ import annotations

from typing import Any

from perdure.codec import decode
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.instance import Instance
from perdure.kernel.receipt import Failure
from perdure.ports.store import Queries
from perdure.runtime.history import Line, Reader, Summary, Waiting, read_history, summary, value_of


class Look:
    """An instance as it is now. `lines` is its whole history."""

    def __init__(self, head: HeadRow, reader: Reader, lines: list[Line], parent: Address | None) -> None:
        self.summary = summary(head)
        self.parent = parent
        self.lines = lines
        self.state: Instance = reader.state
        self.waiting: list[Waiting] = reader.waiting()

    @classmethod
    async def at(cls, queries: Queries, head: HeadRow) -> Look:
        reader, lines = await read_history(queries, head.id)
        return cls(head, reader, lines, await parent_of(queries, head))

    @property
    def id(self) -> str:
        return str(self.state.address)

    @property
    def is_cell(self) -> bool:
        return self.state.made

    @property
    def published(self) -> dict[str, Any]:
        return {name: value_of(value) for name, value in self.state.published.items()}

    @property
    def result(self) -> Any:
        return result_of(self.state)

    @property
    def error(self) -> Failure | None:
        return error_of(self.state)

    def document(self) -> dict[str, Any]:
        return {
            **head_document(self.summary, self.parent),
            "status": self.state.status.value,
            "entries": self.state.version,
            "waiting": [waiting_document(each) for each in self.waiting],
            "published": self.published,
            "result": self.result,
            "error": error_document(self.error),
            "stuck_at": self.state.stuck.location if self.state.stuck is not None else None,
        }


async def parent_of(queries: Queries, head: HeadRow) -> Address | None:
    parent = await queries.head(head.parent) if head.parent else None
    return Address(parent.workflow, parent.key) if parent is not None else None


def result_of(state: Instance) -> Any:
    value = state.outcome.value if state.outcome is not None else None
    return None if value is None else decode(value)


def error_of(state: Instance) -> Failure | None:
    if state.stuck is not None:
        return state.stuck.error
    return state.outcome.error if state.outcome is not None else None


# ---- JSON forms: field names are a promise to scripts ------------------------------------------------------


def head_document(head: Summary, parent: Address | None = None) -> dict[str, Any]:
    return {
        "id": f"{head.workflow}/{head.key}",
        "workflow": head.workflow,
        "key": head.key,
        "generation": head.generation,
        "version": head.version,
        "status": head.status,
        "started_at": head.started_at,
        "changed_at": head.changed_at,
        "parent": None if parent is None else str(parent),
        "tags": head.tags,
    }


def waiting_document(waiting: Waiting) -> dict[str, Any]:
    return {
        "kind": "step" if waiting.kind == "call" else waiting.kind,
        "location": waiting.location,
        "since": waiting.since,
        "due": waiting.due,
        "attempt": waiting.attempt,
        "delivery": waiting.delivery,
        "held": waiting.held,
        "what": waiting.what,
    }


def error_document(error: Failure | None) -> dict[str, Any] | None:
    if error is None:
        return None
    data = error.data
    return {"type": error.type, "message": error.message, "data": data, "traceback": error.traceback}


def line_document(line: Line, values: bool) -> dict[str, Any]:
    document = {
        "number": line.number,
        "at": line.at,
        "event": line.event,
        "location": line.location,
        "status": line.status,
        "value": line.value,
        "error": error_document(line.error),
        "opened": line.opened,
        "announced": line.announced,
        "outcome": line.outcome,
    }
    if not values:
        del document["value"]
    return document
