"""Receipts: the one terminal answer to an intent, and failures as data."""

import traceback
from collections.abc import Sequence
from opcode import opmap
from typing import Any, Final, Literal

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.errors import CallerError, Fatal, OperationFailed, TooLarge

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


class ReceiptSignature(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`key` is the id of the key that it was made with."""

    algorithm: str
    key: str
    value: bytes


class Answerer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who answers from outside, what it cost (canonical bytes), and the proof."""

    executor: str
    cost: bytes | None = None
    signature: ReceiptSignature | None = None


class Receipt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`value` is canonical bytes. `unknown`: the executor died before it answered, and may not be asked again.

    `by`: the name of an executor outside; empty for executors inside of the engine.
    """

    status: ReceiptStatus
    value: bytes | None = None
    error: Failure | None = None
    by: Answerer | None = None


DONE = Receipt("ok")

MESSAGE_MAX: Final = 16 * 1024
TRACEBACK_MAX: Final = 64 * 1024
"""Characters of the texts of an error. Longer ones are cut: no error may be too large to be recorded."""

DATA_MAX: Final = 1024 * 1024
"""Bytes of the data of an error."""

CAUSES_MAX: Final = 20


def failure_of(error: BaseException, *, retry: bool = True) -> Failure:
    """An exception as it is recorded. Whatever is wrong with the exception itself, this succeeds.

    Data of a `Fatal` that cannot be recorded is an error of its own: its author counts on that data.
    """
    try:
        message = str(error)
    except Exception:
        message = "(its text cannot be shown: __str__ failed)"
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as broken:
        text = f"(its traceback cannot be shown: {type(broken).__name__})"
    kind, encoded = _type_name(type(error)), None
    try:
        encoded = _data(error)
    except CallerError as unusable:
        if isinstance(error, Fatal):
            message = f"the data of {kind}({cut(message, 200)!r}): {unusable}"
            kind, retry = _type_name(type(unusable)), False
    except Exception:  # a property that failed
        pass
    return Failure(kind, cut(message, MESSAGE_MAX), cut(text, TRACEBACK_MAX), encoded, retry)


def cut(text: str, size: int) -> str:
    """The text, without its middle if it is longer than `size`; it says so. What UTF-8 does not have is escaped."""
    if len(text) > size:
        text = f"{text[: size // 2]}\n[... {len(text) - size:,} characters were cut ...]\n{text[-(size - size // 2) :]}"
    return text.encode(errors="backslashreplace").decode()  # names of files may come with lone surrogates


def causes_of(errors: Sequence[Failure]) -> tuple[Failure, ...]:
    """The failures of all attempts as one outcome records them: of very many the first and the last."""
    half = CAUSES_MAX // 2
    if len(errors) > CAUSES_MAX:
        left_out = Failure("LeftOut", f"the failures of {len(errors) - 2 * half:,} more attempts are in the history")
        errors = [*errors[:half], left_out, *errors[-half:]]
    return tuple([_cut_texts(error) for error in errors])


def _cut_texts(failure: Failure) -> Failure:
    """Older versions recorded texts of any length."""
    if len(failure.message) <= 2 * MESSAGE_MAX and len(failure.traceback) <= 2 * TRACEBACK_MAX:
        return failure
    message, text = cut(failure.message, MESSAGE_MAX), cut(failure.traceback, TRACEBACK_MAX)
    return msgspec.structs.replace(failure, message=message, traceback=text)


def _type_name(kind: type) -> str:
    """As in a traceback, with the module. What Python and perdure define has no other name than its own."""
    module = kind.__module__
    own = not isinstance(module, str) or module == "builtins" or module.partition(".")[0] == "perdure"  # type: ignore[redundant-expr]
    return cut(kind.__qualname__ if own else f"{module}.{kind.__qualname__}", 1000)


def _data(error: BaseException) -> bytes | None:
    """The data that an exception carries; that of an operation is the data of what failed there."""
    failed = getattr(error, "error", None)
    if isinstance(error, OperationFailed) and isinstance(failed, Failure):
        return failed.encoded
    data = getattr(error, "data", None)
    if data is None:
        return None
    encoded = encode(to_plain(data))
    if len(encoded) > DATA_MAX:
        raise TooLarge("it", len(encoded), DATA_MAX)
    return encoded


def is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C raised this, not the code itself: no `raise` of the author stands where it began."""
    at = error.__traceback__
    if not isinstance(error, KeyboardInterrupt) or at is None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    if at.tb_frame.f_globals.get("__name__") == "asyncio.runners":  # asyncio raises it at a second Ctrl-C
        return True
    return at.tb_frame.f_code.co_code[at.tb_lasti] != opmap["RAISE_VARARGS"]
