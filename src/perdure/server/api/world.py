"""The world of cells over HTTP: its manifest, proposals to change it, and who approves them.

The proposer of a change does not approve it. A shadow run copies the whole world: `perdure manifest shadow` makes it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from perdure.codec import decode, to_plain
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Message, asked_of
from perdure.kernel.location import Patterns
from perdure.kernel.rules import RULER, RULING
from perdure.worlds.governance import Governance, Proposal

from ..calling import Calling
from ..problems import HttpProblem
from .instances import Nothing


class ManifestAnswer(msgspec.Struct, frozen=True):
    hash: str
    manifest: Any


class ShownProposal(msgspec.Struct, frozen=True):
    """`changes` lead from the manifest `base` to the proposed one; `by` proposed it."""

    number: int
    status: str
    base: str
    changes: list[Any]
    report: Any
    reason: str
    mode: str
    by: str


class ProposalList(msgspec.Struct, frozen=True):
    items: list[ShownProposal]


def _governance(calling: Calling) -> Governance:
    calling.check(RULER.workflow, "the world of cells")
    return Governance(calling.client)


async def manifest(calling: Calling, given: Nothing) -> ManifestAnswer:
    found = await _governance(calling).manifest()
    return ManifestAnswer(found.hash, found.data())


async def proposals(calling: Calling, given: Nothing) -> ProposalList:
    """The newest first."""
    found, by = await _governance(calling).proposals(), await _proposers(calling)
    return ProposalList([_shown(each, by) for each in reversed(found)])


class ProposeParams(msgspec.Struct, frozen=True):
    """A whole manifest, as `GET /world/manifest` gives it."""

    manifest: dict[str, Any]


async def propose(calling: Calling, given: ProposeParams) -> ShownProposal:
    made = await _governance(calling).propose_data(given.manifest)
    return _shown(made, {made.number: calling.login.actor.id})


class ProposalNumber(msgspec.Struct, frozen=True):
    number: int
    reason: str = ""


async def approve(calling: Calling, given: ProposalNumber) -> ShownProposal:
    governance, by = _governance(calling), await _proposers(calling)
    if by.get(given.number) == calling.login.actor.id:
        text = f"{calling.login.actor} proposed {given.number}: another person approves it"
        raise HttpProblem(409, "four-eyes", text)
    return _shown(await governance.approve(given.number), by)


async def reject(calling: Calling, given: ProposalNumber) -> ShownProposal:
    return _shown(await _governance(calling).reject(given.number, given.reason), await _proposers(calling))


class ApplyParams(msgspec.Struct, frozen=True):
    """pinned: cells that live stay as they are. migrate: they go over to the new definition."""

    number: int
    mode: Literal["pinned", "migrate", "strict"] = "pinned"


class AppliedAnswer(msgspec.Struct, frozen=True):
    hash: str


async def apply(calling: Calling, given: ApplyParams) -> AppliedAnswer:
    return AppliedAnswer(await _governance(calling).apply(given.number, given.mode))


async def _proposers(calling: Calling) -> dict[int, str]:
    """Who made which proposal, by the journal of the world."""
    queries = calling.client.queries
    head = await queries.head(RULER)
    patterns = Patterns()
    found: dict[int, str] = {}
    for row in [] if head is None else await queries.history(head.id):
        entry = decode_entry(row.seq, row.instance, row.at, row.body, patterns)
        said = asked_of(entry.event)
        if isinstance(entry.event, Message) and entry.event.name == f"{RULING}propose" and said and said.by:
            answers = [decode(value) for _, value in entry.decision.respond]
            found |= {each["proposal"]: said.by.id for each in answers if "proposal" in each}
    return found


def _shown(found: Proposal, by: dict[int, str]) -> ShownProposal:
    return ShownProposal(
        found.number,
        found.status,
        found.base,
        [to_plain(each) for each in found.changes],
        found.report,
        found.reason,
        found.mode,
        by.get(found.number, ""),
    )
