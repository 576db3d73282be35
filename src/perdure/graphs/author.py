"""What an author writes: `Graph` and its nodes. Nothing runs here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from perdure.codec import Signature, decode, encode, from_plain
from perdure.codec.converters.frame import did_you_mean
from perdure.codec.jsonschema import schema_of
from perdure.drawing import draw
from perdure.errors import BadGraph, GraphProblem, PerdureError, TooLarge
from perdure.kernel.decision import Decision
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.limits import Limits as KernelLimits
from perdure.kernel.machine import Machine
from perdure.kernel.policy import Policy
from perdure.kernel.routing import Subscription

from . import fields
from .check import Book, Reading, check_graph, check_tools, warnings_of
from .differences import differs, explain
from .draw import Direction, Format, declared, instance
from .model import ORDERS, TAINTS, Limits, Model, NodeSpec, Permit
from .reducers import REDUCERS
from .tools import Tool

Runner = Callable[..., Any]

SIMPLE: Final[dict[str, Any]] = {each.__name__: each for each in (str, int, float, bool, list, dict)}
"""Types that data may name as an output."""


POLICY: Final = Policy(
    noun="graph",
    rewind=False,
    fork=False,
    wake=False,
    verbs=("submit", "node cancel"),
    why={
        "rewind": "a graph: what failed is retried, and the rest stays done",
        "fork": "a graph: start another one, with done= what is to count as completed",
        "wake": "a graph: nothing in it sleeps",
    },
)


class Declared(msgspec.Struct, frozen=True):
    """A node that was added to a graph. `after=` takes it in place of its name."""

    name: str


def _start(input: Any = None, *, nodes: list[dict[str, Any]] = [], done: dict[str, Any] = {}) -> Any:  # noqa: B006
    """The parameters of a start, as every graph has them."""


class Graph:
    """A governed DAG of agents and functions: a workflow whose definition is data.

    runner: an `async def` (inline) or `def` (in a thread) that is called with a `Node` for each run. runners: others,
    by name, that nodes pick. tools: what runs may use. limits, permits, veto: what the gate says yes and no to. roles:
    who answers the graph's questions. system: text for agents. outputs: nodes whose values are the result (default:
    those that no node waits for). rest_after: seconds of waiting after which a run leaves memory; None: never. order:
    "critical" opens the nodes with the longest remaining path first. taint: "strict" asks a person before a run writes
    that has read what is not trusted. rate: by glob of tools, how many calls may begin in how many seconds; the next
    one waits.
    """

    subscriptions: tuple[Subscription, ...] = ()
    policy = POLICY

    def __init__(
        self,
        name: str,
        *,
        runner: Runner | None = None,
        runners: Mapping[str, Runner] | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        limits: Limits | Mapping[str, Any] | None = None,
        permits: Iterable[Permit | Mapping[str, Any]] = (),
        veto: Iterable[str] = (),
        roles: Iterable[str] = (),
        system: str = "",
        outputs: Iterable[str | Declared] | None = None,
        rest_after: float | timedelta | None = 5,
        order: str = "",
        taint: str = "",
        rate: Mapping[str, tuple[int, float]] | None = None,
        version: str = "1",
    ) -> None:
        self.name = name
        self.version = str(version)
        self.runner = runner
        self.runners = dict(runners or {})
        self.tools: dict[str, Tool] = {}
        self.types: dict[str, Any] = dict(SIMPLE)
        self.reducers: dict[str, Callable[..., Any]] = dict(REDUCERS)
        self.workflows: dict[str, Any] = {}
        self.find: Callable[[str], Any] | None = None  # the workflows of the engine, by name
        self.limits = KernelLimits(bytes=4 * VALUE_MAX)  # of the kernel; those of the graph are in its model
        self.signature = Signature.of(_start)
        self.parameters = self.signature.parameters()
        self._raw: list[dict[str, Any]] = []
        self._wrong: list[GraphProblem] = []
        self._given: dict[str, Any] = {
            "limits": limits,
            "permits": list(permits),
            "veto": list(veto),
            "roles": list(roles),
            "system": system,
            "outputs": None if outputs is None else [getattr(each, "name", each) for each in outputs],
            "rest_after": rest_after,
            "order": order,
            "taint": taint,
            "rate": rate,
        }
        self.outputs = self._given["outputs"]  # None: those that no node waits for
        for each in tools:
            _add_tool(self, each)
        self._brought = _bring(self)  # by tool: the runners that brought it

    def __repr__(self) -> str:
        return f"<graph {self.name} {self.version}>"

    def tools_of(self, spec: NodeSpec) -> dict[str, Tool]:
        """The tools that a node can be permitted: those of the graph, and those that its runner brings."""
        brought = self._brought
        if not brought:
            return self.tools
        return {name: each for name, each in self.tools.items() if spec.runner in brought.get(name, [spec.runner])}

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def node(self, name: str, **fields: Any) -> Declared:
        """One run."""
        return self.declare("node", name, fields)

    def loop(self, name: str, *, max_iters: int, **fields: Any) -> Declared:
        """Runs one after the other, at most `max_iters`; `perdure.Break(value)` ends it earlier."""
        return self.declare("loop", name, {"max_iters": max_iters, **fields})

    def classify(self, name: str, *, branches: Mapping[str, Any], **fields: Any) -> Declared:
        """A run whose output is a label. Nodes of other branches are skipped."""
        return self.declare("classify", name, {"branches": branches, **fields})

    def tournament(self, name: str, *, entrants: Mapping[str, str], **fields: Any) -> Declared:
        """Entrants do the same thing in different ways; judges compare two at a time. The output is the winner's."""
        return self.declare("tournament", name, {"entrants": entrants, **fields})

    def reduce(self, name: str, reducer: str | Callable[..., Any], **fields: Any) -> Declared:
        """A pure function of the outputs of `after`; no run."""
        return self.declare("reduce", name, {"reducer": reducer, **fields})

    def child(self, name: str, workflow: Any, **fields: Any) -> Declared:
        """An instance of another workflow. Its outcome is the node's."""
        return self.declare("child", name, {"workflow": workflow, **fields})

    def wait(self, name: str, **fields: Any) -> Declared:
        """Waits for a time (`seconds=`), a message (`message=`) or the approval of a person (`question=`)."""
        return self.declare("wait", name, fields)

    def declare(self, kind: str, name: str, fields: Mapping[str, Any]) -> Declared:
        """Add a node of any kind, as data."""
        self.add({"name": name, "kind": kind, **fields})
        return Declared(name)

    def add(self, *nodes: Mapping[str, Any]) -> None:
        """Add nodes that are data: mappings of the same fields, with `name` and perhaps `kind`."""
        for each in nodes:
            self._raw.append(self.named(each) if isinstance(each, Mapping) else each)  # type: ignore[redundant-expr]
        for read in ("_read", "specs"):
            self.__dict__.pop(read, None)

    def named(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The same fields, with types, functions and workflows by their names. The objects are kept here."""
        found = dict(given)
        output, reducer, workflow = found.get("output"), found.get("reducer"), found.get("workflow")
        if output is None:
            found.pop("output", None)
        elif _is_type(output):
            name = type_name(output)
            self.types[name] = output
            found["output"] = name
        if reducer is not None and not isinstance(reducer, str) and callable(reducer):
            name = getattr(reducer, "__name__", repr(reducer))
            self.reducers[name] = reducer
            found["reducer"] = name
        if workflow is not None and not isinstance(workflow, str) and hasattr(workflow, "encode_plain_input"):
            self.workflows[workflow.name] = workflow
            found["workflow"] = workflow.name
        return found

    # ---- the model -----------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The graph as data; `BadGraph` if it cannot run."""
        model, problems = self._read
        if problems:
            raise BadGraph(self.name, problems)
        return model

    @property
    def problems(self) -> tuple[GraphProblem, ...]:
        """Everything that is wrong with it."""
        return self._read[1]

    @property
    def warnings(self) -> list[GraphProblem]:
        """What is allowed and seldom meant."""
        return warnings_of(self._read[0], {name: tool.writes for name, tool in self.tools.items()})

    @functools.cached_property
    def _read(self) -> tuple[Model, tuple[GraphProblem, ...]]:
        given = self._given
        reading = Reading(self.book)
        reading.problems += self._wrong
        nodes = reading.read(self._raw)
        values: dict[str, Any] = {}
        for name, read in _OPTIONS.items():
            try:
                values[name] = read(given[name])
            except ValueError as error:
                reading.tell(name, f"expected {error}, found {given[name]!r:.80}")
        outputs = values.pop("outputs", None)
        values["outputs"] = default_outputs(nodes) if outputs is None else outputs
        model = Model(name=self.name, version=self.version, nodes=tuple(nodes), **values)
        check_graph(model, reading)
        _check_functions(self, reading)
        check_tools(model, self.tools, reading)
        return model, tuple(reading.problems)

    @property
    def book(self) -> Book:
        given = self._given["roles"]
        return Book(
            runners=self.runners.keys(),
            has_runner=self.runner is not None,
            tools=self.tools.keys(),
            reducers=self.reducers.keys(),
            types=self.types.keys(),
            roles=bool(given),
        )

    def problems_among(self, known: Collection[str]) -> tuple[GraphProblem, ...]:
        """Children of workflows that are not among these. The nodes of a graph with other problems are not known."""
        unknown = [each for each in self.model.nodes if each.workflow and each.workflow not in known]
        return tuple([GraphProblem(each.name, _unknown(each.workflow, known)) for each in unknown])

    @functools.cached_property
    def specs(self) -> dict[str, NodeSpec]:
        """The declared nodes by name."""
        return {spec.name: spec for spec in self.model.nodes}

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of its runners and tools: workers of queues find the functions there."""
        runners = [*self.runners.values(), *([] if self.runner is None else [self.runner])]
        functions = [*runners, *[tool.function for tool in self.tools.values()]]
        return tuple(dict.fromkeys(each.__module__ for each in functions if hasattr(each, "__qualname__")))

    def runner_of(self, spec: NodeSpec) -> Runner:
        found = self.runners[spec.runner] if spec.runner else self.runner
        assert found is not None, "a node without a runner is a problem"
        return found

    def type_of(self, spec: NodeSpec) -> Any:
        return self.types.get(spec.output)

    # ---- what the kernel needs (perdure.kernel.machine.Workflow) ---------------------------------------------------

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        from .machine import GraphMachine

        return GraphMachine(self, address, snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return differs(recorded, current)

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return explain(difference)

    def draw(self, format: Format = "svg", direction: Direction = "LR") -> str:
        """The graph as SVG, Mermaid or JSON."""
        return draw(declared(self.model), format, direction, title=self.name)

    def draw_instance(self, machine: Machine, format: Format = "svg", direction: Direction = "LR") -> str:
        """A running graph, or one that has ended, with the outcome of each node."""
        from .machine import GraphMachine

        assert isinstance(machine, GraphMachine)
        return draw(instance(machine.state), format, direction, title=f"{self.name}/{machine.state.key}")

    def read_state(self, machine: Machine) -> Any:
        from .machine import GraphMachine
        from .report import report_of

        assert isinstance(machine, GraphMachine)
        return report_of(machine.state)

    # ---- what callers need (perdure.app) ---------------------------------------------------------------------------

    def registered(self) -> None:
        """An engine takes it up: a graph with problems is refused."""
        _ = self.model

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        from .growth import authored

        nodes = kwargs.get("nodes") or ()
        given = authored(nodes.name, nodes.as_batch()) if isinstance(nodes, Graph) else nodes
        if isinstance(given, list | tuple):
            kwargs = {**kwargs, "nodes": [portable(each) for each in given]}
        return self._input(self.signature.bind(args, kwargs))

    def encode_plain_input(self, value: Any) -> bytes:
        """Input that comes as JSON: an object has `input`, `nodes` and `done`; anything else is the input."""
        return self._input(self.signature.bind_plain(value))

    def as_batch(self) -> dict[str, Any]:
        """The graph as a run submits it: its nodes, and the limits and vetoes that tighten theirs."""
        given = self._given
        return {
            "nodes": [portable(each) for each in self._raw],
            "limits": _without_object(given["limits"]),
            "veto": list(given["veto"]),
        }

    def _input(self, plain: dict[str, Any]) -> bytes:
        from .growth import begin

        begun = begin(self, plain)
        problems = begun.problems or _unknown_children(self, [spec for spec, _, _ in begun.nodes])
        if problems:
            raise BadGraph(self.name, tuple(problems))
        data = encode(plain)
        if len(data) > VALUE_MAX:
            raise TooLarge(f"the input of {self.name}", len(data), VALUE_MAX)
        return data

    def decode_result(self, value: bytes) -> Any:
        plain = decode(value)
        outputs = self.model.outputs
        if len(outputs) != 1:
            return plain
        spec = next((each for each in self.model.nodes if each.name == outputs[0]), None)
        wanted = None if spec is None else self.type_of(spec)
        return plain if wanted is None or plain is None else from_plain(plain, wanted)


def _add_tool(graph: Graph, given: Any) -> None:
    made = given if isinstance(given, Tool) else Tool(given) if callable(given) else None
    if made is None:
        graph._wrong.append(GraphProblem("tools", f"a tool is a function, found {given!r:.80}"))
    elif graph.tools.setdefault(made.name, made) is not made:
        graph._wrong.append(GraphProblem("tools", f"two tools are named {made.name!r}"))


def _bring(graph: Graph) -> dict[str, list[str]]:
    """Add the tools of runners, as agents have them: they are for their nodes alone, unless the graph has them too."""
    brought: dict[str, list[str]] = {}
    for name, runner in {"": graph.runner, **graph.runners}.items():
        tools = getattr(runner, "tools", ())
        for each in tools if isinstance(tools, list | tuple) else ():
            if isinstance(each, Tool) and (each.name not in graph.tools or each.name in brought):
                _add_tool(graph, each)
                brought.setdefault(each.name, []).append(name)
    return brought


def _unknown_children(graph: Graph, added: Iterable[NodeSpec]) -> list[GraphProblem]:
    """Nodes whose workflow the engine does not know; none, where no engine has taken the graph up."""
    find = graph.find
    named = [each for each in (*graph.model.nodes, *added) if each.workflow and each.workflow not in graph.workflows]
    unknown = [each for each in named if find is not None and find(each.workflow) is None]
    return [GraphProblem(each.name, _unknown(each.workflow, graph.workflows)) for each in unknown]


def default_outputs(nodes: Iterable[NodeSpec]) -> tuple[str, ...]:
    """The nodes that no other waits for."""
    nodes = list(nodes)
    waited = {name for spec in nodes for _, name in spec.after}
    return tuple([spec.name for spec in nodes if spec.name not in waited])


def _is_type(output: Any) -> bool:
    """Whether an output is a type of Python: a text names one, other data is a problem."""
    return not isinstance(output, str | bool | int | float | list | tuple | set | Mapping)


def type_name(kind: Any) -> str:
    """The one name of a type: that of data, or its JSON Schema."""
    for name, simple in SIMPLE.items():
        if kind is simple:
            return name
    try:
        return msgspec.json.encode(schema_of(kind), order="deterministic").decode()
    except PerdureError:
        return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', repr(kind))}"


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def portable(node: Any) -> Any:
    """A node as plain data: types, functions and workflows by their names."""
    if not isinstance(node, Mapping):
        return node
    found = {field: _without_object(value) for field, value in node.items()}
    output, workflow = found.get("output"), found.get("workflow")
    if output is None:
        found.pop("output", None)
    elif _is_type(output):
        found["output"] = type_name(output)
    if workflow is not None and not isinstance(workflow, str):
        found["workflow"] = getattr(workflow, "name", workflow)
    return found


def _without_object(value: Any) -> Any:
    """Structs of this dialect as mappings: they travel as plain data."""
    if isinstance(value, msgspec.Struct):
        return {name: each for name, each in msgspec.structs.asdict(value).items() if each is not None}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return [getattr(each, "name", each) if isinstance(each, Declared) else each for each in value]
    return value


def _permits(given: list[Any]) -> tuple[Permit, ...]:
    return tuple([_permit(each) for each in given])


def _permit(given: Any) -> Permit:
    found = msgspec.structs.asdict(given) if isinstance(given, Permit) else given
    if not isinstance(found, Mapping) or not {"glob", "verdict"} <= set(found) <= set(Permit.__struct_fields__):
        raise ValueError("permits of a glob and a verdict, with where, within, roles and users")
    found = dict(found)
    if not isinstance(found["glob"], str) or not isinstance(found.get("where", {}), Mapping):
        raise ValueError("permits whose glob is a text and whose where has conditions by argument")
    for name in ("roles", "users"):
        found[name] = fields.texts(found.get(name, ()))
    found["within"] = fields.duration(found.get("within"))
    return Permit(**{**found, "where": fields.plain(dict(found.get("where", {})))})


_OPTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "limits": fields.limits,
    "permits": _permits,
    "veto": fields.texts,
    "roles": fields.texts,
    "system": fields.text,
    "outputs": lambda given: None if given is None else fields.texts(given),
    "rest_after": fields.duration,
    "order": fields.one_of(*ORDERS),
    "taint": fields.one_of(*TAINTS),
    "rate": fields.rate,
}


def _unknown(name: str, known: Collection[str]) -> str:
    there = f"; there are: {', '.join(sorted(known))}{did_you_mean(name, known)}" if known else ""
    return f"unknown workflow {name!r:.80}{there}; register it: workflows=[...]"


def _check_functions(graph: Graph, reading: Reading) -> None:
    runners = {**graph.runners, **({} if graph.runner is None else {"": graph.runner})}
    for name, runner in runners.items():
        where = f"runners[{name!r}]" if name else "runner"
        if not callable(runner):
            reading.tell(where, f"a runner is a function of one argument, the node; found {runner!r:.80}")
