"""How events get to an engine and outcomes come back, for all that callers hold. `connections.py` has both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, Protocol

from perdure.errors import (
    CallerError,
    InstanceEnded,
    KeyInUse,
    NotStuck,
    ReceiptRefused,
    StillRunning,
    UnknownInstance,
    UnknownVersion,
    UnknownWorkflow,
    VersionConflict,
    WrongLoop,
)
from perdure.kernel.decision import Outcome
from perdure.kernel.events import Address, Event, Ref
from perdure.kernel.mailbox import Refused
from perdure.kernel.policy import Policy
from perdure.ports.frame import Frame
from perdure.ports.store import Queries

from .streams import Streams

AFTER_THE_END: Final = "; start another instance, with a new key"


class Connection(Protocol):
    """How events get to an engine and outcomes come back. Refusals are raised as typed errors."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it belongs to; None: any."""
        ...

    @property
    def queries(self) -> Queries: ...

    async def put(self, to: Ref, event: Event, *, new: bool = False) -> int:
        """Deliver an event durably; the answer is the id of the instance, or 0 when that is not known yet.

        `new`: the name was made up for this event.
        """
        ...

    async def outcome(self, address: Address, instance: int, timeout: float | None) -> Outcome: ...

    async def reached(self, seq: int) -> None:
        """Wait until the journal has this entry."""
        ...

    def changes(self, instance: int, name: str = "") -> AsyncGenerator[None, None]:
        """Yields at once, and again whenever the instance may have published something, become stuck or ended.

        `name`: only a value of this name counts; empty: any. Of the instance 0: whenever anything was recorded.
        """
        ...

    @property
    def streams(self) -> Streams:
        """Raises `NotInThisProcess` where frames are not seen."""
        ...

    def progress(self, instance: int) -> list[Frame]:
        """The newest progress of each running step; nothing where frames are not seen."""
        ...

    async def policy(self, workflow: str) -> Policy:
        """What may be done with instances of a workflow, as the database says; anything, where it says nothing."""
        ...

    def in_force(self) -> str:
        """The hash of the rules in force, where that is known without asking the database; else empty."""
        ...

    def entropy(self) -> bytes: ...


class Speaker:
    """What callers hold speaks through a connection, on the event loop of that connection."""

    def __init__(self, connection: Connection) -> None:
        self._any_loop = connection  # for what does not wait

    @property
    def _connection(self) -> Connection:
        connection = self._any_loop
        running = asyncio._get_running_loop()
        if running is not connection.loop and connection.loop is not None:
            raise WrongLoop(
                "this engine or client belongs to another event loop: from another thread write "
                "asyncio.run_coroutine_threadsafe(engine.start(...), engine.loop).result(), or open a client here with "
                "perdure.connect(url); inside a workflow use ctx.child(...), ctx.send(...) or a step"
            )
        return connection


def refusal(refused: Refused) -> CallerError:
    """The typed error of a refusal."""
    kinds: dict[str, type[CallerError]] = {
        "unknown-workflow": UnknownWorkflow,
        "unknown-version": UnknownVersion,
        "unknown-instance": UnknownInstance,
        "key-in-use": KeyInUse,
        "ended": InstanceEnded,
        "not-stuck": NotStuck,
        "running": StillRunning,
        "version-conflict": VersionConflict,
    }
    advice = {
        "key-in-use": '; use another key, or reuse="failed" if it failed, reuse="always" if it has ended in any way',
        "running": "; wait for it, or drop it with force=True",
        "not-stuck": "; a retry is for what is stuck or has failed: rewind goes back, fork goes on in another one",
        "unknown-instance": "; `perdure ls` lists what exists",
        "version-conflict": "; nothing was recorded: look at it, and ask again with if_entry= of now (HTTP: If-Match)",
        "unknown-version": "; register it too, or start the workflow by its name: that takes the newest",
        "ended": "" if refused.reason.endswith("fork it") else AFTER_THE_END,
    }
    if refused.code in ("no-identity", "not-outside", "wrong-executor", "bad-signature"):
        return ReceiptRefused(refused.code, refused.reason)
    return kinds.get(refused.code, CallerError)(refused.reason + advice.get(refused.code, ""))
