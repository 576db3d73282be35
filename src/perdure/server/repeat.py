"""Answers to requests with an Idempotency-Key: the second one gets the first one's answer.

The key is the id of the event, so the kernel drops a repeated event after a crash, too. This cache lets one server give
the very same answer, and refuse another body under the same key. Another server, or this one after a restart, finds the
event in the journal of its instance: the entry tells what the first request said.
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
from perdure.errors import VersionConflict
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    Retried,
    Rewound,
    Settled,
    Tagged,
    Woken,
    asked_of,
)
from perdure.kernel.placement import NUMBERS
from perdure.runtime.arguments import tag_from_json
from perdure.runtime.repeated import recorded
from perdure.verbs import act

from .http import Answer
from .problems import HttpProblem

if TYPE_CHECKING:
    from perdure.access.model import Login
    from perdure.kernel.batch import HeadRow

    from .calling import Calling

KEY: Final = re.compile(r"[\x21-\x7e]{1,128}\Z")
KEPT_SECONDS: Final = 24 * 3600.0
KEPT_MAX: Final = 10_000
KEPT_BYTES: Final = 64 * 2**20


SAID: Final = " said:"
RECENT: Final = 100_000
"""Entries of a shard among which the event of a request is looked for after it was accepted. The kernel drops a
repeated event however old the first one is; an answer that is older than these is not marked.
"""
REPLAYED: Final = ("idempotency-replayed", "true")


def event_id(actor: str, key: str) -> str:
    """The id of the event of a request: keys of two actors are two, whatever slashes they have."""
    return f"{actor.replace('%', '%25').replace('/', '%2F')}/{key}" if key else ""


_ANSWERS: Final[dict[str, tuple[tuple[type[Any], ...], Callable[[str, Any], Any]]]] = {
    "cancel": ((CancelAsked,), lambda id, given: act.CancelAnswer(id)),
    "wake": ((Woken,), lambda id, given: act.WakeAnswer(id, given.location or None)),
    "retry": ((Retried, Rewound), lambda id, given: act.RetryAnswer(id)),
    "rewind": ((Rewound,), lambda id, given: act.RewindAnswer(id, given.location)),
    "settle": ((Settled,), lambda id, given: act.SettleAnswer(id, given.location, given.outcome)),
    "send": ((Message,), lambda id, given: act.SendAnswer(id, given.name)),
    "tag": (
        (Tagged,),
        lambda id, given: {"id": id, "tags": {n: tag_from_json(v) for n, v in given.tags.items() if v is not None}},
    ),
}
"""By verb: the events that it records, and its answer."""


def said_of(request: str, path: str, body: bytes) -> str:
    """What a request says, as a few digits: they are recorded with its event, so that any server can compare them."""
    return hashlib.sha256(f"{request} {path}\n".encode() + body).hexdigest()[:16]


async def first_answer(calling: Calling, verb: str, given: Any) -> Any:
    """What the first request with this key was answered, if its event is in the journal; None: it is not.

    Asked when the event is refused as a new one.
    """
    if not calling.event:
        return None
    queries = calling.client.queries
    if calling.made is not None:
        if await _made_by(calling, calling.made) is None:
            return None
        id = str(calling.made)
        if verb == "start":
            return 201, act.StartAnswer(id, calling.made.workflow, calling.made.key)
        return act.ForkAnswer(id, calling.made.workflow, calling.made.key, given.id) if verb == "fork" else None
    if calling.head is None or verb not in _ANSWERS:
        return None
    found = await recorded(queries, calling.head.id, calling.event)
    if found is None:
        return None
    event = found.event
    kinds, answer = _ANSWERS[verb]
    same = not isinstance(event, Message) or (event.name == given.name and decode(event.body) == given.body)
    if not isinstance(event, kinds) or not same:
        raise _reused(calling)
    _compare(calling, event)
    return answer(f"{calling.head.workflow}/{calling.head.key}", given)


async def came_before(calling: Calling, heights: dict[int, int]) -> bool:
    """Whether the event was in the journal when that ended at `heights`: the kernel has dropped this one."""
    queries = calling.client.queries
    if calling.made is not None:
        first = await _made_by(calling, calling.made)
        return first is not None and first <= heights.get(first // NUMBERS, 0)
    if calling.head is None:
        return False
    last = heights.get(calling.head.id // NUMBERS, 0)
    found = await recorded(queries, calling.head.id, calling.event, after=max(0, last - RECENT))
    if found is None or found.seq > last:
        return False
    _compare(calling, found.event)
    return True


async def check_entry(calling: Calling, heights: dict[int, int]) -> None:
    """Raise if an engine elsewhere refused the event, which was posted: the instance had another entry by then."""
    head, queries = calling.head, calling.client.queries
    if head is None or calling.made is not None or calling.expected is None:
        return
    after = heights.get(head.id // NUMBERS, 0)
    if await recorded(queries, head.id, calling.event, after=after) is None:
        await _refuse_other_entry(calling, head)


async def refuse_moved(calling: Calling) -> None:
    """Raise if the instance has another last entry than `If-Match` says, before any other refusal."""
    if calling.head is not None and "if-match" in calling.request.headers:
        await _refuse_other_entry(calling, calling.head)


async def _refuse_other_entry(calling: Calling, head: HeadRow) -> None:
    last, _ = await calling.histories.cut(calling.client.queries, head, lambda whole: (whole.last, None))
    if calling.expected is not None and last != calling.expected:
        text = f"the last entry of {head.workflow}/{head.key} is {last}, not {calling.expected}"
        raise VersionConflict(f"{text}; nothing was recorded: look at it, and ask again with If-Match of now")


async def _made_by(calling: Calling, address: Address) -> int | None:
    """The first entry of an instance, if this request's event made it."""
    queries = calling.client.queries
    head = await queries.head(address)
    found = None if head is None else await recorded(queries, head.id, calling.event, limit=1)
    if found is None:
        return None
    _compare(calling, found.event)
    return found.seq


