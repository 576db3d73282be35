"""Steps, branches, loops, joins, errors and undo, in the machine alone. Each delivery is replayed and snapshotted."""

from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import pytest

from perdure.kernel.backoff import Backoff
from perdure.processes import (
    Activate,
    Call,
    Choose,
    Complete,
    ContinueWith,
    Decide,
    Fail,
    Parallel,
    Receive,
    Reference,
    Repeat,
    Set,
    SetReference,
    SubProcess,
    Task,
    Timer,
    error,
    fn,
    http,
    index,
    item,
    loop,
    message,
    meta,
    payload,
    python,
    queue,
    reference,
    result,
    service,
    start,
    state,
    task,
    tasks,
)
from perdure.processes.machine import ProcessMachine
from tests.processes.rig import EPOCH, Rig
from tests.processes.shop import purchase

ORDER = {"order_id": "o-17", "company": "acme", "amount": "900", "lines": [{"sku": "a", "count": 2}]}
HOURS = timedelta(hours=1)


def call(name: str, *args: Any, **more: Any) -> Call:
    return Call(name, service("erp", name), *args, **more)


def test_the_example_of_the_page_runs_to_its_end():
    rig = Rig(purchase).start(**ORDER)

    assert rig.locations == ["checks/budget/budget", "checks/stock/lines/~0/reserve"]
    assert dict(rig.last.tags) == {"reference": "o-17", "reference.company": "acme"}
    rig.ok("checks/budget/budget", {"free": "5000"})
    rig.ok("checks/stock/lines/~0/reserve", "r-a")
    assert rig.last.noted == ("join checks", "branch ask/then")
    asked = rig.payload("ask/then/approve")
    assert (asked["title"], asked["roles"], asked["exclude"]) == ("Approve order o-17", ["manager"], ["bob"])
    rig.complete("ask/then/approve", "approve", {"outcome": "approve", "comment": ""})
    rig.ok("order", {"number": "B-1"})
    assert rig.locations == ["delivery"]
    rig.send("delivered")

    assert rig.output == {"late": False, "order": "B-1"}


def test_a_refused_purchase_frees_every_line_newest_first():
    lines = [{"sku": sku, "count": 1} for sku in "abc"]
    rig = Rig(purchase).start(**{**ORDER, "lines": lines})
    rig.ok("checks/budget/budget")
    for number in range(3):
        rig.ok(f"checks/stock/lines/~{number}/reserve", f"r-{number}")
    rig.complete("ask/then/approve", "reject")

    for number in (2, 1, 0):
        assert rig.locations == [f"checks/stock/lines/~{number}/reserve/undo/free"]
        assert rig.payload(rig.locations[0]) == {"reservation": f"r-{number}"}
        rig.ok(rig.locations[0])

    assert (rig.status, rig.failure) == ("failed", "rejected: not approved")


# ---- state and conditions ------------------------------------------------------------------------------------------


def test_the_next_step_sees_what_was_set_and_null_may_be_skipped():
    rig = Rig(
        Set("a.b", 1),
        Set("a.c", state.a.b + 1),
        Set("a.b", None, if_value=True),
        Set("whole", state.a),
        Set("a.b", 5),
        Complete(state),
        state={"a": {"x": start.n}},
    ).start(n=7)

    assert rig.output == {"a": {"x": 7, "b": 5, "c": 2}, "whole": {"x": 7, "b": 1, "c": 2}}


def test_a_condition_that_is_no_boolean_stops_at_its_step_and_is_settled_with_one():
    rig = Rig(Decide("d", start.flag, [Set("x", 1)], [Set("x", 2)]), Complete(state.x)).start(flag=None)

    assert rig.stuck == "d"
    assert rig.stuck_with.type == "condition"
    rig.settle("d", False)

    assert rig.output == 2


def test_the_first_true_case_is_taken_and_noted():
    steps = Choose(
        "size",
        {"small": (start.n < 10, [Set("x", "s")]), "middle": (start.n < 100, [Set("x", "m")])},
        [Set("x", "l")],
    )

    for number, expected in ((5, "s"), (50, "m"), (500, "l")):
        rig = Rig(steps, Complete(state.x)).start(n=number)
        assert rig.output == expected
    assert rig.last.noted == ("branch size/otherwise", "end complete")


