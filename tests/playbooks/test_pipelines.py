"""Pipelines, action policy, loops, and large values: by a machine without an engine."""

from typing import Any

import pytest

from perdure.codec import decode, encode
from perdure.kernel.effects import Call, Timer, Wait, attempt_of
from perdure.kernel.receipt import Failure, Receipt
from tests.playbooks.harness import SECOND, PlaybookHarness, book

ERROR = {"error": {"kind": "server_error", "message": "down", "retryable": True}}


def pipeline(*actions, head=""):
    lines = "\n".join(f"      - {action}" for action in actions)
    return book(f"{head}\nworkflow:\n  - step: s\n    tool:\n{lines}\n")


def rules(*rules):
    return "spec: {policy: {rules: [" + ", ".join(rules) + "]}}"


def test_the_last_result_is_the_runs_and_prev_is_the_last_good_one():
    stage = PlaybookHarness(
        pipeline(
            "{name: a, kind: noop, result: 1}",
            "{name: b, kind: noop, result: '{{ _prev + 1 }}'}",
            "{name: c, kind: noop, when: 'false'}",
            "{name: d, kind: noop, result: '{{ [_prev, a, results.b, c] }}'}",
        )
    )

    assert stage.result == [2, 1, 2, None]
    assert "skip s/c" in stage.noted


def test_a_retry_waits_and_holds_no_slot():
    retry = rules("{when: outcome.status == 'error', then: {do: retry, attempts: 3, backoff: exponential, delay: 2}}")
    stage = PlaybookHarness(pipeline(f"{{name: a, kind: http, url: x, {retry}}}"), {"s/a": [ERROR, ERROR, 7]})
    assert stage.waits == ["s/a/backoff#1"]
    assert [type(effect) for effect in stage.open.values()] == [Timer]

    stage.advance(2)
    assert stage.waits == ["s/a/backoff#2"]
    stage.advance(4)

    assert stage.result == 7


@pytest.mark.parametrize("delay", ["2m", "PT2M", "120s", "120"])
def test_a_delay_is_a_duration(delay):
    retry = rules(f"{{when: outcome.status == 'error', then: {{do: retry, delay: {delay}, max_delay: 1h}}}}")
    stage = PlaybookHarness(pipeline(f"{{name: a, kind: http, url: x, {retry}}}"), {"s/a": [ERROR, 7]})

    stage.advance(119)
    assert stage.waits == ["s/a/backoff#1"]
    stage.advance(1)

    assert stage.result == 7


def test_attempts_run_out_with_the_last_error():
    retry = rules("{when: outcome.status == 'error', then: {do: retry, attempts: 2, delay: 0}}")
    stage = PlaybookHarness(pipeline(f"{{name: a, kind: http, url: x, {retry}}}"), {"s/a": [ERROR]})

    assert stage.error == "server_error"
    assert stage.done == ["s/a", "s/a"]


def test_a_delay_of_zero_opens_the_next_attempt_in_the_same_entry():
    retry = rules("{when: outcome.status == 'error', then: {do: retry, attempts: 2, delay: 0}}")
    stage = PlaybookHarness(pipeline(f"{{name: a, kind: http, url: x, {retry}}}"), {"s/a": [ERROR, 1]})

    assert [attempt_of(effect) for effect in stage.decisions[1].open] == [2]
    assert stage.result == 1


def test_linear_backoff_and_its_bound():
    retry = rules("{else: {then: {do: retry, attempts: 9, backoff: linear, delay: 10, max_delay: 25}}}")
    stage = PlaybookHarness(pipeline(f"{{name: a, kind: http, url: x, {retry}}}"), {"s/a": [ERROR]})
    waits = []
    for _ in range(3):
        (timer,) = stage.open.values()
        waits.append((timer.due - stage.now) / 1e9)
        stage.advance(waits[-1])

    assert waits == [10, 20, 25]


def test_jitter_shortens_the_wait_by_recorded_dice():
    retry = rules("{else: {then: {do: retry, delay: 100, jitter: 1}}}")
    stage = PlaybookHarness(pipeline(f"{{name: a, kind: http, url: x, {retry}}}"), {"s/a": [ERROR]})
    (timer,) = stage.open.values()

    assert 0 < (timer.due - stage.now) / 1e9 < 100


