"""Hints from other processes: a connection of its own that listens, and comes back by itself.

A hint may be lost, late or double. It only says that it may be worth looking now instead of at the next poll.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .connections import CONNECT_SECONDS, DatabasePlace, Pauses, connect, log
from .failures import FAILURES

ALIVE_SECONDS: Final = 20.0
"""How often a connection on which nothing is heard is asked whether it still is one."""


class PostgresListener:
    def __init__(self, place: DatabasePlace, heard: Callable[[str], None], missed: Callable[[], None]) -> None:
        self._place = place
        self._heard = heard
        self._missed = missed
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.ready = asyncio.Event()

    async def _run(self) -> None:
        pauses = Pauses()
        while True:
            try:
                connection = await connect(self._place)
            except FAILURES as error:
                log.debug("no hints from %s: %s", self._place.name, error)
                await pauses.next()
                continue
            try:
                await self._listen(connection)
                pauses = Pauses()
            except FAILURES as error:
                log.debug("no more hints from %s: %s", self._place.name, error)
            finally:
                self.ready.clear()
                connection.terminate()
            await pauses.next()

    async def _listen(self, connection: Any) -> None:
        """Until the connection is lost."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.add_listener(channel(self._place), lambda *message: self._heard(message[3]))
        self.ready.set()
        self._missed()
        while not lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_SECONDS):
                    await lost.wait()
                    return
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.execute("SELECT")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def channel(place: DatabasePlace) -> str:
    """One for each namespace of a database."""
    return place.namespace
