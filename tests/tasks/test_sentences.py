"""Each promise about tasks is a story. It is told with a crash before and after every commit, hot and with eviction
after every entry, in memory, on a SQLite file and on PostgreSQL. The auditor of the world compares the tables of
tasks with those that the journal rebuilds after every commit.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import Actor, BadAnswer, Escalation, Quorum, TaskRefused, UnknownTask
from perdure.processes import Activate, Complete, Process, Task, tasks
from perdure.testing import World, crash_test
from perdure.testing.crashes import Schedule, WorkflowTrial
from perdure.testing.user_simulation import UserSimulation
from tests.disks import crashed_everywhere, everywhere
from tests.stages import LONG
from tests.tasks.desk import Verdict
from tests.tasks.test_cells import Wanted, buyer

ANN, BOB, CLEO, DORA = (Actor(name, ["clerk"]) for name in ("ann", "bob", "cleo", "dora"))
BOSS, ROOT, SAM = Actor("max", ["boss"]), Actor("root", admin=True), Actor("sam", ["guest"])
HOUR = timedelta(hours=1)
YES, NO = {"outcome": "approve"}, {"outcome": "reject"}

QUORUMS = {
    "need": Quorum(2),
    "veto": Quorum(3, veto={"reject": 1}),
    "of two": Quorum("majority", of=2),
    "of four": Quorum("majority", of=4),
}


@perdure.flow
async def asks(ctx: perdure.Context, quorum: str = "", hours: int = 0, escalates: bool = False) -> str:
    try:
        done = await ctx.task(
            "approve",
            answer=Verdict,
            roles=["clerk"],
            managers=["boss"],
            exclude=["eve"],
            quorum=QUORUMS.get(quorum),
            expire=hours * HOUR if hours else None,
            escalate=[Escalation(HOUR, roles=["lead"], release=True, priority=90)] if escalates else (),
        )
    except perdure.TaskExpired:
        return "expired"
    except perdure.TaskCancelled as cancelled:
        return f"cancelled by {cancelled.by}: {cancelled.reason}"
    return f"{done.outcome} by {done.by}: {getattr(done.answer, 'comment', None)!r}"


@perdure.flow
async def joins(ctx: perdure.Context) -> str:
    """Two are asked, and the first answer ends the wait for the other one."""

    def ask(name: str) -> Any:
        async def branch() -> str:
            return (await ctx.task(name, users=[name])).by

        return branch

    _, by = await ctx.race("who", {name: ask(name) for name in ("ann", "bob")})
    return str(by)


def the_task(world: World, **wanted: Any) -> Any:
    """The one task of a list. Where a crash delays it, time has to pass."""
    for _ in range(100):
        if found := world.tasks.list(**wanted):
            (task,) = found
            return task
        world.advance(0.1)
    raise AssertionError("there is no task")


def what(world: World, id: str) -> list[str]:
    return [event.what for event in world.tasks.get(id).history]


def refused(code: str, verb: Callable[..., Any], *args: Any, **more: Any) -> None:
    with pytest.raises(TaskRefused) as error:
        verb(*args, **more)
    assert error.value.code == code


# ---- stories


def two_claims_give_one_holder(world: World, handle: Any) -> None:
    id = the_task(world).id
    world.tasks.claim(id, by=ANN, id="1")
    refused("taken", world.tasks.claim, id, by=BOB, id="2")
    assert world.tasks.get(id).assignee == "ann"
    world.tasks.complete(id, YES, by=ANN, id="3")


def completing_twice_is_one_completion(world: World, handle: Any) -> None:
    id = the_task(world).id
    first = world.tasks.complete(id, YES, by=ANN, id="1")
    assert world.tasks.complete(id, {**YES, "comment": ""}, by=ANN) == first
    refused("ended", world.tasks.complete, id, NO, by=ANN)
    refused("ended", world.tasks.complete, id, YES, by=BOB)
    assert what(world, id) == ["created", "completed"]


def an_excluded_admin_cannot_complete(world: World, handle: Any) -> None:
    id, eve = the_task(world).id, Actor("eve", ["clerk"], admin=True)
    refused("excluded", world.tasks.complete, id, YES, by=eve, override=True)
    refused("excluded", world.tasks.claim, id, by=eve)
    refused("excluded", world.tasks.assign, id, eve, by=ROOT)
    assert world.tasks.get(id).status == "open"
    world.tasks.complete(id, YES, by=ROOT, override=True, id="1")


def an_assign_is_refused_without_override(world: World, handle: Any) -> None:
    id = the_task(world).id
    world.tasks.claim(id, by=ANN, id="1")
    refused("taken", world.tasks.assign, id, BOB, by=BOSS)
    assert world.tasks.get(id).assignee == "ann"
    world.tasks.assign(id, BOB, by=BOSS, override=True, id="2")
    refused("not-assignee", world.tasks.complete, id, YES, by=ANN)
    world.tasks.complete(id, YES, by=BOB, id="3")


def a_release_gives_it_back(world: World, handle: Any) -> None:
    id = the_task(world).id
    world.tasks.claim(id, by=ANN, id="1")
    assert the_task(world, by=BOB).status == "assigned"
    assert world.tasks.list(by=BOB, candidate=True) == []
    world.tasks.release(id, by=ANN, id="2")
    assert the_task(world, by=BOB, candidate=True).status == "open"
    world.tasks.complete(id, NO, by=BOB, id="3")


def a_stranger_is_told_that_there_is_no_task(world: World, handle: Any) -> None:
    id = the_task(world).id
    for verb in (world.tasks.claim, world.tasks.release, world.tasks.complete, world.tasks.cancel, world.tasks.get):
        with pytest.raises(UnknownTask):
            verb(id, by=SAM)
    assert world.tasks.list(by=SAM) == [] and world.tasks.count(by=SAM) == 0
    world.tasks.complete(id, YES, by=ANN, id="1")


def a_wrong_answer_names_every_field_and_a_default_fills_one(world: World, handle: Any) -> None:
    id = the_task(world).id
    with pytest.raises(BadAnswer) as error:
        world.tasks.complete(id, {"outcome": "maybe", "comment": 7, "more": 1}, by=ANN, id="1")
    assert sorted(problem.where for problem in error.value.problems) == ["", "/comment", "/outcome"]
    assert what(world, id) == ["created"]
    world.tasks.complete(id, YES, by=ANN, id="2")
    assert handle.result() == "approve by ann: ''"


def an_answer_and_a_cancel_have_one_outcome(world: World, handle: Any) -> None:
    id = the_task(world).id
    world.tasks.cancel(id, "too late", by=BOSS, id="1")
    refused("ended", world.tasks.complete, id, YES, by=ANN, id="2")
    assert handle.result() == "cancelled by max: too late"


def the_same_id_gives_the_same_answer(world: World, handle: Any) -> None:
    id = the_task(world).id
    first = world.tasks.claim(id, by=ANN, id="1")
    world.tasks.release(id, by=ANN, id="2")
    world.crash()
    assert world.tasks.claim(id, by=ANN, id="1") == first
    assert world.tasks.get(id).status == "open"
    last = world.tasks.complete(id, YES, by=ANN, id="3")
    assert world.tasks.complete(id, NO, by=BOB, id="3") == last


def the_end_of_the_owner_cancels_its_task(world: World, handle: Any) -> None:
    id = the_task(world).id
    handle.cancel("not needed")
    assert (world.tasks.get(id).status, world.tasks.count()) == ("cancelled", 0)


def an_escalation_adds_candidates_once_and_takes_the_holder_away(world: World, handle: Any) -> None:
    id, lead = the_task(world).id, Actor("lea", ["lead"])
    world.tasks.claim(id, by=ANN, id="1")
    with pytest.raises(UnknownTask):
        world.tasks.claim(id, by=lead)
    world.advance(2 * HOUR)
    task = world.tasks.get(id)
    assert (task.status, task.roles, task.priority) == ("open", ("clerk", "lead"), 90)
    world.tasks.claim(id, by=ANN, id="2")
    world.advance(2 * HOUR)
    assert world.tasks.get(id).assignee == "ann" and what(world, id).count("escalated") == 1
    world.tasks.complete(id, YES, by=ANN, id="3")


def an_expired_task_takes_the_timeout_way(world: World, handle: Any) -> None:
    id = the_task(world).id
    world.advance(6 * HOUR)
    assert handle.result() == "expired"
    refused("ended", world.tasks.complete, id, YES, by=ANN)
    assert what(world, id) == ["created", "expired"]


def an_answer_before_the_expiry_wins(world: World, handle: Any) -> None:
    id = the_task(world).id
    world.advance(4 * HOUR)
    world.tasks.complete(id, YES, by=ANN, id="1")
    world.crash()
    world.advance(6 * HOUR)
    assert handle.result() == "approve by ann: ''"


def votes(*given: tuple[Actor, dict[str, str]], result: str) -> Callable[[World, Any], None]:
    def story(world: World, handle: Any) -> None:
        id = the_task(world).id
        refused("shared", world.tasks.claim, id, by=ANN)
        for number, (by, answer) in enumerate(given):
            world.tasks.complete(id, answer, by=by, id=str(number))
        assert handle.result() == result
        assert what(world, id) == ["created", *["voted"] * (len(given) - 1), "completed"]

    return story


def the_loser_of_a_join_loses_its_task(world: World, handle: Any) -> None:
    the_task(world, name="ann")
    world.tasks.complete(the_task(world, name="bob").id, by="bob", id="1")
    assert handle.result() == "bob"
    (loser,) = world.tasks.list(name="ann", status="cancelled")
    assert what(world, loser.id) == ["created", "cancelled"] and world.tasks.count() == 0


approval = Process(
    "approval",
    version="1.0.0",
    tasks=[Task("approve", answer=Verdict, roles=["clerk"], expire=timedelta(days=9))],
    steps=[Activate("approve"), Complete(tasks.approve.outcome)],
)


def a_process_a_flow_and_a_cell_have_one_list(world: World, handle: Any) -> None:
    world.send(Wanted("c-1"), id="w")
    other = world.start(approval, key="p-1")
    the_task(world, workflow="approval")
    the_task(world, workflow="test/buyer")
    the_task(world, workflow="asks")
    found = world.tasks.list(by=ANN, candidate=True)
    assert {task.owner for task in found} == {"asks/1", "approval/p-1", "test/buyer/c-1"}
    assert world.tasks.count(by=ANN, candidate=True) == 3
    for task in found:
        world.tasks.complete(task.id, YES, by=ANN, id="1")
    assert (handle.result(), other.result()) == ("approve by ann: ''", "approve")
    assert world.tasks.count() == 0


STORIES: list[Any] = (
    [
        pytest.param(asks, {}, story, id=story.__name__)
        for story in (
            two_claims_give_one_holder,
            completing_twice_is_one_completion,
            an_excluded_admin_cannot_complete,
            an_assign_is_refused_without_override,
            a_release_gives_it_back,
            a_stranger_is_told_that_there_is_no_task,
            a_wrong_answer_names_every_field_and_a_default_fills_one,
            an_answer_and_a_cancel_have_one_outcome,
            the_same_id_gives_the_same_answer,
            the_end_of_the_owner_cancels_its_task,
        )
    ]
    + [
        pytest.param(asks, arguments, story, id=name)
        for name, arguments, story in (
            ("need", {"quorum": "need"}, votes((ANN, YES), (BOB, NO), (CLEO, YES), result="approve by cleo: ''")),
            ("veto", {"quorum": "veto"}, votes((ANN, YES), (BOB, NO), result="reject by bob: ''")),
            (
                "changed vote",
                {"quorum": "need"},
                votes((ANN, NO), (ANN, YES), (BOB, NO), (CLEO, YES), result="approve by cleo: ''"),
            ),
            ("no-quorum", {"quorum": "of two"}, votes((ANN, YES), (BOB, NO), result="no-quorum by bob: None")),
            (
                "majority of four",
                {"quorum": "of four"},
                votes((ANN, YES), (BOB, NO), (CLEO, YES), (DORA, YES), result="approve by dora: ''"),
            ),
            ("escalation", {"escalates": True}, an_escalation_adds_candidates_once_and_takes_the_holder_away),
            ("expiry", {"hours": 5}, an_expired_task_takes_the_timeout_way),
            ("answer before the expiry", {"hours": 5}, an_answer_before_the_expiry_wins),
        )
    ]
    + [
        pytest.param(joins, {}, the_loser_of_a_join_loses_its_task, id="join"),
    ]
)
ONE_LIST = pytest.param(asks, {}, a_process_a_flow_and_a_cell_have_one_list, id="one list")


@pytest.mark.parametrize("cache", [4096, 0], ids=["hot", "evicted"])
@pytest.mark.parametrize(("flow", "arguments", "story"), STORIES)
def test_a_story_of_tasks_survives_a_crash_at_every_commit(
    flow: Any, arguments: dict[str, Any], story: Any, cache: int
):
    crash_test(flow, **arguments, story=story, cache=cache, pairs=10 if LONG else 4, random=4 if LONG else 2)


class Audited(WorkflowTrial):
    """A crash test whose world has cells too, and whose auditor compares all tables with the journal."""

    def _simulation(self, schedule: Schedule, **options: Any) -> UserSimulation:
        return UserSimulation(self.workflow, approval, buyer, ours=True, **options)


@everywhere
@pytest.mark.parametrize(("flow", "arguments", "story"), [*STORIES, ONE_LIST])
def test_a_story_of_tasks_leaves_the_same_rows_on_each_store_whatever_commit_crashes(
    flow: Any, arguments: dict[str, Any], story: Any, cache: int, *, crashes: int | None, new_disk: Any
):
    options: dict[str, Any] = {"key": "1", "messages": (), "script": {}, "reset": None, "observe": None}
    trial = Audited(flow, (), arguments, story=story, cache=cache, handlers=(), **options)

    assert len(crashed_everywhere(trial, new_disk, crashes)) > 4
