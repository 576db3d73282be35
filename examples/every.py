"""Every so often, for years: the next time is the state of a loop. It does not drift, and what it keeps stays short.

Prints:
    report 1, due 20 ms after the start
    report 2, due 40 ms after the start
    report 3, due 60 ms after the start
    report 4, due 80 ms after the start
    stopped after 4
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import perdure

EVERY = timedelta(milliseconds=20)  # days=1, for a real report


@dataclass
class Turn:
    number: int
    due: datetime


async def report(number: int, after: timedelta) -> None:
    print(f"report {number}, due {after / timedelta(milliseconds=1):.0f} ms after the start")


@perdure.flow
async def reports(ctx: perdure.Context, count: int) -> str:
    begin = ctx.now()

    async def turn(ctx: perdure.Context, turn: Turn) -> perdure.Continue[Turn] | perdure.Break[str]:
        await ctx.sleep_until("its time", turn.due)  # returns at once if it passed while no engine ran
        await ctx.step("report", report, turn.number, turn.due - begin)
        if turn.number == count:
            return perdure.Break(f"stopped after {count}")
        return perdure.Continue(Turn(turn.number + 1, turn.due + EVERY))  # not now + EVERY: that would drift

    return await ctx.loop("turns", turn, Turn(1, begin + EVERY), keep=2, prune_every=2)


if __name__ == "__main__":
    print(perdure.run(reports, 4, key="daily"))
