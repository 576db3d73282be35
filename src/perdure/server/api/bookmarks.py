"""Bookmarks over HTTP: each login has its own, and sees those that others share."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from perdure.access.bookmarks import PUBLISHED, Bookmark, Bookmarks
from perdure.access.model import KEY, WORKFLOW, allowed
from perdure.codec import decode
from perdure.kernel.events import Address
from perdure.views.where import parse, to_text

from ..calling import Calling, forbidden, unknown
from ..problems import HttpProblem
from .access import Done
from .instances import Nothing

NAME_MAX: Final = 80
COLUMNS_MAX: Final = 40


class ShownBookmark(msgspec.Struct, frozen=True):
    """`own`: the login may change it."""

    name: str
    owner: str
    q: str
    columns: list[str]
    order: str
    shared: bool
    pinned: bool
    changed_at: datetime | None
    own: bool


class BookmarkList(msgspec.Struct, frozen=True):
    items: list[ShownBookmark]


async def ls(calling: Calling, given: Nothing) -> BookmarkList:
    return BookmarkList([_shown(calling, each) for each in await _seen(calling)])


class BookmarkName(msgspec.Struct, frozen=True):
    name: str


async def show(calling: Calling, given: BookmarkName) -> ShownBookmark:
    """The own one, if there is one of this name."""
    found = [each for each in await _seen(calling) if each.name == given.name]
    if not found:
        raise unknown(f"bookmark {given.name[:80]!r}")
    return _shown(calling, found[0])


class BookmarkParams(msgspec.Struct, frozen=True):
    """`q` is a filter as lists take it. A `shared` one is seen by all, and needs the role operator."""

    name: str
    q: str = ""
    columns: list[str] = []
    order: str = ""
    shared: bool = False
    pinned: bool = False


async def put(calling: Calling, given: BookmarkParams) -> ShownBookmark:
    if not 0 < len(given.name) <= NAME_MAX or not given.name.isprintable():
        text = f"a bookmark has a name of 1 to {NAME_MAX} printable characters"
        raise HttpProblem(422, "bad-request", text, where="/name")
    texts = [*given.columns, given.order]
    if len(texts) > COLUMNS_MAX or any(len(each) > NAME_MAX for each in texts):
        text = f"a bookmark has at most {COLUMNS_MAX - 1} columns, each with at most {NAME_MAX} characters"
        raise HttpProblem(422, "bad-request", text, where="/columns")
    if given.shared and not allowed(calling.login, "operator").yes:
        raise forbidden(calling, "operator", "this bookmark")
    owner = calling.login.actor.id
    made = Bookmark(
        given.name,
        owner,
        to_text(parse(given.q)),
        tuple(given.columns),
        given.order,
        given.shared,
        given.pinned,
    )
    await calling.accesses.ask("bookmark put", made, calling.login.actor)
    return await show(calling, BookmarkName(given.name))


async def delete(calling: Calling, given: BookmarkName) -> Done:
    admin = allowed(calling.login, "admin").yes
    body = {"owner": calling.login.actor.id, "name": given.name, "admin": admin}
    await calling.accesses.ask("bookmark delete", body, calling.login.actor)
    return Done()


async def _seen(calling: Calling) -> list[Bookmark]:
    queries = calling.client.queries
    head = await queries.head(Address(WORKFLOW, KEY))
    data = None if head is None else await queries.published(head.id, PUBLISHED)
    return Bookmarks(None if data is None else decode(data)).of(calling.login.actor.id)


def _shown(calling: Calling, found: Bookmark) -> ShownBookmark:
    return ShownBookmark(
        found.name,
        found.owner,
        found.q,
        list(found.columns),
        found.order,
        found.shared,
        found.pinned,
        found.changed_at,
        found.owner == calling.login.actor.id,
    )
