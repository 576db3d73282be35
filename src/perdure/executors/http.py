"""HTTP requests that are safe to make for a workflow: `request`.

Guarded (`address.py`): resolved once, judged, and connected to the judged address; TLS still verifies the name.
Bounded: one timeout for everything, one limit for the answer, counted while it is read. Strict: http and https alone,
no credentials in urls, no bytes in a header that could end it, and no header that says how the message is framed.
Redirects are answers like others; if they are to be followed, each hop is judged like the first.

The bytes are made and read by h11; one connection serves one request, so nothing is shared that a cancelled request
could leave behind. Nothing is taken from the environment: no proxy, no netrc, no cookies. Why not a larger client:
docs/decisions/0014-http-client.md.

This module is imported where a request is made, not before: ssl and h11 take their time.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec

from perdure.errors import (
    BadCall,
    BadRequest,
    NotInstalled,
    RequestFailed,
    RequestTimeout,
    ResponseTooLarge,
)

from .address import Guard, Resolver, canonical_host, resolve

try:
    import h11
except ImportError:
    raise NotInstalled("an HTTP request", "http") from None

TIMEOUT_SECONDS: Final = 30.0
BODY_MAX: Final = 1024 * 1024
HEAD_MAX: Final = 64 * 1024
READ_SIZE: Final = 64 * 1024

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class Response(msgspec.Struct, frozen=True):
    """An answer, whatever its status. `url` is where it came from, after redirects; names of headers are lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str
    elapsed_seconds: float

    def header(self, name: str) -> str | None:
        """The first header of this name, or None."""
        return next((value for found, value in self.headers if found == name.lower()), None)


async def request(
    method: str,
    url: str,
    headers: Headers = (),
    body: bytes = b"",
    *,
    timeout: float = TIMEOUT_SECONDS,
    max_body: int = BODY_MAX,
    redirects: int = 0,
    allow: Iterable[str] = (),
    tls: ssl.SSLContext | None = None,
    resolver: Resolver = resolve,
) -> Response:
    """Make a request, and follow up to `redirects` redirects. A redirect that is not followed is the answer.

    `allow` is the operator's: networks, addresses and hosts besides the public ones. `tls` is for an authority of one's
    own; without it the system's are trusted.
    """
    if not timeout > 0 or max_body < 0 or redirects < 0:
        raise BadCall("a request takes a timeout above 0, and a max_body and redirects of at least 0")
    guard = Guard(allow)
    call = _Call(_method(method), _url(url), _headers(headers), _body(body))
    loop = asyncio.get_running_loop()
    began = loop.time()
    progress = _Progress()
    try:
        async with asyncio.timeout(timeout):
            while True:
                way = _Way(call.target, guard, tls, resolver, began + timeout, progress)
                response = await _exchange(call, way, max_body)
                following = _following(call, response) if redirects else None
                if following is None:
                    return msgspec.structs.replace(response, elapsed_seconds=loop.time() - began)
                call = following
                redirects -= 1
    except TimeoutError:
        raise RequestTimeout(call.target.shown, f"no answer within {timeout:g} seconds", progress.sent) from None


class _Progress:
    """Whether a byte of any request has left."""

    sent = False


