"""The crash test: a workflow with a crash before and after everything that it does durably.

First it runs without a crash. Then with one crash at every point, then with two, then under random trouble: killed
processes, a second owner, receipts that come late or twice. Each time it must come to the same end.

What may differ is what differs without any crash too, with other dice and other delays: ids, recorded times, the
winner of a race. That is found out by trying, and only when something does differ.
"""

from __future__ import annotations

import random as dice
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import timedelta
from traceback import extract_tb
from types import FunctionType
from typing import Any, Final, NamedTuple

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.errors import CallerError, CrashTestFailed
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address, Message, Retried, Settled, Started
from perdure.kernel.location import unescape
from perdure.kernel.rows import decode_outcome
from perdure.kernel.status import TERMINAL
from perdure.runtime.history import Reader
from perdure.views.export import words

from .auditor import Violation
from .disks import Disk, at_once
from .faults import TAKE_OVER, Faults
from .histories import changed_mind, without_advice, without_places
from .simulation import SimulatedRequest, quiet_log
from .steps import Run, Script
from .user_simulation import UserSimulation
from .world import World, WorldConnection, WorldHandle, nanoseconds

TROUBLE: Final = 200
OWNERS: Final = 5
"""How much happens in a random schedule before its faults stop: things, and processes that took over. More of those
would use up what a step is allowed, which is no error of anybody's."""

UNKNOWN: Final = ("OutcomeUnknown", "UndoFailed")
"""What an instance can be stuck at because a crash has met a step too often, or one that may run once only."""

VARIANTS: Final = 20
"""How many runs without a crash are looked at to learn what differs by itself."""


class CrashReport(msgspec.Struct, frozen=True):
    """What a crash test did. `repeated`: steps that ran again in some schedule, because a crash took their receipt."""

    singles: int
    pairs: int
    random: int
    repeated: tuple[str, ...]

    def __str__(self) -> str:
        again = f"; ran again: {', '.join(map(_told, self.repeated))}" if self.repeated else ""
        return f"{self.singles} single crashes, {self.pairs} pairs, {self.random} random schedules survived{again}"


def _told(location: str) -> str:
    """A location as people read it: an undo has the whole location of its step as its name."""
    before, undo, step = location.partition("&undo/")
    return f"the undo of {unescape(step)}" if undo else before


# ---- schedules -----------------------------------------------------------------------------------------


class CrashPoint(NamedTuple):
    """A crash: before or after a commit, or after a step has run and before its receipt; counted from 1.

    Or, in place of a crash, another owner, of whom the one that is about to commit knows nothing.
    """

    when: str
    number: int

    def __str__(self) -> str:
        return f"{self.when} {self.number}"


CRASHES: Final = ("before commit", "after commit")
TAKEN_OVER: Final = "taken over at commit"
FATES: Final = {**dict(zip(CRASHES, ("crash_before", "crash_after"), strict=True)), TAKEN_OVER: TAKE_OVER}
STEP: Final = "after step"


class Schedule(NamedTuple):
    """Which crashes: at these points, or at random, by this seed; neither: none."""

    points: tuple[CrashPoint, ...] = ()
    random: int | None = None

    def __str__(self) -> str:
        if self.random is not None:
            return f"random {self.random}"
        return ", ".join(map(str, self.points))

    def faults(self, cache: int) -> Faults:
        if self.random is not None:
            return _trouble(dice.Random(self.random), cache)
        commits = {point.number: FATES[point.when] for point in self.points if point.when in FATES}
        executions = frozenset(point.number for point in self.points if point.when == STEP)
        return Faults(commits=commits, executions=executions, cache=cache)


CALM: Final = Schedule()


def parse(text: str) -> Schedule:
    if (found := re.fullmatch(r"random (\d+)", text)) is not None:
        return Schedule(random=int(found[1]))
    points = [re.fullmatch(rf"({'|'.join([*FATES, STEP])}) (\d+)", part) for part in text.split(", ")]
    if not all(points):
        known = ", ".join(f"{when} 3" for when in [*FATES, STEP])
        raise CallerError(f"schedule={text!r}: a schedule is crashes like {known}, with commas between, or: random 7")
    return Schedule(tuple(CrashPoint(found[1], int(found[2])) for found in points if found is not None))


