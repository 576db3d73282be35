"""An agent in a flow: model and tool calls are steps of the flow, judged by the gate of graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from perdure.codec import encode, to_plain
from perdure.errors import Denied, TaskCancelled, TaskExpired
from perdure.flows.author import StepFunction, StepOptions
from perdure.graphs import gate
from perdure.graphs.author import Graph
from perdure.graphs.model import Limits, NodeSpec, Permit, Used
from perdure.graphs.opening import form_of
from perdure.graphs.state import Usage, add, usage_problem
from perdure.graphs.tools import Tool

from . import prompts
from .model import Message, Reply, as_reply

if TYPE_CHECKING:
    from .agent import Agent

SPEC: Final = NodeSpec("agent")


class FlowDesk:
    """What one `agent.run` has: its tools, permits, limits, and what it has used so far."""

    def __init__(  # noqa: PLR0917  # what an agent works with
        self,
        agent: Agent,
        ctx: Any,
        permits: Sequence[Permit],
        limits: Limits | Mapping[str, Any],
        roles: Sequence[str],
        veto: Sequence[str],
    ) -> None:
        self._agent = agent
        self._ctx = ctx
        graph = Graph("agent", runner=agent, permits=permits, limits=limits, roles=roles, veto=veto)
        graph.node("agent")
        self._rules = graph.model  # the permits of an agent are checked as those of a graph
        self._tools = graph.tools
        self._goal = ""
        self._equal: Counter[bytes] = Counter()  # calls of tools with equal arguments
        self._used: Usage = {}
        self._reserved: Usage = {}

    async def work(self, goal: str) -> Any:
        agent = self._agent
        self._goal = goal
        system = prompts.with_output(agent.system, agent.output)
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": goal})
        return await agent.fitting(self, messages)

    # ---- the desk of an agent --------------------------------------------------------------------------------------

    async def think(self, messages: list[Message]) -> Reply:
        verdict = gate.budget(self._accounts(), {"calls": 1})
        if verdict.word == "deny":
            raise Denied("model", verdict.stage, verdict.reason)
        tools = prompts.described(gate.offered(SPEC, self._tools, self._rules.permits, self._rules.veto))
        self._reserved = add(self._reserved, {"calls": 1})
        try:
            reply = as_reply(await self._ctx.step("model", self._agent.model.reply, messages, tools, ""))
        finally:
            self._reserved = add(self._reserved, {"calls": 1}, -1)
        self._spend(reply.usage)
        return reply

    async def use(self, name: str, arguments: dict[str, Any]) -> Any:
        equal = encode([name, to_plain(arguments)])
        self._equal[equal] += 1
        verdict = self._judge(name, arguments, nth=self._equal[equal])
        while verdict.permit is not None:  # edited arguments may be for other people to decide
            permit = verdict.permit
            arguments = await self._asked(name, arguments, permit)
            verdict = self._judge(name, arguments, approved=permit)
        if verdict.word == "deny":
            raise Denied(name, verdict.stage, verdict.reason)
        tool = self._tools[name]
        args, kwargs = tool.arguments(tool.bind(arguments))
        self._reserved = add(self._reserved, {"calls": 1})
        try:
            value = await self._ctx.step(f"use:{name}", _step_of(tool), *args, **kwargs)
        finally:
            self._reserved = add(self._reserved, {"calls": 1}, -1)
        usage: Any = {}
        if isinstance(value, dict) and set(value) == {"&used", "usage"}:
            value, usage = value["&used"], value["usage"]
        self._spend(usage)
        return value

    def _judge(
        self, name: str, arguments: dict[str, Any], *, approved: Permit | None = None, nth: int = 0
    ) -> gate.Verdict:
        return gate.use(
            SPEC,
            name,
            arguments,
            tools=self._tools,
            permits=self._rules.permits,
            veto=self._rules.veto,
            accounts=self._accounts(),
            wanted={"calls": 1},
            approved=approved,
            nth=nth,
            repeats=self._rules.limits.repeats if nth else None,
        )

    def _accounts(self) -> list[gate.Account]:
        return [gate.Account("the agent", self._rules.limits, self._used, self._reserved)]

    def _spend(self, usage: Any) -> None:
        fine = not usage_problem(usage)
        self._used = add(self._used, {**(usage if fine else {}), "calls": 1})

    async def _asked(self, name: str, arguments: dict[str, Any], permit: Permit) -> dict[str, Any]:
        """Ask a person; the arguments as the person has left them."""
        roles, users = permit.roles, permit.users
        within = None if permit.within is None else timedelta(seconds=permit.within)
        try:
            done = await self._ctx.task(
                f"ask:{name}",
                answer=form_of(self._tools[name].schema),
                title=f"May the agent use {name}?",
                data={"goal": self._goal, "tool": name, "arguments": arguments},
                roles=list(roles or (() if users else self._rules.roles)),
                users=list(users),
                exclude=[f"agent:{self._ctx.instance}"],
                expire=within,
            )
        except TaskExpired:
            raise Denied(name, "expired", "no person answered in time") from None
        except TaskCancelled as error:
            raise Denied(name, "person", f"the question was cancelled: {error}") from None
        answer = done.answer or {}
        if done.outcome != "approve":
            reason = answer.get("reason") or "no reason was given"
            raise Denied(name, "person", f"{done.by or 'a person'} said no: {reason}")
        return dict(answer.get("arguments", arguments))


def _step_of(tool: Tool) -> StepFunction[..., Any]:
    """A tool with its options as a step. What `Used` says travels with the result."""
    from perdure.graphs.author import is_async

    unknown: Literal["raise"] = "raise"
    executor = None if tool.executor in ("inline", "thread") else tool.executor
    options = StepOptions(
        retries=tool.retries,
        backoff=tool.backoff,
        timeout=tool.timeout,
        executor=executor,
        once=tool.once,
        unknown=unknown,
    )
    if executor is not None:
        return StepFunction(tool.function, options)
    if is_async(tool.function):

        async def call(*args: Any, **kwargs: Any) -> Any:
            return _plain(await tool.function(*args, **kwargs))

        return StepFunction(call, options)

    def call_in_thread(*args: Any, **kwargs: Any) -> Any:
        return _plain(tool.function(*args, **kwargs))

    return StepFunction(call_in_thread, options)


def _plain(value: Any) -> Any:
    return {"&used": value.value, "usage": value.usage} if isinstance(value, Used) else value
