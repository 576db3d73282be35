"""Loops: iterations in order or side by side, and what becomes of their results and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.codec import decode
from perdure.expressions import NeedsRead
from perdure.kernel.receipt import Receipt

from .kinds import wrong_type
from .pipeline import run_location
from .scope import StepCode
from .state import Frame, Open, Pipe, Run, Turns
from .turn import Turn
from .values import Fault, NeedsPut, Stored, error

if TYPE_CHECKING:
    from .machine import PlaybookMachine

SLICE: Final = 64
"""Items of a stored list that are read at once."""


class Loops:
    def __init__(self, machine: PlaybookMachine) -> None:
        self.machine = machine

    def begin(self, turn: Turn, code: StepCode, roots: dict[str, Any], location: str) -> Turns:
        """The items, fixed as the run begins."""
        assert code.step.loop is not None
        assert code.items is not None
        assert code.max_in_flight is not None
        items = turn.value(code.items, roots, f"{code.path}/loop/items", location)
        found, total = items_of(items)
        limit = self.machine.compiler.playbook.settings.limits.max_iterations
        if total > limit:
            raise Fault("limit_exceeded", f"the loop has {total:,} iterations, the limit is {limit:,}")
        slots = turn.value(code.max_in_flight, roots, f"{code.path}/loop/max_in_flight", location)
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise Fault("template_error", f"max_in_flight is a whole number of at least 1, found {str(slots)[:40]!r}")
        parallel = code.step.loop.mode == "parallel"
        return Turns(found, total, parallel, slots if parallel else 1)

    def go_on(self, turn: Turn, run: Run) -> None:
        """Start iterations while there is room, in the order of their index; end the loop after the last."""
        turns = run.turns
        assert turns is not None
        while (
            turns.started < turns.total and len(run.pipes) < turns.slots and not (run.status or self.machine.pauses.on)
        ):
            if turn.fired >= self.machine.FIRED_MAX:
                self.machine.later(["loop", run.token, -1])
                return
            index = turns.started
            if isinstance(turns.items, Stored) and not turns.slice_at <= index < turns.slice_at + len(turns.slice):
                self._ask(turn, run, turns, index)
                return
            if not self._start(turn, run, turns, index):
                return
            turn.fired += 1
        if turns.ended == turns.total and not run.status:
            self._done(turn, run, turns)

    def _reads(self, run: Run) -> bool:
        """Whether a read or a put for the next iteration is open: the loop goes on with its receipt."""
        opened = self.machine.state.effects.of_token(run.token).values()
        return any(each.pipe < 0 and each.kind in ("slice", "read", "put") for each in opened)

    def _ask(self, turn: Turn, run: Run, turns: Turns, index: int) -> None:
        state = self.machine.state
        if self._reads(run):
            return
        state.asked += 1
        asked = {
            "call": "values/read",
            "params": {"digest": turns.items.kept.digest, "path": [], "slice": [index, index + SLICE]},
        }
        owner = Open("slice", "", run.token, detail=index)
        turn.call(f"{run_location(run)}/&read#{state.asked}", asked, owner)

    def sliced(self, turn: Turn, run: Run, owner: Open, receipt: Receipt) -> None:
        turns = run.turns
        assert turns is not None
        value = None if receipt.value is None else decode(receipt.value)
        if receipt.status != "ok" or not isinstance(value, dict) or not value.get("result"):
            said = error("ref_missing", "the stored list of the loop cannot be read")
            self.machine.runs.finish(turn, run, "failed", None, said)
            return
        turns.slice, turns.slice_at = value["result"], owner.detail
        self.go_on(turn, run)

    def _start(self, turn: Turn, run: Run, turns: Turns, index: int) -> bool:
        """Start an iteration. False: its args look into a stored value that must be read first."""
        code = self.machine.compiler.step(run.step)
        assert code.step.loop is not None
        source = turns.slice[index - turns.slice_at] if isinstance(turns.items, Stored) else item_of(turns.items, index)
        iter = iteration(code.step.loop.iterator, source, index, turns.total)
        pipe = Pipe(index, [Frame()], run.args, iter)
        roots = {**self.machine.roots(run.token, run.args), "iter": iter}
        location = f"{run_location(run)}/~{index}"
        try:
            made = {
                key: turn.sized(turn.value(each, roots, f"{code.path}/args/{key}", location), run.token)
                for key, each in code.args.items()
            }
        except (NeedsRead, NeedsPut) as need:
            if not self._reads(run):
                self.machine.need(turn, need, ["loop", run.token, -1], location)
            return False
        except Fault as fault:
            turns.started += 1
            self.ended(turn, run, pipe, ok=False, result=None, error=fault.error)
            return True
        pipe.args = {**run.args, **made} if made else run.args
        turns.started += 1
        run.pipes[index] = pipe
        self.machine.state.counts.iterations += 1
        self.machine.later(["pipe", run.token, index])
        return True

    def ended(self, turn: Turn, run: Run, pipe: Pipe, *, ok: bool, result: Any, error: Any) -> None:
        """An iteration has ended."""
        turns, loop = run.turns, self.machine.compiler.step(run.step).step.loop
        assert turns is not None
        assert loop is not None
        run.pipes.pop(pipe.index, None)
        turns.ended += 1
        if ok and pipe.writes:
            turns.writes[pipe.index] = pipe.writes
        if loop.collect == "list":
            turns.results.extend([None] * (pipe.index + 1 - len(turns.results)))
            turns.results[pipe.index] = result
        elif loop.collect == "last" and ok and pipe.index >= turns.last:
            turns.results, turns.last = [result], pipe.index
        if not ok:
            turns.failed += 1
            if len(turns.errors) < 1000:
                turns.errors.append({"index": pipe.index, **error})
            if loop.failure == "fail_fast":
                self._cut(turn, run, turns, error)
                return
        self.machine.later(["loop", run.token, -1])

    def _cut(self, turn: Turn, run: Run, turns: Turns, error: Any) -> None:
        """One iteration failed: the others are withdrawn."""
        for index in sorted(run.pipes):
            turn.withdraw_of(run.token, index)
        turns.cancelled = turns.total - turns.ended
        run.pipes.clear()
        self.machine.runs.finish(turn, run, "failed", self.result(run), error)

    def _done(self, turn: Turn, run: Run, turns: Turns) -> None:
        try:
            folded = self._fold(turns)
        except Fault as fault:
            self.machine.runs.finish(turn, run, "failed", self.result(run), fault.error)
            return
        if folded:
            self.machine.write_ctx(turn, folded)
        self.machine.runs.finish(turn, run, "partial" if turns.failed else "done", self.result(run), None)

    def result(self, run: Run) -> Any:
        loop = self.machine.compiler.step(run.step).step.loop
        assert run.turns is not None
        assert loop is not None
        if loop.collect == "list":
            return run.turns.results
        return run.turns.results[-1] if loop.collect == "last" and run.turns.results else None

    def shown(self, run: Run) -> dict[str, Any] | None:
        """What arcs see as `loop`."""
        turns = run.turns
        if turns is None:
            return None
        return {
            "total": turns.total,
            "succeeded": turns.ended - turns.failed,
            "failed": turns.failed,
            "cancelled": turns.cancelled,
            "results": turns.results,
            "errors": turns.errors,
        }

    def _fold(self, turns: Turns) -> dict[str, Any]:
        """The writes of parallel iterations in the order of their index, by the reducer of each key."""
        playbook, state = self.machine.compiler.playbook, self.machine.state
        folded: dict[str, Any] = {}
        by_key: dict[str, list[Any]] = {}
        for index in sorted(turns.writes):
            for key, value in sorted(turns.writes[index].items()):
                by_key.setdefault(key, []).append(value)
        for key, values in sorted(by_key.items()):
            declared = playbook.settings.ctx.get(key)
            reduce = "" if declared is None else declared.reduce
            if not reduce and len(values) > 1 and not playbook.v10:
                text = f"{len(values)} parallel iterations set ctx.{key}; declare a reducer in executor.spec.ctx"
                raise Fault("ctx_conflict", text)
            folded[key] = reduced(reduce or "last", state.ctx.get(key), values, key)
        return folded


def reduced(word: str, before: Any, values: list[Any], key: str) -> Any:
    try:
        match word:
            case "sum":
                return sum(values, before or 0)
            case "min" | "max":
                known = values if before is None else [before, *values]
                return min(known) if word == "min" else max(known)
            case "append":
                return [*(before or []), *values]
            case "merge":
                merged = dict(before or {})
                for value in values:
                    merged.update(value)
                return merged
            case "first":
                return values[0]
            case _:
                return values[-1]
    except (TypeError, ValueError) as wrong:
        raise Fault("ctx_invalid", f"the values of ctx.{key} cannot be reduced by {word}: {wrong}") from None


def iteration(iterator: str, item: Any, index: int, total: int) -> dict[str, Any]:
    """What templates see as `iter`, before anything is set."""
    last = index == total - 1
    return {iterator: item, "index": index, "count": total, "first": index == 0, "last": last, "parent": None}


def items_of(value: Any) -> tuple[Any, int]:
    match value:
        case Stored() if value.length is not None:
            return value, value.length
        case Stored():
            raise NeedsRead(value, ())
        case bool():
            pass
        case int():
            if value >= 0:
                return value, value
        case list():
            return value, len(value)
        case dict():
            return [{"key": key, "value": value[key]} for key in sorted(value)], len(value)
        case _:
            pass
    found = wrong_type(value, ()) or "null"
    raise Fault("not_iterable", f"a loop takes a list, a map or a whole number of at least 0, found a {found}")


def item_of(items: Any, index: int) -> Any:
    return index if isinstance(items, int) else items[index]
