"""Tokens, admission, routing, joins, and the end: by a machine without an engine."""

import random

import pytest

from perdure.kernel.receipt import Receipt
from perdure.playbooks.gates import Gates
from perdure.playbooks.workflow import PlaybookWorkflow
from tests.playbooks.harness import HEAD, PlaybookHarness, book

GATE = """
    executor: {spec: {ctx: {open: {init: false}, locked: {init: 1, patch: false}, n: {init: 0}}}}
    workflow:
      - step: split
        next: {spec: {mode: inclusive}, arcs: [{step: held}, {step: other}]}
      - step: held
        spec: {policy: {admit: {rules: [{when: ctx.open, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
        tool: {kind: noop, result: admitted}
      - {step: other, tool: {kind: noop, result: free}}
"""


def test_the_first_step_is_the_entry():
    stage = PlaybookHarness(
        book("workflow: [{step: b, tool: {kind: noop, result: 1}}, {step: a, tool: {kind: noop, result: 2}}]")
    )

    assert stage.result == 1


def test_entry_step_names_another():
    text = "executor: {spec: {entry_step: a}}\nworkflow: [{step: b, tool: {kind: noop}}, {step: a, tool: {kind: noop, result: 2}}]"

    assert PlaybookHarness(book(text)).result == 2


def test_a_denied_token_waits_and_a_patch_admits_it_in_one_entry():
    stage = PlaybookHarness(book(GATE))
    assert stage.waits == ["gate/held#2"]
    before = stage.number

    reply = stage.patch(open=True)

    assert stage.number == before + 1
    assert reply == {"ctx_version": 1}
    assert stage.result == {"held": "admitted", "other": "free"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"set": {"locked": 2}}, "ctx.locked has patch: false"),
        ({"set": {"open": True}, "if_ctx_version": 7}, "ctx has version 0, not 7: read it again"),
        ({"set": {"open": "yes"}}, "ctx.open is true or false, as its first value is, found text"),
        ({"set": {"opne": True}}, "the playbook has no ctx key opne; did you mean open?"),
        ({"set": {}}, 'a patch is {"set": {key: value}}, with if_ctx_version if you want'),
        ([1], 'a patch is {"set": {key: value}}, with if_ctx_version if you want'),
        ({"set": {"open": True}, "by": "me"}, "a patch has no key by"),
    ],
)
def test_a_patch_is_refused_with_its_reason(body, said):
    stage = PlaybookHarness(book(GATE))

    assert stage.send("ctx", body) == {"refused": said}
    assert stage.waits == ["gate/held#2"]


def test_the_write_of_another_branch_admits():
    stage = PlaybookHarness(book(GATE.replace("result: free}}", "result: free, set: {ctx.open: true}}}")))

    assert stage.result == {"held": "admitted", "other": "free"}


def test_the_end_of_another_step_admits():
    stage = PlaybookHarness(book(GATE.replace("when: ctx.open", "when: steps.other is not none")))

    assert stage.result == {"held": "admitted", "other": "free"}


def test_a_patch_of_something_else_evaluates_no_gate():
    stage = PlaybookHarness(book(GATE))
    before = len(stage.machine.gates._watchers()["ctx", "open"])

    stage.patch(n=5)

    assert before == 1
    assert stage.waits == ["gate/held#2"]


class AllGates(Gates):
    """Every pending token is tested again, whatever has changed."""

    def test_again(self, turn):
        self.machine.changed = set()
        for id in sorted(token.id for token in self.state.marking.of("pending")):
            if id in self.state.marking.tokens:
                self._test(turn, self.state.marking.tokens[id])


