"""Slots: which calls are running, and which wait until the gate lets them go. Memory only: the journal is the truth.

Every open call of this shard that is not with a worker is in exactly one of three sets: running (handed to an executor,
or about to be), held (by the gate), or an orphan (found open by loading: whether an executor has it is not known yet).
What is to be done about each is said here, and recorded elsewhere: no event is offered and no instance changed.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence

from .effects import Call, Effect, is_queued
from .events import ReceiptArrived, Redelivered
from .gate import SLOT, Allow, Defer, Deny, Gate, Hand, Verdict
from .instance import Instance
from .receipt import Failure, Receipt


class Slots:
    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.running: Counter[str] = Counter()  # by executor
        self.running_ids: set[bytes] = set()
        self.held_ids: set[bytes] = set()
        self.orphans: set[bytes] = set()
        self.judge_again = False  # a call that was found held waits for its first judgement in this life
        self._held: dict[str, deque[tuple[int, bytes, Call]]] = {}  # by executor, oldest first

    def is_away(self, effect: Effect) -> bool:
        """Whether a call is for others to perform: workers, or the next engine that serves its queue."""
        return is_queued(effect) and not self.gate.performs(effect.executor)

    # ---- new calls ------------------------------------------------------------------------------------------------

    def admit(
        self, instance: int, intents: Sequence[bytes], effects: Sequence[Effect]
    ) -> tuple[tuple[bytes, ...], Sequence[tuple[bytes, str]]]:
        """Ask the gate about each call: which are held, and which are denied. Neither is handed out."""
        held: list[bytes] = []
        denied: list[tuple[bytes, str]] = []
        for place, effect in enumerate(effects):
            if type(effect) is not Call:
                continue
            verdict = self._judge(instance, intents[place], effect)
            if type(verdict) is Allow or type(verdict) is Hand:
                continue
            held.append(intents[place])
            if type(verdict) is Deny:
                denied.append((intents[place], verdict.reason))
        return tuple(held), denied

    def _judge(self, instance: int, id: bytes, call: Call) -> Verdict:
        """Judge a new call, and run it or hold it accordingly. No call passes one that is held already."""
        verdict = self.gate.judge(call, self.running)
        if self.held_ids and type(verdict) is Allow and self._first_held(call.executor):
            verdict = SLOT
        if type(verdict) is Allow:
            self.run(id, call)
        elif type(verdict) is Defer:
            self.hold(instance, id, call)
        return verdict

    def run(self, id: bytes, call: Call) -> None:
        if id not in self.running_ids:
            self.orphans.discard(id)
            self.running_ids.add(id)
            self.running[call.executor] += 1

    def hold(self, instance: int, id: bytes, call: Call) -> None:
        self._held.setdefault(call.executor, deque()).append((instance, id, call))
        self.held_ids.add(id)

    def stop(self, id: bytes, effect: object) -> None:
        """The call was answered, or its answer is not needed any more."""
        if id in self.running_ids:  # then it is neither of the others
            if type(effect) is Call:
                self.running_ids.remove(id)
                self.running[effect.executor] -= 1
            return
        self.orphans.discard(id)
        self.held_ids.discard(id)

    def found(self, id: bytes) -> None:
        """A call was found open by loading its instance."""
        if id not in self.running_ids:
            self.orphans.add(id)

    # ---- calls of an earlier life ---------------------------------------------------------------------------------

    def recover(self, instance: Instance, alive: Collection[bytes]) -> list[tuple[int, int, int, bytes]]:
        """The calls of an instance that no executor performs any more: see `Kernel.recover`."""
        lost: list[tuple[int, int, int, bytes]] = []
        for intent in list(instance.open.values()):
            if type(intent.effect) is not Call:
                continue
            if intent.id in self.orphans and intent.id in alive:
                self.run(intent.id, intent.effect)
            elif instance.halted:
                continue
            elif intent.held and intent.id not in self.held_ids:
                self.hold(instance.id, intent.id, intent.effect)
                self.judge_again = True
            elif intent.id in self.orphans:
                self.run(intent.id, intent.effect)
                lost.append((intent.strikes, intent.delivery, instance.id, intent.id))
        return lost

    def again_or_unknown(self, instance: Instance, event: Redelivered) -> Redelivered | ReceiptArrived:
        """A call that was asked as often as it may be is answered `unknown` instead of being asked again."""
        intent = instance.open[event.intent]
        assert type(intent.effect) is Call
        allowed = intent.effect.deliveries_max
        if intent.strikes < allowed or (allowed > 1 and not event.alone):
            return event
        away = self.is_away(intent.effect)
        failure = Failure(
            "WorkerLost" if away else "ProcessDied",
            f"the {'worker was lost' if away else 'process died'} while it executed this"
            + (f", each of {intent.delivery} times" if intent.delivery > 1 else ""),
            retry=False,
        )
        self.stop(intent.id, intent.effect)
        return ReceiptArrived(intent.id, Receipt("unknown", error=failure))

    # ---- held calls -----------------------------------------------------------------------------------------------

    def let_go(self) -> Iterator[tuple[int, bytes, Allow | Hand | Deny]]:
        """Judge the oldest held call of each executor again, as long as the gate does not defer it."""
        for executor, waiting in self._held.items():
            while first := self._first_held(executor):
                instance, id, call = first
                verdict = self.gate.judge(call, self.running)
                if type(verdict) is Defer:
                    break
                waiting.popleft()
                self.held_ids.discard(id)
                if type(verdict) is Allow:
                    self.run(id, call)
                assert type(verdict) is not Defer
                yield instance, id, verdict  # type: ignore[misc]

    def _first_held(self, executor: str) -> tuple[int, bytes, Call] | None:
        waiting = self._held.get(executor)
        while waiting and waiting[0][1] not in self.held_ids:  # withdrawn while it was held
            waiting.popleft()
        return waiting[0] if waiting else None
