"""The calls of a shard that are in the hands of executors, and their receipts until these are durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from perdure.errors import EngineClosed
from perdure.kernel.batch import Batch, Publication
from perdure.kernel.effects import Call
from perdure.kernel.events import Address, Event, Parked, ReceiptArrived, Redelivered, Requested
from perdure.kernel.mailbox import Answer, Offer, Stale
from perdure.kernel.receipt import Failure, Receipt
from perdure.ports.clock import Alarm
from perdure.ports.executor import CUT, Executor
from perdure.ports.frame import Frame

from .core import Core
from .redelivery import Redelivery


class RunningCall(msgspec.Struct, eq=False):
    """A call in the hands of an executor."""

    instance: int
    address: Address
    executor: Executor
    effect: Call
    delivery: int
    started: bool  # False: the engine stops; recorded, but not begun
    alarm: Alarm | None = None
    progress: Frame | None = None  # the newest
    frames: int = 0  # the ordinal of the last frame
    requests: dict[str, Requested] = {}  # what it has asked and not heard yet


class Calls:
    def __init__(self, core: Core, executors: Mapping[str, Executor]) -> None:
        self.running: dict[bytes, RunningCall] = {}
        self.receipts: dict[bytes, Offer] = {}  # of executors, and frames that are events: not yet durable
        self.redelivery = Redelivery(core.clock, self._deliver_again)
        self._core = core
        self._executors = executors

    @property
    def working(self) -> bool:
        """Whether a call runs, or its receipt is not durable yet."""
        return bool(self.receipts) or any(running.started for running in self.running.values())

    @property
    def alive(self) -> set[bytes]:
        """Calls that a failed commit did not kill: their receipts are here, or will come."""
        return self.running.keys() | self.receipts.keys()

    def offer_again(self) -> None:
        """Memory is loaded: what was not durable is not in it."""
        for running in self.running.values():
            for request in running.requests.values():  # it, or its answer, may have been lost with the memory
                self._offer_request(running, request)
        for ticket, offer in self.receipts.items():
            self._core.kernel.offer(Offer(offer.to, offer.event, ticket=ticket))

    def begin_early(self, batch: Batch) -> None:
        """Ephemeral calls are repeatable: they need not wait until they are durable."""
        early, batch.early = batch.early, []
        for publication in early:
            if publication.intent not in self.running:  # else a life before this one began it
                self.start(publication)

    def start(self, publication: Publication) -> None:
        effect, intent = publication.effect, publication.intent
        executor = self._executors[effect.executor]
        core = self._core
        running = self.running[intent] = RunningCall(
            publication.instance, publication.address, executor, effect, publication.delivery, not core.closing
        )
        if core.closing:
            return  # it is parked with the others
        timeout = effect.timeout
        if timeout is not None:
            running.alarm = core.clock.call_at(core.clock.now() + timeout, lambda: self._time_out(intent, timeout))
        executor.start(publication, self._answered)

    def _answered(self, intent: bytes, receipt: Receipt) -> None:
        """An executor's receipt. It is kept here until it is durable, so that a failed commit cannot lose it."""
        if receipt is CUT or self._is_refused_by_the_close(intent, receipt):
            self.leave(intent)
            return
        running = self.running.pop(intent, None)
        if running is None or self._core.closed:
            return
        if running.alarm is not None:
            running.alarm.cancel()
        if self.redelivery.current is not None:
            self.redelivery.cleared(intent)
        offer = self.receipts[intent] = Offer(running.instance, ReceiptArrived(intent, receipt), intent)
        self._core.kernel.offer(offer)  # the short way of `keep`
        self._core.schedule()

    def _is_refused_by_the_close(self, intent: bytes, receipt: Receipt) -> bool:
        """Whether a call failed because it asked the engine for something while that closes: it is no failure of the
        call, and the next engine makes it again. What may run once only has ended, and is not parked.
        """
        running, error = self.running.get(intent), receipt.error
        closing = self._core.closing and error is not None and error.type == EngineClosed.__name__
        return closing and running is not None and running.effect.deliveries_max != 1

    def keep(self, ticket: bytes, offer: Offer) -> None:
        """Offer what an executor says, and keep it until it is durable."""
        self.receipts[ticket] = offer
        self._core.offer(offer)

    def requested(self, intent: bytes, delivery: int, id: str, name: str, body: bytes) -> None:
        """A running call asks its instance for something. The request is kept here until its answer is durable."""
        running = self.running.get(intent)
        if running is None or running.delivery != delivery or self._core.closed:
            return  # an earlier delivery that was cut, and has not ended yet: it must not cut the next one
        request = running.requests[id] = Requested(intent, delivery, id, name, body)
        if not self._core.away:
            self._offer_request(running, request)
            self._core.schedule()

    def _offer_request(self, running: RunningCall, request: Requested) -> None:
        def heard(answer: Answer | Exception) -> None:
            if isinstance(answer, Stale):  # of an earlier delivery, or of a call that is closed: it is cut
                self.stop(request.intent)

        self._core.kernel.offer(Offer(running.instance, request, heard))

    def hear(self, asker: bytes, request: str, value: bytes) -> None:
        """The answer to a request is durable."""
        running = self.running.get(asker)
        if running is not None and running.requests.pop(request, None) is not None:
            running.executor.answer(asker, request, value)  # type: ignore[attr-defined]  # it has asked

    def _time_out(self, intent: bytes, timeout: int) -> None:
        running = self.running.get(intent)
        if running is None or self._core.closed:
            return
        failure = Failure("Timeout", f"no answer within {timeout / 1e9:g} s")
        running.executor.stop(intent)
        self._answered(intent, Receipt("timeout", error=failure))

    def _deliver_again(self, instance: int, intent: bytes, alone: bool) -> None:
        def heard(answer: Answer | Exception) -> None:
            if intent not in self.running:  # not handed out: it had been asked as often as it may be, or is stale
                self.redelivery.cleared(intent)

        self._core.offer(Offer(instance, Redelivered(intent, alone), heard))

    # ---- stopping ------------------------------------------------------------------------------------------------

    def stop(self, intent: bytes) -> None:
        running = self.running.pop(intent, None)
        if running is not None:
            if running.alarm is not None:
                running.alarm.cancel()
            running.executor.stop(intent)
            self.redelivery.cleared(intent)

    def _stop_where(self, unwanted: Callable[[RunningCall, bytes], bool]) -> None:
        """Cut what an unheard commit had closed. An ephemeral call may not be recorded as open yet."""
        for intent, running in list(self.running.items()):
            if not running.effect.ephemeral and unwanted(running, intent):
                self.stop(intent)

    def stop_where_ended(self, going_on: Iterable[int]) -> None:
        """Memory is loaded, and these instances go on."""
        ids = set(going_on)
        self._stop_where(lambda running, _: running.instance not in ids)

    def stop_closed(self) -> None:
        """All instances that ran are in memory: cut the calls that are not open any more."""
        instances = self._core.kernel.instances()

        def is_closed(running: RunningCall, intent: bytes) -> bool:
            instance = instances.get(running.instance)
            return instance is not None and intent not in instance.open

        self._stop_where(is_closed)

    def park(self) -> None:
        """Cut what still runs, and record that and what was never begun: neither has used up an attempt.

        What may run once only and had begun is different: what it has done is unknown.
        """
        for intent, running in list(self.running.items()):
            self.leave(intent)
            running.executor.stop(intent)

    def leave(self, intent: bytes) -> None:
        """Park one call, if it runs here, and let it run: it ends with the engine, or Ctrl-C has ended it."""
        running = self.running.pop(intent, None)
        if running is None or self._core.closed:
            return
        if running.alarm is not None:
            running.alarm.cancel()
        self.redelivery.cleared(intent)
        event: Event = Parked(intent)
        if running.started and running.effect.deliveries_max == 1:
            failure = Failure("Cut", "the engine was stopped while it ran", retry=False)
            event = ReceiptArrived(intent, Receipt("unknown", error=failure))
        self._core.offer(Offer(running.instance, event))