def _trouble(dice: dice.Random, cache: int) -> Faults:
    seldom: tuple[float, ...] = (0.0, 0.0, 0.03, 0.1)
    return Faults(
        crash_before=dice.choice(seldom),
        crash_after=dice.choice(seldom),
        crash_inside=dice.choice(seldom),
        false_error=dice.choice(seldom),
        true_error=dice.choice(seldom),
        late_commit=dice.choice((0.0, 0.3)),
        lost=dice.choice(seldom),
        kill=dice.choice((0.0, 0.02)),
        zombie=dice.choice((0.0, 0.02)),
        restart=dice.choice((0.0, 0.01)),
        duplicate=dice.choice((0.0, 0.3)),
        delay=dice.choice((0.0, 0.2)),
        cache=dice.choice((0, cache)),
    )


# ---- one run -------------------------------------------------------------------------------------------


class RunEnding(NamedTuple):
    """How a run came out. `instances`: the end of each, by name; `problem`: what is wrong whatever others show."""

    problem: str
    instances: dict[str, Any]
    observed: Any
    unknown: bool  # the flow was told that the outcome of a step is unknown: then its end may be another
    commits: int
    executions: int
    deaths: list[tuple[int, int]]
    runs: list[Run]

    @property
    def repeated(self) -> dict[str, int]:
        """How often each step ran that ran more than once as the same attempt."""
        times: dict[tuple[str, str, int], int] = defaultdict(int)
        for run in self.runs:
            times[run.instance, run.location, run.attempt] += 1
        return {location: count for (_, location, _), count in times.items() if count > 1}


class Trial:
    """What is run again and again. `name` and `findings` are for the report of a failure."""

    name = ""
    findings: Sequence[object] = ()

    def __init__(
        self, *, cache: int, reset: Callable[[], object] | None = None, observe: Callable[[], Any] | None = None
    ) -> None:
        self.cache = cache
        self.reset = reset
        self.observe = observe

    def run(
        self, schedule: Schedule, *, variant: int = 0, story: list[str] | None = None, disk: Disk | None = None
    ) -> RunEnding:
        faults = schedule.faults(self.cache)
        if variant:
            faults.delay = 0.5
            faults.late_commit = 0.3
        if self.reset is not None:
            self.reset()
        tell = None if story is None else story.append
        simulation = self._simulation(schedule, seed=variant, faults=faults, story=tell, disk=disk)
        simulation.dice.seed(
            variant or schedule.random or 0
        )  # of trouble alone: the dice of the workflow stay the same
        try:
            self._live(simulation, schedule)
            return self._ending(simulation, "", replay=len(schedule.points) < 2)
        except Violation as broken:
            return self._ending(simulation, f"perdure itself broke a rule, please report it: {broken}", replay=False)
        finally:
            if story is not None:
                story[:] = list(_in_words(story, simulation))
            simulation.close()

    def _ending(self, simulation: UserSimulation, problem: str, *, replay: bool) -> RunEnding:
        database = simulation.database
        observed = self._observed()
        ends: dict[str, Any] = {}
        for head in database.heads.values():
            address = Address(head.workflow, head.key)
            stuck = simulation.auditor.stuck(head.id)
            if stuck is not None and not problem:
                problem = f"{address} is stuck: {without_advice(str(stuck.error))}"
            workflow = simulation.workflows.of(head.workflow, head.version)
            if replay and not problem and workflow is not None:
                problem = self._changed_mind(simulation, head, workflow)
            ends[_named(head)] = self._end(simulation, head)
        for (id, name), value in database.published.items():
            ends[_named(database.heads[id])]["published"][name] = decode(value)
        if replay and not problem:
            problem = _changed_by_replay(observed, self._observed())
        return RunEnding(
            problem or self._wrong(simulation),
            ends,
            observed,
            simulation.auditor.unknown > simulation.counts["settled by a person"],
            simulation.counts["commits"],
            simulation.counts["executions"],
            simulation.deaths,
            simulation.runs,
        )

    def _observed(self) -> Any:
        return None if self.observe is None else deepcopy(self.observe())

    # ---- what differs from kind to kind ----------------------------------------------------------------

    def _simulation(self, schedule: Schedule, **options: Any) -> UserSimulation:
        """Where it runs."""
        raise NotImplementedError

    def _live(self, simulation: UserSimulation, schedule: Schedule) -> None:
        """All that happens in a run."""
        raise NotImplementedError

    def _wrong(self, simulation: UserSimulation) -> str:
        """What is wrong in the end, or an empty text."""
        return ""

    def _changed_mind(self, simulation: UserSimulation, head: HeadRow, workflow: Any) -> str:
        """What a replay of an instance decides otherwise, or an empty text."""
        rows, code = simulation.database.histories[head.id], simulation.workflows.exactly
        return changed_mind(Address(head.workflow, head.key), rows, workflow, code)

    def _end(self, simulation: UserSimulation, head: HeadRow) -> dict[str, Any]:
        return _end(head)


