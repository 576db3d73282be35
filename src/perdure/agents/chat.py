"""Models behind any server that speaks chat-completions, by perdure's own HTTP client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.errors import BadCall, Fatal, RequestFailed
from perdure.executors.secrets import EnvironmentSecrets, inject
from perdure.ports.secrets import Secret, Secrets

from .model import Message, Reply, ToolCall

TRIES: Final = 4
"""How often a request is sent that the server puts off: 429, 502, 503, 504, and a connection that fails."""

AGAIN: Final = frozenset({429, 502, 503, 504})
WAIT_MAX: Final = 60.0
ANSWER_MAX: Final = 8 * 1024 * 1024
NOT_ON_THE_WIRE: Final = re.compile(r"[^a-zA-Z0-9_-]")


class ChatModel:
    """See `chat`."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        key: Secret | None = None,
        allow: Iterable[str] = (),
        timeout: float = 120,
        secrets: Secrets | None = None,
        options: dict[str, Any] | None = None,
        wait: float = 1.0,
    ) -> None:
        if key is not None and not isinstance(key, Secret):
            raise BadCall("key= takes a reference: perdure.Secret('name'); its value comes from the environment")
        self.name = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = None if key is None else Secret(key.name, key.digest, key.prefix or "Bearer ")
        self._allow = tuple(allow)
        self._timeout = timeout
        self._secrets = secrets or EnvironmentSecrets()
        self._options = dict(options or {})
        self._wait = wait

    async def reply(self, messages: list[Message], tools: list[dict[str, Any]], model: str) -> Reply:
        names = {wire_name(each["function"]["name"]): each["function"]["name"] for each in tools}
        asked = {"model": model or self.name, "messages": [_on_the_wire(each) for each in messages], **self._options}
        if tools:
            asked["tools"] = [_renamed(each) for each in tools]
        body = msgspec.json.encode(asked)
        for attempt in range(1, TRIES + 1):
            wait = min(WAIT_MAX, self._wait * 2 ** (attempt - 1))
            try:
                status, found, after = await self._send(body)
            except RequestFailed:
                if attempt == TRIES:
                    raise
            else:
                if status == 200:
                    return _reply(found, names)
                if status not in AGAIN or attempt == TRIES:
                    raise _refused(status, found)
                wait = min(WAIT_MAX, after) if after is not None else wait
            await asyncio.sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _send(self, body: bytes) -> tuple[int, bytes, float | None]:
        from perdure.executors.http import request  # ssl and h11 take their time

        headers: dict[str, Any] = {"content-type": "application/json"}
        redact: Any = None
        if self._key is not None:
            injected, redact = inject({"authorization": self._key}, self._secrets)
            headers |= injected
        response = await request(
            "POST", self._url, headers, body, timeout=self._timeout, max_body=ANSWER_MAX, allow=self._allow
        )
        del redact  # an answer of a model does not hold the key that it was asked with
        after = response.header("retry-after")
        return response.status, response.body, float(after) if after is not None and after.isdigit() else None


def chat(
    base_url: str,
    model: str,
    *,
    key: Secret | None = None,
    allow: Iterable[str] = (),
    timeout: float = 120,
    secrets: Secrets | None = None,
    **options: Any,
) -> ChatModel:
    """A model on a server that speaks chat-completions: `chat("https://llm.example/v1", "small", key=Secret("llm"))`.

    key: the name of a secret, sent as a bearer token. allow: hosts or networks besides the public ones: a server of
    your own. timeout: seconds for one answer. secrets: where the key comes from; the environment, unless given. Other
    options, such as `temperature`, go into each request.
    """
    return ChatModel(base_url, model, key=key, allow=allow, timeout=timeout, secrets=secrets, options=options)


def wire_name(name: str) -> str:
    """The name of a tool as servers take it, which refuse dots: `files.read` is `files__read`."""
    return NOT_ON_THE_WIRE.sub("__", name)


def _renamed(item: dict[str, Any]) -> dict[str, Any]:
    """A tool or a tool call under its name on the wire."""
    function = item["function"]
    return {**item, "function": {**function, "name": wire_name(function["name"])}}


def _on_the_wire(message: Message) -> Message:
    made = message.get("tool_calls")
    return {**message, "tool_calls": [_renamed(each) for each in made]} if made else message


def _refused(status: int, body: bytes) -> Exception:
    text = body[:500].decode(errors="replace")
    kind = Fatal if 400 <= status < 500 and status not in AGAIN else RuntimeError
    return kind(f"the model's server answered {status}: {text}")


def _reply(body: bytes, names: Mapping[str, str]) -> Reply:
    """`names`: of tools, by their names on the wire."""
    try:
        found = msgspec.json.decode(body)
        message = found["choices"][0]["message"]
        made = tuple([_call(each, names) for each in message.get("tool_calls") or ()])
        text = message.get("content") or ""
        usage = found.get("usage") or {}
        parts = [usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0]
        tokens = usage.get("total_tokens", sum(parts) or None)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
        raise RuntimeError(f"the model's server sent no chat completion: {error!r:.200}") from None
    counted = isinstance(tokens, int | float) and not isinstance(tokens, bool) and tokens >= 0
    return Reply(
        text if isinstance(text, str) else str(text), made, {"tokens": tokens} if counted and tokens is not None else {}
    )


def _call(each: Any, names: Mapping[str, str]) -> ToolCall:
    name, arguments = str(each["function"]["name"]), each["function"].get("arguments")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return ToolCall(str(each["id"]), names.get(name, name), text or "{}")
