"""What a handler of the API is given: the client that asks for this login, and what the login may see."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.access.model import Login, Who, allowed, sees, sees_values
from perdure.errors import UnclearRequest, UnknownInstance
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.ports.store import Filter
from perdure.runtime.client import Client

from .problems import HttpProblem

if TYPE_CHECKING:
    from .accesses import Accesses
    from .http import Request
    from .readers import Histories
    from .settings import Settings

_NUMBER = re.compile(r"@([0-9]{1,19})\Z")


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
    tag: str = ""  # the number of the instance's last entry, for the ETag
    event: str = ""  # the id of what is recorded: the Idempotency-Key, as a key of this actor
    head: HeadRow | None = None  # of the subject, once it is found
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

    async def find(self, id: str) -> HeadRow:
        """The head of an instance that the login may see, by `workflow/key` or `@NUMBER`."""
        heads = [head for head in await self._named(id) if head is not None and self.sees(head.workflow)]
        if not heads:
            raise unknown(f"instance {id[:80]!r}")
        self.check(heads[0].workflow, f"instance {id[:80]!r}")
        self.subjects.add(heads[0].workflow)
        self.found.add(heads[0].id)
        self.head = heads[0]
        return heads[0]

    async def find_named(self, text: str) -> str:
        """The id that a text means: `workflow/key`, `@NUMBER`, or the key alone where one visible instance has it."""
        try:
            return id_of(await self.find(text))
        except UnknownInstance:
            heads = await self.client.queries.heads(Filter(key=text, limit=1000)) if text else []
        ids = sorted({id_of(head) for head in heads if self.sees(head.workflow)})
        if len(ids) > 1:
            raise UnclearRequest(f"{text!r:.80} is the key of {len(ids)} instances: {', '.join(ids[:20])}")
        if ids:
            return id_of(await self.find(ids[0]))
        for address in _addresses(text):
            if self.sees(address.workflow) and await self.client.queries.undelivered(address):
                return text  # recorded, and not taken up yet: the verb says so
        raise unknown(f"instance {text[:80]!r}")

    @property
    def sees_all(self) -> bool:
        """Whether the login sees every workflow, so that names of others may be proposed."""
        return any("*" in grant.workflows for grant in self.login.grants)

    @property
    def shows_values(self) -> bool:
        return all(self.values(workflow) for workflow in self.subjects)

    async def _named(self, id: str) -> list[HeadRow | None]:
        queries, number = self.client.queries, _NUMBER.match(id)
        if number is not None:
            return [await queries.head(int(number[1]))] if int(number[1]) < 2**63 else []
        return [await queries.head(address) for address in _addresses(id)]


def _addresses(id: str) -> list[Address]:
    """Every reading as workflow/key: both may have slashes."""
    cuts = [n for n, letter in enumerate(id) if letter == "/" and n > 0]
    return [*(Address(id[:n], id[n + 1 :]) for n in cuts), Address(id, "")]


def unknown(what: str) -> Exception:
    return UnknownInstance(f"there is no {what}")


def forbidden(calling: Calling, needs: str, what: str) -> HttpProblem:
    detail = f"{calling.login.actor} may see {what} and may not do this: it needs the role {needs}"
    return HttpProblem(403, "forbidden", detail, expected=needs)


def id_of(head: HeadRow) -> str:
    return f"{head.workflow}/{head.key}"
