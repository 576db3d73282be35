"""`perdure run`: an engine for the time of one run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

import click

from perdure.app import open as open_engine
from perdure.app import run_async
from perdure.codec.visible import visible
from perdure.errors import InstanceCancelled, InstanceFailed, InstanceStuck
from perdure.kernel.instance import Instance
from perdure.kernel.moment import when
from perdure.kernel.status import Status
from perdure.ports.seen import error_of, result_of
from perdure.runtime.client import Client, Reuse
from perdure.runtime.handle import Handle
from perdure.runtime.history import Reader, value_of
from perdure.views.look import shown_error

from ..console import Console, define
from ..exits import Exit
from ..given import read_json, secrets_of, with_sets
from ..live import Progress, shown
from ..load import helpers_of, load
from ..text import error_line, indented, joined, noted, to_json

TICK_SECONDS: Final = 0.1
DRAIN_SECONDS: Final = 5.0
PAGE: Final = 1000
"""Entries read at a time: the engine runs on this very loop, and a long history must not hold it up."""

Why = Literal["ended", "stuck", "timeout", "interrupted"]


class Ending(NamedTuple):
    """How a run ended, and the instance as it was then."""

    why: Why
    state: Instance


@define("run", db="memory")
@click.argument("target", metavar="MODULE:FLOW|FILE")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="An object: arguments by name. An array: by position.")
@click.option("--set", "sets", metavar="PATH=VALUE", multiple=True, help="One value of the input: floor=3, a.b=text.")
@click.option("--allow", metavar="ADDRESS", multiple=True, help="An address that HTTP requests of tools may go to.")
@click.option(
    "--connection", "connections", metavar="NAME=SECRET", multiple=True, help="What auth: NAME of a tool means."
)
@click.option("--key", help="Names the instance. The same key again goes on with it, or gives its result.")
@click.option(
    "--reuse",
    type=click.Choice(["failed", "always"]),
    help="Start a used key again: after a failure, or always.",
)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer than this.")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who starts it.")
def run(  # noqa: PLR0917
    console: Console,
    target: str,
    given: str | None,
    sets: tuple[str, ...],
    allow: tuple[str, ...],
    connections: tuple[str, ...],
    key: str | None,
    reuse: Reuse | None,
    timeout: float | None,
    person: str | None,
) -> None:
    """MODULE is importable from the current directory, or a path ending in .py. All its flows are registered. FILE is a
    playbook, ending in .yaml, whose workload the input changes; or a process in YAML or JSON.

    With --db, a run that was interrupted or killed goes on when the same command is given again with the
    same key. What flows and steps print goes to stderr.
    """
    value = with_sets(None if given is None else read_json(given, "--input"), sets)
    with shown() as progress:
        workflow, workflows = load(target)
        functions, handlers = helpers_of(target)
        for doubt in workflow.doubts(value) if hasattr(workflow, "doubts") else ():
            console.note(doubt)
        run = Run(console, progress, timeout, Given(handlers, allow, secrets_of(connections)))
        workflows += functions
        ending: Ending = run_async(lambda: run.run(workflows, workflow, value, key, reuse, person))
    again = Again(console, target, given, sets, ending.state.address.key)
    sys.exit(_tell(console, ending, again, timeout))


class Again(NamedTuple):
    """What is needed to say how to go on."""

    console: Console
    target: str
    given: str | None
    sets: tuple[str, ...]
    key: str

    @property
    def command(self) -> str:
        given = () if self.given is None else ("--input", self.given)
        sets = [word for each in self.sets for word in ("--set", each)]
        return self.console.command("run", self.target, *given, *sets, "--key", self.key)


class Given(NamedTuple):
    """What the engine of a run is given: handlers of the module, and what the operator says about tools."""

    handlers: list[Any]
    allow: tuple[str, ...]
    connections: dict[str, Any]


class Run:
    def __init__(self, console: Console, progress: Progress, timeout: float | None, given: Given) -> None:
        self._console = console
        self._given = given
        self._progress = progress
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._reader = Reader()

    async def run(  # noqa: PLR0917
        self, workflows: list[Any], workflow: Any, value: Any, key: str | None, reuse: Reuse | None, by: str | None
    ) -> Ending:
        with interruptible() as (interrupted, hurry):
            opened = open_engine(
                self._console.db,
                workflows=workflows,
                handlers=self._given.handlers,
                allow=self._given.allow,
                connections=self._given.connections,
                drain=DRAIN_SECONDS,
            )
            async with opened as engine:
                engine.hurry = hurry
                began = time.time()
                value = {} if value is None else value
                handle = await engine.start_plain(workflow, value, key=key, reuse=reuse, by=by)
                about = await handle.summary()
                if about.started_at.timestamp() < began:
                    await self._look(engine, handle, about.id, silent=True)
                    self._console.note(f"{handle.address} is known: {self._reader.state.version} entries so far")
                ending = await self._follow(engine, handle, about.id, interrupted)
                if ending.why != "ended" and not _kept(self._console):
                    hurry.set()  # nothing is kept of it: what still runs is not needed
                return ending

    async def _follow(self, engine: Client, handle: Handle[Any], id: int, interrupted: asyncio.Event) -> Ending:
        """Watch until there is nothing more to wait for."""
        result = asyncio.ensure_future(handle.result())
        stop = asyncio.ensure_future(interrupted.wait())
        try:
            while True:
                await asyncio.wait({result, stop}, timeout=self._pause(), return_when=asyncio.FIRST_COMPLETED)
                ended = result.done()  # before the look: what ends during it is in the next one
                await self._look(engine, handle, id)
                if ended and isinstance(result.exception(), InstanceStuck):
                    result = asyncio.ensure_future(self._result_later(handle))
                elif ended:
                    _raise_unless_told(result)
                    return self._ending("ended")
                if stop.done():
                    self._announce_drain()
                    return self._ending("interrupted")
                if await self._is_stuck(engine, handle, id):
                    return self._ending("stuck")
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    return self._ending("timeout")
        finally:
            result.cancel()
            stop.cancel()

    async def _result_later(self, handle: Handle[Any]) -> Any:
        """Stuck when it was asked; whether that is the last word is for `_is_stuck` to say."""
        await asyncio.sleep(TICK_SECONDS)
        return await handle.result()

    def _pause(self) -> float:
        left = TICK_SECONDS if self._deadline is None else self._deadline - time.monotonic()
        return max(0.0, min(TICK_SECONDS, left))

    async def _look(self, engine: Client, handle: Handle[Any], id: int, silent: bool = False) -> None:
        """Read what came since the last look, and show it."""
        while True:
            rows = await engine.queries.history(id, self._reader.seq, PAGE)
            lines = self._reader.read(rows)
            if not silent:
                self._progress.happened(lines)
            if len(rows) < PAGE:
                break
            await asyncio.sleep(0)
        state = self._reader.state
        waiting = self._reader.waiting(await handle.progress())
        self._progress.now(str(state.address), state.status, when(state.started_at), waiting)

    async def _is_stuck(self, engine: Client, handle: Handle[Any], id: int) -> bool:
        """Stuck, and nothing on its way could change that: a `perdure retry` may lie in the inbox still."""
        if self._reader.state.status is not Status.STUCK:
            return False
        if await engine.queries.undelivered(self._reader.state.address):
            return False
        await self._look(engine, handle, id)  # what was taken out of the inbox before is in the journal now
        return self._reader.state.status is Status.STUCK

    def _announce_drain(self) -> None:
        if _kept(self._console) and self._reader.state.calls:
            self._console.note(f"interrupted: running steps have {DRAIN_SECONDS:.0f} s to end; Ctrl-C again: at once")

    def _ending(self, why: Why) -> Ending:
        return Ending(why, self._reader.state)


@contextmanager
def interruptible() -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """The first Ctrl-C (or SIGTERM) asks, the second parks what runs, the third ends the process at once."""
    asked, hurry, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    def ask(*_: object) -> None:
        if hurry.is_set():
            os._exit(Exit.INTERRUPTED)
        event = hurry if asked.is_set() else asked
        loop.call_soon_threadsafe(event.set)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked, hurry
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_unless_told(result: asyncio.Future[Any]) -> None:
    """How an instance ended is in its history; only other errors are errors of this command."""
    error = result.exception()
    if error is not None and not isinstance(error, InstanceFailed | InstanceCancelled):
        raise error


def _kept(console: Console) -> bool:
    return console.db not in (":memory:", "sqlite://", "sqlite:///")


# ---- telling -----------------------------------------------------------------------------------------------


def _tell(console: Console, ending: Ending, again: Again, timeout: float | None) -> Exit:
    state = ending.state
    error = error_of(state)
    document = {
        "id": str(state.address),
        "workflow": state.address.workflow,
        "key": state.address.key,
        "status": state.status.value,
        "result": result_of(state),
        "error": shown_error(error),
    }
    completed = state.status is Status.COMPLETED
    told = value_of(state.published["summary"]) if "summary" in state.published else None
    if isinstance(told, dict) and "verdict" in told:
        document["summary"] = told
        if told["verdict"] == "partial":
            console.note(f"{state.address} is partial: {_first_failure(told)}")
    console.answer(document, to_json(result_of(state), indent=2) if completed else "")
    if completed:
        return Exit.OK
    if error is not None and error.traceback and console.debug:
        console.note(noted(error.traceback.rstrip()))
    console.note(_message(console, ending, again, timeout))
    return {
        "ended": Exit.FAILED,
        "stuck": Exit.FAILED,
        "timeout": Exit.TIMEOUT,
        "interrupted": Exit.INTERRUPTED,
    }[ending.why]


def _first_failure(told: dict[str, Any]) -> str:
    unhandled = [each for each in told["failures"] if not each["handled"]]
    return f"{unhandled[0]['location']}: {unhandled[0]['message']}" if unhandled else "the final step failed"


def _message(console: Console, ending: Ending, again: Again, timeout: float | None) -> str:
    state, error = ending.state, error_of(ending.state)
    name = str(state.address)
    reason = f": {error_line(error)}" if error is not None else ""
    go_on = [f"it is kept in {console.db}; to go on:", f"  {again.command}"]
    if not _kept(console):
        go_on = ["nothing is kept of it: --db FILE keeps a run"]
    match ending.why:
        case "ended" if state.status is Status.CANCELLED:
            return f"{name} was cancelled" + (f": {error.message}" if error is not None and error.message else "")
        case "ended":
            return f"{name} failed{reason}"
        case "stuck":
            place = f" at {state.stuck.location}" if state.stuck is not None and state.stuck.location else ""
            todo, told = "put right what is wrong, then", f"{visible(name)} is stuck{place}{reason}"
            ways = [f"  {console.command('retry', name)}", f"  {again.command}"] if _kept(console) else []
            if error is not None and error.type == "Divergence":  # it has an advice, in lines
                told = indented(f"{visible(name)} is stuck{place}: {error}")
                return joined([told, *([todo, *ways] if ways else [])])
            return joined([f"{told}; {todo}" if ways else told, *ways])
        case "timeout":
            return joined([f"{name} had not ended after {timeout:g} s; {go_on[0]}", *go_on[1:]])
        case "interrupted":
            return joined([f"{name} was interrupted; {go_on[0]}", *go_on[1:]])
