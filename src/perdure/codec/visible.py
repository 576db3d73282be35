"""Text from outside, made visible and harmless: what a person sees is what is there, on the line where it belongs.

Keys, names, errors and notes may hold any characters. Written raw, an escape sequence moves the cursor, a newline
forges a line, and a bidi mark turns the order of what is read. Every face writes such text through `visible`.
"""

import re
from typing import Any, Final


def visible(text: str) -> str:
    """The text with each character that is not printable escaped as Python does it: `\\n`, `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else "".join([each if each.isprintable() else _escaped(each) for each in text])


def visible_json(text: str) -> str:
    """The same JSON; in its strings what is not printable is escaped as JSON does it. Newlines between values stay."""
    if text.isprintable():
        return text
    return _BEYOND_ASCII.sub(lambda found: found[0] if found[0].isprintable() else _units(found[0]), text)


BITS_MAX: Final = 14_000
"""Of an int that is written in decimal digits. Python refuses more than 4,300 digits, which take long."""


def visible_numbers(value: Any) -> Any:
    """Plain data, with ints that have too many digits as hexadecimal text."""
    match value:
        case int():
            return value if value.bit_length() <= BITS_MAX else hex(value)
        case dict():
            return {key: visible_numbers(item) for key, item in value.items()}
        case list() | tuple():
            return [visible_numbers(item) for item in value]
        case _:
            return value


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


def _units(sign: str) -> str:
    """The escape of a character in JSON: one unit of UTF-16, or two."""
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


_BEYOND_ASCII: Final = re.compile("[^\n -~]")