@pytest.mark.parametrize("said", ["30", "Tue, 14 Nov 2023 22:13:50 GMT"])
def test_the_server_says_when_to_come_back(said):
    retry = rules("{else: {then: {do: retry, delay: 1}}}")
    busy = {
        "error": {"kind": "rate_limit", "retryable": True},
        "http": {"status": 429, "headers": {"retry-after": said}},
    }
    stage = PlaybookHarness(pipeline(f"{{name: a, kind: http, url: x, {retry}}}"), {"s/a": [busy]})
    (timer,) = stage.open.values()

    assert (timer.due - stage.now) / 1e9 == 30


def test_each_page_of_a_jump_loop_has_its_own_attempts():
    policy = rules(
        "{when: outcome.status == 'error', then: {do: retry, attempts: 2, delay: 0}}",
        "{when: outcome.result.next is defined, then: {do: jump, to: page, set_iter: {after: '{{ outcome.result.next }}'}}}",
        "{else: {then: {do: continue}}}",
    )
    sets = "set: {iter.all: '{{ iter.all | default([]) + outcome.result.rows }}'}"
    stage = PlaybookHarness(
        pipeline(
            f"{{name: page, kind: http, url: x, params: {{after: '{{{{ iter.after | default(none) }}}}'}}, {sets}, {policy}}}",
            "{name: all, kind: noop, result: '{{ iter.all }}'}",
        ),
        {
            "s/page": [
                ERROR,
                {"result": {"rows": [1], "next": "p2"}},
                ERROR,
                {"result": {"rows": [2], "next": "p3"}},
                {"result": {"rows": [3]}},
            ]
        },
    )

    assert stage.result == [1, 2, 3]
    assert stage.done == ["s/page", "s/page", "s/page#2", "s/page#2", "s/page#3"]


def test_too_many_jumps_are_an_error():
    policy = rules("{else: {then: {do: jump, to: previous}}}")
    head = "executor: {spec: {limits: {max_jumps: 20}}}"

    assert (
        PlaybookHarness(pipeline("{name: a, kind: noop}", f"{{name: b, kind: noop, {policy}}}", head=head)).error
        == "jump_limit"
    )


def test_break_ends_the_pipeline_with_its_result():
    policy = rules("{else: {then: {do: break}}}")

    assert PlaybookHarness(pipeline(f"{{kind: noop, result: 1, {policy}}}", "{kind: noop, result: 2}")).result == 1


def test_skip_goes_on_with_null():
    policy = rules("{else: {then: {do: skip}}}")

    assert PlaybookHarness(
        pipeline(f"{{name: a, kind: fail, {policy}}}", "{kind: noop, result: '{{ [a, _prev] }}'}")
    ).result == [
        None,
        None,
    ]


def test_continue_after_an_error():
    policy = rules("{else: {then: {do: continue}}}")

    assert (
        PlaybookHarness(
            pipeline("{kind: noop, result: 1}", f"{{kind: fail, {policy}}}", "{kind: noop, result: '{{ _prev }}'}")
        ).result
        == 1
    )


def test_fail_has_the_error_that_the_rule_gives():
    policy = rules("{else: {then: {do: fail, error: {kind: empty, message: 'no rows'}}}}")
    stage = PlaybookHarness(pipeline(f"{{kind: noop, result: 1, {policy}}}"))

    assert stage.error == "empty"
    assert stage.outcome.error.message == "s/task_0: no rows"


def test_on_unmatched():
    assert (
        PlaybookHarness(
            pipeline("{kind: fail, spec: {policy: {on_unmatched: continue}}}", "{kind: noop, result: 3}")
        ).result
        == 3
    )
    assert PlaybookHarness(pipeline("{kind: noop, spec: {policy: {on_unmatched: fail}}}")).error == "failed"


def test_sets_come_before_the_directive_at_every_attempt():
    policy = rules(
        "{when: outcome.status == 'error', then: {do: retry, delay: 0, set: {ctx.tries: '{{ ctx.tries + 1 }}'}}}",
        "{else: {then: {do: continue, set_ctx: {said: '{{ outcome.result }} after {{ ctx.tries }}'}}}}",
    )
    head = "executor: {spec: {ctx: {tries: {init: 0}}}}"
    stage = PlaybookHarness(
        pipeline(f"{{name: a, kind: http, url: x, {policy}}}", head=head), {"s/a": [ERROR, ERROR, 5]}
    )

    assert stage.ctx == {"tries": 2, "said": "5 after 2"}