def test_an_expression_error_names_its_text_and_a_set_is_settled_with_its_value():
    rig = Rig(Set("x", start.a + 1), Complete(state.x)).start(a="text")

    assert rig.stuck == "x"
    assert "start.a + 1" in rig.stuck_with.message
    rig.settle("x", 41)

    assert rig.output == 41


def test_a_state_above_its_limit_is_an_error_at_its_step():
    rig = Rig(Set("x", start.big), Set("y", 1), limits={"state_bytes": 100}).start(big="a" * 200)

    assert (rig.stuck, rig.stuck_with.type) == ("x", "state-limit")


def test_a_reference_can_change_and_is_not_null():
    rig = Rig(
        SetReference(start.number, site="B"),
        call("a", reference),
        SetReference(None),
        reference=Reference(start.order, company="acme"),
    ).start(order="o-1", number="n-2")

    assert dict(rig.last.tags) == {"reference": "n-2", "reference.site": "B", "reference.company": None}
    assert rig.payload("a") == {"key": "n-2", "site": "B"}
    rig.ok("a")
    assert rig.stuck == "set_reference.2"


def test_meta_has_what_is_known_of_the_instance():
    rig = Rig(Complete(meta)).start()

    assert rig.output == {
        "workflow": "test",
        "version": "1.0.0",
        "instance": "test/k",
        "key": "k",
        "entry": 1,
        "now": EPOCH,
        "started_by": "bob",
    }


# ---- calls ---------------------------------------------------------------------------------------------------------


def test_a_call_carries_its_parameters():
    rig = Rig(
        call("a", {"x": start.n}),
        Call("b", python("shop:reserve"), {"sku": "s"}),
        Call("c", http("GET", fn.concat("https://x/", start.id), {"X-Id": start.id})),
        Call("d", queue("gpu", "shop:reserve"), {"sku": "s"}, once=True, on_unknown=[]),
    ).start(n=3, id="7")

    assert rig.payload("a") == {"x": 3}
    rig.ok("a")
    assert rig.payload("b") == {"sku": "s"}
    rig.ok("b")
    assert rig.effect("c").executor == "effects"
    rig.ok("c")
    assert rig.effect("d").executor == "gpu"
    assert rig.effect("d").deliveries_max == 1
    assert rig.locations == ["d", "d/deadline"]
    rig.ok("d")
    assert rig.status == "completed"


def test_a_failed_attempt_is_tried_again_after_a_recorded_pause():
    rig = Rig(
        call("a", start.n, retries=2, backoff=Backoff(base=2), on_failure=[Set("why", error.code)]), Complete(state.why)
    )
    rig.start(n=1)

    rig.error("a", "TransportError", "busy", data={"code": "busy", "data": None})
    assert rig.locations == ["a/backoff#1"]
    rig.fire("a/backoff#1")
    assert (rig.effect("a").attempt, rig.payload("a")) == (2, 1)
    rig.error("a", "TransportError", "busy", data={"code": "busy", "data": None})
    assert rig.effect("a/backoff#2").due - rig.at == 4_000_000_000
    rig.fire("a/backoff#2")
    rig.error("a", "TransportError", "busy", data={"code": "busy", "data": None})

    assert rig.output == "busy"


def test_an_error_that_says_so_is_not_tried_again():
    rig = Rig(call("a", on_failure=[]), Complete("went on")).start()

    rig.error("a", retry=False)

    assert rig.output == "went on"


def test_retry_if_sees_the_error():
    rig = Rig(call("a", retry_if=error.code == "busy", on_failure=[Complete(error.message)])).start()

    rig.error("a", "ValueError", "no")

    assert rig.output == "ValueError: no"


