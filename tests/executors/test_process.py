"""Steps in child processes: real ones, some of which die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from perdure.executors.process import ProcessExecutor
from perdure.flows.steps import _parameters
from tests.executors import steps
from tests.executors.desk import IDENTITY, SECONDS_MAX, Desk, blocking, story

STEPS = "tests.executors.steps"


def two() -> ProcessExecutor:
    return ProcessExecutor(2)


@pytest.fixture
def fifo(tmp_path) -> str:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


class Held:
    """A child that holds the other end of a pipe: it ends when the child does."""

    @classmethod
    async def by(cls, fifo: str) -> Held:
        held = cls()
        held.pipe = await blocking(open, fifo, "rb")
        held.pid = int(await blocking(held.pipe.readline))
        return held

    pipe: BinaryIO
    pid: int

    async def end(self) -> None:
        assert await blocking(self.pipe.read) == b""
        self.pipe.close()


def gone(pid: int) -> bool:
    """Nothing is left of a process, not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# ---- calls -------------------------------------------------------------------------------------------------


def test_a_function_runs_in_another_process_which_is_used_again():
    async def tell(desk: Desk) -> None:
        pids = {await desk.value(desk.call(f"{STEPS}:pid")) for _ in range(5)}

        assert len(pids) == 1 and os.getpid() not in pids

    story(two, tell)


def test_there_are_no_more_children_than_slots():
    async def tell(desk: Desk) -> None:
        intents = [desk.call(f"{STEPS}:pid") for _ in range(20)]

        assert len({await desk.value(intent) for intent in intents}) <= 2

    story(two, tell)


def test_arguments_and_result_are_converted_by_annotations():
    item = {"name": "tea", "day": date(2024, 1, 1)}

    async def tell(desk: Desk) -> None:
        one = await desk.value(desk.call(f"{STEPS}:later", item))
        many = await desk.value(desk.call(f"{STEPS}:later", item, item, days=2, other=item))

        assert one == [{"name": "TEA", "day": date(2024, 1, 2)}]
        assert many == [{"name": "TEA", "day": date(2024, 1, 3)}] * 3

    story(two, tell)


def test_what_a_flow_records_is_what_a_child_runs():
    item = steps.Item("tea", date(2024, 1, 1))

    async def tell(desk: Desk) -> None:
        found = await desk.value(desk.params(_parameters(steps.later, (item,), {"days": 3}, "process")))

        assert found == [{"name": "TEA", "day": date(2024, 1, 4)}]

    story(two, tell)


def test_async_decorated_static_and_built_in_functions_run_too():
    async def tell(desk: Desk) -> None:
        item = {"name": "tea", "day": date(2024, 1, 1)}

        assert await desk.value(desk.call(f"{STEPS}:fetch", 1)) == 1 + len("call#1")
        assert await desk.value(desk.call(f"{STEPS}:decorated", item)) == item
        assert await desk.value(desk.call(f"{STEPS}:Shop.open", "shop")) == "shop is open"
        assert await desk.value(desk.call("builtins:max", 3, 4)) == 4

    story(two, tell)


def test_a_step_in_a_child_knows_what_it_is():
    async def tell(desk: Desk) -> None:
        found = await desk.value(desk.call(f"{STEPS}:about"))

        assert found == ["order/o-17", "call#1", "call", 2, 3, IDENTITY.idempotency_key("call#1")]

    story(two, tell)


def test_a_child_imports_neither_the_database_nor_the_command_line_nor_pickles():
    async def tell(desk: Desk) -> None:
        heavy = ["apsw", "click", "multiprocessing", "pickle"]

        assert await desk.value(desk.call(f"{STEPS}:loaded", heavy)) == []

    story(two, tell)


def test_large_values_pass_both_ways():
    async def tell(desk: Desk) -> None:
        assert await desk.value(desk.call(f"{STEPS}:size_of", bytes(5_000_000))) == 5_000_000
        assert len(await desk.value(desk.call(f"{STEPS}:large", 5_000_000))) == 5_000_000

    story(two, tell)


def test_what_a_step_prints_goes_to_stderr_and_does_not_disturb_the_answer(capfd):
    async def tell(desk: Desk) -> None:
        assert await desk.value(desk.call(f"{STEPS}:loud")) == os.getcwd()

    story(two, tell)

    out, err = capfd.readouterr()
    assert out == "" and err.splitlines() == ["printed", "written", "by a program"]


# ---- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "type_name", "retry"),
    [
        ("value", "ValueError", True),
        ("exit", "SystemExit", True),
        ("interrupt", "KeyboardInterrupt", True),
        ("fatal", "Fatal", False),
    ],
)
def test_whatever_the_function_raises_is_an_error_receipt(kind, type_name, retry):
    async def tell(desk: Desk) -> None:
        failure = await desk.failure(desk.call(f"{STEPS}:fail", kind))

        assert (failure.type, failure.message, failure.retry) == (type_name, "no", retry)
        assert "in fail" in failure.traceback

    story(two, tell)


