"""Workflows of several dialects, for the pages that draw them."""

import perdure
from perdure.dialect_commands.demo import STARTS as ALL_STARTS
from perdure.dialect_commands.demo import article, restock
from tests.server import site


async def one(n: int) -> int:
    return n


@perdure.flow
async def counting(ctx, n: int = 0):
    for each in range(n):
        await ctx.step("count", one, each)


@perdure.flow
async def four_eyes(ctx, asker: str = "ann"):
    await ctx.task("check", title="Check what ann did", roles=["manager"], exclude=[asker], answer=site.Decision)


ALL = [*site.ALL, article, restock, counting, four_eyes]
STARTS = [each for each in ALL_STARTS if each[0] in ("article", "restock")]
