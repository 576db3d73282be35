"""What blobs are named by, and the check that a blob is what its name says: the same in every store."""

from hashlib import sha256

from perdure.errors import Corrupt


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
