"""What is done to instances over HTTP: start, send, ask, tags, and the verbs that act on one instance."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import AskTimeout, PerdureError
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.runtime.arguments import TagInput, tag_from_json
from perdure.runtime.history import summary
from perdure.verbs import act

from ..calling import Calling, exact, id_of
from ..problems import HttpProblem, problem_of
from ..repeat import refuse_moved
from .instances import WAIT_MAX

STARTS_MAX: Final = 500
RECORDED_SECONDS: Final = 2.0


class StartBody(act.StartParams, frozen=True):
    """One instance; or `instances`, up to 500, each as one: then the answer has `items`."""

    workflow: str = ""
    instances: list[act.StartParams] | None = None


class StartedItem(msgspec.Struct, frozen=True):
    """An instance that was started, or the `problem` with it."""

    started: act.StartAnswer | UnsetType = UNSET
    problem: dict[str, str] | UnsetType = UNSET


class StartedAnswer(msgspec.Struct, frozen=True):
    """`items` of several instances, in their order; else the one that was started."""

    id: str | UnsetType = UNSET
    workflow: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    items: list[StartedItem] | UnsetType = UNSET


async def start(calling: Calling, given: StartBody) -> Any:
    if given.instances is None and given.workflow:
        one = act.StartParams(**{name: getattr(given, name) for name in act.StartParams.__struct_fields__})
        answer = await _start(calling, one, "")
        done = await recorded(calling, Address(answer.workflow, answer.key))
        return 201 if done else 202, StartedAnswer(answer.id, answer.workflow, answer.key)
    several = given.instances or []
    if given.workflow or not 1 <= len(several) <= STARTS_MAX:
        text = "workflow is missing: a start names one"
        if given.instances is not None:
            text = f"a list has 1 to {STARTS_MAX} starts, found {len(several)}"
            text += " and, beside the list, a workflow: leave one out" if given.workflow else ""
        raise HttpProblem(422, "bad-request", text, where="/instances" if several else "/workflow")
    each_one = enumerate(several)
    return StartedAnswer(items=await asyncio.gather(*(_started(calling, each, f"\x00{n}") for n, each in each_one)))


async def check_start(calling: Calling, given: act.StartParams) -> None:
    """A login starts in its own name: else four eyes would be two."""
    await calling.check_workflow(given.workflow, "unknown-workflow")
    _check_name(calling, given.by, "starts instances")


def _check_name(calling: Calling, by: str | None, does: str) -> None:
    if by not in (None, calling.login.actor.id):
        text = f"{calling.login.actor} {does} in their own name, found by={by!r:.80}"
        raise HttpProblem(403, "forbidden", text, expected=calling.login.actor.id)


async def _start(calling: Calling, given: act.StartParams, number: str) -> act.StartAnswer:
    await check_start(calling, given)
    given = keyed(calling, given, number)
    if given.key and not number:
        calling.made = Address(given.workflow, given.key)
    return await act.start(calling.client, given)


def keyed(calling: Calling, given: Any, number: str = "") -> Any:
    """With an Idempotency-Key the instance that is made has a key that is derived from it, if it has none."""
    if given.key is not None or not calling.event:
        return given
    own = hashlib.blake2b(f"{calling.event}{number}".encode(), digest_size=12).hexdigest()
    return msgspec.structs.replace(given, key=own)


async def fork(calling: Calling, given: act.ForkParams) -> act.ForkAnswer:
    head = await calling.find(given.id)
    await refuse_moved(calling)  # a fork is no event of this instance, which the kernel would judge
    given = to_fork(calling, msgspec.structs.replace(given, id=exact(given.id, head)), head)
    return await act.fork(calling.client, given)


def to_fork(calling: Calling, given: act.ForkParams, head: HeadRow) -> act.ForkParams:
    given = given if given.dry_run else keyed(calling, given)
    if given.key:
        calling.made = Address(head.workflow, given.key)
    return given


async def _started(calling: Calling, given: act.StartParams, number: str) -> StartedItem:
    try:
        answer = await _start(calling, given, number)
    except (PerdureError, HttpProblem) as error:
        problem = problem_of(error)
        assert problem is not None, "errors of ours are problems"
        return StartedItem(problem={"code": problem.code, "detail": problem.detail})
    return StartedItem(answer)


async def recorded(calling: Calling, address: Address) -> bool:
    """Whether an engine has taken up what was started; `Prefer: wait=N` says how long that is waited for."""
    queries = calling.client.queries

    async def is_there() -> bool:
        return await queries.head(address) is not None

    return await _soon(calling, is_there)


async def taken_up(calling: Calling) -> bool:
    """Whether an engine has recorded what was sent to the instance of a request: then every server's reads see it."""
    assert calling.head is not None, "the instance was found"
    address = Address(calling.head.workflow, calling.head.key)

    async def nothing_waits() -> bool:
        return not await calling.client.queries.undelivered(address)

    return await _soon(calling, nothing_waits)


