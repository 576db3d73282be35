"""Change under governance: propose, shadow, approve or reject, apply. Pure: what is asked, and what becomes of it.

    proposed -> shadowed -> approved -> applied
         \\__________\\___________\\___-> rejected

This is part of the state of the world's own instance (`world.py`): each step is an entry of the journal. What a
shadow run found is computed elsewhere and comes in as a report; here it is only kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from perdure.codec import decode, encode
from perdure.errors import BadDefinition, BadManifest, PerdureError, StalePatch

from .check import check
from .manifest import Manifest, read
from .patch import patched, read_patch

ProposalStatus = Literal["proposed", "shadowed", "approved", "rejected", "applied"]
Mode = Literal["strict", "pinned", "migrate"]

MAY_FOLLOW: Final[dict[str, frozenset[str]]] = {
    "shadowed": frozenset({"proposed", "shadowed"}),
    "approved": frozenset({"shadowed"}),
    "rejected": frozenset({"proposed", "shadowed", "approved"}),
    "applied": frozenset({"approved"}),
}
"""What a proposal must be before it can become something else."""


class KeptProposal(msgspec.Struct, array_like=True):
    """A proposal as the world keeps it. `manifest` is what the patch made of the manifest with the hash `base`."""

    number: int
    patch: bytes
    base: str
    manifest: bytes
    status: ProposalStatus = "proposed"
    report: bytes = b""
    reason: str = ""
    mode: str = ""


class Refusal(Exception):
    """What was asked cannot be done. `code` is for programs."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class Proposals:
    """The proposals of a world, by number."""

    def __init__(self, proposals: list[KeptProposal] | None = None) -> None:
        self.by_number = {proposal.number: proposal for proposal in proposals or ()}

    def propose(self, manifest: Manifest, body: Any) -> KeptProposal:
        """A new proposal. The same patch twice is two proposals."""
        patch = body.get("patch")
        result = _patched(manifest, patch)
        number = len(self.by_number) + 1
        proposal = KeptProposal(number, encode(patch), manifest.hash, result.bytes)
        self.by_number[number] = proposal
        return proposal

    def shadow(self, body: Any) -> KeptProposal:
        """A shadow run was made; its report is kept with the proposal."""
        proposal = self._moved(body, "shadowed")
        proposal.report = encode(body.get("report"))
        return proposal

    def approve(self, body: Any) -> KeptProposal:
        proposal = self._find(body)
        report = decode(proposal.report) if proposal.report else {}
        if proposal.status == "shadowed" and report.get("failures"):
            first = report["failures"][0]
            raise Refusal("shadow-failed", f"the shadow run of proposal {proposal.number} failed: {first}")
        return self._moved(body, "approved")

    def reject(self, body: Any) -> KeptProposal:
        proposal = self._moved(body, "rejected")
        proposal.reason = str(body.get("reason", ""))
        return proposal

    def approved(self, manifest: Manifest, body: Any) -> tuple[KeptProposal, Manifest]:
        """A proposal that may be applied, and the manifest that is to be in force then.

        The patch is made again: others may have changed something since.
        """
        proposal = self._find(body)
        self._check(proposal, "applied")
        tried, mode = decode(proposal.report).get("mode", ""), body.get("mode", "pinned")
        if tried != mode:
            text = f"the shadow run of proposal {proposal.number} was {tried}, and it is to be applied {mode}"
            raise Refusal("shadow-mode", f"{text}: propose it again and shadow it in that mode")
        result = _patched(manifest, decode(proposal.patch))
        return proposal, result

    def _moved(self, body: Any, status: ProposalStatus) -> KeptProposal:
        proposal = self._find(body)
        self._check(proposal, status)
        proposal.status = status
        return proposal

    def _check(self, proposal: KeptProposal, status: str) -> None:
        allowed = MAY_FOLLOW[status]
        if proposal.status not in allowed:
            before = " or ".join(sorted(allowed))
            text = f"proposal {proposal.number} is {proposal.status}; to be {status} it must be {before}"
            raise Refusal("wrong-state", text)

    def _find(self, body: Any) -> KeptProposal:
        number = body.get("proposal")
        if number not in self.by_number:
            raise Refusal("unknown-proposal", f"there is no proposal {number!r}; there are {len(self.by_number)}")
        return self.by_number[number]


def _patched(manifest: Manifest, patch: Any) -> Manifest:
    try:
        result = patched(manifest, read_patch(patch))
        check(result)
    except StalePatch as error:
        raise Refusal("stale-patch", str(error)) from None
    except BadManifest as error:
        raise Refusal(error.code, str(error)) from None
    except (BadDefinition, PerdureError) as error:
        raise Refusal("bad-manifest", str(error)) from None
    return result


@lru_cache(maxsize=16)
def read_manifest(data: bytes) -> Manifest:
    """A whole manifest that is to be applied at once. A replay reads the same ones again."""
    try:
        manifest = read(decode(data))
        check(manifest)
    except BadManifest as error:
        raise Refusal(error.code, str(error)) from None
    except (BadDefinition, PerdureError) as error:
        raise Refusal("bad-manifest", str(error)) from None
    return manifest
