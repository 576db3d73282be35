"""A process as the kernel and callers know it: its version, its machines, its input, its state."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.codec.jsonschema import read
from perdure.errors import (
    BadProcess,
    CallerError,
    DoesNotFit,
    Misfit,
    NotConvertible,
    PerdureError,
    TooLarge,
    WorkflowUnavailable,
)
from perdure.kernel.decision import Decision
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.entry import Entry
from perdure.kernel.events import Address
from perdure.kernel.limits import VALUE_MAX, Limits
from perdure.kernel.machine import Machine
from perdure.kernel.moment import Moment
from perdure.kernel.policy import Policy
from perdure.kernel.retention import Retention
from perdure.kernel.routing import Subscription
from perdure.ports.dialect import Stored

from .compile import Program
from .life import StepError
from .machine import ProcessMachine, refusal, unknown_message
from .migrate import migrated, places

if TYPE_CHECKING:
    from perdure.drawing.draw import Format
    from perdure.drawing.model import Direction

NOUN: Final = "process"
_NEVER_BACK: Final = "a process: what it did stays done; start another one, or `retry` where it is stuck"
POLICY: Final = Policy(
    NOUN,
    exact=True,
    retry=False,
    rewind=False,
    fork=False,
    why={"rewind": _NEVER_BACK, "fork": _NEVER_BACK, "retry": _NEVER_BACK},
)


def kernel_version(version: str, digest: str) -> str:
    """The version that the journal records: that of the author, and 12 digits of the hash."""
    return f"{version}+{digest.removeprefix('sha256:')[:12]}"


class Runnable:
    """What `Process` is for the kernel. `functions` are those of users that its expressions call, by name."""

    keeps_state = True  # after the end, too
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def __init__(self) -> None:
        self._functions: Mapping[str, Callable[..., Any]] = {}
        self._program: Program | None = None

    # ---- of a process: see `process.py` ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def number(self) -> str:
        raise NotImplementedError

    @property
    def bytes(self) -> builtins.bytes:
        raise NotImplementedError

    @property
    def hash(self) -> str:
        raise NotImplementedError

    def require_valid(self) -> None:
        raise NotImplementedError

    # ---- for the kernel --------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """As the journal has it. `WorkflowUnavailable` if the process has errors."""
        try:
            return kernel_version(self.number, self.hash)
        except BadProcess as error:
            raise WorkflowUnavailable(self.name, error.problems) from None

    @cached_property
    def policy(self) -> Policy:
        try:
            spans = decode(self.bytes).get("retention")
        except BadProcess:
            return POLICY
        if not spans:
            return POLICY
        retention = msgspec.convert(spans, Retention)
        return msgspec.structs.replace(POLICY, retention=retention)

    @property
    def modules(self) -> Sequence[str]:
        """The modules whose steps its calls name."""
        found: Sequence[str] = self.program.data.get("requires", {}).get("modules", ())
        return found

    @property
    def program(self) -> Program:
        """The definition made ready to run, once."""
        if self._program is None:
            self._program = Program(self.bytes, self._functions)
        return self._program

    def bind(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """An engine runs this process with these functions."""
        if functions != self._functions:
            self._functions, self._program = functions, None

    def machine(self, address: str, snapshot: builtins.bytes | None) -> ProcessMachine:
        return ProcessMachine(self.program, address, snapshot)

    def locations(self) -> Sequence[str]:
        return places(self.program)

    def take_over(
        self, address: str, machine: Machine, renamed: Mapping[str, str], moment: Moment
    ) -> tuple[Machine, Decision]:
        """Nothing is opened, withdrawn or done: what was open is, and what stopped has."""
        assert isinstance(machine, ProcessMachine)
        made = self.machine(address, migrated(machine.life, self.program, renamed))
        made.life.begin_slice(moment)
        for name in sorted(self.program.state.keys() - made.life.state.keys()):
            try:
                made.life.begin(name)
            except StepError as error:
                raise DoesNotFit(f"state.{name}: {error}") from None
        begin = made.snapshot()
        return made, msgspec.structs.replace(made.life.decision(), begin=begin)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return any(getattr(recorded, name) != getattr(current, name) for name in _COMPARED)

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        then, now = set(difference.recorded.noted), difference.current.noted
        changed = [each.split(" ")[1] for each in now if each.startswith("function ") and each not in then]
        if changed:
            advice = (
                f"The function {changed[0]} gave another value than it did then: a function of expressions is pure."
            )
        else:
            advice = "A process runs on its own bytes; only functions of expressions can decide otherwise."
        return Explanation(advice=advice)

    @property
    def stored(self) -> Stored:
        """The definition as the database keeps it."""
        return Stored(self.name, self.number, NOUN, self.bytes, self.hash)

    # ---- for callers -----------------------------------------------------------------------------------------------

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the input; empty: anything is taken."""
        return decode(self.bytes).get("input") or {}

    @property
    def parameters(self) -> builtins.bytes:
        """What a start by name must have, where the input is an object of known fields."""
        schema = self.input_schema
        fields = schema.get("properties")
        if not isinstance(fields, dict) or schema.get("additionalProperties") is not False:
            return b""
        required = schema.get("required", [])
        form = [
            {"name": name, "way": "needed" if name in required else "optional", "type": "Any", "kinds": []}
            for name in fields
        ]
        return encode(form)

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> builtins.bytes:
        """A start takes one object that the input's type describes, or its fields by name."""
        if len(args) > 1 or (args and kwargs):
            raise CallerError(f"{self.name} takes one input, or its fields by name: start({self.name}, order_id=...)")
        return self.encode_plain_input(to_plain(args[0]) if args else to_plain(kwargs))

    def encode_plain_input(self, value: Any) -> builtins.bytes:
        self.require_valid()
        schema = self.program.data.get("input")
        try:
            data = encode(value if schema is None else read(schema, value))
        except Misfit as misfit:
            first = misfit.problems[0]
            found = "; ".join(f"{each.where or '/'}: {each.text}" for each in misfit.problems)
            path = f"${first.where.replace('/', '.')}"
            raise NotConvertible(path, "what its input says", found, self.name, misfit.problems) from None
        if len(data) > VALUE_MAX:
            raise TooLarge(f"the input of {self.name}", len(data), VALUE_MAX)
        return data

    def refuse_input(self, input: builtins.bytes) -> str:
        """Why a start with this input is refused; empty: it is not."""
        try:
            self.encode_plain_input(decode(input))
        except PerdureError as error:
            return str(error)
        return ""

    def decode_result(self, value: builtins.bytes) -> Any:
        return decode(value)

    def refuse_message(self, name: str, body: Any) -> None:
        """Raise if no receive takes such a message: then nothing is recorded."""
        against, _ = refusal(self.program, name, body)
        if name not in self.program.messages:
            found = f"{name!r:.80}{unknown_message(self.program, name)}"
            raise NotConvertible("$", "a message that a receive takes", found, self.name)
        if against:
            found = f"one that does not fit: {against.partition(': ')[2]}"
            raise NotConvertible("$", f"a body of {name} that a receive takes", found, self.name)

    def draw_entries(self, address: Address, entries: Sequence[Entry], format: Format, direction: Direction) -> str:
        """An instance as a picture, with what its entries say of each step."""
        from perdure.drawing import draw

        from .blocks import blocks
        from .marks import History

        data = self.program.data
        marks = History(data, address).take(entries).marks()
        return draw(blocks(data, marks), format, direction, title=f"{address} of {self.name} {self.number}")

    def unread(self, machine: Machine) -> list[tuple[str, Any]]:
        """The messages that were not received yet, for people."""
        assert isinstance(machine, ProcessMachine)
        return [(message["name"], message["body"]) for message in machine.life.mailbox]

    def read_state(self, machine: Machine) -> Any:
        """The business state, for people and clients."""
        assert isinstance(machine, ProcessMachine)
        return machine.life.state


_COMPARED: Final = tuple(name for name in Decision.__struct_fields__ if name not in ("intents", "reports"))