def gated(dice):
    """A split into gates. Each reads keys of ctx and results of steps, and may write a key or lead to another gate."""
    keys, steps = ["a", "b", "c"], []
    for number in range(6):
        reads = dice.choice(
            [
                f"ctx.{dice.choice(keys)} > {dice.randrange(4)}",
                f"steps.g{dice.randrange(6)} is not none",
                "ctx.a + ctx.b > ctx.c",
            ]
        )
        sets = (
            f", set: {{ctx.{dice.choice(keys)}: '{{{{ ctx.{dice.choice(keys)} + 1 }}}}'}}"
            if dice.random() < 0.6
            else ""
        )
        then = f", next: g{dice.randrange(6)}" if dice.random() < 0.3 else ""
        gate = f"spec: {{policy: {{admit: {{rules: [{{when: {reads}, then: {{allow: true}}}}, {{else: {{then: {{allow: false}}}}}}]}}}}}}"
        steps.append(f"{{step: g{number}, {gate}, tool: {{kind: noop}}{sets}{then}}}")
    arcs = ", ".join(f"{{step: g{number}}}" for number in range(6))
    ctx = "ctx: {a: {init: 0}, b: {init: 0}, c: {init: 0}}, limits: {max_firings: 50}"
    first = f"{{step: s, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}"
    return book(f"executor: {{spec: {{{ctx}}}}}\nworkflow: [{first}, {', '.join(steps)}]")


def played(playbook, patches, gates):
    class Workflow(PlaybookWorkflow):
        def machine(self, address, snapshot):
            made = super().machine(address, snapshot)
            made.gates = gates(made)
            return made

    stage = PlaybookHarness(Workflow(playbook.definition))
    for patch in patches:
        if stage.outcome is None:
            stage.patch(**patch)
    return stage.decisions


def test_testing_all_gates_gives_the_same():
    waited = 0
    for seed in range(60):
        dice = random.Random(seed)
        playbook = gated(dice)
        patches = [{dice.choice("abc"): dice.randrange(5)} for _ in range(5)]
        decisions = played(playbook, patches, Gates)
        waited += len(decisions)

        assert decisions == played(playbook, patches, AllGates), seed
    assert waited > 120


def test_pending_at_end_discards():
    text = GATE.replace("spec: {ctx", "spec: {pending_at_end: discard, ctx")

    stage = PlaybookHarness(book(text))

    assert stage.result == "free"
    assert stage.published["summary"]["counts"]["denied"] == 1


def test_pending_at_end_fails():
    assert PlaybookHarness(book(GATE.replace("spec: {ctx", "spec: {pending_at_end: fail, ctx"))).error == "not_admitted"


def test_a_denied_token_is_discarded_or_fails_by_policy():
    assert PlaybookHarness(book(GATE.replace("admit: {rules", "admit: {on_deny: discard, rules"))).result == "free"
    assert PlaybookHarness(book(GATE.replace("admit: {rules", "admit: {on_deny: fail, rules"))).error == "not_admitted"


@pytest.mark.parametrize(
    ("word", "result"), [("discard", "free"), ("admit", {"held": "admitted", "other": "free"}), ("fail", None)]
)
def test_the_deadline_of_a_gate(word, result):
    stage = PlaybookHarness(book(GATE.replace("admit: {rules", f"admit: {{timeout: 1h, on_timeout: {word}, rules")))
    stage.advance(3599)
    assert stage.outcome is None

    stage.advance(2)

    assert stage.error == "timeout" if result is None else stage.result == result


def test_rules_without_a_match_deny():
    stage = PlaybookHarness(book(GATE.replace(", {else: {then: {allow: false}}}", "")))

    assert stage.waits == ["gate/held#2"]


# ---- routing ----------------------------------------------------------------------------------------------------

ROUTE = """
    executor: {{spec: {spec}}}
    workload: {{n: 2}}
    workflow:
      - {{step: a, tool: {tool}, next: {next}}}
      - {{step: b, tool: {{kind: noop, result: b}}}}
      - {{step: c, tool: {{kind: noop, result: c}}}}
"""


def route(next, tool="{kind: noop, result: 1}", spec="{}"):
    return PlaybookHarness(book(ROUTE.format(next=next, tool=tool, spec=spec)))


def test_exclusive_takes_the_first_match_and_evaluates_no_later_guard():
    assert route("[{step: b, when: workload.n == 2}, {step: c, when: workload.gone.member}]").result == "b"


def test_inclusive_takes_each_match():
    arcs = "[{step: b, when: workload.n == 2}, {step: c, when: outcome.result == 1}]"

    assert route(f"{{spec: {{mode: inclusive}}, arcs: {arcs}}}").result == {"b": "b", "c": "c"}