def _compare(calling: Calling, event: Event) -> None:
    """Refuse another request under the key of a recorded one. Events of older versions do not tell what was said."""
    asked = asked_of(event)
    _, marked, said = ("" if asked is None else asked.via).partition(SAID)
    if marked and said != calling.said:
        raise _reused(calling)


def _reused(calling: Calling) -> HttpProblem:
    key = calling.request.headers["idempotency-key"]
    return HttpProblem(422, "key-reused", f"the Idempotency-Key {key!r} was used for another request; use a new one")


class Kept(NamedTuple):
    """`login`: who got the answer. Another login of the same actor may see less."""

    said: str
    at: float
    answer: asyncio.Future[Answer]
    login: Login


class Repeats:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._bytes = 0

    async def once(
        self, login: Login, key: str, said: str, work: Callable[[], Awaitable[Answer]], *, secret: bool = False
    ) -> Answer:
        """The answer of `work`, or of the first request with this key. An error is not kept: it may be tried again.

        `secret`: the answer is shown once, and never kept.
        """
        if not KEY.match(key):
            raise HttpProblem(422, "bad-request", "an Idempotency-Key has 1 to 128 visible ASCII characters")
        if secret:
            return await work()
        actor, now = login.actor.id, time.monotonic()
        known = self._kept.get((actor, key))
        if known is not None and now - known.at < KEPT_SECONDS:
            if known.said != said:
                text = f"the Idempotency-Key {key!r} was used for another request; use a new one"
                raise HttpProblem(422, "key-reused", text)
            first = await asyncio.shield(known.answer)
            if known.login.grants != login.grants:
                return await work()  # the journal knows that it is the second one
            headers = [each for each in first.headers if each != REPLAYED]
            return Answer(first.status, first.body, first.media, [*headers, REPLAYED])
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._forget(actor, key)
        self._kept[actor, key] = Kept(said, now, future, login)
        try:
            answer = await work()
        except BaseException as error:
            self._forget(actor, key)
            future.set_exception(error if isinstance(error, Exception) else HttpProblem(503, "cut-off", "try again"))
            future.exception()  # seen, also where no second request waits for it
            raise
        future.set_result(answer)
        self._bytes += len(answer.body)
        while len(self._kept) > KEPT_MAX or self._bytes > KEPT_BYTES:
            self._forget(*next(iter(self._kept)))
        return answer

    def _forget(self, actor: str, key: str) -> None:
        known = self._kept.pop((actor, key), None)
        if known is not None and known.answer.done() and not known.answer.exception():
            self._bytes -= len(known.answer.result().body)
