"""Who asked for an event from outside, and under which conditions.

Every event from outside may carry an `Asked`. It is recorded with the event. perdure does not know who is who: the
program, server or shell that calls vouches for the actor.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from perdure.codec import is_text
from perdure.errors import BadCall

NAME_MAX: Final = 512
"""Characters of the id of an actor, and of a role: they are in indexes of databases."""


def is_name(value: Any) -> bool:
    """Whether this can be the id of an actor, or a role."""
    return isinstance(value, str) and 0 < len(value) <= NAME_MAX and is_text(value) and "\x00" not in value


class Actor(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A person, key, agent or schedule that asks for something: `perdure.Actor("ann", roles=["manager"])`."""

    id: str
    roles: Sequence[str] = ()
    admin: bool = False

    def __post_init__(self) -> None:
        if not is_name(self.id):
            raise BadCall(f"an actor has an id, a text of 1 to {NAME_MAX} characters; found {self.id!r:.80}")
        roles = self.roles
        if isinstance(roles, str) or not isinstance(roles, Iterable):
            raise BadCall(f"roles is a list of texts, found {roles!r:.80}: Actor({self.id!r}, roles=[...])")
        roles = tuple(roles)
        for role in roles:
            if not is_name(role):
                raise BadCall(f"a role is a text, found {role!r:.80}: Actor({self.id!r}, roles=['manager'])")
        msgspec.structs.force_setattr(self, "roles", roles)

    def __str__(self) -> str:
        return self.id


class Asked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What an event from outside carries beside what it says.

    `id`: the kernel drops an id that it has seen and gives the first answer again. `via`: what a server adds.
    `if_entry`: the event is refused if the last entry of the instance has another number.
    """

    id: str = ""
    by: Actor | None = None
    via: str = ""
    reason: str = ""
    if_entry: int | None = None
    trace: str = ""


def actor_of(by: Actor | str) -> Actor:
    """The actor that a caller names; a text is the actor of that id."""
    if isinstance(by, Actor):
        return by
    if isinstance(by, str):
        return Actor(by)
    raise BadCall(f"by= takes a perdure.Actor or the id of one as text, found {by!r:.80}")
