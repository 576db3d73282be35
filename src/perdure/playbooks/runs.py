"""Runs: a token fires a step, its pipeline or loop runs, and its arcs make the next tokens. Joins fire here too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.expressions import NeedsRead

from .net import Group, Token
from .pipeline import put, run_location
from .scope import ArcCode, Sets, StepCode
from .state import Failed, Frame, Open, Pipe, Run, State
from .turn import Turn
from .v10 import shape
from .values import Fault, NeedsPut, error

if TYPE_CHECKING:
    from .machine import PlaybookMachine

FAILURES_MAX: Final = 1000
EXPRESSION_ERRORS: Final = ("template_error", "guard_type", "not_iterable")


class _Ending(msgspec.Struct):
    """The end of a run, while its sets and arcs are evaluated."""

    turn: Turn
    run: Run
    roots: dict[str, Any]
    location: str
    writes: dict[str, Any] = {}


class Runs:
    def __init__(self, machine: PlaybookMachine) -> None:
        self.machine = machine
        self.compiler = machine.compiler
        self.net = machine.net

    @property
    def state(self) -> State:
        return self.machine.state

    def new_run(self, turn: Turn, token: Token) -> Run:
        state = self.state
        token.state = "running"
        number = state.fired.get(token.step, 0) + 1
        state.fired[token.step] = number
        state.firings += 1
        turn.fired += 1
        state.counts.runs += 1
        run = Run(token.id, token.step, number, token.args, turn.at)
        state.runs[token.id] = run
        state.recent = [*state.recent[-19:], token.step]
        return run

    def run(self, turn: Turn, token: Token) -> None:
        """Fire a step: one run for one token."""
        if self._spent(turn, token):
            return
        run = self.new_run(turn, token)
        self.machine.timer(turn, "timeout", f"{run_location(run)}/&timer", token)
        self.begin(turn, run)

    def _spent(self, turn: Turn, token: Token) -> bool:
        """Whether the instance has had all its runs; then it is stopped."""
        limit = self.compiler.playbook.settings.limits.max_firings
        if self.state.firings < limit or token.step == self.compiler.playbook.settings.final_step:
            return False
        cycle = " -> ".join(self.state.recent[-6:])
        self.machine.stop(turn, error("livelock", f"{limit:,} runs, the last of them {cycle}"))
        return True

    def begin(self, turn: Turn, run: Run) -> None:
        code = self.compiler.step(run.step)
        roots, location = self.machine.roots(run.token, run.args), run_location(run)
        try:
            if code.step.loop is not None:
                run.turns = self.machine.loops.begin(turn, code, roots, location)
                made: dict[str, Any] = {}
            else:
                made = {
                    key: turn.sized(turn.value(each, roots, f"{code.path}/args/{key}", location), run.token)
                    for key, each in code.args.items()
                }
        except (NeedsRead, NeedsPut) as need:
            self.machine.need(turn, need, ["begin", run.token, -1], location)
            return
        except Fault as fault:
            self.finish(turn, run, "failed", None, fault.error)
            return
        run.phase = "running"
        if made:
            run.args = {**run.args, **made}
        if run.turns is not None:
            self.machine.loops.go_on(turn, run)
        elif code.actions:
            run.pipes[-1] = Pipe(-1, [Frame()], run.args)
            self.machine.proceed(turn, run, run.pipes[-1])
        else:
            self.finish(turn, run, "done", None, None)

    def pipe_ended(self, turn: Turn, run: Run, pipe: Pipe, *, ok: bool, result: Any, error: Any) -> None:
        run.extra = pipe.extra
        if run.turns is not None:
            self.machine.loops.ended(turn, run, pipe, ok=ok, result=result, error=error)
        else:
            run.pipes.pop(pipe.index, None)
            self.finish(turn, run, "done" if ok else "failed", result, error)

    def finish(self, turn: Turn, run: Run, status: str, result: Any, error: Any) -> None:
        """A run has come to its end. Its sets and arcs are next."""
        run.phase, run.status, run.result, run.error = "end", status, result, error
        turn.withdraw_at(f"{run_location(run)}/&timer")
        self.machine.later(["end", run.token, -1])

    def end(self, turn: Turn, run: Run) -> None:
        """Sets and arcs of a run that has come to its end."""
        code = self.compiler.step(run.step)
        if not code.sets and not code.arcs:  # a leaf: nothing is to be seen
            self._ended(turn, run, code, {}, [])
            return
        here = _Ending(turn, run, self._seen(run), run_location(run))
        chosen: list[tuple[ArcCode, dict[str, Any]]] = []
        try:
            chosen = self._route(here, code)
        except (NeedsRead, NeedsPut) as need:
            self.machine.need(turn, need, ["end", run.token, -1], here.location)
            return
        except Fault as fault:
            run.status, run.error = "failed", fault.error
            here.writes.clear()
        self._ended(turn, run, code, here.writes, chosen)

    def _route(self, here: _Ending, code: StepCode) -> list[tuple[ArcCode, dict[str, Any]]]:
        """The arcs that a run follows, with their args; nothing is changed yet."""
        turn, run, roots, location = here.turn, here.run, here.roots, here.location
        failed, is_final = run.status == "failed", run.step == self.compiler.playbook.settings.final_step
        if not failed:
            self._sets(here, code.sets, f"{code.path}/set")
        chosen = []
        for arc in () if is_final else code.arcs:
            if arc.on not in ("any", "failed" if failed else "done"):
                continue
            if turn.guard(arc.when, roots, f"{arc.path}/when", location):
                chosen.append(arc)
                if code.step.next is not None and code.step.next.mode == "exclusive":
                    break
        made = []
        for arc in chosen:
            args = {
                key: turn.sized(turn.value(each, roots, f"{arc.path}/args/{key}", location), run.token)
                for key, each in arc.args.items()
            }
            made.append((arc, {**run.args, **args} if arc.arc.inherit else args))
            self._sets(here, arc.sets, f"{arc.path}/set")
        return made

    def _seen(self, run: Run) -> dict[str, Any]:
        """What sets and guards see at the end of a run."""
        failed, loop = run.status == "failed", self.machine.loops.shown(run)
        roots = self.machine.roots(run.token, run.args)
        name = "step.failed" if failed else "loop.done" if loop is not None else "step.done"
        roots["event"] = {"name": name, "step": run.step, "loop": loop, **_ended(run)}
        roots["outcome"] = {
            "status": "error" if failed else "ok",
            "result": run.result,
            "error": run.error,
            **run.extra,
        }
        if self.compiler.playbook.v10:
            roots["outcome"] |= {"data": run.result, "pg": run.extra.get("sql")}
        if loop is not None:
            roots["loop"] = loop
        roots["steps"] = {**roots["steps"], run.step: _ended(run)}
        roots["_steps"] = {**roots["_steps"], run.step: self._shape(run)}
        return roots

    def _sets(self, here: _Ending, sets: Sets, path: str) -> None:
        """Values are made from what was before this set; what comes later sees what it made."""
        turn, roots = here.turn, here.roots
        made = [
            (key, turn.sized(turn.value(value, roots, f"{path}/{root}.{key}", here.location), here.run.token))
            for root, key, value in sets
        ]
        for key, value in made:
            roots["ctx"] = put(roots["ctx"], key, value)
            top = key.partition(".")[0]
            here.writes[top] = roots["ctx"][top]

    def _shape(self, run: Run) -> Any:
        if not self.compiler.playbook.v10:
            return run.result
        shaped = shape(run.result, run.status, run.error, run.kind, run.extra)
        if isinstance(shaped, dict) and run.results:
            shaped.setdefault("results", run.results)
        return shaped

    def _ended(self, turn: Turn, run: Run, code: StepCode, writes: dict[str, Any], chosen: list[Any]) -> None:
        """Sets, new tokens and the end of a run are one entry."""
        state, location = self.state, run_location(run)
        token = state.marking.tokens[run.token]
        settings = self.compiler.playbook.settings
        is_final = run.step == settings.final_step and state.final == "running"
        if writes:
            self.machine.write_ctx(turn, writes)
        state.steps[run.step] = _ended(run)
        state.results[run.step] = self._shape(run)
        self.machine.changed.add(("steps", run.step))
        failed = run.status == "failed"
        handled = failed and any(arc.handles for arc, _ in chosen)
        if failed:
            self._failed(run, run.error, handled=handled)
        strict = settings.no_next_is_error or (code.step.next is not None and code.step.next.on_no_match == "fail")
        if not chosen and code.step.next is not None and not failed and strict and not is_final:
            self._failed(run, error("no_match", f"no arc of {run.step} matches"), handled=False)
            failed = True
        names = ", ".join(arc.arc.step for arc, _ in chosen)
        turn.note("route", f"{location}: {names}" if names else location)
        source = {"from": {"step": run.step, **_ended(run)}, "join": None}
        generations = token.generations
        if run.step in self.net.splits and chosen:
            generations = self.net.open_generation(state.marking, token, run.args)
        for arc, args in chosen:
            self.machine.token(turn, arc.arc.step, generations, args, source)
            if token.id not in state.marking.tokens:  # the instance has been stopped: too many tokens are alive
                return
        self.leave(turn, token, run, routed=bool(chosen))
        if is_final:
            state.final = "done"
        elif not chosen:
            state.leaves[run.step] = run.result
            state.leaf_runs += 1
            state.leaf_ok = state.leaf_ok or not failed
        if failed and not handled and settings.status == "fail_fast" and not is_final:
            self.machine.drop_all(turn)

    def leave(self, turn: Turn, token: Token, run: Run, *, routed: bool) -> None:
        """A run is over, and its token with it."""
        self.state.runs.pop(run.token, None)
        self.forget(turn, token)
        if token.id in self.state.marking.tokens:
            self.net.end(self.state.marking, token, routed=routed)

    def forget(self, turn: Turn, token: Token) -> None:
        """What a token still has open, and what was read for it."""
        turn.withdraw_of(token.id)
        for digest, path, *_ in self.state.reads.pop(token.id, ()):
            if path != "put":
                self.machine.cache.pop((digest, tuple(path)), None)

    def _failed(self, run: Run, error: dict[str, Any], *, handled: bool) -> None:
        failures = self.state.failures
        location = run.failed_at or run_location(run)
        known = handled or any(not failure.handled for failure in failures)
        if len(failures) < FAILURES_MAX or not known:  # the first that no arc handled decides the verdict
            again = [run.failed_at] if run.failed_at else []
            details = error["details"] if error["kind"] in EXPRESSION_ERRORS else None
            failures.append(Failed(location, str(error["kind"]), str(error["message"]), handled, again, details))

    def refuse(self, turn: Turn, token: Token, error: dict[str, Any]) -> None:
        """The step fails without having begun; its arcs are looked at."""
        if self._spent(turn, token):
            return
        run = self.new_run(turn, token)
        self.finish(turn, run, "failed", None, error)

    def overdue(self, turn: Turn, owner: Open) -> None:
        token = self.state.marking.tokens[owner.token]
        run = self.state.runs.get(token.id)
        said = error("timeout", f"{token.step} took too long", retryable=True)
        turn.withdraw_of(token.id)
        if run is None:
            if token.id in self.state.queue:
                self.state.queue.remove(token.id)
            self.state.marking.joining.pop(token.id, None)
            self.refuse(turn, token, said)
        else:
            run.pipes.clear()
            self.finish(turn, run, "failed", None, said)

    def fire(self, turn: Turn, group: Group) -> None:
        state, step = self.state, self.compiler.step(group.step).step
        assert step.join is not None
        generation = state.marking.generations.get(group.generations[-1]) if group.generations else None
        ours = generation is not None and generation.split == self.net.split_of(group.step)
        args = generation.args if ours and generation is not None else group.arrived[0].args
        arrived = [_arrived(each) for each in group.arrived]
        skipped = generation.ended if ours and generation is not None else 0
        joined = {"arrived": arrived, "skipped": skipped, "late": []}
        source = {"from": group.arrived[-1].source["from"], "join": joined}
        token, withdrawn = self.net.fire(state.marking, group, args=args, source=source, made=turn.at)
        for each in (*group.arrived, *withdrawn):
            self.forget(turn, each)
            state.runs.pop(each.id, None)
            if each.id in state.queue:
                state.queue.remove(each.id)
        turn.note("join", f"{group.step}#{token.id}")
        if group.short and step.join.on_short == "fail":
            needs = self.net.joins[group.step].needs
            self.refuse(turn, token, error("join_short", f"{len(arrived)} of {needs} tokens came to {group.step}"))
        else:
            state.queue.append(token.id)

    def join_timed_out(self, turn: Turn, owner: Open) -> None:
        for group in self.net.groups(self.state.marking):
            if any(token.id == owner.token for token in group.arrived):
                needs = self.net.joins[group.step].needs
                self.fire(
                    turn, msgspec.structs.replace(group, short=len(group.arrived) < (needs or len(group.arrived) + 1))
                )
                return


def _arrived(token: Token) -> dict[str, Any]:
    """A token as its join sees it. The token of the start comes from no step."""
    source = token.source["from"] or {}
    return {**{key: source.get(key) for key in ("step", "run", "status", "result")}, "args": token.args}


def _ended(run: Run) -> dict[str, Any]:
    return {"status": run.status, "result": run.result, "error": run.error, "run": run.number}
