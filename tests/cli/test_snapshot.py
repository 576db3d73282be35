"""`snapshot take`, `ls`, `restore` and `gc`, and `replay --verify`: of a world that no engine runs."""

import asyncio
import sys

import perdure
from tests.cli.test_cells import shop  # noqa: F401  # a fixture


def test_a_snapshot_is_taken_and_listed(shop):  # noqa: F811
    taken = shop.json("snapshot", "take", "--against", "shop")
    again = shop.json("snapshot", "take", "--against", "shop", "--full")

    listed = shop.json("snapshot", "ls")["snapshots"]

    assert taken["hash"] == again["hash"] == listed[0]["hash"] and len(listed) == 1
    assert taken["entry"] == 10 and taken["cells"] == {"com.acme/order": 2, "com.acme/total": 1}
    assert taken["written"] > 10
    text = shop.perdure("snapshot", "ls").stdout
    assert text.startswith(f"{taken['hash'][:19]}  entry 10  ") and "2 com.acme/order, 1 com.acme/total" in text


def test_a_database_is_restored_and_goes_on(shop):  # noqa: F811
    taken = shop.json("snapshot", "take", "--against", "shop")

    result = shop.perdure("snapshot", "restore", "copy.db", "--snapshot", taken["hash"][:15])

    assert result.exit_code == 0 and "at entry 10, 0 entries after it" in result.stdout
    assert shop.json("snapshot", "ls", "--db", "copy.db")["snapshots"][0]["base"] is True
    assert shop.json("snapshot", "take", "--against", "shop", "--db", "copy.db")["hash"] == taken["hash"]
    assert shop.json("doctor", "--db", "copy.db")["problems"] == []
    assert shop.json("cells", "show", "com.acme/order", "o-2", "--against", "shop", "--db", "copy.db") == shop.json(
        "cells", "show", "com.acme/order", "o-2", "--against", "shop"
    )
    refused = shop.perdure("snapshot", "restore", "copy.db")
    assert refused.exit_code == 4 and "there is a file copy.db already" in refused.stderr


def test_gc_says_first_and_then_frees(shop):  # noqa: F811
    async def leave_garbage() -> None:
        async with perdure.connect(shop.db) as client:
            await client.queries.put_blobs([b"nobody needs this"], 1)

    shop.json("snapshot", "take", "--against", "shop")
    asyncio.run(leave_garbage())

    dry = [shop.perdure("snapshot", "gc", "--dry-run", "--keep", "1").stdout for _ in range(2)]
    done = [shop.perdure("snapshot", "gc").stdout for _ in range(2)]

    assert dry[0] == dry[1] and dry[0].startswith("1 blobs (17 bytes) would be freed, ")
    assert done[0].startswith("1 blobs (17 bytes) freed, ") and done[1].startswith("0 blobs (0 bytes) freed, ")


def test_a_database_is_restored_without_what_came_after_the_snapshot(shop):  # noqa: F811
    import shop as code  # type: ignore[import-not-found]

    async def order_more() -> None:
        async with perdure.open(shop.db, workflows=[code.order, code.total], handlers=[code.charge]) as engine:
            await engine.send(code.OrderCreated("o-4", 7000))
            await engine.state(code.order, at_least=12)

    shop.json("snapshot", "take", "--against", "shop")
    asyncio.run(order_more())

    whole = shop.json("snapshot", "restore", "whole.db")
    then = shop.json("snapshot", "restore", "then.db", "--no-tail")

    assert (whole["entry"], then["entry"], then["tail"]) == (10, 10, 0) and whole["tail"] >= 2
    assert len(shop.json("cells", "ls", "--db", "whole.db")["cells"]) == 5
    assert len(shop.json("cells", "ls", "--db", "then.db")["cells"]) == 4


def test_unknown_snapshots_are_not_found(shop):  # noqa: F811
    result = shop.perdure("snapshot", "restore", "copy.db")

    assert result.exit_code == 3 and "no world snapshot was taken yet" in result.stderr
    assert shop.perdure("snapshot", "ls").stderr == "no snapshot was taken yet\n"


def test_a_world_that_its_code_has_made_is_verified(shop):  # noqa: F811
    taken = shop.json("snapshot", "take", "--against", "shop")

    whole = shop.perdure("replay", "--verify", "--against", "shop")
    since = shop.json("replay", "--verify", "--from", taken["hash"], "--against", "shop")

    assert whole.exit_code == 0
    assert whole.stdout == "replayed: 10 entries; compared: 1 snapshots\nno difference\n"
    assert (since["entries"], since["difference"]) == (0, None)


def test_a_changed_reducer_is_found_with_its_entry_its_cell_and_both_states(shop):  # noqa: F811
    shop.json("snapshot", "take", "--against", "shop")
    code = (shop.directory / "shop.py").read_text()
    assert code.count("+ event.cents") == 1
    del sys.modules["shop"]
    (shop.directory / "shop.py").write_text(code.replace("+ event.cents", "+ 2 * event.cents"))

    result = shop.perdure("replay", "--verify", "--against", "shop")
    document = shop.json("replay", "--verify", "--against", "shop", exit=1)

    assert result.exit_code == 1
    assert "of com.acme/total/ differs:\n  recorded: state " in result.stdout
    assert "give the cell the next version instead of changing com.acme/total@1" in result.stdout
    assert document["difference"]["cell"] == "com.acme/total/"


def test_from_is_for_verify(shop):  # noqa: F811
    result = shop.perdure("replay", "--from", "sha256:1", "--against", "shop")

    assert result.exit_code == 2 and "--from is for --verify" in result.stderr
