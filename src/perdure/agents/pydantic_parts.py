"""The classes of pydantic-ai that stand between its agents and a run. Only `pydantic.py` imports this, on use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, core_schema, to_jsonable_python

from perdure.graphs.model import fits_any
from perdure.graphs.runs import Node

from .chat import wire_name
from .pydantic import answered, refusal, settled

ANYTHING = SchemaValidator(core_schema.dict_schema())
"""Arguments of a tool of the graph: the gate checks them, and tells the model what is wrong."""


class RecordedModel(WrapperModel):
    """Each request is a step of the run."""

    def __init__(self, wrapped: Any, node: Node) -> None:
        super().__init__(wrapped)
        self._node = node

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        async def ask(asked: Any) -> Any:
            response = await self.wrapped.request(messages, model_settings, model_request_parameters)
            return ModelMessagesTypeAdapter.dump_python([response], mode="json")

        asked = settled(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))
        said = await self._node.step("model", ask, asked, usage=_usage)
        [response] = ModelMessagesTypeAdapter.validate_python(said)
        assert isinstance(response, ModelResponse), "what was recorded is a response"
        return response


def _usage(said: Any) -> dict[str, float]:
    usage = said[0].get("usage") or {}
    return {"tokens": (usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0)}


@dataclass
class OwnTools(WrapperToolset[Any]):
    """The agent's own tools: judged, then performed by the run, and recorded."""

    wrapped: AbstractToolset[Any]
    node: Node
    reads: tuple[str, ...]

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        async def call(arguments: Any) -> Any:
            return to_jsonable_python(await self.wrapped.call_tool(name, tool_args, ctx, tool))

        arguments = to_jsonable_python(tool_args)
        verdict = refusal(self.node, name, arguments, writes=not fits_any(self.reads, name))
        if verdict.word == "deny":
            return f"denied: {name} was denied ({verdict.stage}): {verdict.reason}"
        return await self.node.step(f"tool {name}", call, arguments)


@dataclass
class GraphTools(AbstractToolset[Any]):
    """The tools of the graph that the node may use."""

    node: Node

    @property
    def id(self) -> str | None:
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {wire_name(tool.name): self._tool(tool) for tool in self.node.tools}

    def _tool(self, tool: Any) -> ToolsetTool[Any]:
        described = ToolDefinition(
            name=wire_name(tool.name), parameters_json_schema=tool.schema, description=tool.description
        )
        return ToolsetTool(toolset=self, tool_def=described, max_retries=1, args_validator=ANYTHING)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        known = {wire_name(each.name): each.name for each in self.node.tools}
        return to_jsonable_python(await answered(self.node, known.get(name, name), tool_args))