async def _soon(calling: Calling, condition: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it comes true within the seconds of `Prefer: wait=N`, or a few."""
    if await condition():
        return True
    preferred = calling.request.preferred_wait
    seconds = RECORDED_SECONDS if preferred is None else preferred
    try:
        async with asyncio.timeout(min(seconds, WAIT_MAX)), aclosing(calling.client.changes()) as changes:
            async for _ in changes:
                if await condition():
                    return True
    except TimeoutError:
        pass
    return False


class MessageParams(msgspec.Struct, frozen=True):
    id: str
    name: str
    body: Any = None


async def send(calling: Calling, given: MessageParams) -> Any:
    head = await calling.find(given.id)
    message = calling.event or None
    return await act.send(calling.client, act.SendParams(exact(given.id, head), given.name, given.body, message))


class AskParams(msgspec.Struct, frozen=True):
    id: str
    name: str
    body: Any = None
    wait: float = 10.0


class AskAnswer(msgspec.Struct, frozen=True):
    id: str
    answer: Any


async def ask(calling: Calling, given: AskParams) -> AskAnswer:
    head = await calling.find(given.id)
    handle = calling.handle(given.id, head)
    said: Any = {"id": calling.event} if calling.event else {}
    try:
        found = await handle.ask(given.name, given.body, timeout=min(max(given.wait, 0.0), WAIT_MAX), **said)
    except AskTimeout:
        text = f"{id_of(head)} had not answered in time; the message is recorded"
        text += ": with an Idempotency-Key the same request waits on"
        raise HttpProblem(503, "not-answered", text, retry_after=1) from None
    return AskAnswer(id_of(head), found)


def acting(verb: Any) -> Any:
    """A handler of a verb that acts on one instance: the instance is found as the login sees it."""

    async def handler(calling: Calling, given: Any) -> Any:
        head = await calling.find(given.id)
        return await verb(calling.client, msgspec.structs.replace(given, id=exact(given.id, head)))

    return handler


def pausing(verb: Any) -> Any:
    """`acting`, of a verb that is a message."""

    async def handler(calling: Calling, given: act.PauseParams) -> Any:
        head = await calling.find(given.id)
        return await verb(calling.client, to_pause(calling, msgspec.structs.replace(given, id=exact(given.id, head))))

    return handler


def to_pause(calling: Calling, given: act.PauseParams) -> act.PauseParams:
    _check_name(calling, given.by, "pauses and resumes instances")
    return msgspec.structs.replace(given, message=given.message or calling.event or None)


class TagsParams(msgspec.Struct, frozen=True):
    """`tags` by name: texts, numbers, bools, or times as {"$time": "2026-11-01T09:00Z"}; null removes one."""

    id: str
    tags: dict[str, TagInput | None]


class TagsAnswer(msgspec.Struct, frozen=True):
    id: str
    tags: dict[str, Any]


async def tag(calling: Calling, given: TagsParams) -> TagsAnswer:
    head = await calling.find(given.id)
    if given.tags:
        tags = {name: tag_from_json(value) for name, value in given.tags.items()}
        await calling.handle(given.id, head).tags(tags)
        await taken_up(calling)
    now = await calling.client.queries.head(head.id)
    return TagsAnswer(id_of(head), summary(now or head).tags)
