"""What a handler of the API is given: the client that asks for this login, and what the login may see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from perdure.access.model import OWN, ROLES, Login, Who, allowed, sees, sees_values
from perdure.errors import UnclearRequest, UnknownInstance
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.rules import RULER
from perdure.ports.store import Filter
from perdure.runtime.bulk import handle_of
from perdure.runtime.client import Client
from perdure.runtime.handle import Handle
from perdure.views.find import NUMBER, no_instance, readings

from .problems import HttpProblem
from .reading import no_such

if TYPE_CHECKING:
    from .accesses import Accesses
    from .http import Request
    from .readers import FoldedHistory, Histories
    from .settings import Settings

T = TypeVar("T")
WORK_SECONDS: Final = 8.0


class Calling(msgspec.Struct):
    """One request on its way to a verb."""

    request: Request
    login: Login
    client: Client
    accesses: Accesses
    settings: Settings
    histories: Histories
    read: bool
    who: Who
    subjects: set[str] = msgspec.field(default_factory=set)  # workflows whose values the answer may hold
    found: set[int] = msgspec.field(default_factory=set)  # instances that the answer is about
    at: str = ""  # the position of the journal before a page of the UI was read
    tag: str = ""  # the number of the instance's last entry, for the ETag
    event: str = ""  # the id of what is recorded: the Idempotency-Key, as a key of this actor
    rows: int = 0  # of the answer: one with many is put into JSON in a thread
    expected: int | None = None  # the last entry that the request expects of the instance
    said: str = ""  # what the request says, as a few digits: recorded with its event
    head: HeadRow | None = None  # of the subject, once it is found
    made: Address | None = None  # the instance that the request makes
    background: set[asyncio.Task[Any]] = msgspec.field(default_factory=set)  # what goes on after the answer
    engine: Any = None  # the client that the server was given: an engine hears of new definitions by it

    def sees(self, workflow: str) -> bool:
        return sees(self.login, workflow)

    def values(self, workflow: str) -> bool:
        return sees_values(self.login, workflow)

    def check(self, workflow: str, what: str) -> None:
        """Raise unless the login may use this verb on a workflow; what it may not see does not exist."""
        verdict = allowed(self.login, self.who, workflow, read=self.read)
        if verdict.yes:
            return
        if verdict.hidden:
            raise unknown(what)
        raise forbidden(self, verdict.needs, what)

    async def check_workflow(self, name: str, code: str = "not-found") -> None:
        """`check`, of a workflow that is named."""
        if allowed(self.login, self.who, name, read=self.read).hidden:
            raise await self.no_workflow(name, code)
        self.check(name, f"workflow {name[:80]!r}")

    async def no_workflow(self, name: str, code: str = "not-found") -> HttpProblem:
        """The refusal of a name, with those that the login sees."""
        known = {row.name for row in await self.client.queries.workflows() if not row.name.startswith(OWN)}
        return HttpProblem(404, code, no_such("workflow", name, filter(self.sees, known)))

    def check_all(self, what: str) -> None:
        """Raise unless the login sees every workflow: for what reaches all of them."""
        if not self.sees_all:
            raise forbidden(self, "viewer on all workflows (*)", what)

    def check_rules(self) -> None:
        """Raise unless the login may use this verb on the world of cells."""
        what = "the world of cells"
        verdict = allowed(self.login, self.who, RULER.workflow)
        if verdict.hidden:
            raise unknown("world of cells")
        if not verdict.yes:
            raise forbidden(self, verdict.needs, what)

    async def check_seen(self, path: str, named: Mapping[str, str]) -> None:
        """Raise for a subject that the login may not see: it is told no more than of one that does not exist."""
        if "{id}" in path and not path.startswith(("/bulk", "/access")):
            found = await self._named(named["id"]) if named["id"].startswith("@") else ()
            named_so = await readings(self.client.queries, named["id"])
            workflows = [each.workflow for each in (*found, *named_so) if each is not None]
            if not any(map(self.sees, workflows)):
                raise await no_instance(self.client.queries, named["id"], self.sees)
        elif path.startswith("/workflows/{name}") and not self.sees(named["name"]):
            raise await self.no_workflow(named["name"])

    async def find(self, id: str) -> HeadRow:
        """The head of an instance that the login may see, by `workflow/key` or `@NUMBER`."""
        heads = [head for head in await self._named(id) if head is not None and self.sees(head.workflow)]
        if not heads:
            raise await no_instance(self.client.queries, id, self.sees)
        self.check(heads[0].workflow, f"instance {id[:80]!r}")
        self.subjects.add(heads[0].workflow)
        self.found.add(heads[0].id)
        self.head = heads[0]
        return heads[0]

    def handle(self, id: str, head: HeadRow) -> Handle[Any]:
        """Of one generation, where a number names it; else by the name."""
        return handle_of(self.client, head) if id.startswith("@") else self.client.handle(head.workflow, head.key)

    async def find_named(self, text: str) -> str:
        """The id that a text means: `workflow/key`, `@NUMBER`, or the key alone where one visible instance has it."""
        try:
            return exact(text, await self.find(text))
        except UnknownInstance:
            heads = await self.client.queries.heads(Filter(key=text, limit=1000)) if text else []
        ids = sorted({id_of(head) for head in heads if self.sees(head.workflow)})
        if len(ids) > 1:
            raise UnclearRequest(f"{text!r:.80} is the key of {len(ids)} instances: {', '.join(ids[:20])}")
        if ids:
            return id_of(await self.find(ids[0]))
        for address in await readings(self.client.queries, text):
            if self.sees(address.workflow) and await self.client.queries.undelivered(address):
                return text  # recorded, and not taken up yet: the verb says so
        raise await no_instance(self.client.queries, text, self.sees)

    async def cut(self, head: HeadRow, work: Callable[[FoldedHistory], T]) -> T:
        """What `work` makes of the whole history of an instance; the ETag is the number of its last entry."""
        found, last = await self.histories.cut(self.client.queries, head, lambda whole: (work(whole), whole.last))
        self.tag = str(last)
        return found

    async def within(self, name: str, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of work that may take longer than an answer; None: it goes on. One of a name at a time."""
        if any(task.get_name() == name for task in self.background):
            work.close()
            text = f"this server has not ended another {name}: try again"
            raise HttpProblem(409, "still-working", text, retry_after=5)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _ = await asyncio.wait([task], timeout=WORK_SECONDS)
        return task.result() if done else None

    @property
    def sees_all(self) -> bool:
        """Whether the login sees every workflow, so that names of others may be proposed."""
        return any("*" in grant.workflows for grant in self.login.grants)

    @property
    def shows_values(self) -> bool:
        return all(self.values(workflow) for workflow in self.subjects)

    async def location(self, folder: str, id: str) -> str:
        """Where an answer says to look: by number, if the path of the name would be read as another one."""
        if {".", "..", "-"} & set(id.split("/")):
            head = self.head if self.made is None else await self.client.queries.head(self.made)
            id = id if head is None else f"@{head.id}"
        return quote(f"{self.request.root}{folder}/{id}", safe="/@")

    async def _named(self, id: str) -> list[HeadRow | None]:
        queries, number = self.client.queries, NUMBER.match(id)
        if number is not None:
            return [await queries.head(int(number[1]))] if int(number[1]) < 2**63 else []
        return [await queries.head(address) for address in await readings(queries, id)]


def unknown(what: str) -> HttpProblem:
    return HttpProblem(404, "not-found", f"there is no {what}")


def forbidden(calling: Calling, needs: str, what: str) -> HttpProblem:
    detail = f"{calling.login.actor} may see {what} and may not do this: it needs {needed(needs)}"
    return HttpProblem(403, "forbidden", detail, expected=needs)


def needed(needs: str) -> str:
    return f"the role {needs}" if needs in ROLES else needs


def exact(id: str, head: HeadRow) -> str:
    """The id for a verb: a number stays one, for it means one generation, and a name the last one."""
    return f"@{head.id}" if id.startswith("@") else id_of(head)


def id_of(head: HeadRow) -> str:
    return f"{head.workflow}/{head.key}"
