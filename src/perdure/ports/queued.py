"""Open jobs and their queues, as people are told of them. Nothing decides by it."""

import msgspec


class JobState(msgspec.Struct, frozen=True):
    """A job that is open, for people. `worker` has it; empty: no worker has, or the engine itself.

    `claimed`: when the worker took it, in nanoseconds; 0 if that is not known. `note`: why no worker takes it.
    """

    queue: str
    function: str
    worker: str = ""
    claimed: int = 0
    note: str = ""


class ListedJob(msgspec.Struct, frozen=True):
    """A job of a list: what `JobState` says, of which instance, and since when it is open."""

    instance: int
    queue: str
    function: str
    delivery: int
    at: int
    worker: str = ""
    claimed: int = 0
    note: str = ""
    intent: bytes = b""


class QueueRow(msgspec.Struct, frozen=True):
    """The open jobs of a queue for instances of one workflow that a worker has; `worker` is empty: no worker has them.

    `at`: since when the oldest is open; `claimed`: since when the worker has the first of them; 0: that is not known.
    """

    queue: str
    workflow: str
    worker: str
    jobs: int
    at: int
    claimed: int = 0
