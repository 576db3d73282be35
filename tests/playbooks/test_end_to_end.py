"""Sentences of acceptance that need an engine, or the command line: children, stored values, gates, planted bugs."""

import asyncio
import textwrap
from datetime import timedelta

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli import cli
from perdure.playbooks.machine import PlaybookMachine
from perdure.playbooks.workflow import PlaybookWorkflow
from perdure.testing.playbooks import simulate
from perdure.testing.user_simulation import UserSimulation
from perdure.testing.world import World
from perdure.tools import ToolCall, ToolError, find
from perdure.worlds.snapshots import Snapshots
from tests.executors.site import Site, says
from tests.playbooks.harness import HEAD, SECOND, PlaybookHarness
from tests.playbooks.harness import book as on_stage
from tests.playbooks.test_engine import book


def called(*words):
    return CliRunner().invoke(cli, words, prog_name="perdure", env={"PERDURE_DB": None})


def test_an_inner_split_without_a_join_is_gathered_by_the_outer_one():
    text = """
        workflow:
          - {step: s, next: {spec: {mode: inclusive}, arcs: [{step: t}, {step: b}]}}
          - {step: t, next: {spec: {mode: inclusive}, arcs: [{step: c}, {step: d}]}}
          - {step: b, next: j}
          - {step: c, tool: {kind: http, url: c}, next: j}
          - {step: d, tool: {kind: http, url: d}, next: j}
          - {step: j, join: all, tool: {kind: noop, result: "{{ join.arrived | map(attribute='step') | sort }}"}}
    """
    stage = PlaybookHarness(on_stage(text), {"c/c_task": 1, "d/d_task": 1})

    assert stage.result == ["b", "c", "d"]
    assert stage.machine.state.fired["j"] == 1


CHILD = """
    apiVersion: perdure/v1
    kind: Playbook
    metadata: {name: child}
    executor: {spec: {final_step: last, final_on: [cancelled]}}
    workflow:
      - {step: a, tool: {kind: wait, message: never}}
      - {step: last, tool: {kind: noop}}
"""


async def test_cancel_reaches_children_and_is_never_overwritten(tmp_path):
    child = perdure.load_playbook(textwrap.dedent(CHILD))
    parent = book("workflow: [{step: a, tool: {kind: workflow, workflow: child, key: c}}]")
    async with perdure.open(tmp_path / "p.db", workflows=[parent, child]) as engine:
        handle, inner = await engine.start(parent, {}, key="k"), engine.handle("child", "c")
        while await handle.status() != "waiting":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await handle.cancel("enough")
        for each in (handle, inner):
            with pytest.raises(perdure.InstanceCancelled):
                await each.result(timeout=60)
        assert (await inner.read("summary"))["counts"]["runs"] == 2, "its final step ran"
    async with perdure.open(tmp_path / "p.db") as engine:
        assert await engine.handle("p", "k").status() == await engine.handle("child", "c").status() == "cancelled"


ASKED = """
    workload: {cents: 4200}
    workflow:
      - step: ask
        tool:
          kind: task
          title: "Approve {{ workload.cents }}?"
          roles: [manager]
          answer: {type: object, properties: {outcome: {enum: [approve, reject]}}, required: [outcome]}
          expire: 1d
        next: [{step: pay, on: done, when: outcome.result.outcome == 'approve'}, {step: tell, on: failed}]
      - {step: pay, tool: {kind: noop, result: "{{ ask.outcome }} by {{ ask.by }}"}}
      - {step: tell, tool: {kind: noop, result: "{{ token.from.error.kind }}"}}
"""


async def test_a_person_answers_a_task_of_a_playbook_or_cancels_it():
    ann = perdure.Actor("ann", roles=["manager"], admin=True)
    async with perdure.open(":memory:", workflows=[book(ASKED)]) as engine:
        yes, no = await engine.start("p", key="yes"), await engine.start("p", key="no")
        tasks = {task.key: task for task in await engine.tasks.list(by=ann)}
        assert [tasks[key].title for key in ("yes", "no")] == ["Approve 4200?"] * 2
        await engine.tasks.complete(tasks["yes"].id, {"outcome": "approve"}, by=ann)
        await engine.tasks.cancel(tasks["no"].id, reason="not now", by=ann)

        assert await yes.result(timeout=60) == "approve by ann"
        assert await no.result(timeout=60) == "task_cancelled"


def test_a_task_that_expires_is_a_timeout():
    with World(book(ASKED)) as world:
        handle = world.start("p", {})
        world.advance(timedelta(days=2))

        assert handle.result() == "timeout"


async def test_a_child_gets_a_stored_value_itself(tmp_path):
    child = perdure.load_playbook(
        textwrap.dedent(CHILD).replace(
            "{kind: wait, message: never}", "{kind: noop, result: '{{ workload.all | length }}'}"
        )
    )
    parent = book(
        """
        workflow:
          - {step: a, tool: {kind: python, code: "result = ['x' * 100] * 2000"}, next: b}
          - {step: b, tool: {kind: workflow, workflow: child, args: {all: "{{ a }}"}}}
        """
    )
    async with perdure.open(tmp_path / "p.db", workflows=[parent, child]) as engine:
        handle = await engine.start(parent, key="k")

        assert await handle.result(timeout=60) == 2000


