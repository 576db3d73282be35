"""An instance of a process goes over to another version: by its machine alone, and end to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    BadCall,
    CallerError,
    DefinitionConflict,
    Divergence,
    DoesNotFit,
    UnknownInstance,
    UnknownVersion,
    UnknownWorkflow,
)
from perdure.kernel.effects import Call as CallEffect
from perdure.kernel.events import Address
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.workflows import Workflows
from perdure.processes import (
    Activate,
    Call,
    Complete,
    Decide,
    Parallel,
    Process,
    Receive,
    Repeat,
    Set,
    SubProcess,
    Task,
    Timer,
    fn,
    item,
    queue,
    result,
    service,
    start,
    state,
    tasks,
)
from perdure.views.reasons import reasons, see
from perdure.views.rerun import History
from perdure.views.survey import Replayed, preview, survey
from tests.processes.rig import Rig

DAY = timedelta(days=1)
TASKS = [Task("ask", roles=["manager"]), Task("sign", roles=["manager"])]
ANN = perdure.Actor("ann", roles=["manager"])


def process(version: str, *steps: Any, **fields: Any) -> Process:
    return Process("p", version=version, steps=list(steps), **fields)


def call(name: str, **more: Any) -> Call:
    return Call(name, service("erp", "x"), **more)


def at(*steps: Any, **given: Any) -> Rig:
    return Rig(process("1.0.0", *steps, tasks=TASKS)).start(**given)


def later(*steps: Any, **fields: Any) -> Process:
    return process("2.0.0", *steps, tasks=TASKS, **fields)


# ---- by the machine alone ------------------------------------------------------------------------------------------


def test_what_is_open_goes_on_in_the_other_version_by_its_location():
    rig = at(Set("x", 1), Receive("wait", "go", result="a"), Complete(result.a))

    rig.migrate(later(Set("x", 1), Set("extra", 1), Receive("wait", "go", result="b"), Complete([result.b, state.x])))
    rig.send("go", 7)

    assert rig.output == [7, 1]


def test_a_step_is_found_by_the_map_and_so_is_all_that_stands_inside_of_one():
    inner = Receive("wait", "go", result="a")
    rig = at(Decide("old", True, then=[Repeat("turns", over=[1, 2], steps=[inner], collect=result.a)]), Complete(1))
    rig.send("go", 1)

    loop = Repeat("rounds", over=[], steps=[Receive("hear", "go", result="b")], collect=result.b)
    target = later(Decide("new", True, then=[loop]), Complete(result.rounds))
    with pytest.raises(DoesNotFit, match=r"old/then/turns: version 2.0.0 has no step new/then/turns"):
        rig.migrate(target, {"old": "new"})
    names = {"old": "new", "old/then/turns": "new/then/rounds", "old/then/turns/~7/wait": "new/then/rounds/~/hear"}
    rig.migrate(target, names)
    rig.send("go", 2)

    assert rig.output == [1, 2]


def test_branches_go_on_side_by_side_and_a_branch_that_only_the_other_version_has_never_begins():
    sides: dict[str, Any] = {"a": [Activate("ask")], "b": [Timer("t", after=DAY)], "c": [call("c", result="c")]}
    rig = at(Parallel("all", sides), Complete(1))
    rig.ok("all/c/c", 3)

    renamed: dict[str, Any] = {
        "a": [Set("n", 1), Activate("ask")],
        "b": [Timer("pause", after=DAY)],
        "d": [call("never")],
    }
    rig.migrate(
        later(Parallel("all", renamed), Complete([tasks.ask.answer, result.all.ended])), {"all/b/t": "all/b/pause"}
    )
    rig.complete("all/a/ask", answer=5)
    rig.fire("all/b/t")

    assert rig.output == [5, ["c", "a", "b"]]


def test_turns_side_by_side_keep_their_items():
    def loop(*steps: Any) -> Repeat:
        return Repeat("lines", over=start.lines, at_once=2, collect=result.r, steps=list(steps))

    rig = at(loop(call("hold", payload=item, result="r")), Complete(result.lines), lines=["a", "b", "c"])
    rig.ok("lines/~1/hold", "B")

    rig.migrate(later(loop(call("hold", payload=fn.upper(item), result="r"), Set("n", 1)), Complete(result.lines)))
    rig.ok("lines/~0/hold", "A")
    rig.ok("lines/~2/hold", "C")

    assert rig.output == ["A", "B", "C"]


def test_a_new_key_of_the_state_has_its_first_value_and_what_was_written_stays():
    rig = at(Set("x", 1), Receive("wait", "go"), Complete(1))

    rig.migrate(later(Receive("wait", "go"), Complete(state), state={"x": 0, "late": start.late == True}))  # noqa: E712
    rig.send("go")

    assert rig.output == {"x": 1, "late": False}


def test_the_attempts_of_a_renamed_call_keep_its_location_and_so_its_idempotency_key():
    rig = at(call("pay", retries=2), Complete(1))
    rig.error("pay")
    rig.migrate(later(call("charge", retries=2), call("more"), Complete(2)), {"pay": "charge"})

    rig.fire("pay/backoff#1")
    attempt = rig.effect("pay")
    rig.migrate(later(call("charge", retries=2), call("more"), Complete(3)))
    rig.error("pay")
    rig.fire("pay/backoff#2")
    rig.error("pay")

    assert isinstance(attempt, CallEffect)
    assert (attempt.attempt, rig.stuck) == (2, "charge")
    rig.retry()
    assert rig.effect("pay").attempt == 4, "a person who says `retry` asks for the same payment"
    rig.ok("pay")
    rig.ok("more")
    assert rig.output == 3


def test_an_instance_that_stopped_goes_on_where_the_other_version_is_right():
    rig = at(Set("x", fn.upper(start.n)), Complete(state.x), n=1)
    assert rig.stuck == "x"

    rig.migrate(later(Set("x", start.n + 1), Complete(state.x)))
    assert rig.stuck == "x", "it waits for a person still"
    rig.retry()

    assert rig.output == 2


def test_what_stopped_at_its_end_or_before_a_turn_goes_on_there():
    rig = Rig(process("1.0.0", Set("x", 1), output={"type": "object"})).start()
    assert rig.stuck == "end"
    rig.migrate(process("2.0.0", Set("x", 1)))
    rig.retry()
    assert rig.status == "completed"

    rig = at(Repeat("again", while_=start.n, steps=[Receive("m", "go")]), Complete(1), n="yes")
    assert rig.stuck == "again"
    rig.migrate(later(Repeat("again", while_=False, steps=[Receive("m", "go")]), Complete(2)))
    rig.retry()
    assert rig.output == 2


def test_what_was_done_is_undone_as_the_other_version_undoes_it():
    hold = call("hold", result="r", undo=[call("free", payload=result.r)])
    rig = at(Repeat("lines", over=[1, 2], steps=[hold]), Receive("wait", "go"))
    rig.ok("lines/~0/hold", "h-0")
    rig.ok("lines/~1/hold", "h-1")

    target = [
        Repeat("rows", over=[], steps=[call("keep", result="r", undo=[call("let-go", payload=result.r)])]),
        Receive("wait", "go"),
    ]
    with pytest.raises(DoesNotFit, match=r"lines/~/hold: version 2.0.0 has nothing at lines/~/hold that undoes it"):
        rig.migrate(later(*target))
    rig.migrate(later(*target), {"lines": "rows", "lines/~/hold": "rows/~/keep"})
    rig.cancel(undo=True)

    assert rig.locations == ["rows/~1/keep/undo/let-go"]
    assert rig.payload("rows/~1/keep/undo/let-go") == "h-1"
    rig.migrate(later(*target))  # while it is being undone
    rig.ok("rows/~1/keep/undo/let-go")
    rig.ok("rows/~0/keep/undo/let-go")
    assert rig.status == "cancelled"


def test_a_child_and_a_deadline_beside_it_are_answered_in_the_other_version():
    rig = at(SubProcess("s", "kid", timeout=DAY, on_timeout=[Set("late", True)]), Complete(state))

    rig.migrate(later(SubProcess("sub", "kid", result="r", timeout=DAY, on_timeout=[Complete("late")])), {"s": "sub"})
    rig.fire("s/deadline")

    assert rig.output == "late"


def test_a_timer_that_was_renamed_is_woken_by_the_location_that_it_was_opened_at():
    rig = at(Timer("t", after=DAY), Complete(1))

    rig.migrate(later(Timer("pause", after=DAY), Complete(2)), {"t": "pause"})
    rig.wake("t")

    assert rig.output == 2


MISFITS: list[Any] = [
    ("a step that is gone", [Receive("m", "go")], [Complete(1)], {}, "m: version 2.0.0 has no step m"),
    ("a step that the map does not lead to", [Receive("m", "go")], [Receive("m", "go")], {"m": "n"}, "has no step n"),
    ("another kind", [Receive("m", "go")], [Timer("m", after=DAY)], {}, "has a timer at m, and this is a receive go"),
    ("another message", [Receive("m", "go")], [Receive("m", "stop")], {}, "has a receive stop at m, and this is"),
    ("another task", [Activate("ask")], [Activate("sign")], {"ask": "sign"}, "has a task sign at sign, and this is"),
    ("another workflow", [SubProcess("s", "a")], [SubProcess("s", "b")], {}, "a sub-process b at s, and this is"),
    ("a queue", [call("c")], [Call("c", queue("q", "m:f"))], {}, "has a call of a queue at c, and this is a call"),
    (
        "a step that would be done again",
        [Set("x", 1), Receive("m", "go")],
        [Receive("m", "go"), Set("x", 1)],
        {},
        "x: version 2.0.0 would do it again, and it was begun before",
    ),
    (
        "a way back by the map",
        [call("a", on_failure=[]), Receive("b", "go")],
        [Receive("a", "go"), Receive("b", "go")],
        {"b": "a"},
        "a: version 2.0.0 would do it again",
    ),
    (
        "a location that is used for another step",
        [Receive("a", "go"), Receive("b", "go")],
        [Receive("b", "go"), Receive("a", "go")],
        {"a": "b", "b": "a"},
        "a: version 2.0.0 would do it again",
    ),
    (
        "a branch that is gone",
        [Parallel("p", {"a": [Receive("m", "go")], "b": [Timer("t", after=DAY)]})],
        [Parallel("p", {"b": [Timer("t", after=DAY)], "c": [Receive("m", "go")]})],
        {},
        "p: version 2.0.0 has no branch a",
    ),
    (
        "another branch by the map",
        [Parallel("p", {"a": [Receive("m", "go")], "b": [Timer("t", after=DAY)]})],
        [Parallel("p", {"a": [], "b": [Timer("t", after=DAY), Receive("m", "go")]})],
        {"p/a/m": "p/b/m"},
        "p/a/m: version 2.0.0 has p/b/m inside of another step",
    ),
    (
        "a place out of its loop",
        [Repeat("r", times=2, steps=[Receive("m", "go")])],
        [Repeat("r", times=2, steps=[]), Receive("m", "go")],
        {"r/~/m": "m"},
        "r/~/m: version 2.0.0 has m inside of another step",
    ),
    (
        "another container",
        [Repeat("r", times=2, steps=[Receive("m", "go")])],
        [Decide("r", True, then=[Receive("m", "go")])],
        {"r/~/m": "r/then/m"},
        "has a decide at r, and this is a repeat",
    ),
    ("an error of its first state", [Receive("m", "go")], [Receive("m", "go")], {}, "state.bad: "),
]


@pytest.mark.parametrize(
    ("old", "new", "renamed", "why"), [each[1:] for each in MISFITS], ids=[each[0] for each in MISFITS]
)
def test_what_does_not_fit_is_told(old: list[Any], new: list[Any], renamed: dict[str, str], why: str):
    rig = at(*old, n=1)
    if len(old) == 2 and "a" in rig.locations and isinstance(old[0], Call):
        rig.ok("a")
    fields = {"state": {"bad": fn.upper(start.n)}} if "state" in why else {}

    with pytest.raises(DoesNotFit) as told:
        rig.migrate(later(*new, **fields), renamed)

    assert why in str(told.value)


# ---- end to end ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that outlives its engine, and that others can open."""
    yield request.getfixturevalue("postgres") if request.param == "postgres" else str(tmp_path / "p.db")


