"""Migration: what an instance has that runs on one definition, as an instance of another definition has it.

A step is found in the other definition by its location, or by the location that the caller names for it. All that an
instance stands at must be there and be of the same kind, and nothing that it has done may come a second time: the
location of a step names its calls, tasks and children.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from perdure.codec import decode, encode
from perdure.errors import DoesNotFit

from . import snapshot
from .compile import Op, Program, Seq
from .life import Life

_TURN: Final = re.compile(r"(?<=~)\d+(?=/|$)")
_ASKS: Final = {
    "activate": ("a task", "task"),
    "receive": ("a receive", "message"),
    "subprocess": ("a sub-process", "workflow"),
    "continue_with": ("a start of another instance", "workflow"),
}


def migrated(life: Life, to: Program, renamed: Mapping[str, str]) -> bytes:
    """The snapshot of an instance as the other definition has it. Raises `DoesNotFit` with all that has no place."""
    mover = _Mover(life.program, to, renamed)
    data = decode(snapshot.write(life))
    data["hash"] = to.hash
    if data["root"] is not None:
        mover.branch(data["root"], None)
    for planned in data["planned"]:
        mover.planned(planned)
    if mover.problems:
        raise DoesNotFit("; ".join(dict.fromkeys(mover.problems)))
    return encode(data)


def places(program: Program) -> list[str]:
    """The locations of all steps, without the numbers of turns."""
    return list(_Places(program).steps)


def place_of(location: str) -> str:
    """A location without the numbers of its turns: `lines/~/reserve`, as drawings have it."""
    return _TURN.sub("", location)


def renamed_place(place: str, renamed: Mapping[str, str]) -> str:
    """Where a step stands that is renamed, or stands inside of one that is."""
    for old in sorted(renamed, key=len, reverse=True):
        above = place_of(old)
        if place == above or place.startswith(f"{above}/"):
            return place_of(renamed[old]) + place.removeprefix(above)
    return place


class _Places:
    """The steps of a program by their places, and what stands before the places of each sequence."""

    def __init__(self, program: Program) -> None:
        self.steps: dict[str, tuple[Seq, int]] = {}
        self.seqs: dict[str, Seq] = {}
        self.before: dict[int, str] = {}
        self._walk(program.main, "")

    def _walk(self, seq: Seq, before: str) -> None:
        self.seqs[before] = seq
        self.before[seq.number] = before
        for at, op in enumerate(seq.ops):
            place = before + op.name
            self.steps[place] = seq, at
            for segment, inner in op.s.items():
                self._walk(inner, f"{place}/{'~' if op.kind == 'repeat' else segment}/")


class _Mover:
    """Changes the data of a snapshot from one program to another. Sequences are named by their numbers there."""

    def __init__(self, old: Program, new: Program, renamed: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._old, self._new = old, new
        self._renamed = renamed
        self._was, self._is = _Places(old), _Places(new)

    def branch(self, branch: dict[str, Any], outer: Op | None) -> None:
        """`outer`: the step of the new program that it is a branch of."""
        side_by_side = bool(branch["name"])
        waits = branch["wait"] is not None
        for frame in branch["frames"]:
            number, at, before, role = frame[:4]
            seq = self._old.seqs[number]
            found = self._at(seq, at)
            if found is None:
                return
            new, place = found
            own = self._is.before[new.number]
            was = place_of(before) + _name(seq, at)
            elsewhere = side_by_side and frame[5] is None and own.split("/")[-2] != branch["name"]
            if (new.owner is not outer and role != "undo") or elsewhere:
                self._problem(was, f"has {own}{_name(new, place)} inside of another step")
                return
            side_by_side = False
            frame[0], frame[1], frame[2] = new.number, place, self._numbered(own, before)
            if not 0 <= at < len(seq.ops):
                return
            op, outer = seq.ops[at], new.ops[place]
            last = frame is branch["frames"][-1]
            then, here = (_asks(each, whole=last and waits) for each in (op, outer))
            if then != here:
                self._problem(was, f"has {here} at {own}{outer.name}, and this is {then}")
            if last and not branch["fork"] and before + op.name != frame[2] + outer.name:
                kept = branch["wait"] or branch["stop"]
                kept[-1] = kept[-1] or before + op.name
        if branch["fork"] is not None and outer is not None:
            self._fork(branch["fork"], was, outer)

    def _at(self, seq: Seq, at: int) -> tuple[Seq, int] | None:
        """The sequence, and the place in it, where a place of an old sequence is now."""
        before = self._was.before[seq.number]
        if not 0 <= at < len(seq.ops):  # before a turn, or after the last step
            around = renamed_place(before.rstrip("/"), self._renamed)
            new = self._is.seqs.get(f"{around}/" if around else "")
            if new is None:
                self._problem(before.rstrip("/"), f"has no steps at {around}")
                return None
            used, ahead = (set(_names(seq)), set[str]()) if at > 0 else (set[str](), set(_names(new)))
            place = len(new.ops) if at > 0 else at
        else:
            old = before + seq.ops[at].name
            name = renamed_place(old, self._renamed)
            found = self._is.steps.get(name)
            if found is None:
                self._problem(old, f"has no step {name}")
                return None
            new, place = found
            same = seq.ops[at].name == new.ops[place].name
            used, ahead = set(_names(seq)[: at + (not same)]), set(_names(new)[place + same :])
        for name in sorted(used & ahead):
            self._problem(before + name, "would do it again, and it was begun before")
        return new, place

    def _problem(self, was: str, text: str) -> None:
        self.problems.append(f"{was}: version {self._new.version} {text}")

    def _fork(self, fork: dict[str, Any], was: str, op: Op) -> None:
        """It goes on with the branches that it began with."""
        if fork["turns"] is None:
            for name in sorted({*fork["names"], *(each["name"] for each in fork["live"])} - op.s.keys()):
                self._problem(was, f"has no branch {name}")
        for each in fork["live"]:
            self.branch(each, op)

    def planned(self, planned: list[Any]) -> None:
        """What undoes a step that was done."""
        was: str = planned[2]
        old = place_of(was)
        name = renamed_place(old, self._renamed)
        seq, place = self._is.steps.get(name, (None, 0))
        if seq is None or "undo" not in seq.ops[place].s:
            self._problem(old, f"has nothing at {name} that undoes it")
            return
        planned[:3] = seq.number, place, self._numbered(name, was)

    def _numbered(self, place: str, was: str) -> str:
        """A place with the numbers of the turns of a location."""
        turns = _TURN.findall(was)
        if place.count("~") != len(turns):
            self._problem(was.rstrip("/"), f"has {place.rstrip('/')} in other turns")
            return place
        parts = place.split("~")
        return parts[0] + "".join(f"~{turn}{part}" for turn, part in zip(turns, parts[1:], strict=True))


def _name(seq: Seq, at: int) -> str:
    return seq.ops[at].name if 0 <= at < len(seq.ops) else ""


def _names(seq: Seq) -> list[str]:
    return [op.name for op in seq.ops]


def _asks(op: Op, *, whole: bool) -> str:
    """The kind of a step in words; `whole`: with what it asks for, which is open."""
    word, field = _ASKS.get(op.kind, (f"a {op.kind}", ""))
    if whole and op.kind == "call" and "queue" in op.data["address"]:
        return "a call of a queue"
    return f"{word} {op.data[field]}" if whole and field else word
