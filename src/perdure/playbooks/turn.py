"""One delivery: what it opens, withdraws and notes, and the evaluation of expressions at its moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final

from perdure.errors import ExpressionError
from perdure.kernel.decision import Decision, Outcome
from perdure.kernel.effects import KINDS, NUMBERS, Call, Effect, attempt_of
from perdure.kernel.identity import Identity
from perdure.kernel.moment import TIME_MAX, Moment, when

from .scope import Code, Compiler, Fixed
from .state import Open, State
from .values import Fault, NeedsPut, Stored, canonical, is_large

EXECUTOR: Final = "effects"
SECOND: Final = 1_000_000_000
CHANGING: Final[frozenset[tuple[str | int, ...]]] = frozenset({("results",), ("steps",)})
"""Roots that the machine changes in place. An expression that takes one as a whole gets a copy: as its result it would
change later, and as the result of what it lists it would have itself in it."""


class Turn:
    def __init__(self, state: State, identity: Identity, moment: Moment, compiler: Compiler) -> None:
        self.state = state
        self.moment = moment
        self.compiler = compiler
        self._identity = identity
        self._now: datetime | None = None
        self._entropy: bytes | None = None
        self.opened: list[tuple[bytes, Effect]] = []
        self.withdrawn: list[bytes] = []
        self.noted: list[str] = []
        self.published: list[tuple[str, bytes]] = []
        self.responded: list[tuple[str, bytes]] = []
        self.outcome: Outcome | None = None
        self.fired = 0

    @property
    def at(self) -> int:
        return self.moment.at

    @property
    def entropy(self) -> bytes:
        if self._entropy is None:
            self._entropy = self.moment.entropy()
        return self._entropy

    # ---- effects -------------------------------------------------------------------------------------------------

    def open(self, effect: Effect, opened: Open) -> None:
        id = self._identity.intent(effect.location, attempt_of(effect))
        opened.location, opened.attempt = effect.location, attempt_of(effect)
        opened.effect = [NUMBERS[type(effect)], [getattr(effect, name) for name in effect.__struct_fields__]]
        if self.state.final == "running" and opened.kind != "pause":
            self.state.finals.append(effect.location)
        self.state.effects[id] = opened
        self.opened.append((id, effect))

    def call(self, location: str, asked: dict[str, Any], opened: Open, **more: Any) -> None:
        params = canonical(asked, "the parameters of an action")
        self.open(Call(location, params=params, **{"executor": EXECUTOR, **more}), opened)

    def withdraw(self, id: bytes) -> None:
        """Take back an effect. One that was opened in this very delivery never was."""
        self.state.effects.take(id)
        before = len(self.opened)
        self.opened = [each for each in self.opened if each[0] != id]
        if len(self.opened) == before:
            self.withdrawn.append(id)

    def withdraw_at(self, location: str) -> None:
        id = self._identity.intent(location, 1)
        if id in self.state.effects:
            self.withdraw(id)

    def withdraw_of(self, token: int | None = None, pipe: int | None = None) -> None:
        """Take back what a token, or one way through its pipeline, has open; None: all."""
        effects = self.state.effects if token is None else self.state.effects.of_token(token)
        found = [(each.location, each.attempt, id) for id, each in effects.items() if pipe is None or each.pipe == pipe]
        for _, _, id in sorted(found):
            self.withdraw(id)

    def note(self, kind: str, location: str) -> None:
        self.noted.append(f"{kind} {location}")

    def decision(self) -> Decision:
        return Decision(
            open=tuple(effect for _, effect in self.opened),
            intents=tuple(id for id, _ in self.opened),
            withdraw=tuple(self.withdrawn),
            noted=tuple(self.noted),
            publish=tuple(self.published),
            respond=tuple(self.responded),
            outcome=self.outcome,
        )

    # ---- evaluation ----------------------------------------------------------------------------------------------

    def value(self, code: Code, roots: Mapping[str, Any], path: str, location: str) -> Any:
        """The value of a field. Raises `Fault`, or `NeedsRead` where it looks into a stored value."""
        if type(code) is Fixed:
            return code.value
        if self._now is None:
            self._now = when(self.moment.at)
        if taken := code.reads & CHANGING:  # type: ignore[union-attr]
            roots = {
                **roots,
                **{root: dict(roots[root]) for root in map(str, map(itemgetter(0), taken)) if root in roots},
            }
        try:
            return code.evaluate(roots, now=self._now, entropy=self.entropy, location=f"{location}:{path}")  # type: ignore[union-attr]
        except ExpressionError as error:
            raise self.fault(error, path) from None

    def guard(self, code: Code | None, roots: Mapping[str, Any], path: str, location: str) -> bool:
        if code is None:
            return True
        try:
            return bool(self.value(code, roots, path, location))
        except Fault:
            if self.compiler.playbook.settings.on_template_error == "false":
                return False
            raise

    def fault(self, error: ExpressionError, path: str) -> Fault:
        kind = error.code if error.code in ("guard_type", "not_iterable") else "template_error"
        found = f" (found {', '.join(error.operands)})" if error.operands else ""
        at = path + error.path
        reason = error.reason.replace("_steps.", "", 1)  # a bare name of a step
        text = f"{self.compiler.spelled(at)}: {error.text.strip()}: {reason}{found}"
        return Fault(kind, text, details={"at": at, "line": error.line, "column": error.column})

    def sized(self, value: Any, token: int) -> Any:
        """The value, or a reference to it if it is large. Raises `NeedsPut` until it is stored."""
        limits = self.compiler.playbook.settings.limits
        limit = limits.max_payload_bytes
        if isinstance(value, Stored) or not is_large(value, limit):
            return value
        if is_large(value, limits.max_result_bytes):  # asked first: a value in itself many times grows without an end
            raise Fault("limit_exceeded", f"the value has more than {limits.max_result_bytes:,} bytes")
        if _holds_ref(value):  # its parts are stored already
            if is_large(value, 16 * limit):
                raise Fault("limit_exceeded", f"the value has more than {16 * limit:,} bytes beside stored ones")
            return value
        data = canonical(value, "a large value")
        digest = sha256(data).hexdigest()
        for kept in self.state.reads.get(token, ()):
            if kept[0] == digest and kept[1] == "put":
                return kept[2]
        raise NeedsPut(data, digest)


def _holds_ref(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_ref, value.values()))
    return any(map(_holds_ref, value)) if isinstance(value, list) else isinstance(value, Stored)


def effect_of(opened: Open) -> Effect:
    kind, fields = opened.effect
    make: Any = KINDS[kind]
    made: Effect = make(*[tuple(each) if isinstance(each, list) else each for each in fields])
    return made


def due(turn: Turn, within: float) -> int:
    return min(turn.at + int(within * SECOND), TIME_MAX)
