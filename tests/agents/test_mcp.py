"""Tools of a real MCP server, in a process of its own, by the official package."""

from __future__ import annotations

import sys

import pytest

import perdure
from perdure.agents import Agent, calls, mcp, scripted
from perdure.graphs import Graph

SERVER = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("files")

@server.tool()
def list_files(folder: str, deep: bool = False) -> list[str]:
    """The files of a folder."""
    return [f"{folder}/a", f"{folder}/b"]

@server.tool()
def delete(path: str) -> str:
    """Delete a file."""
    if path == "/":
        raise ValueError("not that one")
    return f"deleted {path}"

server.run("stdio")
'''


@pytest.fixture
def files(tmp_path):
    from mcp import StdioServerParameters  # here: it takes a second

    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return StdioServerParameters(command=sys.executable, args=[str(path)])


async def test_an_mcp_tool_counts_as_writing_unless_the_operator_says_otherwise(files):
    tools = {tool.name: tool for tool in await mcp(files, "files", reads=["list_*"])}
    assert {name: tool.writes for name, tool in tools.items()} == {"files.list_files": False, "files.delete": True}
    assert tools["files.delete"].schema["required"] == ["path"]
    assert tools["files.list_files"].bind({"folder": "x"}) == {"folder": "x", "deep": False}, "permits judge defaults"


async def test_an_agent_uses_tools_of_a_server(files, tmp_path):
    model = scripted(
        [
            calls(("files.list_files", {"folder": "x"}), ("files.delete", {"path": "/"}), ("files.delete", {"pth": 1})),
            calls(("files.delete", {"path": "x/a"})),
            "done",
        ]
    )
    graph = Graph("files", runner=Agent(model), tools=await mcp(files, "files", reads=["list_*"]))
    graph.node("tidy")
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        assert await (await engine.start(graph, key="k")).result() == "done"
    told = [message["content"] for message in model.asked[-1] if message["role"] == "tool"]
    assert told[0] == '["x/a","x/b"]'
    assert told[1].startswith("error: ")
    assert told[2].startswith("denied: files.delete was denied (arguments)")
    assert told[3] == "deleted x/a"


async def test_read_only_nodes_do_not_use_them(files, tmp_path):
    model = scripted([calls(("files.delete", {"path": "x"})), "no"])
    graph = Graph("careful", runner=Agent(model), tools=await mcp(files, "files"))
    graph.node("look", role="explore")
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        assert await (await engine.start(graph, key="k")).result() == "no"
    assert "isolation" in model.asked[-1][-1]["content"]
