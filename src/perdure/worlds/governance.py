"""Governance: how people change the manifest of a running world. Each step is a message to the world, and an entry.

    async with perdure.open("shop.db", workflows=[order, order_2]) as engine:
        rules = perdure.Governance(engine)
        proposal = await rules.propose(perdure.manifest(order_2))
        print(await rules.shadow(proposal.number))
        await rules.approve(proposal.number)
        await rules.apply(proposal.number)

It works for `perdure.connect` as well: the engine of another process takes the messages from its inbox.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from perdure.cells.bound_manifest import BoundManifest, in_force
from perdure.cells.compare import Contrast, contrasts
from perdure.cells.manifest import Manifest, read
from perdure.cells.patch import Change, data_of, patch_between, patched
from perdure.cells.policy import NO_CELLS
from perdure.cells.proposals import Mode
from perdure.cells.world import PROPOSALS, WorldWorkflow
from perdure.codec import decode, encode, to_plain
from perdure.errors import CallerError, RuleRefused, StalePatch
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Message, Migrated
from perdure.kernel.receipt import Receipt
from perdure.kernel.rules import DEFINITIONS, IN_FORCE, RULER, RULING, Rules, decode_rules
from perdure.kernel.status import TERMINAL
from perdure.ports.store import Filter, place_of
from perdure.runtime.arguments import unknown
from perdure.runtime.client import Client
from perdure.stores.copy import copied
from perdure.stores.journal import refuse_many_journals
from perdure.worlds.shadow import Shadow, ShadowReport, receipt_of

PAGE = 500
HORIZON_MAX = 1_000_000_000  # seconds: some thirty years


class Proposal(msgspec.Struct, frozen=True):
    """A proposal as callers are told of it: what is to change, and whether it was shadowed, approved, applied..."""

    number: int
    status: str
    base: str  # the hash of the manifest that it was made for
    changes: tuple[Change, ...]
    report: Any = None
    reason: str = ""
    mode: str = ""


class Governance:
    """See the module. `client` is an engine, or a client of one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._world = client.handle(RULER.workflow, RULER.key)

    # ---- what is -------------------------------------------------------------------------------------------------

    async def manifest(self) -> Manifest:
        """The manifest in force."""
        return read(decode(await self._published(DEFINITIONS)))

    async def proposals(self) -> list[Proposal]:
        """All that there ever were, in order."""
        found = await self._published(PROPOSALS, b"")
        return [_proposal(each) for each in decode(found)] if found else []

    # ---- what may be asked ---------------------------------------------------------------------------------------

    async def propose(self, wanted: BoundManifest | Manifest | tuple[Change, ...]) -> Proposal:
        """Propose a manifest, or the changes that lead to it."""
        changes = wanted if isinstance(wanted, tuple) else patch_between(await self.manifest(), _data(wanted))
        return _proposal(await self._ask("propose", {"patch": data_of(changes)}))

    async def propose_data(self, data: Any) -> Proposal:
        """Propose a manifest that came as data, such as JSON."""
        return await self.propose(read(data))

    async def shadow(
        self,
        wanted: int | BoundManifest | Manifest,
        *,
        mode: Mode = "pinned",
        receipts: Mapping[str, Any] | None = None,
        recorded: bool = False,
        horizon: timedelta | float = 3600,
    ) -> ShadowReport:
        """What a manifest would do to the world as it is now, on a copy. A proposal keeps the report.

        `receipts` answers effects by their name (a value: ok; an exception: error), `recorded` as they were answered
        before for the same parameters; all others stay open. Time passes up to `horizon` (seconds).
        """
        now = await self.manifest()
        after = _data(wanted) if not isinstance(wanted, int) else await self._proposed(wanted, now)
        seconds = horizon.total_seconds() if isinstance(horizon, timedelta) else horizon
        if not 0 <= seconds <= HORIZON_MAX:
            raise CallerError(f"a horizon is 0 to {HORIZON_MAX:,} seconds, found {seconds}")
        answers = _answers(receipts, now, after)
        await refuse_many_journals(self._client.queries, "a shadow run")
        database, workflows = await copied(self._client.queries), _workflows(self._client, wanted)

        def run() -> ShadowReport:
            shadow = Shadow(database, workflows, now=time.time_ns(), receipts=answers, recorded=recorded)
            return shadow.run(now, after, mode, round(seconds * 1e9))

        report = await asyncio.to_thread(run)
        if isinstance(wanted, int):
            await self._ask("shadow", {"proposal": wanted, "report": to_plain(report)})
        return report

    async def contrasts(self, number: int) -> tuple[Manifest, Manifest, list[Contrast]]:
        """The manifest in force, the proposed one, and where they differ."""
        now = await self.manifest()
        after = await self._proposed(number, now)
        return now, after, contrasts(now, after)

    async def without_code(self, number: int) -> list[str]:
        """The cells of a proposed manifest whose code this process does not have: it cannot run their shadow."""
        wanted = in_force(await self._proposed(number, await self.manifest()))
        known = {(found.name, found.version) for found in self._client._workflows}
        return sorted([name for name, version in wanted.versions.items() if (name, version) not in known])

    async def _proposed(self, number: int, now: Manifest) -> Manifest:
        for proposal in await self.proposals():
            if proposal.number == number:
                try:
                    return patched(now, proposal.changes)
                except StalePatch as error:
                    raise RuleRefused("stale-patch", str(error)) from None
        raise RuleRefused("unknown-proposal", f"there is no proposal {number}")

    async def approve(self, number: int) -> Proposal:
        """A proposal that was shadowed without a failure. It is not in force by that."""
        return _proposal(await self._ask("approve", {"proposal": number}))

    async def reject(self, number: int, reason: str = "") -> Proposal:
        """A proposal that shall not come into force. The reason is recorded."""
        return _proposal(await self._ask("reject", {"proposal": number, "reason": reason}))

    async def apply(self, wanted: int | BoundManifest | Manifest, mode: Mode = "pinned") -> str:
        """Put an approved proposal into force, by its number; or, for development, a manifest at once. Its hash.

        pinned: cells that live stay on the definition that they began with. migrate: they migrate to the new one, each
        when it is next used, or all by `migrate()`. strict: refused unless the world is empty.
        """
        if isinstance(wanted, int):
            await self._check_code_of(wanted)
            await self._ask("apply", {"proposal": wanted, "mode": mode})
        else:
            manifest = _data(wanted)
            await self._check_code(in_force(manifest))
            await self._ask("apply", {"manifest": manifest.bytes, "mode": mode})
        return (await self._in_force()).hash

    async def migrate(self) -> int:
        """Migrate the remaining cells of an applied manifest, also those that could not be; how many there were.

        A cell that is stuck at one of its events is migrated after that event.
        """
        moved = 0
        async for head in self.migrating():
            await self._client._connection.put(head.id, Migrated())
            moved += 1
        return moved

    async def migrating(self) -> AsyncIterator[HeadRow]:
        """The cells that an applied manifest migrates and that have another version still."""
        force = await self._in_force()
        for workflow, versions in force.migrating.items():
            before = None
            while heads := await self._client.queries.heads(Filter(workflow=workflow, before=before, limit=PAGE)):
                before = place_of(heads[-1])
                for head in heads:
                    if head.version in versions and head.status not in TERMINAL:
                        yield head

    # ---- how -----------------------------------------------------------------------------------------------------

    async def _ask(self, verb: str, body: dict[str, Any]) -> Any:
        id = os.urandom(16).hex()
        # By its name: the runtime adds to some messages what it counted.
        await self._client._connection.put(RULER, Message(f"{RULING}{verb}", encode(body), id))
        answer = await self._world._response(verb, id)
        if "refused" in answer:
            raise RuleRefused(answer["refused"], answer["text"])
        return answer

    async def _published(self, name: str, default: bytes | None = None) -> bytes:
        head = await self._client.queries.head(RULER)
        if head is None:
            raise CallerError(NO_CELLS)
        found = await self._client.queries.published(head.id, name)
        if found is None and default is None:
            raise CallerError(f"the world has not published its {name} yet")
        return found if found is not None else default or b""

    async def _in_force(self) -> Rules:
        return decode_rules(await self._published(IN_FORCE))

    async def _check_code_of(self, number: int) -> None:
        """The same for a proposal, if it can be applied at all: else the world says why not."""
        approved = [found for found in await self.proposals() if found.number == number and found.status == "approved"]
        for proposal in approved:
            with suppress(StalePatch):
                await self._check_code(in_force(patched(await self.manifest(), proposal.changes)))

    async def _check_code(self, wanted: Rules) -> None:
        """The engine that runs must have the code of what is to be in force: else its events would wait for another."""
        known = {(row.name, row.version) for row in await self._client.queries.workflows()}
        missing = [name for name, version in wanted.versions.items() if (name, version) not in known]
        if missing:
            text = (
                f"the engine has no code for {', '.join(sorted(missing))} as the manifest defines it: deploy it first"
            )
            raise RuleRefused("no-code", text)


