"""Clusters: what a dispatcher asks of one. It hands copies of jobs to the cluster, and hears when a copy has ended.

A copy is a call of `run_job` for one job. The cluster may lose a copy, run it late or run it several times: a copy
claims its job before it performs the step, and only one claim succeeds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec


class Copy(msgspec.Struct, frozen=True):
    """A job for a cluster. `id` is the name of this copy there; another copy of the same job has another name.

    `avoid`: machines that could not begin the function. They get the copy only if there are no others.
    """

    id: str
    intent: bytes
    queue: str
    function: str
    resources: Mapping[str, float]
    avoid: frozenset[str] = frozenset()


class Ended(msgspec.Struct, frozen=True):
    """The end of a copy. `lost`: the cluster does not know the copy any more. `error`: the step could not begin.

    `machine` is where it could not, if that is known.
    """

    lost: bool = False
    error: str = ""
    machine: str = ""


class CannotBegin(Exception):
    """What a machine raises that cannot begin a step: its name, and why."""

    def __init__(self, machine: str, reason: str) -> None:
        super().__init__(machine, reason)
        self.machine = machine
        self.reason = reason


class Cluster(Protocol):
    @property
    def name(self) -> str:
        """For people: which kind of cluster, and where."""
        ...

    def listen(self, ended: Callable[[str, Ended], None]) -> None:
        """Call `ended` with the id of each copy that has ended, on the loop of the dispatcher."""
        ...

    async def submit(self, copies: Sequence[Copy]) -> None:
        """Hand copies to the cluster. Raises `OSError` when the cluster cannot be reached: then none was taken."""
        ...

    async def cancel(self, ids: Sequence[str]) -> None:
        """Forget copies that have not begun. A copy that has begun may go on."""
        ...

    async def machines(self) -> frozenset[str]:
        """The names of the machines of the cluster, or of their processes. Raises `OSError` as `submit` does."""
        ...

    async def close(self) -> None: ...
