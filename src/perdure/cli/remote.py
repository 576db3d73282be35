"""A verb or a request asked of a server: the same parameters, the same answer, over HTTP."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

import msgspec

from perdure import errors
from perdure.verbs.table import Verb

from .exits import Exit, Stopped, exit_of_kind, in_options, kind_of

TOKEN: Final = "PERDURE_TOKEN"
SECONDS: Final = 60.0
NO_ENGINE: Final = "no-engine"
EXITS: Final = {
    401: Exit.DENIED,
    403: Exit.DENIED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    503: Exit.DATABASE,
}


def call(server: str, verb: Verb, params: msgspec.Struct) -> Any:
    """The answer of a server as the struct that the verb answers."""
    given = msgspec.to_builtins(params)
    path = f"/verbs/{urllib.parse.quote(verb.name)}"
    if verb.changes:
        document = _asked(server, "POST", path, body={"params": given})
    else:
        document = _asked(server, "GET", path, query={"params": json.dumps(given)})
    return msgspec.convert(document, verb.answer)


def request(server: str, name: str, given: dict[str, Any], once: str = "") -> Any:
    """The answer to a request of the table of routes, by its name. `once` is the id of the event that it makes."""
    from perdure.server.routes import ROUTES

    (route,) = [each for each in ROUTES if each.name == name]
    said = msgspec.to_builtins(given)
    path = route.path
    for part in route.in_path:
        path = path.replace(f"{{{part}}}", urllib.parse.quote(str(said.pop(part)), safe="/@"))
    told = {name: json.dumps(value) if isinstance(value, bool) else value for name, value in said.items() if value}
    rest: dict[str, Any] = {"query": told} if route.method in ("GET", "DELETE") else {"body": said}
    return msgspec.convert(_asked(server, route.method, path, once=once, **rest), route.answer, strict=False)


def _asked(server: str, method: str, path: str, *, once: str = "", query: Any = None, body: Any = None) -> Any:
    """The document that a server answers. Values are whole."""
    url = f"{server.rstrip('/')}/api/v1{path}"
    if method == "GET":
        url += "?" + urllib.parse.urlencode({**query, "values": "whole"}, doseq=True)
    if not url.startswith(("http://", "https://")):
        raise Stopped(f"--server is the URL of a server such as http://127.0.0.1:7373, found {server!r}")
    headers = {"accept": "application/json", "content-type": "application/json"}
    if once:
        headers["idempotency-key"] = once
    token = os.environ.get(TOKEN)
    if token:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers, method=method), timeout=SECONDS
        ) as answer:
            return json.load(answer, object_hook=_plain)
    except urllib.error.HTTPError as error:
        raise _refused(error) from None
    except (OSError, ValueError) as error:
        raise Stopped(f"{server} does not answer: {error}", Exit.DATABASE, kind="NoServer") from None


def _plain(value: dict[str, Any]) -> Any:
    """Bytes as documents of `--json` have them."""
    return value["$bytes"] if value.keys() == {"$bytes"} else value


def _refused(error: urllib.error.HTTPError) -> Stopped:
    try:
        problem = json.load(error)
        text, kind = in_options(str(problem["detail"])), str(problem["code"])
    except (ValueError, KeyError, TypeError):
        problem, text, kind = {}, f"the server answered {error.code}", "NoServer"
    if error.code == 401:
        text = f"the server knows no login: set {TOKEN} to an API key"
        if os.environ.get(TOKEN):
            text = f"the server refuses the API key in {TOKEN}: it is wrong, expired or revoked"
    known = getattr(errors, str(problem.get("error")), None)
    if isinstance(known, type) and issubclass(known, errors.PerdureError):
        return Stopped(text, exit_of_kind(known), kind=kind_of(known))
    exit = Exit.CONFLICT if kind == NO_ENGINE else EXITS.get(error.code, Exit.USAGE)
    return Stopped(text, exit, kind=kind)
