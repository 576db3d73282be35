"""The parameters of a verb: from the path of a request, and from the query of a read or the body of a write."""

from __future__ import annotations

from typing import Any

from perdure.errors import BadFilter

from .api.instances import ORDERS, ListQuery
from .http import Request
from .problems import HttpProblem
from .reading import JSON, YAML, fields_of, from_text, no_such, read_json, read_query, read_text, to_struct
from .routes import DEFINITIONS, Route


def read_params(request: Request, route: Route, named: dict[str, str], body: bytes) -> Any:
    fields = fields_of(route.params)
    if route.read:
        query = read_query(request.query)
        if (values := query.pop("values", ["whole"])) != ["whole"]:
            text = f"values is `whole`, or is left out; found {values[0]!r:.80}"
            raise HttpProblem(422, "bad-request", text, where="/values")
        query.pop("fields", None)
        if issubclass(route.params, ListQuery):
            for order in query.get("order", ()):
                if order not in ORDERS:
                    raise BadFilter(no_such("order", order, ORDERS), "/order")
            filters = {name: query.pop(name) for name in list(query) if name not in fields}
            given: dict[str, Any] = {"filters": filters} if filters else {}
        else:
            given = {}
        given |= {name: from_text(_type(fields, name), texts, name) for name, texts in query.items()}
    else:
        given = _body(request, route, body) if body else {}
    for name, text in named.items():
        value = from_text(_type(fields, name), [text], name)
        if given.setdefault(name, value) != value:
            raise HttpProblem(422, "bad-request", f"{name} is {value!r} in the path, and another one in the body")
    return to_struct(route.params, given)


def _type(fields: dict[str, Any], name: str) -> Any:
    return fields[name].type if name in fields else str


def _body(request: Request, route: Route, body: bytes) -> dict[str, Any]:
    media = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if media in YAML and route.name in DEFINITIONS:
        return {"text": read_text(body)}
    if media != JSON:
        raise HttpProblem(415, "wrong-media-type", f"a body is {JSON}, found {media[:80]!r}")
    value = read_json(body)
    if isinstance(value, list) and route.name == "start":
        return {"instances": value}
    if not isinstance(value, dict):
        raise HttpProblem(422, "bad-request", f"a body is a JSON object, found {type(value).__name__}")
    return value
