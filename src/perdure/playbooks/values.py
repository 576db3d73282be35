"""Values that are kept elsewhere, and values beside which something stands: references and secrets in parameters.

A reference is an object of its own type. Data of users with `$ref` in it is never taken for one: in what is recorded, a
reference and a secret stand beside the plain data, by their path, and not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.codec import encode
from perdure.errors import NotConvertible
from perdure.expressions import NeedsRead, Ref, Secret, SecretText

Path = tuple[str | int, ...]


class Blob(msgspec.Struct, frozen=True):
    """How blobs are named in what is recorded: garbage collection finds a map with these two keys."""

    hash: str
    size: int


class Kept(msgspec.Struct, frozen=True):
    """What a receipt says of a large value that was stored."""

    blob: Blob
    length: int | None = None
    content_type: str = ""
    preview: str = ""
    fields: dict[str, Any] = {}
    wrapped: bool = False  # v10: `data`, `body` and `result` of a step mean the value itself

    @property
    def digest(self) -> str:
        return self.blob.hash


def kept_of(value: Any) -> Kept:
    return msgspec.convert(value, Kept)


class Stored(Ref):
    """A large value. `cache` holds the parts that were read, by digest and path."""

    def __init__(self, kept: Kept, cache: dict[tuple[str, Path], Any] | None = None) -> None:
        super().__init__(kept.length)
        self.kept = kept
        self.cache = {} if cache is None else cache

    def read(self, path: Path) -> Any:
        if self.kept.wrapped and path[:1] in (("data",), ("body",), ("result",)):
            path = path[1:]
        found = self.cache.get((self.kept.digest, path), self)
        if isinstance(found, Fault):
            raise found
        if found is not self:
            return found
        for name, value in self.kept.fields.items():
            if path == tuple(name.split(".")):
                return value
        raise NeedsRead(self, path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and other.kept.digest == self.kept.digest

    def __hash__(self) -> int:
        return hash(self.kept.digest)

    def shown(self) -> dict[str, Any]:
        """For people: summaries and `show`."""
        about = {
            name: item for name in ("length", "content_type", "preview", "fields") if (item := getattr(self.kept, name))
        }
        return {"$ref": self.kept.digest, "bytes": self.kept.blob.size, **about}


class Beside(msgspec.Struct):
    """What stands beside plain data: the paths of references and of secrets."""

    refs: list[tuple[list[str | int], dict[str, Any]]] = []
    secrets: list[tuple[list[str | int], list[Any]]] = []


def part(value: Any, beside: Beside, path: Path = ()) -> Any:
    """The value with null in the places of references and secrets, which are put beside it."""
    if isinstance(value, dict):
        return {key: part(item, beside, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [part(item, beside, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, Stored):
        beside.refs.append((list(path), msgspec.to_builtins(value.kept)))
        return None
    if isinstance(value, SecretText):
        texts = [each if isinstance(each, str) else {"secret": each.name} for each in value.parts]
        beside.secrets.append((list(path), texts))
        return None
    return value


def secret_text(parts: list[Any]) -> SecretText:
    return SecretText(tuple(each if isinstance(each, str) else Secret(each["secret"]) for each in parts))


def rejoin(value: Any, beside: list[Any], make: Callable[[Any], Any]) -> Any:
    """The value with what stands beside it in its places again."""
    for path, given in beside:
        made = make(given)
        if not path:
            return made
        at = value
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = made
    return value


def whole(value: Any) -> Any:
    """Plain data with stored values in it as they are. Raises `NeedsRead` until they were read."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, Stored):
        value = value.read(())
    if isinstance(value, Stored):
        raise Fault("limit_exceeded", f"a stored value of {value.kept.blob.size:,} bytes is too large to be read")
    if isinstance(value, SecretText):
        raise Fault("template_error", "no secret leaves an instance: the actions of a child name their own")
    return value


def stored_bytes(value: Any) -> int:
    """How many bytes the stored values in plain data have."""
    if isinstance(value, Stored):
        return value.kept.blob.size
    return sum(
        map(stored_bytes, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    )


def refuse_secrets(value: Any) -> None:
    """Raise `Fault` if there is a secret anywhere in the value."""
    if isinstance(value, SecretText):
        raise Fault(
            "template_error", "a secret stands where its value would be kept; secrets are for the fields of tools"
        )
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        refuse_secrets(item)


def shown(value: Any) -> Any:
    """Plain data for people: references as maps."""
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, Stored):
        return value.shown()
    return value


def is_large(value: Any, limit: int) -> bool:
    """Whether a value is larger than a number of bytes, by a cheap estimate that stops at the limit."""
    ahead = [value]
    while ahead:
        item = ahead.pop()
        if isinstance(item, str | bytes):
            limit -= len(item)
        elif isinstance(item, dict):
            limit -= sum(map(len, map(str, item))) + 2 * len(item)
            ahead.extend(item.values())
        elif isinstance(item, list):
            limit -= len(item)
            ahead.extend(item)
        else:
            limit -= 1
        if limit < 0:
            return True
    return False


def canonical(value: Any, what: str) -> bytes:
    try:
        return encode(value)
    except NotConvertible as error:
        raise Fault("template_error", f"{what}: {error}") from None


class Fault(Exception):
    """A run, an action or a token fails: an error of the playbook or of its data, and not of the machine."""

    def __init__(self, kind: str, message: str, *, retryable: bool = False, details: Any = None) -> None:
        super().__init__(message)
        self.error = error(kind, message, retryable=retryable, details=details)


class NeedsPut(Exception):
    """A large value must be stored before the evaluation can go on."""

    def __init__(self, data: bytes, digest: str) -> None:
        super().__init__(digest)
        self.data = data
        self.digest = digest


def error(
    kind: str, message: str, *, retryable: bool = False, status: Any = None, details: Any = None
) -> dict[str, Any]:
    """An error as expressions see it."""
    return {"kind": kind, "message": message, "retryable": retryable, "status": status, "details": details}
