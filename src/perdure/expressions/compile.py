"""Nodes in, closures out.

An expression is compiled once, when its definition is loaded. `Expression.evaluate` then runs closures over recorded
values: it does no I/O, reads no clock and ends within its budget, with a value or with an `ExpressionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, Final, assert_never

from perdure.codec import decode, encode
from perdure.errors import ExpressionError, NotPlain

from .budget import ENTRY, ITEM, At, Budget, Failure, Meter, Run
from .functions import FUNCTIONS, VOLATILE, Function, argument
from .nodes import (
    Array,
    Call,
    Choice,
    Coalesce,
    Const,
    Defined,
    Fallback,
    Get,
    Guard,
    Key,
    Logic,
    Member,
    Missing,
    Node,
    Not,
    Object,
    Over,
    Repeat,
    SecretPart,
    Text,
)
from .values import ABSENT, Ref, Secret, SecretText, keys_of, kind, measure, opened, shown, text_of

Code = Callable[[Run], Any]
Place = tuple[str, str, int, int]  # text, path, line, column
Users = Mapping[str, Callable[..., Any]]

RESULT_FACTOR: Final = 4  # a result may hold recorded values, and so be larger than what was made
FALSE_WORDS: Final = frozenset(("", "false", "0", "no", "none", "null", "off"))


class Expression:
    """A compiled expression. It is immutable, and any number of evaluations may share it.

    `reads` are the paths that it looks at, from their roots, as far as they are known before it runs. `volatile` says
    that it has the time or dice in it: its value may change though nothing that it reads does.
    """

    __slots__ = ("_code", "_cost", "_made", "_place", "_slots", "budget", "node", "reads", "volatile")

    def __init__(self, node: Node, budget: Budget, place: Callable[[At], Place], users: Users) -> None:
        compiler = _Compiler(users)
        self._code = compiler.code(node)
        self._cost = compiler.cost
        self._made = compiler.made
        self._slots = compiler.slots
        self._place = place
        self.node = node
        self.budget = budget
        self.reads: frozenset[tuple[Key, ...]] = frozenset(compiler.reads)
        self.volatile = compiler.volatile

    def evaluate(
        self,
        roots: Mapping[str, Any],
        meter: Meter | None = None,
        *,
        now: datetime | None = None,
        entropy: bytes = b"",
        location: str = "",
    ) -> Any:
        """The value. Raises `ExpressionError`, or `NeedsRead` where it looks into a `Ref`."""
        meter = meter or Meter(self.budget)
        run = Run(meter, roots, self._slots, now, entropy, location)
        try:
            run.spend(self._cost)
            value = self._code(run)
            if self._made and isinstance(value, list | dict):
                measure(value, RESULT_FACTOR * self.budget.bytes)
        except Failure as failure:
            raise self._error(failure) from failure.__cause__
        except RecursionError:
            raise self._error(Failure("it has too many levels", "budget")) from None
        finally:
            meter.nodes = run.nodes
        return value

    def _error(self, failure: Failure) -> ExpressionError:
        text, path, line, column = self._place(0 if failure.at is None else failure.at)
        operands = tuple(shown(operand) for operand in failure.operands)
        return ExpressionError(text, failure.reason, operands, path, line, column, failure.code)


class _Compiler:
    def __init__(self, users: Users) -> None:
        self.users = users
        self.cost = 0
        self.slots = 0
        self.made = False  # whether the value may be a list or object that is not a recorded one
        self.reads: set[tuple[Key, ...]] = set()
        self.volatile = False

    def code(self, node: Node) -> Code:
        self.cost += 1
        match node:
            case Const(value=value):
                return lambda run: value
            case Get():
                return self._get(node)
            case Member():
                return self._member(node)
            case Array(items=items):
                return self._array([self.code(item) for item in items])
            case Object(pairs=pairs):
                return self._object([(key, self.code(item)) for key, item in pairs])
            case Call():
                return self._call(node)
            case Over():
                return self._over(node)
            case Logic():
                return self._logic(node)
            case Not():
                item, test = self.code(node.item), _condition(node.strict, node.at)
                return lambda run: not test(item(run))
            case Choice():
                return self._choice(node)
            case Coalesce(items=items):
                return _coalesce([self.code(item) for item in items])
            case Fallback():
                return self._fallback(node)
            case Defined(item=item):
                found = self.code(item)
                return lambda run: found(run) is not ABSENT
            case Text(parts=parts):
                return _text([self.code(part) for part in parts], node.at)
            case Repeat():
                return self._repeat(node)
            case SecretPart(name=name):
                secret = SecretText((Secret(name),))
                return lambda run: secret
            case Guard():
                return _guard(self.code(node.item), node.lenient, node.at)
            case _:
                assert_never(node)

    def _body(self, node: Node, *slots: int) -> tuple[Code, int]:
        """The code of a loop's body and what one turn costs."""
        before, self.cost = self.cost, 0
        self.slots = max(self.slots, *(slot + 1 for slot in slots))
        code = self.code(node)
        cost, self.cost = self.cost, before
        return code, cost

    def _get(self, node: Get) -> Code:
        root, keys, missing, at = node.root, node.keys, node.missing, node.at
        name = ".".join(str(key) for key in ((root, *keys) if isinstance(root, str) else keys))
        if isinstance(root, int):
            self.slots = max(self.slots, root + 1)

            def local(run: Run) -> Any:
                return _walk(run.slots[root], keys, missing, at, name)

            return local if keys else lambda run: run.slots[root]
        self.reads.add((root, *keys))

        def get(run: Run) -> Any:
            value = run.roots.get(root, ABSENT)
            for key in keys:
                if type(value) is not dict:
                    return _walk(run.roots.get(root, ABSENT), keys, missing, at, name)
                value = value.get(key, ABSENT)
            return _missing(name, missing, at) if value is ABSENT else value

        return get

    def _member(self, node: Member) -> Code:
        target, key, missing, at = self.code(node.target), self.code(node.key), node.missing, node.at

        def member(run: Run) -> Any:
            value, index = target(run), key(run)
            if type(index) is not str and type(index) is not int:
                raise _at(Failure(f"a key is a text or a whole number, not a {kind(index)}"), at, index)
            return _walk(value, (index,), missing, at, str(index))

        return member

    def _array(self, items: list[Code]) -> Code:
        self.made = True
        size = 56 + ITEM * len(items)

        def array(run: Run) -> list[Any]:
            run.make(size)
            return [item(run) for item in items]

        return array

    def _object(self, pairs: list[tuple[str, Code]]) -> Code:
        self.made = True
        size = ENTRY * (1 + len(pairs))

        def build(run: Run) -> dict[str, Any]:
            run.make(size)
            return {key: item(run) for key, item in pairs}

        return build

    def _call(self, node: Call) -> Code:
        args, at = [self.code(arg) for arg in node.args], node.at
        if node.name in self.users:
            self.made = True
            return _user_call(node.name, self.users[node.name], args, at)
        function = FUNCTIONS[node.name]
        apply = function.apply
        self.made |= function.gives in ("any", "list", "object")
        self.volatile |= node.name in VOLATILE
        unchecked = not any(function.takes)
        if len(args) == 2 and unchecked:
            one, two = args

            def pair(run: Run) -> Any:
                first, second = one(run), two(run)
                try:
                    return apply(run, first, second)
                except (Failure, ArithmeticError, ValueError) as error:
                    raise _at(error, at, first, second) from None

            return pair

        def call(run: Run) -> Any:
            values = [arg(run) for arg in args]
            try:
                if unchecked:
                    return apply(run, *values)
                return apply(run, *[argument(run, function, index, value) for index, value in enumerate(values)])
            except (Failure, ArithmeticError, ValueError) as error:
                raise _at(error, at, *values) from None

        return call

    def _over(self, node: Over) -> Code:
        function, at, slot = FUNCTIONS[node.name], node.at, node.slot
        source, args = self.code(node.source), [self.code(arg) for arg in node.args]
        body, cost = self._body(node.body, slot)
        self.made |= function.gives == "list"

        def over(run: Run) -> Any:
            given = source(run)
            try:
                items = argument(run, function, 0, given)
                run.spend(cost * len(items))
                run.make(ITEM * len(items))
            except Failure as failure:
                raise _at(failure, at, given) from None
            made, slots = [], run.slots
            for item in items:
                slots[slot] = item
                made.append(body(run))
            try:
                return function.apply(run, items, made, *[arg(run) for arg in args])
            except (Failure, ArithmeticError, ValueError) as error:
                raise _at(error, at, items) from None

        return over

    def _logic(self, node: Logic) -> Code:
        *others, final = [self.code(item) for item in node.items]
        test, wanted = _condition(node.strict, node.at), node.word == "and"
        last = (lambda run: test(final(run))) if node.strict else final

        def logic(run: Run) -> Any:
            for item in others:
                value = item(run)
                if test(value) is not wanted:
                    return value
            return last(run)

        return logic

    def _choice(self, node: Choice) -> Code:
        condition, then, other = self.code(node.test), self.code(node.then), self.code(node.other)
        test = _condition(node.strict, node.at)
        return lambda run: then(run) if test(condition(run)) else other(run)

    def _fallback(self, node: Fallback) -> Code:
        item, other, empty = self.code(node.item), self.code(node.other), node.empty

        def fallback(run: Run) -> Any:
            value = item(run)
            return other(run) if value is ABSENT or (empty and not _truth(value)) else value

        return fallback

    def _repeat(self, node: Repeat) -> Code:
        source, other, slots, loop, at = self.code(node.source), self.code(node.other), node.slots, node.loop, node.at
        body, cost = self._body(node.body, loop, *slots)
        test, test_cost = self._body(node.test, *slots) if node.test is not None else (None, 0)

        def bind(run: Run, item: Any) -> None:
            if len(slots) == 1:
                run.slots[slots[0]] = item
            elif not isinstance(item, list) or len(item) != len(slots):
                raise _at(Failure(f"each element must be a list with {len(slots)} items"), at, item)
            else:
                for slot, value in zip(slots, item, strict=True):
                    run.slots[slot] = value

        def repeat(run: Run) -> Any:
            items = opened(source(run))
            if not isinstance(items, list | dict):
                raise _at(Failure(f"a loop needs a list or an object, not a {kind(items)}", "not_iterable"), at, items)
            run.spend((cost + test_cost) * len(items))
            run.make(2 * ITEM * len(items))
            chosen = []
            for item in keys_of(items) if isinstance(items, dict) else items:
                bind(run, item)
                if test is None or _truth(test(run)):
                    chosen.append(item)
            pieces = []
            for index, item in enumerate(chosen):
                bind(run, item)
                count = len(chosen)
                run.make(8 * ENTRY)
                run.slots[loop] = {
                    "index": index + 1,
                    "index0": index,
                    "first": index == 0,
                    "last": index + 1 == count,
                    "length": count,
                }
                pieces.append(body(run))
            return _joined(run, pieces) if chosen else other(run)

        return repeat


