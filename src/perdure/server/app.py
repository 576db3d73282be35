"""The server as an ASGI app: who asks, may they, what do they ask, and the answer. Each step is one method.

It needs no lifespan of its host: it begins with its first request and ends with the engine. It sets no signal handler
and configures no logging.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from secrets import token_hex
from typing import Any, Final

import msgspec

from perdure.access.model import Login, allowed
from perdure.errors import PerdureError, UnknownInstance, UnknownWorkflow
from perdure.kernel.asked import Asked
from perdure.runtime.asking import asking
from perdure.runtime.client import Client
from perdure.runtime.history import aside
from perdure.verbs.plans import entry_of

from . import limits
from .accesses import Accesses, Recognise
from .api.acting import taken_up
from .auth.oidc import Oidc
from .auth.origins import LOOPBACK, is_ours, may_write
from .auth.tokens import Signer
from .calling import Calling, forbidden
from .feed import Feed, pack
from .http import Answer, Receive, Request, Scope, Send, json_answer, problem_answer, send_answer
from .logins import Logins
from .openapi import document
from .params import read_params
from .problems import PAGES, HttpProblem, explained, problem_of
from .readers import FoldedHistory, Histories
from .reading import no_such, read_query
from .redacting import Redactor, read_pointer
from .rendering import plain, shown, trimmed
from .repeat import REPLAYED, SAID, Repeats, came_before, check_entry, event_id, first_answer, refuse_moved, said_of
from .routes import API, ROUTES, Route, match
from .settings import Settings, secret_of
from .static import Static
from .stream import Stream, read_channels, resolved

log: Final = logging.getLogger("perdure.server")

LONG: Final = frozenset({"result", "ask"})
"""Verbs that wait as long as their caller says."""

SHOWN_ONCE: Final = frozenset({"key add", "access link"})
"""Verbs whose answer is a secret."""

STRANGER: Final = HttpProblem(
    401,
    "login-needed",
    "log in, or send an API key: Authorization: Bearer pdk_…",
    headers=[("www-authenticate", "Bearer")],
)
HEALTH_SECONDS: Final = 2.0


class ServerApp:
    """Made by `perdure.server.app`."""

    def __init__(self, client: Client, actor: Recognise | None = None, settings: Settings | None = None) -> None:
        given = settings or Settings()
        if given.hosts is None and actor is None:
            given = msgspec.structs.replace(given, hosts=LOOPBACK)
        self.settings = given
        self.client = client
        oidc = None if given.oidc is None else Oidc(given.oidc)
        self.accesses = Accesses(client, Signer(secret_of(given)), given.cookie_name, actor, oidc)
        self.feed = Feed(client)
        self.static = Static()
        self.logins = Logins(given, self.accesses, self.static, oidc)
        self.stopping = asyncio.Event()
        self.notice = ""
        self.histories = Histories()
        self._repeats = Repeats()
        self._redacted = [read_pointer(text) for text in given.redact]
        self._buckets = limits.requests()
        self._streams: Counter[str] = Counter()
        self._background: set[asyncio.Task[Any]] = set()
        self._denied: dict[tuple[str, str], tuple[float, int]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive, proxied=self.settings.proxied)
        try:
            answer = await self._answer(request)
        except Exception as error:
            answer = self._failed(error, request)
        if answer.stream is None:
            await send_answer(answer, request, send)
        else:
            await self._streaming(answer, request, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ServerApp]:
        """From here to the end of the block it answers; then streams end and `ready` is 503."""
        try:
            yield self
        finally:
            await self.close()

    def tell(self, notice: str) -> None:
        """A text for all pages: of `perdure dev`, why new code was not taken over. Empty: none."""
        self.notice = notice
        self.feed.wake()

    async def close(self) -> None:
        self.stopping.set()
        for task in list(self._background):
            task.cancel()
        await self.feed.close()
        await self.accesses.close()

    def _failed(self, error: Exception, request: Request) -> Answer:
        problem = problem_of(error)
        if problem is None:
            log.error("request %s failed", request.id, exc_info=error)
            text = f"this is a bug of perdure; its log has the request {request.id}"
            problem = HttpProblem(500, "internal", text)
        return problem_answer(problem, request)

    # ---- from a request to an answer ---------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Answer:
        if request.is_too_long:
            raise HttpProblem(414, "url-too-long", f"a URL has at most {limits.URL_MAX} bytes")
        if len(request.scope["headers"]) > limits.HEADERS_MAX:
            raise HttpProblem(431, "too-many-headers", f"a request has at most {limits.HEADERS_MAX} headers")
        if request.path in ("/health/live", "/health/ready"):
            return await self._health(request)
        if not is_ours(request.host, self.settings.hosts):
            raise HttpProblem(403, "foreign-host", "this server does not answer under that name")
        if request.path == "/login" or request.path.startswith("/login/"):
            return await self.logins.answer(request) or self._stranger(request)
        login, ambient = await self._login_of(request)
        if login is None:
            return self._stranger(request)
        if ambient and not may_write(request.method, request.headers, request.host):
            raise HttpProblem(403, "foreign-origin", "a write with a cookie comes from the pages of this server alone")
        wait = self._buckets.take(login.actor.id, time.monotonic())
        if wait:
            raise HttpProblem(429, "too-many-requests", f"try again in {max(wait, 0.1):.1f} s", retry_after=wait)
        if request.path.startswith(f"{API}/"):
            return await self._api(request, login)
        return await self._face(request, login)

    async def _login_of(self, request: Request) -> tuple[Login | None, bool]:
        """Who asks. A database that does not answer cannot say it: the request is refused in time."""
        try:
            async with asyncio.timeout_at(request.deadline):
                return await self.accesses.login_of(request)
        except TimeoutError:
            text = "the database does not answer; nothing was recorded"
            raise HttpProblem(503, "database-failed", text, retry_after=1) from None

    def _stranger(self, request: Request) -> Answer:
        """One and the same answer for every path: a page for browsers, a problem for programs."""
        if self.settings.ui and "text/html" in request.headers.get("accept", ""):
            return self.logins.page(request, 401)
        return problem_answer(STRANGER, request)

    async def _face(self, request: Request, login: Login) -> Answer:
        """What is no verb: the document of the API, the pages of error codes, logout, the files and pages of the UI."""
        path = request.path
        if path == "/openapi.json" and request.method in ("GET", "HEAD"):
            return json_answer({**document(), **({"servers": [{"url": request.root}]} if request.root else {})})
        if path == "/logout" and request.method == "POST":
            return await self.logins.out(request, login)
        if (
            path.startswith(PAGES)
            and request.method in ("GET", "HEAD")
            and (text := explained(path.removeprefix(PAGES)))
        ):
            return Answer(200, text.encode(), "text/plain; charset=utf-8")
        if self.settings.ui and request.method in ("GET", "HEAD"):
            if path.startswith("/ui/"):
                _, _, rest = path.removeprefix("/ui/").partition("/")
                found = self.static.file(request, rest)
                if found is not None:
                    return found
            elif "text/html" in request.headers.get("accept", ""):
                return self.static.index(request)
        raise HttpProblem(404, "not-found", f"there is nothing at {path[:80]}")

    async def _api(self, request: Request, login: Login) -> Answer:
        path = request.path.removeprefix(API)
        if path == "/stream" and request.method == "GET":
            return await self._stream(request, login)
        route, named, methods = match(request.method, path)
        if route is None:
            if methods:
                allow = ", ".join(sorted(set(methods)))
                raise HttpProblem(405, "wrong-method", f"this path has {allow}", headers=[("allow", allow)])
            raise HttpProblem(404, "not-found", f"there is nothing at {request.path[:80]}")
        return await self._verb(request, login, route, named)

    async def _verb(self, request: Request, login: Login, route: Route, named: dict[str, str]) -> Answer:
        calling = self._calling(request, login, route)
        verdict = allowed(login, route.who, read=route.read, executor=login.executor)
        if verdict.hidden and route.who == "executor":
            raise HttpProblem(404, "not-found", f"there is nothing at {request.path[:80]}")
        if not verdict.yes:
            if not verdict.hidden:
                await calling.check_seen(route.path, named)
            self._denied_write(login, route)
            raise forbidden(calling, verdict.needs or route.who, "this")
        if self.settings.read_only and route.repeat != "read":
            raise HttpProblem(403, "read-only", "this server is read-only")
        body = b"" if route.read else await request.body(limits.VALUE_BODY_MAX if route.values else limits.BODY_MAX)
        if body:
            request.begin_answer()  # the time that the body took is not the database's
        if len(body) > limits.LARGE_BODY:
            params = await asyncio.to_thread(read_params, request, route, named, body)
        else:
            params = read_params(request, route, named, body)

        async def work() -> Answer:
            return await self._call(calling, route, params)

        key = request.headers.get("idempotency-key")
        if route.read:
            if request.headers.get("x-perdure") == "1":
                calling.at = pack(await self.client.queries.heights())
            return await work()
        if key is not None:
            calling.said = said_of(route.method, request.path, body)
        asked = _asked(calling)
        calling.expected = asked.if_entry if asked.if_entry is not None else entry_of(getattr(params, "plan", ""))
        if calling.expected is not None and not asked.id:  # by its id it is found whether an engine took it
            calling.event = event_id(login.actor.id, f"{request.id}:{token_hex(8)}")
            asked = msgspec.structs.replace(asked, id=calling.event)
        calling.client = asking(self.client, asked)
        if key is None:
            return await work()
        return await self._repeats.once(login, key, calling.said, work, secret=route.name in SHOWN_ONCE)

    async def _call(self, calling: Calling, route: Route, params: Any) -> Answer:
        repeated, heights = False, None
        try:
            heights = await self.client.queries.heights() if calling.event and not route.read else None
            async with asyncio.timeout_at(None if route.name in LONG else calling.request.deadline):
                answered = await self._called(calling, route, params)
            if heights is not None:
                repeated = await came_before(calling, heights)
            if repeated:
                answered = await first_answer(calling, route.name, params) or answered
        except TimeoutError as error:
            if isinstance(error, PerdureError):
                raise
            text = "no engine answered in time; whether it was recorded is told by the instance: look before you repeat"
            raise HttpProblem(503, "no-engine", text, retry_after=1) from None
        except HttpProblem as problem:
            if problem.status == 403:
                self._denied_write(calling.login, route)
            raise
        except PerdureError as error:
            if isinstance(error, UnknownInstance) and route.name == "show" and "/-/" in params.id:
                raise await _no_verb(calling, params.id) or error from None
            first = await first_answer(calling, route.name, params)
            if first is None and isinstance(error, UnknownWorkflow) and not calling.sees_all:
                raise HttpProblem(404, "unknown-workflow", "there is no such workflow") from None
            if first is None:
                await refuse_moved(calling)
                raise
            answered, repeated = first, True
        if isinstance(answered, Answer):
            return answered
        status, answer = answered if isinstance(answered, tuple) else (200, answered)
        headers = [REPLAYED] if repeated else [("etag", f'"{calling.tag}"')] if calling.tag else []
        if calling.at:
            headers.append(("x-perdure-at", calling.at))
        if not route.read and calling.head is not None:
            if not await taken_up(calling):
                status = 202
            elif heights is not None and not repeated:
                await check_entry(calling, heights)
        made = status == 201 and route.name in ("start", "bulk start")
        if (made or status == 202) and isinstance(id := getattr(answer, "id", None), str):
            folder = "/bulk" if route.name == "bulk start" else "/instances"
            headers.append(("location", await calling.location(f"{API}{folder}", id)))
        query = read_query(calling.request.query) if route.read else {}
        if route.direct and "fields" not in query:
            return Answer(status, msgspec.json.encode(answer), headers=headers)
        whole = None if query.get("values") == ["whole"] else calling.request.whole if route.read else ""
        redactor = await self._redactor(calling) if self._redacted else None
        fields, values = query.get("fields", []), calling.shows_values

        def render() -> Answer:
            document = shown(answer, values=values, whole=whole, redactor=redactor)
            return json_answer(_trimmed(document, fields), status, headers)

        return await aside(calling.rows, render)

    async def _called(self, calling: Calling, route: Route, params: Any) -> Any:
        """What a verb answers. While it was waited for, the login may have ended, or lost rights."""
        answered = await route.call(calling, params)
        if route.name in LONG:
            calling.request.begin_answer()
            login, _ = await self._login_of(calling.request)
            if login is None:
                raise STRANGER
            calling.login = login
            for workflow in calling.subjects:
                calling.check(workflow, "instance")
        return answered

    async def _redactor(self, calling: Calling) -> Redactor:
        """It knows the hidden texts of the instances that the answer is about: an error may repeat them."""
        redactor = Redactor(self._redacted)
        for instance in calling.found:
            head = await self.client.queries.head(instance)
            if head is not None:
                await self.histories.cut(self.client.queries, head, lambda whole: _hide(redactor, whole))
        return redactor

    def _calling(self, request: Request, login: Login, route: Route) -> Calling:
        return Calling(
            request,
            login,
            self.client,
            self.accesses,
            self.settings,
            self.histories,
            route.read,
            route.who,
            event="" if route.read else event_id(login.actor.id, request.headers.get("idempotency-key", "")),
            background=self._background,
            engine=self.client,
        )

    def _denied_write(self, login: Login, route: Route) -> None:
        """One entry a minute for an actor and a verb, with how many there were."""
        if route.read:
            return
        key, now = (login.actor.id, route.name), time.monotonic()
        since, count = self._denied.get(key, (float("-inf"), 0))
        if now - since < limits.DENIED_SECONDS:
            self._denied[key] = since, count + 1
            return
        self._denied[key] = now, 0
        if len(self._denied) > limits.KNOWN_MAX:
            self._denied.clear()
        self.accesses.note("denied", login.actor, verb=route.name, more=count)

    # ---- streams -----------------------------------------------------------------------------------------------

    async def _stream(self, request: Request, login: Login) -> Answer:
        if login.executor:
            raise HttpProblem(403, "forbidden", "the key of an executor answers effects, and watches nothing")
        close = self._open_stream(login.actor.id)
        try:
            stream, last = await self._followed(request, login)
        except BaseException:
            close()
            raise
        headers = [("x-accel-buffering", "no")]
        return Answer(200, b"", "text/event-stream", headers, stream.events(last), close)

    def _open_stream(self, actor: str) -> Callable[[], None]:
        """Count a stream of an actor, until the answer is called."""
        if self._streams[actor] >= limits.STREAMS_MAX:
            text = f"an actor has at most {limits.STREAMS_MAX} streams"
            raise HttpProblem(429, "too-many-streams", text, retry_after=5)
        self._streams[actor] += 1

        def close() -> None:
            self._streams[actor] -= 1
            if not self._streams[actor]:
                del self._streams[actor]

        return close

    async def _followed(self, request: Request, login: Login) -> tuple[Stream, str | None]:
        query = read_query(request.query)
        route = match("GET", "/instances")[0]
        assert route is not None
        calling = self._calling(request, login, route)
        wanted = read_channels(query.get("channels", []))
        channels = await resolved(self.client, login, wanted, calling.find)

        async def again() -> Login | None:
            return (await self.accesses.login_of(request))[0]

        titles = not self._redacted
        stream = Stream(self.feed, self.client, login, channels, again, self.stopping, lambda: self.notice, titles)
        return stream, request.headers.get("last-event-id") or next(iter(query.get("last", [])), None)

    async def _streaming(self, answer: Answer, request: Request, send: Send) -> None:
        sending = asyncio.ensure_future(send_answer(answer, request, send))
        gone = asyncio.ensure_future(request.gone())
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            sending.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            if answer.stream is not None and hasattr(answer.stream, "aclose"):
                await answer.stream.aclose()
            if answer.closed is not None:
                answer.closed()

    # ---- health ------------------------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Answer:
        """Strangers learn 200 or 503, and nothing else."""
        why = "" if request.path == "/health/live" else await self._not_ready()
        told: dict[str, Any] = {}
        if {"authorization", "cookie"} & set(request.headers):
            request.deadline = min(request.deadline, asyncio.get_running_loop().time() + HEALTH_SECONDS)
            with suppress(HttpProblem, PerdureError):  # without a database there is no login
                login, _ = await self._login_of(request)
                if login is not None and allowed(login, "viewer").yes:
                    told = {"ready": not why, "why": why}
        return Answer(503 if why else 200, msgspec.json.encode(told))

    async def _not_ready(self) -> str:
        if self.stopping.is_set():
            return "the server is stopping"
        try:
            async with asyncio.timeout(2):
                await self.client.queries.height()
                owner = await self.client.queries.owner()
        except (PerdureError, TimeoutError) as error:
            return f"the database does not answer: {error}"
        return "" if owner is not None or self.settings.connect else "no engine runs"


def _hide(redactor: Redactor, whole: FoldedHistory) -> None:
    for line in whole.lines:
        redactor.value(plain(line.value))


async def _no_verb(calling: Calling, path: str) -> HttpProblem | None:
    """The refusal of a path that names an instance, which the login sees, and then no verb. None: no such instance."""
    id, _, verb = path.rpartition("/-/")
    try:
        await calling.find(id)
    except UnknownInstance:
        return None
    reads = [
        route.path.partition("{id}/-/")[2] for route in ROUTES if route.method == "GET" and "/{id}/-/" in route.path
    ]
    return HttpProblem(404, "not-found", no_such("verb", verb, [name for name in reads if "{" not in name]))


def _trimmed(document: Any, fields: list[str]) -> Any:
    names = [name for text in fields for name in text.split(",") if name]
    try:
        return trimmed(document, names) if names else document
    except (KeyError, TypeError) as error:
        sample = document["items"][0] if isinstance(document, dict) and document.get("items") else document
        known = sample if isinstance(sample, dict) else []
        text = no_such("field", str(error.args[0]), known)
        raise HttpProblem(422, "bad-request", text, where="/fields") from None


def _asked(calling: Calling) -> Asked:
    """What the event of a request says beside itself."""
    request, login = calling.request, calling.login
    return Asked(
        id=calling.event,
        by=login.actor,
        via=f"{login.via} request:{request.id}" + (SAID + calling.said if calling.said else ""),
        reason=request.reason,
        if_entry=_if_entry(request),
        trace=request.headers.get("traceparent", "")[:100],
    )


def _if_entry(request: Request) -> int | None:
    text = request.headers.get("if-match")
    if text is None or text.strip() == "*":
        return None
    number = text.strip().removeprefix("W/").strip('"')
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise HttpProblem(422, "bad-request", f'If-Match is the ETag of an instance such as "41", found {text[:40]!r}')
    return int(number)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
