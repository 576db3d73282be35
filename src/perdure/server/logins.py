"""How people log in and out: by a link that works once, or at an OIDC provider. A login is a signed session cookie."""

from __future__ import annotations

import html
import logging
import time
from datetime import UTC, datetime
from typing import Final

import msgspec

from perdure.access.model import Login
from perdure.kernel.asked import Actor

from . import limits
from .accesses import Accesses
from .auth.oidc import CodeFlow, NoProvider, Oidc
from .auth.origins import may_write
from .auth.tokens import SESSION_HOURS
from .http import Answer, Request, json_answer
from .problems import HttpProblem
from .reading import read_json, read_query
from .settings import Settings
from .static import PUBLIC, Static

log: Final = logging.getLogger("perdure.server")

FLOW_SECONDS: Final = 600
COOKIE_MAX: Final = 3800
"""Browsers drop cookies of more than 4096 bytes."""

NOT_LOGGED_IN: Final = "You are not logged in."
NO_RIGHTS: Final = "You are known, and have no rights here. Ask an admin for a grant."
FAILED: Final = "The login did not work. Try again."
NOT_THERE: Final = "The login service does not answer. Try again later."


class Logins:
    """`failed` counts the logins that failed from an address."""

    def __init__(self, settings: Settings, accesses: Accesses, static: Static, oidc: Oidc | None) -> None:
        self._settings, self._accesses, self._static = settings, accesses, static
        self._oidc = oidc if oidc is not None and oidc.settings.client else None
        self.failed = limits.failed_logins()

    async def answer(self, request: Request) -> Answer | None:
        """What lies below /login; None: the answer that strangers get everywhere."""
        name = request.path.removeprefix("/login").strip("/")
        if request.method in ("GET", "HEAD") and self._settings.ui:
            if self._oidc is not None and request.method == "GET" and name in ("oidc", "oidc/back"):
                self._refuse_flood(request)
                return await (self._begin(request) if name == "oidc" else self._back(request, self._oidc))
            found = self._static.file(request, name) if name in PUBLIC else None
            if found is not None:
                return Answer(200, found.body, found.media, [("cache-control", "no-cache"), *found.headers[1:]])
            return self.page(request, 200) if not name else None
        return await self._by_link(request) if request.method == "POST" and not name else None

    def page(self, request: Request, status: int, say: str = NOT_LOGGED_IN, go: str = "") -> Answer:
        """The login page. `go`: where a browser that has just logged in goes on."""
        hidden = "" if self._oidc is not None else "hidden"
        return self._static.page(request, "login.html", status, say=say, go=html.escape(go), oidc=hidden)

    def _refuse_flood(self, request: Request) -> None:
        if self.failed.is_empty(request.address, time.monotonic()):
            raise HttpProblem(429, "too-many-logins", "too many logins failed from this address", retry_after=12)

    def _count_failure(self, request: Request) -> None:
        self.failed.take(request.address, time.monotonic())

    # ---- by a link ---------------------------------------------------------------------------------------------

    async def _by_link(self, request: Request) -> Answer | None:
        if not may_write("POST", request.headers, request.host):
            raise HttpProblem(403, "foreign-origin", "a login comes from the pages of this server alone")
        self._refuse_flood(request)
        said = read_json(await request.body(limits.BODY_MAX))
        token = said.get("token") if isinstance(said, dict) else None
        used = await self._accesses.use_link(token) if isinstance(token, str) and 0 < len(token) < 200 else None
        if used is None:
            self._count_failure(request)
            return None
        actor, admin = used
        _, cookie = self._accesses.signer.session(actor, datetime.now(UTC), admin=admin)
        self._accesses.note("login", Actor(actor), way="link", address=request.address)
        return json_answer({"actor": actor}, headers=[self._session(cookie)])

    # ---- at a provider -----------------------------------------------------------------------------------------

    async def _begin(self, request: Request) -> Answer:
        assert self._oidc is not None
        path = next(iter(read_query(request.query).get("to", [])), "")
        try:
            target, flow = await self._oidc.begin(self._back_url(request), _own(path), time.time() + FLOW_SECONDS)
        except NoProvider as error:
            log.warning("%s", error)
            return self.page(request, 503, NOT_THERE)
        kept = self._accesses.signer.sign("oidc", msgspec.msgpack.encode(flow))
        # Lax: the browser comes back from another site, and brings this cookie all the same
        cookie = self._cookie(f"{self._settings.cookie_name}-oidc", kept, FLOW_SECONDS, "Lax")
        return Answer(303, b"", "text/plain", [("location", target), cookie])

    async def _back(self, request: Request, oidc: Oidc) -> Answer:
        query = {name: values[0] for name, values in read_query(request.query).items() if len(values) == 1}
        flow = self._flow(request)
        if (
            flow is None
            or query.get("state") != flow.state
            or query.get("iss", oidc.settings.issuer) != (oidc.settings.issuer)
        ):
            return self._refused(request, FAILED)
        try:
            code = query.get("code", "")
            known = await oidc.finish(flow, code, self._back_url(request)) if code else None
        except NoProvider as error:
            log.warning("%s", error)
            return self._refused(request, FAILED)
        if known is None:
            return self._refused(request, FAILED)
        if await self._accesses.of_known(known, "oidc") is None:
            return self._refused(request, NO_RIGHTS)
        signer = self._accesses.signer
        _, cookie = signer.session(known.actor, datetime.now(UTC), grants=known.grants, roles=known.roles)
        if len(cookie) > COOKIE_MAX:
            log.warning("the grants and roles of %s do not fit into a cookie", known.actor)
            return self._refused(request, FAILED)
        self._accesses.note("login", Actor(known.actor), way="oidc", address=request.address)
        answer = self.page(request, 200, "Logging in…", flow.path)
        answer.headers += [self._session(cookie), self._no_flow]
        return answer

    def _refused(self, request: Request, say: str) -> Answer:
        self._count_failure(request)
        answer = self.page(request, 401, say)
        answer.headers.append(self._no_flow)
        return answer

    def _flow(self, request: Request) -> CodeFlow | None:
        text = request.cookies.get(f"{self._settings.cookie_name}-oidc", "")
        body = self._accesses.signer.read("oidc", text)
        flow = None if body is None else msgspec.msgpack.decode(body, type=CodeFlow)
        return flow if flow is not None and time.time() < flow.expires_at else None

    def _back_url(self, request: Request) -> str:
        scheme = "https" if self._settings.secure else "http"
        return f"{scheme}://{request.host}{request.root}/login/oidc/back"

    # ---- out ---------------------------------------------------------------------------------------------------

    async def out(self, request: Request, login: Login) -> Answer:
        session = await self._accesses.session_of(request.cookies.get(self._settings.cookie_name, ""))
        if session is not None:
            await self._accesses.ask("session end", {"id": session.id, "until": session.expires_at}, login.actor)
        return json_answer({"ok": True}, headers=[self._cookie(self._settings.cookie_name, "", 0)])

    # ---- cookies -----------------------------------------------------------------------------------------------

    def _session(self, value: str) -> tuple[str, str]:
        return self._cookie(self._settings.cookie_name, value, SESSION_HOURS * 3600)

    @property
    def _no_flow(self) -> tuple[str, str]:
        return self._cookie(f"{self._settings.cookie_name}-oidc", "", 0, "Lax")

    def _cookie(self, name: str, value: str, seconds: int, site: str = "Strict") -> tuple[str, str]:
        secure = "; Secure" if self._settings.secure else ""
        return "set-cookie", f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={site}{secure}"


def _own(path: str) -> str:
    """A path of this server, or its first page: no other site is led to."""
    own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and len(path) < 1000
    return path if own else "/"