# ---- what closures share -----------------------------------------------------------------------------------------


def _at(error: Exception, at: At, *operands: Any) -> Failure:
    failure = error if isinstance(error, Failure) else Failure(_reason(error))
    if failure.at is None:
        failure.at, failure.operands = at, operands
    return failure


def _reason(error: Exception) -> str:
    if isinstance(error, ZeroDivisionError):
        return "it divides by zero"
    if isinstance(error, ArithmeticError):
        return "the number cannot be computed: it is too large, or not defined"
    return f"the value does not fit: {error}"


def _walk(value: Any, keys: tuple[Key, ...], missing: Missing, at: At, name: str) -> Any:
    for index, key in enumerate(keys):
        if type(value) is dict:
            value = value.get(key, ABSENT)
        elif type(value) is list and type(key) is int:
            value = value[key] if -len(value) <= key < len(value) else ABSENT
        elif isinstance(value, Ref):
            value = value.read(keys[index:])
            break
        elif missing == "null" and value is not None and value is not ABSENT:
            raise _at(Failure(f"a {kind(value)} has no member {key!r}"), at, value)
        else:
            value = ABSENT
            break
    return _missing(name, missing, at) if value is ABSENT else value


def _missing(name: str, missing: Missing, at: At) -> Any:
    if missing == "error":
        raise _at(Failure(f"{name} is missing; where that may be, add default() or test it with 'is defined'"), at)
    return ABSENT if missing == "absent" else None