def test_no_match_ends_the_branch():
    assert route("[{step: b, when: workload.n == 3}]").result == 1


def test_no_match_fails_by_policy():
    assert route("[{step: b, when: workload.n == 3}]", spec="{no_next_is_error: true}").error == "no_match"
    assert route("{spec: {on_no_match: fail}, arcs: [{step: b, when: false}]}").error == "no_match"


def test_an_unhandled_failure_is_never_swallowed():
    stage = route("[{step: b}]", tool="{kind: fail, message: no}")

    assert stage.error == "failed"
    assert stage.machine.state.steps["b"] is None


@pytest.mark.parametrize(
    "arc", ["on: failed", "on: any", "when: event.status == 'failed'", "when: outcome.error.kind == 'failed'"]
)
def test_a_handled_failure_is_none(arc):
    stage = route(f"[{{step: b, {arc}}}]", tool="{kind: fail, message: no}")

    assert stage.result == "b"
    assert stage.published["summary"]["failures"] == [
        {"location": "a/a_task", "kind": "failed", "message": "no", "handled": True}
    ]


def test_an_arc_that_is_followed_after_a_failure_without_naming_it_leaves_it_unhandled():
    stage = route("[{step: b}]", tool="{kind: fail, message: no}", spec="{arc_default: any}")

    assert stage.error == "failed"
    assert stage.machine.state.steps["b"]["status"] == "done"


def test_a_guard_that_is_a_text_fails_the_run():
    assert route("[{step: b, when: \"'x'\"}]").error == "guard_type"


def test_a_guard_that_cannot_be_evaluated_may_be_false():
    next = "[{step: b, when: workload.gone.x}, {step: c}]"

    assert route(next).error == "template_error"
    assert route(next, spec="{on_template_error: false}").result == "c"


def test_an_error_of_an_expression_has_its_place():
    stage = route("[{step: b, when: workload.gone.x}]")

    text = "a: p.yaml:8:82: a.next.arcs.0.when: workload.gone.x: workload.gone.x is missing"
    assert stage.outcome.error.message.startswith(text)
    assert stage.workflow.where(stage.machine.state.steps["a"]["error"]["details"]) == "p.yaml:8:82"


def test_the_place_of_an_error_is_no_part_of_what_a_replay_compares():
    text = "workflow: [{step: a, tool: {kind: noop, result: '{{ workload.gone }}'}}]\n"
    one, two = PlaybookHarness(book(text)), PlaybookHarness(book(f"# moved by a line\n{text}"))

    assert one.workflow.version == two.workflow.version
    assert "p.yaml:4:" in one.outcome.error.message
    assert "p.yaml:5:" in two.outcome.error.message
    assert not one.workflow.differs(one.decisions[-1], two.decisions[-1])


@pytest.mark.parametrize("member", ["status", "result", "error", "run"])
def test_what_is_read_of_a_step_that_never_ran_is_null(member):
    text = f"workflow: [{{step: a, tool: {{kind: noop, result: ['{{{{ steps.b.{member} }}}}', X]}}}}, {{step: b, next: a}}]"

    assert PlaybookHarness(book(text.replace("X", "'{{ steps.b.result | default(3) }}'"))).result == [None, 3]
    assert PlaybookHarness(book(text.replace("X", "'{{ steps.b.result.x }}'"))).error == "template_error"
    assert PlaybookHarness(book(text.replace("X", "'{{ steps.b.reslt }}'"))).error == "template_error"


def test_what_changes_later_is_taken_as_it_is_now():
    whole = PlaybookHarness(
        book(
            "workflow: [{step: a, tool: {kind: noop, result: '{{ steps }}'}, next: b}, {step: b}]".replace(
                "{step: b}", "{step: b, tool: {kind: noop, result: '{{ a }}'}}"
            )
        )
    )
    listed = PlaybookHarness(
        book(
            "workflow: [{step: a, tool: [{name: x, kind: noop, result: 1}, {name: y, kind: noop, result: ['{{ results }}']}, {name: z, kind: noop, result: '{{ y }}'}]}]"
        )
    )

    assert whole.result == {"a": None, "b": None}
    assert listed.result == [{"x": 1}]