class WorkflowTrial(Trial):
    """One instance of a workflow, messages to it, and what else people do: see `crash_test`."""

    def __init__(
        self,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        key: str,
        messages: Sequence[tuple[Any, ...]],
        script: Mapping[str, Any],
        reset: Callable[[], object] | None,
        observe: Callable[[], Any] | None,
        cache: int,
        story: Callable[[World, WorldHandle[Any]], object] | None = None,
        handlers: Sequence[Any] = (),
    ) -> None:
        super().__init__(cache=cache, reset=reset, observe=observe)
        if not hasattr(workflow, "encode_input"):
            raise CallerError(f"{workflow!r} is not a workflow; did you forget @perdure.flow?")
        self.workflow = workflow
        self.name = workflow.name
        self.findings = getattr(workflow, "findings", ())
        self.address = Address(workflow.name, key)
        self.input = workflow.encode_input(args, kwargs)
        self.messages = [_message(given, number + 1) for number, given in enumerate(messages)]
        self.script = script
        self.story = story
        self.handlers = handlers
        self._raised = ""  # by the story, in this run

    def _simulation(self, schedule: Schedule, **options: Any) -> UserSimulation:
        troubled = self.story is not None and schedule.random is not None
        simulation = (TroubledSimulation if troubled else UserSimulation)(
            self.workflow, handlers=self.handlers, **options
        )
        simulation.scripts.update({name: Script(name, does) for name, does in self.script.items()})
        return simulation

    def _live(self, simulation: UserSimulation, schedule: Schedule) -> None:
        start = Started(self.address.workflow, self.address.key, self.input, simulation.clock.entropy(16))
        started = simulation.request(self.address, start, "start", lambda: self._send(simulation, list(self.messages)))
        if self.story is not None:
            self._tell(self.story, simulation, started)
        if schedule.random is not None:
            while simulation.steps < TROUBLE and simulation.owners < OWNERS and simulation.step_on():
                simulation.mischief()
            simulation.one_healthy_process()
        simulation.pass_until(None)
        while self._settle_unknown(simulation):
            simulation.pass_until(None)

    def _tell(
        self, story: Callable[[World, WorldHandle[Any]], object], simulation: UserSimulation, started: SimulatedRequest
    ) -> None:
        self._raised = ""
        world = World._on(simulation)
        world._started = 1  # the key of the first instance, unless another was given
        world._connection.forgiving = simulation.faults != Faults(cache=self.cache)
        while started.settled is None:
            simulation.pass_until(simulation.next_at())
        try:
            story(world, world.handle(self.workflow, self.address.key))
        except Exception as error:
            lines = [at.lineno for at in extract_tb(error.__traceback__) if at.name == story.__name__]
            self._raised = f"line {lines[-1] if lines else '?'}, in {story.__name__}: {type(error).__name__}: {error}"

    def _send(self, simulation: UserSimulation, messages: list[tuple[int, Message]]) -> None:
        """One after the other: each is sent at its time, and when the one before is acknowledged."""
        if messages:
            (at, message), *rest = messages

            def send() -> None:
                simulation.request(
                    self.address, message, f"message {message.name}", lambda: self._send(simulation, rest)
                )

            simulation.clock.after(at - simulation.clock.steady, send)

    def _settle_unknown(self, simulation: UserSimulation) -> bool:
        """A person who knows what happened answers for steps that a crash has left without an answer.

        False: no person is asked.
        """
        before = settled = simulation.counts["settled by a person"]
        for head in list(simulation.database.heads.values()):
            stuck = simulation.auditor.stuck(head.id)
            if stuck is not None and stuck.error.type in UNKNOWN and settled < simulation.auditor.unknown:
                address = Address(head.workflow, head.key)
                runs = [
                    run for run in simulation.runs if (run.instance, run.location) == (str(address), stuck.location)
                ]
                receipt = runs[-1].receipt if runs else None
                simulation.request(
                    address, Retried() if receipt is None else Settled(stuck.location, receipt), "settle"
                )
                settled += 1
        simulation.counts["settled by a person"] = settled
        return settled > before

    def _wrong(self, simulation: UserSimulation) -> str:
        if self._raised:  # after an unknown outcome the flow may do what the story does not expect
            return "" if simulation.auditor.unknown > simulation.counts["settled by a person"] else self._raised
        database = simulation.database
        id = database.names.get((self.address.workflow, self.address.key), 0)
        if id and database.heads[id].status in TERMINAL:
            return _other_arguments(simulation.runs)
        waits = at_once(WorldConnection(simulation).reason(id)) if id else "it was never started"
        advice = "; crash_test(..., messages=[(name, body)]) sends messages" if "message" in waits else ""
        return f"{self.address} does not come to an end: {waits}{advice}"