def test_an_action_that_cannot_be_rendered_is_judged_by_its_rules():
    policy = rules("{when: outcome.error.kind == 'template_error', then: {do: skip}}", "{else: {then: {do: fail}}}")

    assert (
        PlaybookHarness(
            pipeline(f"{{kind: noop, result: '{{{{ ctx.gone }}}}', {policy}}}", "{kind: noop, result: 9}")
        ).result
        == 9
    )


def test_a_set_that_fails_makes_the_action_fail():
    assert (
        PlaybookHarness(pipeline("{kind: noop, result: 1, set: {ctx.a: '{{ outcome.result.gone }}'}}")).error
        == "template_error"
    )


@pytest.mark.parametrize(
    ("receipt", "kind"),
    [
        (Receipt("timeout"), "timeout"),
        (Receipt("unknown"), "lost"),
        (Receipt("error", error=Failure("ValueError", "x")), "ValueError"),
        (Receipt("error", error=Failure("Denied", "no", retry=False)), "denied"),
    ],
)
def test_receipts_become_errors(receipt, kind):
    stage = PlaybookHarness(pipeline("{name: a, kind: http, url: x}"), lambda location, params: receipt)

    assert stage.error == kind


def test_an_attempt_has_a_timeout_and_may_be_done_once():
    stage = PlaybookHarness(
        pipeline("{name: a, kind: http, url: x}", "{name: b, kind: http, url: x, spec: {timeout: 5s, once: true}}"),
        auto=False,
    )
    (call,) = stage.open.values()
    assert (call.timeout, call.deliveries_max, call.executor) == (60_000_000_000, 4, "effects")
    stage.answer(stage.at("s/a"), Receipt("ok", encode({"result": 1})))
    (call,) = stage.open.values()

    assert (call.timeout, call.deliveries_max) == (5_000_000_000, 1)


def test_a_queue_is_the_actions_or_the_steps_or_the_playbooks():
    text = """
        executor: {spec: {queue: far}}
        workflow:
          - {step: a, tool: {kind: http, url: x}, next: b}
          - {step: b, spec: {queue: near}, tool: [{name: x, kind: http, url: x}, {name: y, kind: http, url: x, spec: {queue: own}}]}
    """
    stage = PlaybookHarness(book(text), {"a/a_task": 1, "b/x": 1, "b/y": 1})
    calls = [effect for decision in stage.decisions for effect in decision.open if isinstance(effect, Call)]

    assert [call.executor for call in calls] == ["far", "near", "own"]


def test_a_run_has_a_timeout_and_its_failure_has_arcs():
    text = """
        workflow:
          - {step: a, spec: {policy: {lifecycle: {timeout_s: 10}}}, tool: {kind: http, url: x}, next: [{step: b, on: failed}]}
          - {step: b, tool: {kind: noop, result: "{{ token.from.error.kind }}"}}
    """
    stage = PlaybookHarness(book(text), auto=False)
    stage.advance(11)

    assert stage.result == "timeout"


def test_a_deadline_counts_from_the_making_of_the_token():
    text = """
        executor: {spec: {ctx: {ok: {init: false}}}}
        workflow:
          - step: a
            spec:
              policy:
                lifecycle: {deadline_s: 10}
                admit: {rules: [{when: ctx.ok, then: {allow: true}}, {else: {then: {allow: false}}}]}
            tool: {kind: noop}
    """
    stage = PlaybookHarness(book(text))

    stage.advance(11)

    assert stage.error == "timeout"


# ---- workbook, waits, children ----------------------------------------------------------------------------------


def test_a_workbook_entry_runs_in_place_and_sees_its_args():
    text = """
        workload: {n: 2}
        workbook:
          add: [{name: one, kind: noop, result: "{{ args.x + 1 }}"}, {name: two, kind: http, url: "{{ one + workload.n }}"}]
        workflow:
          - {step: s, tool: [{name: a, kind: workbook, use: add, args: {x: 5}}, {kind: noop, result: "{{ [a, args] }}"}]}
    """
    stage = PlaybookHarness(book(text), {"s/a/two": "found"})

    assert stage.asked["s/a/two"]["params"]["url"] == 8
    assert stage.result == ["found", {}]


