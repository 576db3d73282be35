"""Lists over HTTP: each filter against a scan in Python, and while engines are killed."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import perdure
from perdure.ports.store import Filter
from tests.server import test_stream
from tests.server.dialects import ALL as DIALECTS
from tests.server.site import ALL, VIEWER, run, site

API = "/api/v1"
ROOT = Path(__file__).parents[2]


DUE = datetime(2026, 11, 1, tzinfo=UTC)


@perdure.flow
async def parent(ctx):
    await ctx.child("secret_plan", key=f"child-of-{ctx.key}")


@perdure.flow
async def typed(ctx):
    raise KeyError("gone")


async def filled(engine):
    """Instances of several kinds, each at rest."""
    ends = {"order": "waiting", "secret_plan": "waiting", "parent": "waiting"}
    for n in range(24):
        name = ("order", "secret_plan", "broken", "parent", "typed")[n % 5]
        tags: dict[str, Any] = {"n": str(n), "even": str(n % 2 == 0).lower(), **({"shop": "a b"} if n % 5 == 0 else {})}
        tags |= (
            {"amount": n * 10 - 50, "late": n % 3 == 0, "due": DUE + timedelta(days=n)} if n % 2 else {"amount": "many"}
        )
        handle = await engine.start(name, key=f"k{n % 4}-{n}", tags=tags)
        await handle.until(ends.get(name, "failed"))
    for key in ("k0-0", "k1-5"):
        await engine.handle("order", key).cancel()
        await engine.handle("order", key).until("cancelled")


def amount(row, other=None):
    found = row["tags"].get("amount")
    return found if isinstance(found, int) else other


def late(row, also):
    return row["tags"].get("late") is True and also


def at(row, field):
    return datetime.fromisoformat(row[field])


FILTERS: list[tuple[str, Any]] = [
    ("", lambda row: True),
    ("workflow:order", lambda row: row["workflow"] == "order"),
    ("workflow:order workflow:broken", lambda row: row["workflow"] in ("order", "broken")),
    ("-workflow:order", lambda row: row["workflow"] != "order"),
    ("workflow:*e*", lambda row: "e" in row["workflow"]),
    ("-workflow:s* status:waiting", lambda row: row["workflow"][0] != "s" and row["status"] == "waiting"),
    ("status:failed", lambda row: row["status"] == "failed"),
    ("status:failed workflow:typed", lambda row: row["status"] == "failed" and row["workflow"] == "typed"),
    ("-status:failed -status:waiting", lambda row: row["status"] not in ("failed", "waiting")),
    ("dialect:flow", lambda row: True),
    ("dialect:flow -workflow:order", lambda row: row["workflow"] != "order"),
    ("dialect:playbook", lambda row: False),
    ("-dialect:flow", lambda row: False),
    ("-dialect:playbook status:failed", lambda row: row["status"] == "failed"),
    ("version:1", lambda row: row["version"] == "1"),
    ("key:k1-1", lambda row: row["key"] == "k1-1"),
    ("key_prefix:k1", lambda row: row["key"].startswith("k1")),
    ("k1", lambda row: row["key"].startswith("k1")),
    ("-k1 tag.even:true", lambda row: not row["key"].startswith("k1") and row["tags"].get("even") == "true"),
    ("tag.even:true", lambda row: row["tags"].get("even") == "true"),
    ("tag.shop:'a b'", lambda row: row["tags"].get("shop") == "a b"),
    ("-tag.shop:'a b'", lambda row: row["tags"].get("shop") != "a b"),
    ("tag.n>9 tag.n<15", lambda row: "n" in row["tags"] and 9 < int(row["tags"]["n"]) < 15),
    ("tag.amount:100", lambda row: amount(row) == 100),
    ("tag.amount:1e2", lambda row: amount(row) == 100),
    ("tag.amount:many", lambda row: row["tags"].get("amount") == "many"),
    ("tag.amount>100", lambda row: amount(row, 0) > 100 or row["tags"].get("amount") == "many"),
    ("tag.amount<-5.5", lambda row: amount(row, 0) < -5.5),
    ("tag.amount>-30 tag.amount<100", lambda row: -30 < amount(row, -99) < 100),
    ("-tag.amount<100", lambda row: amount(row, 999) >= 100),
    ("tag.late:true", lambda row: row["tags"].get("late") is True),
    (
        "tag.late:true tag.amount>0 workflow:order",
        lambda row: row["workflow"] == "order" and late(row, amount(row, 0) > 0),
    ),
    ("tag.due<2026-11-08T12:00Z", lambda row: "due" in row["tags"] and row["tags"]["due"] < "2026-11-08T12:00"),
    ("tag.due:2026-11-08", lambda row: row["tags"].get("due", "").startswith("2026-11-08")),
    ("error_type:KeyError", lambda row: row["status"] == "failed" and row["reason"].startswith("KeyError")),
    ("error_type:KeyError error_at:nowhere", lambda row: False),
    ("waits_for:*decision*", lambda row: row["status"] == "waiting" and "decision" in row["reason"]),
    ("ended>2020-01-01", lambda row: row["ended_at"] is not None),
    ("changed>2020-01-01 status:cancelled", lambda row: row["status"] == "cancelled"),
    ("started<2020-01-01", lambda row: False),
]


def test_each_filter_equals_a_scan_in_python():
    async def story(site):
        site.server._buckets._rate = site.server._buckets._burst = 1e9
        await filled(site.engine)
        client = await site.key(VIEWER)

        async def listed(q, **more):
            found, cursor = [], ""
            while cursor is not None:
                params = {"q": q, "limit": 5, "cursor": cursor, **more}
                answer = await client.get(f"{API}/instances", params=params)
                assert answer.status_code == 200, answer.text
                found += answer.json()["items"]
                cursor = answer.json()["next"]
            return found

        everything = await listed("")
        told = {q: (await listed(q), await listed(q, order="started")) for q, _ in FILTERS}
        counts = {q: (await client.get(f"{API}/instances/count", params={"q": q})).json()["count"] for q, _ in FILTERS}
        middle = at(everything[len(everything) // 2], "started_at")
        for word, scan in ((f"started<{middle:%FT%T.%fZ}", "<"), (f"started>{middle:%FT%T.%fZ}", ">")):
            told[word] = (await listed(word), [])
            rows = [row["id"] for row in told.pop(word)[0] if at(row, "started_at") != middle]  # it is told in µs
            wanted = [row for row in everything if at(row, "started_at") != middle]
            assert rows == [row["id"] for row in wanted if (at(row, "started_at") < middle) == (scan == "<")], word
        child = next(row for row in everything if row["key"].startswith("child-of"))
        family = [row["id"] for row in everything if child["root"] in (row["root"], row["instance"])]
        assert {row["id"] for row in await listed(f"root:{child['root']}")} == set(family)
        return everything, told, counts

    everything, told, counts = run(story, workflows=[*ALL, parent, typed])

    assert len(everything) == 24 + 5
    for q, scan in FILTERS:
        expected = [row["id"] for row in everything if scan(row)]
        newest, oldest = told[q]
        assert [row["id"] for row in newest] == expected, q
        assert [row["id"] for row in oldest] == expected[::-1], q
        assert counts[q] == len(expected), q


def test_what_waits_or_has_failed_is_listed_by_its_last_change_over_pages_both_ways():
    async def story(site):
        await filled(site.engine)
        client = await site.key(VIEWER)

        async def listed(q, **more):
            found, cursor, pages = [], "", []
            while cursor is not None:
                params = {"q": q, "limit": 4, "cursor": cursor, "order": "-changed", **more}
                answer = (await client.get(f"{API}/instances", params=params)).json()
                pages.append(answer)
                found += answer["items"]
                cursor = answer["next"]
            return found, pages

        await site.engine.handle("order", "k3-15").tag("seen", True)
        told = {q: (await listed(q))[0] for q in ORDERED}
        _, pages = await listed("status:failed")
        back = (
            await client.get(
                f"{API}/instances",
                params={"q": "status:failed", "limit": 4, "order": "-changed", "cursor": pages[1]["previous"]},
            )
        ).json()
        refused = await client.get(f"{API}/instances", params={"order": "-changed"})
        other = await client.get(f"{API}/instances", params={"q": "status:failed", "cursor": pages[0]["next"]})
        everything = (await client.get(f"{API}/instances", params={"limit": 500})).json()["items"]
        ours = [each.key for each in await site.engine.instances(status="failed", order="-changed", limit=3)]
        more = await site.engine.instances(status="failed", order="-changed", limit=3)
        rest = await site.engine.instances(status="failed", order="-changed", before=more[-1].id)
        return told, pages, back, refused, other, everything, ours + [each.key for each in rest]

    told, pages, back, refused, other, everything, ours = run(story, workflows=[*ALL, parent, typed])

    for q, scan in ORDERED.items():
        wanted = sorted(
            filter(scan, everything), key=lambda row: (row["changed_at"], int(row["instance"])), reverse=True
        )
        assert [row["id"] for row in told[q]] == [row["id"] for row in wanted], q
    assert [row["id"] for row in back["items"]] == [row["id"] for row in pages[0]["items"]]
    assert ours == [row["key"] for row in told["status:failed"]]
    assert (refused.status_code, refused.json()["code"]) == (422, "bad-filter")
    assert (other.status_code, other.json()["code"]) == (422, "bad-cursor")


ORDERED: dict[str, Any] = {
    "status:failed": lambda row: row["status"] == "failed",
    "status:waiting": lambda row: row["status"] == "waiting",
    "status:waiting workflow:order": lambda row: row["status"] == "waiting" and row["workflow"] == "order",
    "status:waiting status:failed": lambda row: row["status"] in ("waiting", "failed"),
    "status:failed tag.even:true": lambda row: row["status"] == "failed" and row["tags"].get("even") == "true",
    "status:waiting k1": lambda row: row["status"] == "waiting" and row["key"].startswith("k1"),
    "status:failed tag.amount>60": lambda row: (
        row["status"] == "failed" and (amount(row, 0) > 60 or row["tags"].get("amount") == "many")
    ),
    "error_type:KeyError": lambda row: row["reason"].startswith("KeyError"),
}


CHILD = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
import perdure
from tests.server.site import ALL

async def main():
    async with perdure.open(sys.argv[1], workflows=ALL) as engine:
        for n in range(1_000_000):
            names = ("broken", "order", "secret_plan")
            await asyncio.gather(*(engine.start(name, key=f"{sys.argv[3]}-{n}-{name}") for name in names))

asyncio.run(main())
"""


