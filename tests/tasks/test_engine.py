"""Tasks end to end: flows ask, people answer, on every store and from another process."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

import perdure
from perdure import Actor, BadAnswer, BadCall, TaskRefused, UnknownTask

ANN, BOB = Actor("ann", roles=["manager"]), Actor("bob", roles=["manager"])
BOSS, ROOT, SAM = Actor("max", roles=["boss"]), Actor("root", admin=True), Actor("sam")


@dataclass
class Verdict:
    outcome: Literal["approve", "reject"]
    comment: str = ""


@perdure.flow
async def expense(ctx: perdure.Context, what: str, options: dict[str, Any] | None = None) -> str:
    done = await ctx.task(
        "approve",
        answer=Verdict,
        title=f"Approve {what}",
        data={"what": what},
        roles=["manager"],
        managers=["boss"],
        exclude=[ctx.started_by],
        **(options or {}),
    )
    assert isinstance(done.answer, Verdict)
    return f"{done.outcome} by {done.by}: {done.answer.comment}"


@perdure.flow
async def patient(ctx: perdure.Context, seconds: float) -> str:
    try:
        done = await ctx.task("ask", users=["ann"], managers=["boss"], expire=timedelta(seconds=seconds))
    except perdure.TaskExpired as error:
        return f"expired: {error.name}"
    except perdure.TaskCancelled as error:
        return f"cancelled by {error.by}: {error.reason}"
    return done.outcome


@perdure.flow
async def raced(ctx: perdure.Context) -> str:
    async def first() -> str:
        return (await ctx.task("first", users=["ann"])).by

    async def second() -> str:
        return (await ctx.task("second", users=["bob"])).by

    winner, by = await ctx.race("who", {"a": first, "b": second})
    return f"{winner} {by}"


@pytest.fixture(params=["memory", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    else:
        yield ":memory:" if request.param == "memory" else str(tmp_path / "tasks.db")


@pytest.fixture
def file(tmp_path: Any) -> str:
    return str(tmp_path / "tasks.db")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[perdure.Engine]:
    async with perdure.open(url, workflows=[expense, patient, raced]) as engine:
        yield engine
        assert await engine.queries.check() == []


async def first_task(client: perdure.Client, count: int = 1, **wanted: Any) -> perdure.TaskInfo:
    """The first task of a list, as soon as there are so many: a child begins after its owner is acknowledged."""
    async with asyncio.timeout(60):
        while len(found := await client.tasks.list(**wanted)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return found[0]


async def test_a_flow_asks_and_goes_on_with_the_answer(url: str):
    async with opened(url) as engine:
        handle = await engine.start(expense, "chairs", key="e-1", by="carl")
        task = await first_task(engine, by=ANN, candidate=True, order="due")
        assert (task.title, task.owner, task.status) == ("Approve chairs", "expense/e-1", "open")
        held = await engine.tasks.claim(task.id, by=ANN)
        assert (held.status, held.assignee) == ("assigned", "ann")

        done = await engine.tasks.complete(task.id, {"outcome": "approve", "comment": "fine"}, by=ANN)

        assert (done.status, done.outcome, done.ended_by) == ("completed", "approve", ("ann",))
        assert await handle.result() == "approve by ann: fine"
        assert await engine.tasks.list() == []
        assert [each.id for each in await engine.tasks.list(status="completed")] == [task.id]


async def test_who_started_may_not_approve(url: str):
    async with opened(url) as engine:
        await engine.start(expense, "chairs", by=ANN)
        task = await first_task(engine)
        assert await engine.tasks.list(by=ANN, candidate=True) == []
        assert await engine.tasks.count(by=ANN, candidate=True) == 0
        assert await engine.tasks.count(by=BOB, candidate=True) == 1

        with pytest.raises(TaskRefused) as refused:
            await engine.tasks.complete(task.id, {"outcome": "approve"}, by=Actor("ann", ["manager"], admin=True))
        assert refused.value.code == "excluded"


async def test_a_refusal_leaves_no_entry(url: str):
    async with opened(url) as engine:
        await engine.start(expense, "chairs")
        task = await first_task(engine)
        await engine.tasks.claim(task.id, by=ANN)
        height = await engine.queries.height()

        with pytest.raises(TaskRefused, match="ann has the task") as refused:
            await engine.tasks.claim(task.id, by=BOB)
        assert (refused.value.code, refused.value.holder) == ("taken", "ann")
        with pytest.raises(UnknownTask):
            await engine.tasks.claim(task.id, by=SAM)
        with pytest.raises(UnknownTask):
            await engine.tasks.get(task.id, by=SAM)
        with pytest.raises(BadAnswer) as wrong:
            await engine.tasks.complete(task.id, {"outcome": "maybe", "comment": 7}, by=ANN)
        assert {problem.where for problem in wrong.value.problems} == {"/outcome", "/comment"}
        assert (await engine.tasks.claim(task.id, by=ANN)).assignee == "ann"
        with pytest.raises(TaskRefused, match="reason"):
            await engine.tasks.cancel(task.id, by=BOSS)
        assert await engine.queries.height() == height


async def test_completing_again_gives_the_first_result_and_writes_nothing(url: str):
    async with opened(url) as engine:
        await engine.start(expense, "chairs")
        task = await first_task(engine)
        first = await engine.tasks.complete(task.id, {"outcome": "approve"}, by=ANN, id="click-1")
        await asyncio.sleep(0)
        height = await engine.queries.height()

        assert await engine.tasks.complete(task.id, {"outcome": "approve", "comment": ""}, by=ANN) == first
        assert await engine.tasks.complete(task.id, {"outcome": "reject"}, by=ANN, id="click-1") == first
        with pytest.raises(TaskRefused) as refused:
            await engine.tasks.complete(task.id, {"outcome": "reject"}, by=ANN)
        assert (refused.value.code, refused.value.ended_by) == ("ended", ("ann",))
        with pytest.raises(TaskRefused):
            await engine.tasks.complete(task.id, {"outcome": "approve"}, by=BOB)
        assert await engine.queries.height() - height <= 1  # the receipt of the owner may come after


async def test_two_claims_at_once_give_one_holder(url: str):
    async with opened(url) as engine:
        await engine.start(expense, "chairs")
        task = await first_task(engine)

        claims = [engine.tasks.claim(task.id, by=by) for by in (ANN, BOB)]
        found = await asyncio.gather(*claims, return_exceptions=True)

        (refused,) = [each for each in found if isinstance(each, BaseException)]
        assert isinstance(refused, TaskRefused) and refused.code == "taken"
        assert (await engine.tasks.get(task.id)).assignee == refused.holder


async def test_the_race_of_an_answer_and_a_cancel_has_one_outcome(url: str):
    async with opened(url) as engine:
        handle = await engine.start(patient, 3600)
        task = await first_task(engine)

        both = [engine.tasks.complete(task.id, by="ann"), engine.tasks.cancel(task.id, "too late", by=BOSS)]
        found = await asyncio.gather(*both, return_exceptions=True)

        (refused,) = [each for each in found if isinstance(each, BaseException)]
        assert isinstance(refused, TaskRefused) and refused.code == "ended"
        result = "done" if found[0] is not refused else "cancelled by max: too late"
        assert await handle.result() == result


async def test_an_expired_task_takes_its_owners_timeout_way(url: str):
    async with opened(url) as engine:
        handle = await engine.start(patient, 0.01)

        assert await handle.result(60) == "expired: ask"
        assert [each.status for each in await engine.tasks.list(status=["expired"])] == ["expired"]


async def test_a_cancelled_task_tells_its_owner_who_and_why(url: str):
    async with opened(url) as engine:
        handle = await engine.start(patient, 3600)
        task = await first_task(engine)
        await engine.tasks.cancel(task.id, "bought elsewhere", by=BOSS)

        assert await handle.result() == "cancelled by max: bought elsewhere"


async def test_ending_the_owner_cancels_its_tasks(url: str):
    async with opened(url) as engine:
        handle = await engine.start(expense, "chairs")
        task = await first_task(engine)
        await handle.cancel("not needed")
        with pytest.raises(perdure.InstanceCancelled):
            await handle.result()

        ended = await engine.tasks.get(task.id)
        assert (ended.status, ended.history[-1].what) == ("cancelled", "cancelled")


async def test_the_loser_of_a_race_loses_its_task(url: str):
    async with opened(url) as engine:
        handle = await engine.start(raced)
        await first_task(engine, count=2)
        (mine,) = await engine.tasks.list(user="bob")
        await engine.tasks.complete(mine.id, by="bob")

        assert await handle.result() == "b bob"
        assert {each.name: each.status for each in await engine.tasks.list(status=["completed", "cancelled"])} == {
            "first": "cancelled",
            "second": "completed",
        }


async def test_the_history_of_a_task_has_who_did_what(url: str):
    async with opened(url) as engine:
        await engine.start(expense, "chairs", {"due": datetime(2030, 1, 1, tzinfo=UTC)})
        task = await first_task(engine)
        tasks = engine.tasks
        await tasks.comment(task.id, "I ask the supplier", by=BOB)
        await tasks.change(task.id, priority=80, due=None, by=BOSS)
        await tasks.escalate(task.id, users=["ursula"], by=BOSS)
        await tasks.assign(task.id, BOB, by=BOSS)
        await tasks.assign(task.id, ANN, by=BOSS, override=True)
        await tasks.release(task.id, by=ANN)
        await tasks.complete(task.id, {"outcome": "reject"}, by=ROOT, override=True)

        detail = await tasks.get(task.id, by=ROOT)
        assert [(event.what, event.by) for event in detail.history] == [
            ("created", ""),
            ("commented", "bob"),
            ("changed", "max"),
            ("escalated", "max"),
            ("assigned", "max"),
            ("assigned", "max"),
            ("released", "ann"),
            ("completed", "root"),
        ]
        assert detail.history[1].text == "I ask the supplier"
        assert detail.history[2].changes == {"priority": (50, 80), "due": (datetime(2030, 1, 1, tzinfo=UTC), None)}
        assert detail.history[3].changes == {"users": ((), ("ursula",))}
        assert detail.history[-1].outcome == "reject"
        assert detail.data == {"what": "chairs"}
        assert detail.form is not None and list(detail.form["properties"]) == ["outcome", "comment"]


async def test_get_says_what_an_actor_may_do(url: str):
    async with opened(url) as engine:
        await engine.start(expense, "chairs")
        task = await first_task(engine)

        assert (await engine.tasks.get(task.id, by=ANN)).may == ("comment", "claim", "release", "complete")
        assert set((await engine.tasks.get(task.id, by=BOSS)).may) == {
            "comment", "assign", "release", "change", "escalate", "cancel",
        }  # fmt: skip


async def test_verbs_from_another_process_are_answered_there(file: str):
    async with opened(file) as engine, perdure.connect(file) as client:
        handle = await engine.start(expense, "chairs", key="e-1")
        task = await first_task(client, by=ANN)
        await client.tasks.claim(task.id, by=ANN)
        with pytest.raises(TaskRefused) as refused:
            await client.tasks.claim(task.id, by=BOB)
        assert refused.value.holder == "ann"
        await client.tasks.complete(task.id, {"outcome": "approve"}, by=ANN, id="click-1")

        assert await handle.result() == "approve by ann: "
        assert (await client.tasks.complete(task.id, {"outcome": "approve"}, by=ANN, id="click-1")).outcome == "approve"


async def test_a_task_outlives_a_restart(file: str):
    async with opened(file) as engine:
        await engine.start(expense, "chairs", key="e-1")
        task = await first_task(engine)
        await engine.tasks.claim(task.id, by=ANN)
    async with opened(file) as engine:
        assert (await engine.tasks.list(by=ANN, mine=True))[0].id == task.id
        await engine.tasks.complete(task.id, {"outcome": "approve"}, by=ANN)
        assert await engine.handle(expense, "e-1").result() == "approve by ann: "


async def test_an_answer_before_the_expiry_wins_after_a_restart(file: str):
    async with opened(file) as engine:
        await engine.start(patient, 3, key="p")
        task = await first_task(engine)
    async with perdure.connect(file) as client:
        answer = asyncio.create_task(client.tasks.complete(task.id, by="ann"))
        async with asyncio.timeout(60):
            while not await client.queries.undelivered():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            posted = datetime.now(UTC)
            expires = task.expires
            assert expires is not None and posted < expires, "this machine is too slow for this test"
            while datetime.now(UTC) <= expires:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        async with opened(file) as engine:
            assert (await answer).status == "completed"
            assert await engine.handle(patient, "p").result() == "done"


async def test_lists_are_filtered(url: str):
    async with opened(url) as engine:
        for n, what in enumerate(["a", "b", "c"]):
            options = {"priority": 30 * n, "labels": {"team": what}, "reference": f"r-{what}"}
            await engine.start(expense, what, options, key=f"e-{what}")
            await first_task(engine, count=n + 1)
        tasks = engine.tasks

        async def titles(**wanted: Any) -> str:
            return "".join(task.title[-1] for task in await tasks.list(**wanted))

        assert await titles() == "abc"
        assert await titles(order="priority") == "cba"
        assert await titles(label=("team", "b")) == "b"
        assert await titles(reference="r-c") == "c"
        assert await titles(workflow="expense", key="e-a") == "a"
        assert await titles(role="manager", name="approve") == "abc"
        assert await titles(by=BOSS) == "abc"
        assert await titles(by=BOSS, candidate=True) == ""
        assert await titles(by=SAM) == ""
        assert await titles(by=ROOT, candidate=True, limit=2) == "ab"
        page = await tasks.list(by=ANN, order="priority", limit=2)
        assert await titles(by=ANN, order="priority", after=page[-1]) == "a"
        assert await titles(by=ANN, order="priority", after=page[-1].id) == "a"
        await tasks.claim(page[0].id, by=ANN)
        assert await titles(by=BOB, candidate=True) == "ab"
        assert await titles(by=ANN, candidate=True, order="priority") == "cba"
        assert await titles(by=ANN, mine=True) == "c"
        assert await titles(status="assigned") == "c"
        assert await titles(status="open") == "ab"
        assert [await tasks.count(), await tasks.count(by=ANN, mine=True), await tasks.count(by=SAM)] == [3, 1, 0]


async def test_a_list_of_ended_tasks_shows_what_an_actor_may_see(url: str):
    async with opened(url) as engine:
        await engine.start(expense, "chairs")
        task = await first_task(engine)
        await engine.tasks.complete(task.id, {"outcome": "approve"}, by=ANN)

        assert [each.id for each in await engine.tasks.list(by=BOB, status="completed")] == [task.id]
        assert await engine.tasks.list(by=SAM, status="completed") == []
        assert await engine.tasks.count(by=SAM, status="completed") == 0
        assert await engine.tasks.count(by=BOB, status="completed") == 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda tasks, id: tasks.claim(id), "needs the actor"),
        (lambda tasks, id: tasks.claim(id, by=""), "an actor has an id"),
        (lambda tasks, id: tasks.claim(id, by=7), "by= takes"),
        (lambda tasks, id: tasks.change(id, by=BOSS), "changes nothing"),
        (lambda tasks, id: tasks.change(id, priority=900, by=BOSS), "from 0 to 100"),
        (lambda tasks, id: tasks.change(id, due=datetime(2030, 1, 1), by=BOSS), "time zone"),
        (lambda tasks, id: tasks.change(id, expire=-timedelta(1), by=BOSS), "not negative"),
        (lambda tasks, id: tasks.escalate(id, by=BOSS), "changes nothing"),
        (lambda tasks, id: tasks.escalate(id, roles="lead", by=BOSS), "list of texts"),
        (lambda tasks, id: tasks.comment(id, "", by=ANN), "a comment is a text"),
        (lambda tasks, id: tasks.comment(id, "x" * 5000, by=ANN), "a comment is a text"),
        (lambda tasks, id: tasks.assign(id, 7, by=BOSS), "by= takes"),
        (lambda tasks, id: tasks.list(mine=True), "give by="),
        (lambda tasks, id: tasks.list(status="gone"), "no status of a task"),
        (lambda tasks, id: tasks.list(order="size"), "created, due or priority"),
        (lambda tasks, id: tasks.list(limit=0), "at least 1"),
        (lambda tasks, id: tasks.list(name=7), "name= is a text"),
        (lambda tasks, id: claim_itself(tasks), "give task.id"),
    ],
)
async def test_a_bad_call_is_told_what_to_write(file: str, call: Any, told: str):
    async with opened(file) as engine:
        await engine.start(expense, "chairs")
        task = await first_task(engine)
        height = await engine.queries.height()

        with pytest.raises(BadCall, match=told):
            await call(engine.tasks, task.id)
        assert await engine.queries.height() == height


async def claim_itself(tasks: Any) -> None:
    (task,) = await tasks.list()
    await tasks.claim(task, by=ANN)


@pytest.mark.parametrize("id", ["", "x", "99", "-1", "1" * 30, 7, "²"])
async def test_an_unknown_id_is_an_unknown_task(file: str, id: Any):
    async with opened(file) as engine:
        with pytest.raises(UnknownTask, match="perdure tasks ls"):
            await engine.tasks.get(id)
        with pytest.raises(UnknownTask):
            await engine.tasks.claim(id, by=ANN)


async def test_a_task_is_not_started_by_hand(file: str):
    async with opened(file) as engine:
        with pytest.raises(perdure.CallerError, match="a workflow asks for it"):
            await engine.start("perdure.task")

    @perdure.flow(name="perdure.mine")
    async def mine(ctx: perdure.Context) -> None:
        pass

    with pytest.raises(perdure.CallerError, match="belong to perdure"):
        async with perdure.open(file, workflows=[mine]):
            pass


async def test_a_bad_question_fails_the_flow_and_asks_nothing(file: str):
    @perdure.flow
    async def nobody(ctx: perdure.Context) -> None:
        await ctx.task("approve")

    async with perdure.open(file, workflows=[nobody]) as engine:
        handle = await engine.start(nobody)
        with pytest.raises(perdure.InstanceFailed, match="PD042"):
            await handle.result()
        assert await engine.tasks.count() == 0


@perdure.flow(name="reviewed")
async def reviewed(ctx: perdure.Context) -> str:
    return (await ctx.task("review", roles=["clerk"])).by


@perdure.flow(name="reviewed")
async def reviewed_with_other_code(ctx: perdure.Context) -> str:
    await ctx.sleep("nap", 60)
    return "nobody"


@pytest.mark.parametrize("kind", ["file", "postgres"])
async def test_a_task_outlives_a_stuck_owner_which_hears_it_when_it_goes_on(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
):
    url = str(request.getfixturevalue("postgres") if kind == "postgres" else tmp_path / "tasks.db")
    ann = perdure.Actor("ann", roles=["clerk"])
    async with perdure.open(url, workflows=[reviewed]) as engine:
        await engine.start(reviewed, key="p")
        async with asyncio.timeout(60):
            while not (found := await engine.tasks.list()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    async with perdure.open(url, workflows=[reviewed_with_other_code]) as engine:
        handle = engine.handle(reviewed_with_other_code, "p")
        await handle.send("hello")
        await handle.until("stuck", 60)
        assert (await engine.tasks.get(found[0].id)).status == "open"
        done = await engine.tasks.complete(found[0].id, by=ann)

        assert done.status == "completed"
        assert (await handle.summary()).status == "stuck"
    async with perdure.open(url, workflows=[reviewed]) as engine:
        mended = engine.handle(reviewed, "p")
        await mended.retry()

        assert await mended.result(60) == "ann"
        assert await engine.queries.check() == []


async def test_the_task_of_a_second_generation_has_a_key_of_its_own():
    ann = perdure.Actor("ann", roles=["clerk"])
    async with perdure.open(":memory:", workflows=[reviewed]) as engine:
        for _ in range(2):
            handle = await engine.start(reviewed, key="p", reuse="always")
            async with asyncio.timeout(60):
                while not (found := await engine.tasks.list(key="p", workflow="reviewed")):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            await engine.tasks.complete(found[0].id, by=ann)
            assert await handle.result(60) == "ann"

        keys = {each.key for each in await engine.instances(workflow="perdure.task")}
        assert keys == {"p/@reviewed/review", "p~2/@reviewed/review"}
        assert await engine.tasks.count(key="p", workflow="reviewed", status="completed") == 2
