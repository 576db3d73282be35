"""A model for tests: its replies are written down, and come in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.errors import Fatal

from .model import Message, Reply, ToolCall


def calls(*wanted: tuple[str, dict[str, Any]], text: str = "", tokens: float = 0) -> Reply:
    """A reply that uses tools: `calls(("search", {"what": "tea"}), ("search", {"what": "salt"}))`."""
    made = tuple(
        [
            ToolCall(f"call-{number}", name, msgspec.json.encode(arguments).decode())
            for number, (name, arguments) in enumerate(wanted, 1)
        ]
    )
    return Reply(text, made, {"tokens": tokens} if tokens else {})


class ScriptedModel:
    """The n-th turn of a conversation gets the n-th reply: one that begins again hears the same."""

    name = "scripted"

    def __init__(self, replies: Sequence[Reply | str | Exception]) -> None:
        self._replies = list(replies)
        self.asked: list[list[Message]] = []  # every conversation that was sent to it

    async def reply(self, messages: list[Message], tools: list[dict[str, Any]], model: str) -> Reply:
        self.asked.append(list(messages))
        turn = sum(message["role"] == "assistant" for message in messages)
        if turn >= len(self._replies):
            raise Fatal(f"the script has {len(self._replies)} replies, and this is turn {turn + 1} of a conversation")
        found = self._replies[turn]
        if isinstance(found, Exception):
            raise found
        return Reply(found) if isinstance(found, str) else found


def scripted(replies: Sequence[Reply | str | Exception]) -> ScriptedModel:
    """A model whose replies are these, in order. A text is a reply that uses no tool, an exception is raised."""
    return ScriptedModel(replies)
