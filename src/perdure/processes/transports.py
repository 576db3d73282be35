"""What performs the calls of processes: transports of users for services, and requests. Steps have their handler."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from perdure.codec import decode, encode
from perdure.codec.jsonschema import to_json
from perdure.errors import (
    AddressRefused,
    BadCall,
    BadRequest,
    CallerError,
    RequestFailed,
    ResponseTooLarge,
)
from perdure.kernel.batch import Publication
from perdure.ports.executor import Handler, Work
from perdure.ports.secrets import Secret

from .calls import HTTP, PYTHON, SERVICE
from .functions import Request, Transport, TransportError

RETRIED: Final = (408, 429)
BODY_SHOWN: Final = 4096


class HttpHeader(msgspec.Struct):
    name: str
    value: str | Secret


class HttpRequest(msgspec.Struct):
    method: str
    url: str
    headers: list[HttpHeader]
    body: bytes


class HttpCall(msgspec.Struct):
    timeout: int | None


def handlers(given: Iterable[Any], http: Callable[..., Any], steps: Callable[[str], Handler]) -> list[Handler]:
    """`given` are the handlers of users. Those of other dialects are left to them."""
    transports: dict[str, Transport] = {}
    for each in given:
        if isinstance(each, Transport):
            if transports.setdefault(each.name, each) is not each:
                raise BadCall(f"two transports are named {each.name!r}: a service has one")
        elif not hasattr(each, "effect"):
            raise CallerError(f"{each!r} is not a handler; did you forget @transport(name)?")
    return [_Steps(steps(PYTHON)), _Requests(http), _Services(transports)]


class _Steps:
    """The handler of steps, with plain data in and out."""

    effect = PYTHON
    is_async = False

    def __init__(self, steps: Handler) -> None:
        self._steps = steps

    def work(self, params: Any, key: str, publication: Publication) -> Work:
        asked = {"function": params["function"], "arguments": encode(params["arguments"])}
        work = self._steps.work(asked, key, publication)
        function = work.function

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return decode((await function(*args, **kwargs))["result"])

        def called(*args: Any, **kwargs: Any) -> Any:
            value = function(*args, **kwargs)
            return later(value) if inspect.isawaitable(value) else decode(value["result"])

        async def later(value: Any) -> Any:
            return decode((await value)["result"])

        perform = awaited if inspect.iscoroutinefunction(function) else called
        return Work(perform, work.args, work.kwargs, work.returns)


class _Services:
    effect = SERVICE
    is_async = True

    def __init__(self, transports: Mapping[str, Transport]) -> None:
        self._transports = transports

    def work(self, params: Any, key: str, publication: Publication) -> Work:
        transport = self._transports.get(params["service"])
        if transport is None:
            known = ", ".join(sorted(self._transports)) or "none"
            raise BadCall(f"there is no transport {params['service']!r} here; known are: {known}; handlers=[...]")
        return Work(_perform, (transport, params["command"], params["payload"], publication), {}, Any)


async def _perform(transport: Transport, command: str, payload: Any, publication: Publication) -> Any:
    effect = publication.effect
    span = None if effect.timeout is None else timedelta(microseconds=effect.timeout // 1000)
    request = Request(
        command,
        payload,
        publication.identity.idempotency_key(effect.location, effect.life),
        effect.attempt,
        None if span is None else datetime.now(UTC) + span,
        str(publication.address),
    )
    return await transport.perform(request)


class _Requests:
    effect = HTTP
    is_async = True

    def __init__(self, http: Callable[..., Any]) -> None:
        self._http = http

    def work(self, params: Any, key: str, publication: Publication) -> Work:
        """A secret gets its value where the request is made. It stands in the definition, never in data."""
        headers = [HttpHeader(name, _value(text, secret)) for name, text, secret in params["headers"]]
        named = {header.name for header in headers}
        body = b""
        if params["payload"] is not None:
            body = json.dumps(to_json(params["payload"]), ensure_ascii=False, separators=(",", ":")).encode()
            if "content-type" not in named:
                headers.append(HttpHeader("content-type", "application/json"))
        if "idempotency-key" not in named:
            effect = publication.effect
            headers.append(
                HttpHeader("idempotency-key", publication.identity.idempotency_key(effect.location, effect.life))
            )
        request = HttpRequest(params["method"], params["url"], headers, body)
        return Work(_request, (self._http, request, HttpCall(publication.effect.timeout)), {}, Any)


def _value(text: str | None, secret: dict[str, Any] | None) -> str | Secret:
    if secret is None:
        return text or ""
    return Secret(secret["secret"], secret.get("digest"), secret.get("prefix", ""))


async def _request(http: Callable[..., Any], request: HttpRequest, call: HttpCall) -> Any:
    try:
        response = await http(request, call)
    except (AddressRefused, BadRequest) as error:
        raise TransportError("address", str(error), retry=False) from error
    except ResponseTooLarge as error:
        raise TransportError("too-large", str(error), retry=False) from error
    except RequestFailed as error:
        raise TransportError("no-answer", str(error)) from error
    status, body = response["status"], response["body"]
    value = _decoded(body, {each["name"].lower(): each["value"] for each in response["headers"]})
    if 200 <= status < 300:
        return value
    retry = status in RETRIED or status >= 500
    shown = value if len(body) <= BODY_SHOWN else None
    raise TransportError(
        f"http-{status}", f"{request.method} {request.url}: {status}", retry, {"status": status, "body": shown}
    )


def _decoded(body: bytes, headers: Mapping[str, str]) -> Any:
    """JSON as its data, other text as a text, anything else as bytes; null if there is nothing."""
    if not body:
        return None
    kind = headers.get("content-type", "").lower()
    try:
        if "json" in kind:
            return msgspec.json.decode(body)
        return body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        if "json" in kind:
            raise TransportError("no-json", "the answer says that it is JSON, and it is not", retry=False) from None
        return body