class TroubledSimulation(UserSimulation):
    """In which something may go wrong after everything that happens, for a while."""

    def _step(self, until: int) -> bool:
        going = super()._step(until)
        if self.steps == TROUBLE or self.owners == OWNERS:
            self.one_healthy_process()
        elif self.steps < TROUBLE and self.owners < OWNERS:
            self.mischief()
        return going


def _named(head: HeadRow) -> str:
    name = str(Address(head.workflow, head.key))
    return name if head.generation <= 1 else f"{name}, generation {head.generation}"


def _changed_by_replay(before: Any, after: Any) -> str:
    if before == after:
        return ""
    return (
        "a replay alone, in which no step runs, changes the outside world:\n"
        f"  before: {before!r}\n  after:  {after!r}\n"
        "  the code of a flow runs again whenever it is rebuilt; put what has an effect into a step"
    )


def _end(head: HeadRow) -> dict[str, Any]:
    outcome = None if head.outcome is None else decode_outcome(head.outcome)
    error = None if outcome is None or outcome.error is None else outcome.error
    return {
        "status": str(head.status),
        "result": None if outcome is None or outcome.value is None else decode(outcome.value),
        "error": None if error is None else without_places(str(error)),
        "published": {},
    }


def _other_arguments(runs: list[Run]) -> str:
    """A step that runs again must be asked for the same: else its arguments come from what no journal has."""
    first: dict[str, Run] = {}
    for run in runs:
        before = first.setdefault(run.idempotency_key, run)
        if None not in (run.plain, before.plain) and run.plain != before.plain:
            return (
                f"the step {run.location} ran again with other arguments: {before} and then {run}; what the flow "
                "gives to it is not recorded (a clock, dice, a variable outside): use ctx.now(), ctx.random, or a step"
            )
    return ""


def _message(given: tuple[Any, ...], number: int) -> tuple[int, Message]:
    match given:
        case (str() as name, body):
            at: Any = 0
        case (int() | float() | timedelta() as at, str() as name, body):
            pass
        case _:
            raise CallerError(
                f"messages=[...]: one is (name, body), or (seconds or timedelta, name, body), found {given!r}"
            )
    return nanoseconds(at), Message(name, encode(to_plain(body)), f"message {number}")


def _in_words(story: list[str], simulation: UserSimulation) -> Iterator[str]:
    """The story, with what each entry says beside its number."""
    told: dict[int, str] = {}
    for id, rows in simulation.database.histories.items():
        head = simulation.database.heads[id]
        for row, line in zip(rows, Reader().read(rows), strict=True):
            told[row.seq] = f"{head.workflow}/{head.key}: {words(line)}"
    for happened in story:
        yield f"  {happened}"
        if (found := re.search(r" commits entr(?:y|ies) (\d+)(?: to (\d+))?$", happened)) is not None:
            for seq in range(int(found[1]), int(found[2] or found[1]) + 1):
                yield f"               {told.get(seq, '')}"


# ---- all schedules -------------------------------------------------------------------------------------


