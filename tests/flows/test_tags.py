"""Tags: given at the start, by the flow itself and by a person; found by lists, also after a restart."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import apsw
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import perdure
from perdure import Context
from perdure.kernel.tags import kept, readings, told

from .conftest import Stage


@perdure.flow
async def review(ctx: Context) -> str:
    ctx.tag("phase", "reading")
    await ctx.receive("go")
    ctx.tag("phase", "done")
    ctx.tag("team", None)
    await ctx.receive("end")
    return "over"


async def keys(client: Any, **tags: str) -> list[str]:
    return [found.key for found in await client.instances(tags=tags)]


async def test_a_flow_changes_its_tags_and_is_found_by_the_new_ones(stage: Stage) -> None:
    async with stage.open(review) as engine:
        handle = await engine.start(review, key="a", tags={"team": "red"})
        await engine.start(review, key="b", tags={"team": "red"})
        await handle.until("waiting")
        assert await keys(engine, phase="reading", team="red") == ["b", "a"]

        await handle.send("go")
        await handle.send("end")
        await handle.result(60)

        assert await keys(engine, phase="reading") == ["b"]
        assert await keys(engine, phase="done") == ["a"]
        assert await keys(engine, team="red") == ["b"]
        assert (await handle.summary()).tags == {"phase": "done"}
        assert await engine.queries.check() == []


async def test_a_person_changes_tags_and_the_history_tells(disk: Stage) -> None:
    async with disk.open(review) as engine:
        handle = await engine.start(review, key="a", tags={"team": "red"})
        await handle.tag("team", "blue")
        await handle.tag("owner", "ada")
        await handle.tag("owner", None)
        assert await keys(engine, team="blue") == ["a"]
    async with disk.open(review) as engine:
        handle = engine.handle(review, "a")

        assert await keys(engine, team="blue") == ["a"]
        assert await keys(engine, team="red") == await keys(engine, owner="ada") == []
        assert [line.value for line in await handle.history() if line.event == "tagged"] == [
            {"team": "blue"},
            {"owner": "ada"},
            {"owner": None},
        ]
        await handle.send("go")
        await handle.send("end")
        assert await handle.result(60) == "over"
        with pytest.raises(perdure.InstanceEnded):
            await handle.tag("team", "green")
        assert await engine.queries.check() == []


@pytest.mark.parametrize("name", ["reference", "reference.order", "schedule"])
async def test_tags_of_the_engine_are_refused_from_users(memory: Stage, name: str) -> None:
    @perdure.flow
    async def greedy(ctx: Context) -> None:
        ctx.tag(name, "mine")

    async with memory.open(review, greedy, replay=False) as engine:
        with pytest.raises(perdure.CallerError, match="belongs to the engine"):
            await engine.start(review, tags={name: "mine"})
        handle = await engine.start(review)
        with pytest.raises(perdure.CallerError, match="belongs to the engine"):
            await handle.tag(name, "mine")
        with pytest.raises(perdure.InstanceFailed, match="belongs to the engine"):
            await (await engine.start(greedy)).result(60)
        assert await engine.instances(tags={name: "mine"}) == []


async def test_a_head_tells_its_family_its_end_and_what_it_waits_for(stage: Stage) -> None:
    @perdure.flow
    async def above(ctx: Context) -> None:
        await ctx.child(between, key="between")

    @perdure.flow
    async def between(ctx: Context) -> None:
        await ctx.child(review, key="below", detach=True)

    async with stage.open(above, between, review) as engine:
        first, last = await engine.start(above, key="above"), engine.handle(review, "below")
        await first.result(60)
        await last.until("waiting")

        root = (await first.summary()).id
        family = await engine.instances(root=root)
        assert [found.key for found in family] == ["below", "between", "above"]
        assert await engine.instances(parent=family[1].id) == family[:1]
        assert (family[0].ended_at, family[0].reason) == (None, "message go")
        assert all(found.ended_at == found.changed_at and found.reason == "" for found in family[1:])


async def test_a_head_of_an_older_version_is_no_damage(disk: Stage) -> None:
    """It has no reason, and the time at which the instance began to wait."""
    async with disk.open(review) as engine:
        handle = await engine.start(review, key="a")
        await handle.until("waiting")
        await handle.send("go")
        assert (await handle.summary()).reason == "message end"
    apsw.Connection(str(disk.url)).execute("UPDATE instances SET reason = '', changed_at = started_at")

    async with disk.open(review) as engine:
        assert await engine.queries.check() == []
        await engine.handle(review, "a").send("end")
        assert await engine.handle(review, "a").result(60) == "over"
        assert await engine.queries.check() == []


async def test_what_an_instance_waits_for_may_have_any_name(stage: Stage) -> None:
    @perdure.flow
    async def strange(ctx: Context) -> None:
        await ctx.receive("a\x00b")

    async with stage.open(strange) as engine:
        handle = await engine.start(strange)
        await handle.until("waiting")

        assert (await handle.summary()).reason == "message a\ufffdb", "no text of PostgreSQL takes a NUL"
        await handle.send("a\x00b")
        await handle.result(60)


@perdure.flow
async def measured(ctx: Context) -> str:
    ctx.tag("amount", 120)
    ctx.tag("late", False)
    await ctx.receive("go")
    ctx.tag("amount", -3.5)
    await ctx.receive("end")
    return "over"


async def test_a_tag_is_a_text_a_number_a_bool_or_a_time(stage: Stage) -> None:
    due = datetime(2026, 11, 1, 9, tzinfo=UTC)
    async with stage.open(measured) as engine:
        handle = await engine.start(measured, key="a", tags={"due": due, "amount": "unknown"})
        await handle.until("waiting")

        assert (await handle.summary()).tags == {"due": due, "amount": 120, "late": False}
        assert [one.key for one in await engine.instances(tags={"amount": 120.0, "late": False, "due": due})] == ["a"]
        assert await engine.instances(tags={"amount": "120"}) == await engine.instances(tags={"late": 0}) == []
        await handle.tag("due", None)
        await handle.send("go")
        await handle.until("waiting")
        await handle.tags({"vip": True, "late": "no"})
        found = (await handle.summary()).tags
        told = [line.value for line in await handle.history() if line.event == "tagged"]
        assert await engine.queries.check() == []

    assert found == {"amount": -3.5, "late": "no", "vip": True}
    assert told == [{"due": None}, {"vip": True, "late": "no"}]


@pytest.mark.parametrize("value", [float("nan"), 10**400, datetime(2026, 11, 1), "\x1fn25011", b"x"])
async def test_what_does_not_sort_is_no_tag(memory: Stage, value: Any) -> None:
    async with memory.open(review, replay=False) as engine:
        with pytest.raises(perdure.CallerError, match="tag"):
            await engine.start(review, tags={"a": value})


numbers = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda each: not each or 1e-300 < abs(each) < 1e300),
)


@given(numbers, numbers)
def test_numbers_are_kept_as_texts_that_sort_as_they_do(one: float, other: float) -> None:
    a, b = Decimal(repr(one)), Decimal(repr(other))

    assert (kept(one) < kept(other)) == (a < b)
    assert (kept(one) == kept(other)) == (a == b)
    back: Any = told(kept(one))
    assert float(back) == float(one)
    assert kept(one) in readings(str(a))


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_times_are_kept_as_texts_that_sort_as_they_do(one: datetime, other: datetime) -> None:
    assume(all(1 < each.year < 9999 for each in (one, other)))

    assert (kept(one) < kept(other)) == (one.astimezone(UTC) < other.astimezone(UTC))
    assert told(kept(one)) == one.astimezone(UTC)
