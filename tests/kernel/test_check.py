"""What is checked of a decision before it is recorded."""

from perdure.kernel.check import check
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Effect, Timer
from perdure.kernel.events import Address, Message
from perdure.kernel.instance import Instance


class Deriving(Instance):
    """An instance that counts which ids are derived."""

    derived = 0

    def intent_id(self, effect: Effect) -> bytes:
        self.derived += 1
        return effect.location.encode()


def test_ids_that_a_decision_brings_are_not_derived_again():
    instance, timers = Deriving(Address("w", "k")), (Timer("a", 1), Timer("b", 2))

    assert check(instance, Message("m", b""), Decision(timers, intents=(b"1", b"2"))) == (b"1", b"2")
    assert instance.derived == 0

    assert check(instance, Message("m", b""), Decision(timers)) == (b"a", b"b")
    assert instance.derived == 2
