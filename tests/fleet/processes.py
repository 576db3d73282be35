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

ROOT = Path(__file__).parents[2]

LONG = 60.0
"""Seconds after which what was waited for will not come. Far more than it takes, also on a busy machine."""

REFUSED = "a commit was refused"
"""What an engine says when it learnt from a write that a shard is not its own any more."""


class EngineProcess:
    """What it prints goes to a file. `close` kills it if it still runs, and never waits for it."""

    def __init__(self, url: str, said: Path, *load: Path) -> None:
        self.said = said
        with said.open("wb") as file:
            command = [sys.executable, "-m", "tests.fleet.engine", url, *map(str, load)]
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=_environment())
        self.pid = self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def words(self) -> str:
        return self.said.read_text()

    @property
    def is_ready(self) -> bool:
        assert self.running, f"the engine ended by itself:\n{self.words}"
        return "ready\n" in self.words

    def refusals(self) -> int:
        return self.words.count(REFUSED)

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