def test_a_failed_workbook_entry_is_judged_by_the_action_that_ran_it():
    text = """
        workbook: {bad: {kind: fail, message: no}}
        workflow:
          - step: s
            tool: {kind: workbook, use: bad, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {e: "{{ outcome.error.message }}"}}}}]}}}
    """
    stage = PlaybookHarness(book(text))

    assert stage.ctx == {"e": "no"}
    assert stage.result is None


def test_a_wait_for_a_time():
    stage = PlaybookHarness(pipeline("{name: a, kind: wait, for: 2h}", "{kind: noop, result: '{{ now() }}'}"))
    assert stage.waits == ["s/a"]

    stage.advance(7200)

    assert stage.result == "2023-11-15T00:13:20Z"


def test_a_wait_for_a_message_and_its_body():
    stage = PlaybookHarness(pipeline("{name: a, kind: wait, message: yes-please, timeout: 1h}"))
    assert [type(effect) for effect in stage.open.values()] == [Wait]

    stage.send("yes-please", {"by": "Ann"})

    assert stage.result == {"by": "Ann"}


def test_a_message_that_came_before_its_wait_is_kept():
    stage = PlaybookHarness(pipeline("{name: a, kind: wait, for: 1}", "{name: b, kind: wait, message: go}"))
    stage.send("go", 1)

    stage.advance(1)

    assert stage.result == 1


def test_a_message_that_does_not_come():
    assert _advanced("{name: a, kind: wait, message: go, timeout: 5}").error == "timeout"
    assert _advanced("{name: a, kind: wait, message: go, timeout: 5, on_timeout: continue}").result is None


def _advanced(action):
    stage = PlaybookHarness(pipeline(action))
    stage.advance(6)
    return stage


def test_a_workflow_is_a_child():
    stage = PlaybookHarness(pipeline("{name: a, kind: workflow, workflow: ops/restock, args: {n: '{{ 1 + 1 }}'}}"))
    (child,) = stage.children
    assert (child.workflow, child.key, decode(child.input)) == ("ops.restock", "k/s/a", {"n": 2})

    stage.answer(stage.at("s/a"), Receipt("ok", encode({"ok": 1})))

    assert stage.result == {"ok": 1}


def test_a_failed_child_is_child_failed():
    stage = PlaybookHarness(pipeline("{name: a, kind: workflow, workflow: w}"))

    stage.answer(stage.at("s/a"), Receipt("error", error=Failure("Boom", "no")))

    assert stage.error == "child_failed"


def test_a_task_is_a_child_of_the_engine():
    stage = PlaybookHarness(pipeline("{name: a, kind: task, title: Is it good?, assignee: ann, expire: 1d}"))
    (child,) = stage.children

    assert (child.workflow, child.key) == ("perdure.task", "k/@p/s/a")
    asked = decode(child.input)
    assert {key: asked[key] for key in ("name", "title", "assignee")} == {
        "name": "a",
        "title": "Is it good?",
        "assignee": "ann",
    }
    assert asked["expire"].timestamp() == stage.now / SECOND + 86_400


@pytest.mark.parametrize(
    "wrong",
    [
        "title: x",
        "title: x, users: ann",
        "title: x, users: [ann], due: soon",
        "title: x, users: [ann], quorum: {votes: 2}",
    ],
)
def test_a_task_that_cannot_be_asked_for_is_an_error_of_its_action(wrong):
    assert (
        PlaybookHarness(pipeline(f"{{name: a, kind: task, {wrong}}}".replace("users: ann", "users: '{{ 1 }}'"))).error
        == "template_error"
    )


# ---- loops ------------------------------------------------------------------------------------------------------


def loop(spec="", items="[1, 2, 3]", tool="{kind: http, url: '{{ x }}'}", more="", head="", **options):
    text = (
        f"{head}\nworkflow: [{{step: s, loop: {{in: {items}, iterator: x, spec: {{{spec}}}}}, tool: {tool}{more}}}]\n"
    )
    return PlaybookHarness(book(text), options.pop("stubs", lambda location, params: params["url"]), **options)


