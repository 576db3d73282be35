"""Signed receipts: how an executor in another process proves that a receipt is its own.

What is signed is the canonical form of an `Envelope`: whose intent it answers, who answers, and what. The side that
admits a receipt builds the envelope from what it knows itself (the intent's own origin, effect and hash of the
parameters), so a receipt that claims anything else does not verify.

A `Keyring` has the keys of each executor, with ids: during a rotation an executor has two. HMAC-SHA256 is for two sides
that trust each other with one secret; with Ed25519 the admitting side holds nothing that can sign. No key, nor a part
of one, is in any text that this module makes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from perdure.codec import digest, encode
from perdure.codec.strict import decode_strict
from perdure.errors import BadCall, BadKey, BadSignature, NotInstalled, PerdureError
from perdure.kernel.events import Address
from perdure.kernel.outside import Outside, Verify, payload
from perdure.kernel.receipt import Receipt, ReceiptSignature, ReceiptStatus
from perdure.ports.outside import NOTHING, Ending, OpenEffect, answer

Algorithm = Literal["hmac-sha256", "ed25519"]

HMAC_MIN: Final = 32
"""Bytes of a secret: as many as the hash has."""

CONTEXT: Final = "perdure/receipt@1"
"""In front of what is signed, so that no signature made for anything else fits."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt and what it is an answer to. `params` is a hash; `payload` is canonical bytes, signed by their hash."""

    workflow: str
    key: str
    intent: bytes
    effect: str
    executor: str
    params: str
    status: ReceiptStatus
    payload: bytes | None = None
    entry: int
    cost: Any = None
    issuer: str | None = None

    def canonical(self) -> bytes:
        """The bytes that are signed."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        payload = None if self.payload is None else digest(self.payload)
        return encode({**fields, "payload": payload, "context": CONTEXT})


def envelope(outside: Outside, workflow: str, key: str, intent: bytes, receipt: Receipt) -> Envelope:
    """What a receipt is an answer to, by what the admitting side knows; and the answer."""
    assert receipt.by is not None, "who answers from outside says who it is"
    return Envelope(
        workflow=workflow,
        key=key,
        intent=intent,
        effect=outside.effect,
        executor=receipt.by.executor,
        params=digest(encode(outside.params)),
        status=receipt.status,
        payload=payload(receipt),
        entry=outside.entry,
        cost=None if receipt.by.cost is None else decode_strict(receipt.by.cost),
        issuer=outside.issuer or None,
    )


def sign(
    effect: OpenEffect,
    key: Key,
    *,
    ok: Any = NOTHING,
    error: str | None = None,
    status: Ending | None = None,
    cost: Any = None,
) -> ReceiptSignature:
    """The signature of an answer to an effect. Give the same answer, and the signature, to `client.answer`."""
    if not isinstance(effect, OpenEffect) or not isinstance(key, Key):  # type: ignore[redundant-expr]
        raise BadCall("perdure.sign(effect, key, ...) takes an effect as open_effects() lists it, and a perdure.Key")
    receipt = answer(effect.executor, ok=ok, error=error, status=status, cost=cost)
    asked = Outside(effect.effect, effect.executor, effect.params, issuer=effect.issuer, entry=effect.entry)
    signed = envelope(asked, effect.workflow, effect.key, bytes.fromhex(effect.intent), receipt)
    return key.sign(signed.canonical())


_KEYRING: Final = "a keyring has a list of keys for each executor, perdure.Keyring({executor: [key]})"


class Key:
    """One key of an executor. Made by `Key.hmac` and `Key.ed25519`.

    The material is bytes, or a text: hex digits, PEM (for Ed25519), or `env:NAME` for an environment variable that has
    one of these.
    """

    # The material is in these two functions only: nothing that looks at attributes finds it.
    __slots__ = ("_sign", "_verify", "algorithm", "id")

    def __init__(
        self,
        id: str,
        algorithm: Algorithm,
        sign: Callable[[bytes], bytes] | None,
        verify: Callable[[bytes, bytes], bool],
    ) -> None:
        if not isinstance(id, str) or not 0 < len(id) <= 128 or not id.isprintable():  # type: ignore[redundant-expr]
            raise BadKey(ascii(id)[:80], "the id of a key is a text of 1 to 128 printable characters")
        self.id = id
        self.algorithm: Algorithm = algorithm
        self._sign = sign
        self._verify = verify

    @classmethod
    def hmac(cls, id: str, secret: bytes | str) -> Key:
        """A secret of at least 32 bytes that both sides have."""
        material = _material(id, secret)
        if material.startswith(_PEM):
            raise BadKey(id, "an HMAC key is bytes or hex digits, and PEM is neither")
        if len(material) < HMAC_MIN:
            raise BadKey(id, f"an HMAC key has at least {HMAC_MIN} bytes, this one {len(material)}")

        def sign(data: bytes) -> bytes:
            return hmac.digest(material, data, hashlib.sha256)

        return cls(id, "hmac-sha256", sign, lambda data, value: hmac.compare_digest(sign(data), value))

    @classmethod
    def ed25519(cls, id: str, *, private: bytes | str | None = None, public: bytes | str | None = None) -> Key:
        """The private key signs and verifies, the public one verifies. Give one of them: PEM, or its 32 bytes."""
        try:
            from cryptography.exceptions import InvalidSignature
        except ImportError:
            raise NotInstalled("a key for Ed25519", "crypto") from None
        if (private is None) == (public is None):
            raise BadCall("Key.ed25519 takes either private= or public=")
        signer = None if private is None else _private(id, _material(id, private))
        verifier = _public(id, _material(id, public or b"")) if signer is None else signer.public_key()

        def verify(data: bytes, value: bytes) -> bool:
            try:
                verifier.verify(value, data)
            except InvalidSignature:
                return False
            return True

        return cls(id, "ed25519", None if signer is None else signer.sign, verify)

    @property
    def signs(self) -> bool:
        return self._sign is not None

    def sign(self, data: bytes) -> ReceiptSignature:
        if self._sign is None:
            raise BadKey(self.id, "is a public key, which verifies and cannot sign")
        return ReceiptSignature(self.algorithm, self.id, self._sign(data))

    def verifies(self, data: bytes, value: bytes) -> bool:
        return self._verify(data, value)

    def __repr__(self) -> str:
        return f"<Key {self.id} {self.algorithm}>"


class Keyring:
    """The keys of each executor. The first that can sign does; all verify. To retire a key, leave it out."""

    def __init__(self, keys: Mapping[str, Iterable[Key]]) -> None:
        self._keys: dict[str, dict[str, Key]] = {}
        if not isinstance(keys, Mapping):
            raise BadCall(f"{_KEYRING}, found {type(keys).__name__}")
        for executor, given in keys.items():
            own = self._keys[executor] = {}
            for key in _listed(executor, given):
                if key.id in own:
                    raise BadKey(key.id, f"executor {executor} has two keys of this id")
                own[key.id] = key

    def knows(self, executor: str) -> bool:
        """Whether this executor is in the keyring: then its receipts are to be signed, even if its last key is gone."""
        return executor in self._keys

    def sign(self, envelope: Envelope) -> ReceiptSignature:
        for key in self._keys.get(envelope.executor, {}).values():
            if key.signs:
                return key.sign(envelope.canonical())
        raise BadCall(f"the keyring has no key that signs for the executor {envelope.executor}")

    def verify(self, envelope: Envelope, signature: ReceiptSignature | None) -> None:
        """Return if the executor signed this; raise `BadSignature` if not."""
        if signature is None:
            raise self._refused("missing", envelope)
        key = self._keys.get(envelope.executor, {}).get(signature.key)
        if key is None:
            raise self._refused("unknown key", envelope, signature.key)
        if signature.algorithm != key.algorithm:  # the key says which it is for, never the sender
            raise self._refused("wrong algorithm", envelope, signature.key)
        if not key.verifies(envelope.canonical(), signature.value):
            raise self._refused("mismatch", envelope, signature.key)

    @property
    def judge(self) -> Verify:
        """For an engine: says what is wrong with the signature of a receipt."""

        def verify(address: Address, intent: bytes, outside: Outside, receipt: Receipt) -> str:
            if receipt.by is None or not self.knows(outside.executor):
                return ""
            try:
                self.verify(envelope(outside, address.workflow, address.key, intent, receipt), receipt.by.signature)
            except BadSignature as error:
                return str(error)
            except PerdureError as error:  # a receipt from outside may have any bytes, and errors of any depth
                return f"it cannot be read, so nobody signed it: {error}"
            return ""

        return verify

    @staticmethod
    def _refused(reason: str, envelope: Envelope, key: str = "") -> BadSignature:
        return BadSignature(reason, envelope.executor, envelope.intent.hex(), key)

    def __repr__(self) -> str:
        owners = ", ".join(f"{executor}: {' '.join(keys)}" for executor, keys in self._keys.items())
        return f"<Keyring {owners}>"


def _listed(executor: str, given: Any) -> list[Key]:
    listed = isinstance(given, Iterable)
    found = list(given) if listed else [given]
    for key in found:
        if not listed or not isinstance(key, Key):
            raise BadCall(f"{_KEYRING}, found {type(key).__name__} for {executor!a:.80}")
    return found


# ---- material --------------------------------------------------------------------------------------------------
# Whatever is wrong with it, the errors of others are not chained: they may quote what they could not read.

_PEM: Final = b"-----BEGIN "
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")


def _material(id: str, given: bytes | str) -> bytes:
    if isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        raise BadKey(id, f"the material of a key is bytes or a text, found {type(given).__name__}")
    if given.startswith("env:"):
        name = given[4:]
        found = os.environ.get(name)
        if found is None or found.startswith("env:"):
            raise BadKey(
                id, f"the environment variable {name} is not set" if found is None else f"{name} names another"
            )
        given = found
    text = given.strip()
    if text.startswith(_PEM.decode()):
        return text.encode()
    if not _HEX.fullmatch(text):
        raise BadKey(id, "the text of a key is hex digits, PEM, or env:NAME, and this is none of them")
    return bytes.fromhex(text)


def _private(id: str, material: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if material.startswith(_PEM):
            found = load_pem_private_key(material, None)
        else:
            found = Ed25519PrivateKey.from_private_bytes(material)
    except Exception:
        raise BadKey(id, "is not a private key for Ed25519: PEM without a password, or 32 bytes") from None
    if not isinstance(found, Ed25519PrivateKey):
        raise BadKey(id, "is a private key for another algorithm than Ed25519")
    return found


def _public(id: str, material: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = (
            load_pem_public_key(material) if material.startswith(_PEM) else Ed25519PublicKey.from_public_bytes(material)
        )
    except Exception:
        raise BadKey(id, "is not a public key for Ed25519: PEM, or 32 bytes") from None
    if not isinstance(found, Ed25519PublicKey):
        raise BadKey(id, "is a public key for another algorithm than Ed25519")
    return found