OLD = process(
    "1.0.0",
    Decide("which", start.n == 0, then=[Receive("odd", "odd"), Complete("odd")]),
    Set("x", 1),
    Receive("wait", "go", result="a"),
    Complete(result.a),
)
NEW = process(
    "2.0.0",
    Decide("which", start.n == 0, then=[Complete("none")]),
    Set("x", 1),
    Receive("hear", "go", result="a"),
    Activate("ask"),
    Complete([result.a, tasks.ask.by, state.x]),
    tasks=[Task("ask", roles=["manager"])],
)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  # it is in the database
            await asyncio.sleep(0.01)


async def test_migration_moves_only_what_fits(kept: str):
    async with perdure.open(kept, workflows=[OLD]) as engine:
        handles = {key: await engine.start(OLD, n=n, key=key) for key, n in (("a", 1), ("b", 1), ("odd", 0))}
        for handle in handles.values():
            await handle.until("waiting")
        await engine.processes.put(NEW, by="ann")
        before = await engine.queries.height()

        planned = await engine.processes.migrate("p", to="2.0.0", map={"wait": "hear"}, dry_run=True)
        assert await engine.queries.height() == before, "a dry run records nothing"
        one = await engine.processes.migrate("p", to="2.0.0", keys=["a"], map={"wait": "hear"}, by="ann", reason="task")
        again = await engine.processes.migrate("p", to="2.0.0", keys=["a"], map={"wait": "hear"})
        with pytest.raises(BadCall, match=r"no step is named 'wiat'; did you mean 'wait'\?"):
            await engine.processes.migrate("p", to="2.0.0", map={"wiat": "hear"})
        assert await engine.queries.height() == before + 1, "one entry for each instance, and none for the same again"
        async with perdure.connect(kept) as client:
            rest = await client.processes.migrate("p", to="2.0.0", map={"wait": "hear"})

        assert sorted(planned.migrated) == ["p/a", "p/b"]
        assert [(each.id, each.why) for each in planned.left] == [
            ("p/odd", "which/then/odd: version 2.0.0 has no step which/then/odd")
        ]
        assert (one.migrated, again.migrated, rest.migrated, rest.left) == (["p/a"], ["p/a"], ["p/b"], planned.left)
        await handles["odd"].send("odd")
        assert await handles["odd"].result() == "odd", "what does not fit goes on as it was"
        left = await engine.processes.migrate("p", to="2.0.0", keys=["odd"])
        assert [each.why for each in left.left] == ["it has completed"]

    async with perdure.open(kept) as engine:  # without code: both definitions are in the database
        handle = engine.handle("p", "a")
        (head,) = [each for each in await engine.instances(workflow="p") if each.key == "a"]
        row = await engine.queries.head(head.id)
        assert row is not None
        seen, words = await see(engine.queries, row, datetime.now(UTC), "p.db")
        (waits,) = reasons(seen, words)
        assert waits.text.startswith("The step hear, opened as wait, waits for the message go")
        summary, (_, line) = await handle.summary(), await handle.history()
        told = {"version": NEW.version, "map": {"wait": "hear"}}
        assert (summary.version, line.event, line.value) == (NEW.version, "migrated", told)
        assert (line.by, line.reason) == ("ann", "task")
        counts = await engine.queries.counts()
        waiting = [version for (name, version, status), n in counts.items() if (name, status) == ("p", "waiting") and n]
        assert waiting == [NEW.version]
        await handle.send("go", 7)
        await until(engine.tasks.count)
        (task,) = await engine.tasks.list()
        await engine.tasks.complete(task.id, None, by=ANN)

        assert await handle.result() == [7, "ann", 1]
        then, now = await handle.draw("mermaid", at=line.seq - 1), await handle.draw("mermaid")
        assert ("wait" in then, "hear" in then) == (True, False), "the past is drawn as it was defined then"
        assert ("wait" in now, "hear" in now) == (False, True)
        assert await engine.state("p", "a", at=line.seq - 1) == {"x": 1}


