"""What the commands that change a manifest share: who asks, and how a proposal is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .console import Console
from .exits import Exit, Stopped

if TYPE_CHECKING:
    from perdure.worlds.governance import Governance, Proposal

T = TypeVar("T")
MODES = ("pinned", "migrate", "strict")


def ask(console: Console, question: Callable[[Governance], Awaitable[T]], code: Iterable[Any] = ()) -> T:
    """Ask the world of a database. It answers when an engine runs: without one, nothing is asked."""
    from perdure.app import connect, run_async
    from perdure.worlds.governance import Governance

    async def main() -> T:
        async with connect(console.db, workflows=code) as client:
            if await client.queries.owner() is None:
                text = f"no engine runs on {console.db} now, and the rules of a world are its own: start one"
                raise Stopped(text, Exit.CONFLICT)
            return await question(Governance(client))

    answer: T = run_async(main)
    return answer


def tell(console: Console, proposal: Proposal, text: str) -> None:
    console.answer(document(proposal), text)


def document(proposal: Proposal) -> dict[str, Any]:
    changes = [change.data() for change in proposal.changes]
    report = proposal.report
    return {
        "proposal": proposal.number,
        "status": proposal.status,
        "base": proposal.base,
        "mode": proposal.mode,
        "reason": proposal.reason,
        "changes": changes,
        "report": report,
    }


def number_in(target: str) -> int | None:
    """The number of a proposal, if that is what was typed; else it names a manifest."""
    return int(target) if target.isdigit() else None


def mode(function: Callable[..., None]) -> Callable[..., None]:
    text = "What becomes of cells that live: pinned to their definition, migrated, or (strict) there must be none."
    choice = click.Choice(MODES)
    option: Callable[..., Any] = click.option("--mode", type=choice, default="pinned", show_default=True, help=text)
    return option(function)  # type: ignore[no-any-return]
