"""Pipelines: actions one after the other, their attempts, and the rules that judge an outcome.

Each part of the work is evaluated first and changes the state after that: an evaluation that needs a stored value is
given up without a trace, and done again when the value was read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec import decode
from perdure.errors import BadCall, NotConvertible
from perdure.kernel.effects import Child, Timer, Wait
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.location import escape
from perdure.kernel.moment import TIME_MAX, at_of, when
from perdure.kernel.receipt import Receipt
from perdure.tasks.machine import EXPIRED
from perdure.tasks.model import WORKFLOW as TASK
from perdure.tasks.model import Escalation, Quorum, key_of, question

from .keys import seconds
from .kinds import OURS
from .scope import ActionCode, RuleCode
from .state import Frame, Open, Pipe, Run
from .turn import EXECUTOR, SECOND, Turn
from .v10 import labelled
from .values import Beside, Fault, Stored, canonical, error, kept_of, part, refuse_secrets, whole

if TYPE_CHECKING:
    from .machine import PlaybookMachine

TIMEOUT: Final = 60.0
KINDS: Final = {"Denied": "denied", "SecretMissing": "secret_missing", "NoHandler": "unknown_kind"}
"""Errors of the engine itself, as rules compare them."""

ATTEMPTS_MAX: Final = 1_000_000


class Verdict:
    """What the rules decide about an outcome: the sets, then the directive."""

    __slots__ = ("ctx", "iter", "numbers", "rule", "told", "writes")

    def __init__(self, ctx: dict[str, Any], iter: dict[str, Any]) -> None:
        self.ctx = ctx
        self.iter = iter
        self.writes: dict[str, Any] = {}
        self.rule: RuleCode | None = None
        self.numbers: dict[str, float] = {}
        self.told: Any = None  # the error of a fail


class Here(msgspec.Struct):
    """An action that is in hand, and all that it stands in."""

    turn: Turn
    run: Run
    pipe: Pipe
    frame: Frame
    code: ActionCode
    location: str


class Pipelines:
    def __init__(self, machine: PlaybookMachine) -> None:
        self.machine = machine

    # ---- going on ------------------------------------------------------------------------------------------------

    def proceed(self, turn: Turn, run: Run, pipe: Pipe) -> None:
        """Go on until something is open, or the pipeline has ended."""
        while pipe.frames:
            frame = pipe.frames[-1]
            if frame.phase not in ("begin", "after"):
                return
            actions = self.actions(run, frame)
            if frame.at >= len(actions):
                self._end(turn, run, pipe, ok=True, result=frame.result)
                continue
            here = Here(turn, run, pipe, frame, actions[frame.at], self.location(run, pipe))
            if frame.phase == "after":
                self._after(here)
            elif self.machine.pauses.on:
                return
            else:
                self._begin(here)

    def actions(self, run: Run, frame: Frame) -> tuple[ActionCode, ...]:
        compiler = self.machine.compiler
        return compiler.entry(frame.entry) if frame.entry else compiler.step(run.step).actions

    def location(self, run: Run, pipe: Pipe, *, depth: int | None = None) -> str:
        """`STEP#RUN/~INDEX/LABEL#VISIT`, and further labels within a workbook entry."""
        where = [run_location(run)]
        if pipe.index >= 0:
            where.append(f"~{pipe.index}")
        for frame in pipe.frames[:depth]:
            label = self.actions(run, frame)[frame.at].action.label
            visit = frame.visit or frame.visits.get(label, 0) + 1
            where.append(escape(label) + (f"#{visit}" if visit > 1 else ""))
        return "/".join(where)

    def roots(self, run: Run, pipe: Pipe, frame: Frame) -> dict[str, Any]:
        roots = self.machine.roots(run.token, frame.args if frame.entry else pipe.args)
        if pipe.writes:
            roots["ctx"] = {**roots["ctx"], **pipe.writes}
        roots["iter"] = pipe.iter
        roots["_prev"] = frame.prev
        roots["_attempt"] = frame.attempt
        roots["results"] = frame.results
        return roots

    # ---- an attempt begins ---------------------------------------------------------------------------------------

    def _begin(self, here: Here) -> None:
        turn, frame, code, state = here.turn, here.frame, here.code, self.machine.state
        first = frame.attempt == 0
        frame.attempt += 1
        try:
            roots = self.roots(here.run, here.pipe, frame)
            if first and not turn.guard(code.when, roots, f"{code.path}/when", here.location):
                frame.attempt = 0
                turn.note("skip", here.location)
                state.counts.skipped += 1
                frame.results[code.action.label] = None
                frame.at += 1
                return
            opened = self._prepare(here, roots)
        except Fault as fault:
            opened = ("outcome", {"status": "error", "result": None, "error": fault.error})
        except BaseException:
            frame.attempt -= 1
            raise
        if first:
            label = code.action.label
            frame.visits[label] = frame.visit = frame.visits.get(label, 0) + 1
            state.counts.actions += 1
        state.counts.attempts += 1
        frame.began = turn.at
        here.run.kind = code.action.kind
        self._start(here, *opened)

    def _prepare(self, here: Here, roots: dict[str, Any]) -> tuple[str, Any]:
        """All that an attempt needs, evaluated."""
        turn, code, location = here.turn, here.code, here.location
        fields = {
            key: turn.sized(turn.value(field, roots, f"{code.path}/fields/{key}", location), here.run.token)
            for key, field in code.fields.items()
        }
        args = None if code.args is None else turn.value(code.args, roots, f"{code.path}/args", location)
        if here.frame.entry and self.machine.compiler.playbook.v10 and isinstance(here.frame.args, dict):
            args = {**(args or {}), **here.frame.args}  # those of the entry are defaults
        if isinstance(args, dict):
            args = {key: turn.sized(item, here.run.token) for key, item in args.items()}
        if code.action.kind in OURS and code.action.kind != "workbook":
            self._kept([fields, args])
        match code.action.kind:
            case "noop":
                return "outcome", {"status": "ok", "result": fields.get("result"), "error": None}
            case "fail":
                told = {**(args if isinstance(args, dict) else {}), **fields}
                said = told.get("error") or told.get("kind") or "failed"
                made = error(str(said), str(told.get("message") or "failed"), retryable=told.get("retryable") is True)
                return "outcome", {"status": "error", "result": None, "error": made}
            case "workbook":
                if fields.get("use") not in self.machine.compiler.playbook.workbook:
                    raise Fault("unknown_kind", f"the workbook has no entry {fields.get('use')!r:.80}")
                return "workbook", (fields["use"], args)
            case "wait":
                return self._prepare_wait(turn, fields)
            case "workflow":
                return "child", (fields, self._input({} if args is None else args))
            case "task":
                return "task", ({"workflow": TASK}, self._question(here, whole(fields)))
            case _:
                return self._prepare_tool(here, roots, fields, args)

    def _kept(self, value: Any) -> None:
        """A value that is recorded. Secrets can come into it by the args of a workbook entry."""
        if self.machine.compiler.playbook.keychain:
            refuse_secrets(value)

    def _prepare_tool(self, here: Here, roots: dict[str, Any], fields: dict[str, Any], args: Any) -> tuple[str, Any]:
        turn, code, location = here.turn, here.code, here.location
        if args is not None and code.action.takes_args:
            fields["args"] = args
        if code.auth is not None:
            auth = turn.value(code.auth, roots, f"{code.path}/auth", location)
            fields["auth"] = auth
        timeout = None
        if code.timeout is not None:
            given = turn.value(code.timeout, roots, f"{code.path}/timeout", location)
            timeout = seconds(given)
            if timeout is None:
                raise Fault("template_error", f"{code.path}: the timeout {given!r:.60} is no duration")
        queue = None if code.queue is None else turn.value(code.queue, roots, f"{code.path}/queue", location)
        beside = Beside()
        asked: dict[str, Any] = {"call": f"tools/{code.action.kind}", "params": part(fields, beside)}
        if beside.secrets:
            asked["secrets"] = [list(each) for each in beside.secrets]
        if beside.refs:
            asked["refs"] = [list(each) for each in beside.refs]
        limits = self.machine.compiler.playbook.settings.limits
        asked["inline_max"] = code.action.inline_max_bytes
        asked["result_max"] = limits.max_result_bytes
        if code.action.select:
            asked["select"] = code.action.select
        return "tool", (asked, timeout, queue)

    def _input(self, args: Any) -> bytes:
        """The input of a child. A stored value is read first: workflows of every dialect take plain data."""
        input = canonical(whole(args), "the input of a child")
        if len(input) > VALUE_MAX:
            raise Fault("limit_exceeded", f"the input of a child has {len(input):,} bytes, at most {VALUE_MAX:,}")
        return input

    def _question(self, here: Here, fields: dict[str, Any]) -> bytes:
        """What a task asks, checked, as the input of its instance."""
        state, given = self.machine.state, {key: item for key, item in fields.items() if item is not None}
        try:
            for key in given.keys() & {"due", "expire"}:
                given[key] = self._when(given[key])
            given["escalate"] = [
                Escalation(**{**each, "after": timedelta(seconds=self._duration(each.get("after")))})
                for each in given.get("escalate", ())
            ]
            given["quorum"] = Quorum(**given["quorum"]) if "quorum" in given else None
            asked = question(
                here.code.action.label,
                workflow=self.machine.compiler.playbook.name,
                key=state.key,
                location=here.location,
                now=when(here.turn.at),
                **given,
            )
        except (BadCall, NotConvertible, TypeError, AttributeError) as wrong:
            raise Fault("template_error", f"the task cannot be asked for: {wrong}") from None
        return asked.encode()

    def _when(self, value: Any) -> datetime | timedelta:
        within = seconds(value)
        return self._time(value) if within is None else timedelta(seconds=within)

    def _time(self, value: Any) -> datetime:
        try:
            found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            raise Fault("template_error", f"{str(value)[:60]!r} is no time in ISO 8601") from None
        if found.tzinfo is None:
            raise Fault("template_error", f"the time {found} has no zone: add Z")
        return found

    def _prepare_wait(self, turn: Turn, fields: dict[str, Any]) -> tuple[str, Any]:
        if "message" in fields:
            within = None if fields.get("timeout") is None else self._duration(fields["timeout"])
            return "message", (str(fields["message"]), within, fields.get("on_timeout", "error"))
        if fields.get("for") is not None:
            return "sleep", turn.at + int(self._duration(fields["for"]) * SECOND)
        return "sleep", at_of(self._time(fields.get("until")))

    def _duration(self, value: Any) -> float:
        found = seconds(value)
        if found is None:
            raise Fault("template_error", f"{str(value)[:60]!r} is no duration")
        return found

    def _start(self, here: Here, what: str, given: Any) -> None:
        """Open what was prepared; or take the outcome at once."""
        turn, frame, location, action = here.turn, here.frame, here.location, here.code.action
        frame.phase = "open"
        owner = Open(what, location, here.run.token, here.pipe.index)
        match what:
            case "outcome":
                turn.note(action.kind if action.kind in ("noop", "fail") else "refused", location)
                self.outcome(turn, frame, given)
            case "workbook":
                entry, args = given
                turn.note("workbook", location)
                here.pipe.frames.append(Frame(entry=entry, args={} if args is None else args))
            case "sleep":
                turn.open(Timer(location, min(given, TIME_MAX)), owner)
            case "message":
                self._listen(here, owner, *given)
            case "child" | "task":
                self._child(here, owner, *given)
            case _:
                asked, timeout, queue = given
                turn.call(
                    location,
                    asked,
                    owner,
                    attempt=frame.attempt,
                    executor=queue or EXECUTOR,
                    timeout=int((TIMEOUT if timeout is None else timeout) * SECOND),
                    deliveries_max=1 if action.once else 4,
                )

    def _listen(self, here: Here, owner: Open, name: str, within: float | None, on_timeout: str) -> None:
        turn, frame = here.turn, here.frame
        mail = self.machine.state.mail
        for index, (kept, body) in enumerate(mail):
            if kept == name:
                del mail[index]
                turn.note("message", owner.location)
                self.outcome(turn, frame, {"status": "ok", "result": body, "error": None})
                return
        owner.detail = [name, on_timeout]
        due = None if within is None else min(turn.at + int(within * SECOND), TIME_MAX)
        turn.open(Wait(owner.location, (name,), due), owner)

    def _child(self, here: Here, owner: Open, fields: dict[str, Any], input: bytes) -> None:
        state, frame = self.machine.state, here.frame
        detached = fields.get("wait") == "none"
        owner.detail = [fields.get("return_step")]
        again = f":{frame.attempt}" if frame.attempt > 1 else ""
        if owner.kind == "task":
            key = key_of(state.key, state.generation, self.machine.compiler.playbook.name, owner.location + again)
        else:
            key = str(fields.get("key") or f"{state.family}/{owner.location}{again}")
        workflow = str(fields["workflow"]).replace("/", ".")
        here.turn.open(Child(owner.location, workflow, key, input, detached=detached, reuse="failed"), owner)

    # ---- an attempt has ended ------------------------------------------------------------------------------------

    def outcome(self, turn: Turn, frame: Frame, outcome: dict[str, Any]) -> None:
        """Keep the outcome of an attempt. Its rules are next."""
        visit, took = frame.visit or 1, (turn.at - frame.began) // 1_000_000
        outcome["meta"] = {"attempt": frame.attempt, "visit": visit, "duration_ms": took if frame.began else 0}
        if self.machine.compiler.playbook.v10:
            outcome |= {"data": outcome["result"], "pg": outcome.get("sql")}
        frame.outcome = outcome
        frame.phase = "after"

    def received(self, turn: Turn, run: Run, pipe: Pipe, owner: Open, receipt: Receipt) -> None:
        frame = pipe.frames[-1]
        if owner.kind == "backoff":
            frame.phase = "begin"
        else:
            self.outcome(turn, frame, self.read(owner, receipt))
        self.proceed(turn, run, pipe)

    def read(self, owner: Open, receipt: Receipt) -> dict[str, Any]:
        """The outcome that a receipt tells."""
        value = None if receipt.value is None else decode(receipt.value)
        if receipt.status == "ok":
            if owner.kind == "task" and value is not None:
                value = {**{key: value[key] for key in ("outcome", "answer", "by")}, "at": value["at"].isoformat()}
            if owner.kind == "child":
                value = self._of_child(owner, value)
            if owner.kind != "tool":
                return {"status": "ok", "result": value, "error": None}
            told = value if isinstance(value, dict) else {"result": value}
            result = told.pop("result", None)
            if "ref" in told:
                result = Stored(kept_of(told.pop("ref")), self.machine.cache)
            return {"status": "ok", "result": result, "error": None, **told}
        if owner.kind == "message":
            name, on_timeout = owner.detail
            if on_timeout == "continue":
                return {"status": "ok", "result": None, "error": None}
            return _error(error("timeout", f"the message {name} did not come in time", retryable=True))
        return _error(*self._failed(owner, receipt))

    def _of_child(self, owner: Open, value: Any) -> Any:
        step = owner.detail[0] if owner.detail else None
        if step and isinstance(value, dict) and step in value:
            return value[step]
        return value

    def _failed(self, owner: Open, receipt: Receipt) -> tuple[dict[str, Any], dict[str, Any]]:
        failure = receipt.error
        message = "" if failure is None else failure.message
        if receipt.status == "timeout":
            return error("timeout", message or "the attempt took too long", retryable=True), {}
        if receipt.status == "unknown":
            return error("lost", message or "the process died under it and it may not be repeated"), {}
        if failure is None:
            return error(receipt.status, message or receipt.status), {}
        if owner.kind in ("child", "task"):
            kind = "child_failed"
            if owner.kind == "task":
                kind = "timeout" if failure.type == EXPIRED else "task_cancelled"
            return error(kind, f"{failure.type}: {message}", retryable=False, details=failure.data), {}
        data = failure.data if isinstance(failure.data, dict) else {}
        told = {key: data[key] for key in ("http", "sql", "py") if key in data}
        kind = KINDS.get(failure.type) or str(data.get("kind") or failure.type)
        details = data.get("details", None if data.keys() & {"kind", "http", "sql", "py"} else failure.data)
        return error(
            kind,
            message,
            retryable=bool(data.get("retryable", failure.retry)),
            status=data.get("status"),
            details=details,
        ), told

    # ---- rules ---------------------------------------------------------------------------------------------------

    def _after(self, here: Here) -> None:
        frame = here.frame
        try:
            verdict = self._judge(here)
        except Fault as fault:
            if frame.outcome["status"] == "ok":  # the sets of the action failed: its rules see that error
                frame.outcome = {**frame.outcome, "status": "error", "result": None, "error": fault.error}
            else:
                self._end(here.turn, here.run, here.pipe, ok=False, error=fault.error)
            return
        outcome = frame.outcome
        self._write(here, verdict)
        here.pipe.extra = {key: outcome[key] for key in ("http", "sql", "py") if key in outcome}
        self._direct(here, verdict)

    def _judge(self, here: Here) -> Verdict:
        """Sets and rules, evaluated; nothing is changed yet."""
        turn, code, outcome = here.turn, here.code, here.frame.outcome
        roots = self.roots(here.run, here.pipe, here.frame)
        roots["outcome"] = outcome
        verdict = Verdict(roots["ctx"], here.pipe.iter)
        if outcome["status"] == "ok":
            self._set(here, code.sets, roots, verdict, f"{code.path}/set")
        for rule in code.rules:
            if turn.guard(rule.when, roots, f"{rule.path}/when", here.location):
                verdict.rule = rule
                if self.machine.watched is not None:
                    self.machine.watched.add(rule.path)
                self._set(here, rule.sets, roots, verdict, f"{rule.path}/set")
                for key, number in rule.numbers.items():
                    verdict.numbers[key] = _number(turn.value(number, roots, f"{rule.path}/{key}", here.location), key)
                if rule.error is not None:
                    verdict.told = turn.value(rule.error, roots, f"{rule.path}/error", here.location)
                    self._kept(verdict.told)
                break
        return verdict

    def _set(self, here: Here, sets: Any, roots: dict[str, Any], verdict: Verdict, path: str) -> None:
        """Values are made from what was before this set; later rules see what it made."""
        turn, location = here.turn, here.location
        made = [
            (root, key, turn.sized(turn.value(value, roots, f"{path}/{root}.{key}", location), here.run.token))
            for root, key, value in sets
        ]
        self._kept([value for _, _, value in made])
        for root, key, value in made:
            if root == "iter":
                verdict.iter = roots["iter"] = put(verdict.iter, key, value)
            else:
                top = key.partition(".")[0]
                verdict.ctx = roots["ctx"] = put(verdict.ctx, key, value)
                verdict.writes[top] = verdict.ctx[top]

    def _write(self, here: Here, verdict: Verdict) -> None:
        pipe, turns = here.pipe, here.run.turns
        pipe.iter = verdict.iter
        if verdict.writes and turns is not None and turns.parallel:
            pipe.writes = {**pipe.writes, **verdict.writes}
        elif verdict.writes:
            self.machine.write_ctx(here.turn, verdict.writes)

    def _direct(self, here: Here, verdict: Verdict) -> None:
        frame, code, rule = here.frame, here.code, verdict.rule
        outcome = frame.outcome
        ok, result = outcome["status"] == "ok", outcome["result"]
        if rule is not None:
            do = rule.rule.do
        else:
            unmatched = code.action.on_unmatched
            do = "continue" if unmatched == "continue" or (ok and unmatched == "default") else "fail"
        match do:
            case "continue":
                self._next(frame, code, result if ok else None)
                frame.prev = result if ok else frame.prev
            case "skip":
                self._next(frame, code, None)
            case "break":
                frame.results[code.action.label] = result
                self._end(here.turn, here.run, here.pipe, ok=True, result=result)
            case "fail":
                self._end(here.turn, here.run, here.pipe, ok=False, error=_told(verdict.told, outcome))
            case "jump" if rule is not None:
                self._jump(here, rule.rule.to, result if ok else None)
            case _:
                self._retry(here, verdict)

    def _next(self, frame: Frame, code: ActionCode, result: Any) -> None:
        frame.results[code.action.label] = result
        if self.machine.compiler.playbook.v10 and frame.outcome is not None:
            frame.results[code.action.label] = labelled(result, frame.outcome, code.action.kind)
        frame.result = result
        frame.outcome = None
        frame.at += 1
        frame.visit = frame.attempt = 0
        frame.phase = "begin"

    def _jump(self, here: Here, to: str, result: Any) -> None:
        turn, run, pipe, frame, code = here.turn, here.run, here.pipe, here.frame, here.code
        frame.jumps += 1
        limit = self.machine.compiler.playbook.settings.limits.max_jumps
        if frame.jumps > limit:
            self._end(
                turn, run, pipe, ok=False, error=error("jump_limit", f"the pipeline jumped more than {limit:,} times")
            )
            return
        labels = [each.action.label for each in self.actions(run, frame)]
        at = frame.at
        self._next(frame, code, result)
        frame.prev = result if result is not None else frame.prev
        frame.at = max(at - 1, 0) if to == "previous" else labels.index(to)

    def _retry(self, here: Here, verdict: Verdict) -> None:
        turn, run, pipe, frame = here.turn, here.run, here.pipe, here.frame
        assert verdict.rule is not None
        rule, numbers, outcome = verdict.rule.rule, verdict.numbers, frame.outcome
        if frame.attempt >= numbers["attempts"]:
            spent = error("retries_exhausted", f"still not as wanted after {frame.attempt} attempts")
            self._end(turn, run, pipe, ok=False, error=outcome["error"] or spent)
            return
        delay = numbers["delay"]
        if rule.backoff == "linear":
            delay *= frame.attempt
        elif rule.backoff == "exponential":
            delay *= 2 ** min(frame.attempt - 1, 64)
        delay = min(delay, numbers["max_delay"])
        if numbers["jitter"]:
            dice = int.from_bytes(turn.entropy[:6], "big") / 2**48
            delay *= 1 - numbers["jitter"] * dice
        wished = _retry_after(turn, outcome) if rule.retry_after else None
        if wished is not None:
            delay = max(delay, min(wished, numbers["max_delay"]))
        frame.outcome = None
        if delay <= 0:
            frame.phase = "begin"
            return
        frame.phase = "backoff"
        due = min(turn.at + int(delay * SECOND), TIME_MAX)
        owner = Open("backoff", "", run.token, pipe.index)
        turn.open(Timer(f"{here.location}/backoff#{frame.attempt}", due), owner)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _end(self, turn: Turn, run: Run, pipe: Pipe, *, ok: bool, result: Any = None, error: Any = None) -> None:
        """A pipeline has ended: that of a workbook entry is the outcome of the action that ran it."""
        if not ok and not run.failed_at:
            run.failed_at = self.location(run, pipe)
        ended = pipe.frames.pop()
        if pipe.frames:
            if ok:
                run.failed_at = ""
            status = "ok" if ok else "error"
            self.outcome(turn, pipe.frames[-1], {"status": status, "result": result, "error": error})
            return
        if self.machine.compiler.playbook.v10:
            run.results = ended.results
        self.machine.runs.pipe_ended(turn, run, pipe, ok=ok, result=result, error=error)


def run_location(run: Run) -> str:
    return run.step + (f"#{run.number}" if run.number > 1 else "")


def put(target: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a map with a value at a path like `a.b`."""
    first, dot, rest = key.partition(".")
    if dot:
        inner = target.get(first)
        value = put(inner if isinstance(inner, dict) else {}, rest, value)
    return {**target, first: value}