def test_a_loop_collects_results_in_order():
    stage = loop()

    assert stage.result == [1, 2, 3]
    assert stage.done == ["s/~0/s_task", "s/~1/s_task", "s/~2/s_task"]
    assert stage.in_flight == 1


@pytest.mark.parametrize(
    ("items", "result"),
    [
        ("[]", []),
        ("0", []),
        ("3", [0, 1, 2]),
        ("{b: 1, a: 2}", [{"key": "a", "value": 2}, {"key": "b", "value": 1}]),
        ("'{{ [4] + [5] }}'", [4, 5]),
    ],
)
def test_what_a_loop_takes(items, result):
    assert loop(items=items).result == result


@pytest.mark.parametrize("items", ["null", "true", "some text", "-1", "1.5"])
def test_what_a_loop_does_not_take(items):
    assert loop(items=items).error == "not_iterable"


def test_an_empty_loop_still_routes_once():
    stage = loop(
        items="[]",
        more=", next: [{step: t, when: event.name == 'loop.done'}]}, {step: t, tool: {kind: noop, result: '{{ steps.s.result }}'}",
    )

    assert stage.result == []


@pytest.mark.parametrize(("spec", "result"), [("collect: last", 3), ("collect: none", None)])
def test_what_is_collected(spec, result):
    assert loop(spec).result == result


def test_the_last_of_a_parallel_loop_is_that_of_the_highest_index():
    stage = loop("mode: parallel, collect: last", items="3", auto=False)
    for index in (2, 0, 1):
        id = stage.at(f"s/~{index}/s_task")
        stage.answer(id, stage.stub(stage.open[id]))

    assert stage.result == 2


def test_a_parallel_loop_is_refilled_in_order_and_keeps_its_bound():
    stage = loop("mode: parallel, max_in_flight: 2", items="7")

    assert stage.in_flight == 2
    assert stage.done == [f"s/~{index}/s_task" for index in range(7)]
    assert stage.result == list(range(7))


def test_waiting_retries_count_as_in_flight():
    tool = (
        "{kind: http, url: '{{ x }}', " + rules("{when: outcome.status == 'error', then: {do: retry, delay: 5}}") + "}"
    )
    stage = loop("mode: parallel, max_in_flight: 2", items="4", tool=tool, stubs=lambda location, params: ERROR)

    assert stage.waits == ["s/~0/s_task/backoff#1", "s/~1/s_task/backoff#1"]


def flaky(location, params):
    return ERROR if params["url"] == 2 else params["url"]


def test_one_failure_cuts_the_rest():
    stage = loop("mode: parallel, max_in_flight: 2", items="6", stubs=flaky)

    assert stage.error == "server_error"
    assert "s/~5/s_task" not in stage.done


def test_best_effort_runs_all_and_is_partial():
    more = ", next: [{step: t, when: event.name == 'loop.done', args: {l: '{{ loop }}'}}]}, {step: t, tool: {kind: noop, result: '{{ args.l }}'}"
    found = loop("policy: {failure: best_effort}", items="4", stubs=flaky, more=more).result

    assert {key: found[key] for key in ("total", "succeeded", "failed", "cancelled", "results")} == {
        **{"total": 4, "succeeded": 3, "failed": 1, "cancelled": 0},
        "results": [0, 1, None, 3],
    }
    assert [each["index"] for each in found["errors"]] == [2]


def test_sequential_iterations_see_the_writes_of_those_before():
    tool = "{kind: noop, result: '{{ ctx.n }}', set: {ctx.n: '{{ ctx.n + x }}'}}"

    assert loop(tool=tool, head="executor: {spec: {ctx: {n: {init: 0}}}}").result == [0, 1, 3]


@pytest.mark.parametrize(
    ("reduce", "init", "value"),
    [("sum", 10, 16), ("min", 2, 1), ("max", 2, 3), ("append", "[0]", [0, 1, 2, 3]), ("last", 0, 3), ("first", 0, 1)],
)
def test_parallel_writes_are_reduced(reduce, init, value):
    tool = "[{kind: http, url: '{{ x }}'}, {kind: noop, result: '{{ ctx.n }}', set: {ctx.n: '{{ x }}'}}]"
    head = f"executor: {{spec: {{ctx: {{n: {{init: {init}, reduce: {reduce}}}}}}}}}"
    stage = loop("mode: parallel", tool=tool, head=head)

    assert stage.ctx["n"] == value


