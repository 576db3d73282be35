"""Models behind any server that speaks chat-completions, by perdure's own HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
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
        asked = {"model": model or self.name, "messages": messages, **self._options}
        if tools:
            asked["tools"] = tools
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
                    return _reply(found)
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
    **options: Any,
) -> ChatModel:
    """A model on a server that speaks chat-completions: `chat("https://llm.example/v1", "small", key=Secret("llm"))`.

    key: the name of a secret, sent as a bearer token. allow: hosts or networks besides the public ones: a server of
    your own. timeout: seconds for one answer. Other options, such as `temperature`, go into each request.
    """
    return ChatModel(base_url, model, key=key, allow=allow, timeout=timeout, options=options)


def _refused(status: int, body: bytes) -> Exception:
    text = body[:500].decode(errors="replace")
    kind = Fatal if 400 <= status < 500 and status not in AGAIN else RuntimeError
    return kind(f"the model's server answered {status}: {text}")


def _reply(body: bytes) -> Reply:
    try:
        found = msgspec.json.decode(body)
        message = found["choices"][0]["message"]
        made = tuple(
            [
                ToolCall(str(each["id"]), str(each["function"]["name"]), str(each["function"].get("arguments") or "{}"))
                for each in message.get("tool_calls") or ()
            ]
        )
        text = message.get("content") or ""
        usage = found.get("usage") or {}
        tokens = usage.get("total_tokens")
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
        raise RuntimeError(f"the model's server sent no chat completion: {error!r:.200}") from None
    counted = isinstance(tokens, int | float) and not isinstance(tokens, bool) and tokens >= 0
    return Reply(
        text if isinstance(text, str) else str(text), made, {"tokens": tokens} if counted and tokens is not None else {}
    )
