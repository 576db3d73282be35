"""Who asks: from the credentials of a request to a login, by what `perdure.access/main` says.

What it says is cached for a short time, so a revoked right ends everywhere within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from secrets import token_urlsafe
from typing import Any, Final

from perdure.access.machine import PUBLISHED
from perdure.access.model import KEY, WORKFLOW, Access, ApiKey, Grant, Login, Person, is_admin
from perdure.codec import decode, from_plain, to_plain
from perdure.errors import AskTimeout, PerdureError
from perdure.kernel.asked import Actor
from perdure.kernel.events import Address
from perdure.ports.store import Queries
from perdure.runtime.client import Client

from .auth.claims import Known
from .auth.oidc import Oidc
from .auth.origins import is_ambient
from .auth.tokens import PREFIX, Session, Signer, digest_of, parse_key, same
from .http import HostRequest, Request
from .limits import ANSWER_SECONDS
from .problems import HttpProblem
from .refusals import status_of

log: Final = logging.getLogger("perdure.server")

FRESH_SECONDS: Final = 2.0
NEW_SECONDS: Final = 0.1
"""Wrong keys make a server read access again, at most so often: a key works as soon as it was shown."""

LINK_MINUTES: Final = 10
ADMIN: Final = (Grant("admin"),)
USED_SECONDS: Final = 3600.0
"""How often the use of a key is noted."""

Recognise = Callable[[Any], Actor | Login | Awaitable[Actor | Login | None] | None]
"""The host's own answer to the question who asks; it is given a `HostRequest`."""