def test_failure_timeout_and_unknown_take_their_own_branches():
    step = call("a", once=True, on_failure=[Complete("f")], on_timeout=[Complete("t")], on_unknown=[Complete("u")])

    for status, expected in (("timeout", "t"), ("unknown", "u"), ("error", "f"), ("cancelled", "f")):
        rig = Rig(step).start()
        if status == "error":
            rig.error("a", retry=False)
        else:
            rig.receipt("a", status)
        if status == "cancelled":
            for number in (1, 2, 3):
                rig.fire(f"a/backoff#{number}")
                rig.receipt("a", "cancelled")
        assert rig.output == expected


def test_a_timeout_without_its_branch_takes_the_one_for_failures():
    rig = Rig(call("a", on_failure=[Complete(error["class"])])).start()

    rig.receipt("a", "timeout")

    assert rig.output == "timeout"


def test_a_call_that_kills_its_process_is_exhausted():
    rig = Rig(call("a", on_failure=[Complete(error.code)])).start()

    rig.receipt("a", "unknown")

    assert rig.output == "exhausted"


def test_the_timeout_spans_attempts_and_pauses():
    rig = Rig(
        call(
            "a",
            retries=9,
            backoff=Backoff(base=20),
            timeout=timedelta(seconds=50),
            on_timeout=[Complete(error.data.code)],
        )
    ).start()

    rig.later(seconds=25)
    rig.error("a")
    rig.fire("a/backoff#1")
    assert rig.effect("a").timeout == 5_000_000_000, "an attempt gets what is left"
    rig.later(seconds=1)
    rig.error("a")

    assert rig.output == "exception"


def test_a_call_on_a_queue_that_nobody_serves_ends_at_its_deadline():
    rig = Rig(Call("a", queue("gpu", "m:f"), on_timeout=[Complete("late")])).start()

    rig.fire("a/deadline")

    assert rig.output == "late"


def test_a_value_that_does_not_fit_is_an_error():
    rig = Rig(call("a", returns=int, result="n", on_failure=[Complete(error.code)]), Complete(result.n)).start()
    rig.ok("a", "text")
    assert rig.output == "returns"

    rig = Rig(call("a", returns={"type": "string", "format": "date"}, result="n"), Complete(result.n)).start()
    rig.ok("a", "2030-01-01")
    assert rig.output == datetime(2030, 1, 1, tzinfo=UTC).date()


def test_a_call_that_stopped_is_retried_with_the_next_attempt_or_settled():
    rig = Rig(call("a", retries=0, result="x"), Complete(result.x)).start()

    rig.error("a")
    assert rig.stuck == "a"
    rig.retry()
    assert (rig.stuck, rig.effect("a").attempt) == ("", 2)
    rig.error("a")
    assert rig.stuck == "a"
    rig.settle("a", 7)

    assert rig.output == 7


def test_a_step_that_is_settled_with_an_error_takes_its_branch():
    rig = Rig(call("a", once=True, on_failure=[Complete("failed")])).start()

    rig.receipt("a", "unknown")
    assert rig.stuck == "a"
    rig.settle("a", error="it did not happen")

    assert rig.output == "failed"


# ---- loops ---------------------------------------------------------------------------------------------------------


def test_a_loop_keeps_its_list_when_the_state_changes():
    rig = Rig(
        Repeat("r", [Set("list", [9, 9, 9, 9]), call("a", item)], over=state.list, collect=index),
        Complete(result.r),
        state={"list": [1, 2]},
    ).start()

    assert rig.payload("r/~0/a") == 1
    rig.ok("r/~0/a")
    assert rig.payload("r/~1/a") == 2
    rig.ok("r/~1/a")

    assert rig.output == [0, 1]


@pytest.mark.parametrize("over", [None, []])
def test_null_and_empty_are_no_turn(over: Any):
    rig = Rig(Repeat("r", [call("a")], over=start.list, collect=1), Complete(result.r)).start(list=over)

    assert rig.output == []


def test_while_is_asked_before_and_until_after_each_turn():
    rig = Rig(
        Repeat("w", [Set("n", state.n + 1)], while_=state.n < 3),
        Repeat("u", [Set("n", state.n + 10)], until=state.n > 0),
        Repeat("t", [Set("n", state.n + 100)], times=2),
        Complete(state.n),
        state={"n": 0},
    ).start()

    assert rig.output == 213