def _workflows(client: Client, wanted: object) -> list[Any]:
    """The code that the run has: what the client knows, and what comes with a manifest."""
    known: dict[tuple[str, str], Any] = {(found.name, found.version): found for found in client._workflows}
    if isinstance(wanted, BoundManifest):
        known |= {(found.name, found.version): found for found in wanted.cells}
    known.setdefault((WorldWorkflow.name, WorldWorkflow.version), WorldWorkflow())
    return list(known.values())


def _answers(given: Mapping[str, Any] | None, *manifests: Manifest) -> dict[str, Receipt]:
    """The receipts that a caller wants effects to have. One for what is no effect would be for nothing."""
    if not isinstance(given or {}, Mapping):
        raise CallerError(f'receipts are given by effect, {{"payment/charge@1": {{...}}}}; found {given!r:.100}')
    known = sorted({name for manifest in manifests for name in manifest.known_effects})
    for name in given or {}:
        if name not in known:
            raise CallerError(unknown("effect", name, known, "receipts are given by the names of effects"))
    return {name: receipt_of(receipt) for name, receipt in (given or {}).items()}


def _data(wanted: BoundManifest | Manifest) -> Manifest:
    return wanted.manifest if isinstance(wanted, BoundManifest) else wanted


def _proposal(told: dict[str, Any]) -> Proposal:
    return Proposal(
        told["proposal"],
        told["status"],
        told["base"],
        tuple([Change(**change) for change in told["patch"]]),
        told["report"],
        told["reason"],
        told["mode"],
    )
