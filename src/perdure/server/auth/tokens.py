"""Secrets of people and programs: API keys, login links, signed sessions and cursors. Nothing here does I/O.

A key is `pdk_ID_SECRET`. It is shown once and kept as SHA-256. A session is signed, not kept: what ends it early is in
`perdure.access`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from perdure.access.model import Grant

PREFIX: Final = "pdk_"
SESSION_HOURS: Final = 12
_KEY: Final = re.compile(r"pdk_([0-9a-z]{12})_([A-Za-z0-9_-]{43})\Z")
_NOTHING: Final = hashlib.sha256(b"nothing").hexdigest()


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def new_key(event: str = "") -> tuple[str, str, str]:
    """The id, the whole key and the digest of its secret. Keys of one event have one id."""
    id = hashlib.blake2b(event.encode(), digest_size=6).hexdigest() if event else secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    return id, f"{PREFIX}{id}_{secret}", digest_of(secret)


def parse_key(text: str) -> tuple[str, str] | None:
    """The id and the digest of what looks like a key."""
    found = _KEY.match(text)
    return None if found is None else (found[1], digest_of(found[2]))


def same(known: str | None, given: str) -> bool:
    """Compare digests. An unknown id takes the time of a known one."""
    return hmac.compare_digest(known if known is not None else _NOTHING, given) and known is not None


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What a cookie says. `admin`: the login link came from the database's owner, who may do all.

    `grants` and `roles` are those that an OIDC provider gives.
    """

    id: str
    actor: str
    expires_at: datetime
    admin: bool = False
    grants: tuple[Grant, ...] = ()
    roles: tuple[str, ...] = ()


class Signer:
    """Signs and checks small texts. `use` keeps a cursor from being taken for a session."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"perdure.server\x00" + secret).digest()

    def sign(self, use: str, body: bytes) -> str:
        return _text(self._mark(use, body)[:16] + body)

    def read(self, use: str, text: str) -> bytes | None:
        """What was signed; None: it was not signed here for this use."""
        try:
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        mark, body = data[:16], data[16:]
        return body if hmac.compare_digest(mark, self._mark(use, body)[:16]) else None

    def _mark(self, use: str, body: bytes) -> bytes:
        return hmac.digest(self._secret, use.encode() + b"\x00" + body, "sha256")

    def session(
        self,
        actor: str,
        now: datetime,
        *,
        admin: bool = False,
        grants: tuple[Grant, ...] = (),
        roles: tuple[str, ...] = (),
    ) -> tuple[Session, str]:
        session = Session(secrets.token_hex(8), actor, now + timedelta(hours=SESSION_HOURS), admin, grants, roles)
        return session, self.sign("session", msgspec.msgpack.encode(session))

    def read_session(self, text: str, now: datetime) -> Session | None:
        body = self.read("session", text)
        if body is None:
            return None
        try:
            session = msgspec.msgpack.decode(body, type=Session)
        except msgspec.MsgspecError:
            return None
        return session if now < session.expires_at.astimezone(UTC) else None


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
