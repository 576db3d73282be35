"""References: by what people know an instance. A reference is the tags `reference` and `reference.<part>`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.errors import AmbiguousReference, UnknownInstance
from perdure.kernel.batch import HeadRow
from perdure.kernel.status import TERMINAL
from perdure.ports.store import Filter, Queries, place_of

from .arguments import checked_text, reference_tags


async def live_one(
    queries: Queries,
    reference: str,
    parts: Mapping[str, str] | None,
    sees: Callable[[str], bool] = lambda workflow: True,
) -> HeadRow:
    """The one instance with this reference that has not ended, of a workflow that the caller sees.

    An empty reference is refused: it would fit all.
    """
    wanted = reference_tags(checked_text(reference, "a reference"), parts)
    live: list[HeadRow] = []
    before = None
    while len(live) < 2 and (rows := await queries.heads(Filter(tags=wanted, before=before))):
        live += [row for row in rows if row.status not in TERMINAL and sees(row.workflow)]
        before = place_of(rows[-1])
    said = f"the reference {reference!r:.80}" + "".join(
        f", {part} {value!r:.80}" for part, value in (parts or {}).items()
    )
    if not live:
        raise UnknownInstance(f"no live instance has {said}; `perdure ls --reference` lists those that have ended, too")
    if len(live) > 1:
        found = ", ".join(f"{row.workflow}/{row.key}" for row in live[:5])
        raise AmbiguousReference(f"several live instances have {said}: {found}; tell them apart by parts={{...}}")
    return live[0]
