"""Frames from process to process: only those of instances that another process watches are sent, in their order.

Who watches says so again and again. A frame that does not fit into a notification is not sent.
"""

import base64
import secrets
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.errors import StoreError
from perdure.ports.frame import Frame

from .connections import log

if TYPE_CHECKING:
    from .database import PostgresDatabase

WATCH: Final = "watch "
TOLD: Final = "told "
PAYLOAD_MAX: Final = 7000
AGAIN_SECONDS: Final = 10.0
WATCHED_SECONDS: Final = 3 * AGAIN_SECONDS
UNSENT_MAX: Final = 1000

_decoder = msgspec.msgpack.Decoder(tuple[str, int, Frame])


class PostgresRelay:
    """Made by `PostgresDatabase`. Words of this process itself are not heard again."""

    again = AGAIN_SECONDS

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._name = secrets.token_hex(4)
        self._watched: dict[int, float] = {}  # by others: until when, by the clock of the loop
        self._unsent: deque[str] = deque(maxlen=UNSENT_MAX)
        self._sending = False
        self._heard: Callable[[int, Frame], None] = lambda instance, frame: None
        self._asked: Callable[[int], None] = lambda instance: None

    def listen(self, heard: Callable[[int, Frame], None], asked: Callable[[int], None]) -> None:
        self._heard, self._asked = heard, asked

    def watch(self, instance: int) -> None:
        self._send(f"{WATCH}{self._name} {instance}")

    def tell(self, instance: int, frame: Frame) -> None:
        if not self._watched:
            return
        now = self._database.time()
        if self._watched.get(instance, 0.0) < now:
            self._watched = {each: until for each, until in self._watched.items() if until >= now}
            return
        word = TOLD + base64.b64encode(msgspec.msgpack.encode((self._name, instance, frame))).decode()
        if len(word) <= PAYLOAD_MAX:
            self._send(word)

    def hear(self, payload: str) -> bool:
        """Whether a notification is one of frames."""
        if payload.startswith(WATCH):
            name, _, number = payload.removeprefix(WATCH).partition(" ")
            if name != self._name and number.isdecimal():
                now = self._database.time()
                new = self._watched.get(int(number), 0.0) < now
                self._watched[int(number)] = now + WATCHED_SECONDS
                if new:
                    self._asked(int(number))
            return True
        if payload.startswith(TOLD):
            name, instance, frame = _decoder.decode(base64.b64decode(payload.removeprefix(TOLD)))
            if name != self._name:
                self._heard(instance, frame)
            return True
        return False

    def _send(self, word: str) -> None:
        self._unsent.append(word)
        if not self._sending:
            self._sending = True
            self._database.spawn(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._unsent:
                await self._database.notify(self._unsent.popleft())
        except StoreError as error:
            log.debug("frames were not sent: %s", error)
        finally:
            self._sending = False