def _condition(strict: bool, at: At) -> Callable[[Any], bool]:
    if not strict:
        return _truth

    def boolean(value: Any) -> bool:
        if type(value) is not bool:
            raise _at(Failure(f"a condition is a boolean, not a {kind(value)}"), at, value)
        return value

    return boolean


def _truth(value: Any) -> bool:
    return bool(opened(value)) if isinstance(value, Ref) else bool(value)


def _guard(item: Code, lenient: bool, at: At) -> Code:
    def guard(run: Run) -> bool:
        value = item(run)
        if type(value) is bool:
            return value
        value = opened(value)
        if isinstance(value, str):
            if not lenient:
                reason = "a guard is true or false, and this is a text; compare it, or use its length"
                raise _at(Failure(reason, "guard_type"), at, value)
            return value.strip().lower() not in FALSE_WORDS
        return bool(value)

    return guard


def _coalesce(items: list[Code]) -> Code:
    def coalesce(run: Run) -> Any:
        for item in items:
            value = item(run)
            if value is not None:
                return value
        return None

    return coalesce


def _text(parts: list[Code], at: At) -> Code:
    def text(run: Run) -> Any:
        return _joined(run, [part(run) for part in parts])

    return text


def _joined(run: Run, values: list[Any]) -> Any:
    """One text, or with secrets among the values a text in parts."""
    if not any(isinstance(value, SecretText) for value in values):
        return "".join([text_of(run, value) for value in values])
    parts: list[str | Secret] = []
    for value in values:
        for part in value.parts if isinstance(value, SecretText) else (text_of(run, value),):
            run.make(ENTRY)
            parts.append(part)
    joined: list[str | Secret] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, str)):
        found = list(group)
        joined += ["".join(map(str, found))] if is_text else found
    return SecretText(tuple(part for part in joined if part != ""))


