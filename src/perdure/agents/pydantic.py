"""Agents of pydantic-ai as runners of graphs. The package is imported when it is used.

Its model calls are steps of the run: recorded once, by a digest that leaves out timestamps and run ids, which differ
each time that a run begins. The tools of the graph are offered to the agent and are `node.use`. The agent's own tools
run inside of the run: the gate judges each call, and its result is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.errors import BadCall, Denied, NotInstalled, StepFailed
from perdure.graphs import gate
from perdure.graphs.runs import Node

from . import prompts

CHANGING: Final = frozenset({"timestamp", "run_id", "conversation_id"})
"""Members of messages that are new each time that a run begins."""


class PydanticRunner:
    """See `pydantic`."""

    def __init__(self, agent: Any, reads: tuple[str, ...], deps: Any) -> None:
        self._agent = agent
        self._reads = reads
        self._deps = deps

    async def __call__(self, node: Node) -> Any:
        from . import pydantic_parts as parts

        agent = self._agent
        model = agent.model
        if model is None:
            raise BadCall("the pydantic-ai agent has no model: give it one, Agent(model=...)")
        own = [
            each.visit_and_replace(lambda toolset: parts.OwnTools(toolset, node, self._reads))
            for each in agent.toolsets
        ]
        first = prompts.opening(node, "")
        texts = {message["role"]: message["content"] for message in first}
        with agent.override(model=parts.RecordedModel(model, node), toolsets=[*own, parts.GraphTools(node)], tools=[]):
            done = await agent.run(texts["user"], deps=self._deps, instructions=texts.get("system"))
        return done.output


def pydantic(agent: Any, *, reads: Sequence[str] = (), deps: Any = None) -> PydanticRunner:
    """A pydantic-ai agent as a runner: `Graph("desk", runner=agents.pydantic(agent), tools=[...])`.

    The tools of the graph are offered to it. reads: globs of its own tools that only read; all others count as writing.
    deps: what its own tools get as `ctx.deps`, the same in each run.
    """
    try:
        from pydantic_ai.agent import AbstractAgent
    except ImportError:
        raise NotInstalled("agents of pydantic-ai", "pydantic-ai") from None
    if not isinstance(agent, AbstractAgent):
        raise BadCall(f"agents.pydantic takes an agent of pydantic-ai, found {agent!r:.80}")
    return PydanticRunner(agent, tuple(reads), deps)


def settled(value: Any) -> Any:
    """Messages as plain data, without what is new each time."""
    if isinstance(value, Mapping):
        return {name: settled(each) for name, each in value.items() if name not in CHANGING}
    return [settled(each) for each in value] if isinstance(value, list) else value


def refusal(node: Node, name: str, arguments: dict[str, Any], *, writes: bool) -> gate.Verdict:
    """What the gate says of a tool that only the agent knows. A person can be asked for tools of the graph alone."""
    found = node.judged(name, arguments, writes=writes)
    if found.word == "ask":
        return gate.deny("permit", "a person must be asked, which only a tool of the graph can: give it to the graph")
    return found


async def answered(node: Node, name: str, arguments: dict[str, Any]) -> Any:
    """Use a tool of the graph. A denial or an error is an answer to the model."""
    try:
        return await node.use(name, **arguments)
    except Denied as denied:
        return f"denied: {denied.note}"
    except StepFailed as error:
        return f"error: {error}"
