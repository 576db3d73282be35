"""Fields of recorded values that no face shows: JSON pointers, with `*` for any one step and `**` for any depth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from perdure.errors import CallerError

REDACTED: Final = {"$redacted": True}
ANY: Final = "*"
DEEP: Final = "**"
TEXT_MIN: Final = 4
"""Texts as long as this are hidden in the sentences beside a value, too."""

Pointer = tuple[str, ...]


def read_pointer(text: str) -> Pointer:
    if not text.startswith("/") or text.endswith("/"):
        raise CallerError(f"a pointer of --redact is such as /card/number or /**/iban, found {text!r:.80}")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


class Redactor:
    """Hides fields of values, and remembers their texts to hide them in sentences of the same document."""

    def __init__(self, pointers: Iterable[Pointer] = ()) -> None:
        self._pointers = list(pointers)
        self._texts: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._pointers)

    def value(self, value: Any) -> Any:
        return self._below(value, self._pointers)

    def _below(self, value: Any, pointers: list[Pointer]) -> Any:
        if not pointers:
            return value
        if isinstance(value, dict):
            return {name: self._field(str(name), each, pointers) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._field(str(n), each, pointers) for n, each in enumerate(value)]
        return value

    def _field(self, name: str, value: Any, pointers: list[Pointer]) -> Any:
        below: list[Pointer] = []
        for pointer in pointers:
            deep = pointer[0] == DEEP
            if deep:
                below.append(pointer)
            here = pointer[1:] or (ANY,) if deep else pointer
            if here[0] in (ANY, name):
                if len(here) == 1:
                    self._remember(value)
                    return REDACTED
                below.append(here[1:])
        return self._below(value, below)

    def _remember(self, value: Any) -> None:
        if isinstance(value, dict | list | tuple):
            for each in value.values() if isinstance(value, dict) else value:
                self._remember(each)
        elif value is not None and not isinstance(value, bool) and len(str(value)) >= TEXT_MIN:
            self._texts.add(str(value))

    def texts(self, document: Any) -> Any:
        """A document whose sentences do not repeat what was hidden in it."""
        if not self._texts:
            return document
        if isinstance(document, dict):
            return {name: self.texts(each) for name, each in document.items()}
        if isinstance(document, list):
            return [self.texts(each) for each in document]
        if isinstance(document, str):
            for text in self._texts:
                document = document.replace(text, "…")
        return document
