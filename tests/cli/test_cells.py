"""`cells`, `journal`, `manifest`, and what the other commands say of cells."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

import perdure
from tests.cli.world import eventually

SHOP = (Path(__file__).parents[1] / "cells" / "till.py").read_text()


@pytest.fixture
def shop(world, monkeypatch):
    """Orders of every kind, and no engine. Entries: 1 the manifest; 2 to 5 o-1; 6 to 8 o-2; 9 and 10 o-3."""
    (world.directory / "shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(world.directory)
    import shop as code  # type: ignore[import-not-found]

    async def main() -> None:
        async with perdure.open(world.db, workflows=[code.order, code.total], handlers=[code.charge]) as engine:
            for number, cents, entries in [(1, 5, 5), (2, 5000, 8), (3, 13, 10)]:
                event = code.OrderCreated(f"o-{number}", cents)
                await engine.send(event, id=f"e-{number}", correlation="monday")
                await engine.state(code.order, at_least=entries)

    asyncio.run(main())
    del sys.modules["shop"]
    return world


def test_cells_ls_is_paged_and_knows_cells_by_name(shop):
    first = shop.json("cells", "ls", "--limit", "3")
    second = shop.json("cells", "ls", "--before", str(first["next_before"]))
    orders = shop.json("cells", "ls", "com.acme/order@1")

    ids = [each["id"] for page in (first, second) for each in page["cells"]]
    assert ids == ["com.acme/order/o-3", "com.acme/order/o-2", "com.acme/total/", "com.acme/order/o-1"]
    assert [each["key"] for each in orders["cells"]] == ["o-3", "o-2", "o-1"]
    assert re.search(r"^com.acme/order/o-3 +stuck ", shop.perdure("cells", "ls").stdout, re.MULTILINE)


def test_cells_ls_of_an_unknown_cell_says_what_there_is(shop):
    for words in (("ls", "com.acme/ordr"), ("show", "com.acme/ordr@1", "o-1"), ("tail", "com.acme/ordr", "o-1")):
        result = shop.perdure("cells", *words)

        assert result.exit_code == 3
        assert "no cell is named 'com.acme/ordr'; did you mean 'com.acme/order'?" in result.stderr
        assert result.stdout == ""


def test_cells_show_is_the_state_now_or_at_an_entry(shop):
    now = shop.json("cells", "show", "com.acme/order", "o-1")
    then = shop.json("cells", "show", "com.acme/order@1", "o-1", "--at", "3", "--against", "shop")

    assert now["state"] == {"pc": {"$tag": "paid", "$value": None}, "auth": "auth-o-1"}
    assert then == {
        "id": "com.acme/order/o-1",
        "entry": 3,
        "state": {"pc": {"$tag": "charging", "$value": None}, "auth": None},
    }
    assert json.loads(shop.perdure("cells", "show", "com.acme/total").stdout) == {"cents": 5}


def test_cells_show_waits_until_the_journal_has_an_entry(shop):
    import shop as code

    async def order_more():
        async with perdure.open(shop.db, workflows=[code.order, code.total], handlers=[code.charge]) as engine:
            await engine.send(code.OrderCreated("o-4", 7000))

    words = ("cells", "show", "com.acme/order", "o-4", "--at-least", "12", "--json")
    reader = shop.process(*words, stderr="waiting", PERDURE_DB=shop.db)
    eventually(lambda: "the journal ends with entry 10, and no engine runs" in shop.said("waiting"))
    asyncio.run(order_more())
    exit_code, out = shop.ended(reader)

    assert (exit_code, json.loads(out)["id"], json.loads(out)["entry"]) == (0, "com.acme/order/o-4", 12)
    assert shop.json("cells", "show", "com.acme/order", "o-1", "--at-least", "3")["entry"] > 3


def test_cells_show_says_what_there_is_not(shop):
    assert (
        "there is no cell com.acme/order/o-1 at entry 2"
        in shop.perdure("cells", "show", "com.acme/order", "o-1", "--at", "2").stderr
    )
    assert shop.perdure("cells", "show", "com.acme/order", "o-9").exit_code == 3
    assert shop.perdure("cells", "show", "com.acme/order", "o-1", "--at", "999").exit_code == 2


def test_cells_show_says_when_the_code_cannot_be_imported(shop):
    (shop.directory / "shop.py").rename(shop.directory / "store.py")

    result = shop.perdure("cells", "show", "com.acme/order", "o-1")

    assert result.exit_code == 2
    assert "the code of the cells is needed" in result.stderr and "--against MODULE" in result.stderr


def test_cells_show_says_when_the_code_raises_at_its_import(shop):
    (shop.directory / "shop.py").write_text('raise RuntimeError("not today")  # and it is longer than nothing')

    result = shop.perdure("cells", "show", "com.acme/order", "o-1")

    assert result.exit_code == 2
    assert "cannot be imported: RuntimeError: not today" in result.stderr


def test_cells_tail_tells_the_last_entries(shop):
    one = shop.json("cells", "tail", "com.acme/order", "o-1", "-n", "1")
    text = shop.perdure("cells", "tail", "com.acme/order", "o-1").stdout.splitlines()

    assert [(each["entry"], each["event"], each["announced"]) for each in one["entries"]] == [
        (4, "receipt", ["com.acme/OrderPaid@1"])
    ]
    assert text[0].startswith("3 ") and text[0].endswith("→ effect payment/charge@1 at charge/~1#1")
    assert shop.perdure("cells", "tail", "com.acme/order", "o-9").exit_code == 3


def test_cells_tail_follows_what_comes(shop):
    follower = shop.process("cells", "tail", "com.acme/order", "o-2", "-n", "1", "-f", "--json", PERDURE_DB=shop.db)
    assert json.loads(follower.stdout.readline())["entry"] == 8  # it is there

    async def main() -> None:
        import shop as code

        async with perdure.open(shop.db, workflows=[code.order, code.total], handlers=[code.charge]) as engine:
            await engine.send(code.OrderCancelled("o-2"))
            await engine.state(code.order, at_least=12)
            await engine.send(code.OrderCreated("o-2", 2000))
            await engine.state(code.order, at_least=15)

    asyncio.run(main())

    told = [json.loads(follower.stdout.readline()) for _ in range(3)]
    assert [(each["event"], each["outcome"]) for each in told] == [
        ("message", "completed"),
        ("made", ""),
        ("receipt", ""),
    ]
    assert follower.poll() is None


def test_cells_trace_follows_an_event_by_its_id_its_correlation_or_an_entry(shop):
    (trace,) = shop.json("cells", "trace", "e-1")["traces"]

    assert (trace["entry"], trace["id"], trace["what"]) == (2, "sys/world/main", "com.acme/OrderCreated@1")
    (order,) = trace["led_to"]
    (paid,) = order["led_to"]
    (total,) = paid["led_to"]
    assert (order["entry"], order["id"]) == (3, "com.acme/order/o-1")
    assert (paid["entry"], paid["what"], paid["status"]) == (4, "receipt of payment/charge@1", "ok")
    assert (total["entry"], total["id"], total["led_to"]) == (5, "com.acme/total/", [])
    assert [each["entry"] for each in shop.json("cells", "trace", "monday")["traces"]] == [2, 6, 9]
    assert shop.json("cells", "trace", "3")["traces"] == [order]
    assert "→ stuck: ValueError: thirteen" in shop.perdure("cells", "trace", "e-3").stdout
    assert shop.perdure("cells", "trace", "e-9").exit_code == 3


def test_cells_trace_tells_what_has_no_receipt_yet(world, monkeypatch):
    (world.directory / "slow.py").write_text(
        "import perdure\n"
        "from perdure.cells.effects import Alarm\n"
        'class Set(perdure.Record, name="a/Set@1"):\n'
        "    id: str\n"
        '@perdure.cell("a/clock@1", key="id", effects=[Alarm])\n'
        "def clock(state: Set | None, event: Set | perdure.ReceiptOf[Alarm]) -> perdure.Next:\n"
        "    return perdure.Next(Set('on'), effects=[Alarm(after=3600 * 10**9)])\n"
    )
    monkeypatch.syspath_prepend(world.directory)

    async def main() -> None:
        import slow  # type: ignore[import-not-found]

        async with perdure.open(world.db, workflows=[slow.clock]) as engine:
            await engine.send(slow.Set("c-1"), id="e-1")
            await engine.state(slow.clock, at_least=3)

    asyncio.run(main())

    assert world.json("cells", "trace", "e-1")["traces"][0]["led_to"][0]["open"] == ["timer timer/~1#1"]
    assert "no receipt yet: timer timer/~1#1" in world.perdure("cells", "trace", "e-1").stdout
    assert re.search(r"Its alarm timer/~1#1 goes off at .* \(in 59 min\)", world.perdure("why", "c-1").stdout)


def test_cells_send_checks_the_event_and_tells_its_id(shop):
    sent = shop.json(
        "cells", "send", "com.acme/OrderCreated@1", '{"order_id": "o-5", "cents": 1}', "--correlation", "c"
    )
    named = shop.perdure("cells", "send", "com.acme/OrderCancelled@1", '{"order_id": "o-5"}', "--id", "mine")
    wrong = shop.perdure("cells", "send", "com.acme/OrderCreated@1", '{"order_id": "o-5"}')
    unknown = shop.perdure("cells", "send", "com.acme/OrderCreatd@1", "{}")

    assert sent["sent"] == "com.acme/OrderCreated@1" and len(sent["id"]) == 32 and sent["correlation"] == "c"
    assert named.stdout == "mine\n" and "no engine runs" in named.stderr
    assert wrong.exit_code == 2 and "$.cents" in wrong.stderr
    assert unknown.exit_code == 2 and "did you mean com.acme/OrderCreated@1?" in unknown.stderr


def test_a_database_without_cells_says_so(world):
    world.perdure("run", "flows:order", "--input", '["a"]')

    assert "has no cells" in world.perdure("cells", "send", "a/B@1", "{}").stderr
    assert "has no cells" in world.perdure("cells", "trace", "1").stderr
    assert "has no cells" in world.perdure("cells", "show", "a/b").stderr
    assert "no cells" in world.perdure("cells", "ls").stderr


def test_the_journal_is_told_in_its_order(shop):
    head = shop.json("journal", "head")
    tail = shop.json("journal", "tail", "-n", "3")["entries"]

    assert head["entry"] == 10
    assert [(each["entry"], each["id"], each["event"]) for each in tail] == [
        (8, "com.acme/order/o-2", "receipt"),
        (9, "sys/world/main", "message"),
        (10, "com.acme/order/o-3", "made"),
    ]
    assert shop.perdure("journal", "head").stdout.startswith("10  ")
    assert len(shop.perdure("journal", "tail", "-n", "100").stdout.splitlines()) == 10


@pytest.mark.parametrize("name", ["shop.json", "shop.yaml"])
def test_a_manifest_is_built_checked_and_compared(shop, name):
    built = shop.json("manifest", "build", "shop", "-o", name, db=False)
    checked = shop.json("manifest", "check", name, db=False)

    assert built["hash"] == checked["hash"] == shop.json("manifest", "check", "shop.py", db=False)["hash"]
    assert checked["ok"] and checked["cells"] == 2
    assert shop.json("manifest", "diff", name, "shop", db=False)["changes"] == []
    assert shop.json("manifest", "diff", shop.db, name, db=False)["changes"] == []


def test_a_manifest_is_written_to_stdout_in_either_form(shop):
    assert shop.perdure("manifest", "build", "shop", "--format", "yaml", db=False).stdout.startswith("schemas:\n")
    assert json.loads(shop.perdure("manifest", "build", "shop", db=False).stdout) == shop.json(
        "manifest", "build", "shop", db=False
    )


def test_what_is_wrong_with_a_manifest_is_told_with_its_place(shop):
    shop.perdure("manifest", "build", "shop", "-o", "shop.yaml", db=False)
    text = Path("shop.yaml").read_text()
    Path("shop.yaml").write_text(text.replace("cell: com.acme/total@1", "cell: com.acme/totl@1"))

    result = shop.perdure("manifest", "check", "shop.yaml", db=False)
    document = shop.json("manifest", "check", "shop.yaml", db=False, exit=1)

    assert result.exit_code == 1
    assert re.match(r"shop\.yaml:\d+:3: \$\.routing\[2\]\.cell: there is no cell", result.stdout)
    assert document["problem"]["code"] == "unknown-cell"


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_is_not_as_in_the_code_is_told_with_its_place(shop, form):
    shop.perdure("manifest", "build", "shop", "-o", f"shop.{form}", db=False)
    text = Path(f"shop.{form}").read_text()
    line = next(number for number, line in enumerate(text.splitlines(), 1) if '"auth"' in line or "auth:" in line)
    Path(f"shop.{form}").write_text(text.replace("auth", "auht", 1))

    result = shop.perdure("manifest", "check", f"shop.{form}", db=False)

    assert result.exit_code == 1
    assert re.match(rf"shop\.{form}:{line}:\d+: .*auht.*\(code-mismatch\)", result.stdout), result.stdout


def test_manifests_that_differ_are_told_apart(shop):
    shop.perdure("manifest", "build", "shop", "-o", "new.yaml", db=False)
    text = Path("new.yaml").read_text()
    Path("new.yaml").write_text(
        text.replace("auth:\n        option: text", "auth: text").replace("impl: shop:total", "impl: shop:sum")
    )

    result = shop.perdure("manifest", "diff", shop.db, "new.yaml", db=False)

    assert result.exit_code == 1
    assert '$.cells[\'com.acme/total@1\'].impl: "shop:total" → "shop:sum"' in result.stdout
    assert "$.schemas['com.acme/Order@1'].record.auth" in result.stdout


def test_a_cell_is_named_like_any_instance(shop):
    for id in ("com.acme/order/o-1", "o-1"):
        assert shop.json("show", id)["id"] == "com.acme/order/o-1"
    for id in ("com.acme/total", "com.acme/total/"):
        assert shop.json("show", id)["id"] == "com.acme/total/"
    assert [line["event"] for line in shop.json("history", "com.acme/order/o-1")["history"]] == ["made", "receipt"]
    assert shop.perdure("diff", "o-1", "o-2").exit_code == 1


def test_why_explains_a_cell_in_its_own_words(shop):
    stuck = shop.perdure("why", "com.acme/order/o-3").stdout
    idle = shop.json("why", "com.acme/order/o-1")["reasons"]

    assert "It is stuck at entry 1 (made com.acme/OrderCreated@1)" in stuck and "thirteen brings bad luck" in stuck
    assert "perdure retry com.acme/order/o-3" in stuck and "perdure run" not in stuck
    assert [each["kind"] for each in idle] == ["event", "no-engine"]
    assert "event from outside" in shop.perdure("why", "sys/world/main").stdout


def test_why_tells_of_a_receipt_that_is_waited_for_and_of_a_cell_that_is_no_more(shop):
    (shop.directory / "waiting.py").write_text(
        "import asyncio, sys, perdure, shop\n"
        "@perdure.effect_handler(shop.Charge)\n"
        "async def never(params: shop.Charge, call: perdure.Call) -> shop.Charge.Receipt:\n"
        "    print('begun', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "async def main():\n"
        "    async with perdure.open('shop.db', workflows=[shop.order, shop.total], handlers=[never]) as engine:\n"
        "        await engine.send(shop.OrderCreated('o-7', 1))\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    import subprocess

    engine = subprocess.Popen([sys.executable, "waiting.py"], stdout=subprocess.PIPE, text=True, cwd=shop.directory)
    try:
        assert engine.stdout is not None and engine.stdout.readline() == "begun\n"

        alive = shop.perdure("why", "o-7").stdout
        assert shop.perdure("cancel", "com.acme/order/o-7", "--reason", "enough").exit_code == 0
        eventually(lambda: shop.json("show", "o-7")["status"] == "cancelled")
    finally:
        engine.kill()
        engine.communicate()

    assert re.search(r"It waits for the receipt of payment/charge@1 \(at charge/~1#1\) since \d", alive)
    assert "It was cancelled" in shop.perdure("why", "o-7").stdout
    assert "makes it anew" in shop.perdure("why", "o-7").stdout


def test_the_world_itself_is_neither_started_nor_cancelled_nor_taken_back(shop):
    for words in (["start", "sys/world"], ["cancel", "sys/world/main"], ["rewind", "sys/world/main", "x"]):
        result = shop.perdure(*words)
        assert result.exit_code == 2 and "is the world of this database" in result.stderr, words


def test_cells_are_replayed_on_new_code(shop):
    assert shop.json("replay", "--against", "shop")["safe"] == 4
    assert shop.json("replay", "--against", "shop:order")["safe"] == 3

    code = Path("shop.py").read_text()
    Path("later.py").write_text(code.replace('Order("failed")', 'Order("paid")'))
    unsafe = shop.json("replay", "--against", "later", exit=1)["unsafe"]

    assert {each["id"] for each in unsafe} >= {"com.acme/order/o-2"}


def test_a_cell_is_not_run(shop):
    assert "shop:order is a cell, not a flow" in shop.perdure("run", "shop:order").stderr


def test_what_a_cell_does_not_do_is_refused(shop):
    for words in (["send", "o-1", "x"], ["rewind", "o-1", "charge/~1#1"], ["wake", "o-1"], ["start", "com.acme/order"]):
        result = shop.perdure(*words)
        assert result.exit_code == 2 and "com.acme/order is a cell" in result.stderr, words


def test_debug_opens_the_reducer_at_an_entry_with_the_state_before(shop):
    words = ("debug", "com.acme/order/o-1", "--at", "2", "--against", "shop")
    result = shop.perdure(*words, input="p state\np event.ok\nc\n")

    assert result.exit_code == 0, result.output
    assert 'Entry 2: charge/~1#1 ok {"auth": "auth-o-1"}' in result.stdout
    assert 'State before: {"pc": {"$tag": "charging", "$value": null}, "auth": null}' in result.stdout
    assert "Order(pc='charging', auth=None)" in result.stdout and "(Pdb) p event.ok\nTrue" in result.stdout
    recorded, now = re.findall(r"^(?:recorded|now) +(.*)$", result.stdout, re.MULTILINE)
    assert recorded == now and 'emit com.acme/OrderPaid@1 {"cents": 5, "order_id": "o-1"}, state {"pc":' in now
    assert "The code does what it did." in result.stdout


def test_debug_of_a_stuck_cell_opens_where_it_raised_and_tells_what_the_reducer_decides_now(shop):
    words = ("debug", "o-3", "--against", "shop", "--db", shop.db)
    _, then, _ = shop.call(*words, input="c\nq\n")
    mended = SHOP.replace("case OrderCreated(cents=13):", "case OrderCreated(cents=13_000_000):")
    (shop.directory / "shop.py").write_text(mended)
    _, out, _ = shop.call(*words, "--json", input="c\n")
    now = json.loads(out)

    assert "It raised ValueError: thirteen brings bad luck" in then
    assert now["recorded"] == ["stuck: ValueError: thirteen brings bad luck"]
    assert now["now"][0] == "effect payment/charge@1 at charge/~1#1" and not now["diverges"]


def test_debug_of_a_changed_reducer_opens_where_it_decides_otherwise(shop):
    (shop.directory / "shop.py").write_text(SHOP.replace('Order("charging")', 'Order("failed", None)'))

    _, out, _ = shop.call("debug", "o-1", "--against", "shop", "--db", shop.db, "--json", input="c\n")

    document = json.loads(out)
    assert document["diverges"] and document["entry"]["number"] == 1
    assert document["recorded"][-1].startswith("state sha256:") and "failed" in document["now"][-1]


def test_debug_of_a_cell_says_which_code_it_needs(shop):
    (shop.directory / "later.py").write_text(SHOP.replace("com.acme/order@1", "com.acme/order@2"))

    other = shop.perdure("debug", "o-1", "--against", "later")
    world = shop.perdure("debug", "sys/world/main", "--against", "shop")

    assert other.exit_code == 3 and "com.acme/order/o-1 had version 1-" in other.stderr
    assert world.exit_code == 3 and len(world.stderr.splitlines()) == 1
