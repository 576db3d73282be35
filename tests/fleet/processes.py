"""Engine processes that tests start, stop and kill, and how to wait for what they do."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.fleet.flows import QUEUE

ROOT = Path(__file__).parents[2]

LONG = 180.0
"""Seconds after which what was waited for will not come. Far more than it takes, also on a busy machine."""

REFUSED = "a commit was refused"
"""What an engine says when it learnt from a write that a shard is not its own any more."""


class Process:
    """One of a fleet. What it prints goes to a file."""

    ready = ""  # what it says then

    def __init__(self, said: Path, *arguments: str) -> None:
        self.said = said
        command = [sys.executable, "-m", *arguments]
        with said.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, env=_environment())
        self.pid = self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def words(self) -> str:
        return self.said.read_text()

    @property
    def is_ready(self) -> bool:
        assert self.running, f"it ended by itself:\n{self.words}"
        return self.ready in self.words

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.terminate()

    async def ended(self) -> int:
        await until(lambda: not self.running)
        code: int = self.process.returncode
        return code


class EngineProcess(Process):
    """`load`: the files of an engine that is its own client. See `tests/fleet/engine.py`."""

    ready = "ready\n"

    def __init__(self, url: str, said: Path, *load: Path) -> None:
        super().__init__(said, "tests.fleet.engine", url, *map(str, load))

    def refusals(self) -> int:
        return self.words.count(REFUSED)


class WorkerProcess(Process):
    ready = "serving"

    def __init__(self, url: str, said: Path) -> None:
        options = "--queue", QUEUE, "--concurrency", "5", "--drain", "2", "--db", url
        super().__init__(said, "perdure.cli", "worker", "tests.fleet.flows", *options)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "PYTHONUNBUFFERED": "1"}


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = LONG) -> float:
    """Wait for something that happens elsewhere; the seconds it took."""
    begun = time.monotonic()
    while True:
        found: Any = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return time.monotonic() - begun
        waited = time.monotonic() - begun
        assert waited < seconds, f"this did not come true within {seconds} s: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(0.02)
