"""Placement: on which shard an instance lives. A pure function of its name: no lookup is needed.

The entries of shard n are numbered from n * 2**48 on. So the id of an instance, which is the number of its first entry,
names the shard too, and no two shards have an id in common.
"""

from collections.abc import Container, Iterable
from hashlib import blake2b
from typing import Final

from .events import Address, Ref
from .machine import Workflow
from .rules import RULER

NUMBERS: Final = 1 << 48
"""How many entries a shard has room for."""

SHARDS_MAX: Final = 1024


def place(ref: Ref, shards: int, fixed: Container[str] = ()) -> int:
    """The shard of an instance, by its id or its name.

    A family is together: the key of a child begins with that of its parent, unless it was given a key of its own.
    Workflows whose place is `fixed` (`Policy.place`) are all on the first shard, with the ruler: they have one order.
    """
    if shards == 1:
        return 0
    if not isinstance(ref, Address):
        return ref // NUMBERS
    if ref.workflow in fixed or ref.workflow == RULER.workflow:
        return 0
    root = blake2b(root_of(ref.key).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(root, "big") % shards


def root_of(key: str) -> str:
    """The key of the first in a family: `o-17` of `o-17/ship`, and of `o-17~2/ship`, a child of its next generation."""
    return key.partition("/")[0].partition("~")[0]


def first_seq(shard: int) -> int:
    """What a shard counts its entries from: the first has the next number."""
    return shard * NUMBERS


def fixed_names(workflows: Iterable[Workflow]) -> frozenset[str]:
    """The workflows whose instances are all on the first shard."""
    return frozenset(workflow.name for workflow in workflows if workflow.policy.place == "fixed")
