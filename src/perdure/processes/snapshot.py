"""A life as canonical bytes, and back. Sequences are named by their numbers: a snapshot belongs to one definition."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.codec import decode, encode
from perdure.errors import Corrupt
from perdure.kernel.decision import Outcome
from perdure.kernel.events import Address

from .branches import Branch, Fork, Frame, Scope, Stop, Turns, Wait
from .compile import Op, Program
from .life import Life, Planned

_WAIT = ("kind", "intent", "number", "age", "attempt", "tries", "since", "params", "deadline", "place")
_STOP = ("error", "age", "field", "number", "attempt", "place")
_outcome_decoder = msgspec.msgpack.Decoder(Outcome)


def write(life: Life) -> bytes:
    writer = _Writer(life.program)
    root = None if life.root is None else writer.branch(life.root)
    planned = [
        [*writer.places[id(each.op)], each.location, each.given, each.results, each.tasks] for each in life.planned
    ]
    return encode(
        {
            "hash": life.program.hash,
            "generation": life.generation,
            "depth": life.depth,
            "by": life.started_by,
            "start": life.start,
            "state": life.state,
            "sizes": life.sizes,
            "reference": life.reference,
            "results": life.scope.results,
            "tasks": life.scope.tasks,
            "mailbox": life.mailbox,
            "root": root,
            "planned": planned,
            "ending": None if life.ending is None else msgspec.msgpack.encode(life.ending),
            "count": life.count,
        }
    )


class _Writer:
    def __init__(self, program: Program) -> None:
        self.places = {id(op): (seq.number, place) for seq in program.seqs for place, op in enumerate(seq.ops)}

    def branch(self, branch: Branch) -> dict[str, Any]:
        return {
            "frames": [self.frame(frame) for frame in branch.frames],
            "name": branch.name,
            "wait": _fields(branch.wait, _WAIT),
            "stop": _fields(branch.stop, _STOP),
            "waited": branch.waited,
            "fork": None if branch.fork is None else self.fork(branch.fork),
        }

    def frame(self, frame: Frame) -> list[Any]:
        scope = None if frame.scope is None else [frame.scope.results, frame.scope.tasks, frame.scope.outer is not None]
        turns = None if frame.turns is None else _turns(frame.turns)
        return [frame.seq.number, frame.at, frame.prefix, frame.role, scope, turns, frame.error, frame.given]

    def fork(self, fork: Fork) -> dict[str, Any]:
        return {
            "names": fork.names,
            "needed": fork.needed,
            "live": [self.branch(each) for each in fork.live.values()],
            "ended": fork.ended,
            "errors": fork.errors,
            "turns": None if fork.turns is None else _turns(fork.turns),
            "collected": fork.collected,
        }


def _turns(turns: Turns) -> list[Any]:
    return [turns.items, turns.count, turns.index, turns.collected]


def _fields(value: Any, names: tuple[str, ...]) -> list[Any] | None:
    return None if value is None else [getattr(value, name) for name in names]


def read(program: Program, address: Address, data: bytes) -> Life:
    """The life of a snapshot. One of another definition is refused."""
    kept = decode(data)
    if kept["hash"] != program.hash:
        raise Corrupt(f"the snapshot of {address} is of the definition {kept['hash']}, not of {program.hash}")
    life = Life(program, address)
    life.generation, life.depth, life.started_by = kept["generation"], kept["depth"], kept["by"]
    life.start, life.state, life.sizes, life.reference = kept["start"], kept["state"], kept["sizes"], kept["reference"]
    life.scope.results, life.scope.tasks = kept["results"], kept["tasks"]
    life.mailbox, life.count = kept["mailbox"], kept["count"]
    life.ending = None if kept["ending"] is None else _outcome_decoder.decode(kept["ending"])
    if kept["root"] is not None:
        life.root = _branch(life, kept["root"], None, life.scope)
    for number, place, location, given, results, tasks in kept["planned"]:
        planned = Planned(_op(program, number, place), location)
        planned.given, planned.results, planned.tasks = given, results, tasks
        life.planned.append(planned)
    return life


def _op(program: Program, number: int, place: int) -> Op:
    return program.seqs[number].ops[place]


def _branch(life: Life, kept: dict[str, Any], parent: Branch | None, outer: Scope) -> Branch:
    frames: list[Frame] = []
    for number, at, prefix, role, scope, turns, error, given in kept["frames"]:
        frame = Frame(life.program.seqs[number], prefix, role)
        frame.at, frame.error, frame.given = at, error, given
        if turns is not None:
            frame.turns = _read_turns(turns)
        if scope is not None:
            if not frames and parent is None and role == "main":
                frame.scope = life.scope
            else:
                frame.scope = Scope(outer if scope[2] else None)
                frame.scope.results, frame.scope.tasks = scope[0], scope[1]
            outer = frame.scope
        frames.append(frame)
    branch = Branch(frames, parent, kept["name"])
    branch.waited = kept["waited"]
    if kept["wait"] is not None:
        branch.wait = Wait("", b"")
        for name, value in zip(_WAIT, kept["wait"], strict=False):
            setattr(branch.wait, name, value)
        for id in (branch.wait.intent, branch.wait.deadline):
            if id:
                life.waits[id] = branch
    if kept["stop"] is not None:
        branch.stop = Stop({}, 0)
        for name, value in zip(_STOP, kept["stop"], strict=False):
            setattr(branch.stop, name, value)
    if kept["fork"] is not None:
        branch.fork = _fork(life, kept["fork"], branch, outer)
    return branch


def _fork(life: Life, kept: dict[str, Any], parent: Branch, outer: Scope) -> Fork:
    fork = Fork(kept["names"], kept["needed"])
    fork.ended, fork.errors, fork.collected = kept["ended"], kept["errors"], kept["collected"]
    if kept["turns"] is not None:
        fork.turns = _read_turns(kept["turns"])
    for each in kept["live"]:
        fork.live[each["name"]] = _branch(life, each, parent, outer)
    return fork


def _read_turns(kept: list[Any]) -> Turns:
    turns = Turns(kept[0], kept[1], kept[2])
    turns.collected = kept[3]
    return turns
