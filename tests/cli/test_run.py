"""`perdure run` in real processes: results, crashes, interruptions."""

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

import pytest

import perdure
from perdure import Frame
from perdure.cli.commands.run import Given, Run
from perdure.cli.console import Console
from perdure.cli.live import Plain, how_far
from perdure.ports.seen import Waiting
from tests.cli.world import clean_environment, eventually


def test_a_flow_runs_and_only_its_result_is_on_stdout(world):
    code, out, err = world.call("run", "flows:order", "--input", '{"order_id": "o-17"}')

    assert code == 0
    assert json.loads(out) == {"charge": "O-17", "cents": 100}
    assert "step charge" in err
    assert not os.path.exists(world.db)


def test_input_by_position_from_a_file_and_from_stdin(world):
    (world.directory / "input.json").write_text('{"order_id": "b"}')

    by_position = world.perdure("run", "flows:order", "--input", '["a", 5]', db=False)
    from_file = world.perdure("run", "flows:order", "--input", "@input.json", db=False)
    from_stdin = world.perdure("run", "flows:order", "--input", "-", input='{"order_id": "c"}', db=False)

    assert json.loads(by_position.stdout) == {"charge": "A", "cents": 5}
    assert json.loads(from_file.stdout) == {"charge": "B", "cents": 100}
    assert json.loads(from_stdin.stdout) == {"charge": "C", "cents": 100}


def test_who_starts_it_is_named_as_for_a_start(world):
    (world.directory / "mine.py").write_text(
        "import perdure\n\n@perdure.flow\nasync def whose(ctx: perdure.Context):\n    return ctx.started_by\n"
    )

    given = world.perdure("run", "mine:whose", "--as", "ann", db=False)
    nobody = world.perdure("run", "mine:whose", db=False)

    assert (json.loads(given.stdout), json.loads(nobody.stdout)) == ("ann", None)


def test_a_file_can_be_named_instead_of_a_module(world):
    (world.directory / "flows.py").rename(world.directory / "elsewhere.py")

    assert world.perdure("run", "./elsewhere.py:order", "--input", '["a"]', db=False).exit_code == 0


def test_what_a_flow_prints_goes_to_stderr(world):
    code, out, err = world.call("run", "flows:the-named")

    assert (code, out) == (0, "null\n")
    assert "printed by the flow" in err


def test_the_same_key_gives_the_known_result(world):
    order = ("run", "flows:order", "--input", '{"order_id": "o-17"}', "--key", "o-17")

    first, second = world.perdure(*order), world.perdure(*order)

    assert first.stdout == second.stdout
    assert world.evidence() == ["o-17"]
    assert "order/o-17 is known" in second.stderr


def test_a_killed_run_goes_on_without_repeating_what_was_done(world):
    command = ("run", "flows:three", "--db", "shop.db", "--key", "k")
    killed = world.process(*command)
    eventually(lambda: world.evidence() == ["first", "second"])
    killed.send_signal(signal.SIGKILL)
    assert world.ended(killed)[0] == -signal.SIGKILL
    (world.directory / "go").touch()

    code, out, err = world.call(*command)

    assert (code, json.loads(out)) == (0, ["FIRST", "THIRD"])
    assert world.evidence() == ["first", "second", "second", "third"]
    assert "three/k is known" in err


def test_an_interrupted_run_is_kept_and_the_told_command_goes_on(world):
    process = world.process("run", "flows:three", "--db", "shop.db")
    eventually(lambda: "second" in world.evidence())

    process.send_signal(signal.SIGINT)
    eventually(lambda: "Ctrl-C again" in world.said())
    (world.directory / "go").touch()  # the step ends while the engine drains
    code, out = world.ended(process)

    assert (code, out) == (130, "")
    told = next(line for line in world.said().splitlines() if line.startswith("  perdure run"))
    assert told.startswith("  perdure run flows:three --key ") and told.endswith(" --db shop.db")
    code, out, _ = world.call(*told.split()[1:])
    assert (code, json.loads(out)) == (0, ["FIRST", "THIRD"])
    assert world.evidence() == ["first", "second", "third"]


def test_a_second_interrupt_ends_the_run_at_once(world):
    process = world.process("run", "flows:three", "--db", "shop.db", "--key", "k")
    eventually(lambda: "second" in world.evidence())

    process.send_signal(signal.SIGINT)
    eventually(lambda: "Ctrl-C again" in world.said())
    process.send_signal(signal.SIGINT)

    assert world.ended(process) == (130, "")
    assert world.json("show", "k")["status"] == "running"


def test_an_interrupted_run_in_memory_says_that_nothing_is_kept(world):
    process = world.process("run", "flows:sleepy", "--json")
    eventually(lambda: "timer nap" in world.said())

    process.send_signal(signal.SIGINT)
    code, out = world.ended(process)

    assert code == 130
    assert json.loads(out)["status"] == "waiting"
    assert "nothing is kept" in world.said()


def test_a_timeout_leaves_the_run_going_on(world):
    result = world.perdure("run", "flows:sleepy", "--key", "s", "--timeout", "0.05")

    assert result.exit_code == 5
    assert result.stdout == ""
    assert "sleepy/s had not ended after 0.05 s" in result.stderr
    assert world.json("show", "s")["status"] == "waiting"


def test_a_failed_run_has_exit_code_1_and_can_be_started_again(world):
    result = world.perdure("run", "flows:failing", "--key", "f")
    again = world.perdure("run", "flows:failing", "--key", "f")
    reused = world.perdure("run", "flows:failing", "--key", "f", "--reuse", "failed")

    assert [result.exit_code, again.exit_code, reused.exit_code] == [1, 1, 1]
    assert result.stdout == ""
    assert "failing/f failed: ValueError: wrong from the start" in result.stderr
    assert "Traceback" not in result.stderr
    assert [each["generation"] for each in world.json("ls")["instances"]] == [2, 1]


