"""How the executor of effects performs tools: parameters put together, secrets in, large results out.

What a call has recorded is plain data, with secrets and stored values beside it. Here the stored values are read, the
tool runs, and a large result is stored before its receipt is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.executors.info import step_info
from perdure.executors.redaction import hidden
from perdure.executors.secrets import EnvironmentSecrets, inject
from perdure.kernel.batch import Publication
from perdure.ports.executor import Work
from perdure.ports.secrets import Secret, SecretParts, Secrets

from .tool import Told, Tool, ToolCall, ToolError, find, names

PREFIX: Final = "tools/"
PREVIEW: Final = 200
INLINE_MAX: Final = 65_536
RESULT_MAX: Final = 16 * 1024 * 1024


class Blobs(Protocol):
    """What this needs of `ports.store.Queries`."""

    async def put_blobs(self, bodies: list[bytes], at: int) -> list[bytes]: ...

    async def blob(self, digest: bytes) -> bytes | None: ...


class Surroundings(msgspec.Struct):
    """What the operator of an engine or worker gives to its tools."""

    allow: tuple[str, ...] = ()
    connections: Mapping[str, Any] = {}  # a text, a Secret, or a map of those, by name
    blobs: Any = None
    now: Callable[[], int] | None = None
    secrets: Secrets | None = None

    async def perform(self, tool: Tool, given: Mapping[str, Any]) -> Told:
        """A tool as a step of a flow: secrets get their values here."""
        (params, connections), redaction = inject(
            (dict(given), self._named(given)), self.secrets or EnvironmentSecrets()
        )
        call = ToolCall(step_info().idempotency_key, allow=self.allow, connections=connections)
        try:
            told = await tool.run(tool.read(params), call)
        except ToolError as error:
            more = redaction.value(error.more)
            details = redaction.value(error.details)
            text = redaction.text(str(error))
            made = ToolError(
                error.kind, text, retryable=error.retryable, status=error.status, details=details, more=more
            )
            raise made from None
        return msgspec.structs.replace(told, result=redaction.value(to_plain(told.result))) if redaction else told

    def _named(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The connection that the parameters name: no other secret is looked at."""
        name = given.get("auth")
        return {name: self.connections[name]} if isinstance(name, str) and name in self.connections else {}


_current: ContextVar[Surroundings | None] = ContextVar("perdure_surroundings", default=None)


def surroundings() -> Surroundings:
    return _current.get() or Surroundings()


def enter(found: Surroundings) -> None:
    """From here on, in this context, tools that flows call as steps have these surroundings."""
    _current.set(found)


class ToolHandler:
    """Performs the calls of one tool."""

    is_async = True

    def __init__(self, name: str, around: Surroundings) -> None:
        self.effect = name
        self._around = around

    def work(self, asked: Any, key: str, publication: Publication) -> Work:
        tool = find(self.effect.removeprefix(PREFIX))
        params = with_secrets(asked["params"], asked.get("secrets", ()))
        named = self._around._named(params if isinstance(params, dict) else {})
        effect = publication.effect
        call = ToolCall(
            publication.identity.idempotency_key(effect.location, effect.life),
            60.0 if effect.timeout is None else effect.timeout / 1e9,
            publication.delivery,
            self._around.allow,
            named,
        )
        return Work(self._perform, (tool, params, call, asked), {}, Any)

    async def _perform(self, tool: Tool, params: Any, call: ToolCall, asked: Mapping[str, Any]) -> Any:
        for path, kept in asked.get("refs", ()):
            try:
                body = await load(self._around.blobs, kept["blob"]["hash"])
            except LookupError as error:
                raise ToolError("ref_missing", str(error)) from None
            params = _put(params, path, body)
        told = await tool.run(tool.read(params), call)
        return await self._answer(told, asked)

    async def _answer(self, told: Told, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The result in the receipt, or stored beside it if it is large."""
        plain = to_plain(told.result)
        redaction = hidden()
        if redaction is not None:  # before it is stored: a blob must not have the values of secrets
            plain = redaction.value(plain)
        body = encode(plain)
        if len(body) > asked.get("result_max", RESULT_MAX):
            raise ToolError(
                "limit_exceeded", f"the result has {len(body):,} bytes; executor.spec.limits.max_result_bytes"
            )
        if len(body) <= asked.get("inline_max", INLINE_MAX) or self._around.blobs is None:
            return {"result": plain, **told.more}
        ref = await store(self._around, body, plain, told.content_type, asked.get("select", {}))
        return {"ref": ref, **told.more}


class ValueHandler:
    """Reads parts of stored values, and stores values that an expression made."""

    is_async = True

    def __init__(self, name: str, around: Surroundings) -> None:
        self.effect = name
        self._around = around

    def work(self, asked: Any, key: str, publication: Publication) -> Work:
        return Work(self._read if self.effect.endswith("read") else self._put, (asked["params"], asked), {}, Any)

    async def _put(self, params: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
        return {"ref": await store(self._around, params["data"], decode(params["data"]), "", {})}

    async def _read(self, params: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
        value = await load(self._around.blobs, params["digest"])
        for key in params["path"]:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return {"absent": True}
        if "slice" in params:
            first, last = params["slice"]
            items = value if isinstance(value, list) else [{"key": key, "value": value[key]} for key in sorted(value)]
            return {"result": items[first:last]}
        body = encode(value)
        if len(body) <= asked.get("inline_max", RESULT_MAX):
            return {"result": value}
        return {"ref": await store(self._around, body, value, "", {})}


def handlers(around: Surroundings) -> Callable[[str], Any]:
    """The handler of a name, or None: made when it is first asked for."""
    made: dict[str, Any] = {}

    def found(name: str) -> Any:
        if name not in made:
            if name.startswith(PREFIX) and name.removeprefix(PREFIX) in names():
                made[name] = ToolHandler(name, around)
            elif name in ("values/read", "values/put"):
                made[name] = ValueHandler(name, around)
        return made.get(name)

    return found


async def load(blobs: Blobs | None, hash: str) -> Any:
    body = None if blobs is None else await blobs.blob(bytes.fromhex(hash.removeprefix("sha256:")))
    if body is None:
        raise LookupError(f"there is no stored value {hash}")
    return decode(body)


async def store(
    around: Surroundings, body: bytes, value: Any, content_type: str, select: Mapping[str, str]
) -> dict[str, Any]:
    """Keep a value as a blob, and say what is known of it."""
    assert around.now is not None
    (digest,) = await around.blobs.put_blobs([body], around.now())
    shown = value if isinstance(value, str) else json.dumps(value, default=str)[: 4 * PREVIEW]
    return {
        "blob": {"hash": f"sha256:{digest.hex()}", "size": len(body)},
        "length": len(value) if isinstance(value, list | dict | str) else None,
        "content_type": content_type,
        "preview": shown[:PREVIEW],
        "fields": {name: found for name, path in select.items() if (found := _at(value, path)) is not None},
    }


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.lstrip("-").isdecimal() and -len(value) <= int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def with_secrets(params: Any, secrets: Any) -> Any:
    """The parameters with references to secrets in their places. Only what stands beside the data is one."""
    for path, parts in secrets:
        made = SecretParts(tuple(each if isinstance(each, str) else Secret(each["secret"]) for each in parts))
        params = _put(params, path, made)
    return params


def _put(value: Any, path: list[Any], item: Any) -> Any:
    """A copy with an item at a path."""
    if not path:
        return item
    first, rest = path[0], path[1:]
    if isinstance(value, list):
        return [_put(each, rest, item) if index == first else each for index, each in enumerate(value)]
    return {**value, first: _put(value.get(first), rest, item)}