def test_a_turns_results_are_its_own():
    rig = Rig(
        call("a", result="x"),
        Repeat("r", [Decide("first", index == 0, [call("b", result="x")]), Set("seen", result.x)], times=2),
        Complete({"x": result.x, "seen": state.seen}),
    ).start()

    rig.ok("a", "outer")
    rig.ok("r/~0/first/then/b", "inner")

    assert rig.output == {"x": "outer", "seen": "outer"}


def test_an_inner_loop_sees_the_outer_one_by_its_name():
    rig = Rig(
        Repeat(
            "rows",
            [Repeat("r", [call("a", [loop.row.item, item, loop.r.index])], over=[1, 2])],
            over=["x", "y"],
            as_="row",
        )
    ).start()

    seen = []
    while not rig.status:
        seen.append(rig.payload(rig.locations[0]))
        rig.ok(rig.locations[0])

    assert seen == [["x", 1, 0], ["x", 2, 1], ["y", 1, 0], ["y", 2, 1]]


def test_a_loop_above_its_limit_is_an_error():
    rig = Rig(Repeat("r", [Set("x", 1)], times=start.n, limit=3)).start(n=4)
    assert (rig.stuck, rig.stuck_with.type) == ("r", "iteration-limit")

    rig = Rig(Repeat("r", [Set("x", 1)], while_=True, limit=3)).start()
    assert (rig.stuck, rig.stuck_with.type) == ("r", "iteration-limit")


def test_an_endless_pure_loop_stops_alone():
    rig = Rig(
        Parallel("p", {"loop": [Repeat("r", [Set("x", 1)], while_=True, limit=1_000_000)], "other": [call("a")]}),
    ).start()

    assert rig.stuck_with.type == "slice-limit"
    assert rig.locations == ["p/other/a"]


def test_turns_at_once_collect_in_index_order():
    rig = Rig(
        Repeat("r", [call("a", item, result="x")], over=[1, 2, 3], at_once=2, collect=result.x), Complete(result.r)
    )
    rig.start()

    assert rig.locations == ["r/~0/a", "r/~1/a"]
    rig.ok("r/~1/a", "one")
    assert rig.locations == ["r/~0/a", "r/~2/a"]
    rig.ok("r/~2/a", "two")
    rig.ok("r/~0/a", "zero")

    assert rig.output == ["zero", "one", "two"]


def test_a_value_that_does_not_fit_the_schema_of_the_state_stops_its_step():
    schema = {"type": "object", "properties": {"n": {"type": "object", "properties": {"m": {"type": "integer"}}}}}
    rig = Rig(Set("n.m", start.a), Set("free", start.a), Complete(state), state_schema=schema).start(a="text")

    assert rig.stuck == "n.m" and "state.n.m does not fit its schema" in rig.stuck_with.message
    rig.settle("n.m", 7)
    assert rig.output == {"n": {"m": 7}, "free": "text"}
    assert Rig(Set("n.m", start.a), Complete(state), state_schema=schema).start().output == {"n": {"m": None}}
    assert Rig(Complete(1), state={"n": 1}, state_schema=schema).start().status == "failed"


def test_a_join_ends_turns_one_after_the_other_too():
    rig = Rig(Repeat("r", [Set("n", state.n + item)], over=[1, 2, 3, 4], join=2), Complete(state.n), state={"n": 0})

    assert rig.start().output == 3


def test_turns_that_a_join_does_not_need_never_begin():
    rig = Rig(Repeat("r", [call("a", item)], over=[1, 2, 3, 4], at_once=2, join="any"), Complete("done")).start()

    rig.ok("r/~1/a")

    assert rig.output == "done"


def test_rework_opens_a_new_round_each_turn():
    rig = Rig(
        Repeat("review", [Activate("check"), call("fix", payload)], until=tasks.check.outcome == "fine"),
        Complete(task),
        tasks=[
            Task("check", roles=["r"], answer={"type": "object", "properties": {"outcome": {"enum": ["fine", "bad"]}}})
        ],
    ).start()

    rig.complete("review/~0/check", "bad", {"why": "x"})
    assert rig.payload("review/~0/fix") == {"why": "x"}
    rig.ok("review/~0/fix")
    rig.complete("review/~1/check", "fine")
    rig.ok("review/~1/fix")

    assert rig.output["outcome"] == "fine"