def test_the_recorded_traceback_is_shown_for_debugging(world):
    result = world.perdure("run", "flows:failing", "--debug", db=False)

    assert 'raise ValueError("wrong from the start")' in result.stderr


def test_a_stuck_run_says_how_to_go_on_and_does(world):
    command = ("run", "flows:fragile", "--key", "x")

    stuck = world.perdure(*command)
    still_stuck = world.perdure(*command)
    (world.directory / "mended").touch()
    retried = world.perdure("retry", "x")
    done = world.perdure(*command)

    assert [stuck.exit_code, still_stuck.exit_code, retried.exit_code, done.exit_code] == [1, 1, 0, 0]
    assert "fragile/x is stuck" in stuck.stderr and "perdure retry fragile/x" in stuck.stderr
    assert json.loads(done.stdout) == "mended"


def test_children_of_the_same_module_run_too(world):
    process = world.process("run", "flows:parent", "--db", "shop.db", "--key", "p")
    eventually(lambda: "child inner" in world.said() or "child approval" in world.said())

    eventually(lambda: world.perdure("send", "inner", "decision", "true").exit_code == 0)

    assert world.ended(process) == (0, "true\n")


@pytest.mark.parametrize(
    ("flow", "exit", "status"), [("order", 0, "completed"), ("failing", 1, "failed"), ("fragile", 1, "stuck")]
)
def test_json_tells_every_end_with_the_same_fields(world, flow, exit, status):
    given = ("--input", '["a"]') if flow == "order" else ()

    document = world.json("run", f"flows:{flow}", "--key", "k", *given, exit=exit)

    assert set(document) == {"id", "workflow", "key", "status", "result", "error"}
    assert (document["id"], document["status"]) == (f"{flow}/k", status)
    assert (document["error"] is None) == (exit == 0)


def test_a_terminal_sees_what_is_open_and_how_far_it_is(world):
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.cli", "run", "flows:three", "--db", "shop.db", "--key", "k"],
        cwd=world.directory,
        env={**clean_environment(), "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    )
    os.close(terminal)
    seen = b""
    while b"1/3 (33 %)  waiting for a file" not in seen:
        seen += os.read(main, 4096)

    (world.directory / "go").touch()
    out, _ = process.communicate(timeout=60)
    os.close(main)

    assert b"three/k" in seen and b"running" in seen and b"step second" in seen
    assert json.loads(out) == ["FIRST", "THIRD"]


@pytest.mark.parametrize(
    ("done", "total", "note", "text"),
    [
        (3, 10, "", "3/10 (30 %)"),
        (12_000, None, "rows", "12,000  rows"),
        (0.5, 2.5, "", "0.5/2.5 (20 %)"),
        (0, 0, "nothing to do", "0/0  nothing to do"),
        (1, 2, "two\nlines and \x1b[2J a trick", "1/2 (50 %)  two lines and \\x1b[2J a trick"),
    ],
)
def test_progress_is_told_on_one_line(done, total, note, text):
    assert how_far(Frame("order/o-17", "charge", 1, 1, "progress", done, total, note)) == text


def test_progress_is_a_line_of_its_own_where_lines_stay_and_not_told_twice(capsys):
    now = datetime.now(UTC)
    plain = Plain()

    for ordinal in (1, 1, 2):  # the second is old, the third too early
        frame = Frame("order/o-17", "charge", 1, ordinal, "progress", ordinal, 3, "rows")
        plain.now("order/o-17", "running", now, [Waiting("step", "charge", now, None, 1, 1, False, "", False, frame)])

    assert [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["charge 1/3 (33 %)  rows"]


def test_a_second_engine_is_a_conflict(world):
    process = world.process("run", "flows:sleepy", "--db", "shop.db")
    eventually(lambda: "timer nap" in world.said())

    result = world.perdure("run", "flows:order", "--input", '["a"]')

    assert result.exit_code == 4
    assert f"pid {process.pid}" in result.stderr


def test_a_database_of_somebody_else_is_refused(world):
    with sqlite3.connect(world.db) as connection:
        connection.execute("CREATE TABLE mine (x)")

    result = world.perdure("run", "flows:order", "--input", '["a"]')

    assert result.exit_code == 6
    assert "not one of perdure" in result.stderr


def test_hooks_end_before_a_run_in_memory_does(world):
    (world.directory / "hooked.py").write_text(
        "import asyncio\nimport perdure\n\n\n"
        "async def hook(problem):\n    await asyncio.sleep(0.05)\n    print('heard:', problem.error)\n\n\n"
        "@perdure.flow(on_error=hook)\nasync def hooked(ctx):\n    raise ValueError('no stock')\n"
    )

    result = world.perdure("run", "hooked:hooked", db=False)

    assert result.exit_code == 1
    assert "heard: ValueError: no stock" in result.stderr


class LateRun(Run):
    """The instance ends while a look at it goes on."""

    async def _look(self, engine, handle, id, silent=False):
        await super()._look(engine, handle, id, silent)
        if self._reader.state.status == "waiting":
            await handle.send("decision", "well")
            await handle.result()
            for _ in range(10):  # those who waited before hear of it too
                await asyncio.sleep(0)


async def test_what_ends_during_a_look_is_looked_at_again():
    @perdure.flow
    async def approval(ctx: perdure.Context) -> object:
        return (await ctx.receive("decision")).body

    run = LateRun(Console(":memory:", False, False, False), Plain(), None, Given([], (), {}))

    ending = await run.run([approval], approval, None, "a", None, None)

    assert (ending.why, ending.state.status) == ("ended", "completed")