def test_an_argument_or_result_of_the_wrong_type_is_not_retried():
    async def tell(desk: Desk) -> None:
        wrong = await desk.failure(desk.call(f"{STEPS}:later", {"name": 5, "day": date(2024, 1, 1)}))
        missing = await desk.failure(desk.call(f"{STEPS}:later"))
        lie = await desk.failure(desk.call(f"{STEPS}:lie"))

        assert (wrong.type, wrong.retry) == ("NotConvertible", False) and "$.item.name" in wrong.message
        assert (missing.type, missing.retry) == ("TypeError", False) and "'item'" in missing.message
        assert (lie.type, lie.retry) == ("NotConvertible", False) and "expected int" in lie.message

    story(two, tell)


@pytest.mark.parametrize(
    ("name", "said"),
    [("no_such_module:f", "No module named 'no_such_module'"), (f"{STEPS}:nope", "no function nope")],
)
def test_a_function_that_cannot_be_imported_is_not_retried_and_says_what_to_do(name, said):
    async def tell(desk: Desk) -> None:
        failure = await desk.failure(desk.call(name))

        assert (failure.type, failure.retry) == ("CannotImport", False)
        assert said in failure.message and "executor='thread'" in failure.message

    story(two, tell)


def test_a_call_without_recorded_arguments_is_answered_with_an_error():
    async def tell(desk: Desk) -> None:
        assert (await desk.failure(desk.params(None))).type == "NoWork"

    story(two, tell)


def test_a_child_that_cannot_be_started_is_an_error_that_may_be_retried(monkeypatch):
    async def tell(desk: Desk) -> None:
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        failure = await desk.failure(desk.call(f"{STEPS}:pid"))
        monkeypatch.undo()

        assert failure.type == "FileNotFoundError" and failure.retry
        assert await desk.value(desk.call(f"{STEPS}:pid")) > 0

    story(two, tell)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit", "exit status 7"),
        ("kill", "SIGKILL (exit status -9)"),
        ("segfault", "SIGSEGV (exit status -11)"),
    ],
)
def test_a_child_that_dies_of_its_call_is_reported_and_replaced(how, said):
    async def tell(desk: Desk) -> None:
        before = await desk.value(desk.call(f"{STEPS}:pid"))

        failure = await desk.failure(desk.call(f"{STEPS}:die", how))

        assert (failure.type, failure.retry) == ("ProcessDied", True)
        assert said in failure.message and f"{STEPS}:die" in failure.message
        assert await desk.value(desk.call(f"{STEPS}:pid")) != before

    story(lambda: ProcessExecutor(1), tell)


def test_a_child_killed_in_the_middle_of_a_call_is_reported_and_replaced(fifo):
    async def tell(desk: Desk) -> None:
        intent = desk.call(f"{STEPS}:hold", fifo)
        held = await Held.by(fifo)

        os.kill(held.pid, signal.SIGKILL)

        assert "SIGKILL" in (await desk.failure(intent)).message
        await held.end()
        assert gone(held.pid)
        assert await desk.value(desk.call(f"{STEPS}:pid")) != held.pid

    story(lambda: ProcessExecutor(1), tell)


