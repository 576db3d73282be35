"""Slots: which calls are running, and which wait until the gate lets them go. Memory only: the journal is the truth.

Every open call of this shard that is not with a worker is in exactly one of three sets: running (handed to an executor,
or about to be), held (by the gate), or an orphan (found open by loading: whether an executor has it is not known yet).
"""

from collections import Counter, deque
from collections.abc import Iterator

from .effects import Call
from .gate import SLOT, Allow, Defer, Deny, Gate, Hand, Verdict


class Slots:
    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.running: Counter[str] = Counter()  # by executor
        self.running_ids: set[bytes] = set()
        self.held_ids: set[bytes] = set()
        self.orphans: set[bytes] = set()
        self._held: dict[str, deque[tuple[int, bytes, Call]]] = {}  # by executor, oldest first

    def admit(self, instance: int, id: bytes, call: Call) -> Verdict:
        """Judge a new call, and run it or hold it accordingly. Nobody passes a call that is held already."""
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
        """The call was answered, or nobody wants its answer any more."""
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
