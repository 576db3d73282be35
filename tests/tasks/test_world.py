"""Tasks in a world of tests, and under crashes at every commit."""

from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import Actor
from perdure.testing import World, crash_test
from tests.tasks.desk import Verdict

ANN, BOB, BOSS = Actor("ann", ["clerk"]), Actor("bob", ["clerk"]), Actor("max", ["boss"])


@perdure.flow
async def expense(ctx: perdure.Context, what: str) -> str:
    try:
        done = await ctx.task(
            "approve",
            answer=Verdict,
            title=what,
            roles=["clerk"],
            managers=["boss"],
            exclude=[ctx.started_by],
            expire=timedelta(days=10),
            escalate=[perdure.Escalation(timedelta(days=3), roles=["lead"], release=True)],
        )
    except perdure.TaskExpired:
        return "expired"
    except perdure.TaskCancelled as error:
        return f"cancelled: {error.reason}"
    return f"{done.outcome} by {done.by}"


@perdure.flow
async def committee(ctx: perdure.Context) -> str:
    quorum = perdure.Quorum(2, of=3)
    done = await ctx.task("vote", answer=Verdict, roles=["clerk"], quorum=quorum)
    return f"{done.outcome} by {', '.join(vote.by for vote in done.votes)}"


@perdure.flow
async def two_ways(ctx: perdure.Context) -> str:
    async def ask() -> str:
        return (await ctx.task("ask", users=["ann"])).by

    async def wait() -> str:
        await ctx.sleep("nap", timedelta(hours=1))
        return "nobody"

    _, who = await ctx.race("who", {"ask": ask, "wait": wait})
    return str(who)


def only_task(world: World, **wanted: Any) -> perdure.TaskInfo:
    """The one task of a list. Where crashes delay it, time has to pass."""
    for _ in range(100):
        if found := world.tasks.list(**wanted):
            (task,) = found
            return task  # type: ignore[no-any-return]
        world.advance(1)
    raise AssertionError("there is no task")


def test_a_world_has_tasks_without_await():
    with World() as world:
        handle = world.start(expense, "chairs", by="carl")
        task = only_task(world, by=ANN, candidate=True)
        world.tasks.claim(task.id, by=ANN)
        with pytest.raises(perdure.TaskRefused):
            world.tasks.claim(task.id, by=BOB)
        world.crash()
        world.tasks.complete(task.id, {"outcome": "approve"}, by=ANN)

        assert handle.result() == "approve by ann"
        assert [event.what for event in world.tasks.get(task.id).history] == ["created", "claimed", "completed"]


def test_time_escalates_and_ends_a_task():
    with World(cache=0) as world:
        handle = world.start(expense, "chairs")
        task = only_task(world)
        world.tasks.claim(task.id, by=ANN)
        world.advance(timedelta(days=3))
        assert world.tasks.get(task.id).roles == ("clerk", "lead")
        assert world.tasks.get(task.id).status == "open"
        world.advance(timedelta(days=7))

        assert handle.result() == "expired"
        assert [event.what for event in world.tasks.get(task.id).history] == [
            "created", "claimed", "escalated", "expired",
        ]  # fmt: skip


def test_a_rewound_flow_asks_again_and_its_old_task_is_cancelled():
    with World() as world:
        handle = world.start(expense, "chairs")
        old = only_task(world)
        handle.rewind("approve")
        new = only_task(world)

        assert new.id != old.id
        assert world.tasks.get(old.id).status == "cancelled"
        world.tasks.complete(new.id, {"outcome": "reject"}, by=ANN)
        assert handle.result() == "reject by ann"


# ---- crashes at every commit, and eviction after every entry


def approves(world: World, handle: Any) -> None:
    task = only_task(world)
    world.tasks.claim(task.id, by=ANN, id="claim")
    world.tasks.comment(task.id, "hm", by=BOB, id="comment")
    world.tasks.change(task.id, priority=90, by=BOSS, id="change")
    world.tasks.complete(task.id, {"outcome": "approve"}, by=ANN, id="complete")


def lets_it_expire(world: World, handle: Any) -> None:
    only_task(world)
    world.advance(timedelta(days=11))


def cancels(world: World, handle: Any) -> None:
    world.tasks.cancel(only_task(world).id, "enough", by=BOSS, id="cancel")