def test_args_are_inherited_and_overlaid():
    text = """
        workflow:
          - {step: a, next: [{step: b, args: {x: 1, y: 2}}]}
          - {step: b, next: [{step: c, args: {y: 3}}]}
          - {step: c, next: [{step: d, args: {z: 4}, spec: {inherit: false}}], args: {w: "{{ args.x + 10 }}"}}
          - {step: d, tool: {kind: noop, result: {args: "{{ args }}", from: "{{ token.from.step }}"}}}
    """

    assert PlaybookHarness(book(text)).result == {"args": {"z": 4}, "from": "c"}


def test_a_counter_cycle_sets_once_per_run():
    text = """
        executor: {spec: {ctx: {n: {init: 0}}}}
        workflow:
          - step: count
            tool: {kind: noop, set: {ctx.n: "{{ ctx.n + 1 }}"}}
            next: [{step: count, when: ctx.n < 5}, {step: done}]
          - {step: done, tool: {kind: noop, result: "{{ ctx.n }} in {{ steps.count.run }}"}}
    """

    stage = PlaybookHarness(book(text))

    assert stage.result == "5 in 5"
    assert "route count#2: count" in stage.noted


def test_a_cycle_of_noops_goes_on_in_pieces_and_ends_as_livelock():
    stage = PlaybookHarness(
        book("executor: {spec: {limits: {max_firings: 2500}}}\nworkflow: [{step: a, next: b}, {step: b, next: a}]")
    )

    assert stage.error == "livelock"
    assert len(stage.decisions) == 3
    assert "a -> b" in stage.outcome.error.message


def test_more_tokens_than_allowed_is_an_error():
    text = """
        executor: {spec: {limits: {max_tokens: 50}}}
        workflow: [{step: a, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: a}]}}]
    """

    assert PlaybookHarness(book(text)).error == "limit_exceeded"


# ---- joins ------------------------------------------------------------------------------------------------------

JOIN = """
    executor: {{spec: {{ctx: {{ok: {{init: false}}}}}}}}
    workflow:
      - {{step: s, next: {{spec: {{mode: inclusive}}, arcs: [{{step: a, args: {{x: 1}}}}, {{step: b}}]}}}}
      - {{step: a, tool: {a}, next: j}}
      - {{step: b, tool: {b}, next: [{{step: j, on: any}}]}}
      - {{step: j, {join}tool: {{kind: noop, result: "{{{{ join.arrived | map(attribute='step') | sort }}}}"}}}}
"""


def join(a="{kind: noop}", b="{kind: noop}", rule="join: all, ", stubs=None):
    text = JOIN.format(a=a, b=b, join=rule)
    return PlaybookHarness(
        book(text if rule else text.replace("join.arrived | map(attribute='step') | sort", "token.from.step")), stubs
    )


def test_a_join_runs_once():
    stage = join()

    assert stage.result == ["a", "b"]
    assert stage.machine.state.fired["j"] == 1


def test_a_join_runs_once_after_a_failed_branch():
    stage = join(a="{kind: fail, message: no}")

    assert stage.machine.state.results["j"] == ["b"]
    assert stage.error == "failed"


@pytest.mark.parametrize(
    "branch",
    [
        "{step: a, tool: {kind: noop}, next: [{step: j, when: ctx.ok}]}",
        "{step: a, spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}], on_deny: discard}}}, tool: {kind: noop}, next: j}",
        "{step: a, tool: {kind: noop}, next: z}",
    ],
    ids=["skipped", "discarded", "elsewhere"],
)
def test_a_join_runs_once_after_a_branch_that_does_not_come(branch):
    text = JOIN.format(a="{kind: noop}", b="{kind: http, url: b}", join="join: all, ")
    text = text.replace("{step: a, tool: {kind: noop}, next: j}", branch) + "      - {step: z, tool: {kind: noop}}\n"
    stage = PlaybookHarness(book(text), {"b/b_task": 1})

    assert stage.machine.state.results["j"] == ["b"]
    assert stage.machine.state.fired["j"] == 1


