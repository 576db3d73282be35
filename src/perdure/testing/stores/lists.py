"""Lists: newest first by start, by every filter; the rows of tags and of counts."""

from itertools import product
from typing import Any

import msgspec

from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address, Tagged
from perdure.kernel.rows import tag_rows
from perdure.ports.store import Filter, Page, change_of, place_of
from perdure.stores.lists import CHUNK, SMALL, matches

from .harness import Harness, OneStore, Waiting, ask, commit
from .rows import batch, entry, head
from .scripted import SmallShard


def write(harness: Harness, store: Waiting, heads: list[HeadRow]) -> None:
    seqs = range(1, max(row.id for row in heads) + 1)
    assert commit(harness, store, batch(journal=[entry(n, n) for n in seqs], heads=heads)) is None


def ids(store: Waiting, **fields: Any) -> list[int]:
    return [row.id for row in ask(store.heads(Filter(**fields)))]


def pages(store: Waiting, filter: Filter) -> list[HeadRow]:
    """A whole list, page by page."""
    found: list[HeadRow] = []
    page = ask(store.page(filter))
    while True:
        found += page.heads
        if page.next is None:
            return found
        kept = {name: getattr(filter, name) for name in filter.__struct_fields__}
        page = ask(store.page(Filter(**{**kept, "before": page.next})))


