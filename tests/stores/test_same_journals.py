"""The same story gives the same bytes, whichever store keeps them."""

from pathlib import Path

from perdure.testing.stores import Harness, MemoryHarness
from perdure.testing.stores.harness import BIG, everything
from perdure.testing.stores.scripted import SmallShard
from perdure.testing.stores.stories import perform
from tests.postgres import Server
from tests.stores.postgres_harness import PostgresHarness
from tests.stores.test_conformance import SqliteHarness

STORY = [
    ("start", "a", ""),
    ("tell", "a", "call"),
    ("tell", "a", "timer 5"),
    ("tell", "a", "child b"),
    ("tell", "a", "detach c"),
    ("tell", "b", "send a"),
    ("tell", "b", "publish value"),
    ("big", "a", ""),
    ("post", "b", "note"),
    ("reopen", "", ""),
    ("tell", "c", "raise"),
    ("tell", "c", "note"),
    ("fire", "", ""),
    ("tell", "b", "end"),
    ("retry", "c", ""),
    ("reopen", "", ""),
    ("tell", "a", "wait"),
    ("cancel", "a", ""),
    ("start", "b", "always"),
    ("tell", "b", "fail"),
    ("start", "b", "failed"),
]


def test_one_story_gives_the_same_journal_in_every_store(tmp_path: Path, postgres_server: Server):
    model = played(MemoryHarness())
    journal = model["journal"]
    assert isinstance(journal, list) and len(journal) > 20
    assert max(len(row.body) for row in journal) > BIG

    assert played(SqliteHarness(tmp_path)) == model
    with postgres_server.schema(shards=1) as url:
        harness = PostgresHarness(url)
        assert played(harness) == model
        harness.close()


def played(harness: Harness) -> dict[str, object]:
    player = SmallShard(harness)
    perform(player, STORY)
    found = everything(harness, player.store)
    player.store.close()
    return found