class Accesses:
    def __init__(
        self,
        client: Client,
        signer: Signer,
        cookie: str,
        recognise: Recognise | None,
        oidc: Oidc | None = None,
    ) -> None:
        self._client, self.signer, self._cookie, self._recognise = client, signer, cookie, recognise
        self._oidc = oidc
        self._access, self._read_at = Access(), float("-inf")
        self._reading: asyncio.Future[Access] | None = None
        self._links: dict[str, tuple[str, datetime]] = {}
        self._used: dict[str, float] = {}
        self._begun = False
        self._noting: set[asyncio.Task[Any]] = set()

    # ---- what is known -----------------------------------------------------------------------------------------

    async def state(self, age: float | None = None, *, fresh: bool = False) -> Access:
        """What was read lately. Requests that come while it is read again wait for that, and none is told less."""
        if fresh or time.monotonic() - self._read_at > (FRESH_SECONDS if age is None else age):
            if fresh or self._reading is None:
                self._reading = asyncio.ensure_future(self._read())
                self._reading.add_done_callback(lambda read: read.cancelled() or read.exception())
            return await asyncio.shield(self._reading)  # kept or not: a change meanwhile asks for the next read
        return self._access

    async def _read(self) -> Access:
        mine, began = asyncio.current_task(), time.monotonic()
        try:
            found = await read_access(self._client.queries)
            if self._reading is mine:
                self._access, self._read_at = found, began
            return found
        finally:
            if self._reading is mine:
                self._reading = None

    async def ask(self, verb: str, body: Any, by: Actor) -> Any:
        """A change of access, recorded with its actor."""
        if not self._begun:
            await begin(self._client, by)
            self._begun = True
        handle = self._client.handle(WORKFLOW, KEY)
        answer = await handle.ask(verb, to_plain(body), timeout=ANSWER_SECONDS, by=by)
        self._read_at, self._reading = float("-inf"), None
        if "refused" in answer:
            status = 403 if answer["refused"] == "forbidden" else status_of(answer["refused"])
            raise HttpProblem(status, answer["refused"], answer["text"])
        return answer["ok"]

    def note(self, what: str, by: Actor, **more: Any) -> None:
        """An entry for the audit. The request does not wait for it."""
        self._beside("note", {"what": what, **more}, by)

    def _beside(self, verb: str, body: Any, by: Actor) -> None:
        """A change that no request waits for. Without an engine there is no audit: the request is answered."""

        async def write() -> None:
            with suppress(PerdureError, HttpProblem):
                await self.ask(verb, body, by)

        task = asyncio.ensure_future(write())
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    # ---- who asks ----------------------------------------------------------------------------------------------

    async def login_of(self, request: Request) -> tuple[Login | None, bool]:
        """The login of a request, and whether a browser may have sent its credential by itself.

        Every wrong credential gives the same None.
        """
        if self._recognise is not None:
            known = await self._of_host(self._recognise, request)
            if isinstance(known, Login):
                return known, is_ambient(request.headers)
            if known is not None:
                return await self._of_actor(known, "host"), is_ambient(request.headers)
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._of_bearer(credential.strip()), False
        cookie = request.cookies.get(self._cookie)
        if cookie is None:
            return None, False
        return await self._of_session(cookie), True

    async def _of_host(self, recognise: Recognise, request: Request) -> Actor | Login | None:
        try:
            found = recognise(HostRequest(request))
            known = await found if isawaitable(found) else found
            if not isinstance(known, Actor | Login | None):
                raise TypeError(f"actor= gives a perdure.Actor, a Login or None; found {type(known).__name__}")
        except Exception as error:
            log.error("actor= failed for the request %s", request.id, exc_info=error)
            text = f"`actor=` of the program around this server failed; the log has the request {request.id}"
            raise HttpProblem(500, "internal", text) from None
        return known

    async def _of_bearer(self, text: str) -> Login | None:
        if self._oidc is None or text.startswith(PREFIX):
            return await self._of_key(text)
        known = await self._oidc.bearer(text)
        return None if known is None else await self.of_known(known, "oidc")

    async def of_known(self, known: Known, via: str) -> Login | None:
        """The login of an actor that a provider knows. One without any right is no login."""
        login = await self._of_actor(Actor(known.actor, known.roles), via, known.grants)
        return login if login.grants or login.actor.roles else None

    async def _of_key(self, text: str) -> Login | None:
        parsed = parse_key(text)
        id, digest = parsed if parsed is not None else ("", digest_of(text))
        key = (await self.state()).keys.get(id)
        if key is None or not same(key.digest, digest):
            key = (await self.state(NEW_SECONDS)).keys.get(id)  # it may have just been made elsewhere
        if not same(None if key is None else key.digest, digest) or key is None or not key.lives(datetime.now(UTC)):
            return None
        self._note_use(key)
        return Login(
            Actor(key.actor, key.roles, is_admin(key.grants)), key.grants, f"key:{key.id}", executor=key.executor
        )

    def _note_use(self, key: ApiKey) -> None:
        now = time.monotonic()
        if now - self._used.get(key.id, float("-inf")) > USED_SECONDS:
            self._used[key.id] = now
            self._beside("key used", {"id": key.id}, Actor(key.actor))

    async def session_of(self, cookie: str) -> Session | None:
        session = self.signer.read_session(cookie, datetime.now(UTC))
        if session is None or session.id in (await self.state()).ended:
            return None
        return session

    async def _of_session(self, cookie: str) -> Login | None:
        session = await self.session_of(cookie)
        if session is None:
            return None
        actor = Actor(session.actor, session.roles, session.admin)
        return await self._of_actor(actor, f"session:{session.id}", session.grants)

    async def _of_actor(self, actor: Actor, via: str, more: tuple[Grant, ...] = ()) -> Login:
        """`more`: grants beside those that are recorded."""
        person = (await self.state()).people.get(actor.id, Person())
        grants = ADMIN if actor.admin else tuple(dict.fromkeys((*more, *person.grants)))
        roles = tuple(dict.fromkeys((*actor.roles, *person.roles)))
        return Login(Actor(actor.id, roles, actor.admin or is_admin(grants)), grants, via, owner=actor.admin)

    # ---- login links -------------------------------------------------------------------------------------------

    def own_link(self, actor: str) -> str:
        """A token of this process: it works where no engine runs. A reader of the terminal is the owner."""
        token = token_urlsafe(32)
        self._links[digest_of(token)] = actor, datetime.now(UTC) + timedelta(minutes=LINK_MINUTES)
        return token

    async def use_link(self, token: str) -> tuple[str, bool] | None:
        """Whose link it was, and whether the owner made it. It works once."""
        digest = digest_of(token)
        own = self._links.pop(digest, None)
        if own is not None:
            return (own[0], True) if datetime.now(UTC) < own[1] else None
        link = (await self.state(fresh=True)).links.get(digest)
        if link is None:
            return None
        try:
            return await self.ask("link use", {"digest": digest}, Actor("login")), link.admin
        except HttpProblem:
            return None

    async def close(self) -> None:
        for task in list(self._noting):
            task.cancel()


async def read_access(queries: Queries) -> Access:
    """What `perdure.access/main` says."""
    head = await queries.head(Address(WORKFLOW, KEY))
    data = None if head is None else await queries.published(head.id, PUBLISHED)
    return Access() if data is None else from_plain(decode(data), Access)


async def begin(client: Client, by: Actor) -> None:
    """Start the instance, if it is not there, and wait until an engine has it."""
    address = Address(WORKFLOW, KEY)
    if await client.queries.head(address) is not None:
        return
    await client.start(WORKFLOW, key=KEY, by=by)
    try:
        async with asyncio.timeout(ANSWER_SECONDS), aclosing(client.changes()) as changes:
            async for _ in changes:
                if await client.queries.head(address) is not None:
                    return
    except TimeoutError:
        raise AskTimeout(f"no engine has taken up {address} after {ANSWER_SECONDS:g} s; does one run?") from None
