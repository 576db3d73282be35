"""SIGKILL in the middle of 200 purchases: nothing is lost, and no call is repeated under another key. And a call that
kills its process each time.
"""

import asyncio
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import perdure
from perdure.processes import Call, Complete, Process, error, python, start
from tests.processes import far
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


KILLER = Process(
    "killer",
    version="1.0.0",
    steps=[
        Call("a", python(f"{far.__name__}:kill"), {"ledger": start.ledger}, on_failure=[Complete(error.code)]),
        Complete("survived"),
    ],
)
RUN = """
import asyncio, sys, perdure
from tests.processes.test_kill import KILLER

async def main(url, ledger):
    async with perdure.open(url, workflows=[KILLER]) as engine:
        print(await (await engine.start(KILLER, ledger=ledger, key="k")).result())

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_call_that_kills_its_process_is_exhausted(tmp_path: Path):
    ledger = tmp_path / "ledger"
    command = [sys.executable, "-c", RUN, str(tmp_path / "killer.db"), str(ledger)]

    runs = [subprocess.run(command, capture_output=True, text=True, timeout=120, check=False) for _ in range(5)]

    assert [run.returncode == 0 for run in runs] == [False] * 4 + [True], "one delivery, and one for each retry"
    assert runs[-1].stdout == "exhausted\n"
    keys = ledger.read_text().splitlines()
    assert len(keys) == 4 and len(set(keys)) == 1
