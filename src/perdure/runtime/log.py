"""The log of an engine: what its records quote is made visible, so that no data can write a line of its own."""

from __future__ import annotations

import logging
from typing import Any, Final

from perdure.codec.visible import visible
from perdure.kernel.receipt import Failure

log: Final = logging.getLogger("perdure")

_FORMATTER: Final = logging.Formatter()


def _harmless(record: logging.LogRecord) -> bool:
    """The arguments are data and stand on one line; lines of an error, and of a traceback, are set in."""
    if isinstance(record.args, tuple):
        record.args = tuple([_shown(each) for each in record.args])
    if record.exc_info and not record.exc_text:
        record.exc_text = f"  {_set_in(_FORMATTER.formatException(record.exc_info))}"
    return True


def _shown(argument: Any) -> Any:
    if isinstance(argument, int | float):
        return argument
    return (_set_in if isinstance(argument, Failure | BaseException) else visible)(str(argument))


def _set_in(text: str) -> str:
    return "\n  ".join([visible(line) for line in text.split("\n")])


log.addFilter(_harmless)  # the logger is one for all of perdure: stores and executors write to it, too
