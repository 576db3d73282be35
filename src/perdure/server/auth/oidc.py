"""Logins of an OIDC provider: bearer tokens, and the code flow with PKCE for browsers.

The provider is found by discovery. Its keys are fetched again after ten minutes, and for an unknown key at most once a
minute. Every wrong token gives None; why is in the log. joserfc checks signatures: this is its only use.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
import urllib.parse
import urllib.request
import warnings
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.errors import CallerError

from .claims import Known, known_by, read_rule
from .origins import LOOPBACK, name_of

log: Final = logging.getLogger("perdure.server.oidc")

ALGORITHMS: Final = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP", "Ed25519": "OKP"}
TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
TOKEN_MAX: Final = 16 * 1024
DOCUMENT_MAX: Final = 1024 * 1024
FRESH_SECONDS: Final = 600.0
AGAIN_SECONDS: Final = 60.0
FETCH_SECONDS: Final = 5.0
LEEWAY_SECONDS: Final = 30
SCOPE: Final = "openid profile email"


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`client`: the name of this server at the provider; without it browsers do not log in by it.

    `audience` of bearer tokens: else that name. `actor`: the claim that names the actor. `task_roles`: the claim with
    the roles of tasks. `grants`: rules such as `groups=ops operator order,refund*`.
    """

    issuer: str
    client: str = ""
    secret: str = ""
    audience: str = ""
    actor: str = "sub"
    task_roles: str = ""
    grants: tuple[str, ...] = ()


class CodeFlow(msgspec.Struct, frozen=True, array_like=True):
    """A login that has begun: what the browser keeps, signed, until the provider sends it back."""

    state: str
    nonce: str
    verifier: str
    path: str
    expires_at: float


class NoProvider(Exception):
    """The provider does not answer, or not as a provider does."""