def _error(made: dict[str, Any], told: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"status": "error", "result": None, "error": made, **(told or {})}


def _number(value: Any, what: str) -> float:
    if isinstance(value, str):
        found = seconds(value)
        value = value if found is None else found
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= ATTEMPTS_MAX * 1000:
        raise Fault("template_error", f"{what} is a number, found {str(value)[:60]!r}")
    return value


def _told(told: Any, outcome: dict[str, Any]) -> dict[str, Any]:
    """The error that a fail ends with."""
    found: dict[str, Any] = outcome["error"] or error("failed", "a rule says fail")
    if isinstance(told, str):
        return {**found, "message": told}
    if isinstance(told, dict):
        known = {key: told[key] for key in ("kind", "message", "retryable", "status", "details") if key in told}
        return {**found, **known}
    return found


def _retry_after(turn: Turn, outcome: dict[str, Any]) -> float | None:
    """Seconds until the time that the server names, as a number or as a date."""
    headers = (outcome.get("http") or {}).get("headers") or {}
    found = headers.get("retry-after") if isinstance(headers, dict) else None
    if not isinstance(found, str):
        return None
    if found.isdecimal() and len(found) < 10:
        return float(found)
    try:
        named = parsedate_to_datetime(found)
    except ValueError:
        return None
    return None if named.tzinfo is None else max(0.0, (at_of(named) - turn.at) / SECOND)