def test_maps_are_merged():
    head = "executor: {spec: {ctx: {n: {init: {}, reduce: merge}}}}"

    stage = loop("mode: parallel", tool="{kind: noop, set: {ctx.n: {'a': '{{ x }}'}}}", head=head)

    assert stage.ctx["n"] == {"a": 3}


def test_parallel_writes_without_a_reducer_conflict():
    assert loop("mode: parallel", tool="{kind: noop, set: {ctx.n: '{{ x }}'}}").error == "ctx_conflict"


def test_an_iteration_sees_its_own_writes_only():
    tool = "[{kind: noop, set: {ctx.n: '{{ x }}'}}, {kind: http, url: '{{ ctx.n }}'}]"
    head = "executor: {spec: {ctx: {n: {init: 0, reduce: sum}}}}"
    stage = loop("mode: parallel", tool=tool, head=head)

    assert stage.result == [1, 2, 3]
    assert stage.ctx["n"] == 6


def test_the_iterator_knows_where_it_is():
    tool = "{kind: noop, result: '{{ [iter.index, iter.count, iter.first, iter.last] }}'}"

    assert loop(tool=tool, items="2").result == [[0, 2, True, False], [1, 2, False, True]]


def test_step_args_are_made_for_each_iteration():
    assert loop(tool="{kind: noop, result: '{{ args.y }}'}", more=", args: {y: '{{ x * 10 }}'}").result == [10, 20, 30]


def test_a_loop_of_many_noops_goes_on_in_pieces():
    stage = loop(items="2500", tool="{kind: noop, result: 1}")

    assert len(stage.result) == 2500
    assert len(stage.decisions) == 3


def test_too_many_iterations_are_an_error():
    assert loop(items="11", head="executor: {spec: {limits: {max_iterations: 10}}}").error == "limit_exceeded"


@pytest.mark.parametrize(
    "action",
    [
        "{kind: noop, result: ['{{ args.t }}']}",
        "{kind: fail, message: '{{ args.t }}'}",
        "{kind: noop, set: {ctx.t: '{{ args.t }}'}}",
        "{kind: http, url: x, spec: {policy: {rules: [{else: {then: {do: fail, error: '{{ args.t }}'}}}]}}}",
    ],
)
def test_a_secret_that_comes_by_args_of_the_workbook_is_never_kept(action):
    text = f"""
        keychain: [{{name: k, map: {{t: depot}}}}]
        workbook: {{w: {action}, v: [{{kind: http, url: x}}, {{kind: http, url: x, headers: {{a: "{{{{ args.t }}}}"}}}}]}}
        workflow:
          - {{step: s, tool: {{kind: workbook, use: v, args: {{t: "{{{{ keychain.k.t }}}}"}}}}, next: a}}
          - {{step: a, tool: {{kind: workbook, use: w, args: {{t: "{{{{ keychain.k.t }}}}"}}}}}}
    """

    stage = PlaybookHarness(book(text), lambda location, params: 1)

    assert stage.asked["s/s_task/task_1"]["secrets"] == [[["headers", "a"], [{"secret": "depot"}]]]
    assert stage.error == "template_error"


# ---- large values -----------------------------------------------------------------------------------------------

BIG = {"rows": [{"id": n} for n in range(200)], "total": 200}
REF = {
    "ref": {
        "blob": {"hash": "d1", "size": 99999},
        "length": 2,
        "content_type": "application/json",
        "preview": "{",
        "fields": {"total": 200},
    }
}


def kept(location, params):
    """A tool whose result is stored, and the executor that reads and stores values."""
    if "&read" in location:
        if params.get("slice"):
            first, last = params["slice"]
            return {"result": list(range(1000))[first:last]}
        value: Any = BIG
        for key in params["path"]:
            if key == "gone":
                return {"absent": True}
            value = value[key]
        return {"result": value}
    if "&put" in location:
        return {"ref": {"blob": {"hash": "put1", "size": len(params["data"])}}}
    return REF