async def engine_elsewhere(path, name):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, path, str(ROOT), name, stderr=subprocess.DEVNULL
    )


async def until(client, wanted):
    async for _ in client.changes():
        if await wanted():
            return


def test_pages_neither_repeat_nor_lose_and_counts_are_right_while_engines_are_killed(tmp_path):
    path = str(tmp_path / "shop.db")

    async def main():
        async with perdure.open(path, workflows=ALL):
            pass
        process = await engine_elsewhere(path, "a")
        async with site(path, connect=True) as found:
            queries, api = found.engine.queries, await found.key(VIEWER)

            async def there_are(count):
                return sum((await queries.counts()).values()) > count

            await until(found.engine, lambda: there_are(120))
            before = {row.id for row in await queries.heads(Filter(limit=10_000)) if row.workflow[:8] != "perdure."}
            seen, cursor = [], ""
            while cursor is not None:
                page = (await api.get(f"{API}/instances", params={"limit": 25, "cursor": cursor})).json()
                seen += [int(row["instance"]) for row in page["items"]]
                cursor = page["next"]
                if len(seen) == 50:
                    process.send_signal(signal.SIGKILL)
                    await process.wait()
                    process = await engine_elsewhere(path, "b")
            process.send_signal(signal.SIGKILL)
            await process.wait()
            heads = await queries.heads(Filter(limit=100_000))
            counts = {standing: count for standing, count in (await queries.counts()).items() if count}
            told = (await api.get(f"{API}/instances/count", params={"status": "failed"})).json()["count"]
            return before, seen, heads, counts, told

    before, seen, heads, counts, told = asyncio.run(asyncio.wait_for(main(), 120))

    assert len(seen) == len(set(seen)), "nothing is repeated"
    assert before <= set(seen), "nothing is lost"
    assert counts == Counter((head.workflow, head.version, head.status) for head in heads)
    assert told == sum(head.status == "failed" for head in heads)


def test_a_list_of_one_dialect_has_its_workflows_alone():
    async def story(site):
        viewer = await site.key(VIEWER)
        await site.engine.start("order", key="o")
        await site.engine.start_plain("article", {"input": "heat pumps"}, key="a")
        shown = []
        for dialect in ("flow", "graph", "gr*", "nothing"):
            answer = await viewer.get(f"{API}/instances", params={"dialect": dialect})
            count = await viewer.get(f"{API}/instances/count", params={"q": f"dialect:{dialect}"})
            shown.append(([row["id"] for row in answer.json()["items"]], count.json()["count"]))
        stream = test_stream.events(viewer, "list:dialect:flow")
        await test_stream.until(stream, "live")
        await site.engine.start_plain("article", {"input": "hail"}, key="b")
        await site.engine.start("order", key="p")
        return shown, (await test_stream.until(stream, "head"))[-1][1]

    shown, heard = run(story, workflows=DIALECTS)

    assert heard["id"].startswith("order/")
    assert shown == [(["order/o"], 1), (["article/a"], 1), (["article/a"], 1), ([], 0)]
