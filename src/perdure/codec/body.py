"""Everything stored carries its format and its checksum.

    body = format (1 byte) + payload + crc32 of both (4 bytes, big-endian)

A flipped bit, a cut tail or an empty body is `Corrupt` on read, never a wrong value; a body of a later format
is `NewerFormat`, never a guess. The checksum is looked at first: a damaged format byte must not say
"upgrade".
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

from perdure.errors import Corrupt, NewerFormat

FORMAT: Final = 1

_FORMAT_BYTE: Final = bytes((FORMAT,))
_FORMAT_CRC: Final = crc32(_FORMAT_BYTE)
_checksum_at: Final = Struct(">I").unpack_from


def seal(payload: bytes) -> bytes:
    """The stored form of a payload."""
    return _FORMAT_BYTE + payload + crc32(payload, _FORMAT_CRC).to_bytes(4, "big")


def unseal(data: bytes) -> bytes:
    """The payload of a stored body."""
    payload = data[1:-4]
    if len(data) > 4 and data[0] == FORMAT and crc32(payload, _FORMAT_CRC) == _checksum_at(data, -4)[0]:
        return payload
    raise _refusal(data)


def _refusal(data: bytes) -> Exception:
    if len(data) < 5:
        return Corrupt(f"{len(data)} bytes are too few for any body")
    if crc32(data[:-4]) != _checksum_at(data, -4)[0]:
        return Corrupt(f"the checksum of {len(data)} bytes does not match")
    return NewerFormat(data[0], FORMAT) if data[0] > FORMAT else Corrupt(f"there is no format {data[0]}")
