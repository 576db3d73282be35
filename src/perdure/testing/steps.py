"""Steps in a world of virtual time: the user's own functions, or what a script says in their place.

An async step runs on an event loop whose time is the world's: `asyncio.sleep(60)` in a step takes a minute
of virtual time and none of yours. A sync step is called right there, without a thread. Real input and output
work too, if they must: the world then waits for them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from importlib import import_module
from math import ulp
from typing import Any, Final, Literal

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.codec.returns import returns_of
from perdure.errors import CallerError, Fatal, PerdureError
from perdure.executors import info
from perdure.executors.effects import EffectsExecutor
from perdure.executors.frames import frame_of
from perdure.executors.hooks import Hooks, perform
from perdure.executors.inline import InlineExecutor
from perdure.executors.queue import FoundFunction, work_of
from perdure.kernel.batch import Publication
from perdure.kernel.location import unescape
from perdure.kernel.moment import first_nanosecond
from perdure.kernel.problem import Report
from perdure.kernel.receipt import Receipt, is_interrupt
from perdure.ports.executor import Answered, Framed, Handler, Requests, Work
from perdure.runtime.virtual_clock import SECOND, Life, VirtualAlarm, VirtualClock

from .executor import FakeExecutor, Site
from .faults import SimulatedProcess
from .tools import tool_answer

PATIENCE_SECONDS: Final = 10.0
"""How long, in real time, a step may wait for real input or output."""

RunStatus = Literal["running", "ok", "error", "cut"]


class Run(msgspec.Struct, eq=False):
    """One run of a step: which, as which attempt, with which arguments.

    `delivery` is over 1 when a crash has run the attempt again. `status` is how it ended: `ok`, `error`, or `cut`
    (a timeout, a lost race, a cancel); `running` while it runs, and for ever if a crash met it.
    """

    instance: str
    name: str
    location: str
    attempt: int
    delivery: int
    idempotency_key: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    plain: bytes | None  # the arguments as they were when it began, if they can be written down
    status: RunStatus = "running"
    receipt: Receipt | None = None

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"<run of {self.location}({', '.join(given)}): {self.status}>"


class Script:
    """What a step does instead of its function: a function, or one answer for each call, in order."""

    def __init__(self, name: str, does: Callable[..., Any] | Sequence[Any]) -> None:
        if not callable(does) and not isinstance(does, list | tuple):
            raise CallerError(
                f"the script of {name!r} is a function, or a list with one answer for each call, found {does!r}; "
                f"write world.script({name!r}, returns=...) for one that always returns the same"
            )
        self._name = name
        self._does = does
        self._calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if callable(self._does):
            return self._does(*args, **kwargs)
        self._calls += 1
        if self._calls > len(self._does):
            raise Fatal(f"the script of {self._name!r} has {len(self._does)} answers, and this is call {self._calls}")
        answer = self._does[self._calls - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class StepLoop(asyncio.SelectorEventLoop):
    """The event loop of a process's async steps. It runs when the world's clock says so, and never waits by itself."""

    def __init__(self, clock: VirtualClock, life: Life) -> None:
        self._virtual = clock
        self._life = life
        self._alarm: VirtualAlarm | None = None
        self._in_threads: set[asyncio.Future[Any]] = set()
        super().__init__()
        self.steps, self._hooks = self.run_until_complete(_inline())

    def time(self) -> float:
        return self._virtual.steady / SECOND

    @property
    def _clock_resolution(self) -> float:
        """What asyncio takes for now: a timer is due at its time, not before it."""
        return ulp(self.time())

    @_clock_resolution.setter
    def _clock_resolution(self, resolution: float) -> None:
        """asyncio sets that of the machine's clock, which is not the clock here."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._in_threads.add(future)
        future.add_done_callback(self._in_threads.discard)
        return future

    def tell(self, report: Report) -> None:
        """Call the hook of a failure."""
        self._hooks.tell(report)
        self.turn_soon()

    def turn_soon(self) -> None:
        self._virtual.after(0, self._turn, self._life)

    def _turn(self) -> None:
        """Run what is ready, and ask to be called again when the next of the loop's own timers is due."""
        self._run_ready()
        while self._waits_for_reality():
            events = self._selector.select(PATIENCE_SECONDS)  # type: ignore[attr-defined]
            if not events:
                raise CallerError(
                    f"a step has waited {PATIENCE_SECONDS:g} s for real input or output, and nothing came; "
                    "give it a script: world.script(name, returns=...)"
                )
            self._process_events(events)  # type: ignore[attr-defined]
            self._run_ready()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if timers:
            delay = first_nanosecond(min(timers)) - self._virtual.steady
            self._alarm = self._virtual.after(delay, self._turn, self._life)

    def _run_ready(self) -> None:
        while True:
            self.call_soon(self.stop)  # one round, without waiting: first come the timers that are due
            self.run_forever()
            if not self._ready:  # type: ignore[attr-defined]
                return

    def _waits_for_reality(self) -> bool:
        """Whether a step waits for a socket or a thread. One descriptor is the loop's own."""
        sockets = len(self._selector.get_map()) > 1  # type: ignore[attr-defined]
        return (sockets or bool(self._in_threads)) and bool(asyncio.all_tasks(self))

    def end(self) -> None:
        """Let go of everything. What a crash has met is taken apart only now: a dead process runs no clean-up."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.cancel()
        self._run_ready()
        self.close()


class HooksHere(Hooks):
    """Hooks of a world: a plain function is called on the thread of the test."""

    def _in_thread(self, report: Report) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        answer.set_result(perform(report))
        return answer


async def _inline() -> tuple[InlineExecutor, HooksHere]:
    return InlineExecutor(), HooksHere()


class StepExecutor(FakeExecutor):
    """Runs steps at once, async ones on a `StepLoop`. They take the time that they sleep for, and no other."""

    def __init__(
        self,
        name: str,
        around: SimulatedProcess,
        site: Site,
        *,
        loop: Callable[[], StepLoop],
        scripts: dict[str, Script],
        runs: list[Run],
    ) -> None:
        super().__init__(name, None, around, site)
        self._loop = loop
        self._scripts = scripts
        self._runs = runs
        self._current: dict[bytes, Run] = {}
        self._hear: Requests | None = None

    def start(self, publication: Publication, answered: Answered) -> None:
        self._site.executing(self._process, publication)
        self.running[publication.intent] = publication
        work = self._work(publication)
        if work is None:
            self._clock.after(0, lambda: self._answer(publication, info.NO_WORK, answered), self._life)
        elif self.name == "inline":
            self._await(publication, work, answered)
        else:
            self._clock.after(0, lambda: self._call_now(publication, work, answered), self._life)

    def hear(self, requested: Requests) -> None:
        self._hear = requested

    def answer(self, intent: bytes, id: str, value: bytes) -> None:
        self._loop().steps.answer(intent, id, value)
        self._loop().turn_soon()

    def _requested(self, *request: Any) -> None:
        """By the clock: a loop is running where a step asks."""
        if self._hear is not None:
            self._clock.after(0, partial(self._hear, *request), self._life)

    def stop(self, intent: bytes) -> None:
        if self.running.pop(intent, None) is not None:
            run = self._current.pop(intent, None)
            if run is not None:
                run.status = "cut"
            self._loop().steps.stop(intent)
            self._loop().turn_soon()

    def _duration(self) -> int:
        return 0

    # ---- one run ---------------------------------------------------------------------------------------

    def _await(self, publication: Publication, work: Work, answered: Answered, *, begun: bool = False) -> None:
        """On the event loop, as the inline executor does it."""

        async def watched(*args: Any, **kwargs: Any) -> Any:
            if not begun:
                self._begins(publication, args, kwargs)
            value = work.function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        loop = self._loop()
        if self._framed is not None:
            loop.steps.listen(self._framed)
        loop.steps.hear(self._requested)
        asked = msgspec.structs.replace(publication, work=msgspec.structs.replace(work, function=watched))
        loop.steps.start(asked, lambda _, receipt: self._ends(publication, receipt, answered))
        loop.turn_soon()

    def _call_now(self, publication: Publication, work: Work, answered: Answered) -> None:
        """Without an event loop around it, as in a thread. What it gives to be awaited is awaited on the loop."""
        if publication.intent not in self.running:
            return

        def call() -> Any:
            info.current.set(info.StepInfo.of(publication, self))
            self._begins(publication, work.args, dict(work.kwargs))
            return work.function(*work.args, **work.kwargs)

        try:
            value = copy_context().run(call)
        except BaseException as error:
            if is_interrupt(error):
                raise
            self._ends(publication, info.error(error), answered)
            return
        if inspect.isawaitable(value):
            given = msgspec.structs.replace(work, function=lambda: value, args=(), kwargs={})
            self._await(publication, given, answered, begun=True)
        else:
            self._ends(publication, info.ok(value, work.returns), answered)

    def _begins(self, publication: Publication, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        about = info.step_info()
        self._execute(publication, about)
        run = Run(
            about.instance,
            _name_of(about.location),
            about.location,
            about.attempt,
            about.delivery,
            about.idempotency_key,
            args,
            kwargs,
            _written(args, kwargs),
        )
        self._runs.append(run)
        self._current[publication.intent] = run

    def _ends(self, publication: Publication, receipt: Receipt, answered: Answered) -> None:
        """The step has ended. The rest is done by the clock: a loop may still be running here."""
        run = self._current.pop(publication.intent, None)
        if run is not None:
            run.status, run.receipt = "ok" if receipt.status == "ok" else "error", receipt
        if publication.intent in self.running:
            self._clock.after(0, lambda: self._performed(publication, receipt, answered), self._life)

    # ---- what there is to run --------------------------------------------------------------------------

    def _work(self, publication: Publication) -> Work | None:
        """The work of a call, or what its script says; None: the code no longer asks for it."""
        params, work = publication.effect.params, publication.work
        if params is not None and work is None:
            work = _work_of(params)
        if not isinstance(work, Work):
            return None
        script = self._script(publication.effect.location)
        if script is None:
            return work
        return work.scripted(script) if work.scripted is not None else msgspec.structs.replace(work, function=script)

    def _script(self, location: str) -> Script | None:
        """By location, or else by name: the last part of the location, without its ordinal."""
        name = unescape(location.rpartition("/")[2].partition("#")[0])
        return self._scripts.get(location) or self._scripts.get(name) or self._scripts.get(_name_of(location))


class OpenEffects(EffectsExecutor):
    """Performs the effects of cells that have a handler. The others wait until a test answers them.

    `handlers` may still grow. `began` hears of what begins to wait. `find` makes the handlers of tools.
    """

    def __init__(
        self,
        handlers: dict[str, Handler],
        inline: FakeExecutor,
        thread: FakeExecutor,
        began: Callable[[Publication], None],
        find: Callable[[str], Handler | None],
    ) -> None:
        super().__init__((), inline, thread)
        self._steps = inline
        self._handlers = handlers
        self._find = find
        self._began = began
        self.waiting: dict[bytes, tuple[info.StepInfo, Answered]] = {}
        self._framed: Framed | None = None

    def listen(self, framed: Framed) -> None:
        super().listen(framed)
        self._framed = framed

    def start(self, publication: Publication, answered: Answered) -> None:
        asked = decode(publication.effect.params or b"")
        if "call" in asked:
            answered = tool_answer(answered) if asked["call"].startswith("tools/") else answered
            super().start(publication, answered)
        elif asked["effect"] in self._handlers:
            super().start(publication, answered)
        else:
            self._began(publication)
            about = info.StepInfo.of(publication, self._steps)
            about.frame = to_plain if publication.effect.frames else None
            self.waiting[publication.intent] = about, answered

    def stop(self, intent: bytes) -> None:
        if self.waiting.pop(intent, None) is None:
            super().stop(intent)

    def answer(self, intent: bytes, receipt: Receipt) -> None:
        _, answered = self.waiting.pop(intent)
        answered(intent, receipt)

    def frame(self, intent: bytes, chunk: Any) -> None:
        about, _ = self.waiting[intent]
        assert self._framed is not None, "a shard listens to all its executors"
        self._framed(intent, frame_of(about, ("chunk", 0, None, "", chunk)))


def _written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    try:
        return encode(to_plain([list(args), kwargs]))
    except PerdureError:
        return None


def _name_of(location: str) -> str:
    """The last part of a location, without its ordinal; of an effect of a cell (`charge/~3#1`), the part before it."""
    around, _, last = location.rpartition("/")
    return unescape(around if last.startswith("~") else last.partition("#")[0])


def _work_of(params: bytes) -> Work:
    """The work of a call that would run in another process: its function by name, its arguments as plain data."""
    asked = decode(params)
    module, _, qualified = asked["call"].partition(":")
    function: Any = import_module(module)
    for part in qualified.split("."):
        function = getattr(function, part)
    function = getattr(function, "brought", function)
    return work_of(FoundFunction(function, returns_of(function), inspect.iscoroutinefunction(function)), asked)
