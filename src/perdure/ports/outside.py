"""What an executor outside of the engine is asked for, and the receipt that answers it.

The signer and the sender of a receipt make it here, from the same words: so both have the same bytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from perdure.codec import encode, is_text, to_plain
from perdure.codec.record import Record, shape_of
from perdure.errors import BadCall
from perdure.kernel.receipt import Answerer, Failure, Receipt, ReceiptSignature

NOTHING: Final = msgspec.UNSET
"""No value was given; None is one."""

SIGNATURE_MAX: Final = 1024
"""Bytes of a signature, and characters of the words beside it. Those that there are have 64 and fewer."""

Ending = Literal["error", "timeout", "cancelled", "unknown"]


class OpenEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that waits for its executor outside.

    `workflow` and `key` are the instance that asks, `entry` the number of the entry in which it asked, `issuer` the
    reference that it gave. `idempotency_key` is the one it gave, or one that no other effect has. `due`: its deadline.
    """

    intent: str
    effect: str
    executor: str
    params: Any  # plain data
    params_hash: str
    workflow: str
    key: str
    entry: int
    issuer: str = ""
    idempotency_key: str = ""
    due: datetime | None = None


def answer(
    executor: str,
    *,
    ok: Any = NOTHING,
    error: str | None = None,
    status: Ending | None = None,
    cost: Any = None,
    signature: ReceiptSignature | None = None,
) -> Receipt:
    """The receipt of an executor: a value that is ok, or an error, or another end."""
    if (ok is NOTHING) == (error is None and status is None):
        raise BadCall("an effect is answered with ok=value, or with error=text, or with status=..., and one of them")
    if status not in (None, "error", "timeout", "cancelled", "unknown"):
        raise BadCall(f'status={status!r}: what is not ok is "error", "timeout", "cancelled" or "unknown"')
    if signature is not None and not _is_signature(signature):
        raise BadCall(f"signature= takes what perdure.sign(...) gives, found {signature!a:.80}")
    by = Answerer(executor, None if cost is None else encode(_plain(cost)), signature)
    if ok is not NOTHING:
        return Receipt("ok", encode(_plain(ok)), None, by)
    failure = None if error is None else Failure("OutsideError", error, retry=False)
    return Receipt(status or "error", None, failure, by)


def _is_signature(given: Any) -> bool:
    """Whether it can be recorded and read again. Where no signature is required, nothing else looks at it."""
    if not isinstance(given, ReceiptSignature):
        return False
    texts: list[Any] = [given.algorithm, given.key]
    value: Any = given.value
    fit = all(is_text(text) and len(text) <= SIGNATURE_MAX for text in texts)
    return fit and isinstance(value, bytes) and len(value) <= SIGNATURE_MAX


def _plain(value: Any) -> Any:
    return shape_of(type(value)).plain(value) if isinstance(value, Record) else to_plain(value)