async def test_what_is_no_process_or_is_not_there_does_not_migrate():
    async with perdure.open(":memory:", workflows=[OLD, NEW, nothing]) as engine:
        with pytest.raises(UnknownVersion, match=r"3.0.0"):
            await engine.processes.migrate("p", to="3.0.0")
        with pytest.raises(UnknownInstance, match="there is no instance p/lost"):
            await engine.processes.migrate("p", to="2.0.0", keys=["lost"])
        with pytest.raises(CallerError, match="nothing is no process"):
            await engine.processes.migrate("nothing", to="1")
        with pytest.raises(UnknownWorkflow, match="nothing is a flow: this takes the name of a process"):
            await engine.processes.migrate("nothing", to="2")


@perdure.flow
async def nothing(ctx: perdure.Context) -> None: ...


async def test_each_entry_is_replayed_by_the_version_that_decided_it():
    async with perdure.open(":memory:", workflows=[OLD, NEW]) as engine:
        handle = await engine.start(OLD, n=1, key="a")
        await handle.until("waiting")
        await engine.processes.migrate("p", to="2.0.0", keys="a", map={"wait": "hear"})
        await handle.send("go", 7)
        (head,) = await engine.instances(workflow="p")
        rows = await engine.queries.history(head.id)
        seen = await preview(engine.queries, OLD)

    history = History(handle.address, list(rows), {OLD.version: OLD, NEW.version: NEW}.__getitem__)
    for number, version in ((1, OLD), (2, NEW), (3, NEW)):
        delivery = history.at(number)
        assert delivery.workflow is version
        assert not version.differs(delivery.entry.decision, delivery.deliver()), number
    assert (seen.safe, seen.unfit, seen.stay) == (1, [], True), "an instance stays on its version"


