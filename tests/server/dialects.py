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


class Counted(perdure.Record, name="com.acme/Counted@1"):
    shelf: str
    pieces: perdure.Nat


class Shelf(perdure.Record, name="com.acme/Shelf@1"):
    pieces: perdure.Nat


@perdure.cell("com.acme/shelf@1", key="shelf", effects=[])
def shelf(state: Shelf | None, event: Counted, ctx: perdure.CellContext) -> perdure.Next:
    return perdure.Next(Shelf((0 if state is None else state.pieces) + event.pieces))


ALL = [*site.ALL, article, restock, counting, four_eyes, shelf]
STARTS = [each for each in ALL_STARTS if each[0] in ("article", "restock")]

RESTOCK_TWO = """
apiVersion: perdure/v1
kind: Playbook
metadata: {name: restock-two}
workflow:
  - {step: count, tool: {kind: noop, result: 1}, next: end}
  - {step: end, tool: {kind: noop, result: 2}}
"""
