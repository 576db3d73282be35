"""How events come to the kernel of a shard: at once, when memory is loaded, or together with counts.

A workflow may ask that a message of some name brings how much there is at that moment: `Policy.counted`.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from perdure.codec import decode, encode
from perdure.errors import PerdureError
from perdure.kernel.events import Address, Event, Message
from perdure.kernel.machine import Governed
from perdure.kernel.mailbox import Offer
from perdure.kernel.rules import RULER
from perdure.ports.store import Census

from .calls import Calls
from .core import Core
from .listener import tell


class Admission:
    def __init__(self, core: Core, calls: Calls) -> None:
        self._core = core
        self._calls = calls
        self._counts = False  # whether a workflow asks for them

    def begin(self) -> None:
        """A new life: what came meanwhile is admitted."""
        kernel = self._core.kernel
        self._counts = any(workflow.policy.counted for workflow in kernel.workflows)
        for offer in self._core.take_early():
            kernel.offer(offer)

    def admit(self, offer: Offer, own: int = 0) -> None:
        """Give an offer to the kernel. `own`: how many inbox rows are the event itself."""
        core = self._core
        if core.away:
            core.early.append(offer)
        elif self._counts and type(offer.event) is Message and self._wants_counts(offer):
            self._admit_counted(offer, own)
        else:
            core.offer(offer)

    def _wants_counts(self, offer: Offer) -> bool:
        to = offer.to
        workflow = self._core.kernel.workflows.newest(to.workflow) if isinstance(to, Address) else None
        return workflow is not None and offer.event.name == workflow.policy.counted  # type: ignore[union-attr]

    def _admit_counted(self, offer: Offer, own: int) -> None:
        core = self._core
        life = core.life

        def counted(census: Census | Exception) -> None:
            if life != core.life:
                core.early.append(offer)
            elif isinstance(census, Exception):
                if own:
                    core.crash(census)
                else:
                    tell(offer.ticket, census)
            else:
                offer.event = self._counted(offer.event, census, own)
                core.offer(offer)

        core.store.census(counted)

    def _counted(self, event: Event, census: Census, own: int) -> Event:
        assert type(event) is Message
        kernel = self._core.kernel
        rules = kernel.router.rules
        governed = [row for row in census.instances if self._may_be_governed(row[0], row[1])]
        left: Counter[str] = Counter()
        for workflow, version, _, count in governed:
            left[workflow] += count if rules.outdated(workflow, version) else 0
        counts = {
            "instances": sum(count for *_, count in governed),
            "intents": census.work + len(self._calls.running),
            "queued": census.inbox - own + sum(1 for _ in kernel.undelivered()) + self._core.not_durable(),
            "left": dict(+left),
        }
        try:
            body = {**decode(event.body), "counts": counts, "counted": rules.hash}
        except (PerdureError, TypeError):
            return event  # the receiver will say what is wrong with it
        return msgspec.structs.replace(event, body=encode(body))

    def _may_be_governed(self, workflow: str, version: str) -> bool:
        """Also what earlier rules made, and those in force do not name: it lives on, with or without code."""
        workflows = self._core.kernel.workflows
        known = workflows.of(workflow, version) or workflows.newest(workflow)
        return workflow != RULER.workflow and (known is None or isinstance(known, Governed))
