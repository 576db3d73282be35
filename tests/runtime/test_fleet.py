"""The shards of a process come and go with their leases."""

import asyncio
from collections.abc import Callable, Mapping

from perdure.ports.leases import Standing
from perdure.runtime.fleet import Fleet
from perdure.runtime.shard import Shard


class SlowLeases:
    """A database that has no shard free, and answers when it is told to."""

    shards = 4
    lease = 0.2

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[Standing] | None = None
        self.left = False

    async def renew(self, owner: str, held: Mapping[int, int]) -> Standing:
        if self.answer is None:
            return Standing({}, (), 1)
        self.asked.set()
        return await self.answer

    async def leave(self, owner: str) -> None:
        self.left = True

    def listen(self, heard: Callable[[str], None]) -> None:
        pass

    def hint(self, *words: str) -> None:
        pass


def no_shard(number: int) -> Shard:
    raise AssertionError("there is none to take")


async def test_a_close_ends_though_a_renewal_is_answered_in_the_same_moment() -> None:
    leases = SlowLeases()
    fleet = Fleet(leases, "test", no_shard)
    await fleet.open()
    leases.answer = asyncio.get_running_loop().create_future()
    await leases.asked.wait()

    leases.answer.set_result(Standing({}, (), 1))  # nobody has heard it yet when the close stops the renewals
    async with asyncio.timeout(30):
        await fleet.close(0, asyncio.Event())

    assert leases.left