def crash_test(
    workflow: Any,
    *args: Any,
    key: str = "1",
    messages: Sequence[tuple[Any, ...]] = (),
    script: Mapping[str, Callable[..., Any] | Sequence[Any]] | None = None,
    reset: Callable[[], object] | None = None,
    observe: Callable[[], Any] | None = None,
    story: Callable[[World, WorldHandle[Any]], object] | None = None,
    handlers: Sequence[Any] = (),
    tasks: Sequence[tuple[str, Any, Any]] = (),
    pairs: int = 400,
    random: int = 50,
    seed: int = 0,
    cache: int = 4096,
    schedule: str = "",
    **kwargs: Any,
) -> CrashReport:
    """Run a workflow with crashes everywhere; `CrashTestFailed` tells the first schedule that it does not survive.

    `messages` are sent to it: `(name, body)` at once, `(seconds or timedelta, name, body)` so long after the start.
    `script`: what steps do in place of their functions, by name (see `World.script`). `observe` is asked after each run
    what the outside world looks like, and `reset` makes it new before each. `story(world, handle)` is what people do in
    each run, once the instance is started: cancel, ask, wake, start other instances, let time pass. `pairs` and
    `random`: how many schedules of these kinds at most. `handlers`: as of a `World`. `tasks`: `(name, answer, actor)`,
    in the order in which the actors complete them, in place of a story. `cache=0`: no instance stays in memory.
    `schedule`: only this one, as a failure named it.
    """
    trial = WorkflowTrial(
        workflow,
        args,
        kwargs,
        key=key,
        messages=messages,
        script=script or {},
        reset=reset,
        observe=observe,
        cache=cache,
        story=_people(tasks) if tasks and story is None else story,
        handlers=handlers,
    )
    options = {
        "handlers": handlers,
        "tasks": tasks,
        "key": key,
        "messages": messages,
        "script": script,
        "reset": reset,
        "observe": observe,
        "story": story,
    }
    said = _call(workflow, args, kwargs, **options)
    with quiet_log():
        return Search(trial, said).all(parse(schedule) if schedule else None, pairs, random, seed)


PATIENCE: Final = (*([0.1] * 50), *([1] * 60), *([60] * 60))
"""Seconds that people wait, one after the other, until the task is there that they complete."""


def _people(tasks: Sequence[tuple[str, Any, Any]]) -> Callable[[World, WorldHandle[Any]], object]:
    def people(world: World, handle: WorldHandle[Any]) -> None:
        for name, answer, actor in tasks:
            found = world.tasks.list(name=name)
            for seconds in PATIENCE:
                if not found:
                    world.advance(seconds)
                    found = world.tasks.list(name=name)
            if not found:
                raise CallerError(f"no task {name} is open for {actor}; {handle!r} is {handle.status}")
            world.tasks.complete(found[0].id, answer, by=actor)

    return people


