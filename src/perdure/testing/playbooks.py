"""Playbooks on stubs: `simulate`, and the tests in `*.test.yaml`.

    playbook: restock.yaml
    tests:
      - name: it waits for a yes
        workload: {floor: 3}
        stubs: {scan/*/page: {rows: []}, order/*: {rows: []}, "*": null}
        send: [{at: 10, name: ctx, body: {set: {approved: true}}}]
        expect: {verdict: success, runs: {order: 1}, never: [apologise]}

A stub is a result, a list of results, or `{error: {kind, message, retryable}}`. The real machine runs in a world of
virtual time; an action without a stub fails.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.app.ours import load_playbook
from perdure.errors import CallerError, CrashTestFailed
from perdure.kernel.decision import Decision
from perdure.kernel.events import Event, Rewound, Started
from perdure.kernel.moment import Moment
from perdure.kernel.status import Status
from perdure.playbooks.author import PlaybookWorkflow
from perdure.playbooks.load import read_yaml
from perdure.playbooks.machine import PlaybookMachine
from perdure.playbooks.problem import meant
from perdure.tools import ToolError

from .crashes import crash_test
from .disks import at_once
from .steps import Script
from .user_simulation import UserSimulation
from .world import World

YEAR: Final = 365 * 24 * 3600


class Stubs(dict[str, Any]):
    """Scripts by patterns of locations. The first pattern that fits answers."""

    def __init__(self, table: Mapping[str, Any], otherwise: Script | None = None) -> None:
        super().__init__()
        self._table = [(pattern, outcome_of(pattern, given)) for pattern, given in table.items()]
        self._otherwise = otherwise
        self.unused = set(table)
        self.asked: list[str] = []

    def get(self, location: str, default: Any = None) -> Any:
        if "/" not in location:  # the name alone: patterns are of whole locations
            return default
        for pattern, script in self._table:
            if fnmatchcase(location, pattern) or fnmatchcase(location.partition("#")[0], pattern):
                self.unused.discard(pattern)
                return script
        return self._otherwise or default


def outcome_of(name: str, given: Any) -> Script:
    """A stub as a script: one outcome for each call, the last one for all further calls."""
    outcomes = given if isinstance(given, list) else [given]
    calls = iter(range(1_000_000_000))

    def answer(params: Any) -> Any:
        return _answer(outcomes[min(next(calls), len(outcomes) - 1)] if outcomes else None)

    return Script(name, answer)


def _answer(outcome: Any) -> Any:
    if isinstance(outcome, dict) and outcome.keys() == {"error"} and isinstance(outcome["error"], dict):
        error = outcome["error"]
        retryable = bool(error.get("retryable", False))
        raise ToolError(
            str(error.get("kind", "failed")), str(error.get("message", "a stub says so")), retryable=retryable
        )
    return outcome["result"] if isinstance(outcome, dict) and outcome.keys() == {"result"} else outcome


# ---- simulate ------------------------------------------------------------------------------------------------------


class Simulated(msgspec.Struct):
    """What runs of a playbook came to. `finding`: a crash made a difference."""

    runs: int
    verdicts: dict[str, int]
    unreached_steps: list[str]
    unreached_arcs: list[str]
    unreached_rules: list[str]
    finding: str = ""
    crashes: int = 0

    def document(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    def lines(self) -> list[str]:
        told = [f"{self.runs} runs: " + ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts.items()))]
        told += [f"no run came to the step {step}" for step in self.unreached_steps]
        told += [f"no run took the arc {arc}" for arc in self.unreached_arcs]
        told += [f"no run was decided by {rule}" for rule in self.unreached_rules]
        if self.crashes:
            told.append(f"{self.crashes} crashes at commits: " + (self.finding or "none made a difference"))
        return told


def simulate(
    playbook: PlaybookWorkflow,
    input: Mapping[str, Any],
    stubs: Mapping[str, Any],
    *,
    runs: int = 20,
    seed: int = 0,
    crash: bool = False,
) -> Simulated:
    """Run a playbook on stubs. Actions without one give null, or fail in one of four calls, by the dice of each run."""
    model = playbook.definition.playbook
    verdicts: dict[str, int] = {}
    steps = {step.name for step in model.steps}
    arcs = {f"{step.name} -> {arc.step}" for step in model.steps for arc in (step.next.arcs if step.next else ())}
    rules = _rules(playbook)
    playbook.watched = set()
    for number in range(runs):
        dice = random.Random(f"{seed}/{number}")
        told, seen, routes = _run(playbook, input, Stubs(stubs, _chance(dice)), number)
        verdicts[told] = verdicts.get(told, 0) + 1
        steps -= seen
        arcs -= routes
    unused = [name for path, name in rules.items() if path not in playbook.watched]
    playbook.watched = None
    made = Simulated(runs, verdicts, sorted(steps), sorted(arcs), unused)
    if crash:
        _crash(playbook, input, stubs, made)
    return made


def _rules(playbook: PlaybookWorkflow) -> dict[str, str]:
    """The rules of all actions, by their path, as people name them."""
    model, compiler = playbook.definition.playbook, playbook.compiler
    pipelines = {step.name: compiler.step(step.name).actions for step in model.steps}
    pipelines |= {f"workbook {name}": compiler.entry(name) for name in model.workbook}
    return {
        rule.path: f"rule {number} of {owner}/{action.action.label}"
        for owner, actions in pipelines.items()
        for action in actions
        for number, rule in enumerate(action.rules, 1)
    }


def _chance(dice: random.Random) -> Script:
    def answer(params: Any) -> Any:
        if dice.random() < 0.25:
            raise ToolError("simulated", "the dice say so", retryable=dice.random() < 0.5)

    return Script("dice", answer)


def _run(playbook: PlaybookWorkflow, input: Any, stubs: Stubs, seed: int) -> tuple[str, set[str], set[str]]:
    with World._on(UserSimulation(playbook, seed=seed, scripts=stubs)) as world:
        handle = world.start(playbook, dict(input))
        world.advance(YEAR)
        notes = [note for line in handle.history() for note in line.noted]
        seen, routes = _coverage(notes)
        summary = handle.read("summary")
        return (str(handle.status) if summary is None else summary["verdict"]), seen, routes


def _coverage(notes: Sequence[str]) -> tuple[set[str], set[str]]:
    seen, routes = set(), set()
    for note in notes:
        kind, _, rest = note.partition(" ")
        if kind == "route":
            location, _, targets = rest.partition(": ")
            step = location.partition("#")[0]
            seen.add(step)
            routes |= {f"{step} -> {target}" for target in targets.split(", ") if target}
    return seen, routes


def _crash(playbook: PlaybookWorkflow, input: Any, stubs: Mapping[str, Any], made: Simulated) -> None:
    labels = {action.label for step in playbook.definition.playbook.steps for action in step.actions}
    labels |= {action.label for actions in playbook.definition.playbook.workbook.values() for action in actions}
    script: dict[str, Any] = {label: (lambda params: None) for label in labels}
    for pattern, given in stubs.items():
        label = pattern.rpartition("/")[2]
        last = given[-1:] if isinstance(given, list) else given  # how often it is asked depends on the crash
        script |= {name: outcome_of(pattern, last) for name in labels if fnmatchcase(name, label)}
    try:
        report = crash_test(_twinned(playbook), dict(input), script=script, random=5, story=_ended)
        made.crashes = report.singles + report.pairs + report.random
    except CrashTestFailed as failed:
        made.crashes, made.finding = 1, str(failed).partition("\n")[0]


def _ended(world: World, handle: Any) -> None:
    """An instance that still waits after a year is cancelled: a crash test needs an end."""
    world.advance(YEAR)
    if handle.status is Status.WAITING:
        handle.cancel("it waits")


class _Twins(PlaybookWorkflow):
    """Each event is also delivered to a machine that was made from a snapshot, and both must decide the same."""

    def machine(self, address: str, snapshot: bytes | None) -> PlaybookMachine:
        make = super().machine
        made = make(address, snapshot)
        deliver = made.deliver

        def both(event: Event, moment: Moment) -> Decision:
            twin = None if isinstance(event, Started | Rewound) else make(address, made.snapshot())
            decision = deliver(event, moment)
            if twin is not None and self.differs(decision, twin.deliver(event, moment)):
                raise AssertionError("a machine that is made from a snapshot decides otherwise")
            return decision

        made.deliver = both  # type: ignore[method-assign]
        return made


def _twinned(playbook: PlaybookWorkflow) -> PlaybookWorkflow:
    made: PlaybookWorkflow = type("Twins", (_Twins, type(playbook)), {})(playbook.definition)
    return made


# ---- *.test.yaml ---------------------------------------------------------------------------------------------------

KEYS: Final = frozenset(("name", "workload", "stubs", "send", "expect", "playbook"))
EXPECTED: Final = frozenset(("verdict", "result", "ctx", "runs", "actions", "never"))


class Case(msgspec.Struct):
    """One test of a playbook."""

    file: Path
    name: str
    playbook: Path
    workload: dict[str, Any] = {}
    stubs: dict[str, Any] = {}
    send: list[dict[str, Any]] = []
    expect: dict[str, Any] = {}

    def run(self) -> list[str]:
        """What is not as expected, one line each."""
        playbook = load_playbook(self.playbook)
        stubs = Stubs(self.stubs)
        with World._on(UserSimulation(playbook, scripts=stubs)) as world:
            handle = world.start(playbook, self.workload)
            passed, problems = 0.0, []
            for each in sorted(self.send, key=lambda sent: float(sent.get("at", 0))):
                world.advance(max(0.0, float(each.get("at", 0)) - passed))
                passed = max(passed, float(each.get("at", 0)))
                try:
                    handle.send(each["name"], each.get("body"))
                except CallerError as refused:  # the rest of what is expected says why
                    problems.append(f"the message {each['name']} at {passed:g} s was refused: {refused}")
            world.advance(YEAR)
            problems += self._differences(world, handle)
        unused = [f"the stub {pattern} was never asked" for pattern in sorted(stubs.unused) if pattern != "*"]
        return problems + unused

    def _differences(self, world: World, handle: Any) -> list[str]:
        summary = handle.read("summary")
        verdict = str(handle.status) if summary is None else summary["verdict"]
        runs, done = _runs(handle), _actions(handle)
        problems: list[str] = []
        for key, wanted in self.expect.items():
            match key:
                case "verdict":
                    problems += _unlike("verdict", wanted, verdict)
                    failures = [] if summary is None else [each for each in summary["failures"] if not each["handled"]]
                    if wanted != verdict:
                        problems += [f"{each['location']} failed: {each['message']}" for each in failures[:3]]
                case "result":
                    problems += _unlike(
                        "result", wanted, handle.result() if verdict in ("success", "partial") else None
                    )
                case "ctx":
                    height = at_once(world._client.queries.height())
                    ctx = at_once(world._client.state(handle.workflow, handle.key, at=height))["ctx"]
                    for name, value in wanted.items():
                        problems += _unlike(f"ctx.{name}", value, ctx.get(name))
                case "runs":
                    for name, value in wanted.items():
                        problems += _unlike(f"runs of {name}", value, runs.get(name, 0))
                case "actions":
                    problems += [f"the action {each} was not performed" for each in wanted if each not in done]
                case _:
                    problems += [f"{name} ran {runs[name]} times" for name in wanted if name in runs]
                    problems += [f"the action {name} was performed" for name in wanted if name in done]
        return problems


def _actions(handle: Any) -> set[str]:
    """The locations of actions that were answered."""
    done = [line.location for line in handle.history() if line.event == "receipt"]
    return {location for location in done if "/&" not in location and "/backoff#" not in location}


def _runs(handle: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in handle.history():
        for note in line.noted:
            kind, _, rest = note.partition(" ")
            if kind == "route":
                step = rest.partition(": ")[0].partition("#")[0]
                counts[step] = counts.get(step, 0) + 1
    return counts


def _unlike(what: str, wanted: Any, found: Any) -> list[str]:
    return [] if wanted == found else [f"{what} is {found!r:.200}, expected {wanted!r:.200}"]


def cases_of(file: Path) -> list[Case]:
    """The tests in a file: a list under `tests`, or the file as one test."""
    data = read_yaml(file.read_text(encoding="utf-8"), str(file)).plain
    if not isinstance(data, dict):
        raise CallerError(f"{file}: a test is a map with playbook, stubs and expect")
    shared = {key: value for key, value in data.items() if key != "tests"}
    tests = data.get("tests", [{}])
    if not isinstance(tests, list) or not all(isinstance(each, dict) for each in tests):
        raise CallerError(f"{file}: tests is a list of maps")
    return [_case(file, {**shared, **each}, number) for number, each in enumerate(tests, 1)]


def _case(file: Path, data: dict[str, Any], number: int) -> Case:
    if "apiVersion" in data:
        raise CallerError(
            f"{file} is a playbook; tests of it are a file of their own, named like {file.stem}.test.yaml"
        )
    unknown = sorted(data.keys() - KEYS) + sorted(data.get("expect", {}).keys() - EXPECTED)
    if unknown:
        hint = meant(unknown[0], KEYS | EXPECTED)
        raise CallerError(f"{file}: a test has no key {unknown[0]}" + (f"; {hint}" if hint else ""))
    for each in data.get("send") or ():
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or each.keys() - {"at", "name", "body"}:
            raise CallerError(f"{file}: send is a list of {{at: SECONDS, name, body}}, found {each!r:.80}")
    if not isinstance(data.get("playbook"), str):
        raise CallerError(f"{file}: a test names its playbook")
    given = {key: value for key, value in data.items() if key not in ("name", "playbook") and value is not None}
    name = str(data.get("name") or f"test {number}")
    return Case(file, name, file.parent / data["playbook"], **given)
