"""A divergence in the words of the author: which operation is gone or new, and which mark in the code would mend it.

What is known: the operations that are recorded at this entry and after it, those that the code asks for at this entry
now, and, from its source, which names the code has at all. Where that leaves two possibilities, both are told. Every
advice keeps the recorded operations for instances that have begun them, so that it mends whatever instance follows it.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.kernel.decision import Decision, Send
from perdure.kernel.difference import Difference, Explanation, Operation, ending
from perdure.kernel.effects import Call, Child, Timer, Wait
from perdure.kernel.location import unescape
from perdure.kernel.status import Status

from .change import VERSION

if TYPE_CHECKING:
    from .machine import FlowMachine
    from .names import Names

UNNAMED: Final = {
    "timer": "a timer of asyncio",
    "clean-up": "the time limit of its clean-up",
    "start": "the delay of its start",
}
KEPT: Final = {"undo", "clean-up", "start"}
"""What the author does not write where it happens."""

BLOCKS: Final = {"join", "race", "map", "loop", "attempt"}
"""Operations that have others inside."""

RENAMED: Final = BLOCKS | {"step", "sleep"}
"""Operations whose name is nothing but a name: it can be chosen by a version."""

LINES_MAX: Final = 8

_ORDINAL: Final = re.compile(r"#[0-9]+$")
_BACKOFF: Final = re.compile(r"(?P<step>.+)/backoff#(?P<attempt>[0-9]+)$")
_TASK: Final = re.compile(r"(^|/)&[0-9]+/$")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')


class Asked(NamedTuple):
    """An operation that a flow asks for, as its author knows it."""

    kind: str
    name: str
    scope: str  # the path that it stands in: empty at the root, else with a slash at its end
    location: str
    waits: bool = True  # False: it needed no effect
    attempt: int = 1  # of a step
    pause: bool = False  # before this attempt
    to: str = ""  # whom a message is sent to

    def is_same(self, other: Asked) -> bool:
        return self.location == other.location and self.is_called_like(other)

    def is_called_like(self, other: Asked) -> bool:
        return (self.kind, self.name, self.to) == (other.kind, other.name, other.to)

    def is_beside(self, other: Asked) -> bool:
        return self.scope == other.scope and (self.kind == "send") == (other.kind == "send")

    @property
    def again(self) -> bool:
        return self.attempt > 1

    @property
    def text(self) -> str:
        text = UNNAMED.get(self.kind) or f"{self.kind} {self.name or 'of any message'}"
        place = unescape(self.scope.removesuffix("&undo/").rstrip("/"))
        text += f" in {place}" if place else f" to {self.to}" if self.to else ""
        if self.pause:
            return f"the pause before attempt {self.attempt} of {text}"
        if not self.waits and self.kind in ("sleep", "receive"):
            return f"{text} (over at once)"
        return f"{text} (attempt {self.attempt})" if self.again else text


def explain(machine: FlowMachine, difference: Difference) -> Explanation:
    change = _Change(difference)
    context = next(iter(inspect.signature(machine.flow.function).parameters))
    advice = "\n".join(_Adviser(machine.flow.names, context, change).lines())
    then, now = change.then, change.now or next(iter(change.new), None)
    if then is None and now is None:
        return Explanation(source=machine.source(""), advice=advice)
    return Explanation(
        recorded=then.text if then is not None else "nothing more",
        current=now.text if now is not None else _no_more(difference.current),
        location=(then or now).location,  # type: ignore[union-attr]
        source=machine.source(now.location if now is not None else then.scope if then is not None else ""),
        advice=advice,
    )


# ---- what differs ------------------------------------------------------------------------------------------


class _Change:
    """`then`: the first operation that is not asked for as it was; `now`: what stands in its place. None: nothing."""

    def __init__(self, difference: Difference) -> None:
        recorded, current = _asked(difference.recorded), _asked(difference.current)
        self.outcome = difference.current.outcome
        self.gone, self.new = _without(recorded, current), _without(current, recorded)
        self.later = [each for decision in difference.later for each in _in_order(_asked(decision))]
        self.reordered = not self.gone and not self.new and recorded != current
        self.then: Asked | None = next(iter(_outermost(self.gone)), None)
        self.now: Asked | None = next(iter(_outermost(self.new)), None)
        same = [(then, now) for then in self.gone for now in self.new if now.is_same(then)]  # one of them waits
        if self.reordered:
            same = [(then, now) for then, now in zip(recorded, current, strict=True) if then != now]
        if same:
            self.then, self.now = same[0]
        elif self.then is not None:
            self.now = next((each for each in _outermost(self.new) if each.is_beside(self.then)), None)

    def is_recorded_later(self, asked: Asked) -> bool:
        return any(map(asked.is_same, self.later))

    def new_place(self, asked: Asked) -> Asked | None:
        """Where an operation of this kind and name stands now that stood elsewhere then."""
        return next((each for each in self.new if each.is_called_like(asked) and not each.is_same(asked)), None)

    def old_place(self, asked: Asked) -> Asked | None:
        """Where an operation of this kind and name stood then that stands elsewhere now."""
        return next((each for each in self.gone if each.is_called_like(asked)), None)

    def is_used_again(self, asked: Asked) -> bool:
        """Whether an operation of the same kind and name is recorded later in the same scope."""
        return any(each.is_beside(asked) and each.is_called_like(asked) for each in self.later)


def _asked(decision: Decision) -> list[Asked]:
    return [_as_asked(operation) for operation in (*decision.open, *decision.noted, *decision.send)]


def _as_asked(operation: Operation) -> Asked:
    match operation:
        case Call(location=location, attempt=attempt):
            return _at(location, "undo" if "&undo/" in location else "step", attempt=attempt)
        case Wait(location=location):
            return _at(location, "receive")
        case Child(location=location):
            return _at(location, "child")
        case Timer(location=location):
            return _timer(location)
        case Send(name=name, to=to):
            return Asked("send", name, "", "", waits=False, to=str(to))
        case note:
            kind, _, location = note.partition(" ")
            return _at(location, "version" if kind.startswith(VERSION) else kind, waits=False)


def _timer(location: str) -> Asked:
    backoff = _BACKOFF.match(location)
    if backoff is not None:
        kind = "undo" if "&undo/" in location else "step"
        return _at(backoff["step"], kind, attempt=int(backoff["attempt"]) + 1, pause=True)
    own = {"&timer": "timer", "&cleanup": "clean-up", "&start": "start"}
    return _at(location, own.get(_ORDINAL.sub("", location.rpartition("/")[2]), "sleep"))


def _at(location: str, kind: str, *, waits: bool = True, attempt: int = 1, pause: bool = False) -> Asked:
    scope, slash, last = location.rpartition("/")
    name = unescape(_ORDINAL.sub("", last)).removeprefix("&version:")
    if kind == "receive":
        name = name.removeprefix("receive").removeprefix(":")
    return Asked(kind, "" if kind in UNNAMED else name, scope + slash, location, waits, attempt, pause)


def _without(those: list[Asked], others: Iterable[Asked]) -> list[Asked]:
    left = Counter(others)
    found = []
    for each in those:
        if left[each]:
            left[each] -= 1
        else:
            found.append(each)
    return found


def _outermost(those: list[Asked]) -> list[Asked]:
    """Without those that stand inside of another one."""
    blocks = tuple(f"{each.location}/" for each in those if each.kind in BLOCKS)
    return [each for each in those if not each.location.startswith(blocks)]


def _in_order(those: list[Asked]) -> list[Asked]:
    """As code that does one thing after the other asks for them: it is the last one that it waits for."""
    return sorted((each for each in _outermost(those) if not each.again), key=lambda each: each.waits)


def _no_more(decision: Decision) -> str:
    return ending(decision) if decision.outcome is not None else "nothing more"


# ---- what to do --------------------------------------------------------------------------------------------


class _Adviser:
    """`context`: what the author calls the context."""

    def __init__(self, names: Names, context: str, change: _Change) -> None:
        self._names = names
        self._context = context
        self._change = change

    def lines(self) -> list[str]:
        then, now = self._change.then, self._change.now
        again = next((each for each in (then, now) if each is not None and each.again), None)
        if again is not None:
            return [self._options(again)]
        if self._fails(now):
            return ["The code fails now where it went on then: mend that first."]
        if then is not None and then.kind in KEPT:
            return ["Put the steps of the flow and their undo back as they were."]
        if then is None:
            return self._new(now) if now is not None else self._no_operation()
        if now is not None and self._change.reordered:
            return self._old_code(now.name, f"{then.text} came before {now.text}: their order has changed.")
        if now is not None and now.is_same(then):
            verb = "waited then, and does not" if then.waits else "did not wait then, and does"
            return self._old_code(now.name, f"{now.kind} {now.name} {verb} now.")
        place = self._change.new_place(then)
        if place is not None:
            return self._moved(then, place)
        if now is None:
            return self._nothing_in_its_place(then)
        place = self._change.old_place(now)
        if place is not None:  # the tasks of a `gather` are numbered: without one of them the others move up
            return self._gone(then, None) if _TASK.search(then.scope) else self._moved(place, now)
        return self._skipped(then, now) if self._change.is_recorded_later(now) else self._in_its_place(then, now)

    # ---- what happened ------------------------------------------------------------------------------------

    def _options(self, step: Asked) -> str:
        named = step._replace(attempt=1, pause=False).text
        return f"How often {named} is tried has changed. Put its retries, backoff, retry_if and retry_on_timeout back."

    def _fails(self, now: Asked | None) -> bool:
        outcome = self._change.outcome
        undoes = now is not None and now.kind in KEPT
        return undoes or (now is None and outcome is not None and outcome.status is not Status.COMPLETED)

    def _no_operation(self) -> list[str]:
        ends = self._change.outcome is not None
        text = "The flow ends now where it went on then." if ends else "What it no longer waits for has changed."
        return self._old_code("", text)

    def _new(self, now: Asked) -> list[str]:
        if self._change.is_recorded_later(now):
            return self._old_code(now.name, f"{now.text} came later: the order has changed.")
        return self._inserted(now)

    def _moved(self, then: Asked, now: Asked) -> list[str]:
        return self._old_code(then.name, f"{then.text} has moved: it is {now.text} now.")

    def _nothing_in_its_place(self, then: Asked) -> list[str]:
        if self._still_has(then) is True:
            return self._old_code(then.name, f"The code no longer comes to {then.text}: a condition has changed.")
        return self._gone(then, None)

    def _skipped(self, then: Asked, now: Asked) -> list[str]:
        """What the code asks for now is recorded too, but later."""
        has = self._still_has(then)
        if has is True:
            text = f"{then.text} came before {now.text}: their order has changed, or a condition has."
            return self._old_code(now.name, text)
        unsure = has is None and then.name != ""
        order = f"If {then.text} comes after {now.text} now, put the old order back instead."
        return [*self._gone(then, now, perhaps=unsure), *([order] if unsure else [])]

    def _in_its_place(self, then: Asked, now: Asked) -> list[str]:
        """What the code asks for now is not recorded: it is new, or the instance had not come to it."""
        has = self._still_has(then)
        after = [each for each in self._change.later if each.is_beside(then)]
        lines: list[str] = []
        if has is not False:
            lines += self._inserted(now, "" if has is True and after else f"If {now.text} is new:")
            if not after:
                lines.append(f"If {now.text} came after {then.text}, put the old order back instead.")
        if has is not True:
            certain = any(self._has(each) is True for each in after)  # it is asked for before what came next
            if not certain:
                lines += self._gone(then, now, perhaps=True)
            lines += self._replaced(then, now, certain=certain and has is False)
        return lines

    # ---- what mends it ------------------------------------------------------------------------------------

    def _inserted(self, now: Asked, text: str = "") -> list[str]:
        """A new operation that only newer instances take."""
        text = text or f"{now.text} is new. Instances that are past its place go without it:"
        if now.kind == "checkpoint":
            block = f"{self._context}.checkpoint({_quoted(now.name)})"
            return [
                text,
                f"    async with {block} if {self._newer(now.name)} else contextlib.nullcontext():",
                "        ...",
            ]
        lines = [text, f"    if {self._newer(now.name or now.kind)}:", f"        {self._written(now)}"]
        before = ["    else:", "        ...  # what stood here before, if anything"]
        return [*lines, *(before if now.kind in BLOCKS else [])]

    def _gone(self, then: Asked, now: Asked | None, *, perhaps: bool = False) -> list[str]:
        """Operations that the code does not have any more, up to the one that it asks for now."""
        gone = self._gone_before(then, now)
        if not all(map(_is_removable, gone)):
            text = f"If {then.text} is gone, keep" if perhaps else f"{then.text} is gone. Keep"
            older = f"{self._version(then.name or then.kind)} < 2"
            return [f"{text} it for older instances:", f"    if {older}:", f"        {self._written(then)}"]
        those = f"{_listed(gone)} {'is' if len(gone) == 1 else 'are'} gone"
        text = f"If {those}, write" if perhaps else f"{those}. Write"
        place = f"before {now.text}" if now is not None else "in its place" if len(gone) == 1 else "in their place"
        more = ["    ...  # and so on"] if len(gone) > LINES_MAX else []
        return [f"{text} {place}:", *(f"    {self._removed(each)}" for each in gone[:LINES_MAX]), *more]

    def _gone_before(self, then: Asked, now: Asked | None) -> list[Asked]:
        beside = [each for each in _in_order(self._change.gone) if each.is_beside(then)]
        found = {each.location: each for each in beside if each is then or self._has(each) is not True}
        for each in self._change.later:
            if (now is not None and each.is_same(now)) or (now is None and self._has(each) is True):
                break
            if each.is_beside(then) and self._has(each) is False:
                found.setdefault(each.location, each)
        return list(found.values())

    def _replaced(self, then: Asked, now: Asked, *, certain: bool) -> list[str]:
        lines: list[str] = []
        text = f"{now.text} stands in place of {then.text}:"
        newer = self._newer(now.name or now.kind)
        if then.kind == now.kind and then.kind in RENAMED:
            name = f"{_quoted(now.name)} if {newer} else {_quoted(then.name)}"
            lines = [
                f"If {then.text} is called {now.name} now, keep the old name for instances that have begun it:",
                f"    await {self._context}.{now.kind}({name}, ...)",
            ]
            certain = False
        old = self._removed(then) if _is_removable(then) else self._written(then)
        branch = [f"    if {newer}:", f"        {self._written(now)}", "    else:", f"        {old}"]
        return [*lines, text if certain else f"If {text}", *branch]

    def _old_code(self, name: str, text: str) -> list[str]:
        """What helps against every change."""
        return [
            f"{text} Put it back, or keep the old code for older instances:",
            f"    if {self._newer(name or 'change')}:",
            "        ...  # as it is now",
            "    else:",
            "        ...  # as it was",
        ]

    # ---- code ---------------------------------------------------------------------------------------------

    def _newer(self, name: str) -> str:
        return f"{self._version(name)} >= 2"

    def _version(self, name: str) -> str:
        """A version of its own: one that the code has already is pinned elsewhere."""
        free, number = name, 2
        while self._names.has("version", free) is True:
            free, number = f"{name} {number}", number + 1
        return f"{self._context}.version({_quoted(free)}, 2)"

    def _removed(self, asked: Asked) -> str:
        return f"await {self._context}.removed({_quoted(asked.name)}, {_quoted(asked.kind)})"

    def _written(self, asked: Asked) -> str:
        """An operation as the author writes it."""
        match asked.kind:
            case "receive":
                names = ", ".join(map(_quoted, asked.name.split("+"))) if asked.name else ""
                return f"await {self._context}.receive({names})"
            case "send":
                return f"{self._context}.send({_quoted(asked.to)}, {_quoted(asked.name)}, ...)"
            case "checkpoint":
                return f"async with {self._context}.checkpoint({_quoted(asked.name)}): ..."
            case kind if kind in UNNAMED:
                return f"...  # {asked.text}"
            case kind:
                return f"await {self._context}.{kind}({_quoted(asked.name)}, ...)"

    def _has(self, asked: Asked) -> bool | None:
        """Whether the code has an operation of this kind and name; None: perhaps."""
        return self._names.has(asked.kind, asked.name)

    def _still_has(self, then: Asked) -> bool | None:
        """The same of what is missing: the name alone does not tell where it is used several times."""
        has = self._has(then)
        return None if has is True and self._change.is_used_again(then) else has


def _is_removable(asked: Asked) -> bool:
    return asked.kind != "send" and asked.kind not in UNNAMED


def _listed(those: list[Asked]) -> str:
    *most, last = [each.text for each in those]
    return f"{', '.join(most)} and {last}" if most else last


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) else repr(text)