def _call(workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> str:
    """The call as it could be written again."""
    given = [getattr(workflow, "__name__", workflow.name), *map(repr, args)]
    given += [f"{name}={value!r}" for name, value in kwargs.items()]
    for name, value in options.items():
        if value and (name, value) != ("key", "1"):
            given.append(f"{name}={_shown(value)}")
    return f"crash_test({', '.join(given)}"


def _shown(value: Any) -> str:
    if isinstance(value, FunctionType):
        return value.__name__ if value.__name__.isidentifier() else "..."
    return "..." if callable(value) or isinstance(value, Mapping) else repr(value)


class Search:
    """Looks for a schedule that makes a difference."""

    def __init__(self, trial: Trial, call: str) -> None:
        self._trial = trial
        self._call = call
        self.calm = trial.run(CALM)
        self._variants: list[RunEnding] = []
        self._repeated: dict[str, None] = {}
        self._judge(CALM, self.calm)

    def all(self, only: Schedule | None, pairs: int, random: int, seed: int) -> CrashReport:
        if only is not None:
            self.check(only)
            return self._report(len(only.points) == 1, len(only.points) == 2, only.random is not None)
        singles = {point: self.check(Schedule((point,))) for point in points_of(self.calm)}
        possible = [(first, then) for first, ending in singles.items() for then in points_of(ending, after=True)]
        chosen = possible if len(possible) <= pairs else dice.Random(seed).sample(possible, pairs)
        for pair in chosen:
            self.check(Schedule(pair))
        for number in range(random):
            self.check(Schedule(random=seed + number))
        return self._report(len(singles), len(chosen), random)

    def _report(self, singles: int, pairs: int, random: int) -> CrashReport:
        return CrashReport(singles, pairs, random, tuple(self._repeated))

    def check(self, schedule: Schedule) -> RunEnding:
        ending = self._trial.run(schedule)
        self._judge(schedule, ending)
        self._repeated.update(dict.fromkeys(ending.repeated))
        return ending

    def _judge(self, schedule: Schedule, ending: RunEnding) -> None:
        finding = ending.problem or self._difference(ending)
        if finding:
            story: list[str] = []
            self._trial.run(schedule, story=story)
            raise CrashTestFailed(
                self._told(schedule, ending, finding),
                str(schedule),
                "\n".join(story),
                f"{self._call}, schedule={str(schedule)!r})" if schedule != CALM else f"{self._call})",
            )

    # ---- what is different -----------------------------------------------------------------------------

    def _difference(self, ending: RunEnding) -> str:
        calm = self.calm
        if ending.unknown:
            return ""
        if ending.observed != calm.observed and not self._by_itself("observed", ending):
            return (
                "the outside world is not what it is without a crash:\n"
                f"  without: {calm.observed!r}\n  with:    {ending.observed!r}\n{_blame(ending)}"
            )
        if ending.instances == calm.instances or self._by_itself("instances", ending):
            return ""
        for name in calm.instances.keys() | ending.instances.keys():
            without, found = calm.instances.get(name), ending.instances.get(name)
            if without != found:
                return f"{name} ends otherwise than without a crash:\n  without: {without}\n  with:    {found}"
        return ""

    def _by_itself(self, what: str, ending: RunEnding) -> bool:
        """Whether a difference needs no crash: runs without one, with other dice and delays, show it as well."""
        if not self._variants:
            self._variants = [self._trial.run(CALM, variant=number + 1) for number in range(VARIANTS)]
        samples = [getattr(each, what) for each in [self.calm, *self._variants]]
        return agrees(getattr(ending, what), samples)

    def _told(self, schedule: Schedule, ending: RunEnding, finding: str) -> str:
        name = self._trial.name
        if schedule == CALM:
            text = f"{name} goes wrong even without a crash: {finding}"
        else:
            where = "under random trouble" if schedule.random is not None else f"that comes {schedule}"
            text = f"{name} does not survive a crash {where}: {finding}"
        source = [str(found) for found in self._trial.findings]
        return text + "".join(f"\n  in its source: {each}" for each in source)


def points_of(ending: RunEnding, *, after: bool = False) -> list[CrashPoint]:
    """Where a run could crash (once more, `after` its last crash), in the order in which it would."""
    commits, executions = ending.deaths[-1] if after and ending.deaths else (0, 0)
    found = [CrashPoint(when, number + 1) for number in range(commits, ending.commits) for when in CRASHES]
    return found + [CrashPoint(STEP, number + 1) for number in range(executions, ending.executions)]


def _blame(ending: RunEnding) -> str:
    repeated = [f"{location} ran {times} times" for location, times in ending.repeated.items()]
    if not repeated:
        return "  no step ran more than once"
    return (
        f"  {', '.join(repeated)}: a crash between an effect and its receipt runs a step again. Let the step use "
        "step_info().idempotency_key, or look first whether it is done already; or give it once=True"
    )


def agrees(found: Any, samples: Sequence[Any]) -> bool:
    """Whether a value could be one of the samples, as far as these agree with each other."""
    if any(found == sample for sample in samples):
        return True
    known = [parts for sample in samples if (parts := _parts(sample)) is not None]
    if len(known) < len(samples):
        return any(sample != samples[0] for sample in samples)
    mine, names = _parts(found), known[0].keys()
    if any(len(parts) != len(names) for parts in known):
        return True
    if mine is None or len(mine) != len(names):
        return False
    if any(parts.keys() != names for parts in known):
        return True
    return mine.keys() == names and all(agrees(mine[name], [parts[name] for parts in known]) for name in names)


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a value is made of, by name or place; None: it has no parts."""
    match value:
        case dict():
            return value
        case list() | tuple():
            return dict(enumerate(value))
        case set() | frozenset():
            return dict.fromkeys(value)
        case _:
            return None
