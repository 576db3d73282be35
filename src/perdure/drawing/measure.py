"""Sizes without fonts: estimated widths of text from a fixed table, and the room that each node needs.

Browsers have different fonts, so the estimate is generous. `unicodedata` is not used: its answers change with the
version of Python, and equal input must give equal bytes everywhere.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from perdure.drawing.model import SMALL, Direction, Node

LABEL_MAX: Final = 180
LINE: Final = 16  # height of a line of text
MONO: Final = 80  # tenths of a pixel: one character of a title, 13 px
_WIDTHS: Final = {  # tenths of a pixel at 12 px
    **dict.fromkeys("ijl|.,:;'`!I", 34),
    **dict.fromkeys('ftr()[]{}/\\-" ', 46),
    **dict.fromkeys("mwMW@%", 112),
    **dict.fromkeys("ABCDEFGHKNOPQRSUVXYZ&", 86),
}
_USUAL: Final = 72
_WIDE: Final = 130
_WIDE_RANGES: Final = (
    (0x1100, 0x115F), (0x2E80, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE30, 0xFE6F), (0xFF00, 0xFF60),
    (0x1F000, 0x1FAFF), (0x20000, 0x3FFFD),
)  # fmt: skip
_HIDDEN_RANGES: Final = (  # controls, direction marks, invisible characters, surrogates, and what XML does not allow
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x180E, 0x180E), (0x200B, 0x200B), (0x200E, 0x200F),
    (0x2028, 0x202E), (0x2060, 0x206F), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xFFFE, 0xFFFF),
    (0xE0000, 0xE0FFF), *((plane | 0xFFFE, plane | 0xFFFF) for plane in range(0, 0x110000, 0x10000)),
)  # fmt: skip
_HIDDEN: Final = re.compile("[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in _HIDDEN_RANGES) + "]")


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= code <= high for low, high in ranges)


def clean(text: str) -> str:
    """The text on one line, with every invisible or direction-changing character shown as U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    flat = " ".join(text.split("\n")).replace("\t", " ").replace("\r", " ")
    return _HIDDEN.sub("\ufffd", flat)


@lru_cache(maxsize=1024)
def _sign_width(sign: str, mono: bool) -> int:
    if sign > "\u10ff" and _within(ord(sign), _WIDE_RANGES):
        return _WIDE if not mono else 2 * MONO
    return MONO if mono else _WIDTHS.get(sign, _USUAL)


@lru_cache(maxsize=1024)
def text_width(text: str, mono: bool = False) -> int:
    """Estimated width in pixels of a title (mono, 13 px) or of other text (12 px)."""
    return -(-sum(_sign_width(sign, mono) for sign in clean(text)) // 10)


def shorten(text: str, width: int, mono: bool = False) -> str:
    """The beginning of a text that fits, with an ellipsis if something was cut."""
    text = clean(text)
    if len(text) <= width // 4 and text_width(text, mono) <= width:
        return text
    room = width * 10 - (MONO if mono else 120)
    kept = 0
    for sign in text:
        room -= _sign_width(sign, mono)
        if room < 0:
            break
        kept += 1
    return text if kept == len(text) else text[:kept].rstrip() + "…"


def label_width(label: str) -> int:
    """Estimated width of the label of a line, which is cut at `LABEL_MAX`."""
    return min(text_width(label[:60]), LABEL_MAX)


@dataclass(frozen=True, slots=True)
class Slot:
    """The room of a node: `main` along the direction of reading, `before` and `after` the line across it.

    The shape begins at `lead` and is `shape` long; edges touch it there. Across it reaches `half` to both sides.
    """

    main: int
    before: int
    after: int
    lead: int
    shape: int
    half: int


TEXT_MAX: Final = 168  # widest text beside a small shape
_BOX_MIN: Final = 120
_BOX_MAX: Final = 224
STATE_MAX: Final = 124  # widest text of a state beside its node
_SMALL: Final = {"start": (28, 28), "end": (28, 28), "fail": (28, 28), "parallel": (40, 32), "join": (40, 32),
                 "timer": (36, 36), "receive": (44, 32)}  # fmt: skip


def _even(value: int) -> int:
    return value + value % 2


def shape_size(node: Node) -> tuple[int, int]:
    """Width and height of the shape alone; both are even."""
    if node.kind in SMALL:
        return _SMALL.get(node.kind, (40, 40))
    title = 32 + text_width(node.title[:40], mono=True) + 30
    subtitle = 24 + text_width(node.subtitle[:60])
    return _even(min(max(title, subtitle, _BOX_MIN), _BOX_MAX)), 56 if node.subtitle else 40


def slot(node: Node, direction: Direction) -> Slot:
    width, height = shape_size(node)
    if node.kind not in SMALL:
        if direction == "LR":
            return Slot(width, height // 2 + 10, height // 2 + 20, 0, width, height // 2)
        return Slot(height + 26, width // 2, max(width // 2, STATE_MAX + 8), 10, height, width // 2)
    text = min(max(text_width(node.title[:40], mono=True), text_width(node.subtitle[:60]), 48), TEXT_MAX)
    lines = LINE * (3 if node.subtitle else 2)
    if direction == "LR":
        main = _even(max(width, text))
        return Slot(main, height // 2 + 8, height // 2 + 6 + lines, (main - width) // 2, width, height // 2)
    main = _even(max(height + 8, lines))
    return Slot(main, width // 2, width // 2 + 10 + max(text, STATE_MAX), (main - height) // 2, height, width // 2)