# ---- branches side by side -----------------------------------------------------------------------------------------


def test_three_tasks_of_one_parallel_end_in_any_order():
    names = ["x", "y", "z"]
    rig = Rig(
        Parallel("p", {name: [Activate(name)] for name in names}),
        Complete({"join": result.p, "by": tasks.y.by}),
        tasks=[Task(name, roles=["r"]) for name in names],
    ).start()

    for name in ("z", "x", "y"):
        rig.complete(f"p/{name}/{name}", by=f"by-{name}")

    assert rig.output == {"join": {"first": "z", "ended": ["z", "x", "y"], "dropped": []}, "by": "by-y"}


def test_join_any_drops_the_losers_and_what_they_had_open():
    rig = Rig(
        Parallel("p", {"a": [call("a")], "b": [Timer("t", after=HOURS)], "c": [Receive("m", "m")]}, join="any"),
        call("z"),
    )
    rig.start()

    rig.ok("p/a/a")

    assert rig.locations == ["z"]
    assert rig.machine.life.scope.results["p"] == {"first": "a", "ended": ["a"], "dropped": ["b", "c"]}


def test_a_join_of_so_many():
    rig = Rig(Parallel("p", {name: [call(name)] for name in "abc"}, join=2), call("z")).start()

    rig.ok("p/c/c")
    assert rig.locations == ["p/a/a", "p/b/b"]
    rig.ok("p/a/a")

    assert rig.locations == ["z"]


def test_a_branch_error_cancels_its_siblings():
    rig = Rig(
        Parallel(
            "p",
            {"a": [call("a", retries=0)], "b": [Repeat("r", [call("b")], times=3, at_once=3)]},
            on_failure=[call("c", error)],
        ),
    ).start()

    rig.error("p/a/a", "ValueError", "no")

    assert rig.locations == ["p/on_failure/c"]
    told = rig.payload("p/on_failure/c")
    assert (told["code"], told["branch"], len(told["all"])) == ("exception", "a", 1)


def test_with_wait_the_siblings_end_before_the_error_goes_on():
    rig = Rig(
        Parallel(
            "p", {"a": [call("a", retries=0)], "b": [call("b")]}, on_error="wait", on_failure=[Complete(error.branch)]
        ),
    ).start()

    rig.error("p/a/a")
    assert rig.locations == ["p/b/b"]
    rig.ok("p/b/b")

    assert rig.output == "a"


def test_an_error_goes_through_inner_parallels_to_the_one_that_takes_it():
    rig = Rig(
        Parallel(
            "outer",
            {"x": [Parallel("inner", {"a": [call("a", retries=0)], "b": [call("b")]})], "y": [call("y")]},
            on_failure=[Complete(error.location)],
        ),
    ).start()

    rig.error("outer/x/inner/a/a")

    assert rig.output == "outer/x/inner/a/a"


def test_a_stuck_branch_is_retried_and_settled_while_others_go_on():
    rig = Rig(Parallel("p", {"a": [call("a", retries=0)], "b": [call("b"), call("c")]}), Complete("end")).start()

    rig.error("p/a/a")
    assert (rig.stuck, rig.locations) == ("p/a/a", ["p/b/b"])
    rig.ok("p/b/b")
    assert (rig.stuck, rig.locations) == ("p/a/a", ["p/b/c"])
    rig.retry()
    assert (rig.stuck, rig.locations) == ("", ["p/a/a", "p/b/c"])
    rig.error("p/a/a")
    rig.ok("p/b/c")
    assert (rig.stuck, rig.locations) == ("p/a/a", [])
    rig.settle("p/a/a")

    assert rig.output == "end"


