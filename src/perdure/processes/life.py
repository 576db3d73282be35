"""The state of one instance, and one slice of its work: what expressions see, what is opened, withdrawn and noted.

`Life` is what a snapshot keeps. `Slice` is one delivery: it collects the decision. `steps.py` does the steps, `flow.py`
goes from one step to the next.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Any

from perdure.codec import encode
from perdure.errors import ExpressionError, Misfit, NotPlain
from perdure.expressions import PROCESS, Meter
from perdure.kernel.decision import Decision, Outcome, Reply, Stuck
from perdure.kernel.effects import Effect, attempt_of
from perdure.kernel.events import Address
from perdure.kernel.identity import Identity
from perdure.kernel.moment import Moment, when
from perdure.kernel.receipt import Failure

from .branches import Branch, Scope, Wait
from .compile import CALLED, Op, Program

MESSAGES_MAX = 1000


class StepError(Exception):
    """A step cannot go on. `field`: the expression that failed; `routes`: the branches of the step that may take it."""

    def __init__(self, kind: str, code: str, message: str, data: Any = None, field: str = "") -> None:
        super().__init__(message)
        self.error = {"class": kind, "code": code, "message": message, "data": data}
        self.field = field
        self.routes: tuple[str, ...] = ("on_failure",)

    def to(self, *routes: str) -> StepError:
        self.routes = routes
        return self


class Slice:
    """One delivery."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self.at = moment.at
        self.now: datetime = when(moment.at)
        self.meter = Meter(PROCESS)
        self.total = 0  # steps of all branches
        self.steps: dict[int, int] = {}  # of each branch
        self.ready: deque[Branch] = deque()
        self.opened: dict[bytes, Effect] = {}
        self.withdrawn: list[bytes] = []
        self.noted: list[str] = []
        self.called: list[str] = []  # what functions of users gave
        self.tags: dict[str, str | None] = {}
        self.outcome: Outcome | None = None
        self.reply: Reply | None = None
        self.meta: dict[str, Any] = {}
        self.undo = False  # children that are cancelled now undo what they did

    def step(self, branch: Branch, limit: int) -> bool:
        """Count a step; False: the branch has done too many in this slice, or all branches together have."""
        steps = self.steps[id(branch)] = self.steps.get(id(branch), 0) + 1
        self.total += 1
        return steps <= limit and self.total <= 10 * limit

    def verdict(self, location: str) -> str | None:
        """In a replay, what was noted of a value that did not fit; None: it is not known, or did fit."""
        recorded = self.moment.recorded
        start = f"misfit {location}: "
        found = [] if recorded is None else [each for each in recorded.noted if each.startswith(start)]
        return found[0].removeprefix(start) if found else None


class Planned:
    """What undoes a step that was done: the step, its location, and what its expressions read."""

    __slots__ = ("given", "location", "op", "results", "tasks")

    def __init__(self, op: Op, location: str) -> None:
        self.op = op
        self.location = location
        self.given: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}