async def test_another_version_in_new_code_is_no_divergence_and_other_bytes_of_one_are_a_conflict():
    later = process("1.1.0", Timer("t", after=DAY), Receive("wait", "go"))
    other = process("1.0.0", Receive("wait", "go"))
    async with perdure.open(":memory:", workflows=[OLD]) as engine:
        await (await engine.start(OLD, n=1, key="a")).until("waiting")

        found = await survey(engine.queries, Workflows([later]))
        seen = await preview(engine.queries, later)
        with pytest.raises(DefinitionConflict, match=r"the next free one is 1.0.1"):
            await survey(engine.queries, Workflows([other]))

    assert found == [Replayed("p/a", None)], "the database has its version"
    assert (seen.looked, seen.safe, seen.unfit, seen.stay) == (1, 1, [], True)


async def test_a_divergence_at_a_task_says_task():
    asking = process("1.0.0", Activate("ask"), tasks=TASKS)
    async with perdure.open(":memory:", workflows=[asking]) as engine:
        await (await engine.start(asking, key="a")).until("waiting")
        (head,) = await engine.instances(workflow="p")
        instance = fold(Address("p", "a"), None, await engine.queries.history(head.id))

    with pytest.raises(Divergence, match="recorded is task ask, but the code now asks for task sign"):
        rebuild(instance, process("1.0.0", Activate("sign"), tasks=TASKS))


async def test_a_stuck_instance_stays_so_until_a_retry_in_the_version_that_is_right():
    wrong = process("1.0.0", Set("x", fn.upper(start.n)), Complete(state.x))
    right = process("2.0.0", Set("y", start.n + 1), Complete(state.y))
    async with perdure.open(":memory:", workflows=[wrong, right]) as engine:
        handle = await engine.start(wrong, n=1, key="a")
        await handle.until("stuck")

        found = await engine.processes.migrate("p", to="2.0.0", map={"x": "y"})
        (head,) = await engine.instances(workflow="p")
        await handle.retry()

        assert (found.migrated, head.status) == (["p/a"], "stuck")
        assert head.reason.endswith(" at y"), "it is stuck at the step by its name there"
        assert await handle.result() == 2
