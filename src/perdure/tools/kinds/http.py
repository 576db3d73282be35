"""The tool `http`: one request, guarded and bounded by the client in `executors/http.py`."""

from __future__ import annotations

import json as jsons
from base64 import b64encode
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from perdure.errors import (
    AddressRefused,
    BadRequest,
    RequestFailed,
    RequestTimeout,
    ResponseTooLarge,
)

from ..tool import OneOf, Told, Tool, ToolCall, ToolError

BYTES_MAX: Final = 16 * 1024 * 1024
SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))


def _about(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class HttpParams(msgspec.Struct):
    """Make an HTTP request. The result is the body, by its type."""

    url: Annotated[str, _about("where to; only public addresses, and those that the operator allows")]
    method: Annotated[str, _about("GET if left out")] = "GET"
    headers: Annotated[dict[str, Any] | None, _about("names to values")] = None
    params: Annotated[dict[str, Any] | None, _about("the query; null values are left out")] = None
    json: Annotated[Any, _about("the body, as JSON")] = None
    form: Annotated[dict[str, Any] | None, _about("the body, as a form")] = None
    body: Annotated[Any, _about("the body, as it is: a text or bytes")] = None
    auth: Annotated[
        Any, _about("`{bearer}`, `{basic: {user, password}}`, `{header: {name: value}}`, or a connection")
    ] = None
    expect: Annotated[str | int | list[int], _about("statuses that are ok: `2xx`, a number, a list, `any`")] = "2xx"
    redirects: Annotated[int, _about("how many redirects are followed; each is judged like the first")] = 0
    max_bytes: Annotated[int, _about("of the answer")] = BYTES_MAX


async def run(params: HttpParams, call: ToolCall) -> Told:
    from perdure.executors.http import request

    method = params.method.upper()
    headers, body = _body(params, _headers(params, call))
    if method not in SAFE and call.idempotency_key and not any(name.lower() == "idempotency-key" for name in headers):
        headers["Idempotency-Key"] = call.idempotency_key
    try:
        response = await request(
            method,
            _url(params),
            headers,
            body,
            timeout=max(call.timeout, 0.001),
            max_body=params.max_bytes,
            redirects=params.redirects,
            allow=call.allow,
        )
    except RequestTimeout as error:
        raise ToolError("timeout", str(error), retryable=True) from None
    except ResponseTooLarge as error:
        raise ToolError("too_large", str(error)) from None
    except AddressRefused as error:
        raise ToolError("blocked_address", f"{error} (perdure run --allow, perdure.open(allow=))") from None
    except RequestFailed as error:
        raise ToolError("connect", str(error), retryable=True) from None
    except BadRequest as error:
        raise ToolError("bad_parameters", str(error)) from None
    found = dict(response.headers)
    told = {"http": {"status": response.status, "headers": found, "url": response.url}}
    content_type = found.get("content-type", "").partition(";")[0].strip().lower()
    result = _read(response.body, found.get("content-type", ""), content_type)
    if not _expected(response.status, params.expect):
        kind, retryable = _kind(response.status)
        text = f"{method} {response.url.partition('?')[0]} answered {response.status}"
        raise ToolError(kind, text, retryable=retryable, status=response.status, details=_short(result), more=told)
    return Told(result, told, content_type)


def _url(params: HttpParams) -> str:
    pairs = [(key, value) for key, value in (params.params or {}).items() if value is not None]
    if not pairs:
        return params.url
    flat = [(key, each) for key, value in pairs for each in (value if isinstance(value, list) else [value])]
    parts = urlsplit(params.url)
    query = urlencode([(key, _text(value)) for key, value in flat], quote_via=quote)
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, query)))))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else jsons.dumps(value, default=str)


def _headers(params: HttpParams, call: ToolCall) -> dict[str, str]:
    headers = {name: _text(value) for name, value in (params.headers or {}).items() if value is not None}
    auth = params.auth
    if isinstance(auth, str):
        auth = call.connection(auth)
        auth = {"bearer": auth} if isinstance(auth, str) else auth
    if auth is None:
        return headers
    match auth:
        case {"bearer": token}:
            headers["Authorization"] = f"Bearer {token}"
        case {"basic": {"user": user, "password": password}}:
            headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        case {"basic": str(text)}:
            headers["Authorization"] = "Basic " + b64encode(text.encode()).decode()
        case {"header": dict(given)}:
            headers.update({name: _text(value) for name, value in given.items()})
        case _:
            raise ToolError(
                "bad_parameters", "auth is {bearer}, {basic: {user, password}}, {header: {name: value}} or a name"
            )
    return headers


def _body(params: HttpParams, headers: dict[str, str]) -> tuple[dict[str, str], bytes]:
    has_type = any(name.lower() == "content-type" for name in headers)
    if params.json is not None:
        headers |= {} if has_type else {"Content-Type": "application/json"}
        return headers, msgspec.json.encode(params.json)
    if params.form is not None:
        headers |= {} if has_type else {"Content-Type": "application/x-www-form-urlencoded"}
        return headers, urlencode([(key, _text(value)) for key, value in params.form.items()]).encode()
    body = params.body if params.body is not None else b""
    if not isinstance(body, str | bytes):
        raise ToolError("bad_parameters", f"body is a text or bytes, found {type(body).__name__}; use json")
    return headers, body.encode() if isinstance(body, str) else body


def _read(body: bytes, header: str, content_type: str) -> Any:
    """The body by its type: JSON as data, text as text, all else as bytes."""
    if content_type == "application/json" or content_type.endswith("+json"):
        try:
            return msgspec.json.decode(body) if body else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return body.decode(errors="replace")
    if content_type.startswith("text/") or content_type in ("application/xml", "application/x-www-form-urlencoded"):
        charset = header.partition("charset=")[2].partition(";")[0].strip(' "') or "utf-8"
        try:
            return body.decode(charset, errors="replace")
        except LookupError:
            return body.decode(errors="replace")
    return body or None


def _expected(status: int, expect: str | int | list[int]) -> bool:
    if isinstance(expect, list):
        return status in expect
    for word in str(expect).replace(",", " ").split():
        if word == "any" or word == str(status) or (word.lower().endswith("xx") and word[0] == str(status)[0]):
            return True
    return False


def _kind(status: int) -> tuple[str, bool]:
    if status == 429:
        return "rate_limit", True
    if status in (401, 403):
        return "auth", False
    if status in (404, 410):
        return "not_found", False
    return ("server_error", True) if status >= 500 else ("client_error", False)


def _short(result: Any) -> Any:
    text = result if isinstance(result, str) else None
    if text is not None:
        return text[:2000]
    return result if not isinstance(result, bytes) and len(str(result)) <= 4000 else None


HTTP: Final = Tool("http", HttpParams, run, ("h11", "http"), (OneOf(("json", "form", "body"), needed=False),))
