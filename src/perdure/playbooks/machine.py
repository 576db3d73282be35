"""The machine of one playbook: tokens, admission, routing, messages and the end.

A delivery changes the state by small parts of work until nothing is left to do: `_settle` is the loop. Pipelines
and loops have files of their own; `net.py` is the token game below all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.codec import decode, encode
from perdure.errors import BadCall
from perdure.expressions import NeedsRead
from perdure.expressions.jinja import Scope, compile_value
from perdure.kernel.decision import Decision, Reply
from perdure.kernel.effects import Timer, Wait
from perdure.kernel.events import Address, CancelAsked, Event, Message, Received, Started, Woken
from perdure.kernel.identity import Identity
from perdure.kernel.moment import TIME_MAX, Moment, when
from perdure.kernel.receipt import Receipt

from .keys import seconds
from .loops import Loops
from .net import Group, Net, Token
from .patch import patch
from .pipeline import Pipelines, put, run_location
from .scope import Code, Compiler, StepCode, has_template
from .state import Failed, Frame, Open, Pipe, Run, State, dump, restore
from .turn import SECOND, Turn
from .v10 import shape
from .values import Fault, NeedsPut, Stored, error, kept_of, shown
from .verdict import leaf_result, outcome, summary, verdict_of

FAILURES_MAX: Final = 1000
MAIL_MAX: Final = 1000


class PlaybookMachine:
    FIRED_MAX: Final = 1000
    """Runs and iterations without effects in one decision."""

    def __init__(self, compiler: Compiler, net: Net, snapshot: bytes | None = None) -> None:
        self.compiler = compiler
        self.net = net
        self.cache: dict[tuple[str, tuple[str | int, ...]], Any] = {}
        self.state = State() if snapshot is None else restore(snapshot, self.cache)
        self.pipelines = Pipelines(self)
        self.loops = Loops(self)
        self._identity: Identity | None = None
        self._changed: set[tuple[str, str]] = set()
        self._watch: dict[tuple[str, str], set[int]] | None = None  # gates by what they read; None: not made yet
        for reads in self.state.reads.values():
            for digest, path, value, found in reads:
                self._remember(digest, path, value, found=found)

    # ---- the contract --------------------------------------------------------------------------------------------

    def deliver(self, event: Event, moment: Moment) -> Decision:
        if isinstance(event, Started):
            self._name(event, moment)
        turn = Turn(self.state, self.identity, moment, self.compiler)
        match event:
            case Started():
                self._started(turn, event)
            case Received(intent=intent, receipt=receipt):
                self._received(turn, intent, receipt)
            case Message():
                self._message(turn, event)
            case CancelAsked(reason=reason):
                self._cancel(turn, reason)
            case Woken(location=location):
                self._wake(turn, location)
            case _:
                raise BadCall(f"a playbook takes no {type(event).__name__} event")
        self._settle(turn)
        return turn.decision()

    def work(self, intent: bytes) -> object:
        return None  # a call carries its parameters with it

    def snapshot(self) -> bytes | None:
        return dump(self.state)

    def dispose(self) -> None:
        pass

    @property
    def identity(self) -> Identity:
        if self._identity is None:
            state = self.state
            address = Address(self.compiler.playbook.name, state.key)
            self._identity = Identity(address, state.generation, state.seed, state.life)
        return self._identity

    # ---- what comes ----------------------------------------------------------------------------------------------

    def _name(self, event: Started, moment: Moment) -> None:
        state = self.state
        state.key, state.generation, state.seed = event.key, event.generation, event.seed
        state.started_at, state.id = moment.at, moment.seq
        state.steps = {step.name: None for step in self.compiler.playbook.steps}
        state.results = dict(state.steps)
        self._identity = None

    def _started(self, turn: Turn, event: Started) -> None:
        state, settings = self.state, self.compiler.playbook.settings
        given = decode(event.input)
        state.workload = merged(self.compiler.playbook.workload, given if isinstance(given, dict) else {})
        if self.compiler.playbook.v10 and has_template(state.workload):
            state.workload = self._rendered(turn, state.workload)
        state.ctx = {key: each.init for key, each in settings.ctx.items()}
        limit = seconds(settings.timeout) if settings.timeout is not None else None
        if limit is not None:
            turn.open(Timer("&timer", _due(turn, limit)), Open("limit", ""))
        if event.due > turn.at:
            turn.open(Timer("&start", event.due), Open("start", ""))
        else:
            self._enter(turn)

    def _rendered(self, turn: Turn, workload: Any) -> Any:
        """v10: the workload may have templates that read the workload."""
        names = {"workload": ("workload",), **{key: ("workload", key) for key in workload}}
        code = compile_value(workload, Scope(bind=names.get, v10=True))
        return turn.value(code, {"workload": workload}, "workload", "workload")

    def _enter(self, turn: Turn) -> None:
        self._token(turn, self.compiler.playbook.entry, (), {}, {"from": None, "join": None})

    def _received(self, turn: Turn, intent: bytes, receipt: Receipt) -> None:
        state = self.state
        owner = state.open.pop(intent)
        run = state.runs.get(owner.token)
        match owner.kind:
            case "start":
                self._enter(turn)
            case "go":
                pass  # what is to be done is in hand
            case "limit":
                self._stop(turn, error("timeout", "the instance took too long"))
            case "gate":
                self._gate_timeout(turn, owner)
            case "join":
                self._join_timeout(turn, owner)
            case "timeout" | "deadline":
                self._overdue(turn, owner)
            case "read" | "put":
                self._answered(owner, receipt)
            case "slice":
                assert run is not None
                self.loops.sliced(turn, run, owner, receipt)
            case _:
                assert run is not None
                pipe = run.pipes[owner.pipe]
                self._proceed(turn, run, pipe, owner, receipt)

    def _message(self, turn: Turn, event: Message) -> None:
        body = decode(event.body)
        if event.name == "ctx":
            writes, turn.reply = patch(self.state, self.compiler, body)
            if writes:
                self.write_ctx(turn, writes)
                turn.reply = Reply(value=encode({"ctx_version": self.state.ctx_version}))
                turn.note("patch", ", ".join(sorted(writes)))
            return
        waiting = [
            (each.token, each.pipe, id, each)
            for id, each in self.state.open.items()
            if each.kind == "message" and each.detail[0] == event.name
        ]
        if not waiting:
            if len(self.state.mail) >= MAIL_MAX:
                turn.reply = Reply(refused=f"{MAIL_MAX:,} messages wait already that no step has taken")
                return
            self.state.mail.append([event.name, body])
            return
        token, index, id, _ = min(waiting, key=lambda found: found[:2])
        turn.withdraw(id)
        run = self.state.runs[token]
        pipe = run.pipes[index]
        self.pipelines.outcome(turn, pipe.frames[-1], {"status": "ok", "result": body, "error": None})
        self._proceed(turn, run, pipe)

    def _cancel(self, turn: Turn, reason: str) -> None:
        self.state.cancelled, self.state.reason = True, reason
        if self.state.final == "running":
            self.state.final = "done"
        self._drop_all(turn)

    def _wake(self, turn: Turn, location: str) -> None:
        """End sleeps: of one location, or all of them."""
        asleep = [
            (each.location, id, each)
            for id, each in self.state.open.items()
            if each.kind == "sleep" and location in ("", each.location)
        ]
        for _, id, owner in sorted(asleep, key=lambda found: found[0]):
            turn.withdraw(id)
            run = self.state.runs[owner.token]
            self._proceed(turn, run, run.pipes[owner.pipe], owner, Receipt("ok"))

    # ---- the loop ------------------------------------------------------------------------------------------------

    def later(self, item: list[Any]) -> None:
        if item not in self.state.todo[-1:]:
            self.state.todo.append(item)

    def _settle(self, turn: Turn) -> None:
        """Do what can be done now. Each part may make more to do."""
        state = self.state
        while not state.ended:
            if turn.fired >= self.FIRED_MAX and (state.todo or state.queue):
                if not any(each.kind == "go" for each in state.open.values()):
                    state.asked += 1
                    turn.open(Timer(f"&go#{state.asked}", turn.at), Open("go", ""))
                return
            if state.todo:
                self._do(turn, state.todo.pop(0))
            elif state.queue:
                self._admit(turn, state.queue.pop(0))
            elif self._changed:
                self._test_again(turn)
            elif groups := self.net.ready_groups(state.marking):
                self._fire(turn, groups[0])
            elif not self._quiet(turn):
                return

    def _do(self, turn: Turn, item: list[Any]) -> None:
        what, token, index = item
        run = self.state.runs.get(token)
        if what == "admit":
            if token in self.state.marking.tokens:
                self._admit(turn, token)
        elif run is None:
            return
        elif what == "begin":
            self._begin(turn, run)
        elif what == "loop" and run.turns is not None and not run.status:
            self.loops.go_on(turn, run)
        elif what == "pipe" and index in run.pipes:
            self._proceed(turn, run, run.pipes[index])
        elif what == "end":
            self._end(turn, run)

    def _proceed(
        self, turn: Turn, run: Run, pipe: Pipe, owner: Open | None = None, receipt: Receipt | None = None
    ) -> None:
        try:
            if owner is not None and receipt is not None:
                self.pipelines.received(turn, run, pipe, owner, receipt)
            else:
                self.pipelines.proceed(turn, run, pipe)
        except (NeedsRead, NeedsPut) as need:
            self.need(turn, need, ["pipe", run.token, pipe.index], self.pipelines.location(run, pipe))

    def need(self, turn: Turn, need: NeedsRead | NeedsPut, item: list[Any], location: str) -> None:
        """Read or store a value first; then do the item again."""
        self.state.asked += 1
        if isinstance(need, NeedsPut):
            what, asked = "put", {"call": "values/put", "params": {"data": need.data}}
            detail: Any = [item, need.digest, "put"]
        else:
            assert isinstance(need.ref, Stored)
            digest, path = need.ref.kept.digest, list(need.path)
            what, asked = "read", {"call": "values/read", "params": {"digest": digest, "path": path}}
            asked["inline_max"] = self.compiler.playbook.settings.limits.max_result_bytes
            detail = [item, digest, path]
        turn.call(f"{location}/&{what}#{self.state.asked}", asked, Open(what, "", item[1], item[2], detail=detail))

    def _answered(self, owner: Open, receipt: Receipt) -> None:
        item, digest, path = owner.detail
        value: Any = None
        found = receipt.status == "ok" and receipt.value is not None
        if receipt.value is not None and found:
            told = decode(receipt.value)
            value = Stored(kept_of(told["ref"]), self.cache) if "ref" in told else told.get("result")
        self.state.reads.setdefault(owner.token, []).append([digest, path, value, found])
        self._remember(digest, path, value, found=found)
        self.later(item)

    def _remember(self, digest: str, path: Any, value: Any, *, found: bool) -> None:
        """A part of a stored value that was read. Reading one that is gone is a failure of what reads it."""
        if path != "put":
            gone = Fault("ref_missing", f"the stored value {digest[:12]} is gone")
            self.cache[digest, tuple(path)] = value if found else gone

    def _token(self, turn: Turn, step: str, generations: Any, args: Any, source: Any) -> None:
        """A new token: ready, or waiting at its join."""
        state = self.state
        state.counts.branches += 1
        token = self.net.enter(state.marking, step, generations, args=args, source=source, made=turn.at)
        if token is None:
            turn.note("absorbed", step)
            return
        limits = self.compiler.playbook.settings.limits
        if len(state.marking.tokens) > limits.max_tokens:
            self._stop(turn, error("limit_exceeded", f"more than {limits.max_tokens:,} tokens are alive"))
            return
        code = self.compiler.step(step)
        self._timer(turn, code.deadline_s, f"deadline/{step}#{token.id}/&timer", "deadline", token, code)
        if token.state == "ready":
            state.queue.append(token.id)
        else:
            self._timer(turn, code.join_timeout, f"join/{step}#{token.id}/&timer", "join", token, code)

    def _timer(self, turn: Turn, code: Code | None, location: str, kind: str, token: Token, step: StepCode) -> None:
        if code is None:
            return
        try:
            within = seconds(turn.value(code, self.roots(token.id, token.args, None), f"{step.path}/{kind}", location))
        except (Fault, NeedsRead):
            within = None
        if within is not None:
            turn.open(Timer(location, _due(turn, within)), Open(kind, "", token.id))

    # ---- admission -----------------------------------------------------------------------------------------------

    def roots(self, token: int, args: Any, run: Run | None) -> dict[str, Any]:
        """What every expression can see."""
        state, playbook = self.state, self.compiler.playbook
        found = state.marking.tokens.get(token)
        source = found.source if found is not None else {"from": None, "join": None}
        roots = {
            "workload": state.workload,
            "ctx": state.ctx,
            "args": args,
            "steps": state.steps,
            "_steps": state.results,
            "instance": self._instance(),
            "token": {"id": token, "from": source["from"]},
        }
        if source["join"] is not None:
            roots["join"] = source["join"]
        if playbook.v10:
            roots["data"] = playbook.data
            roots["job"] = {"uuid": str(state.id)}
        return roots

    def _instance(self) -> dict[str, Any]:
        state = self.state
        return {
            "id": state.id,
            "key": state.key,
            "playbook": self.compiler.playbook.name,
            "version": self.compiler.definition.version,
            "started_at": when(state.started_at).isoformat().replace("+00:00", "Z"),
        }

    def _allowed(self, turn: Turn, token: Token, code: StepCode) -> bool:
        if code.step.admit is None:
            return True
        roots = self.roots(token.id, token.args, None)
        for index, (guard, allow) in enumerate(code.admit):
            if turn.guard(guard, roots, f"{code.path}/admit/rules/{index}/when", f"gate/{token.step}#{token.id}"):
                return allow
        return False

    def _admit(self, turn: Turn, id: int) -> None:
        token = self.state.marking.tokens[id]
        code = self.compiler.step(token.step)
        try:
            if self._allowed(turn, token, code):
                self._run(turn, token)
                return
        except (NeedsRead, NeedsPut) as need:
            self.need(turn, need, ["admit", id, -1], f"gate/{token.step}#{id}")
            return
        except Fault as fault:
            self._refuse(turn, token, fault.error)
            return
        admit = code.step.admit
        assert admit is not None
        if admit.on_deny == "pending":
            self._hold(turn, token, code)
        elif admit.on_deny == "fail":
            self._refuse(turn, token, error("not_admitted", f"the gate of {token.step} denied the token"))
        else:
            self._discard(turn, token)

    def _hold(self, turn: Turn, token: Token, code: StepCode) -> None:
        if token.state == "pending":
            return
        token.state = "pending"
        location = f"gate/{token.step}#{token.id}"
        due = None
        if code.admit_timeout is not None:
            roots = self.roots(token.id, token.args, None)
            within = seconds(turn.value(code.admit_timeout, roots, f"{code.path}/admit/timeout", location))
            due = None if within is None else _due(turn, within)
        turn.open(Wait(location, ("ctx",), due), Open("gate", "", token.id))
        self._watched(token, code)

    def _watched(self, token: Token, code: StepCode) -> None:
        if self._watch is not None:
            for read in _gate_reads(code):
                self._watch.setdefault(read, set()).add(token.id)

    def _watchers(self) -> dict[tuple[str, str], set[int]]:
        if self._watch is None:
            self._watch = {}
            for token in self.state.marking.of("pending"):
                self._watched(token, self.compiler.step(token.step))
        return self._watch

    def _test_again(self, turn: Turn) -> None:
        """Test the gates that read something that has changed, the oldest first."""
        watch, changed = self._watchers(), self._changed
        self._changed = set()
        found = set(watch.get(("", ""), ()))
        for root, key in changed:
            found |= watch.get((root, key), set()) | watch.get((root, "*"), set())
        for id in sorted(found):
            token = self.state.marking.tokens.get(id)
            if token is None or token.state != "pending":
                for ids in watch.values():
                    ids.discard(id)
                continue
            self._test(turn, token)

    def _test(self, turn: Turn, token: Token) -> None:
        code = self.compiler.step(token.step)
        try:
            allowed = self._allowed(turn, token, code)
        except (NeedsRead, NeedsPut) as need:
            self.need(turn, need, ["admit", token.id, -1], f"gate/{token.step}#{token.id}")
            return
        except Fault as fault:
            turn.withdraw_at(f"gate/{token.step}#{token.id}")
            self._refuse(turn, token, fault.error)
            return
        if allowed:
            turn.withdraw_at(f"gate/{token.step}#{token.id}")
            self._run(turn, token)

    def _gate_timeout(self, turn: Turn, owner: Open) -> None:
        token = self.state.marking.tokens[owner.token]
        admit = self.compiler.step(token.step).step.admit
        assert admit is not None
        if admit.on_timeout == "admit":
            self._run(turn, token)
        elif admit.on_timeout == "fail":
            self._refuse(turn, token, error("timeout", f"the gate of {token.step} did not open in time"))
        else:
            self._discard(turn, token)

    def _discard(self, turn: Turn, token: Token) -> None:
        self.state.counts.denied += 1
        turn.note("discard", f"{token.step}#{token.id}")
        self._forget(turn, token)
        self.net.end(self.state.marking, token)

    def _refuse(self, turn: Turn, token: Token, error: dict[str, Any]) -> None:
        """The step fails without having begun; its arcs are looked at."""
        run = self._new_run(turn, token)
        self.finish(turn, run, "failed", None, error)

    def _overdue(self, turn: Turn, owner: Open) -> None:
        token = self.state.marking.tokens[owner.token]
        run = self.state.runs.get(token.id)
        said = error("timeout", f"{token.step} took too long", retryable=True)
        turn.withdraw_of(token.id)
        if run is None:
            if token.id in self.state.queue:
                self.state.queue.remove(token.id)
            self.state.marking.joining.pop(token.id, None)
            self._refuse(turn, token, said)
        else:
            run.pipes.clear()
            self.finish(turn, run, "failed", None, said)

    # ---- runs ----------------------------------------------------------------------------------------------------

    def _new_run(self, turn: Turn, token: Token) -> Run:
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

    def _run(self, turn: Turn, token: Token) -> None:
        """Fire a step: one run for one token."""
        limit = self.compiler.playbook.settings.limits.max_firings
        if self.state.firings >= limit and token.step != self.compiler.playbook.settings.final_step:
            cycle = " -> ".join(self.state.recent[-6:])
            self._stop(turn, error("livelock", f"{limit:,} runs, the last of them {cycle}"))
            return
        run = self._new_run(turn, token)
        code = self.compiler.step(token.step)
        self._timer(turn, code.timeout_s, f"{run_location(run)}/&timer", "timeout", token, code)
        self._begin(turn, run)

    def _begin(self, turn: Turn, run: Run) -> None:
        code = self.compiler.step(run.step)
        roots, location = self.roots(run.token, run.args, run), run_location(run)
        try:
            if code.step.loop is not None:
                run.turns = self.loops.begin(turn, code, roots, location)
                made: dict[str, Any] = {}
            else:
                made = {
                    key: turn.sized(turn.value(each, roots, f"{code.path}/args/{key}", location), run.token)
                    for key, each in code.args.items()
                }
        except (NeedsRead, NeedsPut) as need:
            self.need(turn, need, ["begin", run.token, -1], location)
            return
        except Fault as fault:
            self.finish(turn, run, "failed", None, fault.error)
            return
        run.phase = "running"
        if made:
            run.args = {**run.args, **made}
        if run.turns is not None:
            self.loops.go_on(turn, run)
        elif code.actions:
            run.pipes[-1] = Pipe(-1, [Frame()], run.args)
            self._proceed(turn, run, run.pipes[-1])
        else:
            self.finish(turn, run, "done", None, None)

    def pipe_ended(self, turn: Turn, run: Run, pipe: Pipe, *, ok: bool, result: Any, error: Any) -> None:
        run.extra = pipe.extra
        if run.turns is not None:
            self.loops.ended(turn, run, pipe, ok=ok, result=result, error=error)
        else:
            run.pipes.pop(pipe.index, None)
            self.finish(turn, run, "done" if ok else "failed", result, error)

    def finish(self, turn: Turn, run: Run, status: str, result: Any, error: Any) -> None:
        """A run has come to its end. Its sets and arcs are next."""
        run.phase, run.status, run.result, run.error = "end", status, result, error
        turn.withdraw_at(f"{run_location(run)}/&timer")
        self.later(["end", run.token, -1])

    def _end(self, turn: Turn, run: Run) -> None:
        code, location = self.compiler.step(run.step), run_location(run)
        try:
            writes, chosen = self._route(turn, run, code, location)
        except (NeedsRead, NeedsPut) as need:
            self.need(turn, need, ["end", run.token, -1], location)
            return
        except Fault as fault:
            run.status, run.error = "failed", fault.error
            writes, chosen = {}, []
        self._ended(turn, run, code, writes, chosen)

    def _route(
        self, turn: Turn, run: Run, code: StepCode, location: str
    ) -> tuple[dict[str, Any], list[tuple[Any, dict[str, Any]]]]:
        """The writes of a run and the arcs that it follows with their args; nothing is changed yet."""
        failed, is_final = run.status == "failed", run.step == self.compiler.playbook.settings.final_step
        roots = self.roots(run.token, run.args, run)
        loop = self.loops.shown(run)
        name = "step.failed" if failed else "loop.done" if loop is not None else "step.done"
        status, result, found = run.status, run.result, run.error
        roots["event"] = {
            **{"name": name, "step": run.step, "run": run.number, "status": status},
            **{"result": result, "error": found, "loop": loop},
        }
        roots["outcome"] = {"status": "error" if failed else "ok", "result": result, "error": found, **run.extra}
        if self.compiler.playbook.v10:
            roots["outcome"]["data"] = result
        if loop is not None:
            roots["loop"] = loop
        roots["steps"] = {**roots["steps"], run.step: _ended(run)}
        roots["_steps"] = {**roots["_steps"], run.step: self._shape(run)}
        writes: dict[str, Any] = {}
        if not failed:
            self._sets(turn, run, code.sets, roots, writes, f"{code.path}/set", location)
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
            self._sets(turn, run, arc.sets, roots, writes, f"{arc.path}/set", location)
        return writes, made

    def _sets(
        self, turn: Turn, run: Run, sets: Any, roots: dict[str, Any], writes: dict[str, Any], path: str, location: str
    ) -> None:
        made = [
            (key, turn.sized(turn.value(value, roots, f"{path}/{root}.{key}", location), run.token))
            for root, key, value in sets
        ]
        for key, value in made:
            roots["ctx"] = put(roots["ctx"], key, value)
            top = key.partition(".")[0]
            writes[top] = roots["ctx"][top]

    def _shape(self, run: Run) -> Any:
        if not self.compiler.playbook.v10:
            return run.result
        return shape(run.result, run.status, run.error, run.kind, run.extra)

    def _ended(self, turn: Turn, run: Run, code: StepCode, writes: dict[str, Any], chosen: list[Any]) -> None:
        """Sets, new tokens and the end of a run are one entry."""
        state, location = self.state, run_location(run)
        token = state.marking.tokens[run.token]
        settings = self.compiler.playbook.settings
        is_final = run.step == settings.final_step and state.final == "running"
        if writes:
            self.write_ctx(turn, writes)
        state.steps[run.step] = _ended(run)
        state.results[run.step] = self._shape(run)
        self._changed.add(("steps", run.step))
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
            self._token(turn, arc.arc.step, generations, args, source)
        self._leave(turn, token, run, routed=bool(chosen))
        if is_final:
            state.final = "done"
        elif not chosen:
            state.leaves[run.step] = run.result
            state.leaf_runs += 1
            state.leaf_ok = state.leaf_ok or not failed
        if failed and not handled and settings.status == "fail_fast" and not is_final:
            self._drop_all(turn)

    def _leave(self, turn: Turn, token: Token, run: Run, *, routed: bool) -> None:
        """A run is over, and its token with it."""
        self.state.runs.pop(run.token, None)
        self._forget(turn, token)
        if token.id in self.state.marking.tokens:
            self.net.end(self.state.marking, token, routed=routed)

    def _forget(self, turn: Turn, token: Token) -> None:
        """What a token still has open, and what was read for it."""
        if any(each.token == token.id for each in self.state.open.values()):
            turn.withdraw_of(token.id)
        for digest, path, *_ in self.state.reads.pop(token.id, ()):
            if path != "put":
                self.cache.pop((digest, tuple(path)), None)

    def _failed(self, run: Run, error: dict[str, Any], *, handled: bool) -> None:
        failures = self.state.failures
        location = run.failed_at or run_location(run)
        if len(failures) < FAILURES_MAX:
            again = [run.failed_at] if run.failed_at else []
            failures.append(Failed(location, str(error["kind"]), str(error["message"]), handled, again))

    # ---- joins ---------------------------------------------------------------------------------------------------

    def _fire(self, turn: Turn, group: Group) -> None:
        state, step = self.state, self.compiler.step(group.step).step
        assert step.join is not None
        generation = state.marking.generations.get(group.generations[-1]) if group.generations else None
        ours = generation is not None and generation.split == self.net.split_of(group.step)
        args = generation.args if ours and generation is not None else group.arrived[0].args
        arrived = [
            {
                "step": each.source["from"]["step"],
                "run": each.source["from"]["run"],
                "status": each.source["from"]["status"],
                "args": each.args,
                "result": each.source["from"]["result"],
            }
            for each in group.arrived
        ]
        skipped = generation.ended if ours and generation is not None else 0
        joined = {"arrived": arrived, "skipped": skipped, "late": []}
        source = {"from": group.arrived[-1].source["from"], "join": joined}
        token, withdrawn = self.net.fire(state.marking, group, args=args, source=source, made=turn.at)
        for each in (*group.arrived, *withdrawn):
            self._forget(turn, each)
            state.runs.pop(each.id, None)
            if each.id in state.queue:
                state.queue.remove(each.id)
        turn.note("join", f"{group.step}#{token.id}")
        if group.short and step.join.on_short == "fail":
            needs = self.net.joins[group.step].needs
            self._refuse(turn, token, error("join_short", f"{len(arrived)} of {needs} tokens came to {group.step}"))
        else:
            state.queue.append(token.id)

    def _join_timeout(self, turn: Turn, owner: Open) -> None:
        for group in self.net.groups(self.state.marking):
            if any(token.id == owner.token for token in group.arrived):
                needs = self.net.joins[group.step].needs
                self._fire(
                    turn, msgspec.structs.replace(group, short=len(group.arrived) < (needs or len(group.arrived) + 1))
                )
                return

    # ---- ctx -----------------------------------------------------------------------------------------------------

    def write_ctx(self, turn: Turn, writes: Mapping[str, Any]) -> None:
        state = self.state
        state.ctx = {**state.ctx, **writes}
        state.ctx_version += 1
        self._changed.update(("ctx", key) for key in writes)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _stop(self, turn: Turn, error: dict[str, Any]) -> None:
        """The instance itself fails: nothing goes on but the final step."""
        self._drop_all(turn)
        self.state.failures.append(Failed("", error["kind"], error["message"], handled=False))
        if self.state.final == "running":
            self.state.final = "done"

    def _drop_all(self, turn: Turn) -> None:
        state = self.state
        turn.withdraw_of()
        for id in sorted(state.marking.tokens):
            state.marking.drop(state.marking.tokens[id])
        state.runs.clear()
        state.queue.clear()
        state.todo.clear()
        state.reads.clear()
        self.cache.clear()

    def _quiet(self, turn: Turn) -> bool:
        """Nothing can fire. Whether there is more to do all the same."""
        state, settings = self.state, self.compiler.playbook.settings
        marking = state.marking
        if state.runs or any(each.kind in ("start", "go", "read", "put") for each in state.open.values()):
            return False
        if (group := self.net.blocked_group(marking)) is not None:
            self._fire(turn, group)
            return True
        pending = marking.of("pending")
        if pending:
            if settings.pending_at_end == "wait" or state.final == "running":
                return False
            for token in pending:
                if settings.pending_at_end == "discard":
                    self._discard(turn, token)
                else:
                    turn.withdraw_at(f"gate/{token.step}#{token.id}")
                    said = f"the gate of {token.step} was closed when all else was over"
                    self._refuse(turn, token, error("not_admitted", said))
            return True
        if marking.tokens:
            return False
        self._over(turn)
        return not state.ended

    def _over(self, turn: Turn) -> None:
        state, settings = self.state, self.compiler.playbook.settings
        if not state.final:
            state.verdict = verdict_of(state, settings)
            if settings.final_step and not state.fired.get(settings.final_step) and state.verdict in settings.final_on:
                state.final = "running"
                told = summary(state, state.verdict)
                self._token(turn, settings.final_step, (), {"summary": told}, {"from": None, "join": None})
                return
        elif state.final == "done" and not state.cancelled:
            self._judge_final()
        state.ended = True
        turn.withdraw_of()
        told = summary(state, state.verdict)
        turn.published.append(("summary", encode(shown(told))))
        result = None if state.verdict in ("failed", "cancelled") else self._result(turn, told)
        turn.outcome = outcome(state, result)

    def _judge_final(self) -> None:
        """A failure of the final step, and what it makes of the verdict."""
        state, settings = self.state, self.compiler.playbook.settings
        ended = state.steps.get(settings.final_step)
        if ended is not None and ended["status"] == "failed":
            if settings.final_failure == "fail":
                state.verdict = "failed"
            elif state.verdict == "success":
                state.verdict = "partial"

    def _result(self, turn: Turn, told: dict[str, Any]) -> Any:
        state, settings = self.state, self.compiler.playbook.settings
        code = self.compiler.result()
        if code is not None:
            roots = {**self.roots(0, {}, None), "summary": told}
            try:
                return turn.value(code, roots, "settings/result", "result")
            except (Fault, NeedsRead) as fault:
                said = (
                    fault.error if isinstance(fault, Fault) else error("template_error", "result reads a stored value")
                )
                state.failures.append(Failed("result", said["kind"], said["message"], handled=False))
                state.verdict = "failed"
                return None
        if state.final == "done":
            return state.steps[settings.final_step]["result"]
        return leaf_result(state)


def _ended(run: Run) -> dict[str, Any]:
    return {"status": run.status, "result": run.result, "error": run.error, "run": run.number}


def _gate_reads(code: StepCode) -> set[tuple[str, str]]:
    found = {("", "")} if code.volatile else set()
    for read in code.reads:
        root = {"_steps": "steps"}.get(str(read[0]), str(read[0]))
        if root in ("ctx", "steps"):
            found.add((root, str(read[1]) if len(read) > 1 else "*"))
    return found


def _due(turn: Turn, within: float) -> int:
    return min(turn.at + int(within * SECOND), TIME_MAX)


def merged(base: Any, over: Any) -> Any:
    """Maps are merged deeply; anything else is replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merged(base[key], item) if key in base else item for key, item in over.items()}}
