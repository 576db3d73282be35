"""Agents of pydantic-ai, the real package, with its own model for tests: recorded, judged, killed between two tools."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import perdure
from perdure import agents
from perdure.errors import BadCall
from perdure.graphs import Graph, Limits, Permit, report, tool
from perdure.testing import World, crash_test

ASKED: list[int] = []


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """First the agent's own tool and one of the graph, side by side; then the answer, with what they said."""
    ASKED.append(len(messages))
    if len(messages) == 1:
        calls = [ToolCallPart("own", {"number": 3}), ToolCallPart("web__look", {"what": "tea"})]
        return ModelResponse(parts=calls)
    said = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ModelResponse(parts=[TextPart(" | ".join(said))])


def made() -> Agent[None, str]:
    agent = Agent(FunctionModel(model), instructions="Be brief.")

    @agent.tool_plain
    async def own(number: int) -> int:
        return number * 2

    return agent


@tool(name="web.look")
async def look(what: str) -> str:
    """Look something up."""
    return f"saw {what}"


def desk(**options) -> Graph:
    graph = Graph("desk", runner=agents.pydantic(made()), tools=[look], **options)
    graph.node("answer", goal="What is ${input}?")
    return graph


def result(graph: Graph) -> object:
    with World() as world:
        return world.start(graph, "tea").result()


def test_a_pydantic_ai_agent_runs_a_node_with_its_own_tools_and_those_of_the_graph():
    assert result(desk()) == "6 | saw tea"


def test_its_calls_are_recorded_once_through_every_crash():
    report = crash_test(desk(), "tea", reset=ASKED.clear, observe=lambda: sorted(set(ASKED)), pairs=10, random=5)
    assert report.singles > 5


def test_the_gate_judges_its_own_tools_too():
    assert "own was denied (veto)" in str(result(desk(veto=["own"])))
    assert "only a tool of the graph" in str(result(desk(permits=[Permit("own", "ask", roles=("r",))])))
    quiet = Graph("quiet", runner=agents.pydantic(made()), tools=[look])
    quiet.node("answer", goal="?", role="explore")
    assert "own was denied (isolation)" in str(result(quiet))
    reading = Graph("reading", runner=agents.pydantic(made(), reads=["own"]), tools=[look])
    reading.node("answer", goal="?", role="explore")
    assert result(reading) == "6 | saw tea"


async def test_its_tokens_count(tmp_path):
    graph = desk(limits=Limits(tokens=10_000))
    async with perdure.open(tmp_path / "a.db", workflows=[graph]) as engine:
        handle = await engine.start(graph, "tea", key="k")
        await handle.result()
        assert (await report(handle))["used"]["tokens"] > 50


def test_what_is_no_agent_is_refused():
    with pytest.raises(BadCall, match="an agent of pydantic-ai"):
        agents.pydantic("gpt")


AGENT = """
import asyncio, sys
import perdure
from perdure import agents
from perdure.graphs import Graph, tool
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

def model(messages, info):
    turn = len(messages) // 2
    with open("model.txt", "a") as file:
        file.write(f"{turn}\\n")
    names = ["record", "slow", "record"]
    if turn < 3:
        arguments = {"text": str(turn)} if names[turn] == "record" else {}
        return ModelResponse(parts=[ToolCallPart(names[turn], arguments)])
    return ModelResponse(parts=[TextPart("done")])

@tool(writes=True)
async def record(text: str) -> str:
    with open("told.txt", "a") as file:
        file.write(text + "\\n")
    return text

@tool
async def slow() -> str:
    open("reached.txt", "w").close()
    await asyncio.sleep(0 if sys.argv[1] == "again" else 60)
    return "slow"

graph = Graph("agent", runner=agents.pydantic(Agent(FunctionModel(model))), tools=[record, slow])
graph.node("talk", goal="Talk.")

async def main() -> None:
    async with perdure.open("agent.db", workflows=[graph]) as engine:
        print(await (await engine.start(graph, key="k")).result())

asyncio.run(main())
"""


def run_agent(folder: Path, word: str) -> subprocess.Popen[str]:
    command = [sys.executable, "agent.py", word]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ})


async def test_a_pydantic_ai_agent_survives_a_kill_between_two_tools(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    process = run_agent(tmp_path, "first")
    while not (tmp_path / "reached.txt").exists():
        await asyncio.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()

    again = run_agent(tmp_path, "again")
    said, _ = await asyncio.to_thread(again.communicate)

    assert said.strip() == "done"
    assert (tmp_path / "model.txt").read_text().split() == ["0", "1", "2", "3"], "no model call was bought twice"
    assert (tmp_path / "told.txt").read_text().split() == ["0", "2"]
