"""Limits of one decision. Beyond one of them the decision is refused whole and the instance is stuck."""

import msgspec

from perdure.errors import LimitExceeded

from .decision import Decision

MEBIBYTE = 1024 * 1024
VALUE_MAX = 16 * MEBIBYTE
"""Bytes of one recorded value: an input, a message, a result."""

FRAMES_MAX = 1000
"""Recorded frames of one call."""

KEY_MAX = 512
"""Characters of a key: what a handle can name."""


class Limits(msgspec.Struct, frozen=True):
    effects: int = 10_000
    messages: int = 10_000  # sends and facts together
    bytes: int = 16 * MEBIBYTE  # of the encoded entry, without what its event brought


def refuse_excess(decision: Decision, limits: Limits) -> None:
    """Raise when a decision is over a limit. The bytes are checked when the entry is encoded."""
    if len(decision.open) > limits.effects:
        raise LimitExceeded(f"one decision opened {len(decision.open)} effects; the limit is {limits.effects}")
    messages = len(decision.send) + len(decision.announce)
    if messages > limits.messages:
        raise LimitExceeded(f"one decision sent {messages} messages; the limit is {limits.messages}")
