"""A desk in front of an executor: it starts calls as a runtime would, and keeps receipts and frames."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from perdure.codec import decode, encode
from perdure.kernel.batch import Publication
from perdure.kernel.effects import Call
from perdure.kernel.events import Address
from perdure.kernel.identity import Identity
from perdure.kernel.receipt import Failure, Receipt
from perdure.ports.executor import Executor, Work
from perdure.ports.frame import Frame

ADDRESS = Address("order", "o-17")
IDENTITY = Identity(ADDRESS, 1)
SECONDS_MAX = 30.0  # no test comes near it: a wait that lasts so long is a failure


class Desk:
    """`receipts` and `frames` have all that ever came, in order, with its intent."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.receipts: list[tuple[bytes, Receipt]] = []
        self.frames: list[tuple[bytes, Frame]] = []
        self.threads: set[threading.Thread] = set()
        self._futures: dict[bytes, asyncio.Future[Receipt]] = {}
        executor.listen(self._framed)

    def work(self, function: Callable[..., Any], *args: Any, returns: Any = None, **kwargs: Any) -> bytes:
        """Start a call that stays in this process. Its intent."""
        return self._start(None, Work(function, args, kwargs, returns))

    def call(self, name: str, *args: Any, **kwargs: Any) -> bytes:
        """Start a call that leaves this process. Its intent."""
        return self.params(encode({"call": name, "args": list(args), "kwargs": kwargs}))

    def params(self, params: bytes | None) -> bytes:
        return self._start(params, None)

    def stop(self, intent: bytes) -> None:
        self.executor.stop(intent)

    async def receipt(self, intent: bytes) -> Receipt:
        async with asyncio.timeout(SECONDS_MAX):
            return await self._futures[intent]

    async def value(self, intent: bytes) -> Any:
        receipt = await self.receipt(intent)
        assert receipt.status == "ok", receipt.error
        return None if receipt.value is None else decode(receipt.value)

    async def failure(self, intent: bytes) -> Failure:
        receipt = await self.receipt(intent)
        assert receipt.status == "error" and receipt.error is not None
        return receipt.error

    def _start(self, params: bytes | None, work: Work | None) -> bytes:
        location = f"call#{len(self._futures) + 1}"
        intent = IDENTITY.intent(location, 2)
        self._futures[intent] = asyncio.get_running_loop().create_future()
        call = Call(location, 2, self.executor.name, params=params)
        self.executor.start(Publication(intent, 1, ADDRESS, call, 3, work, IDENTITY), self._answered)
        return intent

    def _framed(self, intent: bytes, frame: Frame) -> None:
        self.threads.add(threading.current_thread())
        assert not self._futures[intent].done(), "a frame came after the receipt"
        self.frames.append((intent, frame))

    def _answered(self, intent: bytes, receipt: Receipt) -> None:
        self.threads.add(threading.current_thread())
        self.receipts.append((intent, receipt))
        self._futures[intent].set_result(receipt)


def story(make: Callable[[], Executor], tell: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    """Run a story on a loop of its own. What the loop would only log fails it."""

    async def run() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        desk = Desk(make())
        try:
            await tell(desk)
        finally:
            await desk.executor.close()
        assert not complaints
        assert desk.threads <= {threading.current_thread()}, "a receipt came on another thread"
        assert len({intent for intent, _ in desk.receipts}) == len(desk.receipts), "two receipts for one start"

    asyncio.run(run())


async def blocking(function: Callable[..., Any], *args: Any) -> Any:
    """Wait in a thread for what another thread or process does.

    It is a daemon thread, unlike those of `asyncio.to_thread`: a wait in vain fails and does not hang.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def wait() -> None:
        result = function(*args)
        with suppress(RuntimeError):  # too late, the test is over
            loop.call_soon_threadsafe(_settle, done, result)

    threading.Thread(target=wait, daemon=True).start()
    async with asyncio.timeout(SECONDS_MAX):
        return await done


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)