def test_several_that_stopped_are_settled_oldest_first():
    rig = Rig(Parallel("p", {name: [call(name, retries=0)] for name in "ab"}), Complete("end")).start()

    rig.error("p/b/b")
    rig.error("p/a/a")
    assert rig.stuck == "p/b/b"
    rig.settle("p/b/b")
    assert rig.stuck == "p/a/a"
    rig.settle("p/a/a")

    assert rig.output == "end"


def test_complete_and_fail_in_a_branch_end_the_whole_process():
    for step, status in ((Complete(1), "completed"), (Fail("no"), "failed")):
        rig = Rig(Parallel("p", {"a": [call("a"), step], "b": [call("b")]})).start()
        rig.ok("p/a/a")
        assert (rig.status, rig.locations) == (status, [])


# ---- waits ---------------------------------------------------------------------------------------------------------


def test_a_past_timer_goes_on_at_once():
    rig = Rig(Timer("t", at=datetime(2020, 1, 1, tzinfo=UTC)), Timer("z", after=timedelta(0)), call("a")).start()

    assert rig.locations == ["a"]
    assert rig.last.noted == ("timer t", "timer z")


@pytest.mark.parametrize("value", [None, "tomorrow", timedelta(seconds=-1)])
def test_a_timer_without_a_duration_is_an_error(value: Any):
    rig = Rig(Timer("t", after=start.after), Complete(1)).start(after=value)

    assert rig.stuck == "t"
    rig.settle("t", timedelta(0))
    assert rig.output == 1


def test_a_timer_is_woken():
    rig = Rig(Timer("t", after=HOURS), Complete(1)).start()

    rig.wake("t")

    assert rig.output == 1


def test_an_early_message_waits_for_its_receive():
    rig = Rig(
        call("a"), Receive("m", "paid", result="paid"), Complete({"b": result.paid, "p": payload, "id": message.id})
    )
    rig.start()

    assert not rig.send("paid", 5, "m-1")
    rig.ok("a")

    assert rig.output == {"b": 5, "p": 5, "id": "m-1"}


def test_a_message_that_does_not_match_is_kept_for_another_receive():
    rig = Rig(
        Parallel(
            "p",
            {
                "a": [Receive("a", "paid", match=message.body.who == "ann", result="a")],
                "b": [Receive("b", "paid", match=message.body.who == "bob", result="b")],
            },
        ),
        Receive("rest", "paid", result="rest"),
        Complete([result.a.n, result.b.n, result.rest.n]),
    ).start()

    rig.send("paid", {"who": "eve", "n": 1})
    rig.send("paid", {"who": "bob", "n": 2})
    assert rig.locations == ["p/a/a"]
    rig.send("paid", {"who": "ann", "n": 3})

    assert rig.output == [3, 2, 1]


def test_a_message_may_be_bound_to_one_wait():
    rig = Rig(Parallel("p", {name: [Receive(name, "m", result=name)] for name in "ab"}), Complete(result.b)).start()

    rig.send("m", 1, intent=rig.id("p/b/b"))
    assert rig.locations == ["p/a/a"]
    rig.send("m", 2)

    assert rig.output == 1


def test_a_message_that_nothing_receives_or_that_does_not_fit_is_refused():
    rig = Rig(Receive("m", "paid", schema={"type": "integer"}, result="x"), Complete(result.x)).start()

    assert "did you mean paid?" in rig.send("payd", 1)
    assert "does not fit" in rig.send("paid", "text")
    assert not rig.send("paid", 3)
    assert rig.output == 3


def test_at_most_a_thousand_messages_are_kept():
    rig = Rig(call("a"), Receive("m", "m")).start()
    rig.machine.life.mailbox = [{"id": "", "name": "m", "body": None}] * 1000
    moment = rig.history[-1][1]

    from perdure.kernel.events import Message

    decision = rig.machine.deliver(Message("m", b"\xd9\xd9\xf7\xf6"), moment)

    assert decision.reply is not None and "1,000 messages" in decision.reply.refused


def test_a_receive_that_times_out_leaves_null_or_takes_its_branch():
    rig = Rig(Receive("m", "m", result="x", timeout=HOURS), Complete(result)).start()
    rig.fire("m")
    assert rig.output == {"x": None}

    rig = Rig(Receive("m", "m", timeout=HOURS, on_timeout=[Complete(error.code)])).start()
    rig.fire("m")
    assert rig.output == "timeout"


