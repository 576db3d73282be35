"""A real process, really killed in the middle of people's work: no task is lost, and none is done twice."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import perdure
from tests.tasks import victim

KILLS = 8


def test_kills_in_the_middle_of_tasks_lose_nothing(tmp_path: Path):
    database, dice = tmp_path / "tasks.db", random.Random(4711)
    for _ in range(KILLS):
        process = start(database)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        try:
            process.wait(dice.uniform(0.02, 0.3))
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
    assert start(database).wait(120) == 0, "the survivors did not finish"

    asyncio.run(verify(str(database)))


async def verify(url: str) -> None:
    async with perdure.connect(url) as client:
        assert await client.queries.check() == []
        assert await client.tasks.count() == 0
        ended = await client.tasks.list(status="completed", limit=1000)
        assert Counter((task.key, task.name) for task in ended) == {
            (str(number), name): 1 for number in range(victim.COUNT) for name in ("first", "second")
        }
        for task in ended[:20]:
            history = (await client.tasks.get(task.id)).history
            assert [event.what for event in history] == ["created", "claimed", "completed"]


def start(database: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.tasks.victim", str(database)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
