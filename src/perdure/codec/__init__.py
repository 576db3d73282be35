"""Canonical bytes, hashes, and Python types: the ground that every other package stands on."""

from perdure.codec.body import seal, unseal
from perdure.codec.convert import from_json, from_plain, to_plain
from perdure.codec.parameters import Parameters
from perdure.codec.signature import Signature
from perdure.codec.strict import decode_strict
from perdure.codec.values import decode, digest, encode, is_text

__all__ = [
    "Parameters",
    "Signature",
    "decode",
    "decode_strict",
    "digest",
    "encode",
    "from_json",
    "from_plain",
    "is_text",
    "seal",
    "to_plain",
    "unseal",
]