def test_a_stored_value_is_read_where_an_expression_looks_into_it():
    stage = PlaybookHarness(
        pipeline("{name: a, kind: http, url: x}", "{kind: noop, result: '{{ a.rows[3].id }}'}"), kept
    )

    assert stage.result == 3
    assert stage.done == ["s/a", "s/task_1/&read#1"]
    assert stage.asked["s/task_1/&read#1"]["params"] == {"digest": "d1", "path": ["rows", 3, "id"]}


def test_what_a_stored_value_does_not_have_is_missing():
    stages = [
        PlaybookHarness(pipeline("{name: a, kind: http, url: x}", f"{{kind: noop, result: '{{{{ {text} }}}}'}}"), kept)
        for text in ("a.gone | default(4)", "a.rows[3].gone is defined", "steps.s.gone is defined")
    ]
    failed = PlaybookHarness(pipeline("{name: a, kind: http, url: x}", "{kind: noop, result: '{{ a.gone }}'}"), kept)

    assert [stage.result for stage in stages] == [4, False, False]
    assert failed.error == "template_error"


def test_the_result_of_an_instance_may_look_into_a_stored_value():
    result = "executor: {spec: {result: '{{ steps.s.result.rows | length }} {{ steps.s.result.rows[3].id }}'}}"

    stage = PlaybookHarness(pipeline("{name: a, kind: http, url: x}", head=result), kept)

    assert stage.result == "200 3"


def test_a_value_that_doubles_with_each_run_is_refused():
    tool = "tool: {kind: noop, result: '{{ steps }}'}"
    text = f"""
        executor: {{spec: {{limits: {{max_payload_bytes: 300, max_result_bytes: 3000}}}}}}
        workflow:
          - {{step: a, {tool}, next: b}}
          - {{step: b, {tool}, next: [{{step: a, when: event.run < 60}}]}}
    """

    assert PlaybookHarness(book(text), kept).error == "limit_exceeded"


def test_selected_fields_need_no_read():
    stage = PlaybookHarness(pipeline("{name: a, kind: http, url: x}", "{kind: noop, result: '{{ a.total }}'}"), kept)

    assert stage.result == 200
    assert stage.done == ["s/a"]


def test_a_stored_value_is_passed_whole_by_reference():
    stage = PlaybookHarness(
        pipeline("{name: a, kind: http, url: x}", "{name: b, kind: http, url: y, json: '{{ a }}'}"), kept
    )

    assert stage.asked["s/b"]["params"]["json"] is None
    assert stage.asked["s/b"]["refs"][0][0] == ["json"]
    assert stage.done == ["s/a", "s/b", "result/&read#1"]


def test_the_result_of_an_instance_has_its_stored_values_whole():
    """Given a leaf with a stored result, when the instance ends, then its parent gets the value and no reference."""
    leaf = PlaybookHarness(pipeline("{name: a, kind: http, url: x}"), kept)
    own = "executor: {spec: {result: {all: '{{ steps.s.result }}'}}}"
    named = PlaybookHarness(pipeline("{name: a, kind: http, url: x}", head=own), kept)

    assert leaf.result == BIG
    assert named.result == {"all": BIG}
    assert leaf.published["summary"]["results"]["s"]["$ref"] == "d1"


def test_a_result_with_more_stored_bytes_than_one_result_may_have_keeps_its_references():
    head = "executor: {spec: {limits: {max_result_bytes: 99998}}}"

    assert PlaybookHarness(pipeline("{name: a, kind: http, url: x}", head=head), kept).result["$ref"] == "d1"


def test_a_stored_result_that_is_gone_fails_the_instance():
    def gone(location, params):
        return Receipt("error", error=Failure("LookupError", "gone")) if "&read" in location else REF

    assert PlaybookHarness(pipeline("{name: a, kind: http, url: x}"), gone).error == "ref_missing"


def test_a_guard_may_read_a_stored_value():
    text = """
        workflow:
          - {step: a, tool: {kind: http, url: x}, next: [{step: b, when: outcome.result.rows | length > 100}, {step: c}]}
          - {step: b, tool: {kind: noop, result: many}}
          - {step: c, tool: {kind: noop, result: few}}
    """

    assert PlaybookHarness(book(text), kept).result == "many"