class Lists(OneStore):
    def test_lists_are_in_the_order_of_starts_whatever_the_ids_are(self, harness: Harness, store: Waiting) -> None:
        rows = [head(1, started_at=40), head(2, started_at=10), head(3, started_at=30), head(4, started_at=30)]
        write(harness, store, rows)

        assert ids(store) == [1, 4, 3, 2]
        assert ids(store, workflow="puppet") == [1, 4, 3, 2]
        assert ids(store, status="running", limit=2) == [1, 4]
        assert ids(store, before=(30, 4)) == [3, 2]
        assert ids(store, before=(30, 4), limit=1) == [3]

    def test_heads_are_filtered(self, harness: Harness, store: Waiting) -> None:
        red = '{"team":"red"}'
        ended: dict[str, Any] = {"status": "completed", "ended_at": 90}
        rows = [
            head(1, tags=red),
            head(2, workflow="other", tags='{"team":"red","x":"\\"1\\""}', **ended),
            head(3, parent=1, root=1, **{**ended, "ended_at": 70}),
            head(4, parent=1, root=1, tags='{"team":"blue"}', version="2"),
            head(5, "key-31", parent=4, root=1),
        ]
        write(harness, store, rows)

        assert ids(store) == [5, 4, 3, 2, 1]
        assert ids(store, workflow="puppet") == [5, 4, 3, 1]
        assert ids(store, workflow="nobody") == []
        assert ids(store, key="key-3") == [3]
        assert ids(store, key="key-2", workflow="puppet") == []
        assert ids(store, key_prefix="key-3") == [5, 3]
        assert ids(store, key_prefix="key-3", workflow="other") == []
        assert ids(store, status="completed") == [3, 2]
        assert ids(store, version="2") == [4]
        assert ids(store, parent=1) == [4, 3]
        assert ids(store, root=1) == [5, 4, 3, 1]
        assert ids(store, root=1, status="running") == [5, 4, 1]
        assert ids(store, tags={"team": "red"}) == [2, 1]
        assert ids(store, tags={"team": "red", "x": '"1"'}) == [2]
        assert ids(store, tags={"x": "1"}) == []
        assert ids(store, tags={"team": "red"}, workflow="puppet") == [1]
        assert ids(store, started=(2, 4)) == [3, 2]
        assert ids(store, ended=(70, 90)) == [3]
        assert ids(store, workflow="puppet", status="completed", parent=1, before=(4, 4)) == [3]

    def test_every_pair_of_filters_lists_what_both_want(self, harness: Harness, store: Waiting) -> None:
        rows = []
        for n in range(1, 61):
            status = ("running", "waiting", "stuck", "completed", "failed", "cancelled")[n % 6]
            over = n + 100 if status in ("completed", "failed", "cancelled") else 0
            tags = [f'"{name}":"{n % few}"' for name, few in (("a", 2), ("b", 7)) if n % 5]
            above = 1 if n % 4 == 0 else 0
            plain: dict[str, Any] = {"workflow": f"w{n % 3}", "version": str(n % 2), "status": status, "ended_at": over}
            more: dict[str, Any] = {
                "tags": "{" + ",".join(tags) + "}",
                "parent": above,
                "root": above or n,
                "started_at": n // 2,
                "changed_at": 1000 - n // 3,
            }
            rows.append(head(n, f"k{n % 11}{n}", **plain, **more))
        write(harness, store, rows)
        newest_first = sorted(rows, key=place_of, reverse=True)
        changed_first = sorted(rows, key=change_of, reverse=True)
        fields: list[dict[str, Any]] = [
            {},
            {"workflow": "w1"},
            {"status": "stuck"},
            {"version": "1"},
            {"key_prefix": "k1"},
            {"parent": 1},
            {"root": 1},
            {"tags": {"a": "1"}},
            {"tags": {"a": "1", "b": "3"}},
            {"started": (10, 25)},
            {"ended": (120, 150)},
            {"ranges": {"a": (("1", "2"),)}},
            {"ranges": {"b": (("2", "4"), ("6", "7")), "a": (("0", "9"),)}},
            {"by_change": True},
            {"before": (20, 41)},
            {"before": (990, 41), "by_change": True},
        ]

        for one, other, limit, oldest in product(fields, fields, (3, 100), (False, True)):
            wanted = Filter(**{**one, **other, "limit": limit, "oldest": oldest})
            ordered = changed_first if wanted.by_change else newest_first
            ordered = ordered[::-1] if oldest else ordered
            assert ask(store.heads(wanted)) == [row for row in ordered if matches(wanted, row)][:limit], wanted

    def test_a_list_that_no_index_narrows_is_read_in_parts(self, harness: Harness, store: Waiting) -> None:
        count = 2 * CHUNK + 500
        rare = {7, CHUNK, count - 1}
        write(harness, store, [head(n, version="rare" if n in rare else "1") for n in range(1, count + 1)])

        wanted = Filter(version="rare", workflow="puppet")

        assert [row.id for row in ask(store.heads(wanted))] == sorted(rare, reverse=True)
        assert [row.id for row in pages(store, wanted)] == sorted(rare, reverse=True)
        assert [row.id for row in pages(store, Filter(version="rare", limit=1))] == sorted(rare, reverse=True)
        assert [row.id for row in pages(store, Filter(version="rare", limit=1, oldest=True))] == sorted(rare)

    def test_ranges_of_a_tag_and_orders_of_change_are_read_in_parts_where_they_are_broad(
        self, harness: Harness, store: Waiting
    ) -> None:
        count = 5 * SMALL + 500
        rows = [head(n, status="waiting", tags=f'{{"n":"{n:06}"}}', changed_at=10 * count - n) for n in range(1, count)]
        write(harness, store, rows)
        broad = {"n": (("001000", "9"),)}

        assert ids(store, ranges=broad, limit=2) == [count - 1, count - 2]
        assert ids(store, ranges={"n": (("000003", "000006"),)}) == [5, 4, 3]
        assert [row.id for row in pages(store, Filter(ranges={"n": (("000001", "000003"),)}, limit=1))] == [2, 1]
        assert ids(store, by_change=True, status="waiting", limit=3) == [1, 2, 3]
        assert ids(store, by_change=True, ranges=broad, limit=3) == [1000, 1001, 1002]
        assert ids(store, by_change=True, ranges=broad, oldest=True, limit=2) == [count - 1, count - 2]
        assert len([*pages(store, Filter(by_change=True, limit=1000))]) == count - 1

    def test_a_page_says_where_the_next_one_begins(self, harness: Harness, store: Waiting) -> None:
        rows = [head(n) for n in range(1, 4)]
        write(harness, store, rows)

        assert ask(store.page(Filter(limit=2))) == Page([rows[2], rows[1]], (2, 2))
        assert ask(store.page(Filter(limit=2, before=(2, 2)))) == Page([rows[0]])

    def test_long_and_strange_tags_are_found(self, harness: Harness, store: Waiting) -> None:
        values = ["x" * 4000, "x" * 3999 + "y", "é" * 2000, 'a\x00{"b":', "", "'; --"]
        rows = [head(n, tags=msgspec.json.encode({"t": value}).decode()) for n, value in enumerate(values, 1)]
        write(harness, store, rows)

        assert [ids(store, tags={"t": value}) for value in values] == [[n] for n in range(1, len(values) + 1)]
        assert ids(store, tags={"t": "x" * 3000}) == []
        assert not [problem for problem in ask(store.check()) if "tag" in problem]

    def test_counts_follow_every_change(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        player.start("b")
        player.tell("a", "call")
        player.tell("b", "end")

        assert ask(player.store.counts()) == {
            ("puppet", "1", "running"): 1,
            ("puppet", "1", "completed"): 1,
        }
        assert player.store.census().instances == (("puppet", "1", "running", 1),)
        player.store.close()

    def test_tags_change_by_a_decision_and_by_a_person(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a", tags={"team": "red", "old": "yes"})
        player.tell("a", "tag team=blue")
        player.offer(Address("puppet", "a"), Tagged({"old": None, "seen": "today"}))

        assert ids(player.store, tags={"team": "red"}) == []
        assert ids(player.store, tags={"team": "blue", "seen": "today"}) == [1]
        assert ids(player.store, tags={"old": "yes"}) == []
        assert ask(player.store.head(1)).tags == '{"seen":"today","team":"blue"}'

        player.reopen()
        player.tell("a", "untag team")

        assert ids(player.store, tags={"team": "blue"}) == []
        assert ask(player.store.check()) == []
        player.store.close()

    def test_check_finds_tags_and_counts_that_lie(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a", tags={"team": "red"})
        assert ask(player.store.check()) == []

        wrong = batch(removed=[b"none"])
        wrong.counts["puppet", "1", "stuck"] = 2
        (row,) = tag_rows(ask(player.store.head(1)))
        wrong.tags[row] = False
        wrong.tags[row._replace(value="green")] = True
        assert commit(harness, player.store, wrong) is None

        problems = ask(player.store.check())
        assert any("has no row" in problem for problem in problems)
        assert any("the instance has not" in problem for problem in problems)
        assert any("2 are counted, and 0 are there" in problem for problem in problems)
        player.store.close()

    def test_a_head_says_its_root_its_end_and_its_reason(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        player.tell("a", "child b")
        player.tell("b", "detach c")
        for key, order in (("b", "wait"), ("c", "fail")):
            player.tell(key, order)
        first, second, third = (ask(player.store.head(Address("puppet", key))) for key in "abc")

        assert (first.root, second.root, third.root) == (first.id, first.id, first.id)
        assert (first.ended_at, second.ended_at) == (0, 0)
        assert third.ended_at == third.changed_at > 0
        assert (first.reason, second.reason, third.reason) == ("child puppet", "message go", "Failed")
        player.tell("b", "timer 5")
        assert ask(player.store.head(second.id)).reason == "timer timer/~, message go"
        player.tell("a", "raise")
        assert ask(player.store.head(first.id)).reason == "RuntimeError"
        assert ask(player.store.check()) == []
        player.store.close()

    def test_a_stuck_instance_can_be_tagged_and_stays_stuck(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        player.tell("a", "raise")
        player.offer(Address("puppet", "a"), Tagged({"who": "ann"}))

        found = ask(player.store.head(1))
        assert (found.status, found.tags) == ("stuck", '{"who":"ann"}')
        player.reopen()
        player.offer(Address("puppet", "a"), Tagged({"who": "bob"}))
        assert ids(player.store, tags={"who": "bob"}, status="stuck") == [1]
        assert ask(player.store.check()) == []
        player.store.close()
