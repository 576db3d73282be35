"""Playbooks under a crash at every commit and every side effect: each group of acceptance."""

import textwrap

import pytest

import perdure
from perdure.app.ours import load_playbook
from perdure.codec import encode
from perdure.kernel.events import Address, ReceiptArrived
from perdure.kernel.identity import Identity
from perdure.kernel.receipt import Receipt
from perdure.testing import crash_test
from perdure.testing.faults import Faults
from perdure.testing.steps import Script
from perdure.testing.user_simulation import UserSimulation
from perdure.testing.world import World
from perdure.tools import ToolError
from tests.playbooks.harness import HEAD
from tests.playbooks.test_example import EXAMPLE


def pages(params):
    if params["url"].endswith("south") and params["params"]["after"] is None:
        return {"rows": ["south-1"], "next": "p2"}
    return {"rows": [params["url"].rpartition("/")[2]]}


def approve(world, handle):
    handle.send("ctx", {"set": {"approved": True}}, id="yes")


def test_the_example_survives_a_crash_anywhere():
    report = crash_test(
        load_playbook(EXAMPLE),
        script={"page": pages, "order_task": lambda params: {"rows": []}, "tell_task": lambda params: None},
        story=approve,
        pairs=20,
        random=10,
    )

    assert report.singles > 10


BOOKS = {
    "tokens": """
        executor: {spec: {ctx: {go: {init: false}}}}
        workflow:
          - {step: s, next: {spec: {mode: inclusive}, arcs: [{step: held}, {step: other}]}}
          - step: held
            spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}], timeout: 1h}}}
            tool: {kind: http, url: a}
          - {step: other, tool: [{kind: wait, for: 10}, {name: x, kind: http, url: b, set: {ctx.go: true}}]}
    """,
    "gates": """
        executor: {spec: {pending_at_end: discard, ctx: {go: {init: false}}}}
        workflow:
          - {step: s, next: {spec: {mode: inclusive}, arcs: [{step: held}, {step: late}, {step: refused}]}}
          - step: held
            spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}]}}}
            tool: {name: x, kind: http, url: never}
          - step: late
            spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}], timeout: 30s, on_timeout: admit}}}
            tool: {kind: wait, for: 5}
            next: last
          - step: refused
            spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}], on_deny: fail}}}
            tool: {kind: noop}
            next: [{step: told, on: failed}]
          - {step: told, tool: {kind: noop}}
          - {step: last, tool: {name: x, kind: http, url: "{{ token.from.step }}"}}
    """,
    "routing": """
        executor: {spec: {status: best_effort, ctx: {n: {init: 0}}}}
        workflow:
          - {step: a, tool: {name: bad, kind: http, url: a}, next: [{step: b, on: failed, args: {n: 1}}]}
          - {step: b, set: {ctx.n: "{{ ctx.n + args.n }}"}, tool: {name: x, kind: http, url: b}, next: [{step: b, when: ctx.n < 3}, {step: c}]}
          - {step: c, tool: {name: x, kind: http, url: c}, next: {spec: {on_no_match: fail}, arcs: [{step: b, when: ctx.n > 9}]}}
    """,
    "expressions": """
        workflow:
          - {step: a, tool: {name: x, kind: http, url: "{{ random() }} {{ uuid() }} {{ now() }}"}, next: [{step: b, when: random() < 2, args: {u: "{{ uuid() }}"}}]}
          - {step: b, tool: {name: x, kind: http, url: "{{ [args.u, a, '{{ no }}'] | tojson }}"}}
    """,
    "joins": """
        executor: {spec: {ctx: {n: {init: 0}}}}
        workflow:
          - {step: s, set: {ctx.n: "{{ ctx.n + 1 }}"}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}}
          - {step: a, tool: {name: x, kind: http, url: a}, next: j}
          - {step: b, tool: {name: bad, kind: http, url: b}, next: [{step: j, on: any}]}
          - {step: c, tool: {kind: wait, for: 5}, next: j}
          - {step: j, join: all, tool: {kind: noop, result: "{{ join.arrived | length }}"}, next: [{step: s, when: ctx.n < 2}]}
    """,
    "pipelines": """
        workflow:
          - step: s
            tool:
              - name: bad
                kind: http
                url: x
                spec: {policy: {rules: [{when: outcome.status == 'error' and _attempt < 3, then: {do: retry, delay: 2, attempts: 5}}, {else: {then: {do: skip}}}]}}
              - {name: x, kind: http, url: y}
              - {kind: noop, result: "{{ [bad, x] }}"}
    """,
    "loops": """
        executor: {spec: {ctx: {sum: {init: 0, reduce: sum}}}}
        workflow:
          - step: s
            loop: {in: 5, iterator: i, spec: {mode: parallel, max_in_flight: 2}}
            tool: {name: x, kind: http, url: "{{ i }}", set: {ctx.sum: "{{ i }}"}}
            next: t
          - {step: t, tool: {kind: noop, result: "{{ ctx.sum }}"}}
    """,
    "end": """
        executor: {spec: {final_step: last, status: best_effort}}
        workflow:
          - {step: s, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
          - {step: a, tool: {name: bad, kind: http, url: a}}
          - {step: b, tool: {name: x, kind: http, url: b}}
          - {step: last, tool: {name: x, kind: http, url: "{{ args.summary.verdict }}"}}
    """,
    "values": """
        executor: {spec: {limits: {max_payload_bytes: 100}}}
        workflow:
          - {step: a, next: [{step: b, args: {big: "{{ range(100) | list }}"}}]}
          - {step: b, loop: {in: "{{ args.big }}", iterator: i, spec: {collect: last}}, tool: {kind: noop, result: "{{ i }}"}, next: c}
          - {step: c, tool: {name: x, kind: http, url: "{{ args.big[7] }}"}}
    """,
    "stored result": """
        executor: {spec: {limits: {max_payload_bytes: 100}}}
        workflow:
          - {step: a, next: [{step: b, args: {big: "{{ range(100) | list }}"}}]}
          - {step: b, tool: {kind: noop, result: "{{ args.big }}"}}
    """,
}


