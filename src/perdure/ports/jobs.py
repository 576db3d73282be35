"""Jobs: what a worker asks of a database. It claims what is open in queues, says that it lives, and answers.

A claim is a lease of one job: it lasts as long as its worker beats, and is fenced by `taken`, which counts the claims
of the job. Whatever comes of it is an event for the instance that waits, and only the owner of that makes an entry of
it: an answer is put into its inbox, and of a claim that has expired the owner hears by `Store.lost`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from perdure.kernel.batch import InboxRow, JobRow

from .frame import Frame

CLAIM: Final = 10_000_000_000
"""Nanoseconds that a claim lasts after the last beat of its worker."""


class Claim(msgspec.Struct, frozen=True):
    """A job in the hands of a worker."""

    job: JobRow
    worker: str
    taken: int

    @property
    def id(self) -> bytes:
        """No other claim has it, not even of the same job."""
        return self.job.intent + self.taken.to_bytes(8, "big")


class OpenJob(msgspec.Struct, frozen=True):
    """A job that no worker has. `taken` counts the claims that it has had."""

    job: JobRow
    taken: int


class Jobs(Protocol):
    async def claim(self, worker: str, queues: Sequence[str], functions: Sequence[str], limit: int) -> list[Claim]:
        """Take up to so many free jobs of these queues, the oldest first: those of known functions only."""
        ...

    async def take(self, worker: str, intents: Sequence[bytes]) -> list[Claim]:
        """Claim these very jobs, except those that a worker has or that are closed."""
        ...

    async def beat(self, worker: str, claims: Sequence[Claim]) -> list[Claim]:
        """Keep claims. The answer is those that are void: the job was closed, or counts as lost."""
        ...

    async def answer(self, answers: Sequence[tuple[Claim, InboxRow]]) -> list[Claim]:
        """Put receipts into the inboxes of those who wait, and end the claims: both or neither, for each.

        The answer is those claims that were void: of these nothing was taken.
        """
        ...

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """These were not begun: anybody may claim them, and no delivery is used up."""
        ...

    async def tell(self, frames: Sequence[tuple[Claim, Frame]]) -> None:
        """Send frames of running steps to their listeners. Some may be lost."""
        ...

    async def open_jobs(
        self, queue: str, limit: int, without: Sequence[bytes], without_functions: Sequence[str]
    ) -> list[OpenJob]:
        """Look at jobs of a queue that no worker has, the oldest first. This claims nothing."""
        ...

    async def waiting(self, intents: Sequence[bytes]) -> dict[bytes, int | None]:
        """Which of these jobs are not closed: how many claims each has had, or None while a worker has it."""
        ...

    async def note(self, queue: str, function: str, text: str) -> None:
        """Say why no worker takes the jobs of a function, for people. A claim of the job removes the note."""
        ...

    def listen(self, hint: Callable[[], None]) -> None:
        """Call `hint` when there may be something to claim or to stop. It may come late, or not at all."""
        ...
