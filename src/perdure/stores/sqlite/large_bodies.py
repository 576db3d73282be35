"""Large bodies of the journal stand once, by content, beside it. Readers of the store never see the difference.

    reference = zero byte + blake2b-256 of the body

No sealed body begins with a zero byte (`codec.body`), so a row says by itself which of the two it has. A
damaged reference names no body, and a damaged body fails its own checksum: both are `Corrupt`. They stay as long as
the journal does: what may be deleted are blobs, see `blobs.py`.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import apsw

from perdure.errors import Corrupt
from perdure.kernel.batch import JournalRow

from .statements import SQL

SIZE_MIN: Final = 64 * 1024
_REFERENCE_SIZE: Final = 33


def move_out(connection: apsw.Connection, rows: Iterable[JournalRow]) -> list[JournalRow]:
    """The rows as they are stored; the bodies that are too large for a row are written beside it."""
    stored = []
    for row in rows:
        if len(row.body) > SIZE_MIN:
            digest = blake2b(row.body, digest_size=32).digest()
            connection.execute(SQL.insert_large_body, (digest, row.body))
            row = row._replace(body=b"\0" + digest)  # noqa: PLW2901
        stored.append(row)
    return stored


def is_reference(body: bytes) -> bool:
    return len(body) == _REFERENCE_SIZE and body[0] == 0


def resolve(connection: apsw.Connection, body: bytes) -> bytes:
    if not is_reference(body):
        return body
    found = connection.execute(SQL.large_body, (body[1:],)).fetchone()
    if found is None:
        raise Corrupt(f"there is no large body {body[1:].hex()}")
    return bytes(found[0])
