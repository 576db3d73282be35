"""Lists that are kept: bookmarks of a person or of all, and files of all rows."""

import csv
import io
import json

from perdure.access.model import Grant
from tests.server.site import ADMIN, OPERATOR, VIEWER, run

API = "/api/v1"


def test_bookmarks_are_of_a_person_or_shared(tmp_path):
    async def story(site):
        ann, bob = await site.key(OPERATOR, actor="ann"), await site.key(VIEWER, actor="bob")
        eve = await site.key(ADMIN, actor="eve")
        kept = await ann.put(f"{API}/bookmarks/stuck", json={"q": "status:stuck", "columns": ["key", "tag.shop"]})
        shared = await ann.put(f"{API}/bookmarks/late", json={"q": "started<2026-11-01", "shared": True})
        refused = [
            await bob.put(f"{API}/bookmarks/mine", json={"shared": True}),
            await eve.put(f"{API}/bookmarks/late", json={"shared": True}),
            await bob.put(f"{API}/bookmarks/wrong", json={"q": "stats:stuck"}),
            await bob.delete(f"{API}/bookmarks/late"),
            await bob.get(f"{API}/bookmarks/stuck"),
        ]
        own = await bob.put(f"{API}/bookmarks/late", json={"q": "status:failed"})
        lists = [(await each.get(f"{API}/bookmarks")).json()["items"] for each in (ann, bob)]
        deleted = [await bob.delete(f"{API}/bookmarks/late"), await eve.delete(f"{API}/bookmarks/late")]
        left = [(await each.get(f"{API}/bookmarks")).json()["items"] for each in (ann, bob)]
        return kept, shared, refused, own, lists, deleted, left

    kept, shared, refused, own, lists, deleted, left = run(story, url=str(tmp_path / "a.db"))

    assert (kept.status_code, kept.json()["columns"], shared.status_code) == (200, ["key", "tag.shop"], 200)
    told = [(each.status_code, each.json()["code"]) for each in refused]
    assert told == [
        (403, "forbidden"),
        (409, "name-taken"),
        (422, "bad-filter"),
        (403, "forbidden"),
        (404, "not-found"),
    ]
    assert own.status_code == 200
    assert [[(each["name"], each["owner"], each["own"]) for each in items] for items in lists] == [
        [("stuck", "ann", True), ("late", "ann", True)],
        [("late", "bob", True), ("late", "ann", False)],
    ]
    assert [each.status_code for each in deleted] == [200, 200]
    assert [[each["name"] for each in items] for items in left] == [["stuck"], []]


def test_one_bookmark_too_many_is_a_conflict_whose_page_explains_it(monkeypatch):
    monkeypatch.setattr("perdure.access.bookmarks.OWN_MAX", 1)

    async def story(site):
        client = await site.key(VIEWER)
        first, second = [await client.put(f"{API}/bookmarks/{name}", json={"q": ""}) for name in ("a", "b")]
        return first, second, await client.get(second.json()["type"])

    first, second, page = run(story)

    assert (first.status_code, second.status_code, second.json()["code"]) == (200, 409, "too-many-bookmarks")
    assert page.status_code == 200 and page.text.startswith("too-many-bookmarks")


def test_bookmarks_are_there_after_the_engine_was_stopped(tmp_path):
    async def first(site):
        ann = await site.key(VIEWER, actor="ann")
        for n in range(30):
            await ann.put(f"{API}/bookmarks/b-{n % 3}", json={"q": f"key_prefix:o-{n}"})

    async def then(site):
        ann = await site.key(VIEWER, actor="ann")
        return [each["q"] for each in (await ann.get(f"{API}/bookmarks")).json()["items"]]

    run(first, url=str(tmp_path / "a.db"))

    assert run(then, url=str(tmp_path / "a.db")) == ["key_prefix:o-27", "key_prefix:o-28", "key_prefix:o-29"]


def test_a_list_is_exported_whole_and_no_cell_is_a_formula():
    async def story(site):
        await site.engine.start("secret_plan", key="hidden")
        for n in range(12):
            await (await site.engine.start("order", key=f"=1+{n}", tags={"shop": "@a"})).until("waiting")
        client = await site.key(Grant("viewer", ("order",)))
        lines = await client.get(f"{API}/instances/export", params={"status": "waiting"})
        table = await client.get(
            f"{API}/instances/export", params={"format": "csv", "columns": "key,status,tag.shop", "q": "workflow:order"}
        )
        few = await client.get(f"{API}/instances/export", params={"limit": 5})
        wrong = await client.get(f"{API}/instances/export", params={"columns": "stats"})
        audit = await (await site.key(ADMIN, actor="eve")).get(f"{API}/audit")
        return lines, table, few, wrong, audit.json()["items"]

    lines, table, few, wrong, audit = run(story)

    rows = [json.loads(line) for line in lines.text.splitlines()]
    assert [each["key"] for each in rows] == [f"=1+{n}" for n in reversed(range(12))]
    assert lines.headers["content-disposition"] == 'attachment; filename="instances.jsonl"'
    cells = list(csv.reader(io.StringIO(table.text)))
    assert cells[0] == ["key", "status", "tag.shop"]
    assert cells[1] == ["'=1+11", "waiting", "'@a"] and len(cells) == 13
    assert len(few.text.splitlines()) == 5
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad-request")
    assert "did you mean 'status'" in wrong.json()["detail"]
    assert "export" in {each["what"] for each in audit}
