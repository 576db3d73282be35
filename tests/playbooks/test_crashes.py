"""Playbooks under a crash at every commit and every side effect: each group of acceptance."""

import textwrap

import pytest

from perdure.app.ours import load_playbook
from perdure.testing import crash_test
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