def test_a_child_killed_while_it_was_idle_is_replaced_unseen():
    async def tell(desk: Desk) -> None:
        pid = await desk.value(desk.call(f"{STEPS}:pid"))
        os.kill(pid, signal.SIGKILL)
        await blocking(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        assert await desk.value(desk.call(f"{STEPS}:pid")) != pid

    story(lambda: ProcessExecutor(1), tell)


def test_a_fork_that_a_step_left_behind_does_not_hide_the_death_of_the_child(fifo):
    async def tell(desk: Desk) -> None:
        failure = await desk.failure(desk.call(f"{STEPS}:fork_and_die", fifo))
        (await blocking(open, fifo, "wb")).close()  # the fork lives: it opens its end, and then ends

        assert "exit status 9" in failure.message

    story(two, tell)


# ---- stop --------------------------------------------------------------------------------------------------


def test_stop_kills_the_child_and_nobody_hears_of_it(fifo):
    async def tell(desk: Desk) -> None:
        intent = desk.call(f"{STEPS}:hold", fifo)
        held = await Held.by(fifo)

        desk.stop(intent)
        await held.end()

        assert await desk.value(desk.call(f"{STEPS}:pid")) != held.pid
        assert len(desk.receipts) == 1

    story(lambda: ProcessExecutor(1), tell)


def test_a_child_that_ignores_being_asked_is_killed_after_the_grace(fifo):
    async def tell(desk: Desk) -> None:
        intent = desk.call(f"{STEPS}:hold", fifo, deaf=True)
        held = await Held.by(fifo)

        desk.stop(intent)
        assert await desk.value(desk.call(f"{STEPS}:pid")) != held.pid  # the slot is free meanwhile

        await held.end()

    story(lambda: ProcessExecutor(1, grace_seconds=0.2), tell)


def test_stop_ends_the_programs_that_a_step_has_started(fifo):
    async def tell(desk: Desk) -> None:
        intent = desk.call(f"{STEPS}:hold_in_a_program", fifo)
        held = await Held.by(fifo)

        desk.stop(intent)

        await held.end()

    story(two, tell)


def test_a_call_stopped_at_once_never_answers_and_the_next_one_does():
    async def tell(desk: Desk) -> None:
        for _ in range(10):  # before its thread has it, or while the child is being made
            desk.stop(desk.call(f"{STEPS}:pid"))
        intent = desk.call(f"{STEPS}:pid")

        await desk.value(intent)

        assert [answered for answered, _ in desk.receipts] == [intent]

    story(two, tell)


# ---- close -------------------------------------------------------------------------------------------------


def test_close_ends_idle_running_and_deaf_children_and_leaves_no_zombie(fifo):
    pids: list[int] = []

    async def tell(desk: Desk) -> None:
        first = [desk.call(f"{STEPS}:pid") for _ in range(3)]
        pids.extend([await desk.value(intent) for intent in first])
        desk.call(f"{STEPS}:hold", fifo, deaf=True)
        held = await Held.by(fifo)
        pids.append(held.pid)
        held.pipe.close()

    story(lambda: ProcessExecutor(3, grace_seconds=0.2), tell)

    assert all(map(gone, pids))


def test_close_in_the_middle_of_a_flood_ends_everything():
    async def tell(desk: Desk) -> None:
        intents = [desk.call(f"{STEPS}:pid") for _ in range(30)]
        await desk.receipt(intents[0])

    story(lambda: ProcessExecutor(4), tell)


def test_closing_twice_or_unused_is_harmless():
    async def tell(desk: Desk) -> None:
        await desk.executor.close()

    story(two, tell)


@pytest.mark.parametrize("executor_is_closed", [True, False])
def test_a_child_does_not_outlive_its_parent(fifo, tmp_path, executor_is_closed):
    program = f"""
        import asyncio, os, sys
        from tests.executors.desk import Desk
        from perdure.executors.process import ProcessExecutor

        async def main():
            desk = Desk(ProcessExecutor(1))
            desk.call("{STEPS}:hold", sys.argv[1])
            sys.stdin.readline()
            if {executor_is_closed}:
                await desk.executor.close()
            else:
                os._exit(0)

        asyncio.run(main())
    """

    async def run() -> None:
        with script(tmp_path, program, fifo, stdin=subprocess.PIPE) as parent:
            held = await Held.by(fifo)
            _, errors = await blocking(parent.communicate, "go\n")
            await held.end()
            assert (parent.returncode, errors) == (0, "")

    asyncio.run(run())


# ---- the parent's script -----------------------------------------------------------------------------------


def script(folder: Path, program: str, *args: str, **options: Any) -> subprocess.Popen[str]:
    """A program in a file of its own, started from another directory, that can import perdure and tests."""
    path = folder / "program.py"
    path.write_text(f"import sys; sys.path.append({os.getcwd()!r})\n" + textwrap.dedent(program))
    return run_python([str(path), *args], **options)


def run_python(args: list[str], **options: Any) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *args], stdout=pipe, stderr=pipe, text=True, **options)


def output(program: subprocess.Popen[str]) -> str:
    with program:
        out, err = program.communicate(timeout=SECONDS_MAX)
    assert err == ""
    return out


MAIN = """
    import asyncio
    from dataclasses import dataclass
    from perdure.executors.process import ProcessExecutor
    from tests.executors.desk import Desk

    @dataclass
    class Item:
        name: str

    calls = []

    def double(item: Item) -> Item:
        calls.append(item)
        return Item(item.name * 2 * len(calls))

    async def main(name):
        desk = Desk(ProcessExecutor(1))
        intent = desk.call(name, {"name": "ab"})
        receipt = await desk.receipt(intent)
        print(await desk.value(intent) if receipt.status == "ok" else receipt.error)
        await desk.executor.close()
"""
GUARDED = """
    if __name__ == "__main__":
        print("main block")
        asyncio.run(main("__main__:double"))
"""


def test_a_function_of_the_script_is_found_and_its_main_block_does_not_run_again(tmp_path):
    found = output(script(tmp_path, MAIN + GUARDED, cwd="/"))

    assert found == "main block\n{'name': 'abab'}\n"


def test_a_function_of_a_module_run_with_m_is_found(tmp_path):
    script(tmp_path, MAIN + GUARDED).communicate()

    found = output(run_python(["-m", "program"], cwd=tmp_path))

    assert found == "main block\n{'name': 'abab'}\n"


def test_a_module_beside_the_script_is_found_from_anywhere(tmp_path):
    (tmp_path / "beside.py").write_text("def f(item): return item['name']\n")

    found = output(script(tmp_path, MAIN + GUARDED.replace("__main__:double", "beside:f"), cwd="/"))

    assert found == "main block\nab\n"


def test_a_script_without_a_main_block_is_refused_with_advice(tmp_path):
    found = output(script(tmp_path, MAIN + '\n    asyncio.run(main("__main__:double"))\n'))

    assert "CannotImport" in found and "under `if __name__ == '__main__':`" in found


def test_a_function_of_a_program_without_a_file_is_refused_with_advice():
    found = output(run_python(["-c", textwrap.dedent(MAIN + GUARDED)]))

    assert "CannotImport" in found and "Move it into a module of its own" in found