HELD = """
    executor: {spec: {ctx: {go: {init: false}}}}
    workflow:
      - {step: a, tool: {kind: python, code: "result = ['x' * 100] * 2000"}, next: b}
      - step: b
        spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
        tool: {kind: noop, result: "{{ a[1999] | length }}"}
"""


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_stored_value_is_collected_only_when_no_instance_names_it(tmp_path, snapshot):
    async with perdure.open(tmp_path / "p.db", workflows=[book(HELD)]) as engine:
        handle = await engine.start("p", key="k")
        while await handle.status() != "waiting":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        [value] = [row.digest for row in await engine.queries.blobs()]
        if snapshot:
            await Snapshots(engine).take()
        [orphan] = await engine.queries.put_blobs([b"nothing names this"], 1)
        await Snapshots(engine).collect(grace=timedelta(0), dry_run=False)
        left = {row.digest for row in await engine.queries.blobs()}
        assert value in left
        assert orphan not in left
        await handle.ask("ctx", {"set": {"go": True}})
        assert await asyncio.wait_for(handle.result(), 60) == 100


async def test_no_list_or_history_has_a_stored_value(tmp_path):
    async with perdure.open(tmp_path / "p.db", workflows=[book(HELD)]) as engine:
        handle = await engine.start("p", key="k")
        while await handle.status() != "waiting":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for words in (("ls",), ("show", "k"), ("history", "k"), ("why", "k")):
        told = await asyncio.to_thread(called, *words, "--json", "--db", str(tmp_path / "p.db"))
        assert told.exit_code == 0
        assert "x" * 300 not in told.stdout, words


def test_the_deadline_of_a_gate_survives_a_crash():
    text = HELD.replace(
        '}]}}}\n        tool: {kind: noop, result: "{{ a[1999] | length }}"',
        "}], timeout: 1h, on_timeout: admit}}}\n        tool: {kind: noop, result: late",
    )
    playbook = book(text.replace("{kind: python, code: \"result = ['x' * 100] * 2000\"}", "{kind: noop}"))
    with World(playbook) as world:
        handle = world.start(playbook, {})
        assert str(handle.status) == "waiting"
        world.crash()
        world.advance(timedelta(hours=2))

        assert handle.result() == "late"


class Down(UserSimulation):
    """After a crash no engine runs for a day."""

    def _pause(self):
        return 24 * 3600 * SECOND


@pytest.mark.parametrize(("word", "result"), [("admit", "late"), ("discard", None), ("fail", "timeout")])
def test_the_deadline_of_a_gate_that_passes_while_no_engine_runs_fires(word, result):
    playbook = book(
        f"""
        executor: {{spec: {{ctx: {{go: {{init: false}}}}}}}}
        workflow:
          - step: b
            spec: {{policy: {{admit: {{rules: [{{when: ctx.go, then: {{allow: true}}}}, {{else: {{then: {{allow: false}}}}}}], timeout: 1h, on_timeout: {word}}}}}}}
            tool: {{kind: noop, result: late}}
            next: [{{step: c, on: failed}}]
          - {{step: c, tool: {{kind: noop, result: "{{{{ token.from.error.kind }}}}"}}}}
        """
    )
    with World._on(Down(playbook)) as world:
        handle = world.start(playbook, {})
        world.crash()
        world.advance(timedelta(hours=23))
        assert world._simulation.owners == 1, "nothing runs yet"
        world.advance(timedelta(hours=2))

        assert handle.result() == result


HTTP = find("http")


@pytest.mark.parametrize(
    "address",
    ["http://169.254.169.254/keys", "http://10.0.0.1/", "http://[::1]/", "http://0xa000001/", "//192.168.0.1/"],
)
async def test_no_redirect_reaches_a_private_address(address):
    async with Site({"/r": says(b"", "302 Found", Location=address)}) as site:
        with pytest.raises(ToolError) as raised:
            await HTTP.run(
                HTTP.read({"url": site.url("/r"), "redirects": 5}), ToolCall("k", 5.0, 1, ("127.0.0.1",), {})
            )

    assert raised.value.kind == "blocked_address"
    assert len(site.asked) == 1


def test_simulate_tells_the_steps_arcs_and_rules_that_no_run_came_to():
    playbook = book(
        """
        workflow:
          - step: a
            tool: {kind: http, url: x, spec: {policy: {rules: [{when: outcome.status == 'error', then: {do: fail}}, {else: {then: {do: continue}}}]}}}
            next: [{step: b, when: event.result == 2}]
          - {step: b, tool: {kind: noop}}
        """
    )

    told = simulate(playbook, {}, {"*": 1}, runs=1)

    assert (told.unreached_steps, told.unreached_arcs) == (["b"], ["a -> b"])
    assert told.unreached_rules == ["rule 1 of a/a_task"]


