"""Sentences of the acceptance list as stories: each has a crash before and after every commit and every call, hot and
with eviction after every entry, and leaves the same rows in memory, on a SQLite file and on PostgreSQL.

The auditor of the world compares all tables with those that the journal rebuilds, and live state with rebuilt state,
after every commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import perdure
from perdure.processes import (
    Activate,
    Call,
    Complete,
    ContinueWith,
    Decide,
    Parallel,
    Process,
    Receive,
    Reference,
    Repeat,
    Request,
    Set,
    SetReference,
    SubProcess,
    Task,
    Timer,
    TransportError,
    error,
    index,
    item,
    result,
    service,
    start,
    state,
    tasks,
    transport,
)
from perdure.testing import World
from perdure.testing.crashes import Schedule, WorkflowTrial
from perdure.testing.steps import Script
from perdure.testing.user_simulation import UserSimulation
from tests.disks import crashed_everywhere, everywhere
from tests.processes import shop
from tests.processes.test_restart import erp as echo
from tests.processes.test_restart import undone, waits

ANN = perdure.Actor("ann", ["manager"])
HOUR = timedelta(hours=1)
OUTSIDE: list[tuple[str, str]] = []
"""What the transport was asked for: command and idempotency key."""

Story = Callable[[World, Any], None]


@transport("erp")
async def erp(request: Request) -> Any:
    OUTSIDE.append((request.command, request.idempotency_key))
    if request.command == "busy" or (request.command == "flaky" and request.attempt < 3):
        raise TransportError("busy")
    if request.command == "broken":
        raise TransportError("broken", retry=False)
    if request.command == "slow":
        await asyncio.sleep(7200)
    return request.command if request.payload is None else request.payload


def call(name: str, payload: Any = None, *, command: str = "fine", **more: Any) -> Call:
    return Call(name, service("erp", command), payload, **more)


def small(*steps: Any, name: str = "small", **fields: Any) -> Process:
    return Process(name, version="1.0.0", steps=list(steps), **fields)


def asks(*names: str) -> dict[str, Any]:
    return {"tasks": [Task(name, roles=["manager"]) for name in names]}


def the_task(world: World, **wanted: Any) -> Any:
    """The one task of a list. Where a crash delays it, time has to pass."""
    until(world, lambda: len(world.tasks.list(**wanted)) == 1)
    return world.tasks.list(**wanted)[0]


def until(world: World, so: Callable[[], bool]) -> None:
    for _ in range(200):
        if so():
            return
        world.advance(0.1)
    raise AssertionError("it never is so")


def open_at(handle: Any) -> list[str]:
    return sorted(open.location for open in handle.waiting())


def complete(world: World, name: str) -> None:
    world.tasks.complete(the_task(world, name=name).id, None, by=ANN, id="done")


STORIES: list[Any] = []


def told(*workflows: Any, expect: Any = None, **arguments: Any) -> Callable[[Story], Story]:
    """A story of the first of some workflows. `expect`: its result, unless the story looks itself."""

    def add(story: Story) -> Story:
        def whole(world: World, handle: Any) -> None:
            story(world, handle)
            if expect is not None:
                world.advance(12 * HOUR)
                assert handle.result() == expect

        whole.__name__ = story.__name__
        STORIES.append(pytest.param(workflows, arguments, whole, id=story.__name__))
        return story

    return add


# ---- calls ---------------------------------------------------------------------------------------------------------


@told(small(call("a", result="a"), call("b"), Complete(result.a)), expect="fine")
def a_crash_between_send_and_receipt_repeats_under_the_same_key(world: World, handle: Any) -> None:
    world.advance(HOUR)
    assert len({key for _, key in OUTSIDE}) == 2, "one for each call"


@told(small(call("a", once=True, on_unknown=[Set("doubt", True)]), Complete("over")), expect="over")
def a_once_call_in_doubt_is_unknown_and_not_repeated(world: World, handle: Any) -> None:
    world.advance(HOUR)
    assert len(OUTSIDE) <= 1


BRANCHES: dict[str, Any] = {
    "failure": [call("f", command="broken", on_failure=[Set("f", error.code)])],
    "timeout": [
        call("t", command="slow", retries=0, attempt_timeout=timedelta(seconds=5), on_timeout=[Set("t", error.code)])
    ],
    "ignored": [call("i", command="broken", on_failure=[])],
}


@told(small(Parallel("p", BRANCHES), Complete([state.f, state.t])), expect=["broken", "timeout"])
def failure_and_timeout_take_their_own_branches(world: World, handle: Any) -> None:
    pass


@told(
    small(call("a", command="flaky", result="a", backoff=perdure.Backoff(base=20)), Complete(result.a)), expect="flaky"
)
def a_pause_survives_restart(world: World, handle: Any) -> None:
    until(world, lambda: open_at(handle) == ["a/backoff#1"])
    world.crash()
    assert open_at(handle) == ["a/backoff#1"]


@told(
    small(
        call(
            "a",
            command="busy",
            retries=99,
            backoff=perdure.Backoff(base=20),
            timeout=timedelta(seconds=50),
            on_timeout=[Complete("late")],
        )
    ),
    expect="late",
)
def the_timeout_spans_retries(world: World, handle: Any) -> None:
    pass


@told(
    small(
        call("a", command="slow", retries=0, attempt_timeout=timedelta(seconds=5), on_timeout=[Receive("m", "go")]),
        Complete("over"),
    ),
    expect="over",
)
def a_late_reply_is_stale(world: World, handle: Any) -> None:
    world.advance(5 * HOUR)
    assert open_at(handle) == ["a/on_timeout/m"]
    handle.send("go", id="1")


# ---- loops and branches --------------------------------------------------------------------------------------------


@told(
    small(
        Repeat("r", [Set("list", []), call("a", item, result="x")], over=state.list, collect=result.x),
        Complete(result.r),
        state={"list": [1, 2]},
    ),
    expect=[1, 2],
)
def a_loop_keeps_its_list_when_state_changes(world: World, handle: Any) -> None:
    pass


@told(
    small(
        Repeat("r", [call("a", item, result="x", command="flaky")], over=[1, 2, 3], at_once=2, collect=result.x),
        Complete(result.r),
    ),
    expect=[1, 2, 3],
)
def parallel_turns_collect_in_index_order(world: World, handle: Any) -> None:
    pass


@told(
    small(
        call("a", "outer", result="x"),
        Repeat("r", [Decide("d", index == 0, [call("b", "inner", result="x")]), Set("seen", result.x)], times=2),
        Complete([result.x, state.seen]),
    ),
    expect=["outer", "outer"],
)
def a_turns_results_are_its_own(world: World, handle: Any) -> None:
    pass


THREE: dict[str, Any] = {name: [Activate(name), Set(name, tasks[name].by)] for name in ("x", "y", "z")}


@told(small(Parallel("p", THREE), Complete([state.x, state.y, state.z]), **asks(*THREE)), expect=["ann"] * 3)
def three_tasks_of_one_parallel_end_in_any_order(world: World, handle: Any) -> None:
    for name in ("z", "x", "y"):
        complete(world, name)


@told(small(Parallel("p", THREE, join="any"), Complete(result.p.ended), **asks(*THREE)), expect=["y"])
def join_any_drops_the_losers_tasks(world: World, handle: Any) -> None:
    complete(world, "y")
    assert world.tasks.count() == 0 and world.tasks.count(status="cancelled") == 2


FAILING: dict[str, Any] = {"bad": [Receive("m", "go"), call("a", command="broken")], "task": [Activate("x")]}


@told(small(Parallel("p", FAILING, on_failure=[Set("why", error.code)]), Complete(state.why), **asks("x")))
def a_branch_error_cancels_its_siblings(world: World, handle: Any) -> None:
    the_task(world)
    handle.send("go", id="1")
    world.advance(HOUR)
    assert handle.result() == "broken"
    assert world.tasks.count() == 0 and world.tasks.count(status="cancelled") == 1


REWORK = [Activate("x"), Receive("m", "seen", result="m"), Set("good", result.m)]


@told(small(Repeat("r", REWORK, until=state.good), Complete("good"), **asks("x")), expect="good")
def rework_opens_a_new_round_each_turn(world: World, handle: Any) -> None:
    for good in (False, True):
        complete(world, "x")
        handle.send("seen", good, id=str(good))
    until(world, lambda: world.tasks.count(status="completed") == 2)
    rounds = {task.location for task in world.tasks.list(status="completed")}
    assert rounds == {"r/~0/x", "r/~1/x"}


PARTLY: dict[str, Any] = {
    "bad": [call("a", command="broken", result="a")],
    "good": [Receive("m", "go"), call("b", result="b")],
}


@told(small(Parallel("p", PARTLY), Complete([result.a, result.b])), expect=["by hand", "fine"])
def a_stuck_branch_is_retried_and_settled_while_others_go_on(world: World, handle: Any) -> None:
    until(world, lambda: handle.status == "stuck")
    handle.send("go", id="1")
    until(world, lambda: open_at(handle) == [])
    handle.retry()
    until(world, lambda: handle.status == "stuck")
    handle.settle("p/bad/a", "by hand")


ENDLESS: dict[str, Any] = {
    "loop": [Repeat("r", [Set("x", 1)], while_=True, limit=10**6)],
    "other": [call("a", result="a")],
}


@told(small(Parallel("p", ENDLESS), limits={"slice_steps": 200}), small(Complete("fine"), name="other"))
def an_endless_pure_loop_stops_alone(world: World, handle: Any) -> None:
    until(world, lambda: handle.status == "stuck")
    assert world.start("other", key="o").result() == "fine"
    handle.cancel("endless")


# ---- messages, timers, references ----------------------------------------------------------------------------------


@told(small(Timer("t", at=datetime(2020, 1, 1, tzinfo=UTC)), call("a", result="a"), Complete(result.a)), expect="fine")
def a_past_timer_goes_on_at_once(world: World, handle: Any) -> None:
    pass


@told(small(Timer("t", after=HOUR), Receive("m", "go", result="m"), Complete(result.m)), expect=7)
def an_early_message_waits_for_its_receive(world: World, handle: Any) -> None:
    handle.send("go", 7, id="1")


TWICE = [Receive("one", "go", result="one"), Receive("two", "go", result="two"), Complete([result.one, result.two])]


@told(small(*TWICE), expect=[1, 2])
def a_duplicate_message_has_no_second_effect(world: World, handle: Any) -> None:
    handle.send("go", 1, id="1")
    handle.send("go", 1, id="1")
    until(world, lambda: open_at(handle) == ["two"])
    handle.send("go", 2, id="2")


@told(small(SetReference("o-9"), Activate("x"), Complete("over"), **asks("x")), expect="over")
def reference_and_new_task_appear_together(world: World, handle: Any) -> None:
    (task,) = [the_task(world, reference="o-9")]
    assert (task.owner, len(handle.history())) == ("small/1", 1)
    complete(world, "x")


@told(
    small(Receive("m", "go", result="m"), Complete(result.m), reference=Reference(start.id)),
    expect=7,
    id="o-17",
)
def a_reference_finds_one_among_many(world: World, handle: Any) -> None:
    other = world.start("small", {"id": "o-18"}, key="2")
    world.send_to("go", 7, reference="o-17", id="1")
    world.send_to("go", 8, reference="o-18", id="1")
    assert other.result() == 8


# ---- families and ends ---------------------------------------------------------------------------------------------

kid = small(Complete(start.n), name="kid")
slow_kid = small(Receive("m", "go"), name="slow")


@told(small(SubProcess("s", kid, {"n": 7}, result="s"), Complete(result.s)), kid, expect=7)
def a_child_without_waits_commits_with_its_parent(world: World, handle: Any) -> None:
    assert world.handle("kid", "1/s").result() == 7


LATE = SubProcess("s", slow_kid, timeout=HOUR, on_timeout=[Receive("w", "on")])


@told(small(LATE, Complete("over")), slow_kid, expect="over")
def a_late_child_is_stale(world: World, handle: Any) -> None:
    world.advance(2 * HOUR)
    assert world.handle("slow", "1/s").status == "cancelled"
    handle.send("on", id="1")


FAMILY = [call("a", undo=[call("u", command="undo")]), SubProcess("s", slow_kid), Complete("never")]


@told(small(*FAMILY), slow_kid)
def cancel_takes_the_family(world: World, handle: Any) -> None:
    until(world, lambda: open_at(handle) == ["s"])
    handle.cancel("enough", undo=True)
    world.advance(HOUR)
    assert (handle.status, world.handle("slow", "1/s").status) == ("cancelled", "cancelled")
    assert {command for command, _ in OUTSIDE} == {"fine", "undo"}


@told(small(ContinueWith("next", kid, {"n": 9}, key="k"), Complete("over")), kid, expect="over")
def continue_with_starts_exactly_once(world: World, handle: Any) -> None:
    until(world, lambda: handle.status == "completed")
    assert world.handle("kid", "k").result() == 9


REFUSED = ContinueWith("next", slow_kid, {"n": 2}, key="taken", on_failure=[Complete("refused")])


@told(small(Receive("m", "go"), REFUSED, Complete("taken over")), slow_kid, expect="refused")
def a_refused_continue_with_fails_its_step(world: World, handle: Any) -> None:
    other = world.start("slow", {"n": 1}, key="taken")
    handle.send("go", id="1")
    until(world, lambda: handle.status == "completed")
    other.cancel("no longer needed")


@told(undone)
def undo_runs_newest_first_through_loops_and_branches(world: World, handle: Any) -> None:
    world.advance(5 * HOUR)
    assert handle.status == "failed"


MOVED = small(
    Call("hold", service("erp", "held"), 1, result="r", undo=[call("free", result.r)]),
    Parallel(
        "all", {"who": [Activate("x")], "what": [Receive("m", "go", result="m")], "how": [call("c", command="flaky")]}
    ),
    Complete(result.m),
    **asks("x"),
)
MOVED_ON = Process(
    "small",
    version="2.0.0",
    state={"late": True},
    steps=[
        Decide("begin", start.n == 0, then=[Complete("new")]),
        Call("hold", service("erp", "held"), 1, result="r", undo=[call("release", [result.r, state.late])]),
        Parallel("both", {"who": [Activate("x")], "what": [Receive("hear", "go", result="m")], "how": [call("pay")]}),
        Timer("rest", after=HOUR),
        Complete([result.m, state.late]),
    ],
    **asks("x"),
)
NAMES = {"all": "both", "all/what/m": "both/what/hear", "all/how/c": "both/how/pay"}


@told(MOVED_ON, MOVED, expect="new", n=0)
def an_instance_that_migrated_goes_on_and_its_calls_keep_their_keys(world: World, handle: Any) -> None:
    old = world.start(MOVED, n=1, key="old")
    until(world, lambda: "all/how/c/backoff#1" in open_at(old))

    left = world.migrate("small", to="2.0.0", keys=["old"])
    found = world.migrate("small", to="2.0.0", keys=["old"], map=NAMES, by="ann")

    assert ([each.id for each in left.left], found.migrated) == (["small/old"], ["small/old"])
    assert old.summary().version == MOVED_ON.version
    old.send("go", 7, id="1")
    complete(world, "x")
    world.advance(2 * HOUR)
    assert old.result() == [7, True]
    assert len({key for command, key in OUTSIDE if command == "flaky"}) == 1


@told(MOVED_ON, MOVED, expect="new", n=0)
def an_instance_that_migrated_undoes_what_it_did_before(world: World, handle: Any) -> None:
    old = world.start(MOVED, n=1, key="old")
    until(world, lambda: "all/who/x" in open_at(old))
    assert world.migrate("small", to="2.0.0", keys=["old"], map=NAMES).left == []
    old.cancel("enough", undo=True)
    until(world, lambda: old.status == "cancelled")
    assert {run.location for run in world.runs("release")} == {"hold/undo/release"}


OPEN: dict[str, Any] = {
    "task": [Activate("x")],
    "timer": [Timer("t", after=timedelta(days=9))],
    "message": [Receive("m", "never", timeout=timedelta(days=9))],
    "child": [SubProcess("s", slow_kid, timeout=timedelta(days=9))],
    "call": [call("c", command="slow")],
    "end": [Receive("e", "end"), Complete("over")],
}


@told(small(Parallel("p", OPEN), **asks("x")), slow_kid, expect="over")
def an_end_leaves_nothing_open(world: World, handle: Any) -> None:
    the_task(world)
    handle.send("end", id="1")
    until(world, lambda: handle.status == "completed")
    assert (open_at(handle), world.tasks.count()) == ([], 0)


@told(waits)
def waits_inside_decision_loop_branch_and_child_resume(world: World, handle: Any) -> None:
    world.advance(2 * HOUR)
    handle.send("go", 5, id="1")
    complete(world, "approve")
    world.advance(2 * HOUR)
    assert handle.result() == [["flaky 1", "flaky 2"], 5, "own 7", "ann"]
    assert world.handle("after", "once").result() == "independent"


@perdure.flow
async def doubled(ctx: perdure.Context, n: int) -> int:
    await ctx.sleep("a while", 60)
    return 2 * n


inner = small(SubProcess("twice", doubled, {"n": start.n}, result="x"), Complete(result.x + 1), name="inner")


@perdure.flow
async def outer(ctx: perdure.Context, n: int) -> int:
    return await ctx.child(inner, n=n)  # type: ignore[no-any-return]


@told(outer, inner, doubled, expect=41, n=20)
def a_flow_and_a_process_are_each_others_child(world: World, handle: Any) -> None:
    pass


@told(shop.purchase)
def the_example_of_the_page_runs_to_its_end(world: World, handle: Any) -> None:
    verdict = {"outcome": "approve"}
    world.tasks.complete(the_task(world, reference="o-17").id, verdict, by=ANN, id="1")
    until(world, lambda: "delivery" in open_at(handle))
    world.send_to("delivered", reference="o-17", id="2")
    assert handle.result() == {"late": False, "order": "B-1"}


@told(shop.purchase)
def a_refused_purchase_frees_every_line(world: World, handle: Any) -> None:
    verdict = {"outcome": "reject"}
    world.tasks.complete(the_task(world, reference="o-17").id, verdict, by=ANN, id="1")
    until(world, lambda: handle.status == "failed")
    assert {run.location for run in world.runs("free")} == {
        f"checks/stock/lines/~{turn}/reserve/undo/free" for turn in (0, 1)
    }


PURCHASE = shop.Purchase("o-17", "acme", Decimal(900), [{"sku": "a", "count": 2}, {"sku": "b", "count": 1}])


class Audited(WorkflowTrial):
    """A crash test with the other workflows of its story, whose auditor compares all tables with the journal."""

    def __init__(self, workflows: tuple[Any, ...], *given: Any, **options: Any) -> None:
        super().__init__(workflows[0], *given, **options)
        self._workflows = workflows

    def _simulation(self, schedule: Schedule, **options: Any) -> UserSimulation:
        stage = UserSimulation(*self._workflows, ours=True, handlers=self.handlers, **options)
        stage.scripts.update({name: Script(name, does) for name, does in self.script.items()})
        return stage


@everywhere
@pytest.mark.parametrize(("workflows", "arguments", "story"), STORIES)
def test_a_story_of_processes_leaves_the_same_rows_on_each_store_whatever_crashes(
    workflows: tuple[Any, ...],
    arguments: dict[str, Any],
    story: Story,
    cache: int,
    *,
    crashes: int | None,
    new_disk: Any,
):
    shopping = workflows[0] is shop.purchase
    handler = {shop.purchase: shop.erp, waits: echo}.get(workflows[0], erp)
    trial = Audited(
        workflows,
        (PURCHASE,) if shopping else (),
        arguments,
        key="1",
        messages=(),
        script={"budget": lambda *given: {"free": "5000"}} if shopping else {},
        reset=OUTSIDE.clear,
        observe=None,
        cache=cache,
        story=story,
        handlers=[handler],
    )

    assert len(crashed_everywhere(trial, new_disk, crashes)) > 2
