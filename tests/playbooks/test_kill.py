"""Processes that die: bounds that hold, actions that kill their engine, and rows that are written once."""

import asyncio
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

from perdure.app.ours import load_playbook
from perdure.executors.info import step_info
from perdure.testing import crash_test
from perdure.testing.faults import Faults
from perdure.testing.steps import Script
from perdure.testing.user_simulation import UserSimulation
from perdure.testing.world import World
from perdure.tools import ToolCall, find
from tests.playbooks.harness import HEAD

SQLITE = find("sqlite")


def book(body):
    return load_playbook(HEAD + textwrap.dedent(body))


def open_calls(history):
    """How many actions are open after each entry."""
    opened, most = set(), []
    for line in history:
        opened |= {each.partition(" ")[2] for each in line.opened}
        opened -= {line.location} if line.event == "receipt" else set()
        most.append(len(opened))
    return most


def test_max_in_flight_holds_over_a_hundred_crashes():
    playbook = book(
        """
        workflow:
          - {step: s, loop: {in: 900, iterator: i, spec: {mode: parallel, max_in_flight: 3}}, tool: {name: x, kind: http, url: "{{ i }}"}}
        """
    )
    crashes = {4 * number + 3: ("crash_after", "crash_before")[number % 2] for number in range(100)}
    script = {"x": Script("x", lambda params: params["url"])}
    with World._on(UserSimulation(playbook, faults=Faults(commits=crashes), scripts=script)) as world:
        handle = world.start(playbook, {})
        world.advance(3600)

        assert handle.result() == list(range(900))
        assert len(world._simulation.deaths) == 100
        assert max(open_calls(handle.history())) == 3


KILLER = """
    workflow:
      - step: a
        tool:
          - name: killer
            kind: shell
            script: "echo $PPID >> {log}; kill -9 $PPID; sleep 60"
            spec: {{policy: {{rules: [{{when: outcome.status == 'error' and outcome.error.kind == 'lost', then: {{do: skip}}}}, {{else: {{then: {{do: fail}}}}}}]}}}}
          - {{name: told, kind: noop, result: "{{{{ 'lost' if killer is none else 'done' }}}}"}}
"""


@pytest.mark.parametrize(("once", "deaths"), [("", 4), ("once: true, ", 1)])
def test_an_action_that_always_kills_its_process_is_lost(tmp_path, once, deaths):
    file, log = tmp_path / "p.yaml", tmp_path / "log"
    text = HEAD + textwrap.dedent(KILLER.format(log=log))
    file.write_text(text.replace("spec: {policy", f"spec: {{{once}policy"))
    command = [sys.executable, "-m", "perdure", "run", str(file), "--db", str(tmp_path / "p.db"), "--key", "k"]

    codes: list[int] = []
    while not codes or codes[-1] < 0:
        codes.append(subprocess.run(command, capture_output=True, timeout=120, check=False, env=os.environ).returncode)
        assert len(codes) < 8, "it is never given up"

    assert codes[-1] == 0
    assert len(codes) - 1 == deaths == len(log.read_text().split())


def test_exactly_once_leaves_one_row_after_a_crash_behind_the_commit(tmp_path):
    file = tmp_path / "orders.db"
    playbook = book(
        f"""
        workflow:
          - step: order
            tool:
              - {{name: first, kind: sqlite, dsn: "{file}", query: "insert into t values (:n)", params: {{n: 1}}, exactly_once: true}}
              - {{name: second, kind: sqlite, dsn: "{file}", query: "insert into t values (2) returning n", exactly_once: true}}
        """
    )

    def rows():
        connection = apsw.Connection(str(file))
        found = [number for (number,) in connection.execute("select n from t order by n")]
        connection.close()
        return found

    def reset():
        connection = apsw.Connection(str(file))
        connection.execute("drop table if exists t; drop table if exists perdure_once; create table t (n int)")
        connection.close()

    def insert(params):
        call = ToolCall(step_info().idempotency_key, 10.0)

        async def told():
            return await SQLITE.run(SQLITE.read(params), call)

        with ThreadPoolExecutor(1) as threads:  # the loop of this thread is the world's
            return threads.submit(lambda: asyncio.run(told())).result().result

    report = crash_test(
        playbook, script={"first": insert, "second": insert}, reset=reset, observe=rows, pairs=10, random=5
    )

    assert rows() == [1, 2]
    assert set(report.repeated) == {"order/first", "order/second"}, "some crash fell between commit and receipt"
