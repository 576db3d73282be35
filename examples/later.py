"""Start later: an instance exists at once, with its key, and begins its work at its time, or when it is woken.

Prints:
    waiting: ['in-a-week', 'tonight', 'soon']
    soon: tea is ready
    tonight, woken early: water the plants
    in-a-week: cancelled
"""

import asyncio
from datetime import UTC, datetime, timedelta

import perdure


@perdure.flow
async def reminder(ctx: perdure.Context, text: str) -> str:
    return text


async def main() -> None:
    async with perdure.open(":memory:", workflows=[reminder]) as engine:
        soon = await engine.start(reminder, "tea is ready", key="soon", delay=0.2)
        tonight = await engine.start(reminder, "water the plants", key="tonight", delay=timedelta(hours=9))
        week = datetime.now(UTC) + timedelta(days=7)
        in_a_week = await engine.start(reminder, "call the dentist", key="in-a-week", at=week)

        print("waiting:", [found.key for found in await engine.instances(status="waiting")])
        print("soon:", await soon.result())
        await tonight.wake()
        print("tonight, woken early:", await tonight.result())
        await in_a_week.cancel("the tooth is out")
        print("in-a-week:", await in_a_week.status())


if __name__ == "__main__":
    asyncio.run(main())
