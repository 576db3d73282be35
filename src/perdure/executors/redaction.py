"""Taking the values of secrets out of everything that a call leaves behind: results, errors, tracebacks, logs.

A value is found as it is, and as it looks after the usual ways of writing it: percent-encoded, in base64 (also inside a
longer text, as in `Basic` credentials), in hex, escaped for JSON, HTML and Python. Each is replaced by the name of the
secret. What no search can find: a part of a value, or what the call has computed from it.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import quote, quote_plus
from weakref import WeakSet

import msgspec

from perdure.codec import decode, decode_strict, encode
from perdure.codec.values import SELF_DESCRIBED
from perdure.errors import PerdureError
from perdure.kernel.receipt import Failure, Receipt

SHORTEST: Final = 6
"""Characters. A shorter form of a value is found by chance in any text. The value itself is always looked for."""

_FORMATTER: Final = logging.Formatter()


class Redaction:
    """Hides these values, given by the names of their secrets. Without values it gives back what it is given.

    It is a filter of `logging` too: `logger.addFilter(redaction)`.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._shown = {form: f"<secret {name}>" for name, value in values.items() for form in _forms(value)}
        self._shown_bytes = {raw: shown.encode() for form, shown in self._shown.items() for raw in _encodings(form)}
        self._find = re.compile("|".join(map(re.escape, sorted(self._shown, key=len, reverse=True))))
        self._find_bytes = re.compile(b"|".join(map(re.escape, sorted(self._shown_bytes, key=len, reverse=True))))

    def __bool__(self) -> bool:
        return bool(self._shown)

    def text(self, text: str) -> str:
        return self._find.sub(lambda found: self._shown[found[0]], text) if self._shown else text

    def data(self, data: bytes) -> bytes:
        return self._find_bytes.sub(lambda found: self._shown_bytes[found[0]], data) if self._shown else data

    def value(self, value: Any) -> Any:
        """Plain data."""
        if not self._shown:
            return value
        match value:
            case str():
                return self.text(value)
            case bytes():
                return self._canonical(value) or self.data(value)
            case dict():
                return {self.value(name): self.value(item) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
            case _:
                return value

    def failure(self, failure: Failure) -> Failure:
        return msgspec.structs.replace(
            failure,
            type=self.text(failure.type),
            message=self.text(failure.message),
            traceback=self.text(failure.traceback),
            encoded=self._encoded(failure.encoded),
            causes=tuple(self.failure(cause) for cause in failure.causes),
        )

    def receipt(self, receipt: Receipt) -> Receipt:
        """What is recorded of a call."""
        if not self._shown:
            return receipt
        error = None if receipt.error is None else self.failure(receipt.error)
        return msgspec.structs.replace(receipt, value=self._encoded(receipt.value), error=error)

    def filter(self, record: logging.LogRecord) -> bool:
        if self._shown:
            record.msg, record.args = _message(record), None
            if record.exc_info:  # as text from here on: a later formatter would ask the exception again
                record.exc_text = _FORMATTER.formatException(record.exc_info)
                record.exc_info = None
            for name, value in list(vars(record).items()):
                setattr(record, name, self.value(value))
        return True

    def _canonical(self, data: bytes) -> bytes | None:
        """Canonical bytes within a value stay canonical: they say how long what they hold is. None: they are not."""
        if not data.startswith(SELF_DESCRIBED):
            return None
        try:
            return encode(self.value(decode_strict(data)))
        except PerdureError:
            return None

    def _encoded(self, data: bytes | None) -> bytes | None:
        return None if data is None else encode(self.value(decode(data)))


_hidden: ContextVar[Redaction | None] = ContextVar("perdure_redaction", default=None)
_living: WeakSet[Redaction] = WeakSet()
"""Redactions of calls that run, and of tasks that such calls left behind: the context of a task has its redaction."""


def hide(redaction: Redaction) -> None:
    """From here on, in this context, nothing that is logged has these values; `extra` fields are not looked at.

    Records are changed where they are made: a filter of one logger would not see those of the others.
    """
    made = logging.getLogRecordFactory()
    if not isinstance(made, _Redacting):
        logging.setLogRecordFactory(_Redacting(made))
    _hidden.set(redaction)
    _living.add(redaction)


def hidden() -> Redaction | None:
    """What the call that runs in this context has to hide."""
    return _hidden.get()


class _Redacting:
    """Makes log records as before, and hides in them what the call that logs has to hide."""

    def __init__(self, made: Callable[..., logging.LogRecord]) -> None:
        self._made = made

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._made(*args, **kwargs)
        if (redaction := _hidden.get()) is not None:
            redaction.filter(record)
        elif record.name == "asyncio":  # it tells of a task that failed in the context of the one who dropped the task
            for redaction in list(_living):
                redaction.filter(record)
        return record


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that do not fit: logging would tell on stderr, this must not fail the call
        return f"{record.msg!s} (its arguments do not fit: {record.args!r})"


def _forms(value: str) -> set[str]:
    """A value as it may be written. A long one, such as a key in PEM, is often shown line by line."""
    lines = [line for line in value.splitlines() if len(line) >= SHORTEST]
    derived = {form for text in {value, *lines} for form in _derived(text)}
    return {value, *(form for form in derived if len(form) >= SHORTEST)}


def _derived(text: str) -> Iterator[str]:
    yield from (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], html.escape(text))
    yield from (repr(text)[1:-1], ascii(text)[1:-1])
    for raw in _encodings(text):
        yield from (raw.decode("latin-1"), repr(raw)[2:-1], raw.hex(), raw.hex().upper())
        for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
            yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))
        yield from _base64(raw)


def _base64(raw: bytes) -> Iterator[str]:
    for encoded in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encoded(raw).decode()
        yield from (whole, whole.rstrip("="))
        for before, skipped in ((0, 0), (1, 2), (2, 3)):  # bytes in front of it, characters that they have a part in
            size = before + len(raw)
            yield encoded(bytes(before) + raw).decode()[skipped : size * 8 // 6]


def _encodings(text: str) -> set[bytes]:
    """As most write it, and as headers of HTTP do."""
    raw = {text.encode(errors="surrogatepass")}
    with suppress(UnicodeEncodeError):
        raw.add(text.encode("latin-1"))
    return raw
