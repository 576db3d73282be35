"""A verb asked of a server: the same parameters, the same answer, over HTTP."""

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
    url = f"{server.rstrip('/')}/api/v1/verbs/{urllib.parse.quote(verb.name)}"
    body: bytes | None = None
    if verb.changes:
        body = json.dumps({"params": given}).encode()
    else:
        url += "?" + urllib.parse.urlencode({"params": json.dumps(given), "values": "whole"})
    if not url.startswith(("http://", "https://")):
        raise Stopped(f"--server is the URL of a server such as http://127.0.0.1:7373, found {server!r}")
    headers = {"accept": "application/json", "content-type": "application/json"}
    token = os.environ.get(TOKEN)
    if token:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        raise _refused(error) from None
    except (OSError, ValueError) as error:
        raise Stopped(f"{server} does not answer: {error}", Exit.DATABASE, kind="NoServer") from None
    return msgspec.convert(document, verb.answer)


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
    return Stopped(text, EXITS.get(error.code, Exit.USAGE), kind=kind)
