"""The OpenAPI 3.1 document: made from the table of routes and the structs of parameters and answers."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from perdure.verbs.act import ALSO
from perdure.views.where import FIELDS

from .api.instances import ListQuery
from .reading import JSON, YAML, from_text
from .refusals import status_of
from .routes import API, DEFINITIONS, ROUTES, Route

PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "code", "request"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string"},
        "request": {"type": "string"},
        "error": {"type": "string"},
        "where": {"type": "string"},
        "expected": {},
        "found": {},
        "hint": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}
REFUSED: Final = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
HEADERS: Final = {
    "Idempotency-Key": "The same key again is the same request: it is done once.",
    "If-Match": "The ETag of the instance: the request is refused if the instance has moved on.",
    "X-Reason": "Why, for the journal.",
}


FILTERS: Final = {
    "name": "filters",
    "in": "query",
    "required": False,
    "description": f"Any of {', '.join(FIELDS)}, tag.NAME; `not.FIELD` means not, `.gt` and `.lt` compare.",
    "style": "form",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}
OF_READS: Final = {
    "fields": ("Only these fields of the answer, or of its items: names with commas.", {"type": "string"}),
    "values": ("Large values are not cut.", {"type": "string", "enum": ["whole"]}),
}


@cache
def document() -> dict[str, Any]:
    kinds = [kind for route in ROUTES for kind in (route.params, route.answer)]
    _, components = msgspec.json.schema_components(
        list(dict.fromkeys(kinds)), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(f"{API}{route.path}", {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.1",
        "info": {"title": "perdure", "version": "1", "description": "The verbs of perdure over HTTP."},
        "paths": paths,
        "components": {
            "schemas": {**_plain(components), "Problem": PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([route.answer], ref_template="#/components/schemas/{name}")
    made = "201" if route.name in ("start", "key add", "access link") else "200"
    answers: dict[str, Any] = {made: {"description": "done", "content": {"application/json": {"schema": schema}}}}
    if route.answer is bytes:
        answers = {"200": {"description": "a file", "content": {"application/jsonl": {}, "text/csv": {}}}}
    if route.name == "result":
        answers["202"] = {"description": "still open", "content": {"application/json": {"schema": schema}}}
    if route.name == "effects answer":
        answers["202"] = {"description": "too late: nothing was changed", "content": answers["200"]["content"]}
    for code in route.refusals:
        status = str(status_of(code))
        told = answers.setdefault(status, {"description": "", "content": REFUSED})
        told["description"] = f"{told['description']}, {code}".lstrip(", ")
    answers["default"] = {
        "description": "a problem",
        "content": REFUSED,
    }
    operation: dict[str, Any] = {
        "x-codeSamples": [{"lang": "Shell", "source": sample(route)}],
        "operationId": route.name.replace(" ", "_"),
        "summary": route.help,
        "tags": [route.path.split("/")[1]],
        "parameters": _parameters(route),
        "responses": answers,
    }
    if route.method in ("POST", "PUT", "PATCH"):
        content: dict[str, Any] = {"schema": _body(route)}
        if route.example is not None:
            content["example"] = route.example
        bodies: dict[str, Any] = {JSON: content}
        if route.name in DEFINITIONS:
            bodies[YAML[0]] = {"schema": {"type": "string"}}
        operation["requestBody"] = {"content": bodies}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "example": route.named(name), "schema": {"type": "string"}}
        for name in route.in_path
    ]
    if route.read:
        examples = dict(parse_qsl(route.example or ""))
        for field in msgspec.structs.fields(route.params):
            if field.encode_name not in route.in_path and not (
                issubclass(route.params, ListQuery) and field.name == "filters"
            ):
                schema = _plain(msgspec.json.schema(field.type))
                told = {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}
                if field.encode_name in examples:
                    told["example"] = from_text(field.type, [examples.pop(field.encode_name)], field.encode_name)
                found.append(told)
        if issubclass(route.params, ListQuery):
            found.append({**FILTERS, "example": examples or {"status": "stuck"}})
        found += [
            {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
            for name, (text, schema) in OF_READS.items()
        ]
    else:
        found += [
            {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
            for name, text in HEADERS.items()
        ]
    return found


def sample(route: Route) -> str:
    """The example of a verb as a command."""
    path = API + route.path
    for name in route.in_path:
        path = path.replace(f"{{{name}}}", quote(route.named(name), safe="/"))
    path += f"?{quote(route.example, safe='=&:/')}" if route.read and route.example else ""
    parts = ["curl -H", '"Authorization: Bearer $PERDURE_TOKEN"']
    if not route.read:
        parts += ["-X", route.method]
    if route.method in ("POST", "PUT", "PATCH"):
        parts += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(json.dumps(route.example or {}))]
    return " ".join([*parts, f'"$PERDURE_SERVER{path}"'])


def _body(route: Route) -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components(
        [route.params], ref_template="#/components/schemas/{name}"
    )
    own: dict[str, Any] = _plain(components[reference["$ref"].rpartition("/")[2]])
    properties = {name: each for name, each in own.get("properties", {}).items() if name not in route.in_path}
    also = ALSO.get(route.params, {})
    properties |= {name: properties[own] for name, own in also.items()}
    required = [name for name in own.get("required", []) if name not in (*route.in_path, *also.values())]
    body = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {**body, "oneOf": [{"required": [each]} for pair in also.items() for each in pair]} if also else body


def _plain(schema: Any) -> Any:
    """A schema whose defaults are JSON."""
    return msgspec.json.decode(re.sub(rb'"default":\s*NaN', b'"default":null', msgspec.json.encode(schema)))
