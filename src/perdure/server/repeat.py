"""Answers to requests with an Idempotency-Key: the second one gets the first one's answer.

The key is the id of the event, so the kernel drops a repeated event after a crash, too. This cache lets one server give
the very same answer, and refuse another body under the same key. A server that has no such answer finds the event in
the journal of its instance, when it would be refused as a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.codec import decode
from perdure.kernel.events import CancelAsked, Message, Retried, Rewound, Settled, Tagged, Woken
from perdure.runtime.repeated import recorded
from perdure.verbs import act

from .http import Answer
from .problems import HttpProblem

if TYPE_CHECKING:
    from .calling import Calling

KEY: Final = re.compile(r"[\x21-\x7e]{1,128}\Z")
KEPT_SECONDS: Final = 24 * 3600.0
KEPT_MAX: Final = 10_000


REPLAYED: Final = ("idempotency-replayed", "true")


def event_id(actor: str, key: str) -> str:
    """The id of the event of a request: keys of two actors are two."""
    return f"{actor}/{key}" if key else ""


_ANSWERS: Final[dict[str, tuple[tuple[type[Any], ...], Callable[[str, Any], Any]]]] = {
    "cancel": ((CancelAsked,), lambda id, given: act.CancelAnswer(id)),
    "wake": ((Woken,), lambda id, given: act.WakeAnswer(id, given.location or None)),
    "retry": ((Retried, Rewound), lambda id, given: act.RetryAnswer(id)),
    "rewind": ((Rewound,), lambda id, given: act.RewindAnswer(id, given.location)),
    "settle": ((Settled,), lambda id, given: act.SettleAnswer(id, given.location, given.answer)),
    "send": ((Message,), lambda id, given: act.SendAnswer(id, given.name)),
    "tag": ((Tagged,), lambda id, given: {"id": id, "tags": {n: v for n, v in given.tags.items() if v is not None}}),
}
"""By verb: the events that it records, and its answer."""


async def first_answer(calling: Calling, verb: str, given: Any) -> Any:
    """What the first request with this key was answered, if its event is in the journal; None: it is not."""
    if not calling.event or calling.head is None or verb not in _ANSWERS:
        return None
    event = await recorded(calling.client.queries, calling.head.id, calling.event)
    if event is None:
        return None
    kinds, answer = _ANSWERS[verb]
    same = not isinstance(event, Message) or (event.name == given.name and decode(event.body) == given.body)
    if not isinstance(event, kinds) or not same:
        key = calling.request.headers["idempotency-key"]
        raise HttpProblem(422, "key-reused", f"the Idempotency-Key {key!r} was used for another request; use a new one")
    return answer(f"{calling.head.workflow}/{calling.head.key}", given)


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
            return Answer(first.status, first.body, first.media, [*first.headers, REPLAYED])
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