def test_an_expired_or_cancelled_task_takes_its_branch():
    step = Activate("t", on_timeout=[Complete("late")], on_cancel=[Complete("gone")])
    people = [Task("t", roles=["r"])]

    rig = Rig(step, tasks=people).start()
    rig.error("t", "TaskExpired", "too late")
    assert rig.output == "late"
    rig = Rig(step, tasks=people).start()
    rig.receipt("t", "cancelled")
    assert rig.output == "gone"
    rig = Rig(Activate("t"), tasks=people).start()
    rig.receipt("t", "cancelled")
    assert rig.stuck == "t"
    rig.retry()
    assert rig.locations == ["t#2"], "a task that is opened again has an intent of its own"


def test_a_task_has_the_roles_of_its_process_and_the_reference():
    rig = Rig(
        Activate("t"),
        tasks=[Task("t", users=["eve"], priority=80, labels={"a": "b"}, due=HOURS)],
        roles=["all"],
        managers=["boss"],
        reference=Reference("r-1"),
    ).start()

    asked = rig.payload("t")
    assert (asked["roles"], asked["users"], asked["managers"]) == (["all"], ["eve"], ["boss"])
    assert (asked["reference"], asked["priority"], asked["due"]) == ("r-1", 80, EPOCH + HOURS)


def test_a_task_that_nobody_can_complete_when_it_is_asked_for_stops():
    rig = Rig(Activate("t"), tasks=[Task("t", roles=start.roles)]).start(roles=[])

    assert (rig.stuck, rig.stuck_with.type) == ("t", "task")


# ---- other instances -----------------------------------------------------------------------------------------------


def test_a_child_answers_and_its_failure_is_an_error():
    rig = Rig(
        SubProcess("s", "other", {"n": start.n}, result="x", on_failure=[Complete(error.code)]), Complete(result.x)
    )

    rig.start(n=1)
    assert rig.effect("s").key == "k/s"
    assert rig.payload("s") == {"n": 1}
    rig.ok("s", 7)
    assert rig.output == 7

    rig = Rig(rig.process).start(n=1)
    rig.error("s", "rejected", "no")
    assert rig.output == "rejected"


def test_a_child_that_takes_too_long_is_dropped():
    rig = Rig(SubProcess("s", "other", timeout=HOURS, on_timeout=[call("a")])).start()

    rig.fire("s/deadline")

    assert rig.locations == ["s/on_timeout/a"]


def test_continue_with_goes_on_when_the_start_is_recorded():
    rig = Rig(ContinueWith("next", "other", {"n": 1}, key=fn.concat("x-", start.id)), Complete("handed over")).start(
        id="7"
    )

    assert (rig.effect("next").key, rig.effect("next").detached) == ("x-7", True)
    rig.ok("next", "x-7")
    assert rig.output == "handed over"


def test_a_refused_continue_with_fails_its_step():
    rig = Rig(ContinueWith("next", "other", on_failure=[Complete(error.code)])).start()

    rig.error("next", "ChildRefused", "no such workflow")

    assert rig.output == "ChildRefused"


# ---- ends ----------------------------------------------------------------------------------------------------------


def test_undo_runs_newest_first_through_loops_branches_and_dropped_ones():
    undone = [Call("u", service("erp", "undo"), [result.x, item])]
    rig = Rig(
        call("a", result="x", undo=[call("u", result.x)]),
        Parallel(
            "p",
            {
                "loop": [Repeat("r", [Call("b", service("erp", "b"), result="x", undo=undone)], over=[10, 20])],
                "lost": [call("c", undo=[call("u", "c")]), call("d")],
                "quick": [Receive("go", "go")],
            },
            join=2,
        ),
        Fail("no"),
    ).start()
    rig.ok("a", 1)
    rig.ok("p/loop/r/~0/b", 2)
    rig.ok("p/lost/c")
    rig.ok("p/loop/r/~1/b", 3)
    rig.send("go")

    order = []
    while not rig.status:
        (location,) = rig.locations
        order.append((location, rig.payload(location)))
        rig.ok(location)

    assert order == [
        ("p/loop/r/~1/b/undo/u", [3, 20]),
        ("p/lost/c/undo/u", "c"),
        ("p/loop/r/~0/b/undo/u", [2, 10]),
        ("a/undo/u", 1),
    ]
    assert rig.failure == "no"


