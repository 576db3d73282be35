"""The caller is at fault: the value that came has to change."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from .base import CallerError, Problem


class NotPlain(CallerError):
    """This value has no recorded form.

    Recorded values are plain data: None, bool, int, float, str, bytes, list, dict, datetime, date, timedelta,
    Decimal and UUID. Convert the value at `path` to one of them, or annotate it with a type that perdure converts
    (dataclass, TypedDict, NamedTuple, Enum, set, msgspec struct, pydantic model).
    """

    def __init__(self, path: str, found: str, advice: str) -> None:
        super().__init__(path, found, advice)
        self.path = path
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.path}: {self.found} cannot be recorded; {self.advice}"


class NotConvertible(CallerError):
    """This value does not have the type that its receiver is annotated with.

    `path` names the field, `expected` the annotation, `found` what came instead, `where` the workflow or function
    that receives it. `problems` has every field that does not fit, each with its JSON pointer. Nothing was recorded:
    correct the value and call again.
    """

    def __init__(self, path: str, expected: str, found: str, where: str = "", problems: Iterable[Problem] = ()) -> None:
        self.path = path
        self.expected = expected
        self.found = found
        self.where = where
        self.problems = tuple(problems) or (Problem(pointer_of(path), f"expected {expected}, found {found}"),)
        super().__init__(path, expected, found, where, self.problems)

    def of(self, where: str) -> NotConvertible:
        """This error, with what the value is for."""
        return NotConvertible(self.path, self.expected, self.found, where, self.problems)

    def beside(self, others: Iterable[NotConvertible]) -> NotConvertible:
        """This error, with the problems of others about the same value."""
        problems = [*self.problems, *(problem for other in others for problem in other.problems)]
        return NotConvertible(self.path, self.expected, self.found, self.where, problems)

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        return f"{prefix}{self.path}: expected {self.expected}, found {self.found}"


_PART: Final = re.compile(r"\.([^.\[]+)|\[(?:'((?:[^'\\]|\\.)*)'|([^\]]*))\]")


def pointer_of(path: str) -> str:
    """The JSON pointer of a place that is written as `$.items[0]['unit price']`."""
    parts = [first or second or third for first, second, third in _PART.findall(path)]
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


class NotCanonical(CallerError):
    """These bytes are not the one canonical encoding of a value.

    `reason` says which rule they break, `offset` where. Values from elsewhere must be decoded by their own rules
    and encoded again with `perdure.codec.encode`.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset

    def __str__(self) -> str:
        return f"byte {self.offset}: {self.reason}"


class SchemaMismatch(CallerError):
    """This value is not of the type that its schema says.

    `path` names the part of the value, `expected` its type, `found` what is there instead, `where` the name of the
    schema if it has one. The `hint` says what to write. Nothing was recorded: correct the value and send it again.
    """

    def __init__(self, path: str, expected: str, found: str, hint: str = "", where: str = "") -> None:
        super().__init__(path, expected, found, hint, where)
        self.path = path
        self.expected = expected
        self.found = found
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{prefix}{self.path}: expected {self.expected}, found {self.found}{hint}"


class KeyMismatch(CallerError):
    """An event was sent to a key, and its own fields name another one.

    Nothing was recorded. Leave the key out, or send the event that belongs to it.
    """

    def __init__(self, event: str, given: str, found: str) -> None:
        super().__init__(event, given, found)
        self.event = event
        self.given = given
        self.found = found

    def __str__(self) -> str:
        return f"{self.event} was sent to the key {self.given!r}, and its fields say {self.found!r}"


class TooLarge(CallerError):
    """This value is larger than the limit.

    Put large data where it belongs (a file, an object store) and record a reference to it, or raise the limit.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.what = what
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.what} has {self.size:,} bytes, more than the limit of {self.limit:,}; record a reference instead"


class BadRequest(CallerError):
    """This is not a request that can be made. Nothing was sent.

    `part` is what is wrong with it (method, url, header, body), `reason` says why. The text never has the value of a
    header, nor the query of a url: they may be secrets.
    """

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(part, reason)
        self.part = part
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.part}: {self.reason}"


class AddressRefused(CallerError):
    """A request would have gone to an address that is not public. Nothing was sent there.

    `host` is what the url or the redirect names, `address` where it leads, `rule` why it is refused. A request must
    not reach what only this machine may reach: its own services, its network, the keys that its platform
    hands out. If it is meant, the operator allows the address, its network, or the host.
    """

    def __init__(self, host: str, address: str, rule: str) -> None:
        super().__init__(host, address, rule)
        self.host = host
        self.address = address
        self.rule = rule

    def __str__(self) -> str:
        leads = "" if self.host == self.address else f" leads to {self.address}, which"
        either = f'"{self.host}"' if self.host == self.address else f'"{self.host}" or "{self.address}"'
        return f"{self.host}{leads} is refused ({self.rule}); if it is meant, the operator allows it: {either}"


class BadKey(CallerError):
    """This is not a key that can sign or verify. `key` is its id; the text never has any of the key itself."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"key {self.key}: {self.reason}"


class SecretChanged(CallerError):
    """The secret is not the one that was meant: its digest is another than the reference has. Nothing was done.

    Put the old value back, or make a new reference, with the digest of the new value or without one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the secret {self.name!a} is not the one that its reference names: another digest"


class Misfit(CallerError):
    """This data does not fit its JSON Schema.

    `problems` has everything that is wrong, each with the JSON pointer of its place. Nothing was recorded: correct the
    data and call again.
    """

    def __init__(self, problems: Iterable[Problem], what: str = "") -> None:
        self.problems = tuple(problems)
        self.what = what
        super().__init__(self.problems, what)

    def __str__(self) -> str:
        prefix = f"{self.what}: " if self.what else ""
        return prefix + "; ".join(f"{each.where or '/'}: {each.text}" for each in self.problems)


class BadAnswer(Misfit):
    """The answer does not fit the form of the task.

    `problems` has everything that is wrong, each with the JSON pointer of its field. The task is as it was: correct
    the answer and complete the task again. `engine.tasks.get(id).form` is the form.
    """


class NotAHistory(CallerError):
    """This file is not an exported history, or none that this perdure can read.

    `perdure export ID -o FILE` writes one, and so does `handle.export(FILE)` in a world.
    """
