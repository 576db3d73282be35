"""`perdure debug`: the code of a flow or a cell at one entry of its history, under pdb, with the recorded values."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import click

from perdure.errors import UnknownVersion, UnknownWorkflow
from perdure.kernel.batch import JournalRow
from perdure.kernel.decision import Decision, Stuck
from perdure.kernel.events import Address
from perdure.kernel.machine import Machine, Workflow
from perdure.kernel.policy import Policy
from perdure.kernel.receipt import failure_of
from perdure.ports.seen import Words
from perdure.runtime.client import Client
from perdure.runtime.history import read_history
from perdure.views.find import find_started
from perdure.views.look import shown_entry
from perdure.views.reasons import words_for
from perdure.views.rerun import Delivery, History, Parted, raised

from ..console import Console, define
from ..debugger import Code, Debugger, Left
from ..exits import Stopped
from ..load import code_of
from ..text import first_line, joined, shown, style, table, told


@define("debug")
@click.argument("id")
@click.option("--against", "target", required=True, metavar="MODULE[:NAME]|FILE", help="The code.")
@click.option(
    "--at", type=click.IntRange(1), metavar="N", help="The entry. Default: where it raised or diverges, else the last."
)
def debug(console: Console, id: str, target: str, at: int | None) -> None:
    """The history is replayed up to entry N, and pdb stops at the first line of your code that this entry runs. No
    step runs and nothing is written: an engine may run on the database meanwhile. Commands of pdb also come from
    a pipe. Afterwards it says what the code asked for then, and what it asks for now. Of a cell the reducer is opened,
    with its state before the entry.
    """

    async def read(client: Client) -> tuple[Address, str, list[JournalRow], Policy, Words]:
        address, head = await find_started(client, id)
        reader, _ = await read_history(client.queries, head.id)
        policy, words = await words_for(client.queries, address.workflow, reader.state.made)
        return address, head.version, await client.queries.history(head.id), policy, words

    with redirect_stdout(sys.stderr):
        workflows = code_of(target)
    address, version, rows, policy, words = console.ask(read)
    named = _named(address, policy.noun, workflows, target)
    if policy.exact:
        history = History(address, rows, _exactly(address, rows, named, target))
    else:
        newest = named.get(version) or [*named.values()][-1]
        history = History(address, rows, lambda _: newest)
    if at is not None and not history.first <= at <= history.last:
        raise Stopped(f"{address} has entries {history.first} to {history.last}; there is no entry {at}")
    session = DebugSession(console, history, words.code)
    session.run(at or session.first())


def _named(address: Address, noun: str, workflows: Iterable[Any], target: str) -> dict[str, Workflow]:
    """The code of the instance's workflow, by version."""
    found = [*workflows]
    named = {each.version: each for each in found if each.name == address.workflow}
    if not named:
        has = ", ".join(sorted({each.name for each in found if each.policy.noun == noun})) or "none"
        raise UnknownWorkflow(f"{address} runs the {noun} {address.workflow!r}; the {noun}s of {target} are: {has}")
    return named


def _exactly(
    address: Address, rows: list[JournalRow], named: Mapping[str, Workflow], target: str
) -> Callable[[str], Workflow]:
    """The very definition that the instance had at each entry: no other will do."""
    if not rows or rows[0].seq != rows[0].instance:
        raise Stopped(f"this database was restored, and has not the whole history of {address}")

    def definition(version: str) -> Workflow:
        if version not in named:
            text = f"{address} had version {version} then; {target} has {', '.join(named)}"
            raise UnknownVersion(f"{text}: name code with that version, --against MODULE")
        return named[version]

    return definition


