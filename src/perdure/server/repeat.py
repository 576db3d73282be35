"""Answers to requests with an Idempotency-Key: the second one gets the first one's answer.

The key is the id of the event, so the kernel drops a repeated event after a crash, too. This cache lets one server give
the very same answer, and refuse another body under the same key.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from .http import Answer
from .problems import HttpProblem

KEY: Final = re.compile(r"[\x21-\x7e]{1,128}\Z")
KEPT_SECONDS: Final = 24 * 3600.0
KEPT_MAX: Final = 10_000


class Kept(NamedTuple):
    fingerprint: bytes
    at: float
    answer: asyncio.Future[Answer]


class Repeats:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()

    async def once(self, actor: str, key: str, said: bytes, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of `work`, or of the first request with this key. An error is not kept: it may be tried again."""
        if not KEY.match(key):
            raise HttpProblem(422, "bad-request", "an Idempotency-Key has 1 to 128 visible ASCII characters")
        fingerprint, now = hashlib.sha256(said).digest(), time.monotonic()
        known = self._kept.get((actor, key))
        if known is not None and now - known.at < KEPT_SECONDS:
            if known.fingerprint != fingerprint:
                text = f"the Idempotency-Key {key!r} was used for another request; use a new one"
                raise HttpProblem(422, "key-reused", text)
            first = await asyncio.shield(known.answer)
            return Answer(first.status, first.body, first.media, [*first.headers, ("idempotency-replayed", "true")])
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._kept[actor, key] = Kept(fingerprint, now, future)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        try:
            answer = await work()
        except BaseException as error:
            self._kept.pop((actor, key), None)
            future.set_exception(error if isinstance(error, Exception) else HttpProblem(503, "cut-off", "try again"))
            future.exception()  # seen, also where no second request waits for it
            raise
        future.set_result(answer)
        return answer
