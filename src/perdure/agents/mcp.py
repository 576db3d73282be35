"""Tools of MCP servers, for graphs and agents. The protocol is that of the official package, imported when it is used.

Hints of a server are not believed: a tool counts as writing unless the operator says otherwise. One connection serves
one call, so a cut call leaves nothing behind that another could meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.codec.jsonschema import read
from perdure.errors import BadCall, NotInstalled
from perdure.graphs.model import fits_any
from perdure.graphs.tools import Tool


class McpTool(Tool):
    """One tool of a server, named `<server>.<tool>`."""

    def __init__(self, server: Any, prefix: str, described: Any, *, writes: bool, timeout: float | None) -> None:
        async def call(arguments: dict[str, Any]) -> Any:
            return await _called(server, described.name, arguments)

        super().__init__(call, name=f"{prefix}.{described.name}", writes=writes, retries=0, timeout=timeout)
        self.description = described.description or ""
        self._schema: dict[str, Any] = dict(described.input_schema or {"type": "object"})

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        read(self._schema, dict(arguments))
        described = self._schema.get("properties")
        fields = described.items() if isinstance(described, dict) else ()
        defaults = {name: each.get("default") for name, each in fields if isinstance(each, dict)}
        return {**{name: each for name, each in defaults.items() if each is not None}, **arguments}

    def arguments(self, plain: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (dict(plain),), {}

    @property
    def returns(self) -> Any:  # plain data, whatever the server says
        return None

    @property
    def schema(self) -> dict[str, Any]:
        return self._schema


async def mcp(server: Any, name: str, *, reads: Sequence[str] = (), timeout: float | None = 60) -> list[Tool]:
    """The tools of an MCP server: `tools=[*await agents.mcp("https://files.example/mcp", "files", reads=["list_*"])]`.

    server: a URL, `mcp.StdioServerParameters`, or a server object of the package. name: what the names of its tools
    begin with. reads: globs of its tools that only read; all others count as writing.
    """
    if not name or "." in name or "/" in name:
        raise BadCall(f"the name of an MCP server is a text without dots and slashes, found {name!r:.80}")
    async with _client(server) as client:
        found = await client.list_tools()
    return [
        McpTool(server, name, each, writes=not fits_any(tuple(reads), each.name), timeout=timeout)
        for each in found.tools
    ]


async def _called(server: Any, name: str, arguments: dict[str, Any]) -> Any:
    async with _client(server) as client:
        result = await client.call_tool(name, arguments)
    texts = [each.text for each in result.content if getattr(each, "text", None) is not None]
    if result.is_error:
        raise RuntimeError("\n".join(texts) or f"the MCP tool {name} failed")
    structured = result.structured_content
    if isinstance(structured, dict) and set(structured) == {"result"}:  # how the package wraps a plain value
        return structured["result"]
    return structured if structured is not None else "\n".join(texts)


def _client(server: Any) -> Any:
    try:
        from mcp import Client
    except ImportError:
        raise NotInstalled("tools of MCP servers", "mcp") from None
    return Client(server)
