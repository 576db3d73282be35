"""What an agent knows of a model: messages in, a reply out."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from perdure.codec import from_plain

Message = dict[str, Any]
"""One message of a conversation, in the form that chat-completions servers take."""


class ToolCall(msgspec.Struct, frozen=True):
    """A model wants to use a tool. `arguments` is its text: a model may write anything there."""

    id: str
    name: str
    arguments: str = "{}"


class Reply(msgspec.Struct, frozen=True):
    """What a model answers: text, tool calls, or both; and what it cost."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: dict[str, float] = {}

    def message(self) -> Message:
        """The same as a message of the conversation."""
        found: Message = {"role": "assistant", "content": self.text}
        if self.calls:
            found["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        return found


def as_reply(found: Any) -> Reply:
    """What a model has answered: a reply, the same as recorded (of a model without annotations), or a text."""
    if isinstance(found, str):
        return Reply(found)
    reply: Reply = found if isinstance(found, Reply) else from_plain(found, Reply)
    return reply


class Model(Protocol):
    @property
    def name(self) -> str: ...

    async def reply(self, messages: list[Message], tools: list[dict[str, Any]], model: str) -> Reply:
        """The next message of the assistant. `model` is a hint of the node; empty: the model's own choice."""
        ...
