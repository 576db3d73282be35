"""The process executor: a step runs in a child process, which can be killed.

A child is spoken to by one thread at a time, the one that performs its call (see `thread.py`; the protocol
is in `child.py`). The loop decides everything else: which child takes which call, and which one has to die.
A child is started for the first call that needs it, keeps for the next calls what it has imported, and is
replaced when it died.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final

from perdure.codec import decode, encode
from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Failure, Receipt
from perdure.ports.executor import Answered, Framed

from . import child as other_side
from . import info
from .frames import LoopOutlet
from .thread import CallQueue, Threads

GRACE_SECONDS: Final = 1.0  # between asking a child to end and making it

# The path comes first: perdure itself may be importable only by it.
_BOOT: Final = "import sys; sys.path[:] = sys.argv[1:]; from perdure.executors.child import main; main()"


class ProcessExecutor:
    name = "process"

    def __init__(self, slots: int | None = None, *, grace_seconds: float = GRACE_SECONDS) -> None:
        other_side.refuse_while_importing()
        self.slots = slots or os.cpu_count() or 1
        self._grace_seconds = grace_seconds
        self._loop = asyncio.get_running_loop()
        self._outlet = LoopOutlet(self._loop)
        self._threads = Threads("perdure-process")
        self._calls: CallQueue[_Call] = CallQueue(self.slots, self._begin)
        self._idle: list[ChildProcess] = []
        self._children: set[ChildProcess] = set()  # all of them: idle, running, dying
        self._closing = False
        self._gone = asyncio.Event()

    def listen(self, framed: Framed) -> None:
        self._outlet.framed = framed

    def start(self, publication: Publication, answered: Answered) -> None:
        params = publication.effect.params
        if params is None:
            answered(publication.intent, info.NO_WORK)
        else:
            about, once = info.StepInfo.of(publication, self._outlet), publication.effect.deliveries_max == 1
            call = _Call(publication.intent, params, about, answered, once)
            self._calls.add(call.intent, call)

    def stop(self, intent: bytes) -> None:
        call = self._calls.remove(intent)
        if call is not None:
            self._cut(call)

    async def close(self) -> None:
        self._outlet.close()
        self._closing = True
        for call in self._calls.close():
            self._cut(call)
        while self._idle:
            self._retire(self._idle.pop())
        while self._children:
            self._gone.clear()
            await self._gone.wait()
        self._threads.close()

    def _begin(self, call: _Call) -> None:
        call.child = self._idle.pop() if self._idle else ChildProcess(self._grace_seconds)
        self._children.add(call.child)
        self._threads.run(call.perform, lambda receipt: self._done(call, receipt))

    def _done(self, call: _Call, receipt: Receipt) -> None:
        self._take_back(call.child)
        if self._calls.finish(call.intent, call):
            call.answered(call.intent, receipt)

    def _take_back(self, child: ChildProcess) -> None:
        if not child.alive:
            self._forget(child)
        elif child.doomed or self._closing:
            self._retire(child)
        else:
            self._idle.append(child)

    def _cut(self, call: _Call) -> None:
        """The call's thread sees the end of the pipe, and takes the child's body away."""
        call.about.cancel()
        call.child.terminate()
        call.child.last_word = self._loop.call_later(self._grace_seconds, call.child.kill)

    def _retire(self, child: ChildProcess) -> None:
        self._threads.run(child.end, lambda _: self._forget(child))

    def _forget(self, child: ChildProcess) -> None:
        if child.last_word is not None:
            child.last_word.cancel()
        self._children.discard(child)
        self._gone.set()


class _Call:
    __slots__ = ("about", "answered", "child", "intent", "once", "params")

    child: ChildProcess  # from the moment that it has a slot

    def __init__(self, intent: bytes, params: bytes, about: info.StepInfo, answered: Answered, once: bool) -> None:
        self.intent = intent
        self.once = once
        self.params = params
        self.about = about
        self.answered = answered

    def perform(self) -> Receipt:
        """In a thread. Whatever happens to the child, it ends in a receipt."""
        try:
            packet = self.child.ask(other_side.request_of(self.params, self.about))
            while packet is not None:
                said = other_side.said_in(packet)
                if isinstance(said, Receipt):
                    return said
                self.about.tell(said)
                packet = self.child.hear()
            return self._died()
        except BaseException as error:  # it could not be started, or what it answered is no receipt
            self.child.end()
            return info.error(error)

    def _died(self) -> Receipt:
        text = f"the process that ran {decode(self.params)['call']} {self.child.end()} before it had an answer"
        if self.once:
            return Receipt("unknown", error=Failure("ProcessDied", text, retry=False))
        return Receipt("error", error=Failure("ProcessDied", text, retry=True))


class ChildProcess:
    """One child process. `terminate` and `kill` are for the loop; the rest blocks, and is for threads."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.doomed = False
        self.last_word: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        """Whether there is a process that was not waited for yet."""
        return self._process is not None and self._process.returncode is None

    def ask(self, request: bytes) -> bytes | None:
        """The first packet of the answer to a request, as `hear`."""
        process = self._process
        if self.doomed:  # stopped before it was asked
            return None
        if process is None or process.poll() is not None:  # new, or killed while it was idle
            self._let_go()
            process = self._spawn()
        assert process.stdin is not None
        try:
            other_side.write_packet(process.stdin.fileno(), request)
        except OSError:
            return None
        return self.hear()

    def hear(self) -> bytes | None:
        """The next packet of the answer, the last of which is a receipt; None if the child died before that."""
        assert self._process is not None and self._process.stdout is not None
        try:
            return other_side.read_packet(self._process.stdout.fileno())
        except OSError:
            return None

    def end(self) -> str:
        """Close the pipes, wait, insist. How the process ended, in words."""
        process = self._process
        if process is None:
            return "was never started"
        self._let_go()
        try:
            process.wait(self._grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait()
        return _how(process.returncode)

    def terminate(self) -> None:
        with self._lock:
            self.doomed = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _spawn(self) -> subprocess.Popen[bytes]:
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", _BOOT, *sys.path],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent; and what the step starts can be ended with it
        )
        with self._lock:
            self._process = process
            doomed = self.doomed
        if doomed:  # stopped while it was being made
            self.kill()
        setup = {
            "argv": [os.fsencode(argument) for argument in sys.argv],
            "main": other_side.main_of_this_process(),
        }
        assert process.stdin is not None
        with suppress(OSError):  # it is gone already: the request will find out
            other_side.write_packet(process.stdin.fileno(), encode(setup))
        return process

    def _signal(self, number: int) -> None:
        with self._lock:
            process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, number)  # also the programs that its step has started
            else:
                process.terminate()

    def _let_go(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name} (exit status {status})"
    except ValueError:
        return f"was killed by signal {-status} (exit status {status})"
