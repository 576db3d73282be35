"""Repeats and streams while engines are killed: the server stays, and looks at the database."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from contextlib import aclosing
from pathlib import Path

import perdure
from tests.server.site import ALL, OPERATOR, VIEWER, run, site
from tests.server.test_stream import events, until

API = "/api/v1"
ROOT = Path(__file__).parents[2]

CHILD = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
import perdure
from tests.server.test_killed import ALL, counting

async def main():
    async with perdure.open(sys.argv[1], workflows=[*ALL, counting]) as engine:
        handle = await engine.start("counting", key="c")
        for n in range(int(sys.argv[3]), 1_000_000_000):
            await handle.send("count", n)
            await asyncio.sleep(0.002)  # at its own pace, not at that of a disk: too far behind is a gap
        await asyncio.Event().wait()

asyncio.run(main())
"""
QUIET = 1_000_000_000
"""An engine that begins to count here sends nothing."""


@perdure.flow
async def counting(ctx):
    while True:
        await ctx.receive("count")


async def engine_elsewhere(path, first):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, path, str(ROOT), str(first), stderr=subprocess.DEVNULL
    )


async def kill(process):
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def made(path):
    async with perdure.open(path, workflows=[*ALL, counting]) as engine:
        await engine.start("counting", key="c")


def test_one_idempotency_key_is_one_event_across_a_crash(tmp_path):
    path = str(tmp_path / "shop.db")

    async def main():
        await made(path)
        process = await engine_elsewhere(path, QUIET)
        async with site(path, connect=True) as found:
            client = await found.key(OPERATOR)
            url = f"{API}/instances/counting/c/-/messages"

            async def send(n, body=None):
                said = {"name": "count", "body": n if body is None else body}
                return await client.post(url, json=said, headers={"idempotency-key": f"k-{n}"})

            told = []
            for n in range(12):
                sending = asyncio.ensure_future(send(n))
                if n % 4 == 1:
                    await kill(process)
                    process = await engine_elsewhere(path, QUIET)
                first = await sending
                again = await send(n)
                while again.status_code >= 500:  # recorded, and no engine has taken it up yet
                    again = await send(n)
                told.append((first.status_code, again.status_code, again.headers.get("idempotency-replayed")))
            found.server._repeats._kept.clear()
            late = await send(3)
            other = await send(3, "another body")
            handle = found.engine.handle("counting", "c")
            async for _ in found.engine.changes():
                lines = [line for line in await handle.history() if line.event == "message"]
                if len(lines) >= 12:
                    break
            await kill(process)
            return told, late, other, lines

    told, late, other, lines = asyncio.run(asyncio.wait_for(main(), 120))

    assert all(again in (200, first) for first, again, _ in told)  # 202: recorded, and no engine had taken it up
    assert {replayed for _, _, replayed in told} <= {"true", None}
    assert Counter(line.value for line in lines) == dict.fromkeys(range(12), 1)
    assert late.status_code == 200
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")


def test_a_cut_stream_resumes_at_every_position_while_engines_are_killed(tmp_path):
    path = str(tmp_path / "shop.db")

    async def main():
        await made(path)
        process, killed = await engine_elsewhere(path, 0), 0
        names: Counter[str] = Counter()
        async with site(path, connect=True) as found:
            client = await found.key(VIEWER)
            heard: list[int] = []
            last = None
            while len(heard) < 150 or killed < 2:
                async with aclosing(events(client, "instance:counting/c", last)) as stream:
                    count = 0
                    async for name, data, id in stream:
                        names[name] += 1
                        last = id or last
                        if name == "entry":
                            heard.append(int(data["seq"]))
                            count += 1
                        if count >= 7 and name != "entry":  # the head comes with the last entry of a moment
                            break
                if len(heard) > 50 * (killed + 1) and killed < 2:
                    await kill(process)
                    killed += 1
                    process = await engine_elsewhere(path, 10_000_000 * killed)
            await kill(process)
            lines = await found.engine.handle("counting", "c").history()
            return heard, names, killed, [line.seq for line in lines]

    heard, names, killed, entries = asyncio.run(asyncio.wait_for(main(), 120))

    begin = entries.index(heard[0])
    assert heard == entries[begin : begin + len(heard)], "nothing is repeated, nothing is lost"
    assert killed == 2 and names["gap"] == 0


def test_a_moved_shard_is_followed(postgres):
    """The engine of an instance ends, and another one takes its shards: the stream goes on."""

    async def story(found):
        async with perdure.open(postgres, workflows=[*ALL, counting]) as engine:
            client = await found.key(VIEWER)
            handle = await engine.start("counting", key="c")
            await handle.until("waiting")
            stream = events(client, "instance:counting/c")
            await until(stream, "live")
            await handle.send("count", 1)
            heard = await until(stream, "entry")
        async with perdure.open(postgres, workflows=[*ALL, counting]) as other:
            await other.handle("counting", "c").send("count", 2)
            while len([each for each in heard if each[0] == "entry"]) < 2:
                heard += await until(stream, "entry")
            lines = await other.handle("counting", "c").history()
        return [int(data["seq"]) for name, data, _ in heard if name == "entry"], lines

    heard, lines = run(story, url=postgres, connect=True)

    assert heard == [line.seq for line in lines][-2:]