class _Target(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str  # and the query

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, canonical_host(self.host), self.port

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def shown(self) -> str:
        """For errors: a query often holds a key."""
        return self.url.partition("?")[0]


class _Call(NamedTuple):
    method: str
    target: _Target
    headers: tuple[tuple[str, str], ...]
    body: bytes


# ---- what may be asked -----------------------------------------------------------------------------------------

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_HOST: Final = re.compile(r"[0-9A-Za-z._-]{1,253}|[0-9A-Fa-f:.]{2,45}")
_NOT_IN_URL: Final = re.compile(r"[\x00-\x20\x7f\\<>\"^`{|}]")
_NOT_IN_HEADER: Final = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_SAFE: Final = "%/:?#[]@!$&'()*+,;=-._~"

OURS: Final = frozenset(
    (
        *(
            "connection",
            "content-length",
            "expect",
            "host",
            "keep-alive",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ),
        *("proxy-authorization", "proxy-connection"),
    )
)
"""Headers that say where a message goes and where it ends. Two opinions on that are how requests are smuggled."""


def _method(method: str) -> str:
    if not _TOKEN.fullmatch(method) or method.upper() in {"CONNECT", "TRACE"}:
        raise BadRequest("method", f"expected GET, POST or another word of HTTP, found {method!a:.80}")
    return method.upper()


def _url(url: str) -> _Target:
    # Looked at before it is parsed: urlsplit drops line breaks and tabs without a word.
    if bad := _NOT_IN_URL.search(url):
        raise BadRequest("url", f"has the character {bad[0]!a} at {bad.start()}; write it percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadRequest("url", str(error)) from None
    if parts.scheme not in _PORTS:
        raise BadRequest("url", f"expected http:// or https://, found {parts.scheme[:40]!a}")
    if "@" in parts.netloc:
        raise BadRequest("url", "has a user or password before its host; send them in the header Authorization")
    host = parts.hostname or ""
    if not _HOST.fullmatch(host) or (":" in host) != parts.netloc.startswith("["):
        raise BadRequest("url", f"expected a host in ASCII (such as xn--bcher-kva.example), found {host[:80]!a}")
    if port == 0:
        raise BadRequest("url", "has the port 0, which nothing can listen on")
    return _Target(parts.scheme, host, port or _PORTS[parts.scheme], _path(parts))


def _path(parts: SplitResult) -> str:
    """Path and query as they are sent: what is not ASCII percent-encoded as UTF-8, as browsers do; no fragment."""
    query = f"?{parts.query}" if parts.query else ""
    return quote(f"{parts.path or '/'}{query}", safe=_SAFE)


def _headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = tuple((_header_name(name), _header_value(name, value)) for name, value in pairs)
    names = {name for name, _ in checked}
    # What is not asked for packed comes as it is: nothing is unpacked here, so nothing can grow.
    own = (("accept-encoding", "identity"), ("user-agent", "perdure"))
    return (*checked, *((name, value) for name, value in own if name not in names))


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise BadRequest("header", f"{name!a:.80} is not a name that a header can have")
    if name.lower() in OURS:
        raise BadRequest("header", f"{name} is set by perdure; leave it out")
    return name.lower()


def _header_value(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise BadRequest("header", f"the value of {name} is no text, but {type(value).__name__}")
    if bad := _NOT_IN_HEADER.search(value):
        # Neither the character nor where it is: the value may be a secret, and an error is recorded.
        kind = "a line break or another control character" if bad[0] <= "\x7f" else "a character that is not Latin-1"
        raise BadRequest("header", f"the value of {name} has {kind}, which no header can have")
    return value.strip(" \t")


def _body(body: bytes) -> bytes:
    if not isinstance(body, bytes):
        raise BadRequest("body", f"expected bytes, found {type(body).__name__}")
    return body


# ---- redirects -------------------------------------------------------------------------------------------------

CARRIED: Final = frozenset(("accept", "accept-encoding", "accept-language", "content-type", "user-agent"))
"""What another origin is told. Any other header may be a credential, whatever its name."""


def _following(call: _Call, response: Response) -> _Call | None:
    """The request that a redirect asks for; None if there is none, or it must not be followed."""
    location = response.header("location")
    if response.status not in {301, 302, 303, 307, 308} or location is None:
        return None
    try:
        target = _url(urljoin(call.target.url, location.encode("latin-1").decode()))
    except (BadRequest, ValueError):
        return None
    if call.target.scheme == "https" and target.scheme == "http":
        return None
    method, headers, body = call.method, call.headers, call.body
    if method != "HEAD" and (response.status == 303 or (response.status in {301, 302} and method == "POST")):
        method, body = "GET", b""
        headers = tuple((name, value) for name, value in headers if not name.startswith("content-"))
    if target.origin != call.target.origin:
        if body:  # a token or a password as often as not
            return None
        headers = tuple((name, value) for name, value in headers if name in CARRIED)
    return _Call(method, target, headers, body)


# ---- one connection, one exchange ------------------------------------------------------------------------------


class _Way(NamedTuple):
    """How to get to a target."""

    target: _Target
    guard: Guard
    tls: ssl.SSLContext | None
    resolver: Resolver
    until: float
    progress: _Progress

    def failed(self, reason: str) -> RequestFailed:
        return RequestFailed(self.target.shown, reason, self.progress.sent)


async def _exchange(call: _Call, way: _Way, max_body: int) -> Response:
    reader, writer = await _connect(way)
    try:
        return await _talk(call, way, max_body, reader, writer)
    except h11.RemoteProtocolError as error:
        raise way.failed(f"what came is not HTTP: {error}") from None
    except OSError as error:  # with what TLS has to say
        raise way.failed(f"the connection broke: {_reason(error)}") from None
    finally:
        # All was read, or nothing more is wanted: no good-bye that the other side could draw out.
        writer.transport.abort()


async def _connect(way: _Way) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first address that answers, of those that the host has, all of which are allowed."""
    _, host, port, _ = way.target
    try:
        addresses = await way.resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise way.failed(f"the host {host} is not known: {_reason(error)}") from None
    for address in addresses:
        way.guard.check(host, address)
    tls = (way.tls or _system_tls()) if way.target.scheme == "https" else None
    loop = asyncio.get_running_loop()
    problem = "it has no address"
    for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
        share = (way.until - loop.time()) / left  # a dead address leaves time for the others
        try:
            async with asyncio.timeout(share if left > 1 else None):
                name = None if tls is None else canonical_host(host)
                return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name)
        except ssl.SSLCertVerificationError as error:
            raise way.failed(f"its certificate is not trusted: {error.verify_message}") from None
        except OSError as error:
            problem = f"no connection to {address}, port {port}: {_reason(error)}"
    raise way.failed(problem)


async def _talk(
    call: _Call, way: _Way, max_body: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Response:
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
    writer.write(_written(protocol, call))  # and not waited for: some answer before they have heard all of it
    way.progress.sent = True
    head: h11.Response | None = None
    body = bytearray()
    while True:
        match protocol.next_event():
            case h11.NEED_DATA:
                protocol.receive_data(await reader.read(READ_SIZE))
            case h11.Response() as head:
                if _announced(head) > max_body and not _is_bodiless(call, head):
                    raise ResponseTooLarge(way.target.shown, head.status_code, max_body)
            case h11.Data(data=data):
                body += data
                if head is not None and len(body) > max_body:
                    raise ResponseTooLarge(way.target.shown, head.status_code, max_body)
            case h11.EndOfMessage():
                break
            case h11.ConnectionClosed() | h11.PAUSED:
                raise way.failed("it broke off before its answer")
            case _:  # informational: the answer is still to come
                pass
    assert head is not None, "h11 tells of the head before the end"
    found = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
    return Response(head.status_code, found, bytes(body), way.target.url, 0.0)


def _written(protocol: h11.Connection, call: _Call) -> bytes:
    headers = [("host", call.target.authority), *call.headers, ("connection", "close")]
    if call.body or call.method in {"POST", "PUT", "PATCH"}:
        headers.append(("content-length", str(len(call.body))))
    encoded = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
    start = h11.Request(method=call.method, target=call.target.path, headers=encoded)
    parts = [protocol.send(start), protocol.send(h11.Data(data=call.body)), protocol.send(h11.EndOfMessage())]
    return b"".join(part or b"" for part in parts)


def _announced(head: h11.Response) -> int:
    # h11 has seen that it is one number
    return next((int(value) for name, value in head.headers if name == b"content-length"), 0)


def _is_bodiless(call: _Call, head: h11.Response) -> bool:
    """Such an answer may say how long the body is that it does not have."""
    return call.method == "HEAD" or head.status_code in {204, 304}


@cache
def _system_tls() -> ssl.SSLContext:
    """Reading the system's authorities takes longer than most requests."""
    return ssl.create_default_context()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
