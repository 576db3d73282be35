"""Receipts: the one terminal answer to an intent, and failures as data."""

import traceback
from typing import Any, Literal

import msgspec

from perdure.codec import decode

ReceiptStatus = Literal["ok", "error", "timeout", "cancelled", "unknown"]


class Failure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An error as it is recorded: equal in a live run and in a replay, because both read it from here."""

    type: str
    message: str
    traceback: str = ""
    encoded: bytes | None = None  # `data` as canonical bytes
    retry: bool = True  # False: the executor knows that trying again is pointless
    causes: tuple["Failure", ...] = ()

    @property
    def data(self) -> Any:
        """The plain data that the exception carried: `raise Fatal("no", data={"code": 7})`."""
        return None if self.encoded is None else decode(self.encoded)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Signature(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`key` is the id of the key that it was made with."""

    algorithm: str
    key: str
    value: bytes


class Answerer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who answers from outside, what it cost (canonical bytes), and the proof."""

    executor: str
    cost: bytes | None = None
    signature: Signature | None = None


class Receipt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`value` is canonical bytes. `unknown`: the executor died before it answered, and may not be asked again.

    `by`: whoever answers from outside says who it is; what answers inside of the engine does not.
    """

    status: ReceiptStatus
    value: bytes | None = None
    error: Failure | None = None
    by: Answerer | None = None


DONE = Receipt("ok")


def failure_of(error: BaseException, *, retry: bool = True, encoded: bytes | None = None) -> Failure:
    """An exception as it is recorded. Whatever is wrong with the exception itself, this succeeds."""
    try:
        message = str(error)
    except Exception:
        message = "(its text cannot be shown: __str__ failed)"
    text = "".join(traceback.format_exception(error))
    return Failure(type(error).__qualname__, _writable(message), _writable(text), encoded, retry)


def _writable(text: str) -> str:
    """Names of files that are no UTF-8 come as lone surrogates, which no encoder takes."""
    return text.encode(errors="backslashreplace").decode()
