"""Bad input: each case is one typed error that says what to do, the task is as it was, and nothing is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import Actor, BadAnswer, BadCall, Escalation, PerdureError, Quorum, TaskRefused, UnknownTask
from tests.tasks.desk import Verdict
from tests.tasks.test_engine import first_task

ANN, BOB = Actor("ann", ["clerk"]), Actor("bob", ["clerk"])
EVE, BOSS, SAM = Actor("eve", ["clerk"], admin=True), Actor("max", ["boss"]), Actor("sam")
YES = {"outcome": "approve"}


@perdure.flow
async def asks(ctx: perdure.Context, votes: bool = False) -> str:
    quorum = Quorum(2) if votes else None
    done = await ctx.task("approve", answer=Verdict, roles=["clerk"], managers=["boss"], exclude=["eve"], quorum=quorum)
    return done.outcome


def deep(levels: int) -> Any:
    made: Any = "x"
    for _ in range(levels):
        made = [made]
    return made


CASES: list[tuple[str, type[PerdureError], str, Callable[[Any, str], Any]]] = [
    ("unknown id", UnknownTask, "perdure tasks ls", lambda tasks, id: tasks.claim("999999", by=ANN)),
    ("an id that is no number", UnknownTask, "perdure tasks ls", lambda tasks, id: tasks.get("x")),
    ("task of another person", UnknownTask, "not for this actor", lambda tasks, id: tasks.complete(id, YES, by=SAM)),
    ("answer is no data", PerdureError, "", lambda tasks, id: tasks.complete(id, object(), by=ANN)),
    ("answer is no number", PerdureError, "", lambda tasks, id: tasks.complete(id, {"a": float("nan")}, by=ANN)),
    ("answer is a lone half", PerdureError, "", lambda tasks, id: tasks.complete(id, {"a": "\ud800"}, by=ANN)),
    ("answer too deep", PerdureError, "", lambda tasks, id: tasks.complete(id, deep(5000), by=ANN)),
    (
        "answer too large",
        PerdureError,
        "answer",
        lambda tasks, id: tasks.complete(id, {**YES, "comment": "x" * 20_000_000}, by=ANN),
    ),
    ("answer of the wrong type", BadAnswer, "object", lambda tasks, id: tasks.complete(id, [1], by=ANN)),
    ("no answer", BadAnswer, "object", lambda tasks, id: tasks.complete(id, by=ANN)),
    ("a field too much", BadAnswer, "more", lambda tasks, id: tasks.complete(id, {**YES, "more": 1}, by=ANN)),
    ("empty actor", BadCall, "an actor has an id", lambda tasks, id: tasks.claim(id, by="")),
    ("no actor", BadCall, "needs the actor", lambda tasks, id: tasks.claim(id)),
    ("role that is no text", BadCall, "", lambda tasks, id: tasks.claim(id, by=Actor("ann", [7]))),  # type: ignore[list-item]
    ("roles are one text", BadCall, "", lambda tasks, id: tasks.claim(id, by=Actor("ann", "clerk"))),
    ("unzoned time", BadCall, "time zone", lambda tasks, id: tasks.change(id, due=datetime(2030, 1, 1), by=BOSS)),
    ("negative time", BadCall, "not negative", lambda tasks, id: tasks.change(id, expire=-timedelta(1), by=BOSS)),
    ("far time", BadCall, "future", lambda tasks, id: tasks.change(id, due=timedelta.max, by=BOSS)),
    ("unzoned filter", BadCall, "time zone", lambda tasks, id: tasks.list(due_before=datetime(2030, 1, 1))),
    ("filter that is no time", BadCall, "due_before", lambda tasks, id: tasks.list(due_before="now")),
    ("label that is no pair", BadCall, "label", lambda tasks, id: tasks.list(label="red")),
    ("unknown filter", BadCall, "colour", lambda tasks, id: tasks.list(colour="red")),
    ("unknown filter of a count", BadCall, "colour", lambda tasks, id: tasks.count(colour="red")),
    ("page after no task", UnknownTask, "perdure tasks ls", lambda tasks, id: tasks.list(after="x")),
    ("status that is no text", BadCall, "status", lambda tasks, id: tasks.list(status=7)),
    ("escalation without anybody", BadCall, "changes nothing", lambda tasks, id: tasks.escalate(id, by=BOSS)),
    ("escalation to no text", BadCall, "users", lambda tasks, id: tasks.escalate(id, users=[7], by=BOSS)),
    ("change of nothing", BadCall, "changes nothing", lambda tasks, id: tasks.change(id, by=BOSS)),
    ("comment too long", BadCall, "a comment is", lambda tasks, id: tasks.comment(id, "x" * 4097, by=ANN)),
    ("comment of a lone half", BadCall, "a comment is", lambda tasks, id: tasks.comment(id, "\ud800", by=ANN)),
    ("excluded person", TaskRefused, "excluded", lambda tasks, id: tasks.complete(id, YES, by=EVE, override=True)),
    ("cancel without a reason", TaskRefused, "no-reason", lambda tasks, id: tasks.cancel(id, by=BOSS)),
    ("change by a candidate", TaskRefused, "not-manager", lambda tasks, id: tasks.change(id, priority=1, by=ANN)),
    ("reason that is no text", PerdureError, "reason", lambda tasks, id: tasks.cancel(id, 7, by=BOSS)),
    ("id that is no text", PerdureError, "id", lambda tasks, id: tasks.claim(id, by=ANN, id=7)),
    ("unknown argument", BadCall, "reson", lambda tasks, id: tasks.cancel(id, reson="x", by=BOSS)),
]


@pytest.fixture(params=["memory", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    return ":memory:" if request.param == "memory" else str(tmp_path / "tasks.db")


async def test_a_bad_input_is_one_typed_error_and_nothing_is_recorded(url: str):
    async with perdure.open(url, workflows=[asks]) as engine:
        await engine.start(asks)
        task = await first_task(engine)
        height, before = await engine.queries.height(), await engine.tasks.get(task.id)
        wrong: dict[str, str] = {}
        for name, kind, told, call in CASES:
            try:
                await call(engine.tasks, task.id)
                wrong[name] = "no error"
            except PerdureError as error:
                if not isinstance(error, kind) or told not in f"{error} {getattr(error, 'code', '')}":
                    wrong[name] = f"{type(error).__name__}: {error!s:.200}"
            except BaseException as error:
                wrong[name] = f"{type(error).__name__}: {error!s:.200}"
        assert wrong == {}
        assert await engine.queries.height() == height
        assert await engine.tasks.get(task.id) == before


async def test_completing_for_another_and_a_verb_on_an_ended_task_are_refused(url: str):
    async with perdure.open(url, workflows=[asks]) as engine:
        handle = await engine.start(asks)
        task = await first_task(engine)
        await engine.tasks.claim(task.id, by=BOB)
        height = await engine.queries.height()
        with pytest.raises(TaskRefused) as refused:
            await engine.tasks.complete(task.id, YES, by=ANN)
        assert (refused.value.code, refused.value.holder) == ("not-assignee", "bob")
        assert await engine.queries.height() == height

        done = await engine.tasks.complete(task.id, YES, by=BOB)
        await handle.result()
        height = await engine.queries.height()
        for verb in (engine.tasks.claim, engine.tasks.release, engine.tasks.complete):
            with pytest.raises(TaskRefused) as refused:
                await verb(task.id, by=ANN)
            assert (refused.value.code, refused.value.ended_by, refused.value.ended_at) == (
                "ended", ("bob",), done.ended_at,
            )  # fmt: skip
        assert await engine.queries.height() == height


async def test_an_excluded_person_has_no_vote(url: str):
    async with perdure.open(url, workflows=[asks]) as engine:
        await engine.start(asks, votes=True)
        task = await first_task(engine)
        height = await engine.queries.height()
        with pytest.raises(TaskRefused, match="excluded"):
            await engine.tasks.complete(task.id, YES, by=EVE)
        assert await engine.queries.height() == height


async def test_of_two_cancels_at_once_with_one_id_both_get_the_first_answer(url: str):
    async with perdure.open(url, workflows=[asks]) as engine:
        await engine.start(asks)
        task = await first_task(engine)

        both = [engine.tasks.cancel(task.id, "enough", by=BOSS, id="click-1") for _ in range(2)]
        first, second = await asyncio.gather(*both)

        assert first == second and first.status == "cancelled"


async def test_the_loser_of_a_race_gets_the_same_error_and_leaves_one_entry(url: str):
    async with perdure.open(url, workflows=[asks]) as engine:
        await engine.start(asks)
        task = await first_task(engine)
        height = await engine.queries.height()

        found = await asyncio.gather(*(engine.tasks.claim(task.id, by=by) for by in (ANN, BOB)), return_exceptions=True)

        (loser,) = [each for each in found if isinstance(each, TaskRefused)]
        with pytest.raises(TaskRefused) as on_the_row:
            await engine.tasks.claim(task.id, by=BOB if loser.holder == "ann" else ANN)
        assert (str(loser), loser.code, loser.holder) == (
            str(on_the_row.value), on_the_row.value.code, on_the_row.value.holder,
        )  # fmt: skip
        assert await engine.queries.height() <= height + 2  # none, where the row was judged after the other claim
        assert [event.what for event in (await engine.tasks.get(task.id)).history] == ["created", "claimed"]


@pytest.mark.parametrize(
    "fields",
    [
        {"quorum": {"need": 4, "of": 3}},
        {"quorum": {"need": 0}},
        {"quorum": {"need": 1, "veto": {"maybe": 1}}},
        {"quorum": 2},
        {"due": datetime(2030, 1, 1)},
        {"expire": -timedelta(1)},
        {"escalate": [{}]},
        {"roles": [7]},
        {"roles": []},
        {"labels": ["red"]},
        {"data": print},
        {"exclude": "ann"},
        {"escalate": 7},
        {"colour": "red"},
    ],
    ids=str,
)
async def test_a_question_that_cannot_be_fails_its_flow_and_asks_nothing(fields: dict[str, Any]):
    @perdure.flow
    async def wrong(ctx: perdure.Context) -> None:
        given = dict(fields)
        if isinstance(given.get("quorum"), dict):
            given["quorum"] = Quorum(**given["quorum"])
        if given.get("escalate") == [{}]:
            given["escalate"] = [Escalation(timedelta(hours=1))]
        await ctx.task("approve", **{"answer": Verdict, "roles": ["clerk"], **given})

    async with perdure.open(":memory:", workflows=[wrong]) as engine:
        handle = await engine.start(wrong)
        with pytest.raises(perdure.InstanceFailed, match=r"BadCall|NotPlain"):
            await handle.result(60)
        assert await engine.tasks.count(status=["open", "assigned", "cancelled"]) == 0
