"""A definition as a workflow: what the kernel runs, and what callers start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.codec import decode, digest, encode, to_plain
from perdure.drawing.draw import Format
from perdure.drawing.model import Direction
from perdure.errors import CallerError, NotConvertible, TooLarge
from perdure.kernel.decision import Decision
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.limits import VALUE_MAX, Limits
from perdure.kernel.machine import Machine
from perdure.kernel.policy import Policy
from perdure.kernel.routing import Subscription
from perdure.ports.dialect import Stored

from .check import load
from .kinds import OURS, Kind
from .machine import PlaybookMachine
from .model import Definition, Playbook, net_of, to_bytes
from .picture import graph_of
from .problem import Problem, meant
from .scope import Compiler
from .state import state_of
from .verdict import without_place

NOUN: Final = "playbook"
POLICY: Final = Policy(
    NOUN,
    exact=True,
    rewind=False,
    fork=False,
    verbs=("patch", "pause", "resume"),
    why={
        "rewind": "a playbook: its steps are not undone; start a new instance, or retry a failed one",
        "fork": "a playbook: start another instance with the input that you want",
    },
)
LIMITS: Final = Limits(bytes=2 * VALUE_MAX)  # the entry of the end has a result and the summary


class PlaybookWorkflow:
    """A playbook that an engine can run: `perdure.open(url, workflows=[perdure.load_playbook("restock.yaml")])`."""

    parameters = b""
    subscriptions: tuple[Subscription, ...] = ()
    limits = LIMITS
    policy = POLICY
    keeps_state = True

    def __init__(self, definition: Definition, warnings: tuple[Problem, ...] = ()) -> None:
        self.definition = definition
        self.name = definition.playbook.name
        self.version = definition.version
        self.warnings = warnings
        self.tools, self.secrets = _needed(definition.playbook)
        self.watched: set[str] | None = None  # gets the paths of the rules that decide, for `simulate`
        self.compiler = Compiler(definition)
        self.net = net_of(definition.playbook)

    def __repr__(self) -> str:
        return f"<playbook {self.name} {self.version}>"

    @property
    def stored(self) -> Stored:
        """The definition as it is kept. The active version is the one that was registered last."""
        return Stored(self.name, self.version, NOUN, body := to_bytes(self.definition.playbook), digest(body), "last")

    def where(self, details: Any) -> str:
        """`file:line:column` of an error of an expression; empty if the file is not known here."""
        return self.definition.where(details)

    def machine(self, address: str, snapshot: bytes | None) -> PlaybookMachine:
        made = PlaybookMachine(self.compiler, self.net, snapshot)
        made.watched = self.watched
        return made

    def read_state(self, machine: Machine) -> Any:
        """What people see of an instance: ctx, tokens, and how steps ended."""
        assert isinstance(machine, PlaybookMachine)
        return state_of(machine.state)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return (
            recorded.open != current.open
            or recorded.withdraw != current.withdraw
            or recorded.noted != current.noted
            or without_place(recorded.outcome) != without_place(current.outcome)
            or recorded.respond != current.respond
        )

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        advice = "an expression gave another value than before: a playbook is never changed under its instances"
        return Explanation(advice=advice)

    def export(self, format: str = "yaml") -> str:
        """The definition as text, in its one canonical form; loading it gives the same version."""
        from .document import formatted

        if format != "yaml":
            raise ValueError(f"format={format!r}: a playbook is exported as yaml")
        return formatted(self.definition.playbook)

    def draw(self, format: Format = "svg", direction: Direction = "LR") -> str:
        """The net of steps as SVG, Mermaid or JSON."""
        from perdure.drawing import draw

        return draw(graph_of(self.definition.playbook), format, direction, title=self.name)

    def draw_instance(self, machine: Machine, format: Format = "svg", direction: Direction = "LR") -> str:
        """An instance with its marking: tokens, gates, and what has run."""
        from perdure.drawing import draw

        assert isinstance(machine, PlaybookMachine)
        seen, title = state_of(machine.state), f"{self.name}/{machine.state.key}"
        return draw(graph_of(self.definition.playbook, seen), format, direction, title=title)

    # ---- what callers need ---------------------------------------------------------------------------------------

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if len(args) > 1 or (args and kwargs):
            raise CallerError(f"{self.name} is a playbook: its input is one map, or keyword arguments")
        return self.encode_plain_input(args[0] if args else kwargs)

    def encode_plain_input(self, value: Any) -> bytes:
        """The input is merged over the workload when the instance starts."""
        plain = to_plain({} if value is None else value)
        if not isinstance(plain, dict):
            raise NotConvertible("$", "a map over the workload", type(value).__name__, f"the input of {self.name}")
        encoded = encode(plain)
        if len(encoded) > VALUE_MAX:
            raise TooLarge(f"the input of {self.name}", len(encoded), VALUE_MAX)
        return encoded

    def doubts(self, input: Any) -> list[str]:
        """Keys of an input that the workload does not have, and that are near to one that it has."""
        known = self.definition.playbook.workload
        unknown = [str(key) for key in input if key not in known] if isinstance(input, dict) else []
        return [f"the workload has no key {key}; {hint}" for key in unknown if (hint := meant(key, known))]

    def decode_result(self, value: bytes) -> Any:
        return decode(value)


def _needed(playbook: Playbook) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds and secrets that the engine itself must have. Those of a playbook with a queue are for its workers."""
    queues = [playbook.settings.queue, *(step.queue for step in playbook.steps)]
    pipelines = (*(step.actions for step in playbook.steps), *playbook.workbook.values())
    queues += [action.queue for actions in pipelines for action in actions]
    names = {name for entry in playbook.keychain.values() for name in entry.values()}
    kinds = {action.kind for actions in pipelines for action in actions} - OURS.keys()
    return ((), ()) if any(queue is not None for queue in queues) else (tuple(sorted(kinds)), tuple(sorted(names)))


def from_text(text: str, source: str = "", tools: Mapping[str, Kind] | None = None) -> PlaybookWorkflow:
    loaded = load(text, source, tools)
    return PlaybookWorkflow(loaded.definition, loaded.warnings)
