"""pdb, for the delivery of one recorded event: it stops in the author's code and nowhere else, and leaves quietly."""

from __future__ import annotations

import bdb
import dis
import inspect
import os
import pdb
import sys
import sysconfig
from types import FrameType
from typing import Any, Final, TextIO

import click

import perdure
from perdure.codec.visible import visible

from .text import shown

LIBRARIES: Final = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.join(os.path.dirname(perdure.__file__), "")}
)
"""Where code lies that is not the author's: Python's own, what is installed, perdure."""

SUSPENDED: Final = {"YIELD_VALUE", "RESUME"}
"""Where a coroutine stands when it waits (the second one from Python 3.13 on)."""

COROUTINE: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR


class Code:
    """Which code is the author's: the package of the workflow, and whatever belongs to no library."""

    def __init__(self, workflow: Any) -> None:
        code = getattr(workflow, "function", workflow)
        self._package = str(code.__module__).partition(".")[0]

    def has(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        if file.startswith("<"):  # made at run time, such as the `__init__` of a dataclass: there is nothing to show
            return False
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        return package == self._package or not file.startswith(LIBRARIES)


class Left(KeyboardInterrupt):
    """The person leaves. An interrupt, because tasks let it pass, and so does `except Exception`."""


class Debugger(pdb.Pdb):
    """`stopped`: it found something of the author's code to stop at. `left`: the person has had enough."""

    def __init__(self, code: Code, out: TextIO) -> None:
        terminal = sys.stdin.isatty() and out is sys.stdout and out.isatty()  # with line editing, which needs both
        if terminal:
            super().__init__()
        else:
            super().__init__(stdin=_Echoed(sys.stdin, out), stdout=out)  # type: ignore[arg-type]
        self._code = code
        self.greeting = ""  # said before anything else is
        self.stopped = False
        self.left = False

    def after(self, error: BaseException) -> bool:
        """Look at where an error was raised, after the fact. False: nothing of the author's code is in it."""
        for each in (error, error.__cause__):
            frames = inspect.getinnerframes(each.__traceback__) if each is not None and each.__traceback__ else []
            if each is not None and any(self._code.has(info.frame) for info in frames):
                self.reset()
                self.interaction(None, each.__traceback__)
                return True
        return False

    # ---- where it stops ------------------------------------------------------------------------------------

    def stop_here(self, frame: FrameType) -> bool:
        return self._code.has(frame) and super().stop_here(frame)

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        """Not here: a coroutine is called again whenever it goes on. The line that comes next is the place."""

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        if frame.f_code.co_flags & COROUTINE:
            if dis.opname[frame.f_code.co_code[frame.f_lasti]] in SUSPENDED:
                return self.trace_dispatch  # it waits, and has not returned
            if frame is self.stopframe:
                self.set_step()  # else `next` and `return` would run on past the end of a coroutine
        return super().dispatch_return(frame, arg)

    def interaction(self, frame: FrameType | None, *rest: Any, **options: Any) -> None:
        self.stopped = True
        super().interaction(frame, *rest, **options)

    # ---- what it shows -------------------------------------------------------------------------------------

    def message(self, *words: Any, **options: Any) -> None:
        greeting, self.greeting = self.greeting, ""
        if greeting:
            click.echo(shown(greeting), file=self.stdout)
        super().message(*[_harmless(word) for word in words], **options)

    def get_stack(self, f: FrameType | None, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        """The author's frames alone: between and around them there are dozens of others."""
        stack, place = super().get_stack(f, t)
        own = [each for each in stack if self._code.has(each[0])]
        if stack[place] in own:
            return own, own.index(stack[place])
        after_the_fact = f is None and own
        return (own, len(own) - 1) if after_the_fact else (stack, place)  # else the frames are perdure's own

    # ---- the end -------------------------------------------------------------------------------------------

    def do_run(self, arg: str) -> None:
        self.error("an entry is delivered once: leave with q, and open it again")

    do_restart = do_run

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            self.left = True
            raise Left from None


def _harmless(word: Any) -> Any:
    """What pdb says, lines of source among it; a line that an error brought is set in."""
    if not isinstance(word, str):
        return word
    first, *rest = word.expandtabs().split("\n")
    return "\n".join([visible(first), *(visible(line if line.startswith("-> ") else f"  {line}") for line in rest)])


class _Echoed:
    """Commands that come from a file or a pipe are shown, as if they had been typed: the output can be read."""

    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self._out = out

    def readline(self) -> str:
        line = self._source.readline()
        self._out.write(line)
        return line