def test_an_unhandled_error_undoes_and_fails_where_the_process_says_so():
    rig = Rig(call("a", undo=[call("u")]), call("b", retries=0), unhandled="fail").start()
    rig.ok("a")

    rig.error("b", "ValueError", "no")
    assert rig.locations == ["a/undo/u"]
    rig.ok("a/undo/u")

    assert (rig.status, rig.failure) == ("failed", "exception: ValueError: no")


def test_a_failing_undo_is_stuck():
    rig = Rig(call("a", undo=[call("u", retries=0)]), Fail("no"), unhandled="fail").start()
    rig.ok("a")

    rig.error("a/undo/u")
    assert rig.stuck == "a/undo/u"
    rig.settle("a/undo/u")

    assert rig.status == "failed"


def test_cancel_ends_at_once_and_with_undo_undoes_first():
    steps = (call("a", undo=[call("u")]), call("b"))
    rig = Rig(*steps).start()
    rig.ok("a")
    rig.cancel()
    assert (rig.status, rig.locations) == ("cancelled", [])

    rig = Rig(*steps).start()
    rig.ok("a")
    rig.cancel(undo=True)
    assert rig.locations == ["a/undo/u"]
    rig.ok("a/undo/u")
    assert rig.status == "cancelled"


def test_a_wrong_input_fails_the_instance():
    rig = Rig(Complete(1), input={"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}})

    rig.start(n="text")

    assert rig.failure.startswith("input: ")


def test_an_output_that_does_not_fit_stops_at_its_step():
    rig = Rig(Complete(start.x), output=int).start(x="text")

    assert rig.stuck == "complete"
    rig.settle("complete", 5)
    assert rig.output == 5


# ---- functions and dice --------------------------------------------------------------------------------------------


def test_functions_of_users_are_called_and_an_impure_one_is_a_difference():
    rig = Rig(Set("x", fn.shop.double(start.n)), Complete(state.x), functions={"shop.double": lambda n: 2 * n}).start(
        n=4
    )
    assert rig.output == 8

    given = iter(range(100))
    with pytest.raises(AssertionError, match="a replay decides"):
        Rig(Set("x", fn.shop.next()), functions={"shop.next": lambda: next(given)}).start()


def test_a_replay_in_a_thread_notes_nothing_for_the_instance_that_runs():
    """As a preview of a version replays, while an engine runs instances of it."""
    steps = Set("x", fn.shop.double(start.n)), Set("y", fn.shop.double(state.x)), Complete(state.y)
    elsewhere: list[Rig] = []

    def double(n: int) -> int:
        if not elsewhere and n == 8:
            other = Rig(*steps, functions={"shop.double": double})
            elsewhere.append(other)
            other.program = rig.program
            other.machine = ProcessMachine(rig.program, str(other.address), None)
            thread = Thread(target=other.start, kwargs={"n": 1})
            thread.start()
            thread.join()
        return 2 * n

    rig = Rig(*steps, functions={"shop.double": double})
    rig.start(n=4)

    assert elsewhere[0].output == 4
    calls = [[text for text in each.last.noted if "shop.double" in text] for each in (rig, *elsewhere)]
    assert [len(each) for each in calls] == [2, 2]


def test_a_function_that_raises_is_an_expression_error():
    rig = Rig(Set("x", fn.shop.bad(1)), functions={"shop.bad": lambda n: 1 // 0}).start()

    assert rig.stuck == "x"
    assert "ZeroDivisionError" in rig.stuck_with.message


def test_dice_are_recorded():
    rig = Rig(Set("a", fn.random()), Set("b", fn.random()), call("c", [state.a, state.b, fn.uuid()])).start()

    first, second, _ = rig.payload("c")
    assert first != second