def bad(params):
    raise ToolError("server_error", "down", retryable=True)


@pytest.mark.parametrize("name", BOOKS)
def test_a_playbook_survives_a_crash_anywhere(name):
    playbook = load_playbook(HEAD.rstrip() + "\n" + textwrap.dedent(BOOKS[name]))

    crash_test(
        playbook,
        script={"x": lambda params: params["url"], "bad": bad, "held_task": lambda params: 1},
        pairs=10,
        random=5,
    )


# ---- what one crash does ----------------------------------------------------------------------------------------


def on_stage(body, script, **faults):
    playbook = load_playbook(HEAD.rstrip() + "\n" + textwrap.dedent(body))
    scripts = {name: Script(name, does) for name, does in script.items()}
    return playbook, World._on(UserSimulation(playbook, faults=Faults(**faults), scripts=scripts))


PAIR = "workflow: [{step: s, tool: [{name: a, kind: http, url: a}, {name: b, kind: http, url: b}]}]"


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_crash_between_two_actions_repeats_neither(commit):
    playbook, stage = on_stage(PAIR, {"a": lambda params: 1, "b": lambda params: 2}, commits={commit: "crash_after"})
    with stage as world:
        handle = world.start(playbook, {})
        world.run()

        assert handle.result() == 2
        assert len(world._simulation.deaths) == 1
        assert [run.location for run in world._simulation.runs] == ["s/a", "s/b"]


def test_a_retry_delay_survives_a_restart_and_holds_no_slot():
    answers = iter([ToolError("busy", "later", retryable=True), "done"])

    def busy(params):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    rule = "{when: outcome.status == 'error', then: {do: retry, delay: 200}}, {else: {then: {do: continue}}}"
    text = f"workflow: [{{step: s, tool: {{name: x, kind: http, url: a, spec: {{policy: {{rules: [{rule}]}}}}}}}}]"
    playbook, stage = on_stage(text, {"x": busy})
    with stage as world:
        handle = world.start(playbook, {})
        assert str(handle.status) == "waiting"
        world.crash()
        world.advance(199)
        assert len(world._simulation.runs) == 1
        world.advance(2)

        assert handle.result() == "done"
        assert [run.attempt for run in world._simulation.runs] == [1, 2]


def test_a_late_receipt_is_stale():
    text = PAIR.replace("{name: b, kind: http, url: b}", "{kind: wait, message: go}, {kind: noop, result: '{{ a }}'}")
    playbook, stage = on_stage(text, {"a": lambda params: 1})
    with stage as world:
        handle = world.start(playbook, {})
        address = Address("p", handle.key)
        late = ReceiptArrived(Identity(address, 1).intent("s/a", 1), Receipt("ok", encode({"result": "late"})))
        world._simulation.request(address, late, "a late receipt")
        world.run()
        (process,) = world._simulation.processes
        assert process.shard.kernel.counts["stale"] == 1
        handle.send("go")

        assert handle.result() == 1
        assert [line.location for line in handle.history() if line.event == "receipt"] == ["s/a"]


def test_a_handled_failure_is_none_after_a_crash_too():
    text = """
        executor: {spec: {ctx: {go: {init: false}}}}
        workflow:
          - {step: a, tool: {name: bad, kind: http, url: a}, next: [{step: b, on: failed}]}
          - step: b
            spec: {policy: {admit: {rules: [{when: ctx.go, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
            tool: {kind: noop, result: fine}
    """
    playbook, stage = on_stage(text, {"bad": bad}, cache=0)
    with stage as world:
        handle = world.start(playbook, {})
        world.crash()
        handle.send("ctx", {"set": {"go": True}})
        world.run()

        assert handle.result() == "fine"
        summary = handle.read("summary")
        assert summary["verdict"] == "success"
        assert [each["handled"] for each in summary["failures"]] == [True]


def test_a_cycle_of_noops_starves_no_other_instance():
    names = ("p", "spinning", "other")
    parent, spinning, other = (
        load_playbook(HEAD.replace("name: p", f"name: {name}") + workflow)
        for name, workflow in zip(
            names,
            (
                "workflow: [{step: s, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}, "
                "{step: a, tool: {kind: workflow, workflow: spinning, key: k}}, {step: b, tool: {kind: workflow, workflow: other, key: k}}]",
                "executor: {spec: {limits: {max_firings: 5000}}}\nworkflow: [{step: a, tool: {kind: noop}, next: b}, {step: b, tool: {kind: noop}, next: a}]",
                "workflow: [{step: a, tool: [{name: x, kind: http, url: a}, {name: x2, kind: wait, for: 0}]}]",
            ),
            strict=True,
        )
    )
    scripts = {"x": Script("x", lambda params: 1)}
    with World._on(UserSimulation(parent, spinning, other, scripts=scripts)) as world:
        world.start(parent, {})
        world.run()
        spun, done = world.handle("spinning", "k"), world.handle("other", "k")

        with pytest.raises(perdure.InstanceFailed, match="livelock"):
            spun.result()
        assert str(done.status) == "completed"
        assert done.history()[-1].seq < spun.history()[-1].seq