@pytest.mark.parametrize(("version", "fired"), [("perdure/v1", 2), ("noetl.io/v2", 1)])
def test_v10_joins_by_default_and_v1_runs_once_per_token(version, fired):
    text = JOIN.format(a="{kind: noop}", b="{kind: noop}", join="").replace(
        "join.arrived | map(attribute='step') | sort", "1"
    )

    assert PlaybookHarness(book(text, HEAD.replace("perdure/v1", version))).machine.state.fired["j"] == fired


def test_without_join_a_step_runs_once_per_token():
    assert join(rule="").machine.state.fired["j"] == 2


def test_a_pending_branch_holds_the_join():
    text = JOIN.format(a="{kind: noop}", b="{kind: noop}", join="join: all, ").replace(
        "{step: a, tool",
        "{step: a, spec: {policy: {admit: {rules: [{when: ctx.ok, then: {allow: true}}, {else: {then: {allow: false}}}]}}}, tool",
    )
    stage = PlaybookHarness(book(text))
    assert stage.machine.state.fired.get("j") is None

    stage.patch(ok=True)

    assert stage.result == ["a", "b"]


def test_join_any_runs_on_the_first():
    stage = join(a="{kind: http, url: x}", rule="join: any, ", stubs={"a/a_task": 1})

    assert stage.result == ["b"]
    assert stage.machine.state.fired["j"] == 1


def test_cancel_rest_withdraws_the_others():
    stage = PlaybookHarness(
        book(JOIN.format(a="{kind: http, url: x}", b="{kind: noop}", join="join: {mode: any, cancel_rest: true}, ")),
        auto=False,
    )

    assert stage.result == ["b"]


def test_a_join_of_a_number_that_comes_short_fails():
    assert join(a="{kind: fail, message: no}", rule="join: 2, ").error in ("failed", "join_short")
    kinds = [
        each["kind"] for each in join(a="{kind: fail, message: no}", rule="join: 2, ").published["summary"]["failures"]
    ]

    assert sorted(kinds) == ["failed", "join_short"]


def test_a_join_that_comes_short_may_run():
    assert join(a="{kind: fail, message: no}", rule="join: {of: 2, on_short: run}, ").machine.state.results["j"] == [
        "b"
    ]


def test_the_run_of_a_join_has_the_args_of_the_split():
    text = """
        workflow:
          - {step: e, next: [{step: s, args: {order: 7}}]}
          - {step: s, next: {spec: {mode: inclusive}, arcs: [{step: a, args: {x: 1}}, {step: b}]}}
          - {step: a, next: j}
          - {step: b, next: j}
          - {step: j, join: all, tool: {kind: noop, result: {args: "{{ args }}", first: "{{ join.arrived[0].args }}"}}}
    """

    assert PlaybookHarness(book(text)).result == {"args": {"order": 7}, "first": {"order": 7, "x": 1}}


def test_rounds_of_a_cycle_do_not_mix():
    text = """
        executor: {spec: {ctx: {n: {init: 0}}}}
        workflow:
          - {step: s, set: {ctx.n: "{{ ctx.n + 1 }}"}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
          - {step: a, next: j}
          - {step: b, next: j}
          - {step: j, join: all, tool: {kind: noop, result: "{{ join.arrived | length }}"}, next: [{step: s, when: ctx.n < 3}]}
    """

    stage = PlaybookHarness(book(text))

    assert stage.result == 2
    assert stage.machine.state.fired == {"s": 3, "a": 3, "b": 3, "j": 3}


# ---- the end ----------------------------------------------------------------------------------------------------

END = """
    executor: {{spec: {{final_step: last, {spec}}}}}
    workflow:
      - {{step: s, next: {{spec: {{mode: inclusive}}, arcs: [{{step: a}}, {{step: b}}]}}}}
      - {{step: a, tool: {{kind: fail, message: no}}}}
      - {{step: b, tool: {{kind: http, url: x}}}}
      - {{step: last, tool: {final}}}
"""


def end(spec="", final='{kind: noop, result: "{{ args.summary.verdict }}"}', **options):
    return PlaybookHarness(book(END.format(spec=spec, final=final)), {"b/b_task": 5}, **options)


