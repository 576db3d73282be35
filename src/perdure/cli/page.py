"""A list that may be longer than what is shown: how it is told, and how to go on."""

from __future__ import annotations

from collections.abc import Callable

from perdure.ports.seen import Summary
from perdure.views.look import listed_instance

from .console import Console


def tell_page(
    console: Console, what: str, found: list[Summary], limit: int, table: Callable[[list[Summary]], str]
) -> None:
    """`found` has one more than `limit` if there are more."""
    shown, more = found[:limit], len(found) > limit
    after = shown[-1].id if more else None
    document = {what: [listed_instance(each) for each in shown], "next_before": after}
    console.answer(document, table(shown) if shown else "")
    if console.json:
        return
    if not shown:
        console.note(f"no {what}")
    if more:
        console.note(f"there are more: add --before {after}")