def _user_call(name: str, function: Callable[..., Any], args: list[Code], at: At) -> Code:
    def call(run: Run) -> Any:
        values = [arg(run) for arg in args]
        try:
            copies = [_copied(run, value) for value in values]  # a function cannot change what is recorded
        except Failure as failure:
            raise _at(failure, at, *values) from None
        try:
            made = function(*copies)
        except Exception as error:
            raise _at(Failure(f"{name}() raised {type(error).__name__}: {error}"), at, *values) from error
        try:
            data = encode(made)
            run.make(len(data))
        except NotPlain as error:
            raise _at(Failure(f"{name}() returned what is no plain data: {error}"), at, *values) from None
        except Failure as failure:
            raise _at(failure, at, *values) from None
        return decode(data)

    return call


def _copied(run: Run, value: Any) -> Any:
    value = opened(value)
    if not isinstance(value, list | dict):
        return value
    measure(value, RESULT_FACTOR * run.budget.bytes)
    return decode(encode(value))


def certain_kind(node: Node) -> str | None:
    """The kind that the value of a node has for certain, or None."""
    match node:
        case Const(value=value):
            return kind(value)
        case Array():
            return "list"
        case Object():
            return "object"
        case Text():
            return "text"
        case Not() | Logic(strict=True):
            return "boolean"
        case Call(name=name) | Over(name=name) if name in FUNCTIONS and FUNCTIONS[name].gives != "any":
            return FUNCTIONS[name].gives
        case _:
            return None


def takes(function: Function, index: int) -> frozenset[str] | None:
    return function.takes[min(index, len(function.takes) - 1)] if function.takes else None