def test_the_other_branches_drain_and_the_final_step_runs_once_after_a_failure():
    stage = end()

    assert stage.error == "failed"
    assert stage.done == ["b/b_task"]
    assert stage.machine.state.results["last"] == "failed"


def test_fail_fast_withdraws_the_others():
    stage = end("status: fail_fast", auto=False)

    assert stage.error == "failed"
    assert stage.machine.state.fired.get("b") is None or stage.decisions[-1].withdraw == ()
    assert stage.machine.state.results["last"] == "failed"


def test_best_effort_is_partial_and_completes():
    assert end("status: best_effort").result == "partial"


def test_the_final_step_runs_only_after_the_verdicts_that_are_named():
    stage = end("final_on: [success]")

    assert stage.error == "failed"
    assert stage.machine.state.fired.get("last") is None


def test_a_failure_of_the_final_step_fails_or_makes_partial():
    fail = "{kind: fail, message: worse}"

    assert end("status: best_effort", fail).error == "failed"
    assert end("status: best_effort, final_failure: partial", fail).published["summary"]["verdict"] == "partial"


def test_the_summary_has_counts_results_and_failures():
    summary = end("status: best_effort").published["summary"]

    assert summary["counts"] == {
        **{"runs": 4, "actions": 3, "attempts": 3, "branches": 4},
        **{"iterations": 0, "denied": 0, "skipped": 0},
    }
    assert summary["results"] == {"a": None, "b": 5, "last": "partial", "s": None}
    assert summary["failures"] == [{"location": "a/a_task", "kind": "failed", "message": "no", "handled": False}]


def test_the_result_may_be_an_expression():
    text = "executor: {spec: {result: {x: '{{ steps.a.result + 1 }}', v: '{{ summary.verdict }}'}}}\nworkflow: [{step: a, tool: {kind: noop, result: 1}}]"

    assert PlaybookHarness(book(text)).result == {"x": 2, "v": "success"}


def test_cancel_withdraws_all_and_runs_the_final_step_if_it_should():
    stage = end(auto=False)
    stage.cancel()
    assert stage.outcome.status == "cancelled"
    assert stage.machine.state.fired.get("last") is None

    stage = end("final_on: [cancelled]", auto=False)
    stage.cancel()
    assert stage.outcome.status == "cancelled"
    assert stage.machine.state.results["last"] == "cancelled"


def test_the_instance_has_a_timeout():
    stage = end("timeout: 10s", auto=False)

    stage.advance(11)

    assert stage.outcome.status == "failed"
    assert "timeout" in [each["kind"] for each in stage.published["summary"]["failures"]]


def test_the_token_of_the_start_may_wait_at_a_join():
    text = """
        workflow:
          - {step: a, join: all, tool: {kind: noop, result: "{{ join.arrived }}"}, next: [{step: b, when: event.run < 2}]}
          - {step: b, next: a}
    """

    stage = PlaybookHarness(book(text.replace("event.run < 2", "false")))

    assert stage.result == [{"step": None, "run": None, "status": None, "args": {}, "result": None}]
    assert PlaybookHarness(book(text)).result[0]["step"] == "b"


def test_too_many_tokens_of_one_split_stop_the_instance():
    arcs = ", ".join("{step: b}" for _ in range(6))
    text = f"""
        executor: {{spec: {{limits: {{max_tokens: 3}}}}}}
        workflow:
          - {{step: a, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}
          - {{step: b, tool: {{kind: wait, for: 5}}}}
    """

    assert PlaybookHarness(book(text)).error == "limit_exceeded"


def test_a_cycle_of_steps_that_are_refused_ends_as_livelock():
    text = """
        executor: {spec: {limits: {max_firings: 30}}}
        workflow:
          - {step: a, spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}], on_deny: fail}}}, next: [{step: a, on: failed}]}
    """

    stage = PlaybookHarness(book(text), auto=False)
    for _ in range(5):
        if stage.outcome is None:
            stage.answer(next(iter(stage.open)), Receipt("ok"))

    assert stage.error == "livelock"