PLANTED = """
workload: {amount: 50}
workflow:
  - step: judge
    next: [{step: small, when: workload.amount > 100}, {step: large}]
  - {step: small, tool: {kind: http, url: "https://shop.example/small"}}
  - {step: large, tool: {kind: http, url: "https://shop.example/large"}}
"""


def test_a_test_finds_a_guard_the_wrong_way_round(tmp_path):
    (tmp_path / "p.yaml").write_text(HEAD + PLANTED)
    (tmp_path / "p.test.yaml").write_text(
        "playbook: p.yaml\nstubs: {'*': 1}\nexpect: {runs: {small: 1}, never: [large]}\n"
    )
    wrong = called("playbooks", "test", str(tmp_path))
    (tmp_path / "p.yaml").write_text(HEAD + PLANTED.replace("> 100", "<= 100"))

    assert wrong.exit_code == 1
    assert "runs of small is 0, expected 1" in wrong.stdout
    assert "large ran 1 times" in wrong.stdout
    assert called("playbooks", "test", str(tmp_path)).exit_code == 0


def test_a_test_whose_message_comes_too_late_says_why(tmp_path):
    """The stub of the first action is misspelled: that action fails, and the message finds no instance that takes it."""
    (tmp_path / "p.yaml").write_text(HEAD + PLANTED)
    (tmp_path / "p.test.yaml").write_text(
        "playbook: p.yaml\nstubs: {'larg/*': 1}\nexpect: {verdict: success}\n"
        "tests: [{send: [{at: 60, name: ctx}]}, {expect: {verdict: failed}}]\n"
    )

    told = called("playbooks", "test", str(tmp_path))

    assert told.exit_code == 1
    assert "the message ctx at 60 s was refused: p/1 has failed" in told.stdout
    assert "large/large_task failed: " in told.stdout and "was never asked" in told.stdout


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("playbook: p.yaml\nsend: [{nme: ctx}]\n", "send is a list of {at: SECONDS, name, body}, found {'nme': 'ctx'}"),
        (HEAD + PLANTED, "is a playbook; tests of it are a file of their own"),
    ],
)
def test_a_file_that_is_no_test_says_what_one_is(tmp_path, text, hint):
    (tmp_path / "p.test.yaml").write_text(text)

    told = called("playbooks", "test", str(tmp_path))

    assert told.exit_code == 2 and hint in told.stderr


class Moody(PlaybookMachine):
    """A planted bug: what it decides depends on the process. A machine that is made again after a crash decides otherwise."""

    made = 0

    def __init__(self, compiler, net, snapshot=None):
        super().__init__(compiler, net, snapshot)
        Moody.made += 1
        self.mood = Moody.made

    def roots(self, token, args):
        found = super().roots(token, args)
        return {**found, "ctx": {**found["ctx"], "n": self.mood}}


class MoodyWorkflow(PlaybookWorkflow):
    def machine(self, address, snapshot):
        return Moody(self.compiler, self.net, snapshot)


COUNTED = """
    executor: {spec: {ctx: {n: {init: 0}}}}
    workflow:
      - {step: a, tool: {kind: http, url: "a/{{ ctx.n }}"}, next: b}
      - {step: b, tool: {kind: http, url: "b/{{ ctx.n }}"}}
"""


def test_simulate_with_crashes_finds_a_machine_that_decides_otherwise():
    sound = book(COUNTED)
    bad = MoodyWorkflow(sound.definition)

    assert simulate(sound, {}, {"*": 1}, runs=1, crash=True).finding == ""
    assert simulate(bad, {}, {"*": 1}, runs=1, crash=True).finding != ""


class Losing(PlaybookMachine):
    """A planted bug: a snapshot has no ctx."""

    def snapshot(self):
        ctx, self.state.ctx = self.state.ctx, {"n": 0}
        try:
            return super().snapshot()
        finally:
            self.state.ctx = ctx


class LosingWorkflow(PlaybookWorkflow):
    def machine(self, address, snapshot):
        return Losing(self.compiler, self.net, snapshot)


def test_simulate_with_crashes_finds_a_snapshot_without_ctx():
    sound = book(
        """
        executor: {spec: {ctx: {n: {init: 0}}}}
        workflow:
          - {step: a, tool: {kind: http, url: a, set: {ctx.n: 1}}, next: b}
          - {step: b, tool: {kind: http, url: b}, next: c}
          - {step: c, tool: {kind: http, url: "c/{{ ctx.n }}"}}
        """
    )

    assert simulate(sound, {}, {"*": 1}, runs=1, crash=True).finding == ""
    assert "decides otherwise" in simulate(LosingWorkflow(sound.definition), {}, {"*": 1}, runs=1, crash=True).finding