class Life:
    def __init__(self, program: Program, address: Address) -> None:
        self.program = program
        self.address = address
        self.generation = 1
        self.depth = 0
        self.started_by: str | None = None
        self.start: Any = None
        self.state: dict[str, Any] = {}
        self.reference: dict[str, Any] = {}
        self.scope = Scope()
        self.mailbox: list[dict[str, Any]] = []
        self.root: Branch | None = None
        self.planned: list[Planned] = []
        self.ending: Outcome | None = None  # what was done is being undone; this is the outcome after that
        self.count = 0  # of waits and stops: the older ones come first
        self.sizes: dict[str, int] = {}  # bytes of the state, by its first keys
        self.waits: dict[bytes, Branch] = {}
        self._identity: Identity | None = None
        self.slice: Slice = None  # type: ignore[assignment]  # of the delivery that is being answered

    def begin_slice(self, moment: Moment) -> None:
        slice = self.slice = Slice(moment)
        CALLED.set(slice.called)
        slice.meta = {
            "workflow": self.program.name,
            "version": self.program.version,
            "instance": str(self.address),
            "key": self.address.key,
            "entry": moment.number,
            "now": slice.now,
            "started_by": self.started_by,
        }

    # ---- what expressions see --------------------------------------------------------------------------------------

    def roots(self, branch: Branch | None) -> dict[str, Any]:
        found = {
            "start": self.start,
            "state": self.state,
            "reference": self.reference,
            "meta": self.slice.meta,
        }
        return found if branch is None else {**branch.bindings(), **found}

    def value(self, branch: Branch, field: str, more: dict[str, Any] | None = None) -> Any:
        """The value of an expression of the step that a branch is at, or what a person gave for it."""
        if field in branch.settled:
            return branch.settled.pop(field)
        owner = branch.frame.seq.owner
        op = branch.op if 0 <= branch.frame.at < len(branch.frame.seq.ops) else owner
        assert op is not None
        roots = self.roots(branch) if more is None else {**self.roots(branch), **more}
        return self.evaluate(op.e[field], roots, branch.location, field)

    def evaluate(self, expression: Any, roots: dict[str, Any], location: str, field: str) -> Any:
        slice = self.slice
        entropy = slice.moment.entropy() if expression.volatile else b""
        try:
            return expression.evaluate(
                roots, slice.meter, now=slice.now, entropy=entropy, location=f"{location}.{field}"
            )
        except ExpressionError as error:
            data = {"text": error.text, "operands": list(error.operands)}
            raise StepError("expression", error.code, str(error), data, field) from None

    def condition(self, branch: Branch, field: str, more: dict[str, Any] | None = None) -> bool:
        found = self.value(branch, field, more)
        if found is not True and found is not False:
            text = f"a condition is true or false, found {found!r:.80}"
            raise StepError("expression", "condition", text, found, field)
        return found

    # ---- the state -------------------------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """Write the first value of a key of the state."""
        found = self.evaluate(self.program.state[name], self.roots(None), "state", name)
        self.write(name, found, f"state.{name}")

    def write(self, key: str, value: Any, location: str) -> None:
        """Write to the business state. What was there is not changed: others may hold it. Null is a missing value."""
        schema = None if value is None else self.program.state_member(key)
        try:
            self.fits(schema, value, f"{location}/value", "state")
        except StepError as error:
            text = f"state.{key} does not fit its schema: {error}"
            raise StepError("expression", "state", text, value, "value") from None
        first, *rest = key.split(".")
        changed = _written(self.state.get(first), rest, value, key)
        try:
            size = len(encode(changed))
        except NotPlain as error:
            raise StepError("expression", "value", f"state.{key}: {error}", field="value") from None
        total = sum(self.sizes.values()) - self.sizes.get(first, 0) + size
        limit = self.program.limits["state_bytes"]
        if total > limit:
            raise StepError("expression", "state-limit", f"the state has {total:,} bytes; the limit is {limit:,}")
        self.sizes[first] = size
        self.state = {**self.state, first: changed}

    def refer(self, reference: dict[str, Any]) -> None:
        """Change the reference. Its tags are written with this entry."""
        for name, value in reference.items():
            if not isinstance(value, str) or not value or len(value) > 1000:
                text = f"the {name} of a reference is a text of 1 to 1,000 characters, found {value!r:.80}"
                raise StepError("expression", "reference", text, value, "key")
        for part in self.reference.keys() - reference.keys():
            self.slice.tags[tag_of(part)] = None
        self.slice.tags |= {tag_of(part): value for part, value in reference.items()}
        self.reference = reference

    # ---- what the decision has -------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        if self._identity is None:
            self._identity = Identity(self.address, self.generation)
        return self._identity

    def open(self, effect: Effect) -> bytes:
        id = self.identity.intent(effect.location, attempt_of(effect))
        self.slice.opened[id] = effect
        return id

    def wait(self, branch: Branch, wait: Wait) -> None:
        self.count += 1
        wait.age = self.count
        branch.wait = wait
        branch.again = None
        for id in (wait.intent, wait.deadline):
            if id:
                self.waits[id] = branch

    def withdraw(self, id: bytes) -> None:
        self.waits.pop(id, None)
        if self.slice.opened.pop(id, None) is None:
            self.slice.withdrawn.append(id)

    def answered(self, branch: Branch, receipt_of: bytes = b"") -> Wait:
        """A branch waits no longer. What else it had open is withdrawn; the intent of a receipt is closed by that."""
        wait = branch.wait
        assert wait is not None
        branch.wait = None
        for id in (wait.intent, wait.deadline):
            if id == receipt_of:
                self.waits.pop(id, None)
            elif id:
                self.withdraw(id)
        return wait

    def drop(self, branch: Branch) -> None:
        """A branch is not needed any more, nor what is below it."""
        for each in list(branch.all()):
            if each.wait is not None:
                self.answered(each)
            each.frames = []
            each.stop = each.fork = None

    def fits(self, schema: dict[str, Any] | None, value: Any, location: str, code: str) -> Any:
        """The value as a schema means it. In a replay the recorded verdict counts."""
        if schema is None:
            return value
        from perdure.codec.jsonschema import read

        text = self.slice.verdict(location)
        if text is None:
            try:
                return read(schema, value)
            except Misfit as misfit:
                if self.slice.moment.recorded is not None:
                    return value
                text = str(misfit)
        self.slice.noted.append(f"misfit {location}: {text}")
        raise StepError("transport", code, text, value)

    def decision(self) -> Decision:
        slice = self.slice
        stopped = None
        if slice.outcome is None and self.root is not None:
            stopped = min((each for each in self.root.all() if each.stop is not None), key=_age, default=None)
        noted = (*slice.noted, *slice.called)
        slice.called.clear()
        open = () if slice.outcome is not None else tuple(slice.opened.values())
        return Decision(
            open=open,
            withdraw=tuple(slice.withdrawn),
            reply=slice.reply,
            stuck=None if stopped is None else stuck_at(stopped),
            outcome=slice.outcome,
            noted=noted,
            intents=tuple(slice.opened) if open else (),
            tags=tuple(sorted(slice.tags.items())),
            undo=slice.undo and bool(slice.withdrawn or slice.outcome is not None),
        )


def stuck_at(branch: Branch) -> Stuck:
    assert branch.stop is not None
    return Stuck(failure_of_error(branch.stop.error), branch.location, open=True)


def failure_of_error(error: dict[str, Any]) -> Failure:
    data = error.get("data")
    return Failure(str(error["code"]), str(error["message"]), "", None if data is None else encode(data), retry=False)


def tag_of(part: str) -> str:
    return "reference" if part == "key" else f"reference.{part}"


def _age(branch: Branch) -> int:
    return branch.stop.age if branch.stop is not None else 0


def _written(before: Any, keys: list[str], value: Any, key: str) -> Any:
    if not keys:
        return value
    if before is not None and not isinstance(before, dict):
        raise StepError(
            "expression", "value", f"state.{key}: there is a value on the way that has no members", field="key"
        )
    inner = before or {}
    return {**inner, keys[0]: _written(inner.get(keys[0]), keys[1:], value, key)}
