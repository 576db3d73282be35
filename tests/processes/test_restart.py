"""Waits of every kind, in every place, under crashes before and after each commit, with and without eviction."""

from datetime import timedelta
from typing import Any

import pytest

import perdure
import perdure.testing
from perdure.processes import (
    Activate,
    Call,
    Complete,
    ContinueWith,
    Decide,
    Fail,
    Parallel,
    Process,
    Receive,
    Repeat,
    Request,
    Set,
    SubProcess,
    Task,
    Timer,
    TransportError,
    error,
    item,
    result,
    service,
    start,
    state,
    tasks,
    transport,
)

ANN = perdure.Actor("ann", ["manager"])
LATER = timedelta(hours=1)


@transport("erp")
async def erp(request: Request) -> Any:
    if request.command == "flaky" and request.attempt < 3:
        raise TransportError("busy")
    if request.command == "broken":
        raise TransportError("broken", retry=False)
    return f"{request.command} {request.payload}"


def call(name: str, *args: Any, command: str = "", **more: Any) -> Call:
    return Call(name, service("erp", command or name), *args, **more)


kid = Process(
    "kid", version="1.0.0", steps=[Timer("nap", after=LATER), call("own", start.n, result="x"), Complete(result.x)]
)
after = Process("after", version="1.0.0", steps=[Complete("independent")])

waits = Process(
    "waits",
    version="1.0.0",
    tasks=[Task("approve", roles=["manager"])],
    state={"seen": []},
    steps=[
        Decide("d", True, [Timer("in a decision".replace(" ", "-"), after=LATER)]),
        Repeat("loop", [call("flaky", item, result="x"), Set("last", result.x)], over=[1, 2], collect=result.x),
        Parallel(
            "p",
            {
                "task": [Activate("approve")],
                "message": [Receive("m", "go", result="go")],
                "child": [SubProcess("s", kid, {"n": 7}, result="kid")],
            },
        ),
        ContinueWith("hand-over", after, key="once"),
        Complete([result.loop, result.go, result.kid, tasks.approve.by]),
    ],
)
undone = Process(
    "undone",
    version="1.0.0",
    steps=[
        Repeat("loop", [call("a", item, result="x", undo=[call("b", result.x)])], over=[1, 2], at_once=2),
        call("broken", on_failure=[Set("why", error.code)]),
        Parallel("p", {"c": [call("c", undo=[call("d")])], "e": [Timer("t", after=LATER)]}, join="any"),
        Fail("rejected", "no"),
    ],
)


@pytest.mark.parametrize("cache", [4096, 0], ids=["cached", "evicted"])
def test_waits_inside_decision_loop_branch_and_child_resume_after_restart(cache: int):
    perdure.testing.crash_test(
        waits,
        key="w",
        handlers=[erp],
        messages=[("go", 5)],
        tasks=[("approve", None, ANN)],
        pairs=20,
        random=5,
        cache=cache,
    )


@pytest.mark.parametrize("cache", [4096, 0], ids=["cached", "evicted"])
def test_undo_runs_once_for_each_call_whatever_crashes(cache: int):
    perdure.testing.crash_test(undone, key="u", handlers=[erp], pairs=20, random=5, cache=cache)


def test_the_process_of_many_waits_ends_as_it_says():
    with perdure.testing.World(waits, handlers=[erp]) as world:
        handle = world.start(waits, key="w")
        world.advance(2 * LATER)
        (task,) = world.tasks.list()
        world.tasks.complete(task.id, None, by=ANN)
        handle.send("go", 5)
        world.advance(2 * LATER)
        assert handle.result() == [["flaky 1", "flaky 2"], 5, "own 7", "ann"]
        assert world.handle("after", "once").result() == "independent"
        assert [run.attempt for run in world.runs("flaky")] == [1, 2, 3, 1, 2, 3]


def test_entries_of_n_calls_whatever_stands_between_them():
    steps = [
        part
        for number in range(5)
        for part in (Set("x", number), Decide(f"d{number}", True, [Set("y", number)]), call(f"c{number}"))
    ]
    process = Process("calls", version="1.0.0", steps=steps)

    with perdure.testing.World(process, handlers=[erp]) as world:
        handle = world.start(process, key="a")
        assert len(handle.history()) == 5 + 1


def test_a_state_that_replays_to_another_value_is_noticed():
    from perdure.processes import fn, function

    given = iter(range(1000))

    @function("shop.next")
    def following() -> int:
        return next(given)

    process = Process("impure", version="1.0.0", steps=[Set("x", fn.shop.next()), Receive("m", "m"), Complete(state.x)])
    with perdure.testing.World(process, following) as world:
        handle = world.start(process, key="a")
        world.crash()
        handle.send("m")
        assert handle.status == "stuck"
        with pytest.raises(perdure.InstanceStuck, match=r"shop\.next gave another value"):
            handle.result()
