"""Tags: which ones users may give, and how they stand in an index."""

from hashlib import sha256
from typing import Final

RESERVED: Final = frozenset({"reference", "schedule"})
"""Tags that belong to the engine, as do those below the first: `reference.PART`."""

TAG_MAX: Final = 4096
"""Characters of a name and its value together."""

INDEXED_BYTES_MAX: Final = 512
"""A longer name or value, or one with a NUL, is indexed by its hash: an index of PostgreSQL takes 2,700 bytes, and its
texts no NUL."""


def objection(name: object, value: object) -> str:
    """What stands against a tag that a user gives, or removes (None); empty: nothing does."""
    if not isinstance(name, str) or not (value is None or isinstance(value, str)):
        return f"a tag is a text, with a text as its name, found {name!a:.80}: {value!a:.80}"
    if name in RESERVED or name.startswith("reference."):
        return f"the tag {name!a:.80} belongs to the engine: give yours another name"
    if not name or len(name) + len(value or "") > TAG_MAX:
        return f"a tag has a name, and no more than {TAG_MAX:,} characters with it, found {name!a:.80}"
    try:
        (name + (value or "")).encode()
    except UnicodeEncodeError:
        return f"a tag is valid Unicode, found {name!a:.80}: {value!a:.80}"
    return ""


def indexed(name: str, value: str) -> tuple[str, str]:
    """A tag as its rows have it."""
    return _indexed(name), _indexed(value)


def _indexed(text: str) -> str:
    if "\x00" not in text and (len(text) * 4 <= INDEXED_BYTES_MAX or len(text.encode()) <= INDEXED_BYTES_MAX):
        return text
    return f"{text[:64]}\x1f{sha256(text.encode()).hexdigest()}".replace("\x00", "\x1f")
