"""Filters as text, and lists that are the same as a scan in Python."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import perdure
from perdure.errors import BadFilter
from perdure.ports.store import Filter
from perdure.views import lists
from perdure.views.lists import SPARE, Count, InstancePage, count, page, rates
from perdure.views.where import filters, fits, from_pairs, parse, to_text, with_statuses


def seen(workflow):
    return not workflow.startswith("perdure.")


@perdure.flow
async def order(ctx, n: int = 0):
    if n % 3 == 0:
        await ctx.receive("go")
    if n % 7 == 0:
        raise ValueError("seven")
    return n


@perdure.flow
async def probe(ctx):
    await ctx.sleep("nap", 1000)


QUESTIONS = [
    "",
    "status:waiting",
    "status:waiting status:failed",
    "workflow:order",
    "-workflow:probe*",
    "workflow:pro*",
    "tag.shop:a",
    "tag.shop:a tag.shop:b",
    "-tag.shop:a",
    "tag.n>3 tag.n<8",
    "o-1",
    "key:o-7",
    "waits_for:message*",
    "error_type:ValueError",
    "error_at:nowhere",
    "status:waiting workflow:order -tag.shop:b",
    "started>2020-01-01",
    "started<2020-01-01",
    "workflow:order workflow:probe status:waiting status:completed status:failed",
]


def test_each_filter_equals_a_scan_in_python():
    async def main():
        async with perdure.open(":memory:", workflows=[order, probe]) as engine:
            for n in range(20):
                await engine.start(order, n=n, key=f"o-{n}", tags={"shop": "ab"[n % 2], "n": str(n)})
                await engine.start(probe, key=f"p-{n}")
            for n in range(20):
                ends = "failed" if n % 7 == 0 else "completed"
                await engine.handle(order, f"o-{n}").until("waiting" if n % 3 == 0 else ends)
            everything = await engine.queries.heads(Filter(limit=10_000))
            for text in QUESTIONS:
                where = parse(text)
                wanted = [head.id for head in everything if seen(head.workflow) and fits(where, head)]
                assert await listed(engine, where) == wanted, text
                assert (await count(engine.queries, where, seen)).count == len(wanted), text

    async def listed(engine, where):
        found, before = [], None
        while True:
            part = await page(engine.queries, where, seen, 3, before)
            found += [head.id for head in part.heads]
            before = part.next
            if before is None:
                return found

    asyncio.run(main())


def test_a_text_is_read_and_written():
    text = "status:stuck tag.customer:c-7 started<2026-11-01 -workflow:probe*"

    assert to_text(parse(text)) == text
    assert parse("tag.name:'Ann Lee'") == from_pairs({"tag.name": ["Ann Lee"]})
    assert parse(to_text(parse("tag.name:'Ann Lee'"))) == parse("tag.name:'Ann Lee'")
    assert from_pairs({"not.status": ["failed"], "started.gt": ["2026-11-01"]}) == parse(
        "-status:failed started>2026-11-01"
    )


def test_an_index_is_asked_for_each_choice_of_values():
    found = filters(parse("status:stuck status:failed workflow:order tag.a:b"), 10)

    assert [(each.workflow, each.status, each.tags) for each in found] == [
        ("order", "stuck", {"a": "b"}),
        ("order", "failed", {"a": "b"}),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("statu:stuck", "did you mean 'status'?"),
        ("status:stuk", "no status is 'stuk'"),
        ("started:2026-11-01", "takes a bound"),
        ("started<soon", "found 'soon'"),
        ("status<stuck", "compared with `:`"),
        ("parent:order", "number of an instance"),
        ("workflow:", "no value"),
        ("tag.a:'b", "open quote"),
    ],
)
def test_what_is_no_filter_is_refused_with_advice(text, says):
    with pytest.raises(BadFilter, match=says.replace("?", r"\?")) as refused:
        parse(text)

    assert refused.value.where == f"character {text.index(chr(39)) + 1 if chr(39) in text else 1}"


def test_rates_count_starts_ends_and_failures_by_their_time():
    async def main():
        async with perdure.open(":memory:", workflows=[order, probe]) as engine:
            await (await engine.start(order, n=1, key="done")).result(10)
            await (await engine.start(probe, key="sleeps")).until("waiting", 10)
            failing = await engine.start(order, n=7, key="fails")
            await failing.until("failed", 10)
            now = datetime.now(UTC)
            found = await rates(engine.queries, seen, now, scales=(3600,), stretches=2)
            later = await rates(engine.queries, seen, now + timedelta(hours=1), scales=(3600,), stretches=2)
            lengths = [(await rates(engine.queries, seen, now + timedelta(hours=h))).seconds for h in (0, 3, 20, 30)]
            return found, later, lengths

    found, later, lengths = asyncio.run(main())

    assert (sum(found.starts), sum(found.ends), sum(found.failures)) == (3, 2, 1)
    assert found.starts[1] == 3 and later.starts[0] == 3
    assert not found.partial
    assert lengths == [25, 150, 600, 25]  # an hour, six, a day: the shortest that has all; nothing has happened since


def test_a_search_without_an_index_ends_in_its_budget_and_goes_on(monkeypatch):
    monkeypatch.setattr(lists, "LOOKED_MAX", 5)
    monkeypatch.setattr(lists, "PAGE_MAX", 3)

    async def main():
        async with perdure.open(":memory:", workflows=[probe]) as engine:
            for n in range(40):
                await engine.start(probe, key=f"p-{n}", tags={"n": str(n)})
            where, before = parse("tag.n<3"), None
            pages: list[InstancePage] = []
            while not pages or before is not None:
                pages.append(await page(engine.queries, where, seen, 3, before))
                before = pages[-1].next
            return pages, await count(engine.queries, where, seen)

    pages, counted = asyncio.run(main())

    assert [head.key for each in pages for head in each.heads] == ["p-2", "p-1", "p-0"]
    assert pages[0].partial and not pages[0].heads and len(pages) > 2
    assert counted == Count(0, more=True)


@pytest.mark.parametrize(
    ("text", "visible"),
    [("-workflow:probe*", seen), ("workflow:ord*", seen), ("", lambda workflow: workflow == "order")],
)
def test_counters_tell_in_which_index_the_rest_of_a_list_is(text, visible):
    async def main():
        async with perdure.open(":memory:", workflows=[order, probe]) as engine:
            await engine.start(order, key="o")
            for n in range(40):
                await engine.start(probe, key=f"p-{n}")
            return await page(engine.queries, parse(text), visible, 3)

    found = asyncio.run(main())

    assert [head.key for head in found.heads] == ["o"]
    assert found.looked == 3 + SPARE + 1


def test_what_waits_or_failed_is_looked_for_by_its_status():
    assert {each.status for each in filters(with_statuses(parse("error_type:KeyError")), 10)} == {"failed", "stuck"}
    assert {each.status for each in filters(with_statuses(parse("error_at:charge")), 10)} == {"failed", "stuck"}
    assert [each.status for each in filters(with_statuses(parse("queue:mail -waits_for:x")), 10)] == ["waiting"]
    assert [each.status for each in filters(with_statuses(parse("error_type:K* status:stuck")), 10)] == ["stuck"]
    assert [each.status for each in filters(with_statuses(parse("-error_type:K*")), 10)] == [""]
