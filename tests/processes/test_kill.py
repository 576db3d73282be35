"""SIGKILL in the middle of 200 purchases: nothing is lost, and no call is repeated under another key."""

import asyncio
import signal
import sys
from collections import defaultdict
from pathlib import Path

import perdure
from tests.processes.till import purchase

COUNT = 200


async def test_a_kill_in_the_middle_of_200_purchases_loses_nothing(tmp_path: Path):
    database, calls = tmp_path / "till.db", tmp_path / "calls"
    arguments = [sys.executable, "-m", "tests.processes.till", str(database), str(calls), str(COUNT)]
    for lines in (150, 450):
        process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.DEVNULL)
        while not calls.exists() or calls.read_text().count("\n") < lines:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.DEVNULL)
    assert await asyncio.wait_for(process.wait(), 120) == 0

    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in calls.read_text().splitlines():
        instance, command, key = line.split(" ")
        keys[instance, command].add(key)
    assert len(keys) == 3 * COUNT, "every call was made"
    assert all(len(found) == 1 for found in keys.values()), "a call that is repeated has the same key"
    async with perdure.connect(database, workflows=[purchase]) as client:
        for number in range(COUNT):
            instance = f"till/{number}"
            expected = [f"{name}-{instance}" for name in ("budget", "stock", "order")]
            assert await client.handle(purchase, str(number)).result(timeout=60) == expected