class Oidc:
    def __init__(self, settings: OidcSettings, now: Callable[[], float] = time.monotonic) -> None:
        try:
            import joserfc  # noqa: F401
        except ImportError:
            raise CallerError("logins by OIDC need joserfc: pip install 'perdure[oidc]'") from None
        if not _is_safe(settings.issuer):
            raise CallerError(f"the issuer of OIDC is an https URL, found {settings.issuer!r:.200}")
        if not settings.client and not settings.audience:
            raise CallerError("OIDC needs a client, or an audience of bearer tokens: tokens for others are no logins")
        self.settings = settings
        self._rules = [read_rule(text) for text in settings.grants]
        self._now = now
        self._fetching = asyncio.Lock()
        self._fetched_at = self._tried_at = float("-inf")
        self._about: dict[str, Any] = {}
        self._keys: list[dict[str, Any]] = []

    # ---- tokens ------------------------------------------------------------------------------------------------

    async def bearer(self, token: str) -> Known | None:
        claims = await self._claims(token, self.settings.audience or self.settings.client)
        return None if claims is None else self._known(claims)

    def _known(self, claims: Mapping[str, Any]) -> Known | None:
        settings = self.settings
        return known_by(claims, self._rules, actor=settings.actor, task_roles=settings.task_roles)

    async def _claims(self, token: str, audience: str) -> dict[str, Any] | None:
        """The claims of a token that this provider has signed for us and that is valid now."""
        try:
            header = _header(token)
            key = await self._key(header)
            return None if key is None else _checked(token, key, header["alg"], self.settings.issuer, audience)
        except NoProvider as error:
            log.warning("%s", error)
        except Exception as error:  # joserfc has many kinds of errors for wrong tokens: all of them are one refusal
            log.info("a token was refused: %s: %s", type(error).__name__, error)
        return None

    async def _key(self, header: Mapping[str, Any]) -> dict[str, Any] | None:
        await self._fresh()
        found = self._find(header)
        if found is None and self._now() - self._tried_at >= AGAIN_SECONDS:
            await self._fetch()
            found = self._find(header)
        return found

    def _find(self, header: Mapping[str, Any]) -> dict[str, Any] | None:
        """The key that a token names; without a name the only one of its kind."""
        kind, kid = ALGORITHMS[header["alg"]], header.get("kid")
        fitting = [key for key in self._keys if key.get("kty") == kind and key.get("use", "sig") == "sig"]
        fitting = [key for key in fitting if key.get("alg", header["alg"]) == header["alg"]]
        if kid is not None:
            fitting = [key for key in fitting if key.get("kid") == kid]
        return fitting[0] if len(fitting) == 1 else None

    # ---- the provider ------------------------------------------------------------------------------------------

    async def _fresh(self) -> None:
        """Keys that are not too old. Old ones stay in use while the provider does not answer."""
        if self._now() - self._fetched_at < FRESH_SECONDS:
            return
        if self._now() - self._tried_at >= (AGAIN_SECONDS if self._about else FETCH_SECONDS):
            await self._fetch()
        if not self._about:
            raise NoProvider(f"{self.settings.issuer} did not answer")

    async def _fetch(self) -> None:
        asked = self._now()
        async with self._fetching:
            if self._tried_at > asked:
                return  # another request has just fetched them
            self._tried_at = self._now()
            try:
                self._about, self._keys = await asyncio.to_thread(_discover, self.settings.issuer)
            except NoProvider as error:
                if not self._about:
                    raise
                log.warning("the keys of before are used: %s", error)
                return
            self._fetched_at = self._now()

    # ---- the code flow -----------------------------------------------------------------------------------------

    async def begin(self, back: str, path: str, until: float) -> tuple[str, CodeFlow]:
        """Where the browser goes to log in, and what it keeps until it comes back."""
        await self._fresh()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        flow = CodeFlow(state, nonce, verifier, path, until)
        challenge = urlsafe_b64encode(hashlib.sha256(flow.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.settings.client,
            "redirect_uri": back,
            "scope": SCOPE,
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        target: str = self._about["authorization_endpoint"]
        return f"{target}{'&' if '?' in target else '?'}{urllib.parse.urlencode(query)}", flow

    async def finish(self, flow: CodeFlow, code: str, back: str) -> Known | None:
        """Who has logged in, by the id token that the provider gives for a code."""
        await self._fresh()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self.settings.client,
            "code_verifier": flow.verifier,
        }
        answer = await asyncio.to_thread(self._exchange, form)
        token = answer.get("id_token")
        claims = await self._claims(token, self.settings.client) if isinstance(token, str) else None
        if claims is None or not secrets.compare_digest(str(claims.get("nonce", "")), flow.nonce):
            return None
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != self.settings.client:
            return None
        return self._known(claims)

    def _exchange(self, form: dict[str, str]) -> dict[str, Any]:
        headers, settings = {"accept": "application/json"}, self.settings
        methods = self._about.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if settings.secret and "client_secret_basic" in methods:
            pair = ":".join(urllib.parse.quote(part, safe="") for part in (settings.client, settings.secret))
            headers["authorization"] = "Basic " + urlsafe_b64encode(pair.encode()).decode().translate(_PLAIN)
        elif settings.secret:
            form = {**form, "client_secret": settings.secret}
        return _fetched(self._about["token_endpoint"], urllib.parse.urlencode(form).encode(), headers)


_PLAIN: Final = str.maketrans("-_", "+/")


def _discover(issuer: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    about = _fetched(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if about.get("issuer") != issuer:
        raise NoProvider(f"{issuer} says that it is the issuer {about.get('issuer')!r:.200}")
    for name in ("jwks_uri", "authorization_endpoint", "token_endpoint"):
        if not _is_safe(about.get(name)):
            raise NoProvider(f"{name} of {issuer} is an https URL, found {about.get(name)!r:.200}")
    keys = _fetched(about["jwks_uri"]).get("keys")
    return about, [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def _fetched(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(url, body, dict(headers or {"accept": "application/json"}))
    try:
        with _OPENER.open(request, timeout=FETCH_SECONDS) as answer:
            found = json.loads(answer.read(DOCUMENT_MAX))
    except (OSError, ValueError) as error:
        raise NoProvider(f"{url} does not answer as an OIDC provider does: {error}") from None
    if not isinstance(found, dict):
        raise NoProvider(f"{url} does not answer as an OIDC provider does: no object")
    return found


def _is_safe(url: Any) -> bool:
    """Whether a URL is https; on this machine plain http will do."""
    parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
    return bool(parts.netloc) and (
        parts.scheme == "https" or (parts.scheme == "http" and name_of(parts.netloc) in LOOPBACK)
    )


def _header(token: str) -> dict[str, Any]:
    if len(token) > TOKEN_MAX:
        raise ValueError("the token is too long")
    first = token.partition(".")[0]
    header = json.loads(urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    if header.get("alg") not in ALGORITHMS:
        raise ValueError(f"the algorithm {header.get('alg')!r:.40} is not taken")
    if str(header.get("typ", "jwt")).lower() not in TYPES or "crit" in header:
        raise ValueError("the token is of another type")
    return dict(header)


def _checked(token: str, key: dict[str, Any], algorithm: str, issuer: str, audience: str) -> dict[str, Any]:
    from joserfc import jwt
    from joserfc.jwk import import_key

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joserfc warns of the name EdDSA, which providers use
        found = jwt.decode(token, import_key(key), algorithms=[algorithm])
    registry = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": audience},
        exp={"essential": True},
    )
    registry.validate(found.claims)
    return dict(found.claims)
