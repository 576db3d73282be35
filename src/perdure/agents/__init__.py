"""Agents: a loop of model calls and tool calls, each recorded once and judged before it runs.

An `Agent` is a runner of a graph, and makes any flow an agent: `await agent.run(ctx, goal)`.
"""

from .agent import Agent
from .chat import ChatModel, chat
from .mcp import mcp
from .model import Model, Reply, ToolCall
from .pydantic import pydantic
from .scripted import calls, scripted

__all__ = ["Agent", "ChatModel", "Model", "Reply", "ToolCall", "calls", "chat", "mcp", "pydantic", "scripted"]
