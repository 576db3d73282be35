"""The live side of a run: the `Node` that a runner gets, its requests, and what its return means.

Nothing here changes the state of a graph: a request travels to the machine as an event and comes back as an answer. A
run that begins again, after a crash or a rest, hears the recorded answers first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.codec import decode, digest, encode, from_plain, to_plain
from perdure.codec.converters.records import hints_of
from perdure.errors import (
    BadCall,
    CallerError,
    Denied,
    NotInRun,
    OutcomeUnknown,
    PerdureError,
    StepFailed,
    StepTimeout,
    TooLarge,
)
from perdure.kernel.backoff import Backoff
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.loops import Break, Continue
from perdure.kernel.receipt import Failure
from perdure.ports import asking
from perdure.ports.executor import Work

from . import gate
from .author import Graph, is_async, portable
from .life import filled_goal, read_result
from .model import Limits, Match, NodeSpec, Partial, Result, Used, lower
from .state import NodeState, Run, answer_of
from .tools import Tool

if TYPE_CHECKING:
    from .machine import GraphMachine
    from .turn import Turn


class Node:
    """One run of a node, as its runner sees it. The requests are for inline runs (`async def`), while they run."""

    def __init__(self, spec: NodeSpec, goal: str, input: Any, graph: Graph | None = None) -> None:
        self.name = spec.name
        self.goal = goal
        self.template = spec.goal  # before its references were filled
        self.input = input  # of the graph
        self.inputs: dict[str, Result] = {}
        self.iteration = 0
        self.previous: Any = None
        self.notes: list[str] = []
        self.budget: dict[str, Any] | None = None
        self.match: Match | None = None
        self.kind = spec.kind
        self.role = spec.role
        self.isolation = spec.isolation
        self.context = spec.context
        self.trust: Literal["trusted", "quarantined"] = spec.trust  # type: ignore[assignment]
        self.model = spec.model
        self.labels = spec.labels
        self.limits: Limits = spec.limits
        self.priority = spec.priority
        self.after = dict(spec.after)  # full names by alias
        self.needs = spec.needs
        self.runner, self.queue = spec.runner, spec.queue
        self.veto = spec.veto
        self.repairs, self.retries, self.backoff = spec.repairs, spec.retries, spec.backoff
        self.timeout, self.once = spec.timeout, spec.once
        self.rest, self.approve = spec.rest, spec.approve
        self.output = None if graph is None else graph.type_of(spec)
        self.labels_of_branches = tuple(spec.branches)
        self.system = "" if graph is None else graph.model.system
        self.actor = ""
        self.tools: list[Tool] = []
        self.may_submit = True
        self.tainted = False
        self._graph = graph
        self._spec = spec
        self._recorded: Mapping[str, bytes] = {}
        self._counts: Counter[str] = Counter()
        self._ask_instance: asking.Ask | None = None

    def __repr__(self) -> str:
        return f"<node {self.name}>"

    # ---- requests --------------------------------------------------------------------------------------------------

    async def submit(self, nodes: Iterable[Mapping[str, Any]] | Graph) -> list[str]:
        """Add nodes to the graph, beside this run. Gives their full names; `Denied` if the gate does not take them."""
        batch: Any = nodes.as_batch() if isinstance(nodes, Graph) else [portable(each) for each in nodes]
        answer = await self._ask("submit", "submit", _plain("submit", batch))
        return list(answer["v"])

    async def use(self, tool: str | Tool, /, **arguments: Any) -> Any:
        """Use a tool. `Denied` if the gate or a person says no, `StepFailed` if the tool fails for good."""
        name = tool if isinstance(tool, str) else tool.name
        body = {"tool": name, "arguments": _plain(name, arguments)}
        value = (await self._ask("use", name, body))["v"]
        known = self._tool(name)
        return value if known is None or known.returns is None else _read(value, known.returns)

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        reserve: Mapping[str, float] | None = None,
        usage: Mapping[str, float] | Callable[[Any], Mapping[str, float]] | None = None,
    ) -> Any:
        """Call a function here and record its result, its arguments by their digest alone. For calls of models.

        `reserve` counts against the budget until the result is there; `usage`, or what it gives for the result, counts
        then.
        """
        content = digest(encode(_plain(name, list(args))))
        body = {"name": name, "arguments": content, "reserve": _plain(name, reserve or {})}
        id = self._next_id("step", name, content)
        answer = await self._answered(id, "step", body)
        returns = hints_of(getattr(function, "__func__", function), None).get("return")
        if "go" not in answer:
            return _read(answer["v"], returns)
        try:
            found = function(*args)
            value = await found if isawaitable(found) else found
            plain = to_plain(value)
            if (size := len(encode(plain))) > VALUE_MAX:
                raise TooLarge(f"the result of {name}", size, VALUE_MAX)
            cost = _cost(usage, value)
        except Exception as error:
            failure = Failure(type(error).__name__, str(error)[:2000])
            await self._send(f"{id}!", "done", {"step": id, "f": [failure.type, failure.message]})
            raise StepFailed(name, 1, (failure,)) from error
        await self._send(f"{id}!", "done", {"step": id, "v": plain, "usage": cost})
        return _read(plain, returns)

    async def results(self, names: Iterable[str]) -> dict[str, Result]:
        """What became of nodes, once all of them have ended. Holds no place meanwhile."""
        names = [names] if isinstance(names, str) else list(names)
        answer = await self._ask("results", "results", _plain("results", names))
        found = {each[0]: self._result(*each) for each in answer["r"]}
        self._taint(found.values())
        return found

    async def sleep(self, seconds: float | timedelta) -> None:
        """Wait durably. Holds no place meanwhile, and rests if it is long."""
        amount = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        await self._ask("sleep", "sleep", _plain("sleep", {"seconds": amount}))

    async def receive(self, name: str) -> Any:
        """Wait for a message to the graph, and give its body: `handle.send(name, body)`."""
        return (await self._ask("receive", str(name), {"name": name}))["v"]

    async def budget_now(self) -> dict[str, Any] | None:
        """Used, limit and left of each axis as they are now; `budget` is from the opening of the run."""
        found: dict[str, Any] | None = (await self._ask("budget", "budget", None))["v"]
        return found

    def judged(self, name: str, arguments: Mapping[str, Any], *, writes: bool) -> gate.Verdict:
        """What the gate says of a call that the run itself performs: a tool that only its runner knows."""
        graph = self._graph
        if graph is None:
            return gate.deny("permit", "a run on a queue has no tools")
        return gate.use(
            self._spec,
            name,
            arguments,
            tools={name: OwnTool(_anything, name=name, writes=writes)},
            permits=graph.model.permits,
            veto=graph.model.veto,
            accounts=(),
            wanted={},
            tainted=self.tainted,
        )

    def _taint(self, read: Iterable[Result]) -> None:
        if self._graph is not None and self._graph.model.taint:
            self.tainted = self.tainted or not all(each.trusted for each in read)

    def _tool(self, name: str) -> Tool | None:
        return None if self._graph is None else self._graph.tools.get(name)

    def _result(self, name: str, value: Any, *rest: Any) -> Result:
        spec = None if self._graph is None else self._graph.specs.get(name)
        kind = None if spec is None or self._graph is None else self._graph.type_of(spec)
        return Result(name, value if value is None else _read(value, kind), *rest)

    # ---- how they travel -------------------------------------------------------------------------------------------

    async def _ask(self, kind: str, name: str, body: Any) -> dict[str, Any]:
        return await self._answered(self._next_id(kind, name, digest(encode(body))), kind, body)

    def _next_id(self, kind: str, name: str, content: str) -> str:
        """Equal for equal requests, and for the how many-th of them this is."""
        key = f"{kind} {name} {content[-32:]}"
        self._counts[key] += 1
        return f"{key} {self._counts[key]}"

    async def _answered(self, id: str, kind: str, body: Any) -> dict[str, Any]:
        recorded = self._recorded.get(id)
        answer = self._heard(recorded) if recorded is not None else await self._send(id, kind, body)
        if "d" in answer:
            raise Denied(*answer["d"])
        for word, error in (("f", StepFailed), ("t", StepTimeout), ("u", OutcomeUnknown)):
            if word in answer:
                name, attempts, errors = answer[word]
                raise error(name, attempts, tuple([Failure(*each) for each in errors]))
        return answer

    async def _send(self, id: str, kind: str, body: Any) -> dict[str, Any]:
        if self._ask_instance is None:
            raise NotInRun(f"node.{kind}")
        return self._heard(await self._ask_instance(id, kind, encode(body)))

    def _heard(self, data: bytes) -> dict[str, Any]:
        answer: dict[str, Any] = decode(data)
        self.notes += answer.get("n", ())
        return answer


class OwnTool(Tool):
    """A tool that the graph does not know. Its runner has checked the arguments."""

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)


def _anything() -> None:
    """Stands for the function of a tool that is only judged here."""


def _cost(usage: Any, value: Any) -> Any:
    """What a step says that it cost. The result is not lost where that makes no sense: the machine judges it."""
    try:
        return to_plain(usage(value) if callable(usage) else usage)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def _plain(what: str, value: Any) -> Any:
    try:
        return to_plain(value)
    except CallerError as error:
        raise BadCall(f"the arguments of {what}: {error}") from None


def _read(plain: Any, kind: Any) -> Any:
    if kind is None:
        return plain
    try:
        return from_plain(plain, kind)
    except PerdureError:
        return plain


# ---- what the machine gives to executors -----------------------------------------------------------------------------


def work(machine: GraphMachine, intent: bytes) -> object:
    """The live work of an open call: a runner with its node, or a tool with its arguments."""
    kind, name, request_id = machine.state.intents.get(intent, ("", "", ""))
    node = machine.state.nodes.get(name)
    if node is None or node.run is None:
        return None
    if kind == "run":
        made = node_of(machine, node, node.run)
        return _run_work(machine.graph.runner_of(node.the), made)
    if kind == "use":
        request = node.run.requests[request_id]
        tool = machine.graph.tools[request.name]
        args, kwargs = tool.arguments(request.args)
        return _tool_work(tool.function, args, kwargs)
    return None


def _run_work(runner: Callable[..., Any], node: Node) -> Work:
    inline = is_async(runner)
    return Work(
        perform if inline else perform_in_thread,
        (runner, node),
        {},
        None,
        asks=inline,
        scripted=lambda script: _run_work(script, node),
    )


def _tool_work(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    return Work(
        call if is_async(function) else call_in_thread,
        (function, args, kwargs),
        {},
        None,
        scripted=lambda script: _tool_work(script, args, kwargs),
    )


def node_of(machine: GraphMachine, node: NodeState, run: Run) -> Node:
    """What a runner gets. Equal each time that the run begins, but for the answers that it has heard by then."""
    graph, state, spec = machine.graph, machine.state, node.the
    model = machine.model
    made = Node(spec, machine.goal(node), decode(state.input), graph)
    for alias, name in spec.after:
        dependency = state.nodes[name]
        if dependency.status == "ended":
            made.inputs[alias] = read_result(graph, dependency)
    made.tainted = bool(model.taint) and not node.trusted
    made._taint(made.inputs.values())
    made.iteration = node.iteration
    made.previous = decode(node.previous) if node.previous else None
    made.notes = node.notes[: run.notes]
    made.budget = run.budget
    made.actor = state.actor
    if node.left:
        left, right = state.nodes[node.left], state.nodes[node.right]
        made.match = Match(read_result(graph, left), read_result(graph, right))
    made.tools = gate.offered(spec, graph.tools_of(spec), model.permits, model.veto)
    depth = lower(model.limits.depth, spec.limits.depth)
    made.may_submit = depth is None or node.depth < depth
    answered = [request for request in run.requests.values() if request.status == "answered"]
    made._recorded = {request.id: answer_of(state, request) for request in answered}
    return made


async def perform(runner: Callable[..., Any], node: Node) -> list[Any]:
    node._ask_instance = asking.current.get(None)
    try:
        return packed(await runner(node))
    finally:
        node._ask_instance = None


def perform_in_thread(runner: Callable[..., Any], node: Node) -> list[Any]:
    return packed(runner(node))


async def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    return _of_tool(await function(*args, **kwargs))


def call_in_thread(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    return _of_tool(function(*args, **kwargs))


def _of_tool(value: Any) -> list[Any]:
    usage: Any = {}
    if isinstance(value, Used):
        value, usage = value.value, value.usage
    return [to_plain(value), usage]


def packed(value: Any) -> list[Any]:
    """What a runner returned, as its receipt has it: a word, the value, usage, reason."""
    usage: Any = None
    if isinstance(value, Used):
        value, usage = value.value, value.usage
    word, reason = "value", ""
    if isinstance(value, Break):
        word, value = "break", value.value
    elif isinstance(value, Continue):
        value = value.state
    elif isinstance(value, Partial):
        word, reason, value = "partial", value.reason, value.value
    if isinstance(value, Used):
        value, usage = value.value, value.usage
    try:
        plain = to_plain(value)
        size = len(encode(plain))
        if size > VALUE_MAX:
            raise TooLarge("the output", size, VALUE_MAX)
    except CallerError as error:
        return ["output", str(error)]
    if reason:
        return [word, plain, usage, reason]
    return [word, plain, usage] if usage else [word, plain]


# ---- runs on queues ------------------------------------------------------------------------------------------------


def parameters(turn: Turn, node: NodeState, run: Run, runner: Callable[..., Any]) -> bytes:
    """What a worker of a queue needs to call a runner: its name, and the node as data."""
    nodes = turn.state.nodes
    data = {
        "spec": msgspec.to_builtins(msgspec.structs.replace(node.the, backoff=Backoff())),
        "goal": filled_goal(turn, node),
        "input": decode(turn.state.input),
        "inputs": {alias: _told(nodes[name]) for alias, name in node.the.after if nodes[name].status == "ended"},
        "iteration": node.iteration,
        "previous": decode(node.previous) if node.previous else None,
        "notes": node.notes[: run.notes],
        "match": [_told(nodes[node.left]), _told(nodes[node.right])] if node.left else None,
        "system": turn.model.system,
        "actor": turn.state.actor,
    }
    called = f"{runner.__module__}:{runner.__qualname__}"
    return encode({"call": called, "args": [data], "kwargs": {}, "through": "perdure.graphs.runs:on_queue"})


def _told(node: NodeState) -> list[Any]:
    value = decode(node.value) if node.value else None
    return [node.name, value, node.outcome, node.trusted, node.reason]


def on_queue(runner: Callable[..., Any], data: dict[str, Any]) -> Any:
    """Call a runner with a node that came as data. It can make no requests."""
    made = Node(msgspec.convert(data["spec"], NodeSpec), data["goal"], data["input"])
    made.inputs = {alias: Result(*each) for alias, each in data["inputs"].items()}
    made.iteration, made.previous, made.notes = data["iteration"], data["previous"], data["notes"]
    made.match = None if data["match"] is None else Match(*[Result(*each) for each in data["match"]])
    made.system, made.actor, made.may_submit = data["system"], data["actor"], False
    return perform(runner, made) if is_async(runner) else perform_in_thread(runner, made)