class DebugSession:
    """`what` is the author's code, in words."""

    def __init__(self, console: Console, history: History, what: str) -> None:
        self._console = console
        self._history = history
        self._what = what
        self._out = sys.stderr if console.json else sys.stdout
        self._debugger = Debugger(Code(history.workflow), self._out)

    def first(self) -> int:
        """Where to begin without --at: where the code raised or does something else, else the last entry."""
        with _silently():
            try:
                for number, machine in self._history.replay(self._history.last + 1):
                    if _error(machine) is not None:
                        machine.dispose()
                        return number
                machine.dispose()
            except Parted as parted:
                return parted.entry
        return self._history.last

    def run(self, at: int) -> None:
        try:
            self._open(at)
        except Parted as parted:
            self._say(f"The code parts from the history at entry {parted.entry}: what comes after is out of reach.")
            self._debug(parted.entry)

    def _open(self, at: int) -> None:
        """At this entry. If it runs nothing of the author's code: at the next that does, else at the last before."""
        for number in (*range(at, self._history.last + 1), *range(at - 1, self._history.first - 1, -1)):
            note = "" if number == at else f"Entry {at} runs nothing of the {self._what}; entry {number} does."
            if self._debug(number, note):
                return
        why = self._console.command("why", str(self._history.address))
        text = f"nothing of the {self._what} has run yet; what it waits for is told by"
        raise Stopped(joined([text, f"  {why}"]))

    def _debug(self, number: int, note: str = "") -> bool:
        """Deliver an entry under pdb, and tell what came of it. False: there is nothing to see."""
        with _silently():
            delivery = self._history.at(number)
        try:
            return delivery.event is not None and self._deliver(delivery, note)
        finally:
            with _silently():
                delivery.machine.dispose()

    def _deliver(self, delivery: Delivery, note: str) -> bool:
        number, debugger = delivery.entry.number, self._debugger
        greeting = [*filter(None, [note]), f"Entry {number}: {told(self._history.line(number))}"]
        if delivery.state_before:
            greeting.append(f"State before: {delivery.state_before}")
        debugger.greeting = joined(greeting)
        error: BaseException | None = None
        had_raised = _error(delivery.machine) is not None
        with redirect_stdout(self._out):
            try:
                now: Decision | None = debugger.runcall(delivery.deliver)
            except Left:
                now = None
            except Exception as failure:  # as in the kernel: an engine would make the instance stuck
                error, now = failure, Decision(stuck=Stuck(failure_of(failure), kept=True))
        if now is None or debugger.left:
            self._tell(delivery, None)
            return True
        if not debugger.stopped and not delivery.parts(now):
            return False
        self._tell(delivery, now)
        if error is None and not had_raised:
            error = _error(delivery.machine)
        if error is not None:
            debugger.greeting = f"It raised {first_line(str(failure_of(error)))}. Here is pdb once more, at that line."
            debugger.after(error)
        return True

    def _tell(self, delivery: Delivery, now: Decision | None) -> None:
        """What the code asked for then, and what it asks for now; None: it was left before it could."""
        number, recorded = delivery.entry.number, delivery.entry.decision
        document: dict[str, Any] = {
            "id": str(self._history.address),
            "entry": shown_entry(self._history.line(number)),
            "recorded": delivery.asked(recorded, now),
            "now": None,
            "diverges": None,
        }
        if now is None:
            self._console.answer(document, "")
            return
        document |= {"now": delivery.asked(now, now), "diverges": delivery.parts(now)}
        rows = [[style(word, bold=True), ", ".join(document[word]) or "nothing"] for word in ("recorded", "now")]
        self._console.answer(document, joined([table(rows), self._verdict(delivery, now)]))

    def _verdict(self, delivery: Delivery, now: Decision) -> str:
        if delivery.parts(now):
            if self._history.state.ended:
                return "The code diverges from the history here."
            return "The code diverges from the history here: an engine would stop this instance as stuck."
        if not delivery.raised:
            return "The code does what it did."
        if raised(now):
            return "The code raised then, and raises now."
        if self._history.state.kept is None:
            return "The code raised then, and does not now."
        retry = self._console.command("retry", str(self._history.address))
        return joined(["The code raised then, and does not now. With this code in the engine:", f"    {retry}"])

    def _say(self, text: str) -> None:
        click.echo(shown(text), file=self._out)


def _error(machine: Machine) -> BaseException | None:
    """What the code of a flow has raised. A reducer that raises is not delivered."""
    return getattr(machine, "raised", None)


@contextmanager
def _silently() -> Iterator[None]:
    """What the code says while it is replayed it has said before. Nor does a `breakpoint()` in it stop there."""
    hook, sys.breakpointhook = sys.breakpointhook, lambda *_, **__: None
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.breakpointhook = hook
