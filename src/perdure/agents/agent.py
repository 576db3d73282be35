"""The agent: a model is asked, its tool calls are made side by side, until it answers without one.

Who makes the calls is a desk: `NodeDesk` in a graph (`node.step`, `node.use`), `FlowDesk` in a flow (`flow.py`). Both
record each call once, and the gate of graphs judges it before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from perdure.errors import BadCall, Denied, PerdureError, StepFailed
from perdure.graphs.model import Limits, Partial, Permit
from perdure.graphs.runs import Node
from perdure.graphs.tools import Tool

from . import prompts
from .model import Message, Model, Reply, ToolCall, as_reply

REPAIRS: Final = 1


class Desk(Protocol):
    """Where an agent works."""

    async def think(self, messages: list[Message]) -> Reply: ...

    async def use(self, name: str, arguments: dict[str, Any]) -> Any: ...


class Agent:
    """A model with tools and instructions.

    model: see `chat` and `scripted`. tools: the only ones that it is told of; in a graph those of the graph are
    meant by default. turns: how often the model is asked at most. output: the type of its answer, where its node has
    none.
    """

    def __init__(
        self,
        model: Model,
        tools: Iterable[Tool] = (),
        system: str = "",
        turns: int = 20,
        output: Any = None,
    ) -> None:
        if not hasattr(model, "reply"):
            raise BadCall(f"an agent needs a model: agents.chat(...) or agents.scripted([...]), found {model!r:.80}")
        if not isinstance(turns, int) or turns < 1:  # type: ignore[redundant-expr]
            raise BadCall(f"turns={turns!r}: an agent has one turn at least")
        self.model = model
        self.tools = [each if isinstance(each, Tool) else Tool(each) for each in tools]  # type: ignore[redundant-expr]
        self.system = system
        self.turns = turns
        self.output = output

    async def __call__(self, node: Node) -> Any:
        """As the runner of a graph."""
        own = {tool.name for tool in self.tools}
        tools = [tool for tool in node.tools if not own or tool.name in own]
        desk = NodeDesk(self.model, node, tools)
        if node.output is not None or node.match is not None or node.labels_of_branches:  # the graph checks the answer
            return await self.converse(desk, prompts.opening(node, self.system))
        return await self.fitting(desk, prompts.opening(node, prompts.with_output(self.system, self.output)))

    async def run(
        self,
        ctx: Any,
        goal: str,
        *,
        permits: Sequence[Permit] = (),
        limits: Limits | Mapping[str, Any] | None = None,
        roles: Sequence[str] = (),
        veto: Sequence[str] = (),
    ) -> Any:
        """In a flow: model calls and tool calls are its steps, the gate of graphs judges them, `ask` is a task."""
        from .flow import FlowDesk

        desk = FlowDesk(self, ctx, permits, limits or Limits(), roles, veto)
        return await desk.work(goal)

    async def fitting(self, desk: Desk, messages: list[Message]) -> Any:
        """The answer as `output` has it. One that does not fit is asked for again, once."""
        for attempt in range(REPAIRS + 1):
            answer = await self.converse(desk, messages)
            if self.output is None or isinstance(answer, Partial):
                return answer
            try:
                return prompts.read_answer(answer, self.output)
            except (PerdureError, ValueError) as error:
                if attempt == REPAIRS:
                    raise
                messages = [
                    *messages,
                    {"role": "assistant", "content": answer},
                    {"role": "user", "content": f"The output does not fit: {error}"},
                ]
        raise AssertionError("the last attempt returns or raises")

    async def converse(self, desk: Desk, messages: list[Message]) -> Any:
        """Ask and do, until the model answers without a tool. After the last turn what it said is partial."""
        reply = Reply()
        for _ in range(self.turns):
            reply = await desk.think(messages)
            messages = [*messages, reply.message()]
            if not reply.calls:
                return reply.text
            messages += await asyncio.gather(*[_answered(desk, call) for call in reply.calls])
        return Partial(reply.text, f"all {self.turns} turns were used")


async def _answered(desk: Desk, call: ToolCall) -> Message:
    """The message that answers a tool call. A denial or an error is an answer to the model, too."""
    try:
        arguments = msgspec.json.decode(call.arguments)
        if not isinstance(arguments, dict):
            raise TypeError(f"expected an object, found {type(arguments).__name__}")
        text = prompts.shown(await desk.use(call.name, arguments))
    except (msgspec.DecodeError, TypeError) as error:
        text = f"error: the arguments of {call.name} are no JSON object: {error}"
    except Denied as denied:
        text = f"denied: {denied.note}"
    except StepFailed as error:
        text = f"error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "content": text}


class NodeDesk:
    """An agent in a graph."""

    def __init__(self, model: Model, node: Node, tools: list[Tool]) -> None:
        self._model = model
        self._node = node
        self._tools = prompts.described(tools)
        if node.may_submit:
            self._tools.append(prompts.SUBMIT)
        if node.budget is not None:
            self._tools.append(prompts.BUDGET)

    async def think(self, messages: list[Message]) -> Reply:
        asked = (messages, self._tools, self._node.model)
        return as_reply(await self._node.step("model", self._model.reply, *asked, usage=_usage))

    async def use(self, name: str, arguments: dict[str, Any]) -> Any:
        node = self._node
        if name == "budget" and node.budget is not None:
            return await node.budget_now()
        if name != "submit_nodes" or not node.may_submit:
            return await node.use(name, **arguments)
        names = await node.submit(arguments.get("nodes") or [])
        if not arguments.get("wait"):
            return {"names": names}
        found = await node.results(names)
        values = {name: each.value if each.trusted else prompts.quoted(each) for name, each in found.items()}
        return {name: {"outcome": each.outcome, "value": values[name]} for name, each in found.items()}


def _usage(reply: Any) -> Mapping[str, float]:
    return as_reply(reply).usage
