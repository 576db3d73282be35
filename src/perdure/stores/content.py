"""Blobs, as far as they are the same in every store: what they are named by, the check that one is what its name says,
and how many are written together."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from perdure.errors import Corrupt

GROUP_BYTES: Final = 1024 * 1024
GROUP_ROWS: Final = 500
"""What one transaction writes of blobs. Others get in between two of them; blobs need no common one, as nothing refers
to them before they are there."""


def grouped(bodies: Sequence[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for body in bodies:
        if group and (len(group) == GROUP_ROWS or size + len(body) > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(body)
        size += len(body)
    if group:
        yield group


def digest_of(body: bytes) -> bytes:
    return sha256(body).digest()


def checked(digest: bytes, body: bytes) -> bytes:
    """The body, if it is what was put. Raises `Corrupt`."""
    if digest_of(body) != digest:
        raise Corrupt(f"the {len(body)} bytes of the blob sha256:{digest.hex()} do not match its digest")
    return body


def problem_of(digest: bytes, body: bytes) -> str:
    """What `Queries.check` tells of a blob; nothing if it is whole."""
    try:
        checked(digest, body)
    except Corrupt as error:
        return f"blob: {error.reason}"
    return ""
