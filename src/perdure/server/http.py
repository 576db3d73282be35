"""Requests and answers over ASGI, and nothing of what they mean."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from perdure.verbs.act import REASON_MAX

from . import limits
from .limits import READ_SECONDS, URL_MAX
from .problems import HttpProblem, document
from .rendering import to_bytes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types perdure-worker"
)
GUARDS: Final = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Request:
    """One HTTP request. `path` is below the place where the app is mounted."""

    def __init__(self, scope: Scope, receive: Receive, *, proxied: bool = False) -> None:
        self.scope = scope
        self._receive = receive
        self.method: str = scope["method"]
        root: str = scope.get("root_path", "")
        path: str = scope["path"]
        self.root = root
        self.path = (path.removeprefix(root) if root and path.startswith(root) else path) or "/"
        self.query: bytes = scope.get("query_string", b"")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        client = scope.get("client")
        self.address: str = client[0] if client else ""
        if proxied and (passed := self.headers.get("x-forwarded-for", "")):
            self.address = passed.rpartition(",")[2].strip()[:60]  # what our own proxy has added; the rest is claimed
        self.id = secrets.token_hex(6)
        self.begin_answer()

    def begin_answer(self) -> None:
        """From now on the answer may take so long; `deadline` is in the loop's time."""
        self.deadline = asyncio.get_running_loop().time() + limits.ANSWER_SECONDS

    @property
    def host(self) -> str:
        host: str = self.headers.get("host", "")
        return host

    @property
    def reason(self) -> str:
        """What `X-Reason` says, in UTF-8; what is none is read as Latin-1."""
        said: bytes = self.headers.get("x-reason", "").encode("latin-1")
        try:
            return said.decode()[:REASON_MAX]
        except UnicodeDecodeError:
            return said.decode("latin-1")[:REASON_MAX]

    @property
    def preferred_wait(self) -> float | None:
        """The seconds of `Prefer: wait=N`; None: it does not say."""
        for part in self.headers.get("prefer", "").replace(";", ",").split(","):
            name, _, value = part.strip().partition("=")
            if name.strip().lower() == "wait" and value.strip().isdigit() and len(value) < 10:
                return float(value)
        return None

    @property
    def is_too_long(self) -> bool:
        return len(self.path) + len(self.query) > URL_MAX

    @property
    def whole(self) -> str:
        """The URL of the same answer with whole values."""
        query = f"{self.query.decode('ascii')}&" if self.query else ""
        return f"{quote(self.root + self.path, safe='/@')}?{query}values=whole"

    @property
    def cookies(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in self.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            found[name] = value
        return found

    async def body(self, limit: int) -> bytes:
        """The whole body, if it is not larger than a limit and comes in time."""
        length = self.headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            raise HttpProblem(413, "too-large", f"the body has {length} bytes; {limit} are allowed")
        parts, size = [], 0
        try:
            async with asyncio.timeout(READ_SECONDS):
                while True:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        raise HttpProblem(400, "malformed", "the connection ended within the body")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > limit:
                        raise HttpProblem(413, "too-large", f"the body has more than the {limit} bytes allowed")
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise HttpProblem(408, "too-slow", f"the body did not come within {READ_SECONDS:g} s") from None

    async def gone(self) -> None:
        """Return when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class HostRequest(dict[str, Any]):
    """What `actor=` of a host is given: the scope of a request, and what one mostly looks for in it.

    `headers` by their names, also in capitals, and `cookies`. What middleware of the host has put into the scope is
    an attribute, too: `request.user`, `request.session`, `request.state`.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request.scope)
        self.headers, self.cookies = _Headers(request.headers), request.cookies

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the request has no {name}: no middleware of the host has put it there") from None


class _Headers(dict[str, str]):
    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class Answer(msgspec.Struct):
    """`closed` is called when a stream is over, or was never begun."""

    status: int = 200
    body: bytes = b""
    media: str = "application/json"
    headers: list[tuple[str, str]] = []
    stream: AsyncIterator[bytes] | None = None
    closed: Callable[[], None] | None = None


def json_answer(value: Any, status: int = 200, headers: list[tuple[str, str]] | None = None) -> Answer:
    return Answer(status, to_bytes(value), headers=headers or [])


def problem_answer(problem: HttpProblem, request: Request) -> Answer:
    headers = [*problem.more.get("headers", [])]
    retry = problem.more.get("retry_after")
    if retry is not None:
        headers.append(("retry-after", str(max(1, round(retry)))))
    body = to_bytes(document(problem, request.path, request.id, request.root))
    return Answer(problem.status, body, "application/problem+json", headers)


async def send_answer(answer: Answer, request: Request, send: Send) -> None:
    headers = [(b"content-type", answer.media.encode()), *GUARDS]
    headers += [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
    if not any(name == "cache-control" for name, _ in answer.headers):
        headers.append((b"cache-control", b"no-store"))
    headers.append((b"x-request", request.id.encode()))
    if answer.stream is None:
        headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    async for part in answer.stream:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