def votes(world: World, handle: Any) -> None:
    task = only_task(world)
    for name, outcome in (("ann", "approve"), ("bob", "reject"), ("bob", "approve")):
        actor = Actor(name, ["clerk"])
        world.tasks.complete(task.id, {"outcome": outcome}, by=actor, id=f"{name} {outcome}")


def cancels_the_owner(world: World, handle: Any) -> None:
    only_task(world)
    handle.cancel("not needed")


def waits(world: World, handle: Any) -> None:
    only_task(world)
    world.advance(timedelta(hours=2))


@pytest.mark.parametrize("cache", [4096, 0], ids=["hot", "evicted"])
@pytest.mark.parametrize(
    ("workflow", "args", "story"),
    [
        (expense, ("chairs",), approves),
        (expense, ("chairs",), lets_it_expire),
        (expense, ("chairs",), cancels),
        (expense, ("chairs",), cancels_the_owner),
        (committee, (), votes),
        (two_ways, (), waits),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_crash_anywhere_makes_no_difference(workflow: Any, args: tuple[Any, ...], story: Any, cache: int):
    crash_test(workflow, *args, story=story, cache=cache, pairs=40, random=10)


def test_a_forked_flow_asks_again_and_the_old_task_stays_with_the_old_instance():
    with World() as world:
        handle = world.start(expense, "chairs")
        old = only_task(world)
        other = handle.fork("approve", key="other")
        both = world.tasks.list()
        assert len(both) == 2 and {task.key for task in both} == {old.key, "other"}
        (new,) = [task for task in both if task.key == "other"]
        world.tasks.complete(new.id, {"outcome": "reject"}, by=ANN)

        assert other.result() == "reject by ann"
        assert world.tasks.get(old.id).status == "open"
        world.tasks.complete(old.id, {"outcome": "approve"}, by=BOB)
        assert handle.result() == "approve by bob"


def test_paging_neither_skips_nor_repeats_while_tasks_come_and_go():
    with World() as world:
        for number in range(20):
            world.start(expense, f"{number}", key=f"e-{number}")
        first = world.tasks.list(limit=8)
        world.tasks.complete(first[2].id, {"outcome": "approve"}, by=ANN)
        world.tasks.claim(world.tasks.list(key="e-12", workflow="expense")[0].id, by=ANN)
        world.tasks.cancel(world.tasks.list(key="e-13", workflow="expense")[0].id, "enough", by=BOSS)
        world.start(expense, "late", key="e-20")

        seen, page = [*first], first
        while page := world.tasks.list(limit=5, after=page[-1]):
            seen += page

        assert [task.key for task in seen] == [f"e-{number}" for number in range(21) if number != 13]


def test_an_equal_vote_again_writes_nothing_before_and_after_the_decision():
    with World() as world:
        world.start(committee)
        id, no, yes = only_task(world).id, {"outcome": "reject"}, {"outcome": "approve"}
        cleo = Actor("cleo", ["clerk"])
        first = world.tasks.complete(id, no, by=ANN)
        assert world.tasks.complete(id, {**no, "comment": ""}, by=ANN) == first
        world.tasks.complete(id, {**yes, "comment": "I think so"}, by=BOB)
        before = world.tasks.get(id)
        last = world.tasks.complete(id, yes, by=cleo)

        assert last.status == "completed" and last.outcome == "approve"
        for by, answer in ((ANN, no), (BOB, {**yes, "comment": "I think so"}), (cleo, yes)):
            assert world.tasks.complete(id, answer, by=by) == last
        for by, answer in ((ANN, yes), (BOB, yes), (cleo, no)):
            with pytest.raises(perdure.TaskRefused, match="completed"):
                world.tasks.complete(id, answer, by=by)
        after = world.tasks.get(id)
        assert [event.what for event in after.history] == ["created", "voted", "voted", "completed"]
        assert [(vote.by, vote.outcome, vote.answer["comment"]) for vote in before.votes] == [
            ("ann", "reject", ""),
            ("bob", "approve", "I think so"),
        ]
        assert (before.voted, after.votes[:2]) == (2, before.votes)
        assert after.votes[2].at == after.history[-1].at


def test_a_vote_that_was_changed_can_be_changed_back():
    with World() as world:
        world.start(committee)
        id = only_task(world).id
        for outcome in ("reject", "approve", "reject"):
            world.tasks.complete(id, {"outcome": outcome}, by=ANN)

        assert [event.what for event in world.tasks.get(id).history] == ["created", "voted", "voted", "voted"]
