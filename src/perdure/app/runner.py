"""What the machines of a cluster call: `run_job` performs one job. Each process has one runner, in a thread of its own.

The module of the step is imported before the claim, in the thread of the cluster: an import may take long, and no beat
waits for it. A job whose module cannot be imported stays open, and the dispatcher hears why.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, Final

from perdure.clusters.dask import here
from perdure.errors import BadCall, PerdureError
from perdure.executors.queue import QueueExecutor
from perdure.ports.cluster import CannotBegin, Copy
from perdure.runtime.runner import Runner

from .workers import declared, keyring, opened, signing

SLOTS: Final = 1024
"""The cluster decides how many steps run at once in a process. This bound is never met."""

STOP_SECONDS: Final = 1.5
"""How long a process that ends may take to give its jobs back. The nanny of Dask kills it after two."""


def run_job(copy: Copy, settings: Mapping[str, str]) -> None:
    """Perform the job of this copy, unless another copy has claimed it. It returns when the step has ended."""
    kind, machine, at_end = here()
    try:
        declared(copy.function)
        thread = _thread_of(copy.queue, settings, f"{kind} {machine}", at_end)
    except Exception as error:  # an import may raise anything
        raise CannotBegin(machine, str(error) or type(error).__name__) from error
    thread.perform(copy.intent)


async def reach(db: str) -> str:
    """What is wrong with the database as this machine sees it; empty: nothing. For `perdure doctor`."""
    try:
        async with opened(_from_environment(db)):
            return ""
    except PerdureError as error:
        return str(error)


class RunnerThread:
    """A runner, its loop and its connections to the database. `where` names the machine for people."""

    def __init__(self, queue: str, settings: Mapping[str, str], where: str) -> None:
        self._queue = queue
        self._db = _from_environment(settings["db"])
        self._keys = keyring(settings["key"], [queue]) if settings["key"] else None
        self._name = f"{where} {socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._hurry: asyncio.Event
        self._runner: Runner
        self._loop: asyncio.AbstractEventLoop
        # In the context of the cluster's task: what a step asks there, as `distributed.get_worker()`, is found.
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._main,), name="perdure-runner", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def perform(self, intent: bytes) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.perform(intent), self._loop).result()

    def stop(self) -> None:
        """Give back what runs, and answer what has ended."""
        if self.lives:
            asyncio.run_coroutine_threadsafe(self._runner.drain(0.0, self._hurry), self._loop)
            self._thread.join(STOP_SECONDS)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._error = error
        self._ready.set()

    async def _run(self) -> None:
        self._loop, self._hurry = asyncio.get_running_loop(), asyncio.Event()
        async with opened(self._db) as (jobs, _):
            executors = [QueueExecutor(self._queue, SLOTS, declared)]
            sign = signing(self._keys)
            self._runner = Runner(jobs, executors, (), name=self._name, concurrency=SLOTS, sign=sign)
            self._ready.set()
            await self._runner.run()


_threads: dict[tuple[Any, ...], RunnerThread] = {}
_lock = threading.Lock()


def _thread_of(
    queue: str, settings: Mapping[str, str], where: str, at_end: Callable[[Callable[[], None]], None]
) -> RunnerThread:
    key = (where, queue, *sorted(settings.items()))
    with _lock:
        found = _threads.get(key)
        if found is None or not found.lives:
            found = _threads[key] = RunnerThread(queue, settings, where)
            at_end(found.stop)
        return found


def _from_environment(url: str) -> str:
    if not url.startswith("env:"):
        return url
    name = url.removeprefix("env:")
    if name not in os.environ:
        raise BadCall(f"this machine has no variable {name}: it should be the URL of the database")
    return os.environ[name]