def test_a_stored_list_is_looped_over_in_slices():
    def stubs(location, params):
        if location == "a/a_task":
            return {"ref": {"blob": {"hash": "list", "size": 99999}, "length": 1000}}
        return kept(location, params)

    text = """
        workflow:
          - {step: a, tool: {kind: http, url: x}, next: b}
          - {step: b, loop: {in: "{{ a }}", iterator: x}, tool: {kind: noop, result: "{{ x }}"}}
    """
    stage = PlaybookHarness(book(text), stubs)

    assert stage.result == list(range(1000))
    assert len([each for each in stage.done if "&read" in each]) == 16


def test_a_parallel_loop_over_a_stored_list_reads_each_slice_once():
    def stubs(location, params):
        if location == "a/a_task":
            return {"ref": {"blob": {"hash": "list", "size": 99999}, "length": 200}}
        return kept(location, params) if "&read" in location else params["url"]

    text = """
        workflow:
          - {step: a, tool: {kind: http, url: x}, next: b}
          - {step: b, loop: {in: "{{ a }}", iterator: x, spec: {mode: parallel, max_in_flight: 5}}, tool: {kind: http, url: "{{ x }}"}}
    """
    stage = PlaybookHarness(book(text), stubs)

    assert stage.result == list(range(200))
    assert len([each for each in stage.done if "&read" in each]) == 4


def test_the_args_of_an_iteration_may_look_into_a_stored_value():
    text = """
        workflow:
          - {step: a, tool: {kind: http, url: x}, next: b}
          - {step: b, args: {row: "{{ a.rows[iter.index + 1] }}"}, loop: {in: 3, iterator: x}, tool: {kind: noop, result: "{{ args.row.id }}"}}
    """

    assert PlaybookHarness(book(text), kept).result == [1, 2, 3]


def test_a_large_value_that_an_expression_makes_is_stored_first():
    text = """
        workload: {text: abc}
        executor: {spec: {limits: {max_payload_bytes: 100}}}
        workflow:
          - {step: a, next: [{step: b, args: {big: "{{ range(200) | list }}"}}]}
          - {step: b, tool: {kind: http, url: x, json: "{{ args.big }}"}}
    """
    stage = PlaybookHarness(book(text), kept)

    assert stage.done[:2] == ["a/&put#1", "b/b_task"]
    assert stage.asked["b/b_task"]["refs"][0][1]["blob"]["hash"] == "put1"


@pytest.mark.parametrize(
    "step",
    [
        "{step: s, tool: {name: a, kind: python, args: {all: '{{ range(50) | list }}'}, code: x}}",
        "{step: s, args: {all: '{{ range(50) | list }}'}, loop: {in: 2}, tool: {name: a, kind: python, args: {all: '{{ args.all }}'}, code: x}}",
    ],
)
def test_large_args_of_actions_and_iterations_are_stored_first(step):
    stage = PlaybookHarness(
        book(f"executor: {{spec: {{limits: {{max_payload_bytes: 40}}}}}}\nworkflow: [{step}]"),
        lambda location, params: kept(location, params) if "&" in location else {"result": 1},
    )

    assert "&put" in stage.done[0]
    assert [path for path, _ in stage.asked[stage.done[-1]]["refs"]] == [["args", "all"]]
    assert stage.result in (1, [1, 1])


def test_a_stored_value_that_is_gone_is_an_error_of_what_reads_it():
    def gone(location, params):
        return Receipt("error", error=Failure("LookupError", "gone")) if "&read" in location else REF

    assert (
        PlaybookHarness(pipeline("{name: a, kind: http, url: x}", "{kind: noop, result: '{{ a.rows }}'}"), gone).error
        == "ref_missing"
    )


def test_data_of_users_that_looks_like_a_reference_is_data():
    stage = PlaybookHarness(
        pipeline("{name: a, kind: http, url: x}", "{kind: noop, result: '{{ a }}'}"),
        {"s/a": {"result": {"$ref": "d1"}}},
    )

    assert stage.result == {"$ref": "d1"}


def test_data_with_braces_stays_data():
    stage = PlaybookHarness(
        pipeline("{name: a, kind: http, url: x}", "{name: b, kind: http, url: '{{ a }}!'}"),
        {"s/a": "{{ 1 + 1 }}", "s/b": 1},
    )

    assert stage.asked["s/b"]["params"]["url"] == "{{ 1 + 1 }}!"
