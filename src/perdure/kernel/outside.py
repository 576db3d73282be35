"""Effects for executors outside of the engine, and who may answer them.

Such an effect is a `Wait` with parameters, which say who is asked for what. The answer is a receipt that says who it is
from. Whether it is admitted is judged here, from what the intent itself says; what is signed is verified by the one
has the keys, given as a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.codec import decode, encode

from .effects import Effect, Wait
from .events import Address, Message
from .instance import Intent
from .receipt import Receipt
from .rules import AUDIT

KIND: Final = "outside/"
"""In front of the executor's name, it is the kind of the row that such an effect has among the open work."""


ERROR: Final = b"error"
"""In front of an error where it is signed. Canonical bytes begin otherwise."""


class Outside(msgspec.Struct, frozen=True):
    """What stands in the parameters of such a wait. `entry` is the number of the entry that asked."""

    effect: str
    executor: str
    params: Any
    key: str = ""
    issuer: str = ""
    entry: int = 0

    def encode(self) -> bytes:
        return encode(msgspec.structs.asdict(self))


def outside_of(effect: Effect) -> Outside | None:
    """The executor outside and what it is asked for; None: the effect is not for one."""
    if type(effect) is not Wait or effect.params is None:
        return None
    return Outside(**decode(effect.params))


class Objection(msgspec.Struct, frozen=True):
    """Why a receipt is not admitted. `code` is one of no-identity, not-outside, wrong-executor, bad-signature."""

    code: str
    text: str
    executor: str  # that it claims to be from
    effect: str


Verify = Callable[[Address, bytes, Outside, Receipt], str]
"""Says why a receipt is not what its executor signed; empty: it is, or no signature is required."""


def unsigned(address: Address, intent: bytes, outside: Outside, receipt: Receipt) -> str:
    """Without keys there is nothing to verify."""
    return ""


def objection(
    address: Address, intent: Intent, receipt: Receipt, verify: Verify, job: Outside | None = None
) -> Objection | None:
    """What stands against a receipt that came from outside. `job`: the intent is a call that a worker performs."""
    outside = job or outside_of(intent.effect)
    executor = "" if receipt.by is None else receipt.by.executor
    if outside is None:
        if receipt.by is None:
            return None  # the engine's own: of a child, or of the gate
        text = f"{intent.effect.location} is nothing that somebody outside answers"
        return Objection("not-outside", text, executor, intent.effect.location)
    if receipt.by is None:
        return Objection("no-identity", f"a receipt of {outside.effect} says who it is from", "", outside.effect)
    if executor != outside.executor:
        text = f"{outside.effect} is answered by {outside.executor}, and this receipt is from {executor!a:.80}"
        return Objection("wrong-executor", text, executor, outside.effect)
    problem = verify(address, intent.id, outside, receipt)
    return Objection("bad-signature", problem, executor, outside.effect) if problem else None


def audit(address: Address, intent: Intent, against: Objection) -> Message:
    """What the ruler hears of a receipt that was not admitted."""
    told = {
        "code": against.code,
        "why": against.text,
        "who": against.executor,
        "what": against.effect,
        "instance": str(address),
        "intent": intent.id.hex(),
    }
    return Message(AUDIT, encode(told), "", str(address))


def payload(receipt: Receipt) -> bytes | None:
    """What a receipt says besides its status: the bytes whose hash is signed. Of an error it is all that is recorded.

    No value is written as an error is: a receipt that has both is not taken for one that has the value alone.
    """
    if receipt.error is None:
        return receipt.value
    return ERROR + encode([receipt.value, msgspec.to_builtins(receipt.error, builtin_types=(bytes,))])
