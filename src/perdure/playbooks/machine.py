"""The machine of one playbook: tokens, admission, routing, messages and the end.

A delivery changes the state by small parts of work until nothing is left to do: `_settle` is the loop. Pipelines
and loops have files of their own; `net.py` is the token game below all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from perdure.codec import decode, encode
from perdure.errors import BadCall
from perdure.expressions import ABSENT, NeedsRead
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Effect, Timer
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Rewound, Started, Woken
from perdure.kernel.identity import Identity
from perdure.kernel.moment import Moment, when
from perdure.kernel.receipt import Receipt
from perdure.kernel.rewind import rewind

from .gates import Gates
from .keys import seconds
from .loops import Loops
from .net import Net, Token
from .patch import refusal
from .pause import Pauses
from .pipeline import Pipelines
from .runs import Runs
from .scope import Compiler
from .state import Failed, Open, OpenEffects, Pipe, Run, State, dump, restore
from .turn import Turn, due, effect_of
from .values import Fault, NeedsPut, Stored, error, kept_of, shown, stored_bytes, whole
from .verdict import leaf_result, outcome, summary, verdict_of

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
        self.gates = Gates(self)
        self.runs = Runs(self)
        self.pauses = Pauses(self)
        self._identity: Identity | None = None
        self._about: dict[str, Any] | None = None
        self.changed: set[tuple[str, str]] = set()
        self.watched: set[str] | None = None
        self._read_again()

    # ---- the contract --------------------------------------------------------------------------------------------

    def deliver(self, event: Event, moment: Moment) -> Decision:
        if isinstance(event, Rewound):
            return rewind(self, event, moment)
        if isinstance(event, Started):
            self._name(event, moment)
        turn = Turn(self.state, self.identity, moment, self.compiler)
        match event:
            case Started():
                self._started(turn, event)
            case ReceiptArrived(intent=intent, receipt=receipt):
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

    def begin_again(self, snapshot: bytes | None, life: int) -> None:
        """For a retry: the state before its past, with the ids of another life."""
        self.cache.clear()
        self.state = State() if snapshot is None else restore(snapshot, self.cache)
        self.state.life = life
        self._identity = self._about = None
        self.changed = set()
        self.gates = Gates(self)
        if snapshot is not None:
            opened = self.state.effects.values()
            self.state.open = OpenEffects({self.identity.intent(each.location, each.attempt): each for each in opened})
            self._read_again()

    def open_effects(self) -> dict[bytes, Effect]:
        return {id: effect_of(each) for id, each in self.state.effects.items()}

    # ---- what comes ----------------------------------------------------------------------------------------------

    def _name(self, event: Started, moment: Moment) -> None:
        state = self.state
        state.key, state.generation, state.seed = event.key, event.generation, event.seed
        state.started_at, state.id = moment.at, moment.seq
        state.steps = {step.name: None for step in self.compiler.playbook.steps}
        state.results = dict(state.steps)
        self._identity = self._about = None

    def _started(self, turn: Turn, event: Started) -> None:
        state, settings = self.state, self.compiler.playbook.settings
        given = decode(event.input)
        given = given if isinstance(given, dict) else {}
        state.workload = merged(self.compiler.playbook.workload, given)
        code = self.compiler.workload
        if code is not None:  # v10: defaults may be templates; what the caller gave never is one
            try:
                made = turn.value(code, {"workload": state.workload}, "workload", "workload")
                state.workload = merged(made, given)
            except Fault as fault:
                self.stop(turn, fault.error)
                return
        state.ctx = {key: each.init for key, each in settings.ctx.items()}
        limit = seconds(settings.timeout) if settings.timeout is not None else None
        if limit is not None:
            turn.open(Timer("&timer", due(turn, limit)), Open("limit", ""))
        if event.due > turn.at:
            turn.open(Timer("&start", event.due), Open("start", ""))
        else:
            self._enter(turn)

    def _enter(self, turn: Turn) -> None:
        self.token(turn, self.compiler.playbook.entry, (), {}, {"from": None, "join": None})

    def _received(self, turn: Turn, intent: bytes, receipt: Receipt) -> None:
        state = self.state
        owner = state.effects.take(intent)
        run = state.runs.get(owner.token)
        match owner.kind:
            case "start":
                self._enter(turn)
            case "go":
                pass  # what is to be done is in hand
            case "limit":
                self.stop(turn, error("timeout", "the instance took too long"))
            case "gate":
                self.gates.timed_out(turn, owner)
            case "join":
                self.runs.join_timed_out(turn, owner)
            case "timeout" | "deadline":
                self.runs.overdue(turn, owner)
            case "read" | "put":
                self._answered(owner, receipt)
            case "slice":
                assert run is not None
                self.loops.sliced(turn, run, owner, receipt)
            case _:
                assert run is not None
                pipe = run.pipes[owner.pipe]
                self.proceed(turn, run, pipe, owner, receipt)

    def _message(self, turn: Turn, event: Message) -> None:
        body = decode(event.body)
        if event.name == "ctx":
            self._patch(turn, event.id, body)
            return
        if self.pauses.hears(turn, event):
            return
        waiting = [
            (each.token, each.pipe, id, each)
            for id, each in self.state.effects.of_kind("message").items()
            if each.detail[0] == event.name
        ]
        if not waiting:
            self.state.mail = [*self.state.mail[1 - MAIL_MAX :], [event.name, body]]
            return
        token, index, id, _ = min(waiting, key=lambda found: found[:2])
        turn.withdraw(id)
        run = self.state.runs[token]
        pipe = run.pipes[index]
        self.pipelines.outcome(turn, pipe.frames[-1], {"status": "ok", "result": body, "error": None})
        self.proceed(turn, run, pipe)

    def _patch(self, turn: Turn, id: str, body: Any) -> None:
        """The message `ctx`: keys of ctx are changed by a person or another system."""
        refused = refusal(self.state.ctx_version, self.compiler, body)
        if not refused:
            self.write_ctx(turn, body["set"])
            turn.note("patch", ", ".join(sorted(body["set"])))
        answer = {"refused": refused} if refused else {"ctx_version": self.state.ctx_version}
        if id:
            turn.responded.append((id, encode(answer)))

    def _cancel(self, turn: Turn, reason: str) -> None:
        self.state.cancelled, self.state.reason = True, reason
        if self.state.final == "running":
            self.state.final = "done"
        self.drop_all(turn)

    def _wake(self, turn: Turn, location: str) -> None:
        """End sleeps: of one location, or all of them."""
        asleep = [
            (each.location, id, each)
            for id, each in self.state.effects.of_kind("sleep").items()
            if location in ("", each.location)
        ]
        for _, id, owner in sorted(asleep, key=lambda found: found[0]):
            turn.withdraw(id)
            run = self.state.runs[owner.token]
            self.proceed(turn, run, run.pipes[owner.pipe], owner, Receipt("ok"))

    # ---- the loop ------------------------------------------------------------------------------------------------

    def later(self, item: list[Any]) -> None:
        if item not in self.state.todo[-1:]:
            self.state.todo.append(item)

    def _settle(self, turn: Turn) -> None:
        """Do what can be done now. Each part may make more to do."""
        state = self.state
        while not state.ended:
            if turn.fired >= self.FIRED_MAX and (state.todo or state.queue):
                if not state.effects.of_kind("go"):
                    state.asked += 1
                    turn.open(Timer(f"&go#{state.asked}", turn.at), Open("go", ""))
                return
            if state.todo:
                self._do(turn, state.todo.pop(0))
            elif state.queue and not self.pauses.on:
                self.gates.admit(turn, state.queue.pop(0))
            elif self.changed and not self.pauses.on:
                self.gates.test_again(turn)
            elif groups := self.net.ready_groups(state.marking):
                self.runs.fire(turn, groups[0])
            elif not self._quiet(turn):
                return

    def _do(self, turn: Turn, item: list[Any]) -> None:
        what, token, index = item
        run = self.state.runs.get(token)
        if what == "admit":
            if token in self.state.marking.tokens and not self.gates.held_back(token):
                self.gates.admit(turn, token)
        elif run is None:
            return
        elif what == "begin":
            self.runs.begin(turn, run)
        elif what == "loop" and run.turns is not None and not run.status:
            self.loops.go_on(turn, run)
        elif what == "pipe" and index in run.pipes:
            self.proceed(turn, run, run.pipes[index])
        elif what == "end":
            self.runs.end(turn, run)

    def proceed(
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
            what = "put"
            asked: dict[str, Any] = {"call": "values/put", "params": {"data": need.data}}
            detail: Any = [item, need.digest, "put"]
        else:
            assert isinstance(need.ref, Stored)
            digest, path = need.ref.kept.digest, list(need.path)
            what = "read"
            asked = {"call": "values/read", "params": {"digest": digest, "path": path}}
            asked["inline_max"] = self.compiler.playbook.settings.limits.max_result_bytes
            detail = [item, digest, path]
        turn.call(f"{location}/&{what}#{self.state.asked}", asked, Open(what, "", item[1], item[2], detail=detail))

    def _answered(self, owner: Open, receipt: Receipt) -> None:
        item, digest, path = owner.detail
        value: Any = None
        found: bool | str = receipt.status == "ok" and receipt.value is not None
        if receipt.value is not None and found:
            told = decode(receipt.value)
            value = Stored(kept_of(told["ref"]), self.cache) if "ref" in told else told.get("result")
            found = "absent" if "absent" in told else found
        self.state.reads.setdefault(owner.token, []).append([digest, path, value, found])
        self._remember(digest, path, value, found=found)
        self.later(item)

    def _read_again(self) -> None:
        for reads in self.state.reads.values():
            for digest, path, value, found in reads:
                self._remember(digest, path, value, found=found)

    def _remember(self, digest: str, path: Any, value: Any, *, found: bool | str) -> None:
        """A part of a stored value that was read, or "absent". Reading what is gone is a failure of what reads it."""
        if path != "put":
            gone = Fault("ref_missing", f"the stored value {digest[:12]} is gone")
            self.cache[digest, tuple(path)] = ABSENT if found == "absent" else value if found else gone

    def token(self, turn: Turn, step: str, generations: Any, args: Any, source: Any) -> None:
        """A new token: ready, or waiting at its join."""
        state = self.state
        state.counts.branches += 1
        token = self.net.enter(state.marking, step, generations, args=args, source=source, made=turn.at)
        if token is None:
            turn.note("absorbed", step)
            return
        limits = self.compiler.playbook.settings.limits
        if len(state.marking.tokens) > limits.max_tokens:
            self.stop(turn, error("limit_exceeded", f"more than {limits.max_tokens:,} tokens are alive"))
            return
        self.timer(turn, "deadline", f"deadline/{step}#{token.id}/&timer", token)
        if token.state == "ready":
            state.queue.append(token.id)
        else:
            self.timer(turn, "join", f"join/{step}#{token.id}/&timer", token)

    def timer(self, turn: Turn, kind: Literal["timeout", "deadline", "join"], location: str, token: Token) -> None:
        """The timer of a run, a token or a join, if its step has one."""
        step = self.compiler.step(token.step)
        code = {"timeout": step.timeout_s, "deadline": step.deadline_s, "join": step.join_timeout}[kind]
        if code is None:
            return
        try:
            within = seconds(turn.value(code, self.roots(token.id, token.args), f"{step.path}/{kind}", location))
        except (Fault, NeedsRead):
            within = None
        if within is not None:
            turn.open(Timer(location, due(turn, within)), Open(kind, "", token.id))

    # ---- what expressions see ------------------------------------------------------------------------------------

    def roots(self, token: int, args: Any) -> dict[str, Any]:
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
        if self._about is None:
            state = self.state
            self._about = {
                "id": state.id,
                "key": state.key,
                "playbook": self.compiler.playbook.name,
                "version": self.compiler.definition.version,
                "started_at": when(state.started_at).isoformat().replace("+00:00", "Z"),
            }
        return self._about

    def write_ctx(self, turn: Turn, writes: Mapping[str, Any]) -> None:
        state = self.state
        state.ctx = {**state.ctx, **writes}
        state.ctx_version += 1
        self.changed.update(("ctx", key) for key in writes)

    # ---- the end -------------------------------------------------------------------------------------------------

    def stop(self, turn: Turn, error: dict[str, Any]) -> None:
        """The instance itself fails: nothing goes on but the final step."""
        self.drop_all(turn)
        self.state.failures.append(Failed("", error["kind"], error["message"], False, details=error["details"]))
        if self.state.final == "running":
            self.state.final = "done"

    def drop_all(self, turn: Turn) -> None:
        state = self.state
        self.pauses.lift(turn)
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
        if state.runs or any(map(state.effects.of_kind, ("start", "go", "read", "put"))):
            return False
        if self.pauses.on and (state.queue or marking.has("pending")):
            return False
        if (group := self.net.blocked_group(marking)) is not None:
            self.runs.fire(turn, group)
            return True
        if marking.has("pending"):
            if settings.pending_at_end == "wait" or state.final == "running":
                return False
            for token in marking.of("pending"):
                if settings.pending_at_end == "discard":
                    self.gates.discard(turn, token)
                else:
                    turn.withdraw_at(f"gate/{token.step}#{token.id}")
                    said = f"the gate of {token.step} was closed when all else was over"
                    self.runs.refuse(turn, token, error("not_admitted", said))
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
                self.token(turn, settings.final_step, (), {"summary": told}, {"from": None, "join": None})
                return
        elif state.final == "done" and not state.cancelled:
            self._judge_final()
        told = summary(state, state.verdict)
        try:
            over = state.cancelled or state.verdict in ("failed", "cancelled")
            result = None if over else self._result(turn, told)
        except NeedsRead as need:
            self.need(turn, need, ["over", 0, -1], "result")
            return
        state.ended = True
        self.pauses.lift(turn)
        turn.withdraw_of()
        turn.published.append(("summary", encode(shown(told))))
        turn.outcome = outcome(state, result, self.compiler.definition)

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
        """The result with its stored values read: parents and callers of every dialect take plain data."""
        state, settings = self.state, self.compiler.playbook.settings
        try:
            if self.compiler.result is not None:
                roots = {**self.roots(0, {}), "summary": told}
                result = turn.value(self.compiler.result, roots, "settings/result", "result")
            elif state.final == "done":
                result = state.steps[settings.final_step]["result"]
            else:
                result = leaf_result(state)
            return whole(result) if stored_bytes(result) <= settings.limits.max_result_bytes else result
        except Fault as fault:
            said = fault.error
            failed = Failed("result", said["kind"], said["message"], handled=False, details=said["details"])
            state.failures.append(failed)
            state.verdict = "failed"
            return None


def merged(base: Any, over: Any) -> Any:
    """Maps are merged deeply; anything else is replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merged(base[key], item) if key in base else item for key, item in over.items()}}
