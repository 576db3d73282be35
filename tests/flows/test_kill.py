"""Real processes, really killed: a loop that receives, steps and sleeps goes on where it was."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import perdure
from tests.flows import victim


async def test_a_killed_loop_goes_on_where_it_was(tmp_path: Path) -> None:
    database, ledger = tmp_path / "loop.db", tmp_path / "ledger"
    dice = random.Random(7)
    kills = 0

    while True:
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, victim.__file__, str(database), str(ledger)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        try:
            process.wait(dice.uniform(0.05, 0.3) if kills < 12 else 60)
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        if process.wait() == 0:
            break

    async with perdure.open(database, workflows=[victim.collect]) as engine:
        result = await engine.handle(victim.collect, "k").result(60)
    assert result == list(range(victim.MESSAGES)), "no message lost, none seen twice, in order"
    assert kills >= 3, "the loop was through too early: the test proves nothing"
    lines = [line.split() for line in ledger.read_text().splitlines()]
    keys = {step: {key for other, key in lines if other == step} for step, _ in lines}
    assert all(len(found) == 1 for found in keys.values()), "one step, one idempotency key"
    assert len(keys) == victim.MESSAGES
    again = Counter(step for step, _ in lines)
    assert sum(again.values()) - len(again) <= kills, "only what was in flight ran again"


def test_a_step_that_kills_its_process_is_exhausted(tmp_path: Path) -> None:
    database, ledger = tmp_path / "killer.db", tmp_path / "ledger"
    command = [sys.executable, victim.__file__, str(database), str(ledger), "killer"]

    deaths = 0
    while subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=False).returncode != 0:
        deaths += 1
        assert deaths < 10, "it is never given up"

    assert ledger.read_text().splitlines() == [f"1 {delivery}" for delivery in (1, 2, 3)]
    assert deaths == 3
