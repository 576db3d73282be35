"""Signed receipts: with real keys, every field counts, and no text has a key in it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from perdure.codec import decode, digest, encode
from perdure.errors import BadCall, BadKey, BadSignature
from perdure.executors.signatures import CONTEXT, Envelope, Key, Keyring, sign
from perdure.kernel.receipt import ReceiptSignature

SECRET = bytes(range(7, 39))
OTHER = bytes(range(64, 96))
PRIVATE = Ed25519PrivateKey.from_private_bytes(SECRET)
RAW = serialization.Encoding.Raw
PEM = serialization.Encoding.PEM
PUBLIC_BYTES = PRIVATE.public_key().public_bytes(RAW, serialization.PublicFormat.Raw)
PUBLIC_PEM = PRIVATE.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
PRIVATE_PEM = PRIVATE.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

RECEIPT = Envelope(
    workflow="com.acme/order",
    key="o-17",
    intent=b"\x01" * 16,
    effect="payment/charge@1",
    executor="psp",
    params=digest(encode({"cents": 4200})),
    status="ok",
    payload=encode({"auth": "A1"}),
    entry=12,
    cost={"cents": 3},
    issuer="psp-889",
)

KINDS: list[Callable[[str, bytes], Key]] = [Key.hmac, lambda id, private: Key.ed25519(id, private=private)]
each_kind = pytest.mark.parametrize("make", KINDS, ids=["hmac", "ed25519"])


def reason(keyring: Keyring, envelope: Envelope, signature: ReceiptSignature | None) -> str:
    with pytest.raises(BadSignature) as refused:
        keyring.verify(envelope, signature)
    return refused.value.reason


@each_kind
def test_what_an_executor_signs_verifies(make: Callable[[str, bytes], Key]):
    keyring = Keyring({"psp": [make("a", SECRET)]})

    signature = keyring.sign(RECEIPT)

    keyring.verify(RECEIPT, signature)
    assert signature.key == "a"


def test_ed25519_is_verified_by_the_public_key_alone_which_cannot_sign():
    ours = Keyring({"psp": [Key.ed25519("a", public=PUBLIC_PEM.decode())]})

    ours.verify(RECEIPT, Keyring({"psp": [Key.ed25519("a", private=SECRET)]}).sign(RECEIPT))

    with pytest.raises(BadCall, match="no key that signs"):
        ours.sign(RECEIPT)
    with pytest.raises(BadKey, match="cannot sign"):
        Key.ed25519("a", public=PUBLIC_BYTES).sign(b"data")


CHANGES: dict[str, Any] = {
    "workflow": "com.acme/refund",
    "key": "o-18",
    "intent": b"\x02" * 16,
    "effect": "payment/charge@2",
    "params": digest(encode({"cents": 4201})),
    "status": "error",
    "payload": encode({"auth": "A2"}),
    "entry": 13,
    "cost": {"cents": 4},
    "issuer": None,
}


@each_kind
@pytest.mark.parametrize("field", CHANGES)
def test_a_receipt_with_one_field_changed_is_refused(make: Callable[[str, bytes], Key], field: str):
    keyring = Keyring({"psp": [make("a", SECRET)]})
    signature = keyring.sign(RECEIPT)

    changed = msgspec.structs.replace(RECEIPT, **{field: CHANGES[field]})

    assert reason(keyring, changed, signature) == "mismatch"


def test_every_field_is_among_the_changed_ones():
    assert {*CHANGES, "executor"} == set(Envelope.__struct_fields__)


@each_kind
def test_the_receipt_of_one_executor_is_not_that_of_another_even_with_the_same_key(make: Callable[[str, bytes], Key]):
    keyring = Keyring({"psp": [make("a", SECRET)], "bank": [make("a", SECRET)]})
    signature = keyring.sign(RECEIPT)

    assert reason(keyring, msgspec.structs.replace(RECEIPT, executor="bank"), signature) == "mismatch"


def test_no_payload_and_a_payload_of_nothing_differ():
    bodies = [msgspec.structs.replace(RECEIPT, payload=payload).canonical() for payload in (None, b"", encode(None))]

    assert len(set(bodies)) == 3


def test_what_is_signed_is_canonical_and_says_what_it_is():
    plain = decode(RECEIPT.canonical())

    assert plain["context"] == CONTEXT == "perdure/receipt@1"
    assert plain["payload"] == digest(encode({"auth": "A1"}))
    assert encode(plain) == RECEIPT.canonical()
    assert digest(RECEIPT.canonical()) == "sha256:980d8ddb4bf839791e090fd00e695c722fc91cf33d95e155814adbbe84d357a1"


@each_kind
def test_each_refusal_has_its_reason(make: Callable[[str, bytes], Key]):
    keyring = Keyring({"psp": [make("a", SECRET)]})
    good = keyring.sign(RECEIPT)

    assert reason(keyring, RECEIPT, None) == "missing"
    assert reason(keyring, RECEIPT, ReceiptSignature(good.algorithm, "b", good.value)) == "unknown key"
    assert reason(Keyring({}), RECEIPT, good) == "unknown key"
    assert reason(keyring, RECEIPT, ReceiptSignature("none", "a", b"")) == "wrong algorithm"
    assert reason(keyring, RECEIPT, ReceiptSignature(good.algorithm, "a", b"")) == "mismatch"
    assert reason(keyring, RECEIPT, ReceiptSignature(good.algorithm, "a", good.value[:-1])) == "mismatch"
    assert reason(keyring, RECEIPT, ReceiptSignature(good.algorithm, "a", good.value + b"\0")) == "mismatch"
    assert reason(Keyring({"psp": [make("a", OTHER)]}), RECEIPT, good) == "mismatch"


def test_a_refusal_says_whose_receipt_it_claims_to_be():
    with pytest.raises(BadSignature) as refused:
        Keyring({}).verify(RECEIPT, ReceiptSignature("hmac-sha256", "2026-11", b""))

    assert (refused.value.executor, refused.value.intent, refused.value.key) == ("psp", "01" * 16, "2026-11")
    assert str(refused.value) == (
        "the signature of a receipt is refused (unknown key, key '2026-11'): executor psp, intent " + "01" * 16
    )


def test_a_public_key_cannot_be_taken_for_the_secret_of_an_hmac():
    """The classic confusion: the attacker signs with what everybody knows, and says that it was the other algorithm."""
    keyring = Keyring({"psp": [Key.ed25519("a", public=PUBLIC_BYTES)]})
    forged = Keyring({"psp": [Key.hmac("a", PUBLIC_BYTES)]}).sign(RECEIPT)

    assert reason(keyring, RECEIPT, forged) == "wrong algorithm"
    assert reason(keyring, RECEIPT, ReceiptSignature("ed25519", "a", forged.value)) == "mismatch"


def test_keys_are_rotated_by_having_two_for_a_while():
    old, new = Key.hmac("2026-10", SECRET), Key.ed25519("2026-11", private=OTHER)
    before, during, after = Keyring({"psp": [old]}), Keyring({"psp": [new, old]}), Keyring({"psp": [new]})

    during.verify(RECEIPT, before.sign(RECEIPT))
    assert during.sign(RECEIPT).key == "2026-11"
    after.verify(RECEIPT, during.sign(RECEIPT))
    assert reason(after, RECEIPT, before.sign(RECEIPT)) == "unknown key"


def test_an_executor_in_the_keyring_is_known_also_when_its_last_key_is_gone():
    """Else to retire the only key would let everybody in."""
    keyring = Keyring({"psp": [Key.hmac("a", SECRET)], "bank": []})

    assert [keyring.knows(name) for name in ("psp", "bank", "nobody")] == [True, True, False]


def test_two_keys_of_one_id_are_refused():
    with pytest.raises(BadKey, match="two keys"):
        Keyring({"psp": [Key.hmac("a", SECRET), Key.hmac("a", OTHER)]})


def test_what_is_no_keyring_is_refused_with_what_to_write():
    key = Key.hmac("a", SECRET)
    for wrong in (key, [key], {"psp": key}, {"psp": [SECRET]}, {"psp": SECRET}):
        with pytest.raises(BadCall, match=r"perdure\.Keyring\(\{executor: \[key\]\}\)") as refused:
            Keyring(wrong)  # type: ignore[arg-type]
        assert SECRET.hex() not in str(refused.value) and repr(SECRET) not in str(refused.value)


@pytest.mark.parametrize("id", ["", 7, None, "x" * 129, "a\nb", "\ud800"])
def test_the_id_of_a_key_can_be_recorded(id: Any):
    """It stands in every receipt that is signed with it."""
    with pytest.raises(BadKey, match="the id of a key is a text"):
        Key.hmac(id, SECRET)


def test_what_is_signed_is_an_open_effect():
    with pytest.raises(BadCall, match=r"perdure\.sign\(effect, key, \.\.\.\)"):
        sign("00ff", Key.hmac("a", SECRET), ok=1)  # type: ignore[arg-type]


# ---- where keys come from --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SECRET.hex(), SECRET.hex().upper(), f" {SECRET.hex()}\n", "env:PSP_KEY"])
def test_a_secret_comes_from_hex_digits_or_the_environment(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PSP_KEY", SECRET.hex())

    assert Key.hmac("a", text).sign(b"x") == Key.hmac("a", SECRET).sign(b"x")


@pytest.mark.parametrize("material", [SECRET, SECRET.hex(), PRIVATE_PEM, PRIVATE_PEM.decode(), "env:PSP_KEY"])
def test_a_private_key_comes_from_bytes_hex_pem_or_the_environment(
    material: bytes | str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PSP_KEY", PRIVATE_PEM.decode())

    signature = Key.ed25519("a", private=material).sign(b"x")

    for public in (PUBLIC_BYTES, PUBLIC_BYTES.hex(), PUBLIC_PEM, PUBLIC_PEM.decode()):
        assert Key.ed25519("a", public=public).verifies(b"x", signature.value)


WRONG: list[Callable[[], Key]] = [
    lambda: Key.hmac("a", SECRET[:31]),
    lambda: Key.hmac("a", "correct horse battery staple, and some more"),
    lambda: Key.hmac("a", PRIVATE_PEM),
    lambda: Key.hmac("a", "env:NOT_SET"),
    lambda: Key.hmac("a", "env:CIRCLE"),
    lambda: Key.hmac("a", ""),
    lambda: Key.ed25519("a", private=SECRET[:31]),
    lambda: Key.ed25519("a", private=PUBLIC_PEM),
    lambda: Key.ed25519("a", public=PRIVATE_PEM),
    lambda: Key.ed25519("a", public=b""),
    lambda: Key.ed25519("a", private=other_pem()),
    lambda: Key.ed25519("a", private=PRIVATE_PEM[:60]),
]


def other_pem() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@pytest.mark.parametrize("make", WRONG)
def test_what_is_no_key_is_refused_without_showing_it(make: Callable[[], Key], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CIRCLE", "env:CIRCLE")

    with pytest.raises(BadKey) as refused:
        make()

    text = "".join(traceback.format_exception(refused.value))
    assert refused.value.key == "a"
    assert not any(part in text.splitlines()[-1] for part in ("horse", SECRET[:8].hex(), PRIVATE_PEM.decode()[30:50]))


def test_either_half_of_a_pair_is_given_and_not_both():
    with pytest.raises(BadCall):
        Key.ed25519("a")
    with pytest.raises(BadCall):
        Key.ed25519("a", private=SECRET, public=PUBLIC_BYTES)


@each_kind
def test_no_text_has_a_key_in_it(make: Callable[[str, bytes], Key], caplog: pytest.LogCaptureFixture):
    key = make("a", SECRET)
    keyring = Keyring({"psp": [key]})
    with pytest.raises(BadSignature) as refused:
        keyring.verify(RECEIPT, ReceiptSignature(key.algorithm, "a", b"forged"))
    logging.getLogger("test").error("%r %r %s", key, keyring, refused.value, exc_info=refused.value)

    seen = [repr(key), str(keyring), repr(refused.value), str(refused.value), caplog.text]
    assert [repr(key), repr(keyring)] == [f"<Key a {key.algorithm}>", "<Keyring psp: a>"]
    for form in (SECRET.hex(), repr(SECRET)[2:-1], SECRET.decode("latin-1")):
        assert not any(form in text for text in seen)
    assert not any(isinstance(getattr(key, name), bytes) for name in Key.__slots__)
