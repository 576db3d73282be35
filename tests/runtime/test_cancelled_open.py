"""An engine that is cancelled while it opens, or again while it stops, leaves nothing that runs on its closed store."""

import asyncio

import pytest

import perdure


@perdure.flow
async def waiting(ctx):
    await ctx.receive("go")


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_engine_leaves_nothing_that_reads_a_closed_store(tmp_path, caplog, cancels):
    path = tmp_path / "a.db"

    async def service():
        async with perdure.open(path, workflows=[waiting]):
            await asyncio.Event().wait()

    async def prepared():
        async with perdure.connect(path) as client:
            await client.start("waiting", key="k")  # the engine loads it as soon as it has opened

    async def cut(turns):
        task = asyncio.create_task(service())
        for _ in range(cancels):
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(20):
            await asyncio.sleep(0)

    async def made():
        async with perdure.open(path, workflows=[waiting]):
            pass

    asyncio.run(made())
    asyncio.run(prepared())
    for turns in range(40):
        asyncio.run(cut(turns))

    assert [record.getMessage() for record in caplog.records] == []
