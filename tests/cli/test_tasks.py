"""`perdure tasks ...`: people at a terminal, and scripts."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.world import eventually

FLOWS = """
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import perdure


@dataclass
class Verdict:
    outcome: Literal["approve", "reject"]
    comment: Annotated[str, perdure.Field(title="Why", help="One line")] = ""
    amount: int = 7


@perdure.flow
async def expense(ctx: perdure.Context, what: str = "chairs") -> str:
    done = await ctx.task(
        "approve", answer=Verdict, title=f"Approve {what}", data={"what": what}, roles=["manager"], managers=["boss"],
        due=datetime(2020, 1, 1, tzinfo=UTC) if ctx.key == "e-3" else timedelta(hours=-0), labels={"team": "red"},
    )
    return f"{done.outcome} by {done.by}: {done.answer.comment} {done.answer.amount}"
"""

ANN = ("--as", "ann", "--role", "manager")
BOSS = ("--as", "max", "--role", "boss")


@pytest.fixture
def asked(world):
    """A database with one task, and no engine."""
    (world.directory / "asking.py").write_text(FLOWS)
    world.perdure("run", "asking:expense", "--key", "e-1", "--timeout", "0.5")
    return world


@pytest.fixture
def served(asked):
    """The same, and an engine that runs."""
    engine = asked.process("run", "asking:expense", "--key", "e-1", "--db", "shop.db")
    eventually(lambda: asked.json("doctor")["database"]["engine"])
    asked.engine = engine
    return asked


def the_task(world):
    (task,) = world.json("tasks", "ls")["tasks"]
    return task


def test_a_task_is_listed_claimed_and_completed(served):
    id = the_task(served)["id"]
    assert "Approve chairs" in served.perdure("tasks", "ls", *ANN, "--candidate").stdout
    assert served.perdure("tasks", "ls", "--as", "sam").stderr == "no tasks\n"

    claimed = served.perdure("tasks", "claim", id, *ANN)
    assert claimed.stdout == f"claimed task {id} (approve): held by ann\n"
    assert [task["id"] for task in served.json("tasks", "ls", *ANN, "--mine")["tasks"]] == [id]
    done = served.perdure("tasks", "complete", id, '{"outcome": "approve", "comment": "fine"}', *ANN)

    assert done.stdout == f"completed task {id} (approve): completed, approve\n"
    assert served.ended(served.engine) == (0, '"approve by ann: fine 7"\n')


def test_each_refusal_has_its_exit_code(served):
    id = the_task(served)["id"]
    served.perdure("tasks", "claim", id, *ANN)

    assert served.perdure("tasks", "claim", id, "--as", "bob", "--role", "manager").exit_code == 4
    assert served.perdure("tasks", "claim", id, "--as", "sam").exit_code == 3
    assert served.perdure("tasks", "show", "99").exit_code == 3
    wrong = served.perdure("tasks", "complete", id, '{"outcome": "maybe"}', *ANN)
    assert wrong.exit_code == 2 and '"maybe" is not one of' in wrong.stderr
    assert served.perdure("tasks", "complete", id, "{", *ANN).exit_code == 2
    nobody = served.perdure("tasks", "claim", id)
    assert nobody.exit_code == 2 and "--as ID" in nobody.stderr
    assert served.perdure("tasks", "cancel", id, *BOSS).exit_code == 4
    refused = served.json("tasks", "release", id, "--as", "bob", "--role", "manager", exit=4)
    assert refused["error"]["type"] == "TaskRefused"


def test_managers_change_comment_escalate_assign_and_cancel(served):
    id = the_task(served)["id"]
    tasks = lambda *words: served.perdure("tasks", words[0], id, *words[1:])  # noqa: E731

    assert tasks("comment", "who asked?", *ANN).exit_code == 0
    assert (
        tasks("change", "--priority", "80", "--due", "2030-01-01T00:00:00Z", "--expire", "none", *BOSS).exit_code == 0
    )
    assert tasks("escalate", "--add-role", "director", "--add-user", "ursula", *BOSS).exit_code == 0
    assert tasks("assign", "bob", "--who-role", "manager", *BOSS).exit_code == 0
    assert tasks("assign", "ann", "--who-role", "manager", *BOSS).exit_code == 4
    assert tasks("assign", "ann", "--who-role", "manager", "--override", *BOSS).exit_code == 0
    assert tasks("release", *ANN).exit_code == 0

    shown = served.json("tasks", "show", id, *BOSS)
    assert [event["what"] for event in shown["history"]] == [
        "created", "commented", "changed", "escalated", "assigned", "assigned", "released",
    ]  # fmt: skip
    text = served.perdure("tasks", "show", id, *ANN).stdout
    assert "who asked?" in text and "priority: 50 → 80" in text and "complete" in text
    assert tasks("cancel", "--reason", "bought elsewhere", *BOSS).exit_code == 0
    assert served.ended(served.engine)[0] == 1


def test_a_person_and_the_roles_may_stand_in_the_environment(served, monkeypatch):
    monkeypatch.setenv("PERDURE_ACTOR", "ann")
    monkeypatch.setenv("PERDURE_ROLES", "manager, clerk")

    assert served.perdure("tasks", "claim", the_task(served)["id"]).exit_code == 0


def test_without_an_engine_a_verb_is_recorded_and_judged_later(asked):
    id = the_task(asked)["id"]
    result = asked.perdure("tasks", "complete", id, '{"outcome": "reject"}', *ANN)

    assert result.exit_code == 0
    assert "no engine runs now" in result.stderr
    assert asked.perdure("run", "asking:expense", "--key", "e-1").stdout == '"reject by ann:  7"\n'


def test_a_list_goes_on_after_a_page(asked):
    for key in ("e-2", "e-3"):
        asked.perdure("run", "asking:expense", "--key", key, "--timeout", "0.5")
    first = asked.json("tasks", "ls", "--limit", "2")

    rest = asked.json("tasks", "ls", "--limit", "2", "--after", first["next_after"])

    assert [task["key"] for task in first["tasks"] + rest["tasks"]] == ["e-1", "e-2", "e-3"]
    assert rest["next_after"] is None
    late = asked.json("tasks", "ls", "--overdue")["tasks"]
    assert [task["key"] for task in late] == ["e-3", "e-1", "e-2"]


def test_why_and_history_speak_of_tasks_and_ls_does_not_list_them(asked):
    id = the_task(asked)["id"]

    why = asked.perdure("why", "expense/e-1").stdout
    assert f"for the task approve ({id}), open for role manager" in why and "overdue" in why
    assert f"perdure tasks complete {id} --as ID --role manager" in why
    assert "task approve" in asked.perdure("history", "expense/e-1").stdout
    assert asked.json("tasks", "ls", "--status", "completed")["tasks"] == []
    assert [each["id"] for each in asked.json("ls")["instances"]] == ["expense/e-1"]
    assert len(asked.json("ls", "--workflow", "perdure.task")["instances"]) == 1


def test_why_says_who_has_a_task_since_when_and_how_late_it_is(served):
    id = the_task(served)["id"]
    served.perdure("tasks", "claim", id, *ANN)

    why = served.perdure("why", "expense/e-1").stdout

    assert re.search(rf"for the task approve \({id}\), held by ann since .*, .* overdue\.", why)
    assert f"perdure tasks complete {id} --as ann" in why
    assert "task approve" in served.perdure("show", "expense/e-1").stdout


def test_complete_asks_on_a_terminal_field_by_field(served):
    id = the_task(served)["id"]
    typed = ["maybe", "approve", "fine", "seven", "8"]

    screen = at_a_terminal(served.directory, ["tasks", "complete", id, *ANN, "--db", "shop.db"], typed)

    assert "Approve chairs" in screen and "Why: One line" in screen
    assert "choose one of approve, reject" in screen
    assert "completed, approve" in screen
    assert served.ended(served.engine) == (0, '"approve by ann: fine 8"\n')


def at_a_terminal(directory: Path, words: list[str], typed: list[str]) -> str:
    """What a command shows on a pseudo-terminal, while a line is typed at each prompt."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.cli", *words],
        cwd=directory, env=env, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    screen, lines, until = "", list(typed), time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                part = os.read(ours, 4096).decode()
            except OSError:
                break
            if not part:
                break
            screen += part
            if screen.rstrip("\r\n").endswith(": ") and lines:
                os.write(ours, (lines.pop(0) + "\n").encode())
        elif process.poll() is not None:
            break
    process.wait(60)
    os.close(ours)
    assert process.returncode == 0, screen
    return screen
