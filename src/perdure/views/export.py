"""A history as a file: a line for each entry has the recorded bytes, and what they say, for people and for diffs.

`perdure export` writes such a file, and `perdure.testing.replay` replays it on today's code.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from perdure.codec.visible import visible_numbers
from perdure.errors import NotAHistory
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Address, Started
from perdure.kernel.location import Patterns
from perdure.kernel.moment import when
from perdure.ports.seen import Line
from perdure.runtime.history import Reader

FORMAT: Final = "perdure history 1"
VALUE_MAX: Final = 200


class _EntryLine(msgspec.Struct, omit_defaults=True):
    number: int
    at: int
    told: str
    body: str
    seq: int = 0  # of what a message made, which may know it


class _File(msgspec.Struct):
    format: str
    workflow: str
    key: str
    generation: int
    version: str
    status: str
    entries: list[_EntryLine]


def text_of(head: HeadRow, rows: Sequence[JournalRow]) -> str:
    """The file of a history: JSON, with a line for each entry. The same history gives the same text everywhere."""
    about = {
        "format": FORMAT,
        "workflow": head.workflow,
        "key": head.key,
        "generation": head.generation,
        "version": head.version,
        "status": head.status,
    }
    lines = [f"{_json(name)}: {_json(value)}," for name, value in about.items()]
    entries = []
    made = _made(rows)
    for line, row in zip(Reader().read(rows), rows, strict=True):
        told = f"{when(row.at):%Y-%m-%d %H:%M:%S} {words(line)}"
        seq = row.seq if made else 0
        entries.append(_json(_EntryLine(line.number, row.at, told, b64encode(row.body).decode(), seq)))
    return "\n".join(["{", *lines, '"entries": [', ",\n".join(entries), "]", "}", ""])


def _made(rows: Sequence[JournalRow]) -> bool:
    """What its first event made may ask for the places of its entries in the journal."""
    event = decode_entry(*rows[0], Patterns()).event if rows else None
    return isinstance(event, Started) and event.first is not None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def words(line: Line) -> str:
    """An entry on one line: what came, and what it led to. Long values are cut."""
    said = [line.location, line.status] if line.event == "receipt" else [line.event, line.location]
    if line.value is not None:
        value = _json(visible_numbers(line.value))
        said.append(value if len(value) <= VALUE_MAX else value[:VALUE_MAX] + "…")
    if line.error is not None and line.outcome != "completed":
        said.append(str(line.error).strip().partition("\n")[0])
    led_to = ", ".join([*line.opened, *filter(None, [line.outcome])])
    return " ".join(filter(None, said)) + (f" → {led_to}" if led_to else "")


def write(path: str | os.PathLike[str], head: HeadRow, rows: Sequence[JournalRow]) -> None:
    Path(path).write_text(text_of(head, rows), encoding="utf-8")


def read(path: str | os.PathLike[str]) -> tuple[Address, list[JournalRow]]:
    """The name of an instance and its rows. Those of what a message made have the places that they had; others are
    counted from 1: which rows stood between them is not kept."""
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
        rows = [
            JournalRow(line.seq or line.number, 1, line.at, b64decode(line.body, validate=True))
            for line in file.entries
        ]
    except (msgspec.DecodeError, ValueError) as error:
        raise NotAHistory(f"{path} is not an exported history: {error}") from None
    except OSError as error:
        raise NotAHistory(f"{path} cannot be read: {error.strerror}") from None
    if file.format != FORMAT:
        raise NotAHistory(f"{path} has the format {file.format!r}; this perdure reads {FORMAT!r}")
    if [line.number for line in file.entries] != list(range(1, len(rows) + 1)) or not rows:
        raise NotAHistory(f"{path} is not whole: its entries are not numbered from 1 on")
    return Address(file.workflow, file.key), rows
