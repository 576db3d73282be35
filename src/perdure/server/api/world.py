"""The world of cells over HTTP: its manifest, proposals to change it, and who approves them.

The proposer of a change does not approve it. A shadow run and a world snapshot read the whole world, in a thread: what
takes longer than an answer may take goes on after it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.codec import decode, to_plain
from perdure.errors import SelectionChanged
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Message, asked_of
from perdure.kernel.location import Patterns
from perdure.kernel.moment import when
from perdure.kernel.rules import RULER, RULING
from perdure.verbs.bulk import SAMPLE
from perdure.verbs.plans import plan_of
from perdure.worlds.governance import Governance, Proposal
from perdure.worlds.snapshots.snapshots import Collected, Snapshots, Taken

from ..calling import Calling, id_of
from ..problems import HttpProblem
from .instances import Nothing

Mode = Literal["pinned", "migrate", "strict"]
FAILED: Final = "a cell failed; your grant, or this server, does not show which"


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
    calling.check_rules()
    return Governance(calling.client)


async def manifest(calling: Calling, given: Nothing) -> ManifestAnswer:
    found = await _governance(calling).manifest()
    return ManifestAnswer(found.hash, found.data())


class ProposedManifest(msgspec.Struct, frozen=True):
    """`proposal`: its number."""

    proposal: int


class ManifestDifference(msgspec.Struct, frozen=True):
    """A place where the proposed manifest differs from the one in force."""

    kind: str
    path: str
    before: Any
    after: Any


class ManifestDiff(msgspec.Struct, frozen=True):
    """From the manifest in force (`hash`) to the proposed one; no changes: they are the same."""

    hash: str
    proposed: str
    changes: list[ManifestDifference]


async def diff(calling: Calling, given: ProposedManifest) -> ManifestDiff:
    now, after, found = await _governance(calling).contrasts(given.proposal)
    changes = [ManifestDifference(each.kind, each.path, each.before, each.after) for each in found]
    return ManifestDiff(now.hash, after.hash, changes)


async def proposals(calling: Calling, given: Nothing) -> ProposalList:
    """The newest first."""
    found, by = await _governance(calling).proposals(), await _proposers(calling)
    return ProposalList([_shown(calling, each, by) for each in reversed(found)])


class ProposeParams(msgspec.Struct, frozen=True):
    """A whole manifest, as `GET /world/manifest` gives it."""

    manifest: dict[str, Any]


async def propose(calling: Calling, given: ProposeParams) -> ShownProposal:
    made = await (await _ruling(calling)).propose_data(given.manifest)
    return _shown(calling, made, {made.number: calling.login.actor.id})


class ShadowParams(msgspec.Struct, frozen=True):
    """`receipts` answers effects by their names, `recorded` as they were answered before; others stay open."""

    number: int
    mode: Mode = "pinned"
    receipts: dict[str, Any] = {}
    recorded: bool = False
    horizon: float = 3600


async def shadow(calling: Calling, given: ShadowParams) -> Any:
    """The proposal with its report; 202 and without it if the run takes longer."""
    governance = await _ruling(calling)
    if missing := await governance.without_code(given.number):
        text = f"this server has no code of {', '.join(missing)} as the manifest defines it: serve its module"
        raise HttpProblem(409, "code-not-here", text)
    run = governance.shadow(
        given.number, mode=given.mode, receipts=given.receipts, recorded=given.recorded, horizon=given.horizon
    )
    ended = await calling.within("shadow run", run)
    found = [each for each in await governance.proposals() if each.number == given.number]
    return 202 if ended is None else 200, _shown(calling, found[0], await _proposers(calling))


class ProposalNumber(msgspec.Struct, frozen=True):
    number: int
    reason: str = ""


async def approve(calling: Calling, given: ProposalNumber) -> ShownProposal:
    governance, by = await _ruling(calling), await _proposers(calling)
    if by.get(given.number) == calling.login.actor.id:
        text = f"{calling.login.actor} proposed {given.number}: another person approves it"
        raise HttpProblem(409, "four-eyes", text)
    return _shown(calling, await governance.approve(given.number), by)


async def reject(calling: Calling, given: ProposalNumber) -> ShownProposal:
    rejected = await (await _ruling(calling)).reject(given.number, given.reason)
    return _shown(calling, rejected, await _proposers(calling))


class ApplyParams(msgspec.Struct, frozen=True):
    """pinned: cells that live stay as they are. migrate: they go over to the new definition."""

    number: int
    mode: Mode = "pinned"


class AppliedAnswer(msgspec.Struct, frozen=True):
    hash: str


async def apply(calling: Calling, given: ApplyParams) -> AppliedAnswer:
    return AppliedAnswer(await (await _ruling(calling)).apply(given.number, given.mode))


class MigrateParams(msgspec.Struct, frozen=True):
    """`dry_run`: only tell which cells are left. `plan` is that of a dry run."""

    dry_run: bool = False
    plan: str = ""


class MigratedAnswer(msgspec.Struct, frozen=True):
    """How many cells are migrated, or would be; then a `sample` of them, and the `plan`."""

    migrated: int
    sample: list[str] | UnsetType = UNSET
    plan: str | UnsetType = UNSET


async def migrate(calling: Calling, given: MigrateParams) -> MigratedAnswer:
    governance = await _ruling(calling)
    if not given.dry_run and not given.plan:
        return MigratedAnswer(await governance.migrate())
    left = [head async for head in governance.migrating()]
    plan = plan_of("migrate", {"cells": sorted(head.id for head in left)}, len(left))
    if given.dry_run:
        return MigratedAnswer(len(left), [id_of(head) for head in left[:SAMPLE] if calling.sees(head.workflow)], plan)
    if given.plan != plan:
        was = given.plan.partition("-")[0][:20]
        raise SelectionChanged(f"the plan was for {was} cells; {len(left)} are left now: make another dry run")
    return MigratedAnswer(await governance.migrate())


class TakeParams(msgspec.Struct, frozen=True):
    """`full`: from the first entry on, whatever snapshots there are."""

    full: bool = False


class ShownSnapshot(msgspec.Struct, frozen=True):
    """`entry` is the last one in it, `cells` counts them by definition, `open` the effects without an answer."""

    hash: str
    entry: str
    taken_at: datetime
    base: bool
    cells: dict[str, int]
    open: int


class SnapshotList(msgspec.Struct, frozen=True):
    items: list[ShownSnapshot]


class TakenSnapshot(msgspec.Struct, frozen=True):
    """None: it is taken still, and listed when it is done. `written`: how many blobs were put for it."""

    snapshot: ShownSnapshot | None
    written: int = 0


class CollectParams(msgspec.Struct, frozen=True):
    """`keep`: give up all snapshots but so many of the newest. What was put in the last `grace` seconds stays."""

    keep: int | None = None
    grace: float = 3600
    dry_run: bool = False


async def take(calling: Calling, given: TakeParams) -> Any:
    _governance(calling)
    taken = await calling.within("world snapshot", Snapshots(calling.client).take(full=given.full))
    if taken is None:
        return 202, TakenSnapshot(None)
    return 200, TakenSnapshot(_shown_snapshot(taken), taken.written)


async def snapshots(calling: Calling, given: Nothing) -> SnapshotList:
    """The oldest first."""
    _governance(calling)
    return SnapshotList([_shown_snapshot(each) for each in await Snapshots(calling.client).retained()])


async def collect(calling: Calling, given: CollectParams) -> Any:
    """Free what no retained snapshot and no entry needs."""
    _governance(calling)
    work = Snapshots(calling.client).collect(keep=given.keep, grace=given.grace, dry_run=given.dry_run)
    found = await calling.within("world snapshot", work)
    return (202, Collected(given.dry_run, [], 0, 0, 0)) if found is None else found


def _shown_snapshot(taken: Taken) -> ShownSnapshot:
    return ShownSnapshot(taken.hash, str(taken.entry), when(taken.taken_at), taken.base, taken.cells, taken.open)


async def _ruling(calling: Calling) -> Governance:
    """Rules are answered by an engine: without one nothing is asked."""
    governance = _governance(calling)
    if await calling.client.queries.owner() is None:
        text = "no engine runs on this database, and the rules of a world are its own; nothing was recorded"
        raise HttpProblem(503, "no-engine", text, retry_after=5)
    return governance


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


def _shown(calling: Calling, found: Proposal, by: dict[int, str]) -> ShownProposal:
    return ShownProposal(
        found.number,
        found.status,
        found.base,
        [to_plain(each) for each in found.changes],
        _report(calling, found.report),
        found.reason,
        found.mode,
        by.get(found.number, ""),
    )


def _report(calling: Calling, report: Any) -> Any:
    """A report names cells and has their states: who does not see all cells and values is given its numbers."""
    if report is None or (calling.sees_all and calling.values("*") and not calling.settings.redact):
        return report
    return {**report, "failures": [FAILED for _ in report["failures"]], "first_effects": [], "states": []}
