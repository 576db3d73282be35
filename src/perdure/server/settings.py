"""Settings of a server, and the secret that signs its sessions and cursors."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from perdure.errors import CallerError

from .auth.oidc import Oidc, OidcSettings
from .redacting import read_pointer

SECRET: Final = "PERDURE_SERVER_SECRET"
SECRET_MIN: Final = 16


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts`: names that a Host header may have; None: any, where a host framework has checked it.

    `secure`: the browser speaks TLS to us, or to a proxy in front of us. `database`: what people call the database.
    `proxied`: a proxy of ours is in front, and the last address of X-Forwarded-For is the one that it saw.
    `redact`: pointers to fields of recorded values that are not shown.
    """

    hosts: tuple[str, ...] | None = None
    secret: str | None = None
    secure: bool = False
    read_only: bool = False
    ui: bool = True
    database: str = "this database"
    cookie: str = "perdure"
    connect: bool = False
    oidc: OidcSettings | None = None
    redact: tuple[str, ...] = ()
    proxied: bool = False

    @property
    def cookie_name(self) -> str:
        return f"__Host-{self.cookie}" if self.secure else self.cookie


def checked(settings: Settings) -> Settings:
    """The same settings, if a server can begin with them."""
    for text in settings.redact:
        read_pointer(text)
    if settings.oidc is not None:
        Oidc(settings.oidc)
    secret_of(settings)
    return settings


def secret_of(settings: Settings) -> bytes:
    """From the settings, the environment, or a file of this user that is made with the first use."""
    given = settings.secret if settings.secret is not None else os.environ.get(SECRET)
    if given is not None:
        if len(given) < SECRET_MIN:
            raise CallerError(f"{SECRET} has {len(given)} characters; it needs at least {SECRET_MIN}")
        return given.encode()
    base = os.environ.get("XDG_STATE_HOME")
    path = (Path(base) if base else Path.home() / ".local" / "state") / "perdure" / "server.secret"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = path.with_name(f"{path.name}.{os.getpid()}")  # another server may read it at once: it is never in part
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secrets.token_hex(32).encode())
        with suppress(FileExistsError):
            os.link(whole, path)
        whole.unlink()
    if path.stat().st_mode & 0o077:
        raise CallerError(f"{path} is no secret, for others may open it: delete it, and another one is made")
    kept = path.read_bytes()
    if len(kept) < SECRET_MIN:
        raise CallerError(f"{path} has {len(kept)} characters and is no secret: delete it, and another one is made")
    return kept
