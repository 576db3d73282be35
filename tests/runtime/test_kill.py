"""Real processes, really killed: nothing is lost, and only what was in flight is repeated."""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import perdure
from perdure.kernel.entry import Entry
from perdure.kernel.events import Redelivered
from tests.entries import entries_of
from tests.runtime import victim

KILLS = int(os.environ.get("PERDURE_TEST_KILLS", "20"))


def test_many_kills_lose_nothing_and_repeat_only_what_was_in_flight(tmp_path: Path) -> None:
    database, ledger = tmp_path / "walk.db", tmp_path / "ledger"
    dice = random.Random(20261115)

    for _ in range(KILLS):
        process = start(database, ledger, "for ever")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(dice.uniform(0.0, 0.25))
        process.kill()
        process.wait()
    assert start(database, ledger, "to the end").wait(120) == 0, "the survivors did not finish"

    executions = Counter((line.split()[0], line.split()[1]) for line in ledger.read_text().splitlines())
    deliveries = asyncio.run(recorded_deliveries(str(database)))
    assert set(executions) == set(deliveries)
    repeated = {step: times for step, times in executions.items() if times > 1}
    assert repeated, "no kill met a step in flight: the test proves nothing"
    for step, times in repeated.items():
        assert times <= deliveries[step], f"{step} ran {times} times, recorded are {deliveries[step]}"
    keys = Counter(line.split()[3] for line in ledger.read_text().splitlines())
    assert len(keys) == len(executions), "an idempotency key was shared, or changed between executions"


def test_a_step_that_kills_its_process_is_given_up_and_its_neighbours_are_not(tmp_path: Path) -> None:
    database, ledger = tmp_path / "walk.db", tmp_path / "ledger"

    deaths = 0
    while start(database, ledger, "company").wait(60) != 0:
        deaths += 1
        assert deaths < 10, "the killer is never given up"

    executions = Counter(ledger.read_text().splitlines())
    assert executions["murder"] == deaths
    assert 4 <= deaths <= 5  # its four attempts; one more when its first death was shared with others


def start(database: Path, ledger: Path, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.runtime.victim", str(database), str(ledger), what]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


async def recorded_deliveries(url: str) -> dict[tuple[str, str], int]:
    """How often the journal says that each step was handed out; also checks that every instance completed."""
    found: dict[tuple[str, str], int] = {}
    async with perdure.connect(url) as client:
        queries = client._connection.queries
        before = 0
        while heads := await client.instances(before=before, limit=100):
            before = heads[-1].id
            for head in heads:
                assert head.status == "completed"
                entries = entries_of(await queries.history(head.id))
                assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
                again = sum(isinstance(entry.event, Redelivered) for entry in entries)
                assert len(entries) == victim.STEPS + 1 + again
                for step, times in steps_of(entries).items():
                    found[head.key, str(step)] = times
    return found


def steps_of(entries: list[Entry]) -> dict[int, int]:
    """Deliveries by the number of the step: steps run one after another, so redeliveries belong to the open one."""
    times: dict[int, int] = {}
    step = -1
    for entry in entries:
        if entry.decision.open:
            step += 1
            times[step] = 1
        if isinstance(entry.event, Redelivered):
            times[step] += 1
    return times
