"""Bookmarks: saved lists with filter, columns and order, of a person or shared by all."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.codec import from_plain, to_plain

PUBLISHED: Final = "bookmarks"
OWN_MAX: Final = 200
"""Bookmarks of one person; so many may be shared, too."""


class Bookmark(msgspec.Struct, frozen=True):
    """`q` is the filter as text. `order` and `columns` are those of the list; empty: as usual."""

    name: str
    owner: str
    q: str
    columns: tuple[str, ...] = ()
    order: str = ""
    shared: bool = False
    pinned: bool = False
    changed_at: datetime | None = None


class Bookmarks:
    """All bookmarks, in the order in which they were made."""

    def __init__(self, plain: Any = None) -> None:
        self._all: list[Bookmark] = from_plain(plain or [], list[Bookmark])

    def __bool__(self) -> bool:
        return bool(self._all)

    def plain(self) -> Any:
        return to_plain(self._all, list[Bookmark])

    def of(self, owner: str) -> list[Bookmark]:
        """What a person sees: the own ones, then those that others share."""
        own = [each for each in self._all if each.owner == owner]
        return own + [each for each in self._all if each.shared and each.owner != owner]

    def put(self, given: Bookmark) -> tuple[str, str] | None:
        """Keep it in the place of an own one of this name; else why not, as a code and a text."""
        same = next((each for each in self._all if (each.owner, each.name) == (given.owner, given.name)), None)
        others = [each for each in self._all if each is not same]
        if given.shared and any(each.shared and each.name == given.name for each in others):
            return "name-taken", f"a shared bookmark of another person is named {given.name!r}: choose another name"
        if sum(each.owner == given.owner for each in others) >= OWN_MAX or (
            given.shared and sum(each.shared for each in others) >= OWN_MAX
        ):
            return "too-many-bookmarks", f"there are {OWN_MAX} bookmarks of this kind: delete one first"
        self._all = [given if each is same else each for each in self._all] if same else [*self._all, given]
        return None

    def delete(self, owner: str, name: str, admin: bool) -> tuple[str, str] | None:
        """Delete an own bookmark; an admin may delete one that others share."""
        found = [each for each in self.of(owner) if each.name == name]
        if not found:
            return "not-found", f"there is no bookmark {name!r:.80}"
        if found[0].owner != owner and not admin:
            return "forbidden", f"the bookmark {name!r:.80} is shared by {found[0].owner}: its owner deletes it"
        self._all.remove(found[0])
        return None
