"""Python values to plain data and back, by annotation.

`to_plain` takes what a program holds, `from_plain` gives it back from what was recorded:

    from_plain(decode(encode(to_plain(value, T))), T) == value

for every annotation T that `converters/table.py` knows. A converter is built once for an annotation and kept.
It is as strict as a type checker: an int is not a str, a subclass is not its base (its own fields would be
lost), and the only widening is int to float. A recorded field that the code no longer has is ignored; a field
that the code has gained needs a default. JSON from people is read by `from_json`, which also takes text for
dates, Decimals and UUIDs and base64 for bytes, and refuses unknown fields, because there they are typing
mistakes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from perdure.codec.converters.frame import PLAIN_SCALARS, Mismatch, converter
from perdure.errors import NotConvertible, NotPlain


def to_plain(value: Any, annotation: Any = None) -> Any:
    """The plain data that records this value. It may share parts with the value: encode it before changing
    that.

    With an annotation the value must have that type, or `NotConvertible` names the path of the part that has
    not. Without one, every value that has a plain form is taken; another raises `NotPlain`.
    """
    if type(value) is annotation and annotation in _ITSELF:
        return value
    try:
        return converter(annotation).to(value)
    except Mismatch as mismatch:
        raise mismatch.error() from None
    except RecursionError:
        raise NotPlain("$", "a value nested too deeply", "flatten it; check for a cycle") from None


def from_plain(plain: Any, annotation: Any = None) -> Any:
    """The value of type `annotation` that this plain data records; the data itself without an annotation."""
    if type(plain) is annotation and annotation in _ITSELF:
        return plain
    return _from(plain, annotation, json=False)


def from_json(plain: Any, annotation: Any = None) -> Any:
    """The value of type `annotation` that a person wrote as JSON."""
    return _from(plain, annotation, json=True)


def _from(plain: Any, annotation: Any, json: bool) -> Any:
    try:
        return converter(annotation).read(plain, json)
    except Mismatch as mismatch:
        raise mismatch.error() from None
    except RecursionError:
        raise NotConvertible("$", "data of sensible depth", "a value nested too deeply") from None


# A value whose type is its annotation is its own plain data. Not datetime: it may lack a time zone.
_ITSELF: Final = PLAIN_SCALARS - {datetime}
